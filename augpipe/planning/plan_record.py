"""The record that a plan holds for each sample and view: everything that the kernel needs, and what was drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from augpipe.gpu_ops.image.plan_records import FIELD, PLAN_FIELDS
from augpipe.ops.colour_program import program_fields
from augpipe.ops.frame import Frame
from augpipe.ops.mosaic import Mosaic
from augpipe.planning.mixing_draws import MIXED
from augpipe.planning.mosaic_draws import placed_dtype
from augpipe.planning.record_passes import EARLIER, earlier_dtype
from augpipe.recipes.view import View


def plan_dtype(
    view: View, frames: Sequence[Frame], mixes: bool = False, mosaic: Mosaic | None = None
) -> np.dtype[np.void]:
    """The record of a recipe's view: PLAN_FIELDS, what bends it, what its ops draw, and its colours' program; of a view
    of several passes, each with its frame, those of the last one and, as `earlier`, of the others."""
    mixing = [("mixing", MIXED)] if mixes else []
    placed = [] if mosaic is None else [("mosaic", placed_dtype(mosaic))]
    *before, last = frames
    drawn = ("drawn", view.drawn_dtype)
    earlier = [(EARLIER, earlier_dtype([np.dtype(_of_frame(frame)) for frame in before]))] if before else []
    return np.dtype([*_of_frame(last, drawn), *mixing, *placed, *earlier])


def _of_frame(frame: Frame, *drawn: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    bends = [("field", FIELD)] if frame.bends is not None else []
    return [*PLAN_FIELDS, *bends, *drawn, *program_fields(frame.steps)]
