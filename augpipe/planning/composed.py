"""What a pass looks up and the steps behind it, from its frame to plan records: the form that the kernel evaluates."""

import numpy as np
import numpy.typing as npt

from augpipe.ops.colour_program import num_tables, write_program
from augpipe.ops.frame import Frame
from augpipe.planning.fields import write_fields
from augpipe.planning.plan_record import BORDERS, MAX_DCT_FACTOR
from augpipe.planning.projection import slope_at_centre
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.view import View

Rows = npt.NDArray[np.void]

WIDEST_FILTER = 2
"""Half-widths of the filter where the frame is moved under a lens: this times the image's longer side at most."""


def write_look(rows: Rows, frame: Frame, recipe: Recipe, view: View, *, stands_alone: bool = False) -> None:
    """Fill in what a pass looks up, and the steps behind it; one that stands alone has a group with an `own_look`."""
    border, fill = recipe.beyond_of(view)
    rows["border"], rows["fill"] = BORDERS.index(border), fill
    if border == "constant":
        is_sharp = frame.is_edge_sharp | frame.is_edge_kept | frame.snaps | stands_alone
        rows["border"][is_sharp] = BORDERS.index("sharp")
    _compose(rows, frame)
    if recipe.interpolation == "nearest" or not recipe.antialias or stands_alone:
        rows["support"] = 1.0


def _compose(rows: Rows, frame: Frame) -> None:
    """Bring the frame's maps into the form that the kernel evaluates."""
    rows["height"], rows["width"] = frame.heights, frame.widths
    rows["out_height"], rows["out_width"] = frame.out_heights, frame.out_widths
    for edge, seen in enumerate(frame.seen):
        rows["crop"][:, edge] = seen
    corner = 0.5 * np.hypot(*(frame.lens_sizes or (frame.out_heights, frame.out_widths)))
    scale = np.stack([frame.crop_width / frame.kept_widths, frame.crop_height / frame.kept_heights], axis=1)
    after_map, before_map = frame.maps
    linear = scale[:, :, None] * after_map[:, :2, :2]
    corner_px = np.stack([frame.crop_x, frame.crop_y], axis=1)
    centre = corner_px + 0.5 * np.stack([frame.crop_width, frame.crop_height], axis=1)
    origin = np.floor(centre / MAX_DCT_FACTOR) * MAX_DCT_FACTOR
    rows["origin"] = origin
    after = rows["after"]
    after[:, :, :2] = linear * corner[:, None, None]
    after[:, :, 2] = centre - origin
    if after_map.shape[1] == 3:
        after[:, :, 2] += scale * after_map[:, :2, 2]
    rows["lens"] = frame.lens
    rows["before_divisor"][:, 2] = 1.0
    if before_map is None:
        rows["before"][:, 0, 0] = rows["before"][:, 1, 1] = 1.0 / corner
    else:
        rows["before"] = before_map[:, :2, :2] / corner[:, None, None]
        if before_map.shape[1] == 2:
            linear = linear if frame.snaps else np.matmul(linear, before_map)
        else:
            rows["before_offset"], rows["before_divisor"] = before_map[:, :2, 2] / corner[:, None], before_map[:, 2]
            if not frame.snaps:
                linear = np.matmul(after[:, :, :2], slope_at_centre(rows))
    covered = np.hypot(linear[:, :, 0], linear[:, :, 1])
    if before_map is not None and before_map.shape[1] == 3:
        # far beyond the corner a lens grows without bound
        covered = np.minimum(covered, WIDEST_FILTER * np.maximum(frame.heights, frame.widths)[:, None])
    # a scale within rounding of 1 is 1: a third tap of weight 1e-12 would be read for nothing
    rows["support"] = np.where(covered < 1.0 + 1e-6, 1.0, covered)
    if frame.blur_variance is not None:
        # a triangle of half-width s has the variance s^2 / 6
        rows["blur"] = np.sqrt(6.0 * frame.blur_variance)[:, None] * covered
    if frame.bends is not None:
        write_fields(rows, frame, scale[:, :, None] * after_map[:, :2, :2], corner)
    rows["vignette"] = frame.vignette
    rows["cast"], rows["cast_is_last"] = frame.cast, frame.cast_is_last
    rows["mean"], rows["std"] = frame.mean, frame.std
    if frame.steps:
        tables = rows["tables"] if num_tables(frame.steps) else None
        rows["num_steps"] = write_program(frame.steps, rows["steps"], tables)
