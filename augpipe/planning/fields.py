"""Displacements that bend the frame: from what ops asked for to plan records, and from these to kernel rows."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.rows import GRID, NUM_NODES, SNAP, SPLINE
from augpipe.gpu_ops.jit import leaf
from augpipe.gpu_ops.random.philox import checked_draws
from augpipe.gpu_ops.records import product
from augpipe.ops.mixing import MixUp
from augpipe.planning.look_up import lens_points, points_of_pass
from augpipe.planning.record_passes import passes_of
from augpipe.recipes.recipe import Recipe

NOT_FOLLOWED = ("grid_shuffle",)
"""Ops that cut objects apart, which no target follows."""
ON_THE_CPU = ("elastic_transform", "grid_distortion", "optical_distortion")
"""Ops that targets follow where images are made on the CPU."""
Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

FIELD = np.dtype(
    [
        # of `gpu_ops.image.rows`; 0 where nothing bends
        ("kind", np.int8),
        # a displacement -> source pixels
        ("matrix", np.float64, (2, 2)),
        # where in it, in nodes along x and y, lens coordinates (GRID, SNAP) lie, or pixels from the output's centre
        ("scale", np.float64, (2,)),
        ("origin", np.float64, (2,)),
        # GRID: cells along an axis, and the displacements at their ends
        ("cells", np.int8),
        ("nodes", np.float64, (2, NUM_NODES)),
        # SPLINE: what its nodes are made of; GRID: width and height of cells of whole pixels, 0 for joined ones
        ("key", np.uint32, (2,)),
    ]
)
"""A plan record's `field`."""

TAPS = 4
"""Nodes along an axis that a point of a SPLINE draws on."""
MOST_NODES_PER_PX = 1.0
"""A field that is finer than the output is looked at this often: more would not be seen."""


@leaf
def write_field(field, bend, linear, corner, slope, half_sides):  # type: ignore[no-untyped-def]
    """Fill in a record's `FIELD`.

    Args:
        field: the record.
        bend: what bends, of `ops.frame.BEND`.
        linear: xx, xy, yx and yy from the frame that bends to source pixels.
        corner: the distance of its corner, in its pixels.
        slope: `projection.slope_at_centre`.
        half_sides: half of the output's width and height, in pixels.
    """
    xx, xy, yx, yy = linear
    slope_xx, slope_xy, slope_yx, slope_yy = slope
    matrix, target = bend.matrix, field.matrix
    for column in range(2):
        target[0, column] = product(xx, xy, matrix[0, column], matrix[1, column])
        target[1, column] = product(yx, yy, matrix[0, column], matrix[1, column])
    field.kind, field.cells = bend.kind, bend.cells
    covered_x = np.sqrt(slope_xx * slope_xx + slope_yx * slope_yx) * corner
    covered_y = np.sqrt(slope_xy * slope_xy + slope_yy * slope_yy) * corner
    for axis in range(2):
        for node in range(NUM_NODES):
            field.nodes[axis, node] = bend.nodes[axis, node]
        key, side = bend.key[axis], bend.sides[axis]
        field.key[axis] = key
        if bend.kind == SPLINE:  # alike in all places and directions, so it may lie over the output
            covered, half = covered_x if axis == 0 else covered_y, half_sides[axis]
            fine = min(covered / bend.spacing[0], MOST_NODES_PER_PX)
            field.scale[axis], field.origin[axis] = fine, 1.0 + bend.phase[axis] + fine * half
        else:  # over the frame that it bends, in lens coordinates
            cells = float(bend.cells)
            if bend.kind == SNAP:
                cells = side
            elif bend.kind == GRID and key > 0:
                cells = side / key
            field.scale[axis] = cells * corner / side if bend.kind != 0 else 0.0
            field.origin[axis] = 0.5 * cells


