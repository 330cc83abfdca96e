"""`Loader(device="cuda")` on a simulated device, beside loaders on the CPU; `test_simulated.py` runs these tests.

The simulator is chosen when numba is imported, so they run in an interpreter of their own, where torch's CPU tensors
stand for device memory. It takes a thousandth of a second a pixel, so photographs and crops are tiny.
"""

import importlib.util
import logging
import sys
from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Batch, Loader, Recipe, SampleError, View, recipes
from augpipe.cache import CacheStatistics
from augpipe.gpu_ops.cuda.launch import is_simulated
from augpipe.ops import CenterCrop, Flip, MultiResolutionCrop, Normalize, RandomResizedCrop, Rotate, Vignette
from tests.unit.loader_sources import MemorySource, as_array, assert_no_worker_threads, ids_of, truncated, views_of
from tests.unit.picture_files import encoded, exif, scene

assert is_simulated(), "run test_simulated.py"

HAS_DALI = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None
needs_dali = pytest.mark.skipif(not HAS_DALI, reason="DALI is not installed")
BACKENDS = ["native", pytest.param("dali", marks=needs_dali)]
WITH_CACHE = [
    ("native", "device"),
    pytest.param("dali", "device", marks=needs_dali),
    pytest.param("dali", "host", marks=needs_dali),
]
WITHOUT_CACHE = [("native", "off"), pytest.param("dali", "off", marks=needs_dali)]
CACHES = ["off", "device", "host"]
PLENTY = 1_000_000

