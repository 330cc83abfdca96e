"""The JPEG decoder of gpu_ops beside libjpeg-turbo: the same pixels, or none."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.gpu_ops.jpeg.workspace import NO_POINTS, Points, Workspace
from tests.augpipe.decoding.image_files import encoded, scene

Pixels = npt.NDArray[np.uint8]
Region = tuple[int, int, int, int]
FACTORS = (1, 2, 4, 8)
WORKSPACE = Workspace()


def libjpegs(data: bytes, factor: int = 1) -> Pixels:
    """At 1/`factor`; the smallest scale that gives that size is this one wherever a side has eight pixels."""
    height, width = simplejpeg.decode_jpeg_header(data)[:2] if factor > 1 else (0, 0)
    least = {"min_height": -(-height // factor), "min_width": -(-width // factor)}
    pixels: Pixels = simplejpeg.decode_jpeg(data, "RGBX", fastdct=False, fastupsample=False, strict=True, **least)
    return pixels


def ours(
    data: bytes, height: int, width: int, region: Region | None = None, *points: Any, factor: int = 1
) -> Pixels | None:
    left, top, right, bottom = region or (0, 0, -(-width // factor), -(-height // factor))
    out = np.zeros((bottom - top, right - left, 4), np.uint8)
    file = np.frombuffer(data, np.uint8)
    flat = out.reshape(-1)
    is_taken = WORKSPACE.decode(file, height, width, (left, top, right, bottom), flat, *points, factor=factor)
    return out if is_taken else None


def is_left(data: bytes, height: int, width: int, factor: int) -> bool:
    """Whether it is, at this scale, to libjpeg-turbo: where that does not smooth chroma, or may take another scale."""
    subsampling = simplejpeg.decode_jpeg_header(data)[3]
    is_smoothed = subsampling in ("422", "440") or (subsampling == "420" and factor == 1)
    is_narrow = subsampling != "440" and -(-width // factor) <= 4
    return (is_smoothed and (is_narrow or factor == 8)) or (factor > 1 and max(height, width) < 8)


def points_of(data: bytes, height: int, width: int, max_points: int) -> Points:
    """All points of a file, as one pass over its codes finds them."""
    nothing = np.empty(0, np.uint8)
    file = np.frombuffer(data, np.uint8)
    assert WORKSPACE.decode(file, height, width, (0, 0, 0, 0), nothing, max_points=max_points)
    return kept()


def kept() -> Points:
    """The points that were found, in memory of their own."""
    found = WORKSPACE.points()
    return found._replace(positions=found.positions.copy(), predictors=found.predictors.copy())


@st.composite
def jpegs(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A file of any kind that is decoded, its height and its width."""
    side = st.integers(1, 70) | st.integers(100, 300)
    height, width, quality = draw(side), draw(side), draw(st.integers(1, 100))
    image = scene(height, width, draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["gray", "444", "422", "420", "440", "rgb"]))
    if kind == "440":
        return simplejpeg.encode_jpeg(image, quality, "RGB", kind), height, width
    options: dict[str, Any] = {"quality": quality, "optimize": draw(st.booleans())}
    if kind == "rgb":
        options["keep_rgb"] = True
    elif kind != "gray":
        options["subsampling"] = ("444", "422", "420").index(kind)
    restart = draw(st.sampled_from([{}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1}]))
    return encoded(image[..., 0] if kind == "gray" else image, "JPEG", **options, **restart), height, width


