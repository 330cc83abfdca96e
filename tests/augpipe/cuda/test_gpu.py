"""On a CUDA device: parity with the CPU, streams, lifetimes, memory, and what an error and a full device say."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Loader, Recipe, ops, recipes
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.cuda.device_name import require_device
from augpipe.cuda.staging import StagingPool
from augpipe.nn import AugmentModule
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import plan
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import CONTINUOUS, PAPER, ROOT, SEVERAL_VIEWS, views_of
from tests.augpipe.loader.target_sources import MOSAIC, MOSAIC_OF_NINE, object_source, targets_by_id
from tests.child_path import child_path

pytestmark = pytest.mark.gpu

IMAGES = [scene(60 + 7 * seed, 90 - 5 * seed, seed) for seed in range(6)]
IDS = list(range(6))
LEVEL = 1 / (255 * 0.225)
"""One 8-bit level after normalisation, at least."""


def on_gpu(pictures: Any = IMAGES) -> list[torch.Tensor]:
    return [torch.from_numpy(image).cuda() for image in pictures]


def assert_near(found: torch.Tensor, expected: torch.Tensor, most: float = LEVEL) -> None:
    assert found.is_cuda and found.shape == expected.shape and found.dtype == expected.dtype
    assert (found.cpu().double() - expected.double()).abs().max() <= most


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
def test_lists_agree_with_the_cpu(dtype: Any, layout: Any) -> None:
    options: dict[str, Any] = {"dtype": dtype, "layout": layout, "framework": "torch"}
    found = Augment(PAPER, 3, **options)(on_gpu(), sample_ids=IDS, epoch=2)
    expected = Augment(PAPER, 3, **options)(IMAGES, sample_ids=IDS, epoch=2)
    assert_near(found, expected, 2 * LEVEL if dtype == "bfloat16" else LEVEL)
    assert found.stride() == expected.stride()


def test_levels_views_and_batches_agree_with_the_cpu() -> None:
    levels: dict[str, Any] = {"dtype": "uint8", "framework": "torch"}
    found = Augment(CONTINUOUS, 3, **levels)(on_gpu(), sample_ids=IDS)
    assert_near(found, Augment(CONTINUOUS, 3, **levels)(IMAGES, sample_ids=IDS), 1)
    batch = np.stack([scene(60, 50, seed) for seed in range(4)])
    several = Augment(SEVERAL_VIEWS, 3, framework="torch")
    views = zip(several(torch.from_numpy(batch).cuda(), IDS[:4]), several(batch, IDS[:4]), strict=True)
    for found, expected in views:
        assert_near(found, expected)
    whole = Augment(recipes.none(), dtype="uint8", layout="NHWC")(on_gpu())
    for image, picture in zip(whole, IMAGES, strict=True):
        assert torch.equal(image.cpu(), torch.from_numpy(picture))


@pytest.mark.parametrize("recipe", [MOSAIC, MOSAIC_OF_NINE], ids=["four", "nine"])
def test_mosaics_agree_with_the_cpu(recipe: Recipe) -> None:
    cut, source = recipe.model_copy(update={"mixing": (ops.CutMix(p=0.5),)}), object_source(70, maps=True)
    on_cpu, on_device = (
        Loader(source, cut, batch_size=9, seed=3, device=device, backend="native", dtype="uint8")
        for device in ("cpu", "cuda")
    )
    for expected, found in zip(on_cpu, on_device, strict=True):
        for one, other in zip(views_of(found), views_of(expected), strict=True):
            apart = (one.cpu().int() - other.int()).abs()
            assert one.is_cuda and (apart > 1).double().mean() < 1e-3
        assert targets_by_id([found]) == targets_by_id([expected])


def test_it_works_on_the_current_stream_while_the_device_is_busy() -> None:
    """Inputs are dropped and their memory is written over at once; the results are those of the CPU."""
    transform = Augment(PAPER, 3)
    expected = Augment(PAPER, 3, framework="torch")(IMAGES, sample_ids=IDS)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    found = []
    for round in range(30):
        stream = streams[round % 3]
        with torch.cuda.stream(stream):
            images = on_gpu()
            torch.cuda._sleep(2_000_000)
            found.append(transform(images, sample_ids=IDS))
            sizes = [image.numel() for image in images]
            del images
            for size in sizes:
                torch.zeros(size, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for images in found:
        assert_near(images, expected)


def test_images_of_another_stream_may_be_dropped_at_once() -> None:
    transform, side = Augment(PAPER, 3), torch.cuda.Stream()
    expected = Augment(PAPER, 3, framework="torch")(IMAGES, sample_ids=IDS)
    for _ in range(10):
        with torch.cuda.stream(side):
            images = on_gpu()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda._sleep(5_000_000)
        found = transform(images, sample_ids=IDS)
        sizes = [image.numel() for image in images]
        del images
        with torch.cuda.stream(side):  # from the memory of the stream that made them
            for size in sizes:
                torch.zeros(size, dtype=torch.uint8, device="cuda")
        assert_near(found, expected)


def test_the_steady_state_does_not_synchronise_and_does_not_grow() -> None:
    transform, images = Augment(PAPER, 3), on_gpu()
    batch = torch.from_numpy(np.stack([scene(60, 50, seed) for seed in range(4)])).cuda()
    for _ in range(20):
        transform(images), transform(batch)
    torch.cuda.synchronize()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(300):
            transform(images), transform(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before
    assert torch.cuda.memory_reserved() == reserved


def test_arrays_of_other_libraries() -> None:
    from numba import cuda

    class Foreign:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    transform = Augment(PAPER, 3)
    expected = Augment(PAPER, 3, framework="torch")(IMAGES[0], sample_ids=4)
    assert_near(transform(cuda.to_device(IMAGES[0]), sample_ids=4), expected)
    assert_near(transform(cuda.to_device(IMAGES[0], stream=cuda.stream()), sample_ids=4), expected)
    assert_near(transform(Foreign(on_gpu()[0]), sample_ids=4), expected)
    assert_near(transform([Foreign(on_gpu()[0])], sample_ids=[4])[0], expected)


def test_a_capture_is_refused() -> None:
    transform, images, graph = Augment(PAPER, 3), on_gpu(), torch.cuda.CUDAGraph()
    transform(images)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept = images[0] + 1  # an empty graph is warned of
        with pytest.raises(RuntimeError, match="being captured into a CUDA graph"):
            transform(images)
    graph.replay()
    torch.cuda.synchronize()
    assert kept.shape == images[0].shape


def test_a_full_device_says_what_for() -> None:
    large = Recipe.model_validate({"ops": [{"op": "center_crop", "size": 4096, "scale": 4096}]})
    images = on_gpu()
    torch.cuda.empty_cache()
    used = torch.cuda.memory_reserved() + (64 << 20)
    torch.cuda.set_per_process_memory_fraction(used / torch.cuda.get_device_properties(0).total_memory)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="a batch's images of view 0: 6x3x4096x4096 float32"):
            Augment(large)(images)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_cuda_error_names_recipe_and_ids() -> None:
    """In a process of its own, which is lost by it: the kernel reads where no memory is."""
    code = """
