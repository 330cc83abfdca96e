"""The transform: what it takes and gives, ids and epochs, plans repeated, threads, pickling, and what it refuses."""

import copy
import gc
import io
import itertools
import pickle
import sys
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image, ImageOps

from augpipe import Augment, Plan, Recipe, ops, plan, recipes
from augpipe.augment_call import host_images
from augpipe.augment_call.host_images import HostTransform
from augpipe.augment_call.inputs import Images, images_of
from augpipe.augment_call.pil_pixels import is_in_pieces, pixels_of
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.ops import CenterCrop, Normalize, RandomResizedCrop, Resize
from augpipe.pipeline.stored_image import StoredImage
from tests.augpipe.decoding.image_files import other_kinds, scene
from tests.augpipe.loader.loader_sources import CENTRE, PAPER, SEVERAL_VIEWS, arrays, as_array, together

Array = npt.NDArray[Any]
RGB = scene(40, 52)
GRAY = RGB[..., 1]
SAME: dict[str, Any] = {
    "array": RGB,
    "with a fourth channel": np.dstack([RGB, GRAY]),
    "columns first in memory": np.asfortranarray(RGB),
    "every other column": np.repeat(RGB, 2, axis=1)[:, ::2],
    "mirrored twice": np.ascontiguousarray(RGB[:, ::-1])[:, ::-1],
    "transposed": np.ascontiguousarray(RGB.transpose(1, 0, 2)).transpose(1, 0, 2),
    "read-only": np.frombuffer(RGB.tobytes(), np.uint8).reshape(RGB.shape),
    "four bytes a pixel": np.dstack([RGB, GRAY])[..., :3],
    "four bytes a pixel, part of an image": np.pad(np.dstack([RGB, GRAY]), ((3, 2), (5, 1), (0, 0)))[3:43, 5:57],
    "four bytes a pixel, every other row": np.repeat(np.dstack([RGB, GRAY]), 2, axis=0)[::2],
    "four bytes a pixel, upside down": np.ascontiguousarray(np.dstack([RGB, GRAY])[::-1])[::-1],
    "four bytes a pixel, the first spare": np.dstack([GRAY, RGB])[..., 1:],
    "PIL RGB": Image.fromarray(RGB),
    "PIL RGB, part of an image": Image.fromarray(np.pad(RGB, ((3, 2), (5, 1), (0, 0)))).crop((5, 3, 57, 43)),
    "PIL RGBA": Image.fromarray(np.dstack([RGB, GRAY])),
    "PIL RGBX": Image.frombytes("RGBX", (52, 40), np.dstack([RGB, GRAY]).tobytes()),
    "tensor": torch.from_numpy(RGB),
    "tensor with its channels first in memory": torch.from_numpy(RGB.transpose(2, 0, 1).copy()).permute(1, 2, 0),
    "tensor with its channels first": torch.from_numpy(RGB.transpose(2, 0, 1).copy()),
    "tensor with a fourth channel first": torch.from_numpy(np.dstack([RGB, GRAY])).permute(2, 0, 1),
    "tensor with a fourth channel": torch.from_numpy(np.dstack([RGB, GRAY])),
}
SAME_GRAY: dict[str, Any] = {
    "array": np.dstack([GRAY] * 3),
    "two-dimensional": GRAY,
    "one channel": GRAY[..., None],
    "a channel of a photograph": RGB[..., 1],
    "one channel of four bytes a pixel": np.dstack([GRAY, RGB])[..., :1],
    "PIL L": Image.fromarray(GRAY),
    "PIL LA": Image.merge("LA", [Image.fromarray(GRAY), Image.new("L", (52, 40), 9)]),
    "tensor": torch.from_numpy(GRAY.copy()),
    "tensor with its channel first": torch.from_numpy(GRAY.copy())[None],
}


def replayed(transform: Augment, image: Any) -> Array:
    return as_array(transform(image, sample_ids=7, epoch=2))


# What it takes and gives


