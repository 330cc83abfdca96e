"""Which rectangle of an image the kernel reads for all views of a sample, so that no more of it is decoded."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.lens import distort, radial_gain
from augpipe.gpu_ops.image.program_rows import FIRST_LOOK
from augpipe.gpu_ops.image.rows import MEETING, REFLECT, WRAP
from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR, MEETS_PX
from augpipe.planning.kernel_rows import displacements
from augpipe.planning.record_passes import is_joined, parted_tables

Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]

GRID_POINTS = 5
"""Points a side where a lens is looked up; with 9 the rectangles measured 1 % smaller, and took half as long again."""

ROUNDING = 2.0**-16
"""More than float32 loses on the way to a coordinate (about 25 roundings of 2^-24), relative to what is summed up."""

NOTHING = np.zeros(2)
"""The displacements where nothing bends."""

LENS = ("k1", "k2", "k3", "p1", "p2")

LARGEST_EXACT = 2.0**22
"""Beyond this many pixels float32 does not tell neighbouring taps apart well enough to bound them."""


def source_regions(
    tables: Sequence[Rows], sizes: Sequence[tuple[int, int] | npt.NDArray[np.integer]]
) -> npt.NDArray[np.int32]:
    """(B, 4) int32 left, top, right, bottom: the pixels that `gpu_ops.image.fused` may read, right and bottom excluded.

    They count from the first pixel of the image as decoded, at the DCT factor that the tables were made for. Each
    rectangle holds every tap of every view, those of weight 0 too, after mirroring and clamping; it has at least one
    pixel and lies within the image. The kernel reads nothing else: it may ask for cache lines outside, which loads
    nothing.

    Args:
        tables: for each view, (B,) `kernel_rows`.
        sizes: for each view, height and width of its output images, in pixels; (B, 2) where they differ.
    """
    bounds = [_of_view(rows, size) for rows, size in zip(tables, sizes, strict=True)]
    first = np.min([first for first, _ in bounds], axis=0)
    last = np.max([last for _, last in bounds], axis=0)
    return np.concatenate([first, last + 1.0], axis=1).astype(np.int32)


def narrow_to_windows(
    tables: Sequence[Rows], sizes: Sequence[tuple[int, int]], windows: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[np.int32]:
    """`source_regions` of what windows show of the outputs, to which the tables are narrowed in place.

    Around the windows they show something else then. Of an image that a view bends, of which it looks at rendered
    pixels, or that it looks at in several passes, the region is empty and nothing is changed.

    Args:
        tables: for each view, (B,) `kernel_rows`.
        sizes: for each view, height and width of its output images, in pixels.
        windows: for each view, (B, 4) left, top, right and bottom in output pixels.
    """
    regions = np.zeros((len(tables[0]), 4), np.int32)
    can_be = np.flatnonzero(np.all([_looks_straight(rows) for rows in tables], axis=0))
    if not len(can_be):
        return regions
    some = [rows[can_be] for rows in tables]
    inner = []
    for rows, (height, width), of_view in zip(some, sizes, windows, strict=True):
        window = of_view[can_be].astype(np.float64)
        moved = rows.copy()
        by = 0.5 * (window[:, :2] + window[:, 2:] - (width, height))
        for axis, along in zip("xy", np.einsum("bij,bj->ib", _matrices(rows, "after"), by), strict=True):
            moved[f"offset_{axis}"] += along
        inner.append((moved, np.maximum(window[:, 2:] - window[:, :2], 1.0)[:, ::-1]))
    regions[can_be] = source_regions([moved for moved, _ in inner], [sizes for _, sizes in inner])
    for rows in tables:
        for axis, first, end in (("x", 0, 2), ("y", 1, 3)):
            low, high, origin = rows[f"low_{axis}"], rows[f"high_{axis}"], rows[f"origin_{axis}"]
            within = regions[can_be][:, [first, end]] - origin[can_be, None]
            ends = low[can_be], high[can_be]
            low[can_be], high[can_be] = np.clip(within[:, 0], *ends), np.clip(within[:, 1] - 1, *ends)
    return regions


def _looks_straight(rows: Rows) -> npt.NDArray[np.bool_]:
    """(B,) whether an output is looked up in one pass, along straight lines, and its steps change pixels one by one."""
    if is_joined(rows):
        return np.zeros(len(rows), np.bool_)
    looks: npt.NDArray[np.bool_] = (rows["has_lens"] == 0) & (rows["has_projection"] == 0) & (rows["field"] == 0)
    if "steps" in (rows.dtype.names or ()):
        looks &= (rows["steps"]["kind"] < FIRST_LOOK).all(axis=1)
    return looks


def _of_view(rows: Rows, size: npt.ArrayLike) -> tuple[Float, Float]:
    """(B, 2) first and last pixel read along x and y, both included, in whole numbers."""
    if is_joined(rows):
        rows, size = parted_tables(rows)[0]
    low, high = _columns(rows, "low_x", "low_y"), _columns(rows, "high_x", "high_y")
    origin = _columns(rows, "origin_x", "origin_y")
    first, last = _taps(rows, 0.5 * (np.asarray(size)[..., ::-1] - 1))
    goes_on = rows["reflects"][:, None]
    reflects, wraps, edge = goes_on != 0, goes_on == WRAP, np.where(goes_on == REFLECT, 1.0, 0.0)
    mirrored_first = np.where(wraps, high, 2.0 * low - edge - first)
    mirrored_last = np.where(wraps, low, 2.0 * high + edge - last)
    # past one end taps run back from that end; past both, back past the other end, or wrapped, they reach everywhere
    is_past = wraps & (first < low) | (last > high)
    first_read = np.where(reflects & is_past, np.minimum(first, mirrored_last), first)
    is_past = wraps & (last > high) | (first < low)
    last_read = np.where(reflects & is_past, np.maximum(last, mirrored_first), last)
    return origin + np.clip(first_read, low, high), origin + np.clip(last_read, low, high)


def _taps(rows: Rows, half: Float) -> tuple[Float, Float]:
    """(B, 2) lowest and highest tap along x and y from the origin, before borders; infinite where they are unbounded.

    The outermost pixels of an output lie `half`, (2,) or (B, 2), from its centre along x and y.
    """
    linear = _matrices(rows, "after")
    with np.errstate(all="ignore"):  # what overflows is not bounded, and is taken whole
        if rows["has_lens"].any() or rows["has_projection"].any():
            low, high, longest, bent = _bent(rows, linear, half)
        else:
            high = np.abs(linear[:, :, 0]) * half[..., :1] + np.abs(linear[:, :, 1]) * half[..., 1:]
            low, longest, bent = -high, np.sqrt((half * half).sum(axis=-1, keepdims=True)), NOTHING[:1]
        least, most = displacements(rows) if rows["field"].any() else (NOTHING, NOTHING)
        scale = np.sqrt((linear**2).sum(axis=2))
        offset = _columns(rows, "offset_x", "offset_y") - 0.5
        support = _columns(rows, "support_x", "support_y")
        summed = scale * longest + np.abs(offset) + support + 1.0 + np.maximum(-least, most)
        slack = ROUNDING * summed
        slack += np.where(rows["is_constant"] == MEETING, 2.0 * MEETS_PX, 0.0)[:, None]
        slack += scale * bent
        first = np.floor(low + least + offset - slack - support) + 1.0
        last = np.floor(high + most + offset + slack - support) + np.ceil(2.0 * support)
        is_bounded = summed < LARGEST_EXACT
    return np.where(is_bounded, first, -np.inf), np.where(is_bounded, last, np.inf)


def _bent(rows: Rows, linear: Float, half: Float) -> tuple[Float, Float, Float, Float]:
    """With lenses and projections, of the look-up without its offset: (B, 2) lowest and highest, and (B, 1) how long
    the vector that it turns can be, and how far from straight it runs.

    The look-up is evaluated on a grid over the output image. Between the points it differs from what runs straight from
    point to point by no more than its second derivatives allow, h^2 / 8 times them along each side of a cell.
    """
    has_lens = rows["has_lens"] != 0
    sides = np.where(has_lens[:, None, None], _matrices(rows, "before"), np.eye(2)) * half[..., None, :]
    num_points = GRID_POINTS if has_lens.any() else 2
    along = np.linspace(-1.0, 1.0, num_points)
    points = sides[:, :, 0, None, None] * along + sides[:, :, 1, None, None] * along[:, None]
    lengths2 = (sides**2).sum(axis=(1, 2))[:, None]
    projected = np.flatnonzero(rows["has_projection"])
    if len(projected):
        points[projected], lengths2[projected], is_in_front, terms = _projected(
            rows[projected], sides[projected], along, np.broadcast_to(half, (len(rows), 2))[projected]
        )
    u, v = points.reshape(len(rows), 2, num_points**2).swapaxes(0, 1)
    r2 = u * u + v * v
    most_r2 = r2.max(axis=1, keepdims=True)
    if has_lens.any():
        k1, k2, k3, p1, p2 = lens = [rows[name].astype(np.float64)[:, None] for name in LENS]
        gain = radial_gain.py_func(r2, k1, k2, k3)
        u, v = distort.py_func(u, v, r2, gain, p2, p1), distort.py_func(v, u, r2, gain, p1, p2)
        longest, curvature = _limits(most_r2, *lens)
        if len(projected):
            own = (coefficient[projected] for coefficient in lens)
            longest[projected] = np.where(is_in_front, _limits(terms[0] ** 2, *own)[0] * terms[1], np.inf)
    else:
        longest, curvature = np.sqrt(most_r2), NOTHING[:1]
    seen = linear[:, :, :1] * u[:, None] + linear[:, :, 1:] * v[:, None]
    return seen.min(axis=2), seen.max(axis=2), longest, curvature * lengths2 * (0.5 / (num_points - 1) ** 2)


def _projected(
    rows: Rows, sides: Float, along: Float, half: Float
) -> tuple[Float, Float, npt.NDArray[np.bool_], tuple[Float, Float]]:
    """For rows that project: (B, 2, P, P) points, (B, 1) squared lengths, whether they lie in front, and terms.

    A projection keeps lines straight, so the frame becomes the quadrangle between its four corners, and a point of that
    lies where two of its sides are cut in proportion: straight along both of them, as the points of other rows are.
    The terms are the longest vector that is divided, over the least divisor, and by how much more a division by a sum
    of terms of either sign is rounded than they are.
    """
    offset, divisor = _columns(rows, "before_x0", "before_y0"), _columns(rows, "before_wx", "before_wy", "before_w0")
    slopes = divisor[:, :2] * half
    ends = np.array([-1.0, 1.0])
    divisors = divisor[:, 2, None, None] + slopes[:, 0, None, None] * ends + slopes[:, 1, None, None] * ends[:, None]
    corners = sides[:, :, 0, None, None] * ends + sides[:, :, 1, None, None] * ends[:, None] + offset[:, :, None, None]
    corners /= np.maximum(divisors, LEAST_DIVISOR)[:, None]
    later = 0.5 * (along + 1.0)
    weights = np.stack([1.0 - later, later])
    points = np.einsum("bkij,is,jt->bkst", corners, weights, weights)
    across = 0.25 * ((corners[:, :, :, 1] - corners[:, :, :, 0]) ** 2).sum(axis=1).max(axis=1)
    down = 0.25 * ((corners[:, :, 1] - corners[:, :, 0]) ** 2).sum(axis=1).max(axis=1)
    least = divisors.min(axis=(1, 2))
    is_in_front = least > LEAST_DIVISOR * (1.0 + ROUNDING)
    least = np.maximum(least, LEAST_DIVISOR)[:, None]
    longest = np.sqrt(((np.abs(sides).sum(axis=2) + np.abs(offset)) ** 2).sum(axis=1, keepdims=True)) / least
    rounded = 1.0 + (np.abs(slopes).sum(axis=1) + np.abs(divisor[:, 2]))[:, None] / least
    return points, (across + down)[:, None], is_in_front[:, None], (longest, rounded)


def _limits(r2: Float, *lens: Float) -> tuple[Float, Float]:
    """(B, 1) each: how long a look-up's vector can be, and its second derivative along a unit vector, up to `r2`.

    With q the squared radius and g the radial gain, the second derivative of (u, v) g(q) is at most
    r (6 |g'| + 4 q |g''|), and that of the tangential terms at most 7 (|p1| + |p2|).
    """
    k1, k2, k3, p1, p2 = (np.abs(coefficient) for coefficient in lens)
    r, tangential = np.sqrt(r2), p1 + p2
    longest = r * (1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))) + 4.0 * tangential * r2
    slope, bend = k1 + r2 * (2.0 * k2 + r2 * 3.0 * k3), 2.0 * k2 + 6.0 * k3 * r2
    return longest, r * (6.0 * slope + 4.0 * r2 * bend) + 7.0 * tangential


def _columns(rows: Rows, *names: str) -> Float:
    found = np.empty((len(rows), len(names)))
    for nth, name in enumerate(names):
        found[:, nth] = rows[name]
    return found


def _matrices(rows: Rows, name: str) -> Float:
    return _columns(rows, *(f"{name}_{place}" for place in ("xx", "xy", "yx", "yy"))).reshape(-1, 2, 2)
