"""Label maps that a simulated device looks up are those of the host, bit by bit, out of its cache, too."""

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from augpipe import Loader, Recipe, TargetOptions, View, ops
from augpipe.cuda import cuda_render
from augpipe.gpu_ops.image.cuda.launch import look_up_label_maps
from augpipe.gpu_ops.image.nearest import nearest_pixels
from augpipe.gpu_ops.image.rows import KERNEL_ROW, MEETING
from augpipe.gpu_ops.image.sampling import MEETS_PX
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.target_sources import LabelMapSource, label_map_source_of
from tests.contracts.backends import PLENTY, numbers

SIZES = [(14, 17), (19, 12), (16, 16), (11, 23), (18, 15)]
NUM = len(SIZES)
CROP = ops.RandomResizedCrop(size=(5, 7))
MAPS: dict[str, tuple[ops.Op, ...]] = {
    "crop": (CROP,),
    "flip and turn": (ops.Flip(), ops.Rotate(max_deg=40, step=None, p=1.0), CROP),
    "perspective": (ops.Perspective(p=1.0), CROP),
    "lens": (ops.LensDistortion(), CROP),
    "tangential lens": (ops.BrownConrady(), CROP),
    "elastic": (ops.ElasticTransform(alpha=20.0, sigma=2.0, p=1.0), CROP),
    "grid": (ops.GridDistortion(p=1.0), CROP),
    "grid of whole pixels": (ops.GridDistortion(cells="whole_px", p=1.0), CROP),
    "optical": (ops.OpticalDistortion(k=(-0.5, 0.5), p=1.0), CROP),
    "squeeze": (ops.Resize(size=(6, 5)),),
    "two passes": (ops.Noise(p=1.0), ops.Rotate(max_deg=40, step=None, p=1.0), CROP),
    "three passes": (ops.Emboss(p=0.5), CROP, ops.Solarize(p=1.0), ops.Rotate(max_deg=30, step=None, p=1.0)),
}
BORDERS: Any = ("context", "reflect", "reflect_101", "edge", "wrap", "constant")
DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", ">u2")


class CountingSource(LabelMapSource):
    """Counts how often a label map is read."""

    def __init__(self, labels: list[npt.NDArray[Any]]) -> None:
        super().__init__([scene(*of.shape[:2], number) for number, of in enumerate(labels)], [], labels)
        self.num_read: Counter[int] = Counter()

    def label_map(self, sample_id: int) -> Any:
        self.num_read[sample_id] += 1
        return super().label_map(sample_id)


def labels_of(dtype: str = "uint8", planes: tuple[int, ...] = ()) -> CountingSource:
    rng = np.random.default_rng(3)
    largest = min(np.iinfo(dtype).max, 2**40) if np.dtype(dtype).kind in "iu" else 2
    return CountingSource([rng.integers(0, largest, (*size, *planes)).astype(dtype) for size in SIZES])


def loader(source: Any, recipe: Recipe, device: str = "cuda", **options: Any) -> Loader:
    options = {"batch_size": 3, "seed": 5, "num_threads": 2, "backend": "native", "cache": "off"} | options
    return Loader(source, recipe, device=device, **options, **({} if options["cache"] == "off" else SIZED))


SIZED: dict[str, Any] = {"cache_bytes": PLENTY}


def assert_as_on_host(source: Any, recipe: Recipe, **options: Any) -> list[torch.Tensor]:
    """Fail unless both give the same in every bit; what the device gives."""
    found, expected = ([batch.targets for batch in loader(source, recipe, on, **options)] for on in ("cuda", "cpu"))
    for masks_there, masks_here in zip(found, expected, strict=True):
        for one, other in zip(_views(masks_there), _views(masks_here), strict=True):
            assert one.dtype == other.dtype and one.equal(other)
    return [one for of_batch in found for one in _views(of_batch)]


def _views(targets: Any) -> tuple[torch.Tensor, ...]:
    return targets if isinstance(targets, tuple) else (targets,)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """The label maps of each launch, and their height and width."""
    found: list[tuple[int, int, int]] = []
    launch = cuda_render.look_up_label_maps

    def counted(*addresses: int, **options: Any) -> None:
        found.append((options["num"], options["height"], options["width"]))
        launch(*addresses, **options)

    monkeypatch.setattr(cuda_render, "look_up_label_maps", counted)
    return found