@pytest.mark.parametrize("kind", SAME)
def test_images_of_every_kind_give_the_same_pixels(kind: str) -> None:
    transform = Augment(PAPER, 3)
    np.testing.assert_array_equal(replayed(transform, SAME[kind]), replayed(transform, RGB), strict=True)


@pytest.mark.parametrize("kind", SAME_GRAY)
def test_gray_images_of_every_kind_give_the_same_pixels(kind: str) -> None:
    transform = Augment(PAPER, 3)
    expected = replayed(transform, SAME_GRAY["array"])
    np.testing.assert_array_equal(replayed(transform, SAME_GRAY[kind]), expected, strict=True)


@pytest.mark.parametrize("kind", other_kinds())
def test_an_opened_image_gives_what_its_file_gives(kind: str) -> None:
    """Pillow's modes are taken as the decoder takes them: 16 bits are not clipped, what has no range is refused."""
    data = other_kinds()[kind]
    transform = Augment(recipes.none(), dtype="uint8", layout="NHWC")
    expected = decode(data, probe(data, max_pixels=MAX_PIXELS))[..., :3]
    with Image.open(io.BytesIO(data)) as image:
        found = transform(ImageOps.exif_transpose(image))
        again = transform([image])[0] if image.getexif().get(0x0112, 1) == 1 else found
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("mode", ["I", "F", "LAB"])
def test_an_image_without_a_range_from_black_to_white_is_refused(mode: str) -> None:
    with pytest.raises(ValueError, match=f"image 0.*{mode}"):
        Augment(CENTRE)(Image.new(mode, (40, 30)))


def test_pil_images_are_read_where_they_lie() -> None:
    for mode, channels in (("L", 1), ("RGB", 3), ("RGBX", 4)):
        image = Image.fromarray(RGB).convert(mode)
        pixels = pixels_of(image)
        expected = np.asarray(image).copy()
        assert np.shares_memory(pixels, pixels_of(image)) and not pixels.flags.writeable
        assert channels == 1 or pixels.strides == (52 * 4, 4, 1)
        del image
        gc.collect()
        np.testing.assert_array_equal(pixels, expected)


class Growing(Image.Image):
    """An image that knows its size when it is loaded, as those of some file formats."""

    def load(self) -> Any:
        self._size = self.im.size
        return super().load()


def test_the_size_of_a_pil_image_is_that_when_it_is_loaded() -> None:
    grown = Image.fromarray(RGB)
    grown.__class__, grown._size = Growing, (400, 400)  # type: ignore[assignment]
    np.testing.assert_array_equal(pixels_of(grown), RGB)


def test_arrays_are_read_in_place_where_each_pixel_has_a_spare_byte_in_memory() -> None:
    """In ARGB the last pixel has none behind it, and a kernel would read one byte too far."""
    four = np.dstack([RGB, GRAY])
    far = np.lib.stride_tricks.as_strided(four, (2, 52, 3), (2**34, 4, 1))  # more than kernels count; not read here
    for array, is_read in [
        *((four, True), (four[..., :3], True), (four[3:9, 5:], True), (four[::2], True)),
        *((four[..., 1:], False), (four[..., :1], False), (four[::-1], False), (four[:, ::2], False), (far, False)),
        *((RGB, False), (GRAY, False), (four[:, :1], False)),
    ]:
        image = StoredImage(sample_id=0, content=array, size=array.shape[:2], may_scale=False, header=None)
        found = image.in_place() is not None  # apart, as pytest would show what lies in the last one
        assert found == is_read, f"{array.shape}, {array.strides}"


class OldImage:
    """A PIL image as Pillow had them before Arrow's interface."""

    def __init__(self, image: Image.Image) -> None:
        self.mode, self.size, self.convert, self.load = image.mode, image.size, image.convert, image.load
        self.__array_interface__ = image.__array_interface__


def test_pil_images_that_pillow_does_not_show_are_copied() -> None:
    old, expected = OldImage(Image.fromarray(RGB)), replayed(Augment(PAPER, 3), RGB)
    np.testing.assert_array_equal(replayed(Augment(PAPER, 3), old), expected)
    np.testing.assert_array_equal(pixels_of(Image.new("RGB", (0, 5))), np.zeros((5, 0, 3)))