@leaf
def write_field_row(row, field, factor):  # type: ignore[no-untyped-def]
    """Fill in what a kernel row says of a record's `FIELD`, for an image decoded at 1/`factor` of its size."""
    row.field, row.field_cells, matrix = field.kind, field.cells, field.matrix
    for axis in range(2):
        for node in range(NUM_NODES):
            row.field_nodes[axis, node] = field.nodes[axis, node]
        row.field_key[axis] = field.key[axis]
    row.field_xx, row.field_xy = matrix[0, 0] / factor, matrix[0, 1] / factor
    row.field_yx, row.field_yy = matrix[1, 0] / factor, matrix[1, 1] / factor
    row.field_scale_x, row.field_scale_y = field.scale[0], field.scale[1]
    row.field_x0, row.field_y0 = field.origin[0], field.origin[1]


@leaf
def displacement(row):  # type: ignore[no-untyped-def]
    """Least and largest displacement along x, and along y, of a kernel row, in source pixels; never too little.

    Lines between nodes do not leave their range; a B-spline's weights are none below 0 and add up to 1; a pixel's
    centre is half a pixel from its edges.
    """
    most_of_kind = 1.0 if row.field == SPLINE else 0.5 if row.field == SNAP else 0.0
    least_x, most_x = -most_of_kind, most_of_kind
    least_y, most_y = -most_of_kind, most_of_kind
    # cells that end a pixel further
    further_x = 1.0 if row.field == GRID and row.field_key[0] > 0 else 0.0
    further_y = 1.0 if row.field == GRID and row.field_key[1] > 0 else 0.0
    for node in range(NUM_NODES):
        x, y = float(row.field_nodes[0, node]), float(row.field_nodes[1, node])
        least_x, most_x = min(least_x, x), max(most_x, x + further_x)
        least_y, most_y = min(least_y, y), max(most_y, y + further_y)
    xx, xy, yx, yy = row.field_xx, row.field_xy, row.field_yx, row.field_yy
    return (
        min(xx * least_x, xx * most_x) + min(xy * least_y, xy * most_y),
        max(xx * least_x, xx * most_x) + max(xy * least_y, xy * most_y),
        min(yx * least_x, yx * most_x) + min(yy * least_y, yy * most_y),
        max(yx * least_x, yx * most_x) + max(yy * least_y, yy * most_y),
    )


def bent_points(rows: Rows, points: Float, item: Int) -> Float:
    """(N, 2) points of the image that output points show, through lenses and fields of all passes.

    Its arguments are those of `points_of_pass`.
    """
    for own in reversed(passes_of(rows)):
        points = bent_points_of_pass(own, points, item)
    return points


def bent_points_of_pass(rows: Rows, points: Float, item: Int) -> Float:
    """What `bent_points` gives of one pass."""
    found = points_of_pass(rows, points, item)
    if "field" in (rows.dtype.names or ()):
        centred = points - 0.5 * np.stack([rows["out_width"], rows["out_height"]], axis=1)[item]
        found += displaced(rows, lens_points(rows, points, item), centred, item)
    return found


def displaced(rows: Rows, at_lens: Float, centred: Float, item: Int) -> Float:
    """(N, 2) how far fields move what points of outputs show, in source pixels; in the numbers of float64.

    Args:
        rows: (B,) plan records.
        at_lens: (N, 2) the points in lens coordinates, not bent.
        centred: (N, 2) the same in pixels from the outputs' centres.
        item: (N,) whose record each belongs to.
    """
    moved: Float = np.zeros((len(item), 2))
    is_somewhere = np.isfinite(at_lens).all(axis=1) & np.isfinite(centred).all(axis=1)
    for row in np.unique(item[rows["field"]["kind"][item] != 0]):
        field, chosen = rows["field"][row], np.flatnonzero((item == row) & is_somewhere)
        if field["kind"] == GRID:
            along = field["scale"] * at_lens[chosen] + field["origin"]
            moved[chosen] = _by_grid(along, field) @ field["matrix"].T
        elif field["kind"] == SPLINE:
            half = 0.5 * np.array([rows["out_width"][row], rows["out_height"][row]])
            along = field["scale"] * np.clip(centred[chosen], -half, half) + field["origin"]
            moved[chosen] = _by_spline(along, field["key"]) @ field["matrix"].T
    return moved


