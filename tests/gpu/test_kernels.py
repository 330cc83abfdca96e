"""On a CUDA device: every op of the table with every border, beside the CPU, and what an image may be held in."""

from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Plan, Recipe, ops, plan, recipes
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.ops.view_passes import in_one_pass
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.output_format import OutputFormat
from tests.parity.images import Pixels, noise
from tests.parity.promise import Images, Renderer, Rows, compare, cpu_renderer
from tests.parity.table import TABLE_CASES, recipes_of, with_borders

pytestmark = pytest.mark.gpu

IMAGES = [noise(120, 90, seed=1), noise(97, 131, seed=2), noise(400, 300, seed=3)]
SHOWN = with_borders(("context", "reflect", "edge", "constant"))
PROGRAMS = [(name, border) for name in TABLE_CASES for border in ("context", "constant")]


def levels(recipe: Recipe) -> float:
    """How many levels a difference of 1 is, at most."""
    found = [255 * max(op.std) for view in recipe.all_views for op in view.ops if isinstance(op, ops.Normalize)]
    return max(found, default=1.0)


def drawn(recipe: Recipe, photographs: list[Pixels] = IMAGES) -> Plan:
    return plan(recipe, range(len(photographs)), sizes=[image.shape[:2] for image in photographs], seed=3)


def on_gpu(photographs: list[Pixels] = IMAGES) -> list[torch.Tensor]:
    return [torch.from_numpy(image).cuda() for image in photographs]


def as_list(images: Any) -> list[torch.Tensor]:
    return [image.cpu() for image in images]


@pytest.mark.parametrize(("name", "border"), SHOWN)
def test_each_op_is_within_a_level_of_the_cpu(name: str, border: str) -> None:
    for recipe in recipes_of(name, border):
        made = drawn(recipe)
        found = as_list(Augment(recipe, framework="torch")(on_gpu(), plan=made))
        expected = as_list(Augment(recipe, framework="torch")(IMAGES, plan=made))
        assert len(found) == len(expected) == len(IMAGES)
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert float((one.double() - other.double()).abs().max()) * levels(recipe) <= 1.0


def device_renderer(tensors: list[torch.Tensor], recipe: Recipe, size: tuple[int, int]) -> Renderer:
    """For `tests.parity.promise`, of images in device memory."""
    places = np.array([(tensor.data_ptr(), tensor.shape[1], 0, 0, tensor.shape[2]) for tensor in tensors], np.int64)
    renderer = DeviceRenderer(
        tensors[0].device, recipe, OutputFormat(dtype="float32", layout="NCHW", framework="torch")
    )

    def rendered(rows: Rows) -> Images:
        (batch,) = renderer.render(places, [rows], [size], tensors, range(len(tensors)))
        return batch.cpu().numpy()

    return rendered


def program(name: str, border: str) -> Recipe:
    return Recipe(border=border, fill=(250.0, 3.0, 99.0), ops=in_one_pass(TABLE_CASES[name]))


@pytest.mark.parametrize(("name", "border"), PROGRAMS)
def test_programs_with_tables(name: str, border: str) -> None:
    recipe = program(name, border)
    rows = drawn(recipe).rows
    size = int(rows["out_height"][0]), int(rows["out_width"][0])
    apart = compare(kernel_rows(rows), cpu_renderer(IMAGES, size), device_renderer(on_gpu(), recipe, size))
    assert apart.is_promised, apart


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_number_types_are_roundings_of_float32(dtype: Any) -> None:
    chain = recipes.deep_image(64, (72, 144))
    recipe = Recipe(ops=[op for op in chain.ops if dtype != "uint8" or op.op != "normalize"])
    made = drawn(recipe)
    exact = Augment(recipe)(on_gpu(), plan=made)
    narrow = Augment(recipe, dtype=dtype)(on_gpu(), plan=made)
    expected = (exact + 0.5).floor() if dtype == "uint8" else exact
    assert torch.equal(narrow, expected.to(narrow.dtype))


def test_a_second_launch_gives_the_same_bits() -> None:
    recipe = recipes.deep_image(64, (72, 144))
    augment, made = Augment(recipe, dtype="float16"), drawn(recipe)
    images = on_gpu()
    first = augment(images, plan=made)
    assert float(first.float().std()) > 0.1
    for _ in range(20):
        assert torch.equal(augment(images, plan=made), first)


def test_gray_rgb_and_rgbx_are_alike() -> None:
    recipe = recipes.deep_image(64, (72, 144))
    augment, made = Augment(recipe), drawn(recipe)
    rgbx = [np.concatenate([image, image[:, :, :1]], axis=2) for image in IMAGES]
    assert torch.equal(augment(on_gpu(rgbx), plan=made), augment(on_gpu(), plan=made))
    gray = [image[:, :, :1] for image in IMAGES]
    tripled = [np.repeat(image, 3, axis=2) for image in gray]
    assert torch.equal(augment(on_gpu(gray), plan=made), augment(on_gpu(tripled), plan=made))


def test_large_batches_and_odd_sizes() -> None:
    """More images than one launch takes along an axis of its grid; widths of which pairs leave one over."""
    recipe = Recipe(ops=(ops.Rotate(), ops.CenterCrop(size=(3, 5))))
    images = [noise(9, 8, seed=4)] * 70_000
    made = plan(recipe, range(len(images)), sizes=[(9, 8)] * len(images))
    batch = torch.from_numpy(images[0]).cuda().expand(len(images), -1, -1, -1)
    found = Augment(recipe)(batch, plan=made)
    which = np.array([0, 1, 65_534, 65_535, 65_536, 69_999])
    expected = Augment(recipe, framework="torch")([images[0]] * len(which), plan=made[which])
    assert float((found[torch.from_numpy(which).cuda()].cpu() - expected).abs().max()) <= 1.0
