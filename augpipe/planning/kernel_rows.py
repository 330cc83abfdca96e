"""From plan records to the table that the fused kernel reads, at the scale at which an image was decoded."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.program_rows import AT_STEPS, STEP_BYTES, row_dtype
from augpipe.gpu_ops.image.rows import GRID, KERNEL_ROW, MEETING, REFLECT, REFLECT_101, SHARP, SNAP, WRAP
from augpipe.planning.fields import displacements, write_field_rows
from augpipe.planning.plan_record import BORDERS, MAX_DCT_FACTOR
from augpipe.planning.projection import is_moved, moved_extent
from augpipe.planning.record_passes import first_pass, has_passes, joined_tables, passes_of

Rows = npt.NDArray[np.void]

HALF_WIDTHS = np.array([1.0, 2.0, 0.5, 2.0])
"""Of `INTERPOLATIONS`, in output pixels of an image that is not enlarged."""

MIN_DCT_SIDE = 64
"""Images with a shorter side are decoded whole: a DCT scale would save nothing."""

_KINDS = {"context": REFLECT, "reflect": REFLECT, "reflect_101": REFLECT_101, "wrap": WRAP}
GOES_ON = np.array([_KINDS.get(name, 0) for name in BORDERS])
"""For each of BORDERS how the image goes on beyond it; 0 where it does not."""

ROUNDING_PX = 1e-6
"""More than a crop's corner is off by rounding, and less than the smallest fraction of a pixel that it can lie at."""


def dct_factors(views: tuple[Rows, ...]) -> npt.NDArray[np.int64]:
    """(B,) of 1, 2, 4 or 8: the coarsest DCT scale that still holds a source pixel for every output pixel.

    It depends on the plan alone: the least filter support over both axes and all views of the sample, rounded down to
    a power of two, for images of at least `MIN_DCT_SIDE` pixels a side.
    """
    support = np.min([first_pass(rows)["support"].min(axis=1) for rows in views], axis=0)
    factor = np.exp2(np.floor(np.log2(np.clip(support, 1.0, MAX_DCT_FACTOR)))).astype(np.int64)
    side = np.minimum(views[0]["height"], views[0]["width"])
    return np.where(side < MIN_DCT_SIDE, 1, factor)


def kernel_rows(rows: Rows, factors: npt.NDArray[np.int64] | None = None) -> Rows:
    """(B,) `gpu_ops.image.rows.KERNEL_ROW` for (B,) plan records of images decoded at 1/factor of their size.

    Where colours take more steps, each is followed by what `gpu_ops.image.program_rows` holds. Records of several
    passes become `record_passes.joined_tables`, of which the first pass alone looks at the decoded image.
    """
    if has_passes(rows):
        first, *others = passes = passes_of(rows)
        return joined_tables([kernel_rows(first, factors), *map(kernel_rows, others)], passes)
    table: Rows = np.zeros(len(rows), _table_dtype(rows))
    factor = np.ones(len(rows)) if factors is None else factors.astype(np.float64)
    after, before = rows["after"] / factor[:, None, None], rows["before"]
    linear = after[:, :, :2]
    lens = rows["lens"]
    has_lens: npt.NDArray[np.bool_] = np.any(lens != 0.0, axis=1)
    centre = after[:, :, 2]
    bends = "field" in (rows.dtype.names or ())
    if bends:
        write_field_rows(table, rows, factor)
        has_lens |= (table["field"] == GRID) | (table["field"] == SNAP)
        table["before_w0"] = 1.0
    moves = is_moved(rows)
    if moves:
        centre = _move(table, rows, linear, centre, has_lens)
    direct = np.where(has_lens[:, None, None], linear, np.matmul(linear, before))
    for column, name in enumerate("xy"):
        table[f"before_{'xy'[0]}{name}"], table[f"before_{'xy'[1]}{name}"] = before[:, 0, column], before[:, 1, column]
        table[f"after_{'xy'[0]}{name}"], table[f"after_{'xy'[1]}{name}"] = direct[:, 0, column], direct[:, 1, column]
    table["offset_x"], table["offset_y"] = centre[:, 0], centre[:, 1]
    for column, name in enumerate(("k1", "k2", "k3", "p1", "p2")):
        table[name] = lens[:, column]
    table["has_lens"] = has_lens
    support = np.maximum(rows["support"] / factor[:, None], 1.0)
    if rows["blur"].any():
        support = np.hypot(support, rows["blur"] / factor[:, None])
    support *= HALF_WIDTHS[rows["interpolation"]][:, None]
    table["filter"] = rows["interpolation"]
    table["support_x"], table["support_y"] = support[:, 0], support[:, 1]
    radius2 = rows["vignette"][:, 0] ** 2
    table["inverse_corner_r2"] = 4.0 / (rows["out_height"].astype(np.float64) ** 2 + rows["out_width"] ** 2.0)
    table["vignette_inner_r2"], table["vignette_inverse_span"] = radius2, 1.0 / (1.0 - radius2)
    table["vignette_strength"] = rows["vignette"][:, 1]
    table["cast"], table["casts_last"] = rows["cast"], rows["cast_is_last"]
    table["scale"], table["bias"] = 1.0 / (255.0 * rows["std"]), -rows["mean"] / rows["std"]
    if table.dtype != KERNEL_ROW:
        _write_finish(table, rows)
    table["fill"] = rows["fill"]
    reach = _reach(table, rows, linear, has_lens, moves)
    if bends:
        reach += np.abs(np.stack(displacements(table))).max(axis=0)
    _bound(table, rows, factor, centre, reach)
    return table


