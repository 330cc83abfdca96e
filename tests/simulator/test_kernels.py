"""The CUDA kernels in numba's simulator beside the CPU's loop, on tiny images."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from augpipe import Plan, Recipe, View, ops, plan
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.gpu_ops.image.cuda import antialias, bilinear, pixels
from augpipe.gpu_ops.image.cuda.launch import finish_batch, most_copied_bytes, pack_rgbx, render_batch
from augpipe.gpu_ops.image.fused import jobs_per_image, run_jobs
from augpipe.gpu_ops.image.pixels import narrow
from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import are_filters, first_parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.simulator.host_memory import floor_index
from augpipe.ops.view_passes import in_one_pass
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.regions import source_regions
from tests.parity.images import Pixels, noise
from tests.parity.promise import compare
from tests.parity.table import CASES, ENLARGING, TABLE_CASES, with_borders

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

LEVEL_TOLERANCE = 1e-3
"""How far float32 output on noise may be apart: both sides round in float32, in another order."""

HELD_AS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "uint8": np.uint8}
BORDERS = ("context", "reflect", "edge", "constant")
SHRINK = 6
"""How much smaller than in the CPU's parity tests everything is: the simulator takes about 0.3 ms a pixel."""

BUSY = (
    ops.ColorCast(),
    ops.Vignette(),
    ops.LensDistortion(),
    ops.Rotate(),
    ops.RandomResizedCrop(size=(9, 12), scale=(0.1, 0.3)),
)


def aligned(num_bytes: int) -> np.ndarray:
    """(num_bytes,) uint8 that starts at a multiple of 16, as device memory does; not zero."""
    memory = np.full(num_bytes + 16, 77, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + num_bytes]


def held(image: Pixels, channels: int) -> Pixels:
    """(H, W, channels), its fourth channel arbitrary."""
    height, width = image.shape[:2]
    memory = aligned(height * width * channels).reshape(height, width, channels)
    memory[:, :, : min(channels, 3)] = image[:, :, : min(channels, 3)]
    return memory


def on_cpu(
    images: list[Pixels], rows: np.ndarray, size: tuple[int, int], dtype: str = "float32", planar: bool = True
) -> np.ndarray:
    packed = [held(image, 4) for image in images]
    table = np.array([[image.ctypes.data, image.shape[1], 0, 0] for image in packed], np.int64)
    values = np.empty(len(images) * size[0] * size[1] * 3, np.uint8 if dtype == "uint8" else np.float32)
    levels = values if rows.dtype == KERNEL_ROW else np.empty(len(values), np.float32)
    first, num_jobs = first_parts(rows), len(images) * jobs_per_image(size[0])
    run_jobs(table, first, levels, *size, planar, 0, num_jobs)
    if levels is not values:
        take_programs(rows, levels, values, *size, planar)
    if dtype in ("float32", "uint8"):
        return values
    out = np.empty(len(values), HELD_AS[dtype])
    narrow(values, out)
    return out


