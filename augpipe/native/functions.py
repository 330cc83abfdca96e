"""The functions of `ops.Custom`: what each is called with, and on which image, between two passes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from augpipe.ops.custom import Custom
from augpipe.planning.plan import Plan

Rows = npt.NDArray[np.void]


@dataclass(frozen=True, kw_only=True)
class Functions:
    """Those of a view, for the images of a plan."""

    of_passes: tuple[tuple[tuple[str, Custom], ...], ...]
    """For each pass those that are called on what it looks at, by name."""
    rows: Rows
    """(B,) plan records."""
    name_of: Callable[[int], str]
    """The name of an image, by its place in the plan."""
    first: int = 0
    """The place of the image that is rendered first."""

    @classmethod
    def of(cls, plan: Plan, view: int, name_of: Callable[[int], str]) -> Self | None:
        """Those of a plan's view; None where it has none."""
        of_passes = plan.recipe.functions[view]
        if not any(of_passes):
            return None
        return cls(of_passes=of_passes, rows=plan.views[view], name_of=name_of)

    def starting_at(self, first: int) -> Self:
        """The same where the image at place `first` is rendered first."""
        return replace(self, first=first)

    def call(self, nth_pass: int, nth_image: int, packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8] | None:
        """(H, W, 3) that the functions of a pass make of an image, (H, W, 4) RGBX; None where none is called.

        Raises:
            ValueError: a function gave back something else than an image of the same shape.
            RuntimeError: a function raised.
        """
        place = self.first + nth_image
        row = self.rows[place]
        drawn = [(op, row["drawn"][key]) for key, op in self.of_passes[nth_pass]]
        drawn = [(op, own) for op, own in drawn if own["applied"]]
        if not drawn:
            return None
        image: npt.NDArray[np.uint8] = np.empty((*packed.shape[:2], 3), np.uint8)
        for channel in range(3):  # several times as fast as all three at once
            image[:, :, channel] = packed[:, :, channel]
        where = f"{self.name_of(place)} (sample {row['sample_id']}, epoch {row['epoch']})"
        for op, own in drawn:
            image = op.called(image, own, where)
        return image
