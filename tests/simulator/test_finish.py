"""The CUDA loop over rendered images in numba's simulator beside the CPU's, on tiny images and random programs."""

import numpy as np
import pytest

from augpipe import Recipe, ops, plan
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.gpu_ops.image.cuda.launch import finish_batch, most_copied_bytes
from augpipe.gpu_ops.image.cuda.writing import HELD_AS, ITEM_BYTES
from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import HAZE, are_filters, as_bytes
from augpipe.planning.kernel_rows import kernel_rows
from tests.parity.promise import compare
from tests.simulator.test_kernels import LEVEL_TOLERANCE, aligned

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

NUM, HEIGHT, WIDTH = 6, 9, 7
SMALL_DISCS = (1.0, 3.0, 1.0, 2.0, 3.0, 2.0, 4.0, 2.0, 0.7)
EACH: dict[str, tuple[ops.Op, ...]] = {
    "matrices": (ops.ColorJitter(brightness=0.9, contrast=0.9, saturation=0.9, hue=0.5),),
    "tables": (ops.Brightness(), ops.Posterize(bits=(1, 7)), ops.Hue(), ops.Gamma()),
    "vignette": (ops.Contrast(), ops.Vignette()),
    "auto_contrast": (ops.Brightness(factor=(0.2, 0.9)), ops.AutoContrast(p=1.0)),
    "equalize": (ops.Equalize(p=1.0), ops.Saturation()),
    "contrast about the mean": (ops.Contrast(about="mean", factor=(0.1, 3.0)),),
    "sharpness": (ops.Sharpness(factor=(0.0, 3.0)), ops.Invert(p=0.5)),
    "gaussian_blur": (ops.GaussianBlur(sigma_px=(0.3, 4.0), p=0.8), ops.Saturation()),
    "box_blur": (ops.BoxBlur(sizes=(3, 9), p=0.8), ops.Hue()),
    "median_blur": (ops.Brightness(), ops.MedianBlur(sizes=(3, 5), p=0.8)),
    "motion_blur": (ops.MotionBlur(p=0.8), ops.Sharpen(p=0.5), ops.Emboss(alpha=(0.5, 1.0), p=0.5)),
    "long motion_blur": (ops.MotionBlur(sizes=(9, 15), p=0.8), ops.MotionBlur(sizes=(15, 15), line="ends", p=0.8)),
    "clahe": (ops.CLAHE(clip_limit=(1.0, 40.0), tiles=(2, 3), p=0.8), ops.GaussianBlur()),
    "jpeg_compression": (ops.JpegCompression(quality=(1, 100), p=0.8), ops.Saturation()),
    "downscale": (ops.Downscale(scale=(0.2, 0.9), p=0.9), ops.Saturation()),
    "grid_shuffle": (ops.GridShuffle(grid=(3, 2), p=0.9), ops.Saturation()),
    "fog": (ops.Fog(density=(0.5, 1.0), p=0.9), ops.Saturation()),  # with discs that are small enough for the image
    "iso_noise": (ops.ISONoise(intensity=(0.1, 3.0), p=0.9),),
    "grid_dropout": (ops.GridDropout(grid=(2, 3), ratio=0.7, p=0.8),),
    "grid_dropout of cells that are cut off": (
        *(ops.GridDropout(unit_px=(2, 5), fit="cut", place="shared", fill=200.0, p=0.8), ops.Saturation()),
        ops.GridDropout(grid=(2, 2), fit="square", place=(1, 0), ratio=0.3, p=0.8),
    ),
    "pixel_dropout": (ops.PixelDropout(share=(0.1, 0.9), fill="random", p=0.8), ops.Saturation()),
    "pixel_dropout of channels": (ops.PixelDropout(share=(0.0, 1.0), per_channel=True, p=0.8),),
    "shadow": (ops.Shadow(num=(1, 4), region=(0, 0, 1, 1), loss=(0.1, 0.9), p=0.8), ops.Saturation()),
    "shadow of lightness": (ops.Shadow(num=(2, 3), region=(0, 0, 1, 1), of="lightness", p=0.8),),
    "noise": (ops.Noise(p=0.8, std=(0.0, 30.0), speckle=(0.0, 0.3)),),
    "shared noise": (ops.Noise(p=0.8, std=(5.0, 30.0), per_channel=False), ops.Saturation()),
    "erase": (ops.Erase(p=0.8, fill=(1.0, 2.0, 3.0)), ops.Erase(p=0.8), ops.Vignette(p=0.5)),
    "several looks": (
        ops.Sharpness(p=0.7),
        ops.AutoContrast(p=0.7),
        ops.Solarize(p=0.7),
        ops.Sharpness(factor=(2.0, 2.0), p=0.7),
        ops.Equalize(p=0.7),
        ops.Contrast(about="mean", p=0.7),
        ops.Hue(p=0.7),
    ),
}


def rows_of(chosen: tuple[ops.Op, ...]) -> np.ndarray:
    recipe = Recipe(ops=(*chosen, ops.Normalize()))
    rows = kernel_rows(plan(recipe, range(NUM), sizes=[(HEIGHT, WIDTH)] * NUM).rows)
    are_hazes, numbers = rows["steps"]["kind"] == HAZE, rows["steps"]["numbers"]
    numbers[are_hazes, :9] = SMALL_DISCS
    numbers[:1][are_hazes[:1], 5] = 0  # rings without discs, as of small views
    return rows


