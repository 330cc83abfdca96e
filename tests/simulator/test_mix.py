"""The CUDA loop that mixes finished images in numba's simulator beside the CPU's, and a loader that runs it."""

from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, View, ops
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.gpu_ops.image.cuda import launch
from augpipe.gpu_ops.image.cuda.launch import mix_batch
from augpipe.gpu_ops.image.mix import MIX_JOB
from augpipe.gpu_ops.image.pixels import narrow
from augpipe.native.cpu_render import Scratch, mix
from augpipe.planning.output_format import OutputFormat
from tests.contracts.backends import FILES, Backend, needs_dali, plain
from tests.simulator.test_kernels import aligned

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

NUM, HEIGHT, WIDTH = 7, 5, 9
JOBS = np.zeros(4, MIX_JOB)
JOBS["places"] = [[0, 3], [1, 2], [4, 6], [5, 5]]
JOBS["weights"] = [[0.3, 0.9], [0.0, 0.25], [0.6, 0.0], [0.5, 0.0]]
JOBS["regions"] = [
    [[0, 0, 9, 5], [0, 0, 9, 5]],
    [[2, 1, 8, 3], [0, 2, 5, 5]],
    [[0, 0, 9, 5], [0, 0, 0, 0]],
    [[0, 0, 0, 0], [0, 0, 0, 0]],
]


def held(held_as: str) -> np.ndarray:
    """Finished images of random numbers."""
    values = np.random.default_rng(1).normal(size=NUM * HEIGHT * WIDTH * 3).astype(np.float32)
    if held_as == "float32":
        return values
    if held_as == "uint8":
        return np.clip(values * 60 + 128, 0, 255).astype(np.uint8)
    out: np.ndarray = np.empty(len(values), np.float16 if held_as == "float16" else np.uint16)
    narrow(values, out)
    return out


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("held_as", ["float32", "float16", "bfloat16", "uint8"])
def test_as_on_the_cpu(held_as: Any, planar: bool) -> None:
    before = held(held_as)
    batch, jobs = aligned(before.nbytes), aligned(JOBS.nbytes)
    batch[:], jobs[:] = before.view(np.uint8), JOBS.view(np.uint8)
    shape = {"height": HEIGHT, "width": WIDTH, "planar": planar, "held_as": held_as, "stream": 0}
    mix_batch(jobs.ctypes.data, batch.ctypes.data, num_jobs=len(JOBS), **shape)
    found, expected = batch.view(before.dtype), before.copy()
    form = OutputFormat(dtype=held_as, layout="NCHW" if planar else "NHWC", framework="torch")
    mix(JOBS, expected, (HEIGHT, WIDTH), form, Scratch())
    images = expected.reshape(NUM, -1)
    changed = [bool((images[i] != before.reshape(NUM, -1)[i]).any()) for i in range(NUM)]
    assert changed == [True, True, True, True, True, False, False]
    if held_as == "float32":
        np.testing.assert_allclose(found, expected, atol=1e-6)
    else:  # the simulator rounds a product and a sum, the CPU their result: the next number at most
        apart = np.abs(found.view(f"i{found.itemsize}").astype(int) - expected.view(f"i{found.itemsize}").astype(int))
        assert apart.max() <= 1 and np.mean(apart > 0) < 0.01


def test_more_pairs_than_a_grid_takes_are_mixed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for most in (launch.MAX_GRID_ROWS, 3, 1):
        monkeypatch.setattr(launch, "MAX_GRID_ROWS", most)
        before = held("float32")
        batch, jobs = aligned(before.nbytes), aligned(JOBS.nbytes)
        batch[:], jobs[:] = before.view(np.uint8), JOBS.view(np.uint8)
        shape = {"height": HEIGHT, "width": WIDTH, "planar": True, "held_as": "float32", "stream": 0}
        mix_batch(jobs.ctypes.data, batch.ctypes.data, num_jobs=len(JOBS), **shape)
        found.append(batch.tobytes())
    assert found[0] == found[1] == found[2]


NATIVE = Backend("native", "cuda")
MIXING = (ops.MixUp(p=0.5), ops.CutMix(p=0.4))
VIEWS = (View(ops=(ops.RandomResizedCrop(size=4), ops.Normalize()), count=2), View(ops=(ops.CenterCrop(size=3),)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "backend", [Backend("native", "cuda"), pytest.param(Backend("dali", "cuda"), marks=needs_dali)]
)
@pytest.mark.parametrize("cache", ["off", "device", "host"])
@pytest.mark.parametrize("batch_size", [3, 12])
def test_a_loader_mixes_on_a_device_as_on_the_cpu(backend: Backend, cache: Any, batch_size: int) -> None:
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=(4, 3)), ops.Flip(), ops.Normalize()), mixing=MIXING)
    device = backend.loader(recipe=recipe, cache=cache, batch_size=batch_size)
    for expected in 2 * [plain(recipe=recipe, batch_size=batch_size)]:
        expected.set_epoch(device.epoch)
        assert backend.assert_as_plain(device, list(expected)) == len(FILES)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_several_views_and_number_types(dtype: Any) -> None:
    backend, recipe = NATIVE, Recipe(views=VIEWS, mixing=MIXING)
    options: dict[str, Any] = {"dtype": dtype, "layout": "channels_last", "batch_size": 5}
    assert backend.assert_as_plain(backend.loader(recipe=recipe, **options), plain(recipe=recipe, **options))
