"""From images' pixels and their plan to finished images in a batch's memory, on the CPU."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.copied_levels import OF_LEVELS, OF_PIXELS, copy_levels, find_level_maps
from augpipe.gpu_ops.image.fused import bends, find_rgb, jobs_per_image, run_jobs
from augpipe.gpu_ops.image.level_tables import BLOCK, NUM_LEVELS, look_up_levels
from augpipe.gpu_ops.image.mix import mix_images
from augpipe.gpu_ops.image.pixels import narrow, pack_levels, pack_rgbx, widen
from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import as_bytes, first_parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.native.functions import Functions
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.record_passes import first_tables, is_joined, parted_tables
from augpipe.sources.protocol import Pixels
from augpipe.validation.arguments import MAX_INDEXABLE_PIXELS

Rows = npt.NDArray[np.void]

WORTH_TABLES = 2**13
"""Pixels of a call's outputs from which on finding and making tables for whole pixels takes less time than it saves."""

ALL_LEVELS = np.arange(NUM_LEVELS, dtype=np.uint8)

LEVELS = OutputFormat(dtype="float32", layout="NCHW", framework="numpy")
"""What a pass leaves to the next."""


class Scratch(threading.local):
    """Memory of one thread, used again from image to image."""

    def __init__(self) -> None:
        self._pixels: Pixels = np.empty(0, np.uint8)
        self._values: npt.NDArray[np.float32] = np.empty(0, np.float32)
        self._between: tuple[npt.NDArray[np.float32], Pixels] = np.empty(0, np.float32), np.empty((0, 4), np.uint8)

    def pixels(self, num_bytes: int) -> Pixels:
        """(num_bytes,) uint8, its content arbitrary."""
        if len(self._pixels) < num_bytes:
            self._pixels = np.empty(num_bytes, np.uint8)
        return self._pixels[:num_bytes]

    def values(self, num: int) -> npt.NDArray[np.float32]:
        """(num,) float32, its content arbitrary."""
        if len(self._values) < num:
            self._values = np.empty(num, np.float32)
        return self._values[:num]

    def between(self, num_pixels: int) -> tuple[npt.NDArray[np.float32], Pixels]:
        """(3 * num_pixels,) levels and (num_pixels, 4) RGBX, arbitrary: what one pass leaves to the next, 16 bytes a
        pixel of the largest image between two passes."""
        if len(self._between[1]) < num_pixels:
            self._between = np.empty(3 * num_pixels, np.float32), np.empty((num_pixels, 4), np.uint8)
        levels, packed = self._between
        return levels[: 3 * num_pixels], packed[:num_pixels]


def pixel_table(images: Sequence[LocatedPixels]) -> npt.NDArray[np.int64]:
    """The kernel's (B, 4) table for RGBX pixels on the host, which must outlive its use."""
    return np.array([(image.address, image.width, image.first_x, image.first_y) for image in images], np.int64)


def as_rgbx(image: Pixels, scratch: Scratch, first_x: int = 0, first_y: int = 0) -> LocatedPixels:
    """RGBX pixels of an (H, W) or (H, W, 1 | 3 | 4) image that begins at a column and row; they lie in `scratch`."""
    packed = pack_into(scratch.pixels(image.shape[0] * image.shape[1] * 4), image)
    return LocatedPixels.of(packed, first_x, first_y)


def pack_into(buffer: Pixels, image: Pixels) -> Pixels:
    """(H, W, 4) uint8, contiguous, of an (H, W) or (H, W, 1 | 3 | 4) image; it lies at the start of flat `buffer`."""
    shaped = image[:, :, None] if image.ndim == 2 else image
    height, width = shaped.shape[:2]
    packed = buffer[: height * width * 4].reshape(height, width, 4)
    pack_rgbx(shaped, packed)
    return packed


def check_image(image: npt.NDArray[Any]) -> None:
    """Raise ValueError, with the reason alone, unless this is an uint8 image with a known number of channels."""
    if image.dtype != np.uint8:
        raise ValueError(f"the array is {image.dtype}, and must be uint8 with values in 0..255")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
        hint = ". Move its channels last" if image.ndim == 3 and image.shape[0] in (1, 3, 4) else ""
        raise ValueError(
            f"the array has shape {image.shape}, and must be (H, W), (H, W, 1), (H, W, 3) or (H, W, 4){hint}"
        )
    if image.shape[0] * image.shape[1] > MAX_INDEXABLE_PIXELS:
        raise ValueError(f"the array has shape {image.shape}, more than {MAX_INDEXABLE_PIXELS} pixels. Cut it first")
    if 0 in image.shape:
        raise ValueError(f"the array has shape {image.shape}, which holds no pixels")


def find_in_place(rows: Rows, found: npt.NDArray[np.bool_]) -> None:
    """Clear (B,) `found` where images of three bytes a pixel have to be packed for `render`."""
    first = first_tables(rows)
    if bends(first):
        found[:] = False
    else:
        find_rgb(first, found)


