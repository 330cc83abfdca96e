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

from augpipe.gpu_ops.jpeg.decode import Workspace
from tests.augpipe.decoding.image_files import encoded, scene

Pixels = npt.NDArray[np.uint8]
WORKSPACE = Workspace()


def libjpegs(data: bytes) -> Pixels:
    pixels: Pixels = simplejpeg.decode_jpeg(data, "RGBX", fastdct=False, fastupsample=False, strict=True)
    return pixels


def ours(data: bytes, height: int, width: int, region: tuple[int, int, int, int] | None = None) -> Pixels | None:
    left, top, right, bottom = region or (0, 0, width, height)
    out = np.zeros((bottom - top, right - left, 4), np.uint8)
    file = np.frombuffer(data, np.uint8)
    is_taken = WORKSPACE.decode(file, height, width, (left, top, right, bottom), out.reshape(-1))
    return out if is_taken else None


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


@given(jpegs(), st.data())
@settings(max_examples=150)
def test_any_region_of_any_kind_is_libjpegs(made: tuple[bytes, int, int], data: st.DataObject) -> None:
    file, height, width = made
    expected = libjpegs(file)
    is_narrow = width <= 4 and simplejpeg.decode_jpeg_header(file)[3] in ("422", "420")
    regions = [(0, 0, width, height)]
    for _ in range(3):
        left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
        regions.append((left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))))
    for left, top, right, bottom in regions:
        found = ours(file, height, width, (left, top, right, bottom))
        if is_narrow:  # libjpeg does not smooth these
            assert found is None
        else:
            assert found is not None
            np.testing.assert_array_equal(found, expected[top:bottom, left:right])


def test_photographs(photos_dir: Path) -> None:
    rng = np.random.default_rng(5)
    for path in sorted(photos_dir.iterdir()):
        file = path.read_bytes()
        expected = libjpegs(file)
        height, width = expected.shape[:2]
        found = ours(file, height, width)
        assert found is not None and np.array_equal(found, expected), path.name
        (left, right), (top, bottom) = np.sort(rng.integers(0, width + 1, 2)), np.sort(rng.integers(0, height + 1, 2))
        if left < right and top < bottom:
            part = ours(file, height, width, (left, top, right, bottom))
            assert part is not None and np.array_equal(part, expected[top:bottom, left:right]), path.name


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


@pytest.mark.parametrize("region", [(0, 0, 51, 40), (-1, 0, 50, 40), (5, 5, 5, 9), (0, 9, 50, 3)])
def test_a_region_outside_the_image_is_not_decoded(region: tuple[int, int, int, int]) -> None:
    out = np.zeros(64 * 64 * 4, np.uint8)
    assert not WORKSPACE.decode(np.frombuffer(PLAIN, np.uint8), 40, 50, region, out)


def test_memory_that_is_too_small_is_not_written() -> None:
    out = np.zeros(40 * 50 * 4 - 4, np.uint8)
    assert not WORKSPACE.decode(np.frombuffer(PLAIN, np.uint8), 40, 50, (0, 0, 50, 40), out)
    assert not out.any()


DAMAGED = """
import random, sys
from functools import partial
import numpy as np
from augpipe.gpu_ops.jpeg.decode import Workspace
from tests.gpu_ops.test_jpeg import libjpegs
from tests.guard_pages import guarded
from tests.augpipe.decoding.image_files import encoded, scene

def verdict(data):
    try:
        return libjpegs(data)
    except (ValueError, KeyError):
        return None

num = int(sys.argv[1])
chance = random.Random(num)
workspaces = [Workspace(partial(guarded, is_at_end=is_at_end)) for is_at_end in (False, True)]
found = {"taken": 0, "left": 0}
kinds = [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"restart_marker_blocks": 3}, {"optimize": True}]
for turn in range(num // 100):
    height, width = chance.randint(1, 90), chance.randint(1, 90)
    sound = encoded(scene(height, width, turn), "JPEG", quality=chance.randint(1, 100), **kinds[turn // 2 % len(kinds)])
    is_at_end = turn % 2 == 1
    workspace = workspaces[is_at_end]
    memory, out = guarded(len(sound), np.uint8, is_at_end), guarded(height * width * 4, np.uint8, is_at_end)
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
        left, top = chance.randrange(width), chance.randrange(height)
        region = left, top, chance.randint(left + 1, width), chance.randint(top + 1, height)
        workspace.decode(file, height, width, region, out)
        is_taken = workspace.decode(file, height, width, (0, 0, width, height), out)
        found["taken" if is_taken else "left"] += 1
        if is_taken:
            expected = verdict(bytes(data))
            assert expected is not None and np.array_equal(out.reshape(height, width, 4), expected)
print(found)
assert min(found.values()) > num // 20
"""


def test_damaged_files_are_left_or_the_same_and_no_memory_but_its_own_is_touched() -> None:
    ended = subprocess.run([sys.executable, "-c", DAMAGED, "20000"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