FILES: list[Any] = [
    encoded(scene(20, 25, 0), "JPEG", quality=90),
    encoded(scene(19, 15, 1), "JPEG", quality=90),
    encoded(scene(16, 21, 2)[..., 0], "JPEG", quality=90),
    encoded(scene(18, 17, 3), "JPEG", quality=90, exif=exif(6)),
    encoded(scene(16, 18, 4), "PNG"),
    scene(17, 16, 5),
]
SIZES = [(20, 25), (19, 15), (16, 21), (17, 18), (16, 18), (17, 16)]
NUM = len(FILES)
NEEDED = sum(-(-height * width * 4 // 16) * 16 for height, width in SIZES)
JPEGS = [0, 1, 2]
"""Those that DALI is given."""

CROPS = Recipe(name="crops", ops=(RandomResizedCrop(size=(5, 4)), Rotate(), Flip(), Vignette(p=1.0), Normalize()))
LEVELS = Recipe(name="levels", border="edge", ops=(MultiResolutionCrop(size=(5, 4), scales=(8, 12)), Rotate(p=1.0)))
CENTRE = Recipe(name="centre", ops=(CenterCrop(size=(4, 3), scale=14),))
VIEWS = Recipe(
    name="views",
    views=(
        View(ops=(RandomResizedCrop(size=4), Flip(), Normalize()), count=2),
        View(ops=(CenterCrop(size=(3, 5)), Normalize())),
    ),
)
MOST = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2, "uint8": 1.0}
"""How far pixels may be apart; float32 rounds in another order, the others take the next number then."""


def make(device: str, contents: Sequence[Any] = FILES, recipe: Recipe = CROPS, **options: Any) -> Loader:
    settings = {"batch_size": 4, "num_threads": 2, "seed": 4} | options
    if settings.get("cache", "off") != "off":
        settings.setdefault("cache_bytes", PLENTY)
    return Loader(MemorySource(contents), recipe, device=device, **settings)


def assert_near(found: Sequence[Batch], expected: Sequence[Batch], most: float = MOST["float32"]) -> None:
    """Fail unless plans, ids and labels are the same and pixels are near."""
    for batch, wanted in zip_longest(found, expected):
        assert batch is not None and wanted is not None, "one of them has more batches"
        assert batch.sample_ids.tolist() == wanted.sample_ids.tolist()
        assert batch.labels.dtype == torch.int64 and torch.equal(batch.labels, wanted.labels)
        for rows, wanted_rows in zip(batch.plan.views, wanted.plan.views, strict=True):
            assert rows.tobytes() == wanted_rows.tobytes()
        for images, wanted_images in zip(views_of(batch), views_of(wanted), strict=True):
            assert images.shape == wanted_images.shape and images.dtype == wanted_images.dtype
            assert images.stride() == wanted_images.stride()
            if images.numel():
                assert (images.double() - wanted_images.double()).abs().max() <= most


def assert_same(found: Sequence[Batch], expected: Sequence[Batch]) -> None:
    """Fail unless they are the same in every bit."""
    assert_near(found, expected, 0.0)
    for batch, wanted in zip(found, expected, strict=True):
        for images, wanted_images in zip(views_of(batch), views_of(wanted), strict=True):
            np.testing.assert_array_equal(as_array(images), as_array(wanted_images))


def numbers(loader: Loader) -> CacheStatistics:
    statistics = loader.cache_statistics
    assert statistics is not None
    return statistics


def num_reads(loader: Loader) -> int:
    """How often the source was read since the last call."""
    source: Any = loader.source
    found: int = source.num_reads
    source.num_reads = 0
    return found


@pytest.fixture(scope="module")
def epochs() -> list[list[Batch]]:
    """Two epochs of `CROPS` on the device, without DALI or a cache; near those on the CPU."""
    loader, on_cpu = make("cuda", backend="native"), make("cpu")
    found = [list(loader), list(loader)]
    for epoch in found:
        assert_near(epoch, list(on_cpu))
    return found


# Pixels


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_and_cache(backend: str, cache: str, epochs: list[list[Batch]]) -> None:
    """Bit for bit what the native backend makes there without a cache, which is near what the CPU makes."""
    loader = make("cuda", backend=backend, cache=cache)
    assert loader.cache_statistics is None
    for number, expected in enumerate(epochs):
        assert_same(list(loader), expected)
        assert num_reads(loader) == (NUM if number == 0 or cache == "off" else 0)
    if cache == "off":
        assert loader.cache_statistics is None
    else:
        statistics = numbers(loader)
        assert (statistics.hits, statistics.misses, statistics.num_held) == (NUM, NUM, NUM)
        assert (statistics.held_bytes, statistics.num_did_not_fit) == (NEEDED, 0)


@needs_dali
@pytest.mark.parametrize("cache", ["off", "device"])
def test_dali_is_given_the_jpegs(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.dali.decoder import DaliDecoder

    given: list[int] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Sequence[bytes], regions: Any) -> None:
        given.extend(FILES.index(content) for content in contents)
        submit(decoder, contents, regions)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    loader = make("cuda", FILES[:4], CENTRE, backend="dali", cache=cache)
    for _ in range(2):
        list(loader)
    assert sorted(given) == sorted(JPEGS * (2 if cache == "off" else 1))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_every_dtype_and_layout(dtype: Any, layout: Any) -> None:
    recipe = LEVELS if dtype == "uint8" else CROPS
    options = {"recipe": recipe, "dtype": dtype, "layout": layout, "batch_size": 2}
    found = list(make("cuda", FILES[:2], cache="device", **options))
    assert_near(found, list(make("cpu", FILES[:2], **options)), MOST[dtype])
    assert str(found[0].images.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_views(backend: str) -> None:
    loader = make("cuda", FILES[:3], VIEWS, backend=backend, cache="device")
    on_cpu = make("cpu", FILES[:3], VIEWS)
    for _ in range(2):
        found = list(loader)
        assert len(found[0].images) == 3
        assert_near(found, list(on_cpu))
    assert numbers(loader).hits == 3


def test_whole_photographs() -> None:
    same = [scene(6, 7, seed) for seed in range(3)]
    (batch,) = make("cuda", same, recipes.none(), dtype="uint8", layout="NHWC", shuffle=False, cache="device")
    np.testing.assert_array_equal(batch.images.numpy(), np.stack(same))
    with pytest.raises(ValueError, match="one batch cannot hold images of several sizes"):
        list(make("cuda", [*same, scene(6, 8)], recipes.none(), dtype="uint8"))


def test_photographs_decoded_at_a_scale() -> None:
    files = [encoded(scene(side, side + 20, side), "JPEG", quality=80) for side in (20, 40, 70)]
    recipe = Recipe(ops=(MultiResolutionCrop(size=4, scales=(5, 9, 18)), Normalize()))
    loader, on_cpu = make("cuda", files, recipe, cache="device"), make("cpu", files, recipe)
    for _ in range(3):
        assert_near(list(loader), list(on_cpu))
    statistics = numbers(loader)
    assert statistics.num_held > 3, "of a photograph several scales are held"
    assert statistics.hits + statistics.misses == 9 and statistics.misses == statistics.num_held


def test_batches_do_not_share_memory() -> None:
    loader = make("cuda", recipe=CENTRE, batch_size=2, cache="device")
    kept = list(loader)
    copies = [batch.images.clone() for batch in kept]
    list(loader)
    assert all(torch.equal(batch.images, copy) for batch, copy in zip(kept, copies, strict=True))
    assert len({batch.images.data_ptr() for batch in kept}) == len(kept) == 3


# The cache


@pytest.mark.parametrize(("backend", "cache"), WITH_CACHE)
@pytest.mark.parametrize("missing", [0, 1])
def test_a_budget_of_exactly_what_there_is_and_one_byte_less(backend: str, cache: str, missing: int) -> None:
    loader = make("cuda", recipe=CENTRE, backend=backend, cache=cache, cache_bytes=NEEDED - missing)
    plain = make("cpu", recipe=CENTRE)
    for epoch in range(2):
        assert_near(list(loader), list(plain), 1e-3)
        assert num_reads(loader) == (missing if epoch else NUM)
        assert numbers(loader) == CacheStatistics(
            hits=epoch * (NUM - missing),
            misses=NUM + epoch * missing,
            num_held=NUM - missing,
            held_bytes=numbers(loader).held_bytes,
            budget_bytes=NEEDED - missing,
            allocated_bytes=NEEDED - 16 * missing if cache == "device" else numbers(loader).allocated_bytes,
            num_did_not_fit=missing,
            did_not_fit_bytes=NEEDED - numbers(loader).held_bytes,
        )


@pytest.mark.parametrize(("backend", "cache"), WITH_CACHE)
def test_a_budget_too_small_keeps_what_came_first(backend: str, cache: str) -> None:
    budget = 20 * 25 * 4 + 1152  # the first two, 19 x 15 x 4 rounded up to 16
    options: dict[str, Any] = {"recipe": CENTRE, "shuffle": False, "batch_size": 1, "prefetch": 1, "num_threads": 1}
    loader = make("cuda", backend=backend, cache=cache, cache_bytes=budget, **options)
    plain = make("cpu", **options)
    for epoch in range(2):
        assert_near(list(loader), list(plain), 1e-3)
        assert num_reads(loader) == (NUM if epoch == 0 else NUM - 2)
    statistics = numbers(loader)
    assert (statistics.hits, statistics.misses, statistics.num_held) == (2, 2 * NUM - 2, 2)
    assert (statistics.held_bytes, statistics.num_did_not_fit) == (budget, NUM - 2)


@pytest.mark.parametrize(("backend", "cache"), WITH_CACHE)
def test_no_budget_keeps_nothing(backend: str, cache: str) -> None:
    loader = make("cuda", FILES[:3], CENTRE, backend=backend, cache=cache, cache_bytes=0)
    plain = make("cpu", FILES[:3], CENTRE)
    for _ in range(2):
        assert_near(list(loader), list(plain), 1e-3)
        assert num_reads(loader) == 3
    statistics = numbers(loader)
    assert (statistics.hits, statistics.misses, statistics.num_held, statistics.allocated_bytes) == (0, 6, 0, 0)
    assert statistics.num_did_not_fit == 3


def test_a_replayed_epoch_is_the_same_bits_from_the_cache() -> None:
    loader = make("cuda", cache="device")
    first = list(loader)
    loader.set_epoch(0)
    num_reads(loader)
    assert_same(list(loader), first)
    assert num_reads(loader) == 0


def test_memory_that_the_device_refuses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    empty = torch.empty

    def refuse(*args: Any, **options: Any) -> Any:
        if args == (PLENTY,):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 MB")
        return empty(*args, **options)

    monkeypatch.setattr(torch, "empty", refuse)
    loader = make("cuda", FILES[:3], CENTRE, cache="device")
    assert_near(list(loader), list(make("cpu", FILES[:3], CENTRE)), 1e-3)
    assert numbers(loader).num_held == numbers(loader).budget_bytes == 0
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1 and told[0].startswith("the cache holds 0 bytes and stops growing")
    assert "CUDA out of memory" in told[0]


@pytest.mark.parametrize("cache", ["device", "host"])
def test_two_sticky_ranks_read_their_samples_once(cache: str) -> None:
    loaders = [make("cuda", recipe=CENTRE, cache=cache, shuffle="sticky", rank=r, world_size=2) for r in range(2)]
    plain = [make("cpu", recipe=CENTRE, shuffle="sticky", rank=r, world_size=2) for r in range(2)]
    for epoch in range(2):
        for rank, loader in enumerate(loaders):
            found = list(loader)
            assert_near(found, list(plain[rank]), 1e-3)
            assert sorted(ids_of(found)) == list(range(rank, NUM, 2))
            assert num_reads(loader) == (NUM // 2 if epoch == 0 else 0)
            assert numbers(loader).hits == epoch * NUM // 2


# Bad files


def without_tables() -> bytes:
    """A JPEG whose header is sound, and which no decoder makes anything of."""
    data = encoded(scene(18, 17, 8), "JPEG", quality=90)
    while (start := data.find(b"\xff\xdb")) >= 0:
        data = data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]
    return data


BAD = [FILES[0], b"this is no picture", truncated(), without_tables(), FILES[1]]


@pytest.mark.parametrize(("backend", "cache"), WITHOUT_CACHE + WITH_CACHE)
def test_bad_files_are_replaced(backend: str, cache: str, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"recipe": CENTRE, "on_error": "skip"}
    loader = make("cuda", BAD, backend=backend, cache=cache, **options)
    plain = make("cpu", BAD, **options)
    for _ in range(2):
        caplog.clear()
        expected = list(plain)
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        caplog.clear()
        assert_near(list(loader), expected, 1e-3)
        assert told == [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert loader.skipped == plain.skipped
    assert set(loader.skipped) == {1, 2, 3}
    if cache != "off":
        assert numbers(loader).num_held == 2
        assert numbers(loader).hits + numbers(loader).misses == 2 * len(BAD)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_files_are_replaced_in_batches_of_one(backend: str) -> None:
    options: dict[str, Any] = {"recipe": CENTRE, "on_error": "skip", "batch_size": 1}
    found = list(make("cuda", BAD, backend=backend, cache="device", **options))
    assert_near(found, list(make("cpu", BAD, **options)), 1e-3)


@pytest.mark.parametrize("bad", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_files_are_named(backend: str, bad: int) -> None:
    said = []
    for device, how in (("cpu", "native"), ("cuda", backend)):
        files = [FILES[0], FILES[1], BAD[bad]]
        with pytest.raises(SampleError) as caught:
            list(make(device, files, CENTRE, backend=how, batch_size=2, shuffle=False))
        said.append(str(caught.value))
        assert_no_worker_threads()
    assert said[0] == said[1] and said[0].startswith("photo 2.jpg: ")


# Ranks, states, lifetimes


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_batch(backend: str) -> None:
    options: dict[str, Any] = {"rank": 2, "world_size": 3, "batch_size": 1, "shuffle": False}
    found = list(make("cuda", FILES[:4], CROPS, backend=backend, cache="device", **options))
    assert [len(batch) for batch in found] == [1, 0]
    assert_near(found, list(make("cpu", FILES[:4], CROPS, **options)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_goes_on_on_another_device_and_world_size(backend: str) -> None:
    whole = set(range(NUM))
    before = make("cpu", recipe=CENTRE, batch_size=2)
    seen = ids_of(islice(before, 1))
    for rank in range(2):
        options: dict[str, Any] = {"recipe": CENTRE, "batch_size": 1, "rank": rank, "world_size": 2}
        loader, plain = make("cuda", backend=backend, **options), make("cpu", **options)
        for other in (loader, plain):
            other.load_state_dict(before.state_dict())
        found = list(loader)
        assert_near(found, list(plain), 1e-3)
        seen += ids_of(found)
    assert len(seen) == NUM and set(seen) == whole


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pass_that_is_closed_early(backend: str, epochs: list[list[Batch]]) -> None:
    loader = make("cuda", backend=backend, cache="device", prefetch=3)
    running = iter(loader)
    assert_same([next(running)], epochs[0][:1])
    running.close()  # type: ignore[attr-defined]
    assert_no_worker_threads()
    assert_same(list(loader), epochs[0])
    statistics = numbers(loader)
    assert statistics.hits + statistics.misses == NUM + 4
    assert statistics.num_held == NUM


def test_two_loaders_at_once(epochs: list[list[Batch]]) -> None:
    loaders = make("cuda", cache="device"), make("cuda", recipe=CENTRE, cache="host")
    pairs = list(zip(*loaders, strict=True))
    assert_same([first for first, _ in pairs], epochs[0])
    assert_near([second for _, second in pairs], list(make("cpu", recipe=CENTRE)), 1e-3)


# Arguments


def test_the_simulator_has_one_device() -> None:
    assert len(make("cuda:0")) == 2
    with pytest.raises(ValueError, match='device="cuda:1": the CUDA simulator has one device. Write "cuda".'):
        make("cuda:1")
    with pytest.raises(ValueError, match='framework="numpy" cannot hold batches on device="cuda"'):
        make("cuda", framework="numpy")
    with pytest.raises(ValueError, match='pin_memory=True is for batches on the CPU, and device="cuda"'):
        make("cuda", pin_memory=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_auto_tells_what_it_chose(is_there: bool, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    if is_there and not HAS_DALI:
        pytest.skip("DALI is not installed")
    if not is_there:
        monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    caplog.set_level(logging.INFO, "augpipe")
    list(make("cuda", FILES[:1], CENTRE))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("backend auto: dali, " if is_there else "backend auto: native on ")
    assert line.endswith("; threads: 2")