def on_device(
    images: list[Pixels],
    rows: np.ndarray,
    size: tuple[int, int],
    dtype: str = "float32",
    planar: bool = True,
    starts: list[tuple[int, int]] | None = None,
) -> np.ndarray:
    """`images` are (H, W, 1 | 3 | 4), a whole number of pixels from row to row."""
    places = starts or [(0, 0)] * len(images)
    table = np.array(
        [
            [image.ctypes.data, image.strides[0] // image.shape[2], *place, image.shape[2]]
            for image, place in zip(images, places, strict=True)
        ],
        np.int64,
    )
    num_items = len(images) * size[0] * size[1] * 3
    out = aligned(num_items * np.dtype(HELD_AS[dtype]).itemsize)
    shape = {"num": len(images), "height": size[0], "width": size[1], "planar": planar, "stream": 0}
    first = first_parts(rows)
    if first is rows:
        render_batch(table.ctypes.data, rows.ctypes.data, out.ctypes.data, **shape, held_as=dtype)
        return out.view(HELD_AS[dtype])
    copied_bytes = most_copied_bytes(rows["steps"], *size)
    levels, copies = aligned(4 * num_items), aligned(len(images) * copied_bytes)
    render_batch(table.ctypes.data, first.ctypes.data, levels.ctypes.data, **shape, held_as="float32")
    memory = rows.ctypes.data, levels.ctypes.data, out.ctypes.data, copies.ctypes.data
    shape |= {"copied_bytes": copied_bytes, "filters": are_filters(rows["steps"])}
    finish_batch(*memory, row_bytes=rows.itemsize, **shape, held_as=dtype)
    return out.view(HELD_AS[dtype])


def size_of(drawn: Plan, position: int = 0, view: int = 0) -> tuple[int, int]:
    row = drawn.views[view][position]
    return int(row["out_height"]), int(row["out_width"])


def shrunk(op: ops.Op) -> ops.Op:
    """The same op with a smaller crop, if it is one."""
    if isinstance(op, ops.OneCrop):
        return ops.OneCrop(chains=[[*map(shrunk, chain)] for chain in op.chains], weights=op.weights)
    if getattr(op, "own_size", False):
        return op
    return type(op)(**(op.model_dump(exclude={"op"}) | {name: _shrunk(getattr(op, name)) for name in op.sides_px}))


def _shrunk(pixels: Any) -> Any:
    if isinstance(pixels, tuple):
        return tuple(map(_shrunk, pixels))
    return pixels and max(pixels // SHRINK, 1)


def recipes_of(name: str, border: str) -> list[Recipe]:
    """As those of `tests.parity.table`, smaller."""
    chosen = tuple(shrunk(op) for op in CASES[name])
    has_crop = any(op.is_crop for op in chosen)
    variants = [chosen] if has_crop else [chosen, (*chosen, shrunk(ENLARGING))]
    look = {"border": border, "fill": (250.0, 3.0, 99.0)}
    return [Recipe(name=name, ops=in_one_pass(listed), **look) for listed in variants]


def worst_level(values: np.ndarray, expected: np.ndarray, drawn: Plan) -> float:
    """The greatest difference of two planar float32 batches, in levels."""
    shape = (len(drawn.rows), 3, *size_of(drawn))
    std = drawn.rows["std"][:, :, None, None]
    return float((np.abs(values.reshape(shape) - expected.reshape(shape)) * std * 255).max())


OTHER_BORDERS = [(name, border) for border in ("reflect_101", "wrap") for name in ("rotate far", "stretch smaller")]


def cases() -> Iterator[Any]:
    """Each case with two of the borders, in turn; with the others in the deep run."""
    places = {name: number for number, name in enumerate(CASES)}
    num_borders = Counter(name for name, _ in with_borders(BORDERS))
    for name, border in with_borders(BORDERS):
        is_deep = num_borders[name] == len(BORDERS) and (places[name] + BORDERS.index(border)) % 3 != 0
        yield pytest.param(name, border, marks=[pytest.mark.deep] * is_deep)


@pytest.mark.parametrize(("name", "border"), [*cases(), *OTHER_BORDERS])
def test_each_op_and_chains_of_them(name: str, border: str) -> None:
    for recipe in recipes_of(name, border):
        for image in (noise(61 // SHRINK, 83 // SHRINK, seed=1), noise(97 // SHRINK, 66 // SHRINK, seed=2)):
            drawn = plan(recipe, [0], sizes=[image.shape[:2]])
            rows, size = kernel_rows(drawn.rows), size_of(drawn)
            values = on_device([held(image, 4)], rows, size)
            assert worst_level(values, on_cpu([image], rows, size), drawn) < LEVEL_TOLERANCE, drawn


@pytest.mark.thinned(2)
@pytest.mark.parametrize("border", ["context", "constant"])
@pytest.mark.parametrize("name", TABLE_CASES)
def test_programs_with_tables(name: str, border: str) -> None:
    images = [noise(61 // SHRINK, 83 // SHRINK, seed=1), noise(97 // SHRINK, 66 // SHRINK, seed=2)]
    chosen = in_one_pass([shrunk(op) for op in TABLE_CASES[name]])
    recipe = Recipe(border=border, fill=(250.0, 3.0, 99.0), ops=chosen)
    drawn = plan(recipe, range(2), sizes=[image.shape[:2] for image in images])
    size, packed = size_of(drawn), [held(image, 4) for image in images]
    apart = compare(
        kernel_rows(drawn.rows),
        lambda cut: on_cpu(images, cut, size).reshape(2, 3, *size),
        lambda cut: on_device(packed, cut, size).reshape(2, 3, *size),
    )
    assert apart.is_promised and apart.levels < LEVEL_TOLERANCE, apart


@cache
def busy_batch(border: str = "context") -> tuple[list[Pixels], Plan]:
    images = [noise(17, 20, seed=1), noise(20, 11, seed=2), noise(8, 11, seed=3)]
    recipe = Recipe(border=border, fill=(9.0, 100.0, 200.0), ops=BUSY).fused()
    return images, plan(recipe, range(3), sizes=[image.shape[:2] for image in images])


def test_the_batch_takes_every_way_through_the_kernel() -> None:
    """Else the tests below would test little."""
    drawn = busy_batch()[1]
    rows = np.concatenate([kernel_rows(drawn.rows), kernel_rows(busy_batch("constant")[1].rows)])
    narrow_rows = (rows["support_x"] == 1) & (rows["support_y"] == 1) & (rows["is_constant"] == 0)
    for choice in (narrow_rows, rows["reflects"] != 0, rows["is_constant"] != 0, rows["has_lens"] != 0):
        assert choice.any() and not choice.all()


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("dtype", HELD_AS)
@pytest.mark.parametrize("border", ["context", "constant"])
def test_number_types_and_layouts(border: str, dtype: str, planar: bool) -> None:
    photographs, drawn = busy_batch(border)
    images, rows, size = [held(image, 4) for image in photographs], kernel_rows(drawn.rows), size_of(drawn)
    values = on_device(images, rows, size, dtype, planar)
    exact = on_device(images, rows, size, "float32", planar)
    if dtype == "uint8":
        assert np.abs(values.astype(int) - on_cpu(photographs, rows, size, dtype, planar)).max() <= 1
        assert np.array_equal(values, np.floor(np.clip(exact, 0, 255) + 0.5))
        return
    if dtype == "float32":
        assert np.abs(values - on_cpu(photographs, rows, size, dtype, planar)).max() < LEVEL_TOLERANCE
        return
    rounded = np.empty(len(exact), HELD_AS[dtype])
    narrow(exact, rounded)
    assert np.array_equal(values.view(np.uint16), rounded.view(np.uint16))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("size", [(1, 1), (3, 1), (1, 2), (5, 7), (19, 9), (18, 18)])
def test_odd_sizes_and_several_tiles(size: tuple[int, int], dtype: str) -> None:
    """An odd width leaves no aligned pairs; the simulator's tile is at most 16 rows of 8 pixels."""
    chosen = (ops.Rotate(), ops.Flip(p=1), ops.RandomResizedCrop(size=size, scale=(0.3, 0.6)))
    photographs = [noise(21, 23, seed=3), noise(25, 21, seed=4)]
    drawn = plan(Recipe(ops=chosen), range(2), sizes=[image.shape[:2] for image in photographs])
    rows, images = kernel_rows(drawn.rows), [held(image, 4) for image in photographs]
    planar = on_device(images, rows, size, dtype).reshape(2, 3, *size)
    interleaved = on_device(images, rows, size, dtype, planar=False).reshape(2, *size, 3)
    assert np.array_equal(planar, interleaved.transpose(0, 3, 1, 2))
    expected = on_cpu(photographs, rows, size, "uint8" if dtype == "uint8" else "float32")
    tolerance = {"float32": LEVEL_TOLERANCE, "float16": 0.07, "uint8": 1}[dtype]
    assert np.abs(planar.ravel().astype(np.float64) - expected).max() <= tolerance


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(("interpolation", "antialias"), [("bicubic", True), ("bicubic", False), ("nearest", True)])
def test_interpolations(interpolation: Any, antialias: bool, border: Any) -> None:
    """Where a point lies midway between two pixels, rounding decides which one is the nearest; here none does."""
    images = [noise(21, 23, seed=3), noise(9, 12, seed=4)]
    turns = () if interpolation == "nearest" else (ops.Rotate(max_deg=40, step=None), ops.LensDistortion())
    chosen = (*turns, ops.RandomResizedCrop(size=(7, 6), scale=(0.3, 0.9), step=None))
    recipe = Recipe(border=border, interpolation=interpolation, antialias=antialias, ops=chosen)
    drawn = plan(recipe, range(2), sizes=[image.shape[:2] for image in images])
    rows, size = kernel_rows(drawn.rows), size_of(drawn)
    for channels in (4, 3):
        values = on_device([held(image, channels) for image in images], rows, size)
        assert worst_level(values, on_cpu(images, rows, size), drawn) < LEVEL_TOLERANCE


@pytest.mark.parametrize("px", [6400, -6400])
def test_bytes_far_from_the_crop_are_found(px: int) -> None:
    """9,500 pixels from where a row's coordinates begin, 38,000 bytes; few taps, which have a way of their own."""
    chosen = ops.CenterCrop(size=(9, 40)), ops.Resize(size=(6, 27)), ops.Translate(horizontal=(px, px), unit="px")
    photograph, recipe = noise(9, 20_000, seed=3), Recipe(ops=chosen)
    drawn = plan(recipe, range(1), sizes=[photograph.shape[:2]])
    rows, size = kernel_rows(drawn.rows), size_of(drawn)
    values = on_device([held(photograph, 4)], rows, size)
    assert worst_level(values, on_cpu([photograph], rows, size), drawn) < LEVEL_TOLERANCE


@pytest.mark.parametrize("border", BORDERS)
def test_channels_make_no_difference(border: str) -> None:
    images, drawn = busy_batch(border)
    rows, size = kernel_rows(drawn.rows), size_of(drawn)
    rgbx, rgb = ([held(image, channels) for image in images] for channels in (4, 3))
    assert np.array_equal(on_device(rgb, rows, size), on_device(rgbx, rows, size))
    gray = [np.repeat(image[:, :, :1], 3, axis=2) for image in images]
    mixed = [held(gray[0], 1), held(gray[1], 4), held(gray[2], 3)]
    assert np.array_equal(on_device(mixed, rows, size), on_device([held(image, 4) for image in gray], rows, size))


def test_an_image_does_not_depend_on_its_batch() -> None:
    photographs, drawn = busy_batch()
    images, rows, size = [held(image, 4) for image in photographs], kernel_rows(drawn.rows), size_of(drawn)
    whole = on_device(images, rows, size).reshape(3, -1)
    for order in ([2], [1, 0], [2, 0, 1, 0]):
        some = on_device([images[i] for i in order], rows[order], size).reshape(len(order), -1)
        assert np.array_equal(some, whole[order])


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("scale", [100, 40])
def test_a_region_stands_for_the_image(scale: int, channels: int) -> None:
    """A part that holds every tap, with a stride of its own, gives the image's bits, at its border too."""
    image = noise(100, 120)[:, :, :channels] if channels == 1 else noise(100, 120)
    for seed in range(3):
        size = (8, 9)
        chosen = (ops.Rotate(max_deg=5), ops.MultiResolutionCrop(size=size, scales=(scale,)))
        drawn = plan(Recipe(ops=chosen), [seed], sizes=[(100, 120)])
        rows = kernel_rows(drawn.rows)
        crop = drawn.rows["crop"][0]
        left, top = max(0, int(crop[0]) - 9), max(0, int(crop[1]) - 9)
        right, bottom = min(120, int(crop[2]) + 10), min(100, int(crop[3]) + 10)
        assert (right - left) * (bottom - top) < 0.7 * 120 * 100
        held_region = aligned((bottom - top) * (right - left + 3) * channels)
        region = held_region.reshape(bottom - top, right - left + 3, channels)[:, : right - left]
        region[:] = held(image, channels)[top:bottom, left:right]
        part = on_device([region], rows, size, starts=[(left, top)])
        assert np.array_equal(part, on_device([held(image, channels)], rows, size))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("width", [1, 3, 8, 9])
@pytest.mark.parametrize("scale", [150, 40, 12])
def test_nothing_is_read_beside_a_region(
    scale: int, width: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not for the half of a pair of columns that an odd width does not have."""
    chosen = (ops.LensDistortion(), ops.Rotate(), ops.Flip(), ops.MultiResolutionCrop(size=(5, width), scales=(scale,)))
    held_at: list[int] = []

    def recorded(load: Any, num_bytes: int) -> Callable[[int], Any]:
        def read(address: int) -> Any:
            assert held_at[0] <= address <= held_at[1] - num_bytes, "next to the region"
            return load(address)

        return read

    for module in (antialias, bilinear, pixels):
        for name, num_bytes in (("load_u8", 1), ("load_u32", 4)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, recorded(getattr(module, name), num_bytes))
    for seed in range(6):
        drawn = plan(Recipe(ops=chosen), [seed], sizes=[(50, 60)])
        rows, size = kernel_rows(drawn.rows), size_of(drawn)
        left, top, right, bottom = source_regions([rows], [size])[0].tolist()
        region = held(noise(50, 60)[top:bottom, left:right], channels)
        held_at[:] = region.ctypes.data, region.ctypes.data + region.nbytes
        on_device([region], rows, size, starts=[(left, top)])


def test_several_views_of_one_table() -> None:
    photographs = [noise(17, 20, seed=5), noise(14, 19, seed=6)]
    views = (
        View(ops=(ops.RandomResizedCrop(size=(8, 11)), ops.Rotate())),
        View(ops=(ops.MultiResolutionCrop(size=7, scales=(9,)), ops.Flip(), ops.Normalize())),
    )
    drawn = plan(Recipe(views=views), [3, 4], sizes=[image.shape[:2] for image in photographs])
    images = [held(image, 3) for image in photographs]
    for view in range(2):
        rows, size = kernel_rows(drawn.views[view]), size_of(drawn, view=view)
        expected = on_cpu(photographs, rows, size)
        assert np.abs(on_device(images, rows, size) - expected).max() < LEVEL_TOLERANCE


def test_nothing_to_do_writes_nothing() -> None:
    assert len(on_device([], kernel_rows(busy_batch()[1].rows), (9, 12))) == 0
    out = aligned(64)
    for num, height in ((0, 2), (1, 0)):
        render_batch(0, 0, out.ctypes.data, num=num, height=height, width=2, planar=True, held_as="uint8", stream=0)
    pack_rgbx(0, num=0, max_pixels=4, stream=0)
    pack_rgbx(0, num=1, max_pixels=0, stream=0)
    assert (out == 77).all()


def test_packing_a_table() -> None:
    images = [
        held(noise(height, width, seed=height), channels)
        for height, width, channels in ((5, 7, 3), (9, 9, 1), (1, 1, 4), (3, 33, 4))
    ]
    targets = [aligned(image.shape[0] * image.shape[1] * 4 + 4) for image in images]
    # a source may start anywhere, as the part of a decoder's memory that is one image
    sources = [np.concatenate([[9], image.ravel()]).astype(np.uint8)[1:] for image in images]
    table = np.array(
        [
            [source.ctypes.data, target.ctypes.data, image.shape[0] * image.shape[1], image.shape[2]]
            for source, target, image in zip(sources, targets, images, strict=True)
        ],
        np.int64,
    )
    pack_rgbx(table.ctypes.data, num=len(images), max_pixels=int(table[:, 2].max()), stream=0)
    for image, target in zip(images, targets, strict=True):
        pixels = target[:-4].reshape(*image.shape[:2], 4)
        colours = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image[:, :, :3]
        assert np.array_equal(pixels[:, :, :3], colours)
        assert (pixels[:, :, 3] == 255).all()
        assert (target[-4:] == 77).all()


def test_rounding_to_sixteen_bits() -> None:
    """Halves go to even, and what is too large for float16 becomes infinite, as numpy and the CPU's loop round."""
    from augpipe.gpu_ops.cuda.memory import float16_bits, float16_pair_bits, float32_bits
    from augpipe.gpu_ops.image.cuda.writing import BFLOAT16, FLOAT16, item_bits

    values = np.array(
        [0.0, -0.0, 1.0, -2.1179, 2.64, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 3e-8], np.float32
    )
    for held_as, dtype in ((FLOAT16, np.float16), (BFLOAT16, np.uint16)):
        expected = np.empty(len(values), dtype)
        narrow(values, expected)
        assert [int(item_bits(value, held_as)) for value in values] == expected.view(np.uint16).tolist()
    assert float16_pair_bits(np.float32(1), np.float32(-2)) == 0xC0003C00
    assert float16_bits(np.float32(1)) == 0x3C00 and float32_bits(np.float32(1)) == 0x3F800000


def test_a_floor_beyond_int32_is_its_end_as_on_a_device() -> None:
    values = np.array([-np.inf, -3e9, -1.5, -0.0, 2.5, 3e9, np.inf, np.nan], np.float32)
    assert [int(floor_index(value)) for value in values] == [-(2**31), -(2**31), -2, 0, 2, 2**31 - 1, 2**31 - 1, 0]