def _by_grid(along: Float, field: np.void) -> Float:
    """(N, 2) displacements of a grid at (N, 2) places counted in cells, which may be of `key` whole pixels."""
    cell = np.clip(along.astype(np.int64), 0, field["cells"] - 1)
    part, num_px = np.clip(along, 0.0, field["cells"]) - cell, field["key"].astype(np.float64)
    is_whole = num_px > 1.0
    inner = np.where(is_whole, num_px - 1.0, 1.0)
    part = np.where(is_whole, np.clip((part * num_px - 0.5) / inner, 0.0, 1.0), part)
    left, right = (np.stack([field["nodes"][axis, cell[:, axis] + end] for axis in (0, 1)], axis=1) for end in (0, 1))
    found: Float = left + part * (right + is_whole - left)
    return found


def _by_spline(along: Float, key: npt.NDArray[np.uint32]) -> Float:
    """(N, 2) displacements of a random field at (N, 2) places counted in nodes, as `gpu_ops.image.field` has them."""
    first = np.floor(along).astype(np.int64) - 1
    if not len(first):
        return np.zeros_like(along)
    least, num = first.min(axis=0), np.ptp(first, axis=0) + TAPS
    lines = np.arange(least[1], least[1] + num[1]).astype(np.uint32)
    num_words = 2 * (int(least[0] + num[0]) + 1) // 4 * 4 + 4
    words = checked_draws(key, 0, np.zeros_like(lines), lines, num_words)
    nodes = ((words & 0xFFFF) + (words >> 16)).reshape(len(lines), -1, 2) / 65535.0 - 1.0
    moved: Float = np.zeros_like(along)
    for down in range(TAPS):
        for right in range(TAPS):
            distance = np.abs(along - (first + np.array([right, down])))
            weight = (np.maximum(2.0 - distance, 0.0) ** 3 - 4.0 * np.maximum(1.0 - distance, 0.0) ** 3).prod(axis=1)
            moved += nodes[first[:, 1] + down - least[1], first[:, 0] + right] * (weight / 36.0)[:, None]
    return moved


def drawn_by(rows: Rows) -> set[str]:
    """The kinds of ops that plan records of a view hold draws of, of ops within ops, too."""
    return _kinds(rows.dtype["drawn"])


def _kinds(drawn: np.dtype[np.void]) -> set[str]:
    names = {name.rstrip("0123456789").removesuffix("_") for name in drawn.names or ()}
    return names.union(*(_kinds(drawn[name]) for name in drawn.names or ()))


def refuse_targets(recipe: Recipe, *, is_on_cuda: bool = False) -> None:
    """Raise a ValueError if a recipe changes images in a way that targets do not follow."""
    if found := _found(recipe, NOT_FOLLOWED):
        raise ValueError(f"masks, boxes and points do not follow {found[0]}. Leave it out, or the targets.")
    if is_on_cuda and (found := _found(recipe, ON_THE_CPU)):
        raise ValueError(
            f'masks, boxes and points do not follow {found[0]} on CUDA devices. Choose device="cpu", leave it out, or '
            "the targets."
        )


def refuse_shuffles(recipe: Recipe) -> None:
    """Raise a ValueError if a recipe cuts images into cells that change places: no look-up says where these went."""
    if _found(recipe, NOT_FOLLOWED):
        raise ValueError("to_source does not follow grid_shuffle. Leave it out.")


def not_followed(recipe: Recipe, *, has_label_maps: bool) -> list[str]:
    """The ops of a recipe that targets do not follow: those of `NOT_FOLLOWED`, and what mixes label maps."""
    return [*_found(recipe, NOT_FOLLOWED), *(label_maps_mixed_by(recipe) if has_label_maps else [])]


def label_maps_mixed_by(recipe: Recipe) -> list[str]:
    """What shows two images in one pixel, which has no one label then."""
    return [mix.op for mix in recipe.mixing if isinstance(mix, MixUp)]


def _found(recipe: Recipe, names: Sequence[str]) -> list[str]:
    """Those of the named kinds of ops that a recipe holds."""
    flat = [inner for view in recipe.all_views for op in view.ops for inner in op.flat]
    return list(dict.fromkeys(op.op for op in flat if op.op in names))
