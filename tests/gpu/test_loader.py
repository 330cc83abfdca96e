"""On a CUDA device: what loaders give, beside the native one on the CPU; caches; a host that does not wait."""

import gc
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Batch, Loader, Recipe, recipes
from augpipe.errors import SampleError
from tests.augpipe.decoding.image_files import encoded, scene

pytestmark = pytest.mark.gpu

RECIPE = recipes.deep_image(64, (72, 144))
LEVEL = 1 / (255 * 0.225)
NUM = 20
SEGMENT_BYTES = 1 << 28
"""What the cache asks for at once."""

BACKENDS = ["native", "dali"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photographs")
    for number in range(NUM):
        image = scene(150 + 7 * number, 260 - 5 * number, number)
        (out / f"{number:02}.jpg").write_bytes(encoded(image, "JPEG", quality=95))
    return out


def make(folder: Path, recipe: Recipe = RECIPE, **options: Any) -> Loader:
    if options.get("backend") == "dali":
        pytest.importorskip("nvidia.dali")
    return Loader(folder, recipe, **({"batch_size": 6, "device": "cuda", "backend": "native"} | options))


def assert_same_plans(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.sample_ids, other.sample_ids)
        assert one.plan.rows.tobytes() == other.plan.rows.tobytes()
        assert torch.equal(one.labels.cpu(), other.labels.cpu())


def test_native_is_within_a_level_of_the_cpu(folder: Path) -> None:
    found, expected = list(make(folder)), list(make(folder, device="cpu"))
    assert_same_plans(found, expected)
    for one, other in zip(found, expected, strict=True):
        assert one.images.is_cuda and one.labels.is_cuda
        assert float((one.images.cpu() - other.images).abs().max()) <= LEVEL


def test_dali_gives_the_same_plans_and_nearly_the_same_pixels(folder: Path) -> None:
    found, expected = list(make(folder, backend="dali")), list(make(folder, device="cpu"))
    assert_same_plans(found, expected)
    for one, other in zip(found, expected, strict=True):
        assert one.images.is_cuda
        assert float((one.images.cpu() - other.images).abs().mean()) <= LEVEL


@pytest.mark.parametrize("cache", ["device", "host"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_hits_are_bit_equal_to_misses(folder: Path, backend: str, cache: str) -> None:
    loader = make(folder, backend=backend, cache=cache, cache_bytes=1 << 28)
    missed = list(loader)
    loader.set_epoch(0)
    hit = list(loader)
    assert_same_plans(hit, missed)
    assert all(torch.equal(one.images, other.images) for one, other in zip(hit, missed, strict=True))
    statistics = loader.cache_statistics
    assert statistics is not None and (statistics.hits, statistics.misses) == (NUM, NUM)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_are_ready_on_the_stream_where_they_are_handed_out(folder: Path, backend: str) -> None:
    """Each is used at once on a side stream, after which nothing refers to it."""
    expected = [batch.images.double().sum().item() for batch in make(folder, backend=backend)]
    loader, sums = make(folder, backend=backend), []
    with torch.cuda.stream(torch.cuda.Stream()):
        for batch in loader:
            torch.cuda._sleep(5_000_000)
            sums.append(batch.images.double().sum())
            del batch
    torch.cuda.synchronize()
    assert [float(value) for value in sums] == expected


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("cache", ["off", "device"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_epoch_does_not_wait_for_the_device(folder: Path, backend: str, cache: str) -> None:
    loader = make(folder, backend=backend, cache=cache)
    for _ in range(2):
        assert len(list(loader)) == 4
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert sum(len(batch) for batch in loader) == NUM
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_epochs_can_be_abandoned_and_resumed(folder: Path) -> None:
    for backend in BACKENDS:
        whole = list(make(folder, backend=backend))
        loader = make(folder, backend=backend)
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
        del batches
        gc.collect()
        resumed = make(folder, backend=backend)
        resumed.load_state_dict(state)
        rest = list(resumed)
        assert_same_plans(rest, whole[2:])
        assert all(torch.equal(one.images, other.images) for one, other in zip(rest, whole[2:], strict=True))


def test_corrupt_images_are_skipped_as_on_the_cpu(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        content = file.read_bytes()
        if file.name == "03.jpg":
            content = content[: len(content) * 2 // 3]
        (tmp_path / file.name).write_bytes(b"no picture" if file.name == "09.jpg" else content)
    loader = make(tmp_path, backend="dali", on_error="skip")
    found, expected = list(loader), list(make(tmp_path, device="cpu", on_error="skip"))
    assert_same_plans(found, expected)
    assert sorted(loader.skipped) == [3, 9]
    assert sum(len(batch) for batch in loader) == NUM
    with pytest.raises(SampleError, match="03.jpg"):
        list(make(tmp_path, backend="dali", shuffle=False))


def test_the_cache_stops_growing_where_the_device_is_full(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = encoded(scene(2400, 3200, 1), "JPEG")  # 31 MB in RGBX: nine do not fit into a segment
    recipe = recipes.deep_image(64, (2400,))  # it wants them at their full size
    for number in range(12):
        (tmp_path / f"{number:02}.jpg").write_bytes(large)
    options: dict[str, Any] = {"batch_size": 1, "prefetch": 1, "num_threads": 1}
    expected = [batch.images.cpu() for batch in make(tmp_path, recipe, **options)]
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total, pools = torch.cuda.mem_get_info()[1], 6 * (64 << 20)  # of staging, for the batches under way
    room = torch.cuda.memory_reserved() + SEGMENT_BYTES + min(pools, SEGMENT_BYTES * 7 // 8)
    torch.cuda.set_per_process_memory_fraction(room / total)
    try:
        with caplog.at_level(logging.WARNING, logger="augpipe"):
            loader = make(tmp_path, recipe, cache="device", cache_bytes=20 * SEGMENT_BYTES, **options)
            missed = [batch.images.cpu() for batch in loader]
            loader.set_epoch(0)
            hit = [batch.images.cpu() for batch in loader]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    statistics = loader.cache_statistics
    assert statistics is not None and 0 < statistics.num_held < 12 and statistics.num_did_not_fit > 0
    assert sum("stops growing" in record.message for record in caplog.records) == 1
    for one, two, three in zip(expected, missed, hit, strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)


def test_an_index_out_of_range_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="cuda:99"):
        make(folder, device="cuda:99")