@pytest.mark.slow
@given(jpegs(), st.data())
@settings(max_examples=200)
def test_any_region_of_any_kind_at_any_scale_is_libjpegs(made: tuple[bytes, int, int], data: st.DataObject) -> None:
    file, height, width = made
    if is_left(file, height, width, 1):
        assert ours(file, height, width) is None
        return
    max_points = data.draw(st.sampled_from([0, 1, 2, 5, 20, 100_000]))
    all_points, growing = points_of(file, height, width, max_points), NO_POINTS
    for _ in range(5):
        factor = data.draw(st.sampled_from(FACTORS))
        if is_left(file, height, width, factor):
            assert ours(file, height, width, factor=factor) is None
            continue
        expected = libjpegs(file, factor)
        last_y, last_x = -(-height // factor), -(-width // factor)
        left, top = data.draw(st.integers(0, last_x - 1)), data.draw(st.integers(0, last_y - 1))
        right, bottom = data.draw(st.integers(left + 1, last_x)), data.draw(st.integers(top + 1, last_y))
        part = expected[top:bottom, left:right]
        for points in (NO_POINTS, all_points, growing):
            found = ours(file, height, width, (left, top, right, bottom), points, max_points, factor=factor)
            assert found is not None
            np.testing.assert_array_equal(found, part)
        assert kept().num_rows >= growing.num_rows
        growing = kept()
    ours(file, height, width, (0, 0, width, height), growing, max_points)
    assert_same_points(kept(), all_points)


def assert_same_points(found: Points, expected: Points) -> None:
    assert found[:3] == expected[:3]
    np.testing.assert_array_equal(found.positions, expected.positions)
    np.testing.assert_array_equal(found.predictors, expected.predictors)


def test_noise_in_which_every_code_occurs_is_taken() -> None:
    """At quality 100 many bytes are 255, each with a stuffed one behind it."""
    noise = np.random.default_rng(1).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    data = encoded(noise, "JPEG", quality=100, subsampling=0)
    assert data.count(b"\xff\0") > 200
    found = ours(data, 200, 200)
    assert found is not None
    np.testing.assert_array_equal(found, libjpegs(data))


def test_points_of_every_row_and_of_fewer() -> None:
    data = encoded(scene(90, 1000), "JPEG", quality=80, subsampling=0)  # 12 rows of 125 MCUs
    assert points_of(data, 90, 1000, 12 * 8)[:3] == (1, 16, 12)
    assert points_of(data, 90, 1000, 12 * 8 - 1)[:3] == (1, 32, 12)
    assert points_of(data, 90, 1000, 12)[:3] == (1, 128, 12)
    assert len(points_of(data, 90, 1000, 7).positions) == 6 and points_of(data, 90, 1000, 7).row_step == 2
    none = points_of(data, 90, 1000, 0)
    assert none.num_rows == 0 and len(none.positions) == 0


def test_rows_are_known_as_far_as_they_were_read() -> None:
    data = encoded(scene(90, 200), "JPEG", quality=80, subsampling=0)
    assert ours(data, 90, 200, (40, 20, 90, 30), NO_POINTS, 1000) is not None
    upper = kept()
    assert upper.num_rows == 3  # the fourth was not read to its end
    assert ours(data, 90, 200, (40, 60, 90, 70), upper, 1000) is not None
    assert kept().num_rows == 8
    assert ours(data, 90, 200, (0, 0, 200, 90), upper, 1000) is not None
    assert_same_points(kept(), points_of(data, 90, 200, 1000))


def test_what_lies_above_the_first_point_is_not_read() -> None:
    data = encoded(scene(90, 200), "JPEG", quality=80, subsampling=0)
    points = points_of(data, 90, 200, 1000)
    sound = ours(data, 90, 200, (40, 60, 90, 70))
    start = data.index(b"\xff\xda")
    start += 2 + int.from_bytes(data[start + 2 : start + 4], "big")
    changed = bytearray(data)
    changed[start + 40 : start + 60] = b"\xff\0" * 10
    assert ours(bytes(changed), 90, 200, (40, 60, 90, 70)) is None
    found = ours(bytes(changed), 90, 200, (40, 60, 90, 70), points)
    assert found is not None and sound is not None
    np.testing.assert_array_equal(found, sound)


def test_files_with_restart_markers_have_no_points() -> None:
    assert not points_of(RESTARTED, 40, 50, 1000).num_rows


@pytest.mark.slow
def test_photographs(photos_dir: Path) -> None:
    rng = np.random.default_rng(5)
    for path in sorted(photos_dir.iterdir()):
        file = path.read_bytes()
        height, width = simplejpeg.decode_jpeg_header(file)[:2]
        all_points = points_of(file, height, width, 1000)
        for factor in FACTORS:
            if is_left(file, height, width, factor):
                continue
            expected = libjpegs(file, factor)
            found = ours(file, height, width, factor=factor)
            assert found is not None and np.array_equal(found, expected), path.name
            rows, columns = (np.sort(rng.integers(0, side + 1, 2)) for side in expected.shape[:2])
            (top, bottom), (left, right) = rows.tolist(), columns.tolist()
            if left < right and top < bottom:
                for points in (NO_POINTS, all_points):
                    part = ours(file, height, width, (left, top, right, bottom), points, factor=factor)
                    assert part is not None and np.array_equal(part, expected[top:bottom, left:right]), path.name


@pytest.mark.parametrize(
    ("dc", "is_taken"), [(681, True), (682, False), (-683, True), (-684, False)], ids=lambda value: str(value)
)
def test_means_that_libjpegs_table_of_levels_has_no_place_for(dc: int, is_taken: bool) -> None:
    """Beyond four times 128, at 1/8: blocks with means of `dc` / 8, whose quantization was made six times as large."""
    image = np.full((8, 8), 128 + dc // 8, np.uint8)
    image[:, : dc % 8] += 1  # a DC coefficient is eight times the mean
    data = simplejpeg.encode_jpeg(np.tile(image, (2, 2))[..., None].copy(), 100, "GRAY")
    at = data.index(b"\xff\xdb") + 5
    assert data[at] == 1
    larger = data[:at] + bytes([6]) + data[at + 1 :]
    found, expected = ours(larger, 16, 16, factor=8), libjpegs(larger, 8)
    clamped = 255 if dc > 0 else 0
    assert (expected[..., 0] == clamped).all() == is_taken
    assert (found is not None) == is_taken
    assert found is None or np.array_equal(found, expected)


def test_a_factor_that_is_none_is_not_decoded() -> None:
    assert ours(PLAIN, 40, 50, (0, 0, 5, 5), factor=2) is not None
    for factor in (-1, 0, 3, 5, 16):
        assert ours(PLAIN, 40, 50, (0, 0, 5, 5), factor=factor) is None


IMAGE = scene(40, 50)
PLAIN = encoded(IMAGE, "JPEG", quality=90)
RESTARTED = encoded(IMAGE, "JPEG", quality=90, restart_marker_rows=1)


def changed(data: bytes, at: int, value: int) -> bytes:
    assert data[at] != value
    return data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encoded(IMAGE, "JPEG", progressive=True), id="progressive"),
        pytest.param(simplejpeg.encode_jpeg(IMAGE, 90, "RGB", "411"), id="chroma at a quarter"),
        pytest.param(encoded(np.dstack([IMAGE, IMAGE[..., 0]]), "TIFF"), id="no JPEG"),
        pytest.param(PLAIN[:-2], id="no end"),
        pytest.param(PLAIN[:-40] + PLAIN[-2:], id="too few blocks"),
        pytest.param(PLAIN[:-2] + b"\0\0" + PLAIN[-2:], id="bytes before the end"),
        pytest.param(changed(RESTARTED, RESTARTED.index(b"\xff\xd1") + 1, 0xD2), id="restart markers in disorder"),
        pytest.param(changed(PLAIN, PLAIN.index(b"\xff\xc0") + 4, 12), id="12 bits"),
        pytest.param(PLAIN.replace(b"\xff\xc4", b"\xff\xfe"), id="no tables"),
        pytest.param(PLAIN.replace(b"\xff\xdb", b"\xff\xfe"), id="no quantization"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_is_left_to_libjpeg(data: bytes) -> None:
    assert ours(data, 40, 50) is None


def test_another_size_than_the_callers_is_not_decoded() -> None:
    assert ours(PLAIN, 40, 50) is not None
    assert ours(PLAIN, 41, 50) is None and ours(PLAIN, 40, 49) is None


@pytest.mark.parametrize("seed", range(20))
def test_an_interval_that_ends_before_the_region_does_is_not_read_on_into_the_next(seed: int) -> None:
    """Gray, of four MCUs a restart interval by its header, with two in each: the next two are another row's."""
    narrow = encoded(scene(16, 16, seed)[..., 0], "JPEG", quality=30, restart_marker_blocks=2)
    frame, restart = narrow.index(b"\xff\xc0"), narrow.index(b"\xff\xdd\0\4")
    data = changed(changed(narrow, frame + 8, 32), restart + 5, 4)
    with pytest.raises(ValueError, match="premature end of data segment"):
        libjpegs(data)
    assert ours(data, 16, 32, (0, 0, 32, 8)) is None


@pytest.mark.parametrize("side", [65_500, 65_501, 65_535])
def test_sides_are_no_longer_than_libjpegs_longest(side: int) -> None:
    """On other CPUs libjpeg-turbo has to decode the file."""
    data = simplejpeg.encode_jpeg(np.zeros((1, 65_500, 1), np.uint8), 90, "GRAY")
    at = data.index(b"\xff\xc0") + 7
    longer = data[:at] + side.to_bytes(2, "big") + data[at + 2 :]
    assert (ours(longer, 1, side, (0, 0, 8, 1)) is not None) == (side == 65_500)


@pytest.mark.parametrize("region", [(0, 0, 51, 40), (-1, 0, 50, 40), (5, 5, 5, 9), (0, 9, 50, 3)])
def test_a_region_outside_the_image_is_not_decoded(region: tuple[int, int, int, int]) -> None:
    out = np.zeros(64 * 64 * 4, np.uint8)
    assert not WORKSPACE.decode(np.frombuffer(PLAIN, np.uint8), 40, 50, region, out)


def test_memory_that_is_too_small_is_not_written() -> None:
    out = np.zeros(40 * 50 * 4 - 4, np.uint8)
    assert not WORKSPACE.decode(np.frombuffer(PLAIN, np.uint8), 40, 50, (0, 0, 50, 40), out)
    assert not out.any()


def test_more_points_are_known_than_memory_was_made_for() -> None:
    height, width = 16, 40_000
    data = simplejpeg.encode_jpeg(np.zeros((height, width, 1), np.uint8), 90, "GRAY")
    points = points_of(data, height, width, 65_535)
    num = 20_000
    forged = Points(1, 1, 4, np.zeros(num, np.uint32), np.zeros((num, 3), np.int16))
    file, out = np.frombuffer(data, np.uint8), np.empty(height * 8 * 4, np.uint8)
    workspace = Workspace()
    workspace.decode(file, height, width, (0, 0, 8, height), out, forged)  # gives whatever pixels
    assert workspace.decode(file, height, width, (0, 0, 8, height), out, points)
    np.testing.assert_array_equal(out.reshape(height, 8, 4), libjpegs(data)[:, :8])


DAMAGED = """
import random, sys
from functools import partial
import numpy as np
from augpipe.gpu_ops.image.fused import run_jobs
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.jpeg.workspace import MAX_FILES, NO_POINTS, File, View, Workspace
from tests.gpu_ops.test_jpeg import libjpegs
from tests.guard_pages import guarded
from tests.augpipe.decoding.image_files import encoded, scene

def verdict(data, factor):
    try:
        return libjpegs(data, factor)
    except (ValueError, KeyError):
        return None

def forged(points):
    numbers = [a + chance.choice([-1, 0, 0, 0, 1, 9]) if chance.random() < 0.1 else a for a in points[:3]]
    positions, predictors = points.positions.copy(), points.predictors.copy()
    for _ in range(chance.choice([1, 1, 3])):
        if len(positions):
            positions[chance.randrange(len(positions))] ^= np.uint32(1 << chance.randrange(32))
            predictors[chance.randrange(len(positions))] ^= np.int16(1 << chance.randrange(15))
    return type(points)(*numbers, positions, predictors)

def row_of(region):
    left, top, right, bottom = region
    row = np.zeros(1, KERNEL_ROW)
    for name in ("after_xx", "after_yy", "support_x", "support_y", "scale"):
        row[name] = 1
    row["origin_x"], row["origin_y"], row["high_x"], row["high_y"] = left, top, right - left - 1, bottom - top - 1
    return row

def check_group(workspace, group, is_at_end):
    \"""Files, regions and points in one call: the same verdicts and images as one by one, and no other memory.\"""
    rows, images = guarded(len(group), KERNEL_ROW, is_at_end), guarded(len(group) * 4 * 5 * 3, np.float32, is_at_end)
    files, verdicts, expected = [], [], images.reshape(len(group), -1).copy()
    expected[:] = images[:] = -1
    most = max((right - left) * (bottom - top) for _, _, _, (left, top, right, bottom), _ in group)
    largest = guarded(4 * most, np.uint8, is_at_end)
    for nth, (data, size, factor, region, points) in enumerate(group):
        file = guarded(len(data), np.uint8, is_at_end)
        file[:] = np.frombuffer(data, np.uint8)
        rows[nth] = row_of(region)[0]
        verdicts.append(workspace.decode(file, *size, region, largest, points, factor=factor))
        if verdicts[-1]:
            table = np.array([(largest.ctypes.data, region[2] - region[0], *region[:2])], np.int64)
            run_jobs(table, rows[nth : nth + 1].copy(), expected[nth], 4, 5, True, 0, 1)
        files.append(File(file, size, factor, region, nth, points))
    assert workspace.render(files, [View(rows, images, 4, 5)], largest, planar=True) == verdicts
    assert images.tobytes() == expected.tobytes()
    return sum(verdicts)

num = int(sys.argv[1])
chance = random.Random(num)
in_groups = []
workspaces = [Workspace(partial(guarded, is_at_end=is_at_end)) for is_at_end in (False, True)]
found = {"taken": 0, "left": 0}
by_forged_points = [0, 0]
kinds = [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"restart_marker_blocks": 3}, {"optimize": True}]
for turn in range(num // 100):
    height, width = chance.randint(1, 90), chance.randint(1, 90)
    factor = (1, 2, 4, 8)[turn // 10 % 4]
    rows, columns = -(-height // factor), -(-width // factor)
    sound = encoded(scene(height, width, turn), "JPEG", quality=chance.randint(1, 100), **kinds[turn // 2 % len(kinds)])
    is_at_end = turn % 2 == 1
    workspace = workspaces[is_at_end]
    memory, out = guarded(len(sound), np.uint8, is_at_end), guarded(rows * columns * 4, np.uint8, is_at_end)
    all_codes, max_points = (0, 0, 0, 0), chance.choice([9, 9999])
    workspace.decode(np.frombuffer(sound, np.uint8), height, width, all_codes, out, max_points=max_points)
    points = workspace.points()
    points = points._replace(positions=points.positions.copy(), predictors=points.predictors.copy())
    group = [(sound, (height, width), factor, (0, 0, columns, rows), points)]
    for _ in range(100):
        data = bytearray(sound)
        way = chance.random()
        if way < 0.15:
            del data[chance.randrange(2, len(data)) :]
        elif way < 0.3:
            at = chance.randrange(len(data))
            del data[at : at + chance.randint(1, 8)]
        else:
            for _ in range(chance.choice([1, 1, 2, 8])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        file = memory[len(memory) - len(data) :] if is_at_end else memory[: len(data)]
        file[:] = data
        left, top = chance.randrange(columns), chance.randrange(rows)
        region = left, top, chance.randint(left + 1, columns), chance.randint(top + 1, rows)
        workspace.decode(file, height, width, region, out, factor=factor)
        some_points = forged(points) if chance.random() < 0.5 else NO_POINTS
        group.append((bytes(data), (height, width), factor, region, some_points))
        by_forged_points[workspace.decode(file, height, width, region, out, forged(points), factor=factor)] += 1
        is_taken = workspace.decode(file, height, width, (0, 0, columns, rows), out, factor=factor)
        found["taken" if is_taken else "left"] += 1
        if is_taken:
            expected = verdict(bytes(data), factor)
            assert expected is not None and np.array_equal(out.reshape(rows, columns, 4), expected)
    in_groups.append(check_group(workspace, group[:MAX_FILES], is_at_end))
print(found, by_forged_points, in_groups)
assert len(set(in_groups)) > MAX_FILES // 2
assert min(*found.values(), *by_forged_points) > num // 20
"""


@pytest.mark.slow
def test_damaged_files_are_left_or_the_same_and_no_memory_but_its_own_is_touched() -> None:
    ended = subprocess.run([sys.executable, "-c", DAMAGED, "20000"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
