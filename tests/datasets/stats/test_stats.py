"""A source's sums against numpy, whatever the threads; percentiles and classes; what cannot be used."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.datasets.stats.chunk import measure_chunk
from augpipe.datasets.stats.collect import collect_statistics, map_chunks
from augpipe.datasets.stats.statistics import PERCENTS, distribution
from augpipe.datasets.stats.sums import MAX_LISTED, FormatSums, Sums, Unusable, merge_all
from augpipe.sources.protocol import Pixels
from tests.augpipe.decoding.image_files import bad_files, encoded, exif, odd_files, scene, write_files


def rgbx(pixels: Pixels) -> Pixels:
    return np.dstack([pixels, np.full(pixels.shape[:2], 7, np.uint8)])


@pytest.fixture
def mixed(tmp_path: Path) -> FolderSource:
    """Odd and bad files in class folders."""
    folders = [f"{name}/" for name in ("a", "b", "c")]
    everything = {name: data for name, (data, _) in (odd_files() | bad_files()).items()}
    placed = {folders[number % 3] + name: data for number, (name, data) in enumerate(everything.items())}
    write_files(tmp_path, placed)
    return FolderSource(tmp_path)


def as_plain(sums: Sums) -> dict[str, object]:
    found = {field.name: getattr(sums, field.name) for field in fields(sums)}
    return found | {"fingerprints": sums.fingerprints.tobytes()}


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (300, 257)])
def test_channel_sums_are_numpys(shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    sums = ChannelSums.of(rgbx(pixels))
    flat = pixels.reshape(-1, 3).astype(np.int64)
    assert sums.num_pixels == len(flat)
    assert sums.sums == tuple(flat.sum(0).tolist()) and sums.squares == tuple((flat**2).sum(0).tolist())
    np.testing.assert_allclose(sums.mean, flat.mean(0) / 255, rtol=1e-14)
    np.testing.assert_allclose(sums.std, flat.std(0) / 255, rtol=1e-12, atol=1e-15)


def test_white_images_do_not_overflow() -> None:
    sums = ChannelSums.of(np.full((1100, 1200, 4), 255, np.uint8))
    assert sums.squares == (255**2 * 1100 * 1200,) * 3
    assert sums.mean == (1.0, 1.0, 1.0) and sums.std == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("channel", range(3))
def test_one_pixel_of_colour_is_no_gray_image(channel: int) -> None:
    pixels = np.repeat(scene(40, 50)[..., :1], 3, axis=2)
    assert ChannelSums.of(rgbx(pixels)).is_gray
    pixels[39, 49, channel] ^= 1
    assert not ChannelSums.of(rgbx(pixels)).is_gray


def test_a_source_of_arrays_against_numpy() -> None:
    images = [scene(20 + number, 30 + 2 * number, number) for number in range(9)]
    found = collect_statistics(ArraySource(images, [0, 0, 0, 0, 1, 1, 2, 2, 2], ["x", "y", "z"]), num_threads=2)
    flat = np.concatenate([image.reshape(-1, 3) for image in images]) / 255
    np.testing.assert_allclose(found.sums.channels.mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.sums.channels.std, flat.std(0), rtol=1e-12)
    assert found.class_sizes == {"x": 4, "y": 2, "z": 3}
    shares = np.array([4, 2, 3]) / 9
    assert found.balance == pytest.approx(-(shares * np.log(shares)).sum() / np.log(3))
    assert {kind: sums.num for kind, sums in found.sums.formats.items()} == {"array": 9}
    assert found.sums.formats["array"].total_bytes == sum(image.nbytes for image in images)


def test_odd_and_bad_files(mixed: FolderSource) -> None:
    found = collect_statistics(mixed, num_threads=2).sums
    assert found.num == len(odd_files()) + len(bad_files()) and found.num_usable == len(odd_files())
    assert {Path(bad.name).name for bad in found.unusable} == set(bad_files())
    for bad in found.unusable:
        assert bad.name == mixed.name(bad.sample_id)
    (empty,) = [bad for bad in found.unusable if bad.name.endswith("empty.jpg")]
    assert empty.reason == "the file is empty (0 bytes)"
    sizes = [size for _, size in odd_files().values()]
    assert found.sizes == {size: sizes.count(size) for size in sizes}
    assert found.num_turned == 1
    nums = {kind: sums.num for kind, sums in found.formats.items()}
    assert nums == {"JPEG": 8, "PNG": 6, "WebP": 1, "GIF": 1, "BMP": 1, "TIFF": 1}
    assert sum(sums.total_bytes for sums in found.formats.values()) == sum(
        len(data) for data, _ in odd_files().values()
    )


def test_gray_and_turned_are_counted(tmp_path: Path) -> None:
    image = Image.fromarray(scene(30, 40))
    files = {f"{turn}.jpg": encoded(image, "JPEG", exif=exif(turn)) for turn in range(1, 9)}
    files |= {
        "gray.jpg": encoded(image.convert("L"), "JPEG"),
        "as_rgb.png": encoded(image.convert("L").convert("RGB"), "PNG"),
    }
    write_files(tmp_path, files)
    sums = collect_statistics(FolderSource(tmp_path)).sums
    assert (sums.num_gray, sums.num_turned) == (2, 7)
    assert sums.sizes == {(30, 40): 6, (40, 30): 4}


def test_threads_do_not_show(mixed: FolderSource) -> None:
    one, many = (collect_statistics(mixed, num_threads=num) for num in (1, 5))
    assert as_plain(one.sums) == as_plain(many.sums)
    assert json.dumps(one.to_json()) == json.dumps(many.to_json())


def test_chunks_merge_into_the_whole(mixed: FolderSource) -> None:
    num = len(mixed)
    whole = measure_chunk(mixed, range(num))
    for cuts in ([1], [5, 6, 7, 20], list(range(num))):
        bounds = [0, *cuts, num]
        parts = [measure_chunk(mixed, range(a, b)) for a, b in pairwise(bounds)]
        assert as_plain(merge_all(parts)) == as_plain(whole)
    assert as_plain(merge_all([])) == as_plain(Sums())


def test_files_of_a_format_have_their_least_and_most_bytes() -> None:
    large = FormatSums(num=2, total_bytes=30, least_bytes=10, most_bytes=20)
    small = FormatSums(num=1, total_bytes=5, least_bytes=5, most_bytes=5)
    both = FormatSums(num=3, total_bytes=35, least_bytes=5, most_bytes=20)
    assert large.merge(small) == small.merge(large) == both


def test_unusable_images_are_counted_beyond_those_listed() -> None:
    bad = [Unusable(sample_id=number, name=str(number), reason="") for number in range(MAX_LISTED + 50)]
    sums = merge_all(Sums(num=1, num_unusable=1, unusable=(one,)) for one in bad)
    assert sums.num_unusable == MAX_LISTED + 50
    assert sums.unusable == tuple(bad[:MAX_LISTED])


def test_nothing_usable(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jpg": b"", "b.jpg": b"no"})
    found = collect_statistics(FolderSource(tmp_path))
    told = json.loads(json.dumps(found.to_json()))
    assert (
        told["usable"] == 0 and told["sizes"] == {} and told["mean"] == [0, 0, 0] and told["duplicates"]["groups"] == []
    )


@pytest.mark.parametrize("num", [1, 2, 19, 100])
def test_percentiles_are_numpys(num: int) -> None:
    values = np.random.default_rng(num).integers(1, 40, num)
    counted = {float(value): int((values == value).sum()) for value in set(values)}
    found = distribution(counted, [1, 10, 20, 40])
    assert found is not None
    assert found.percentiles == tuple(np.percentile(values, PERCENTS, method="inverted_cdf"))
    assert found.mean == pytest.approx(values.mean())
    assert found.counts == tuple(np.histogram(values, [1, 10, 20, 40])[0])
    assert distribution({}, [1, 2]) is None


def test_json_names_the_last_edge_null() -> None:
    told = collect_statistics(ArraySource([scene(5, 9)])).to_json()
    assert told["sizes"]["width"]["p50"] == 9 and told["sizes"]["aspect"]["max"] == 9 / 5
    assert told["sizes"]["width"]["histogram"]["edges"][-1] is None
    assert told["unlabelled"] == 1 and told["classes"] == {"num": 0, "balance": None, "sizes": {}}
    json.dumps(told, allow_nan=False)


def test_labels_of_several_numbers_are_counted_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(1e6, 3, (7, 3)).astype(np.float32)
    rows[2:4, 1] = 0
    images = [scene(5, 9, seed) for seed in (0, 0, 2, 3, 4, 5, 6)]
    expected = rows.astype(np.float64)
    for chunk in (100, 3):
        monkeypatch.setattr("augpipe.datasets.stats.label_numbers._CHUNK", chunk)
        found = collect_statistics(ArraySource(images, rows, classes=["x", "y", "z"]))
        assert [number.name for number in found.label_numbers] == ["x", "y", "z"]
        told = [number.to_json() for number in found.label_numbers]
        np.testing.assert_array_equal([number["least"] for number in told], expected.min(axis=0))
        np.testing.assert_array_equal([number["most"] for number in told], expected.max(axis=0))
        np.testing.assert_allclose([number["mean"] for number in told], expected.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose([number["std"] for number in told], expected.std(axis=0), rtol=1e-9)
        assert [number["num_not_zero"] for number in told] == [7, 5, 7]
    assert found.class_sizes == {} and found.num_unlabelled == 0 and found.balance is None
    assert found.to_json()["label_numbers"] == told
    assert found.duplicates is not None and found.duplicates.num_extra["same_bytes"] == 1
    assert not any(group.contradicts for group in found.duplicates.groups)
    assert [number.name for number in collect_statistics(ArraySource(images, rows)).label_numbers] == ["0", "1", "2"]


def test_progress_counts_every_image() -> None:
    seen: list[tuple[str, int, int]] = []
    source = ArraySource([scene(4, 4, number) for number in range(70)])
    collect_statistics(source, num_threads=3, progress=lambda *told: seen.append(told))
    assert seen == [("reading", done, 70) for done in range(71)]


def test_results_keep_their_order_and_few_chunks_are_under_way() -> None:
    lock, under_way, most = threading.Lock(), 0, 0

    def work(chunk: range, tick: Callable[[], None]) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        for _ in chunk:
            tick()
        with lock:
            under_way -= 1
        return chunk[0]

    results = map_chunks(work, range(1000), 3, lambda done: None)  # type: ignore[arg-type]
    assert list(results) == list(range(0, 1000, 32))
    assert 1 <= most <= 3


def test_who_stops_early_leaves_no_thread() -> None:
    started = threading.Event()
    before = threading.active_count()

    def endless(chunk: range, tick: Callable[[], None]) -> None:
        if chunk[0] == 0:
            started.wait()
            return
        started.set()
        while True:
            tick()

    results: Iterator[None] = map_chunks(endless, range(1000), 2, lambda done: None)  # type: ignore[arg-type]
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_bug_in_a_source_is_not_an_unusable_image() -> None:
    class Broken(ArraySource):
        def read(self, sample_id: int) -> Pixels:
            raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        collect_statistics(Broken([scene(4, 4)]), num_threads=2)
    with pytest.raises(ValueError, match="num_threads=0 must be at least 1"):
        collect_statistics(ArraySource([scene(4, 4)]), num_threads=0)
