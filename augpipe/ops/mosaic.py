"""What shows four samples in one image: Mosaic."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.program_rows import FIRST_LOOK
from augpipe.gpu_ops.random.philox import seed_key
from augpipe.ops.draws import Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Fill, Op, Probability, Range, Size, pair
from augpipe.ops.random_words import RandomWords, Stream
from augpipe.validation.models import Checked

__all__ = ["Mosaic"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

NUM_CELLS = 4
NUM_TRIED = 64
"""Draws of an op that are looked at, and the side in pixels of the images that they are for."""


class Mosaic(Checked):
    """Four images around a drawn centre, before all ops (YOLOv4, Bochkovskiy et al. 2020; as in Ultralytics).

    Each image is scaled to fit into `size`, and touches the centre of a canvas of twice that size with one corner: the
    sample's own image lies above and left of it. The ops of the recipe act on the canvas, so a crop must follow; where
    they look beyond the canvas, they see more of an image that reaches there. Images without a mosaic lie in a canvas
    of `size` as in a Letterbox.
    """

    size: Size = 640
    """What each image is scaled to fit into: height and width, in pixels; one number for a square."""
    centre: Annotated[Range, Within(0.1, 0.9)] = (0.25, 0.75)
    """Where the four images meet, in parts of the canvas's height and width."""
    fill: Fill = (114.0, 114.0, 114.0)
    """R, G, B of what no image covers, in 0..255, or one number for all; YOLO's gray by default."""
    p: Probability = 1.0
    """How often an image is one of a mosaic."""

    noun: ClassVar[str] = "a mosaic"

    @property
    def canvases(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Height and width of the canvas without and with a mosaic."""
        height, width = pair(self.size)
        return (height, width), (2 * height, 2 * width)

    def place(self, frame: Frame, applied: npt.NDArray[np.bool_], centres: Int, cells: Int) -> None:
        """Place each image of a frame in its canvas.

        Args:
            frame: on which no op has acted.
            applied: (n,) whether it is one of a mosaic.
            centres: (n, 2) x and y where the images of a mosaic meet, in pixels of the canvas.
            cells: (n,) which of them it is: 0 and 1 above, 0 and 2 left of the centre.
        """
        (height, width), _ = self.canvases
        factors = np.minimum(height / frame.out_heights, width / frame.out_widths)
        sides = frame.out_heights, frame.out_widths
        heights, widths = (np.maximum(np.rint(side * factors), 1.0).astype(np.int64) for side in sides)
        x = np.where(applied, centres[:, 0] - np.where(cells % 2 == 0, widths, 0), (width - widths) // 2)
        y = np.where(applied, centres[:, 1] - np.where(cells < 2, heights, 0), (height - heights) // 2)
        canvas_heights, canvas_widths = (np.where(applied, 2 * side, side) for side in (height, width))
        nothing = np.zeros(frame.num)
        frame.crop(nothing, nothing, sides[1], sides[0], heights, widths)
        frame.pad(-x, -y, canvas_widths, canvas_heights)
        frame.is_edge_kept = np.ones(frame.num, np.bool_)  # images that meet do not mix


def looks_around(ops: Sequence[Op]) -> str | None:
    """The first op that makes a pixel of several: each image of a mosaic is rendered by itself, and it would not see
    the others."""
    for op in (inner for one in ops for inner in one.flat if not inner.is_crop):
        always = op.model_copy(update={"p": 1.0}) if "p" in op.field_names() else op
        sides = np.full(NUM_TRIED, NUM_TRIED)
        frame = Frame(sides, sides)
        stream = Stream(seed_key(0), 0, np.arange(NUM_TRIED, dtype=np.uint32), op.op)
        always.apply(frame, always.draw(RandomWords(stream.words(max(op.num_words, 1)), stream, 0), frame))
        if frame.blur_variance is not None or frame.bends is not None:
            return op.op
        if any((step.kinds >= FIRST_LOOK).any() for step in frame.steps):
            return op.op
    return None