@pytest.mark.parametrize("mask_border", ["fill", "image"])
@pytest.mark.parametrize("name", MAPS)
def test_each_map_is_that_of_the_host(name: str, mask_border: Any, launches: list[tuple[int, int, int]]) -> None:
    for border in BORDERS if name in ("flip and turn", "elastic") else ("reflect", "constant"):
        recipe = Recipe(ops=MAPS[name], border=border)
        found = assert_as_on_host(labels_of(), recipe, targets=TargetOptions(mask_border=mask_border, mask_fill=7))
        assert sum(mask.unique().numel() > 5 for mask in found) == len(found)
        assert launches
        launches.clear()


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_images_that_end_within_a_pixel(interpolation: Any, launches: list[tuple[int, int, int]]) -> None:
    chain = (ops.CenterCrop(size=(18, 23), scale=27), ops.Pad(px=3), ops.Rotate(max_deg=20, step=None, p=0.5))
    recipe = Recipe(ops=chain, interpolation=interpolation, antialias=False)
    found = assert_as_on_host(labels_of(), recipe, targets=TargetOptions(mask_fill=7))
    assert launches and all(mask.unique().numel() > 5 for mask in found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_classes_of_every_type_are_int64(dtype: str, launches: list[tuple[int, int, int]]) -> None:
    (first, *_) = assert_as_on_host(labels_of(dtype), Recipe(ops=MAPS["flip and turn"], border="constant"))
    assert first.dtype == torch.int64 and launches == [(3, 5, 7), (2, 5, 7)]


def test_negative_labels_stay() -> None:
    labels = np.arange(14 * 17, dtype=np.int16).reshape(14, 17) - 100
    found = assert_as_on_host(CountingSource([labels] * 3), Recipe(ops=(CROP,)))
    assert any((mask < 0).any() for mask in found)


def test_a_view_is_a_launch(launches: list[tuple[int, int, int]]) -> None:
    views = (View(ops=(CROP, ops.Flip()), count=2), View(ops=(ops.CenterCrop(size=(3, 4), scale=9),)))
    assert_as_on_host(labels_of(), Recipe(views=views))
    assert launches == [(num, *size) for num in (3, 2) for size in ((5, 7), (5, 7), (3, 4))]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(labels_of("uint8", (3,)), {}, id="colours"),
        pytest.param(labels_of("bool"), {}, id="Boolean"),
        pytest.param(labels_of("float32"), {}, id="floats"),
        pytest.param(labels_of(), {"mask_interpolation": "majority"}, id="majority"),
        pytest.param(labels_of(), {"mask_interpolation": "linear"}, id="linear"),
        pytest.param(labels_of(), {"mask_holes": True}, id="holes"),
    ],
)
def test_others_are_mapped_on_the_host(source: Any, options: Any, launches: list[tuple[int, int, int]]) -> None:
    recipe = Recipe(ops=(*MAPS["flip and turn"], ops.CoarseDropout(height=(1, 3), width=(1, 3), p=0.8)))
    targets = TargetOptions(**options)
    for cache in ("off", "device"):
        assert_as_on_host(source, recipe, targets=targets, cache=cache)
    assert not launches


def test_those_of_mixed_images_are_too(launches: list[tuple[int, int, int]]) -> None:
    assert_as_on_host(labels_of(), Recipe(ops=(CROP,), mixing=(ops.CutMix(),)))
    assert not launches


