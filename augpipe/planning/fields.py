"""Displacements that bend the frame: what they move, and what follows them."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.rows import GRID, SPLINE
from augpipe.gpu_ops.random.philox import checked_draws
from augpipe.ops.mixing import MixUp
from augpipe.planning.look_up import lens_points, points_of_pass
from augpipe.planning.record_passes import passes_of
from augpipe.recipes.recipe import Recipe

NOT_FOLLOWED = ("grid_shuffle",)
"""Ops that cut objects apart, which no target follows."""
BENDING = ("elastic_transform", "grid_distortion", "optical_distortion")
"""Ops that bend the frame more strongly than a lens."""
Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


TAPS = 4
"""Nodes along an axis that a point of a SPLINE draws on."""


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


def drawn_by(rows: Rows) -> frozenset[str]:
    """The kinds of ops that plan records of a view hold draws of, of ops within ops, too."""
    return _kinds(rows.dtype["drawn"])


@lru_cache
def _kinds(drawn: np.dtype[np.void]) -> frozenset[str]:
    names = frozenset(name.rstrip("0123456789").removesuffix("_") for name in drawn.names or ())
    return names.union(*(_kinds(drawn[name]) for name in drawn.names or ()))


def refuse_targets(recipe: Recipe) -> None:
    """Raise a ValueError if a recipe changes images in a way that targets do not follow."""
    if found := _found(recipe, NOT_FOLLOWED):
        raise ValueError(f"masks, boxes and points do not follow {found[0]}. Leave it out, or the targets.")


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
