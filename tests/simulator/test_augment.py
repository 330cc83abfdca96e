"""`Augment` on tensors in a simulated device's memory, beside itself on the CPU; "cpu" is the device."""

import copy
import pickle
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from augpipe import Augment, Recipe, ops, plan, recipes
from augpipe.augment_call import inputs
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.nn import AugmentModule
from augpipe.ops import CenterCrop, Flip, Noise, Normalize, RandomResizedCrop, Rotate
from augpipe.recipes.view import View

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

PAPER = recipes.deep_image(8, (10, 14))
LEVELS = Recipe(name="levels", ops=(RandomResizedCrop(size=(6, 8)), Rotate(), Flip()))
VIEWS = Recipe(
    name="views",
    views=(
        View(ops=(RandomResizedCrop(size=8), Flip(), Normalize()), count=2),
        View(ops=(CenterCrop(size=(4, 6)), Normalize())),
    ),
)
WHOLE_AND_CROPPED = Recipe(name="whole", views=(View(), View(ops=(CenterCrop(size=5),))))
LEVEL = 1 / (255 * 0.225)
"""One 8-bit level after normalisation, at least."""


def scene(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    noise = np.random.default_rng(seed).integers(0, 60, (height, width, 3))
    ramp = np.add.outer(np.arange(height) * 4, np.arange(width) * 3)[..., None]
    return ((ramp + noise) % 256).astype(np.uint8)


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Tensors are augmented on the simulated device; gives the number of images of each call of the renderer."""
    calls: list[int] = []
    render = DeviceRenderer.render

    def counted(self: DeviceRenderer, pixels: Any, *args: Any, **options: Any) -> Any:
        calls.append(len(pixels))
        return render(self, pixels, *args, **options)

    monkeypatch.setattr(inputs, "DEVICE_TYPES", ("cpu",))
    monkeypatch.setattr(DeviceRenderer, "render", counted)
    yield calls
    assert calls, "nothing ran on the device"


def expected_of(recipe: Recipe, pictures: list[npt.NDArray[np.uint8]], ids: Any, epoch: int = 0, **options: Any) -> Any:
    """What the CPU makes of them: arrays do not go to the device."""
    return Augment(recipe, 3, framework="torch", **options)(pictures, sample_ids=ids, epoch=epoch)


def assert_near(found: torch.Tensor, expected: torch.Tensor, most: float = LEVEL) -> None:
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert (found.double() - expected.double()).abs().max() <= most


IMAGES = [scene(12, 15, 0), scene(15, 11, 1), scene(13, 14, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_lists_agree_with_the_cpu(on_device: list[int], dtype: Any) -> None:
    found = Augment(PAPER, 3, dtype=dtype)([torch.from_numpy(p) for p in IMAGES], sample_ids=[4, 5, 6], epoch=2)
    expected = expected_of(PAPER, IMAGES, [4, 5, 6], 2, dtype=dtype)
    assert_near(found, expected, {"float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}[dtype])
    assert on_device == [3]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
def test_levels_and_layouts_agree_with_the_cpu(on_device: list[int], layout: Any) -> None:
    options: dict[str, Any] = {"dtype": "uint8", "layout": layout}
    found = Augment(LEVELS, 3, **options)([torch.from_numpy(p) for p in IMAGES], sample_ids=[4, 5, 6])
    expected = expected_of(LEVELS, IMAGES, [4, 5, 6], **options)
    assert_near(found, expected, 1)
    assert found.stride() == expected.stride()


def test_a_batch_of_one_tensor(on_device: list[int]) -> None:
    batch = np.stack([scene(12, 15, seed) for seed in range(3)])
    transform = Augment(PAPER, 3)
    assert_near(transform(torch.from_numpy(batch), sample_ids=[4, 5, 6]), expected_of(PAPER, list(batch), [4, 5, 6]))
    assert_near(transform([torch.from_numpy(batch[0])], sample_ids=[4]), expected_of(PAPER, [batch[0]], [4]))
    assert transform(torch.from_numpy(batch[:0])).shape == (0, 3, 8, 8)
    assert on_device == [3, 1, 0]


def test_one_image(on_device: list[int]) -> None:
    found = Augment(PAPER, 3)(torch.from_numpy(IMAGES[0]), sample_ids=4)
    assert_near(found, expected_of(PAPER, IMAGES[:1], [4])[0])


def test_several_views(on_device: list[int]) -> None:
    found = Augment(VIEWS, 3)([torch.from_numpy(p) for p in IMAGES], sample_ids=[4, 5, 6])
    for images, expected in zip(found, expected_of(VIEWS, IMAGES, [4, 5, 6]), strict=True):
        assert_near(images, expected)
    assert len(found) == 3 and on_device == [3]


def test_whole_images_of_several_sizes(on_device: list[int]) -> None:
    tensors = [torch.from_numpy(p) for p in IMAGES]
    found = Augment(WHOLE_AND_CROPPED, dtype="uint8", layout="NHWC")(tensors)
    assert isinstance(found[0], list)
    for image, tensor in zip(found[0], tensors, strict=True):
        assert torch.equal(image, tensor)
    assert found[1].shape == (3, 5, 5, 3)
    alike = Augment(recipes.none(), dtype="uint8", layout="NHWC")([tensors[0]] * 2)
    assert torch.equal(alike, torch.stack([tensors[0]] * 2))


RGB = IMAGES[0]
GRAY = RGB[..., 1].copy()
WIDE = np.random.default_rng(0).integers(0, 256, (30, 40, 3)).astype(np.uint8)
RGBX = np.dstack([RGB, GRAY])
KINDS: dict[str, tuple[torch.Tensor, bool]] = {
    "RGB": (torch.from_numpy(RGB), True),
    "with a fourth channel": (torch.from_numpy(RGBX), True),
    "a part of a larger one": (torch.from_numpy(np.pad(RGB, ((2, 3), (4, 5), (0, 0))))[2:14, 4:19], True),
    "one of a batch": (torch.from_numpy(np.stack([WIDE[:12, :15], RGB]))[1], True),
    "channels first in memory": (torch.from_numpy(RGB.transpose(2, 0, 1).copy()).permute(1, 2, 0), False),
    "channels first": (torch.from_numpy(RGB.transpose(2, 0, 1).copy()), False),
    "every other row": (torch.from_numpy(np.repeat(RGB, 2, axis=0))[::2], True),
    "every other column": (torch.from_numpy(np.repeat(RGB, 2, axis=1))[:, ::2], False),
    "three of four channels": (torch.from_numpy(RGBX)[..., :3], False),
    "a fourth channel off its words": (
        torch.from_numpy(np.frombuffer(b"\0" + RGBX.tobytes(), np.uint8).copy()[1:]).view(12, 15, 4),
        False,
    ),
}
GRAY_KINDS: dict[str, torch.Tensor] = {
    "two-dimensional": torch.from_numpy(GRAY),
    "one channel": torch.from_numpy(GRAY[..., None]),
    "a channel of a photograph": torch.from_numpy(RGB)[..., 1],
    "repeated": torch.from_numpy(GRAY)[..., None].expand(-1, -1, 3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_every_kind_give_the_same_pixels(
    on_device: list[int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda self, **o: copies.append(self) or clone(self, **o))
    tensor, is_read_in_place = KINDS[kind]
    before = tensor.numpy().copy()
    found = Augment(PAPER, 3)(tensor, sample_ids=4)
    assert len(copies) == (0 if is_read_in_place else 1)
    assert_near(found, expected_of(PAPER, [RGB], [4])[0])
    np.testing.assert_array_equal(tensor.numpy(), before)


@pytest.mark.parametrize("kind", GRAY_KINDS)
def test_gray_tensors_of_every_kind_give_the_same_pixels(on_device: list[int], kind: str) -> None:
    found = Augment(PAPER, 3)(GRAY_KINDS[kind], sample_ids=4)
    assert_near(found, expected_of(PAPER, [GRAY], [4])[0])


@pytest.mark.parametrize("shape", [(1, 15, 3), (12, 1, 3), (1, 1), (1, 1, 4)])
def test_images_of_one_row_or_column(on_device: list[int], shape: tuple[int, ...]) -> None:
    image = WIDE.reshape(-1)[: int(np.prod(shape))].reshape(shape)
    resized = recipes.deep_image(4, (4,))
    assert_near(Augment(resized, 3)(torch.from_numpy(image), sample_ids=4), expected_of(resized, [image], [4])[0])


def test_batches_whose_images_lie_apart(on_device: list[int]) -> None:
    apart = torch.from_numpy(np.stack([scene(12, 15, seed) for seed in range(4)]))[::2]
    transform = Augment(PAPER, 3)
    assert_near(transform(apart, sample_ids=[4, 5]), expected_of(PAPER, list(apart.numpy()), [4, 5]))
    gray = apart[..., :1].clone()
    assert_near(transform(gray, sample_ids=[4, 5]), expected_of(PAPER, list(gray.numpy()), [4, 5]))


class Foreign:
    """Another library's array, which says that it lies on a CUDA device."""

    def __init__(self, array: npt.NDArray[np.uint8]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_arrays_of_another_library_are_read_in_place_and_kept(
    on_device: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        inputs,
        "_torch_with_cuda",
        lambda index: SimpleNamespace(from_dlpack=lambda image: torch.from_numpy(image.array)),
    )
    seen: list[Any] = []
    launch = DeviceRenderer._launch

    def watched(self: Any, renderings: Any, sizes: Any, outs: Any, keep: Any, *rest: Any) -> None:
        (rendering,) = renderings
        seen.append((rendering.looked_at[:, 0].tolist(), keep))
        launch(self, renderings, sizes, outs, keep, *rest)

    monkeypatch.setattr(DeviceRenderer, "_launch", watched)
    transform, batch = Augment(PAPER, 3), np.stack([scene(12, 15, seed) for seed in range(2)])
    expected = expected_of(PAPER, list(batch), [4, 5])
    first, second = batch[0].ctypes.data, batch[1].ctypes.data
    for images, addresses in (
        (Foreign(batch), [first, second]),
        ([Foreign(batch[0]), Foreign(batch[1])], [first, second]),
        ([torch.from_numpy(batch[0]), Foreign(batch[1])], [first, second]),
    ):
        assert_near(transform(images, sample_ids=[4, 5]), expected)
        found, keep = seen.pop()
        assert found == addresses
        # in a list: kept until the device has passed, as torch's allocator knows nothing of that memory
        assert len(keep) == 1 and isinstance(keep[0], list) and all(isinstance(t, torch.Tensor) for t in keep[0])
    transform([torch.from_numpy(picture) for picture in batch])
    assert all(isinstance(tensor, torch.Tensor) for tensor in seen.pop()[1])
    assert_near(transform(Foreign(batch[0]), sample_ids=4), expected[0])


def test_a_plan_is_repeated(on_device: list[int]) -> None:
    drawn = plan(PAPER, [4, 5, 6], sizes=[p.shape[:2] for p in IMAGES], seed=3)
    found = Augment(PAPER, 99)([torch.from_numpy(p) for p in IMAGES], plan=drawn)
    assert_near(found, expected_of(PAPER, IMAGES, [4, 5, 6]))


def test_results_do_not_share_memory(on_device: list[int]) -> None:
    transform, tensor = Augment(recipes.none(), dtype="uint8", layout="NHWC"), torch.from_numpy(RGB.copy())
    first = transform(tensor)
    kept = first.clone()
    transform(torch.from_numpy(scene(12, 15, 9)))
    tensor.zero_()
    assert torch.equal(first, kept)


def test_it_is_pickled_and_copied_after_use(on_device: list[int]) -> None:
    transform = Augment(PAPER, 3)
    tensor = torch.from_numpy(RGB)
    first = transform(tensor, sample_ids=4)
    for other in (pickle.loads(pickle.dumps(transform)), copy.copy(transform), copy.deepcopy(transform)):
        assert torch.equal(other(tensor, sample_ids=4), first)


def test_several_threads_share_it(on_device: list[int]) -> None:
    transform, problems = Augment(PAPER, 3), []
    expected = [transform(torch.from_numpy(p), sample_ids=4) for p in IMAGES]
    whole = Augment(PAPER, 3)  # whose renderer the threads race to make

    def work(number: int) -> None:
        try:
            for _ in range(3):
                found = whole(torch.from_numpy(IMAGES[number]), sample_ids=4)
                assert torch.equal(found, expected[number])
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def test_a_module_in_front_of_a_model(on_device: list[int]) -> None:
    module = AugmentModule(PAPER, seed=3)
    batch = np.stack([scene(12, 15, seed) for seed in range(2)])
    model = torch.nn.Sequential(module, torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, 2))
    torch.compile(model, backend="eager")(torch.from_numpy(batch)).sum().backward()
    assert model[2].weight.grad is not None
    assert_near(module(torch.from_numpy(batch)), expected_of(PAPER, list(batch), [2, 3]))
    module.eval()
    expected = Augment(module.eval_recipe)(list(batch))
    assert_near(module(torch.from_numpy(batch)), torch.from_numpy(expected))


FINISHED = {"own_look": "bilinear", "ops": [ops.Solarize(p=1.0), ops.Rotate(max_deg=30), ops.Shear()]}
OF_PASSES = {
    "of one size": [RandomResizedCrop(size=(9, 10)), Noise(p=1.0), Rotate(max_deg=20), Normalize()],
    "of each image's size": [Noise(p=0.5), ops.Perspective(p=1.0), ops.Equalize(p=1.0), RandomResizedCrop(size=8)],
    "whole images": [ops.CoarseDropout(p=1.0, height=(2, 4), width=(2, 4)), Rotate(max_deg=20), ops.Invert(p=0.5)],
    "of filters": [ops.GaussianBlur(p=1.0), Rotate(max_deg=20), ops.MedianBlur(p=1.0), CenterCrop(size=7)],
    "four": [Noise(p=1.0), Rotate(), Noise(p=1.0), ops.Zoom(), Noise(p=1.0), ops.Perspective(), ops.Solarize(p=1.0)],
    "borders of their own": [
        ops.AllOf(ops=[Rotate(max_deg=20)], own_look="bilinear", own_border="reflect"),
        ops.AllOf(ops=[ops.Zoom(factor=(0.5, 0.7))], own_look="bilinear", own_border="constant", own_fill=200),
        ops.Shear(),
    ],
    "finished op by op": [CenterCrop(size=9), ops.AllOf(in_turn=True, **FINISHED), Normalize()],
}


@pytest.mark.parametrize("kind", OF_PASSES)
def test_several_passes_agree_with_the_cpu(on_device: list[int], kind: str) -> None:
    recipe = Recipe(name="passes", ops=OF_PASSES[kind], border="constant")
    assert recipe.num_passes > 1
    options: dict[str, Any] = {} if Normalize() in recipe.ops else {"dtype": "uint8"}
    found = Augment(recipe, 3, **options)([torch.from_numpy(p) for p in IMAGES], sample_ids=[4, 5, 6])
    expected = expected_of(recipe, IMAGES, [4, 5, 6], **options)
    scale = 1 if options else LEVEL
    for one, other in zip(found, expected, strict=True):
        apart = (one.double() - other.double()).abs() / scale
        assert apart.max() <= 1 and apart.mean() < 0.02


@pytest.mark.parametrize("is_turned", [False, True], ids=["straight", "turned"])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "bicubic"])
def test_images_end_within_a_pixel(on_device: list[int], interpolation: Any, is_turned: bool) -> None:
    """What is padded behind a crop of an enlarged image ends where the crop does, by parts of the image's pixels."""
    turns = (Rotate(max_deg=(12, 12), step=None),) if is_turned else ()
    crop = (CenterCrop(size=(18, 23), scale=27), ops.Pad(px=(2, 3), fill=(255, 0, 90)), *turns)
    recipe = Recipe(ops=crop, interpolation=interpolation, antialias=False)
    found = Augment(recipe, 3, dtype="uint8")([torch.from_numpy(p) for p in IMAGES], sample_ids=[4, 5, 6])
    expected = expected_of(recipe, IMAGES, [4, 5, 6], dtype="uint8")
    assert_near(found, expected, 1)
    is_fill = (expected == torch.tensor([255, 0, 90], dtype=torch.uint8)[:, None, None]).all(dim=1)
    assert (is_fill.sum(dim=(1, 2)) >= 24 * 27 - 18 * 23 - 40).all(), "all that lies around the crop"


def test_views_of_one_pass_and_of_several_share_a_batch(on_device: list[int]) -> None:
    views = (View(ops=(CenterCrop(size=8), Normalize())), View(ops=(Noise(p=1.0), Rotate(), CenterCrop(size=5))))
    recipe = Recipe(name="both", views=views)
    found = Augment(recipe, 3)([torch.from_numpy(p) for p in IMAGES], sample_ids=[4, 5, 6])
    for one, other in zip(found, expected_of(recipe, IMAGES, [4, 5, 6]), strict=True):
        assert_near(one, other, 1.01 if other.max() > 10 else LEVEL)
    assert on_device == [3]


def test_functions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "DEVICE_TYPES", ("cpu",))
    augment = Augment(Recipe(name="two", ops=(ops.Custom(np.negative), Rotate())))
    with pytest.raises(ValueError, match=r"'two' calls a function of yours \(.*\), which takes an array on the CPU"):
        augment(torch.from_numpy(IMAGES[0]))