# The cache


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64"])
def test_a_cached_epoch_reads_no_label_map(dtype: str) -> None:
    source, recipe = labels_of(dtype), Recipe(ops=MAPS["flip and turn"])
    cached, expected = loader(source, recipe, cache="device"), loader(labels_of(dtype), recipe, "cpu")
    for _ in range(3):
        for batch, wanted in zip(cached, expected, strict=True):
            assert batch.targets.equal(wanted.targets)
    assert source.num_read == dict.fromkeys(range(NUM), 1)
    item_bytes = np.dtype(dtype).itemsize
    held = sum(-(-height * width * num // 16) * 16 for height, width in SIZES for num in (4, item_bytes))
    assert (numbers(cached).num_held, numbers(cached).held_bytes) == (NUM, held)


@pytest.mark.parametrize(("cache", "num"), [("off", 2), ("host", 1)])
def test_without_one_on_the_device_the_host_holds_them(cache: Any, num: int) -> None:
    source, options = labels_of(), {"shuffle": False}
    read, expected = (
        loader(source, Recipe(ops=(CROP,)), cache=cache, **options),
        loader(labels_of(), Recipe(ops=(CROP,)), "cpu", **options),
    )
    for _ in range(2):
        for batch, wanted in zip(read, expected, strict=True):
            assert batch.targets.equal(wanted.targets)
    assert source.num_read == dict.fromkeys(range(NUM), num)


def test_the_limit_counts_label_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch fits, and of the second one a label map, whose image does not."""
    images, maps = ([-(-height * width * size // 16) * 16 for height, width in SIZES] for size in (4, 1))
    room = sum(images[:2]) + sum(maps[:3])
    monkeypatch.setitem(SIZED, "cache_bytes", room)
    source, options = labels_of(), {"cache": "device", "shuffle": False, "batch_size": 2}
    cached = loader(source, Recipe(ops=(CROP,)), **options)
    expected = loader(labels_of(), Recipe(ops=(CROP,)), "cpu", shuffle=False, batch_size=2)
    for _ in range(3):
        for batch, wanted in zip(cached, expected, strict=True):
            assert batch.targets.equal(wanted.targets)
        held = numbers(cached)
        assert (held.num_held, held.num_did_not_fit) == (2, NUM - 2)
        assert (held.num_label_maps, held.num_label_maps_did_not_fit) == (3, NUM - 3)
        assert (held.held_bytes, held.did_not_fit_bytes) == (room, sum(images[2:]) + sum(maps[3:]))
    assert source.num_read == {number: 1 if number < 3 else 3 for number in range(NUM)}


def test_a_replaced_sample_takes_its_label_map_out_of_the_cache() -> None:
    """In the place of a damaged one comes that of the next sample, which is read for both before either is cached."""
    source = labels_of()
    source.maps[1] = OSError("gone")
    cached = loader(source, Recipe(ops=(CROP,)), cache="device", on_error="skip", shuffle=False)
    for _ in range(2):
        assert [int(i) for batch in cached for i in batch.sample_ids] == [0, 2, 2, 3, 4]
    assert {number: num for number, num in source.num_read.items() if number != 1} == {0: 1, 2: 2, 3: 1, 4: 1}


def test_objects_and_label_maps_come_together(launches: list[tuple[int, int, int]]) -> None:
    source = label_map_source_of([scene(*size, number) for number, size in enumerate(SIZES)])
    assert_as_on_host(source, Recipe(ops=MAPS["lens"]))
    assert launches == [(3, 5, 7), (2, 5, 7)]


# The kernel


def rows_at(x: float, along_x: float = 1.0, is_constant: int = 0) -> npt.NDArray[np.void]:
    """(1,) kernel rows of a 4x4 image: two pixels, half of `along_x` to the left and right of x - 0.5."""
    rows = np.zeros(1, KERNEL_ROW)
    rows["after_xx"], rows["after_yy"], rows["offset_x"], rows["offset_y"] = along_x, 1.0, x, 1.5
    rows["high_x"] = rows["high_y"] = 3
    rows["support_x"] = rows["support_y"] = 1.0
    rows["is_constant"] = is_constant
    return rows


@pytest.mark.parametrize("as_taps", [False, True])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            rows_at(0.5, np.nextafter(np.float32(1), np.float32(0))), {False: [0, 1], True: [0, 0]}, id="midway"
        ),
        pytest.param(rows_at(0.5 - 0.5 * MEETS_PX, is_constant=MEETING), [0, 0], id="next to the edge"),
        pytest.param(rows_at(0.5 - 0.5 * MEETS_PX, is_constant=1), [9, 0], id="beyond it"),
    ],
)
def test_last_bits_are_those_of_the_host(rows: Any, expected: Any, as_taps: bool) -> None:
    labels, found = np.tile(np.arange(4, dtype=np.uint8), (4, 1)), np.empty((1, 2), np.int32)
    table, out = np.array([(labels.ctypes.data, 4, 0, 0, 1)], np.int64), np.empty((1, 2), np.int64)
    asked: dict[str, Any] = {"fill": 9, "fills": False, "as_taps": as_taps, "stream": 0}
    look_up_label_maps(table.ctypes.data, rows.ctypes.data, out.ctypes.data, num=1, height=1, width=2, **asked)
    nearest_pixels(rows, 0, False, 4, found, None, as_taps)
    wanted = expected[as_taps] if isinstance(expected, dict) else expected
    assert out.tolist() == np.where(found < 0, 9, labels.reshape(-1)[found]).tolist() == [wanted]