def render(
    images: Sequence[LocatedPixels] | npt.NDArray[np.int64],
    rows: Rows,
    out: npt.NDArray[np.generic],
    size: tuple[int, int],
    form: OutputFormat,
    scratch: Scratch,
    functions: Functions | None = None,
    rgb_rows: npt.NDArray[np.int64] | None = None,
) -> None:
    """Write finished images, one behind the other.

    Args:
        images: RGBX pixels on the host, or their `pixel_table`.
        rows: (B,) `planning.kernel_rows.kernel_rows`, one an image, of one pass or several.
        out: (B * height * width * 3,) of the batch, in the type that `form` holds it as.
        size: height and width of an output image, in pixels.
        form: dtype and layout.
        scratch: of the calling thread.
        functions: of the recipe, which are called between passes; of the image whose row is the first one.
        rgb_rows: as `run_jobs` takes it, of images that `find_in_place`.
    """
    table = images if isinstance(images, np.ndarray) else pixel_table(images)
    height, width = size
    if is_joined(rows):
        _render_passes(table, rows, out, form, scratch, functions, rgb_rows)
        return
    first = first_parts(rows)
    left = [(0, len(rows))]
    if out.dtype == np.uint8 and width >= BLOCK and len(rows) * height * width >= WORTH_TABLES:
        left = _look_up_levels(table, rows, first, out, size, rgb_rows, planar=form.planar)
    for start, end in left:
        own, num = slice(start, end), height * width * 3
        of_rgb = None if rgb_rows is None else rgb_rows[own]
        _render_levels(table[own], rows[own], first[own], out[start * num : end * num], size, form, scratch, of_rgb)


def _look_up_levels(
    images: npt.NDArray[np.int64],
    rows: Rows,
    first: Rows,
    out: npt.NDArray[np.generic],
    size: tuple[int, int],
    rgb_rows: npt.NDArray[np.int64] | None,
    *,
    planar: bool,
) -> list[tuple[int, int]]:
    """Write those images of which each channel is changed by itself, from the nearest levels on, by tables of what
    becomes of each level: their programs make them of all levels. Returns where the others begin and end."""
    programs, found = as_bytes(rows), np.empty(len(rows), np.uint8)
    find_level_maps(first, programs, KERNEL_ROW.itemsize, *size, found)
    chosen = np.flatnonzero(found)
    if not len(chosen):
        return [(0, len(rows))]
    tables = np.empty((len(chosen), 3, NUM_LEVELS), np.uint8)
    if rows.dtype == KERNEL_ROW:
        tables[:] = ALL_LEVELS
    else:
        levels = np.empty(tables.shape, np.float32)
        levels[:] = ALL_LEVELS
        own = programs[chosen].view(rows.dtype).reshape(-1)  # by bytes, as numpy copies records field by field
        take_programs(own, levels.reshape(-1), tables.reshape(-1), 1, NUM_LEVELS, True)
    kinds, num = found[chosen], size[0] * size[1] * 3
    of_pixels, of_levels = kinds == OF_PIXELS, kinds == OF_LEVELS
    if of_pixels.any():
        apart = np.zeros(len(rows), np.int64) if rgb_rows is None else rgb_rows
        copy_levels(images, first, chosen[of_pixels], tables[of_pixels], out, *size, planar, apart)
    if of_levels.any():
        for start, end in _runs(found == OF_LEVELS):
            part, num_jobs = slice(start, end), (end - start) * jobs_per_image(size[0])
            target, of_rgb = out[start * num : end * num], None if rgb_rows is None else rgb_rows[part]
            run_jobs(images[part], first[part], target, *size, planar, 0, num_jobs, of_rgb)
        look_up_levels(chosen[of_levels], tables[of_levels], out, size[0] * size[1], planar)
    return _runs(found == 0)