def _table_dtype(rows: Rows) -> np.dtype[np.void]:
    names = rows.dtype.names or ()
    if "steps" not in names:
        return KERNEL_ROW
    return row_dtype(rows["steps"].shape[1], rows["tables"].shape[1] if "tables" in names else 0)


def _write_finish(table: Rows, rows: Rows) -> None:
    """Fill in what follows a `KERNEL_ROW`; an image that takes more steps is rendered as levels first."""
    header, takes_more = table["header"], rows["num_steps"][:, None] > 0
    for name, neutral in (("scale", 1.0), ("bias", 0.0)):
        header[name] = np.where(takes_more, table[name], neutral)
        table[name] = np.where(takes_more, neutral, table[name])
    header["inverse_corner_r2"], header["num_steps"] = table["inverse_corner_r2"], rows["num_steps"]
    header["at_tables"] = AT_STEPS + table["steps"].shape[1] * STEP_BYTES
    table["steps"] = rows["steps"]
    if "tables" in (rows.dtype.names or ()):
        table["tables"] = rows["tables"]


def _move(
    table: Rows,
    rows: Rows,
    linear: npt.NDArray[np.float64],
    centre: npt.NDArray[np.float64],
    has_lens: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """(B, 2) `offset_x` and `offset_y` where something moves or projects before the lens.

    Rows that project are added to those that have a lens, for they use lens coordinates; what only moves without a lens
    is part of the offset.
    """
    offset, divisor = rows["before_offset"], rows["before_divisor"]
    is_projective = np.any(divisor[:, :2] != 0.0, axis=1)
    has_lens |= is_projective
    has_projection = has_lens & (is_projective | np.any(offset != 0.0, axis=1))
    table["has_projection"] = has_projection
    for column, name in enumerate(("before_x0", "before_y0")):
        table[name] = np.where(has_projection, offset[:, column], 0.0)
    for column, name in enumerate(("before_wx", "before_wy", "before_w0")):
        table[name] = np.where(has_projection, divisor[:, column], table[name])
    moved: npt.NDArray[np.float64] = centre + np.matmul(linear, offset[:, :, None])[:, :, 0]
    return np.where(has_lens[:, None], centre, moved)


def _reach(
    table: Rows, rows: Rows, linear: npt.NDArray[np.float64], has_lens: npt.NDArray[np.bool_], moves: bool
) -> npt.NDArray[np.float64]:
    """(B, 2): how far from `offset_x` and `offset_y` a tap can lie, in source pixels; never too little."""
    half = 0.5 * np.stack([rows["out_width"], rows["out_height"]], axis=1)
    reach = np.matmul(np.abs(np.matmul(linear, rows["before"])), half[:, :, None])[:, :, 0]
    if has_lens.any():
        extent = np.matmul(np.abs(rows["before"]), half[:, :, None])[:, :, 0]
        if moves:
            extent = moved_extent(rows, extent, half)
        lens = np.abs(rows["lens"])
        r2 = (extent**2).sum(axis=1)
        gain = 1.0 + r2 * (lens[:, 0] + r2 * (lens[:, 1] + r2 * lens[:, 2]))
        bent = extent * gain[:, None] + (3.0 * (lens[:, 3] + lens[:, 4]) * r2)[:, None]
        reach = np.where(has_lens[:, None], np.matmul(np.abs(linear), bent[:, :, None])[:, :, 0], reach)
    furthest: npt.NDArray[np.float64] = reach + np.stack([table["support_x"], table["support_y"]], axis=1) + 1.0
    return furthest


def _bound(
    table: Rows,
    rows: Rows,
    factor: npt.NDArray[np.float64],
    centre: npt.NDArray[np.float64],
    reach: npt.NDArray[np.float64],
) -> None:
    """Which pixels exist to the sampler, and whether any tap can lie outside them."""
    border, scale = rows["border"], factor[:, None]
    context = (border == BORDERS.index("context"))[:, None]
    last = np.ceil(np.stack([rows["width"], rows["height"]], axis=1) / scale) - 1.0
    crop, origin = rows["crop"] / scale, rows["origin"] / scale
    low = np.where(context, 0.0, np.floor(crop[:, :2] + ROUNDING_PX))
    high = np.where(context, last, np.ceil(crop[:, 2:] - ROUNDING_PX) - 1.0)
    low = np.clip(low, 0.0, last)
    high = np.clip(high, low, last) - origin
    low -= origin
    for axis, name in enumerate("xy"):
        table[f"origin_{name}"] = origin[:, axis]
        table[f"low_{name}"], table[f"high_{name}"] = low[:, axis], high[:, axis]
    inside = ((centre - reach >= low) & (centre + reach <= high)).all(axis=1)
    table["reflects"] = np.where(inside, 0, GOES_ON[border])
    fills = np.where(border == BORDERS.index("sharp"), SHARP, border == BORDERS.index("constant"))
    fills[border == BORDERS.index("meeting")] = MEETING
    table["is_constant"] = np.where(inside, 0, fills)