@pytest.mark.parametrize("mode", ["RGB", "RGBX", "L"])
def test_of_pil_images_in_pieces_only_what_is_looked_at_is_copied(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.fromarray(np.resize(RGB, (2100, 2103, 3))).convert(mode)
    assert is_in_pieces(image) == (mode != "L") and not is_in_pieces(Image.fromarray(RGB))
    strips: list[tuple[int, ...]] = []
    crop = Image.Image.crop
    monkeypatch.setattr(Image.Image, "crop", lambda self, box: (strips.append(box), crop(self, box))[1])
    for listed, share in ((RandomResizedCrop(size=30, scale=(0.1, 0.1)), 0.1), (Resize(size=(20, 31)), 1.0)):
        transform = Augment(Recipe(ops=[listed]), 3)
        expected = replayed(transform, np.asarray(image))
        strips.clear()
        np.testing.assert_array_equal(replayed(transform, image), expected)
        num_pixels = sum((right - left) * (bottom - top) for left, top, right, bottom in strips)
        assert num_pixels / (2100 * 2103) == pytest.approx(share if mode != "L" else 0.0, abs=0.02)
    np.testing.assert_array_equal(images_of(image, MAX_PIXELS).items[0].content, np.asarray(image))


def test_the_shapes_of_one_and_of_several() -> None:
    transform = Augment(CENTRE)
    assert transform(RGB).shape == (3, 16, 16)
    assert transform([RGB]).shape == (1, 3, 16, 16)
    assert transform((RGB, RGB)).shape == (2, 3, 16, 16)
    assert transform(np.stack([RGB] * 5)).shape == (5, 3, 16, 16)
    assert transform(np.stack([GRAY[..., None]] * 5)).shape == (5, 3, 16, 16)
    assert transform(torch.from_numpy(np.stack([RGB] * 5))).shape == (5, 3, 16, 16)
    assert transform(torch.from_numpy(RGB).permute(2, 0, 1)).shape == (3, 16, 16)
    assert transform(torch.from_numpy(np.stack([RGB] * 5)).permute(0, 3, 1, 2)).shape == (5, 3, 16, 16)
    nhwc = Augment(CENTRE, layout="NHWC")
    assert nhwc(RGB).shape == (16, 16, 3)
    assert nhwc([RGB, RGB]).shape == (2, 16, 16, 3)
    views = Augment(SEVERAL_VIEWS)
    assert [view.shape for view in views(RGB)] == [(3, 20, 20), (3, 20, 20), (3, 8, 8)]
    several = views([RGB, RGB])
    assert isinstance(several, tuple) and not np.array_equal(several[0], several[1])
    assert [view.shape for view in several] == [(2, 3, 20, 20), (2, 3, 20, 20), (2, 3, 8, 8)]


def test_one_and_several_hold_the_same_pixels() -> None:
    transform = Augment(PAPER, 3)
    images = arrays(5)
    batch = transform(images, sample_ids=range(10, 15), epoch=1)
    np.testing.assert_array_equal(transform(np.stack(images), sample_ids=np.arange(10, 15), epoch=1), batch)
    for position, image in enumerate(images):
        single = transform(image, sample_ids=10 + position, epoch=1)
        np.testing.assert_array_equal(single, batch[position])
        np.testing.assert_array_equal(transform([image], sample_ids=[10 + position], epoch=1)[0], single)


@pytest.mark.parametrize("at_a_time", [1, 4 * 40 * 52 * 2, 2**20])
def test_arrays_that_are_packed_together_give_the_pixels_of_each(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_images, "AT_A_TIME_BYTES", at_a_time)
    monkeypatch.setattr(host_images, "WORTH_A_REGION", 40 * 52 * 7 - 1)  # of these seven, parts are packed
    images = [RGB, RGB[::-1], RGB[3:30, 7:44], GRAY, GRAY[:, 3:, None], np.tile(RGB, (2, 3, 1)), RGB[:, :51]]
    of_sizes = Recipe(ops=[ops.QuarterTurn(), ops.Flip(), ops.Invert(p=0.5)])
    padded = Recipe(ops=[ops.RandomCrop(size=(27, 70), padding=33, border="reflect"), ops.Flip(p=0.5)])
    cropped = Recipe(ops=[RandomResizedCrop(size=(11, 13))])
    for recipe, dtype in itertools.product((cropped, SEVERAL_VIEWS, of_sizes, padded), ("float32", "uint8")):
        if dtype == "uint8" and recipe.normalises:
            continue
        augment = Augment(recipe, framework="numpy", num_threads=2, dtype=dtype)
        made = augment(images, sample_ids=range(7))
        for position, image in enumerate(images):
            alone = augment(np.dstack([as_rgb(image), as_rgb(image)[..., 0]]), sample_ids=[position])
            for batch, one in zip(several(made), several(alone), strict=True):
                np.testing.assert_array_equal(batch[position], one)


@pytest.mark.parametrize(
    ("ops_listed", "expected"),
    [
        ((RandomResizedCrop(size=(11, 13)),), [True, False, True, False]),
        ((RandomResizedCrop(size=(11, 13)), ops.Rotate(p=1.0)), [False] * 4),
        ((RandomResizedCrop(size=(11, 13)), ops.Noise(p=1.0), ops.Rotate(p=1.0)), [True, False, True, False]),
        ((ops.CenterCrop(size=9), ops.Flip()), [True, False, True, False]),
        ((ops.CenterCrop(size=9), ops.Transpose(p=1.0)), [False] * 4),
    ],
    ids=["row by row", "slanted", "two passes", "whole pixels", "turned pixels"],
)
def test_rgb_arrays_are_read_in_place_where_they_are_read_row_by_row(
    ops_listed: tuple[ops.Op, ...], expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    stayed: list[bool] = []
    images = [RGB, GRAY.copy(), RGB[::-1], np.broadcast_to(RGB[:1], RGB.shape)]
    kernel = host_images.pack_regions
    monkeypatch.setattr(host_images, "pack_regions", lambda *given: (stayed.extend(given[2] != 0), kernel(*given)))
    Augment(Recipe(ops=ops_listed), framework="numpy", num_threads=1)(images, sample_ids=range(4))
    assert stayed == expected


def as_rgb(image: Array) -> Array:
    return np.broadcast_to(image if image.ndim == 3 else image[..., None], (*image.shape[:2], 3))


def several(views: Any) -> tuple[Array, ...]:
    return views if isinstance(views, tuple) else (views,)


def test_no_images_give_an_empty_batch_of_the_right_shape() -> None:
    assert Augment(CENTRE)([]).shape == (0, 3, 16, 16)
    assert Augment(CENTRE, framework="torch")([]).shape == (0, 3, 16, 16)
    assert [view.shape for view in Augment(SEVERAL_VIEWS)([])] == [(0, 3, 20, 20)] * 2 + [(0, 3, 8, 8)]


def test_images_of_several_sizes_are_one_batch_with_a_crop_and_a_list_without() -> None:
    images = [RGB, RGB[:30], torch.from_numpy(RGB[:, :20].copy()), Image.fromarray(RGB[:7, :9])]
    assert Augment(CENTRE)(images).shape == (4, 3, 16, 16)
    whole = Augment(recipes.none(), dtype="uint8", layout="NHWC")(images)
    assert isinstance(whole, list)
    for picture, image in zip(images, whole, strict=True):
        np.testing.assert_array_equal(image, np.asarray(picture))
    planar = Augment(recipes.none(), dtype="uint8", framework="torch")(images)
    assert [tuple(image.shape) for image in planar] == [(3, 40, 52), (3, 30, 52), (3, 40, 20), (3, 7, 9)]


def test_tensors_give_tensors_and_all_else_arrays_unless_told_otherwise() -> None:
    tensor = torch.from_numpy(RGB)
    for given, expected in ((RGB, np.ndarray), (Image.fromarray(RGB), np.ndarray), (tensor, torch.Tensor)):
        for images in (given, [given], [given, RGB]):
            assert isinstance(Augment(CENTRE)(images), expected)
        assert isinstance(Augment(CENTRE, framework="torch")(given), torch.Tensor)
        assert isinstance(Augment(CENTRE, framework="numpy")(given), np.ndarray)


class Labelled(torch.Tensor):
    """As torchvision's tv_tensors are: a tensor by inheritance, of another module by name."""


Labelled.__module__ = "torchvision.tv_tensors"


def test_a_tensor_by_inheritance_is_a_tensor() -> None:
    result = Augment(CENTRE)(torch.from_numpy(RGB).as_subclass(Labelled))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_array_equal(result.numpy(), Augment(CENTRE)(RGB))


def test_channels_last_of_one_and_of_several() -> None:
    last = Augment(PAPER, dtype="bfloat16", layout="channels_last", framework="torch")
    first = Augment(PAPER, dtype="bfloat16", framework="torch")
    several, single = last([RGB, RGB], sample_ids=[1, 2]), last(RGB, sample_ids=1)
    assert several.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(several, first([RGB, RGB], sample_ids=[1, 2]))
    assert single.shape == (3, 16, 16) and torch.equal(single, several[0])


def test_the_input_is_not_changed() -> None:
    images: list[Any] = [RGB.copy(), GRAY.copy(), torch.from_numpy(RGB.copy()), Image.fromarray(RGB)]
    before = copy.deepcopy(images)
    Augment(PAPER, num_threads=2)(images)
    for image, old in zip(images, before, strict=True):
        np.testing.assert_array_equal(np.asarray(image), np.asarray(old))


def test_the_result_does_not_share_memory_with_the_input_or_other_results() -> None:
    transform = Augment(recipes.none(), dtype="uint8", layout="NHWC")
    first = transform(RGB)
    kept = first.copy()
    second = transform(scene(40, 52, 1))
    assert not np.shares_memory(first, RGB) and not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    np.testing.assert_array_equal(transform(RGB), kept)


# Ids, epochs and plans


def test_the_memory_of_many_images_is_used_again_once_nobody_holds_it() -> None:
    call, images = Augment(CENTRE), [RGB] * (host_images.LARGE_BYTES // (16 * 16 * 3 * 4) + 1)
    first = call(images)
    held, memory = first[0], weakref.ref(first.base)
    kept = held.copy()
    del first
    assert call(images).base is not memory()
    np.testing.assert_array_equal(held, kept)
    del held
    are_the_same = [call(images).base is memory() for _ in range(2)]
    assert any(are_the_same)
    call(RGB)
    assert memory() is None  # results of other sizes let go of it


def test_ids_are_counted_on_from_call_to_call() -> None:
    transform, other = Augment(PAPER, 3), Augment(PAPER, 3)
    found = [transform(RGB), *transform([RGB, RGB]), transform(RGB)]
    expected = other([RGB] * 4, sample_ids=[0, 1, 2, 3])
    np.testing.assert_array_equal(np.stack(found), expected)
    assert len({image.tobytes() for image in found}) == 4
    transform(RGB, sample_ids=100)  # ids that are given do not count
    np.testing.assert_array_equal(transform(RGB), other(RGB, sample_ids=4))


def test_ids_begin_again_after_the_last_one() -> None:
    transform = Augment(PAPER, 3)
    transform.next_id = 2**32 - 1
    found = transform([RGB, RGB])
    np.testing.assert_array_equal(found, Augment(PAPER, 3)([RGB, RGB], sample_ids=[2**32 - 1, 0]))
    np.testing.assert_array_equal(transform(RGB), Augment(PAPER, 3)(RGB, sample_ids=1))


def test_a_plan_is_repeated() -> None:
    images = arrays(4)
    drawn = plan(PAPER, [5, 6, 7, 8], sizes=[image.shape[:2] for image in images], epoch=1, seed=3)
    expected = Augment(PAPER, 3)(images, sample_ids=[5, 6, 7, 8], epoch=1)
    transform = Augment(PAPER, 99)  # the seed is the plan's
    np.testing.assert_array_equal(transform(images, plan=drawn), expected)
    np.testing.assert_array_equal(transform(images[2], plan=drawn[2:3]), expected[2])
    np.testing.assert_array_equal(transform(RGB, sample_ids=0), Augment(PAPER, 99)(RGB))  # nothing was counted


# Threads and processes


def test_a_call_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    Augment(PAPER, num_threads=4)(arrays(8))
    assert threading.active_count() == before


@pytest.mark.slow
def test_one_transform_may_be_called_from_several_threads() -> None:
    transform = Augment(PAPER, 3, num_threads=2)
    images = [[scene(30 + 9 * n, 40 + i, n) for i in range(6)] for n in range(4)]
    expected = [Augment(PAPER, 3, num_threads=1)(some, sample_ids=range(6)) for some in images]

    def work(number: int) -> None:
        for _ in range(20):
            np.testing.assert_array_equal(transform(images[number], sample_ids=range(6)), expected[number])

    together(4, work)


@pytest.mark.slow
def test_threads_never_get_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def record(self: HostTransform, images: Images, made: Plan, *how: Any) -> list[Any]:
        seen.extend(made.sample_ids.tolist())
        return render(self, images, made, *how)

    render = HostTransform.render
    monkeypatch.setattr(HostTransform, "render", record)
    transform = Augment(recipes.none(), num_threads=1)
    dot = np.zeros((1, 1, 3), np.uint8)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together(4, lambda _: [transform(dot) for _ in range(1000)])
    finally:
        sys.setswitchinterval(interval)
    assert sorted(seen) == list(range(4000))


def test_a_transform_is_pickled_and_copied() -> None:
    transform = Augment(SEVERAL_VIEWS, 3, dtype="float16", layout="channels_last", framework="torch")
    transform(RGB)
    expected = transform([RGB, RGB], sample_ids=[4, 5])
    for other in (pickle.loads(pickle.dumps(transform)), copy.copy(transform), copy.deepcopy(transform)):
        assert other.recipe == transform.recipe and other.seed == 3
        for found, view in zip(other([RGB, RGB], sample_ids=[4, 5]), expected, strict=True):
            assert torch.equal(found, view)
        counted = other(RGB)  # goes on counting where the first one stood
        assert torch.equal(counted[0], transform(RGB, sample_ids=1)[0])


def test_it_says_what_it_is() -> None:
    assert repr(Augment(PAPER, 3)) == "Augment('deep_image', seed=3)"
    assert "CenterCrop" in repr(Augment(Recipe(ops=(CenterCrop(size=4),))))


# What it refuses

SMALL = Recipe(ops=(CenterCrop(size=50), Normalize()))
CALL_ERRORS: list[tuple[Any, dict[str, Any], str]] = [
    ([RGB, RGB / 255], {}, r"^image 1: the array is float64, and must be uint8"),
    (RGB.transpose(2, 0, 1), {}, r"^image 0: .*Move its channels last"),
    (torch.from_numpy(RGB[:3, :4].copy()), {}, r"^image 0: .*shape \(3, 4, 3\), which may have its channels first or"),
    ([RGB, torch.zeros(3, 9, 4, dtype=torch.uint8)], {}, r"^image 1: .*shape \(3, 9, 4\), which may have .*numpy\(\)"),
    (torch.zeros(5, 3, 9, 3, dtype=torch.uint8), {}, r"^image 0: .*shape \(5, 3, 9, 3\), which may have"),
    (torch.zeros(5, 40, 52, dtype=torch.uint8), {}, r"^image 0: the array has shape \(5, 40, 52\)"),
    (np.zeros((4, 3, 40, 52), np.uint8), {}, r"^image 0: .*Move its channels last"),
    (np.zeros((40, 52, 2), np.uint8), {}, r"^image 0: the array has shape \(40, 52, 2\)"),
    (np.zeros((40, 0, 3), np.uint8), {}, r"^image 0: the array has shape \(40, 0, 3\), which holds no pixels\.$"),
    (3, {}, "^image 0 is a int. Give an .* or a file: its path, its bytes, or"),
    (torch.zeros(3, 40, 52), {}, "^image 0.*float32.*uint8"),
    ([[RGB]], {}, "^image 0 is a list. Give an"),
    (torch.zeros(40, 52, 3), {}, "^image 0.*float32.*uint8"),
    (torch.zeros(40, 52, 3, dtype=torch.bfloat16, requires_grad=True), {}, "^image 0.*bfloat16.*uint8"),
    (torch.zeros(40, 52, 3, dtype=torch.uint8, device="meta"), {}, r"^image 0 lies on meta.*Call .cpu\(\) first"),
    (RGB, {"sample_ids": [1, 2]}, r"^sample_ids holds 2 ids for 1 image\."),
    (RGB, {"sample_ids": -1}, "sample_ids must lie in"),
    (RGB, {"sample_ids": 2**32}, "sample_ids must lie in"),
    (RGB, {"sample_ids": 1.5}, "sample_ids"),
    (RGB, {"epoch": -1}, "epoch must lie in"),
    (RGB, {"epoch": 2**32}, "epoch must lie in"),
]


@pytest.mark.parametrize(("images", "options", "message"), CALL_ERRORS)
def test_what_cannot_be_augmented_is_named(images: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment(PAPER)(images, **options)


def test_an_image_that_the_recipe_cannot_use_is_named() -> None:
    with pytest.raises(ValueError, match=r"^image 1: the photograph is 40x52 pixels, smaller than the crop of 50x50"):
        Augment(SMALL)([scene(50, 50), RGB])


def test_a_plan_of_other_images_is_refused() -> None:
    transform = Augment(PAPER)
    drawn = plan(PAPER, [0, 1], sizes=[(40, 52), (52, 40)])
    with pytest.raises(ValueError, match=r"^the plan is of 2 samples; 1 image came. Cut it: plan\[i:j\]\.$"):
        transform(RGB, plan=drawn)
    with pytest.raises(
        ValueError, match="^image 1 is 40x52 pixels and the plan was made for 52x40. Give the photographs"
    ):
        transform([RGB, RGB], plan=drawn)


def test_a_plan_of_another_recipe_is_refused() -> None:
    drawn = plan(PAPER, [0], sizes=[(40, 52)])
    with pytest.raises(ValueError, match="recipe"):
        Augment(recipes.none(), dtype="uint8")(RGB, plan=drawn)  # normalised values do not fit


def test_a_plan_and_ids_at_once_are_refused() -> None:
    drawn = plan(PAPER, [0], sizes=[(40, 52)])
    with pytest.raises(ValueError, match="sample_ids.*plan|plan.*sample_ids"):
        Augment(PAPER)(RGB, sample_ids=[7], plan=drawn)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"seed=-1 must lie in 0..2\^64 - 1"),
        ({"seed": 2**64}, "seed=18446744073709551616"),
        ({"seed": 0.5}, "seed"),
        ({"num_threads": 0}, "num_threads=0 must be at least 1"),
        ({"num_threads": -3}, "num_threads=-3 must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment(**({"recipe": PAPER} | arguments))


def test_a_format_of_torch_is_told_for_arrays_when_they_come() -> None:
    transform = Augment(PAPER, dtype="bfloat16")
    assert transform(torch.from_numpy(RGB)).dtype == torch.bfloat16
    with pytest.raises(ValueError, match='dtype="bfloat16" needs framework="torch"'):
        transform(RGB)


def test_one_image_is_not_delayed_by_asking_how_many_cores_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    monkeypatch.setattr("augpipe.augment.num_usable_cores", lambda: asked.append(None) or 2)  # reads several files
    augment = Augment(CENTRE)
    augment(RGB)
    augment([GRAY])
    assert not asked
    augment([RGB, GRAY])
    assert asked