def rendered_levels(seed: int) -> np.ndarray:
    """Levels as sampling leaves them: some lie outside 0..255 by a rounding, and some are whole."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(-1e-4, 255.0001, NUM * HEIGHT * WIDTH * 3)
    return np.where(rng.random(len(levels)) < 0.2, np.rint(levels), levels).astype(np.float32)


def on_device(rows: np.ndarray, levels: np.ndarray, held_as: str, planar: bool) -> np.ndarray:
    """float32 of what the kernel writes, bfloat16 as its bits."""
    table = aligned(rows.nbytes)
    table[:] = as_bytes(rows).reshape(-1)
    work = aligned(levels.nbytes)
    work[:] = levels.view(np.uint8)
    batch = aligned(len(levels) * ITEM_BYTES[HELD_AS[held_as]])
    copied_bytes = most_copied_bytes(rows["steps"], HEIGHT, WIDTH)
    copies = aligned(NUM * copied_bytes)
    shape = {"num": NUM, "height": HEIGHT, "width": WIDTH, "planar": planar, "held_as": held_as, "stream": 0}
    target = work if held_as == "float32" else batch
    addresses = [memory.ctypes.data for memory in (table, work, target, copies)]
    more = {"copied_bytes": copied_bytes, "filters": are_filters(rows["steps"])}
    finish_batch(*addresses, row_bytes=rows.itemsize, **more, **shape)
    kinds = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "uint8": np.uint8}
    return target.view(kinds[held_as]).copy()


def on_cpu(rows: np.ndarray, levels: np.ndarray, planar: bool) -> np.ndarray:
    batch = np.empty(len(levels), np.float32)
    take_programs(rows, levels.copy(), batch, HEIGHT, WIDTH, planar)
    return batch


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("name", EACH)
def test_as_on_the_cpu(name: str, planar: bool) -> None:
    rows, levels = rows_of(EACH[name]), rendered_levels(seed=len(name))

    def as_planes(batch: np.ndarray) -> np.ndarray:
        return (
            batch.reshape(NUM, 3, HEIGHT, WIDTH)
            if planar
            else batch.reshape(NUM, HEIGHT, WIDTH, 3).transpose(0, 3, 1, 2)
        )

    apart = compare(
        rows,
        lambda cut: as_planes(on_cpu(cut, levels, planar)),
        lambda cut: as_planes(on_device(cut, levels, "float32", planar)),
    )
    assert apart.is_promised and apart.levels < LEVEL_TOLERANCE, apart
    plain = on_cpu(rows_of((ops.Contrast(factor=(1.0, 1.0)),)), levels, planar)
    assert not np.array_equal(on_cpu(rows, levels, planar), plain)


@pytest.mark.parametrize("held_as", ["float16", "bfloat16", "uint8"])
def test_other_number_types_are_roundings(held_as: str) -> None:
    chosen = EACH["several looks"]
    rows, levels = rows_of(chosen), rendered_levels(seed=3)
    found = on_device(rows, levels, held_as, planar=True)
    exact = on_device(rows, levels, "float32", planar=True)
    if held_as == "uint8":
        assert np.array_equal(found, np.floor(np.clip(exact, 0, 255) + np.float32(0.5)))
        return
    if held_as == "bfloat16":
        found = (found.astype(np.uint32) << 16).view(np.float32)
    assert np.abs(found.astype(np.float32) - exact).max() <= (2.0**-10 if held_as == "float16" else 2.0**-7) * 2


def levels_at_an_edge(seed: int) -> np.ndarray:
    """Levels whose brightness is 127.5 but for float32's rounding, where the highest bit of a level begins."""
    rng = np.random.default_rng(seed)
    red, green = rng.uniform(120.0, 135.0, (2, NUM, HEIGHT, WIDTH))
    blue = (127.5 - 0.299 * red - 0.587 * green) / 0.114
    return np.stack([red, green, blue], axis=1).astype(np.float32).ravel()


def test_levels_at_an_edge_of_a_table() -> None:
    """One side rounds a*b + c once and the other one twice: they are far apart behind the table, and near before it."""
    rows, levels = rows_of((ops.Grayscale(p=1.0), ops.Posterize(bits=(1, 1)))), levels_at_an_edge(seed=0)
    expected = on_cpu(rows, levels, planar=True)
    found = on_device(rows, levels, "float32", planar=True)
    assert (np.abs(found - expected) * 255 * 0.225).max() > 127.0
    shape = NUM, 3, HEIGHT, WIDTH
    apart = compare(
        rows,
        lambda cut: on_cpu(cut, levels, planar=True).reshape(shape),
        lambda cut: on_device(cut, levels, "float32", planar=True).reshape(shape),
    )
    assert apart.levels < LEVEL_TOLERANCE and apart.from_edge_levels < LEVEL_TOLERANCE
    assert apart.num_rounded_apart == (found != expected).sum() and not apart.is_promised