import numpy as np
from augpipe import recipes
from augpipe.cuda.device_name import require_device
from augpipe.cuda.failures import KernelError
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.plan import plan

recipe = recipes.deep_image(16, (20,))
renderer = DeviceRenderer(
    require_device("cuda"), recipe, OutputFormat(dtype="float32", layout="NCHW", framework="torch")
)
made = plan(recipe, [41, 42], sizes=[(30, 30)] * 2)
table = np.array([[4096, 30, 0, 0, 3]] * 2)
try:
    renderer.render(table, [kernel_rows(made.rows)], [(16, 16)], [], made.sample_ids)
    renderer.drain()
except KernelError as error:
    print(error)
"""
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": child_path()}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    for part in ("illegal memory access", "'deep_image', sample ids 41, 42.", "CUDA_LAUNCH_BLOCKING=1"):
        assert part in ended.stdout, ended.stdout + ended.stderr


def test_staged_images_arrive() -> None:
    """Batch after batch through the same pinned memory, each copied beside the work of the one before."""
    device = require_device("cuda")
    recipe, form = recipes.none(), OutputFormat(dtype="uint8", layout="NHWC", framework="torch")
    pool, renderer = StagingPool(device, segment_bytes=1 << 16), DeviceRenderer(device, recipe, form)
    generator, found, expected = np.random.default_rng(0), [], []
    for _ in range(40):
        pixels = generator.integers(0, 256, (6, 50, 60, 4)).astype(np.uint8)
        staged = pool.take()
        for position in range(6):
            staged.room(position, pixels[position].nbytes)[:] = pixels[position].reshape(-1)
        staged.copy()
        staged.wait()
        made = plan(recipe, IDS, sizes=[(50, 60)] * 6)
        table = np.array([[staged.address(position), 60, 0, 0, 4] for position in range(6)])
        torch.cuda._sleep(500_000)
        found += renderer.render(table, [kernel_rows(made.rows)], [(50, 60)], [staged], made.sample_ids)
        expected.append(pixels[..., :3])
    for images, pixels in zip(found, expected, strict=True):
        assert torch.equal(images.cpu(), torch.from_numpy(pixels))


def test_a_module_in_front_of_a_compiled_model() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(AugmentModule(PAPER, seed=3), torch.nn.Flatten(), torch.nn.Linear(16 * 16 * 3, 2)).cuda()
    batch = torch.from_numpy(np.stack([scene(60, 50, seed) for seed in range(4)])).cuda()
    torch.compile(net, backend="aot_eager")(batch).sum().backward()
    assert net[2].weight.grad is not None and net[2].weight.grad.isfinite().all()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device")
def test_every_device_augments_what_lies_on_it() -> None:
    transform = Augment(PAPER, 3)
    expected = Augment(PAPER, 3, framework="torch")(IMAGES, sample_ids=IDS)
    for _ in range(2):
        for index in range(2):
            found = transform([image.to(f"cuda:{index}") for image in on_gpu()], sample_ids=IDS)
            assert found.device.index == index
            assert_near(found, expected)
    with pytest.raises(ValueError, match="^image 1 lies on cuda:1 and image 0 on cuda:0"):
        transform([torch.from_numpy(IMAGES[0]).to(f"cuda:{index}") for index in range(2)])