def _runs(chosen: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where those that are chosen begin and end, excluded, one behind the other."""
    around = np.zeros(len(chosen) + 2, np.bool_)
    around[1:-1] = chosen
    edges = np.flatnonzero(around[1:] != around[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _render_levels(
    table: npt.NDArray[np.int64],
    rows: Rows,
    first: Rows,
    out: npt.NDArray[np.generic],
    size: tuple[int, int],
    form: OutputFormat,
    scratch: Scratch,
    rgb_rows: npt.NDArray[np.int64] | None,
) -> None:
    """`render` of one pass: levels that are looked up, and then taken through their programs."""
    (height, width), end = size, len(table) * jobs_per_image(size[0])
    takes_more = rows.dtype != KERNEL_ROW
    target = scratch.values(len(out)) if form.is_narrow or (takes_more and out.dtype != np.float32) else out
    run_jobs(table, first, target, height, width, form.planar, 0, end, rgb_rows)
    if takes_more:
        take_programs(rows, target, target if form.is_narrow else out, height, width, form.planar)
    if form.is_narrow:
        narrow(target, out)  # type: ignore[arg-type]  # float32 whenever the format is a narrow one


def _render_passes(
    images: npt.NDArray[np.int64],
    rows: Rows,
    out: npt.NDArray[np.generic],
    form: OutputFormat,
    scratch: Scratch,
    functions: Functions | None,
    rgb_rows: npt.NDArray[np.int64] | None,
) -> None:
    """`render`, image by image, of rows of several passes: each but the last one writes levels into scratch, and the
    next one looks at them, or at what functions make of them."""
    *before, (last, sizes) = parted_tables(rows)
    num = len(out) // max(len(images), 1)
    most_px = max(int(of_images.prod(axis=1, dtype=np.int64).max(initial=0)) for _, of_images in before)
    all_levels, all_packed = scratch.between(most_px)  # once: a pass looks at what the one before it has left there
    for nth in range(len(images)):
        own, looked_at = slice(nth, nth + 1), images[nth : nth + 1]
        of_rgb = None if rgb_rows is None else rgb_rows[own]
        for nth_pass, (table, of_images) in enumerate(before, start=1):
            height, width = of_images[nth].tolist()
            levels, packed = all_levels[: 3 * height * width], all_packed[: height * width]
            render(looked_at, table[own], levels, (height, width), LEVELS, scratch, rgb_rows=of_rgb)
            of_rgb = None
            pack_levels(levels, packed)
            if functions is not None:
                call_functions(functions, nth_pass, nth, packed.reshape(height, width, 4))
            looked_at = np.array([(packed.ctypes.data, width, 0, 0)], np.int64)
        height, width = sizes[nth].tolist()
        render(looked_at, last[own], out[nth * num : (nth + 1) * num], (height, width), form, scratch)


def call_functions(functions: Functions, nth_pass: int, nth_image: int, packed: Pixels) -> None:
    """Put in the place of what a pass looks at, (H, W, 4) RGBX, what the functions make of it."""
    made = functions.call(nth_pass, nth_image, packed)
    if made is not None:
        pack_rgbx(made, packed)


def mix(
    jobs: Rows, batch: npt.NDArray[np.generic], size: tuple[int, int], form: OutputFormat, scratch: Scratch
) -> None:
    """Mix finished images of a batch in place; 16-bit numbers are mixed as float32, and rounded once more.

    Args:
        jobs: (n,) `gpu_ops.image.mix.MIX_JOB`.
        batch: (images * height * width * 3,), in the type that `form` holds it as.
        size: height and width of an image, in pixels.
        form: dtype and layout.
        scratch: of the calling thread.
    """
    height, width = size
    if not form.is_narrow:
        mix_images(as_bytes(jobs), batch, height, width, form.planar)
        return
    num = height * width * 3
    values = scratch.values(2 * num)
    for job in jobs:
        alone = job.reshape(1).copy()
        alone["places"] = (0, 1)
        pair = [batch[place * num : (place + 1) * num] for place in job["places"].tolist()]
        for nth, image in enumerate(pair):
            widen(image, values[nth * num : (nth + 1) * num])
        mix_images(as_bytes(alone), values, height, width, form.planar)
        for nth, image in enumerate(pair):
            if job["regions"][nth].any():
                narrow(values[nth * num : (nth + 1) * num], image)


def paste(
    own: npt.NDArray[np.generic], partner: npt.NDArray[np.generic], alpha: npt.NDArray[np.float32], form: OutputFormat
) -> None:
    """Lay a part of one finished image over that of another, in place; rounded as `mix` does.

    Args:
        own: (3, height, width) or (height, width, 3) as `form` says, in the type that it holds; it may be a view.
        partner: the same of the other image.
        alpha: (height, width) the part of the other, in 0..1; at 0 and 1 pixels are exactly those of one of both.
        form: dtype and layout.
    """
    weight = np.float32(1.0) - (alpha if form.planar else alpha[:, :, None])
    first, second = (_as_float32(values, form) for values in (own, partner))
    with np.errstate(invalid="ignore", over="ignore"):  # where nothing of the partner is seen, anything may stand
        mixed = second + weight * (first - second)
    if form.is_narrow:
        out = np.empty(mixed.size, own.dtype)
        narrow(mixed.reshape(-1), out)
        made = out.reshape(own.shape)
    else:
        made = (np.floor(mixed + np.float32(0.5)) if own.dtype == np.uint8 else mixed).astype(own.dtype)
    np.copyto(own, partner, where=weight == 0.0)
    np.copyto(own, made, where=(weight > 0.0) & (weight < 1.0))


def _as_float32(values: npt.NDArray[np.generic], form: OutputFormat) -> npt.NDArray[np.float32]:
    if not form.is_narrow:
        return values.astype(np.float32)
    wide = np.empty(values.size, np.float32)
    widen(np.ascontiguousarray(values).reshape(-1), wide)
    return wide.reshape(values.shape)
