"""What shows four or nine samples in one image: Mosaic."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import field_validator

from augpipe.gpu_ops.image.program_rows import FIRST_LOOK
from augpipe.gpu_ops.random.philox import seed_key
from augpipe.ops.draws import Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Fill, Op, Probability, Range, Size, pair
from augpipe.ops.random_words import RandomWords, Stream, check_steps
from augpipe.validation.models import Checked

__all__ = ["Mosaic"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

CENTRES = Within(0.1, 0.9)

NUM_TRIED = 64
"""Draws of an op that are looked at, and the side in pixels of the images that they are for."""


class Mosaic(Checked):
    """Four or nine images around a drawn centre, before all ops (YOLOv4, Bochkovskiy et al. 2020; as in Ultralytics).

    Each image is scaled to fit into `size`, and lies in a canvas of twice that size. Of four, each touches the centre
    with one corner: the sample's own image lies above and left of it. Of nine, the sample's own image lies in the
    middle, and the others around it: from the one above, which begins at its left edge, clockwise to the one above and
    left of it, each along an edge of the own one or next to the one before. They leave gaps where images differ in
    shape, and never overlap.

    The ops of the recipe act on the canvas, so a crop must follow; where they look beyond the canvas, they see more of
    an image that reaches there. Images without a mosaic lie in a canvas of `size` as in a Letterbox.
    """

    size: Size = 640
    """What each image is scaled to fit into: height and width, in pixels; one number for a square."""
    num_images: Literal[4, 9] = 4
    """How many images it shows; Ultralytics' `n`."""
    centre: Annotated[Range, CENTRES] = (0.25, 0.75)
    """Where four images meet, or the middle of the `size` that the own one of nine lies in, to its upper left, in parts
    of the canvas's height and width. YOLOv5 draws from the default; Ultralytics' nine stay at (0.5, 0.5)."""
    fill: Fill = (114.0, 114.0, 114.0)
    """R, G, B of what no image covers, in 0..255, or one number for all; YOLO's gray by default."""
    p: Probability = 1.0
    """How often an image is one of a mosaic."""

    noun: ClassVar[str] = "a mosaic"

    @field_validator("centre")
    @classmethod
    def _lies_within(cls, centre: tuple[float, float]) -> tuple[float, float]:
        check_steps("centre", *centre, None)
        if not CENTRES.holds(centre):
            raise ValueError(f"centre={centre} {CENTRES.text}")
        return centre

    @property
    def canvases(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Height and width of the canvas without and with a mosaic."""
        height, width = pair(self.size)
        return (height, width), (2 * height, 2 * width)

    def places(self, applied: Bool, centres: Int, cells: Int, owners: Int, sizes: Int) -> Int:
        """(n, 4) left, top, right and bottom of images in their canvases, in pixels of these.

        Args:
            applied: (n,) whether it is one of a mosaic, whose other images are there, too.
            centres: (n, 2) x and y of what `centre` says, in pixels of the canvas.
            cells: (n,) which of them it is. Of four, 0 and 1 lie above, 0 and 2 left of the centre; of nine, 0 lies in
                the middle, 1 above, and the others clockwise around it.
            owners: (n,) numbers, the same for all images of a mosaic.
            sizes: (n, 2) height and width of the images, in pixels.
        """
        (height, width), _ = self.canvases
        factors = np.minimum(height / sizes[:, 0], width / sizes[:, 1])
        heights, widths = np.maximum(np.rint(sizes.T * factors), 1.0).astype(np.int64)
        scaled = np.stack([widths, heights], axis=1)
        within = (np.array([width, height]) - scaled) // 2
        if self.num_images == 4:
            is_before = np.stack([cells % 2 == 0, cells < 2], axis=1)
            corners = centres - np.where(is_before, scaled, 0)
        else:
            corners = centres - np.array([width, height]) // 2 + _around(cells, owners, scaled)
        corners = np.where(applied[:, None], corners, within)
        return np.concatenate([corners, corners + scaled], axis=1)

    def place(self, frame: Frame, applied: Bool, places: Int) -> None:
        """Place each image of a frame, on which no op has acted, in its canvas.

        Args:
            frame: the frame.
            applied: (n,) whether it is one of a mosaic.
            places: (n, 4), see `places`.
        """
        (height, width), _ = self.canvases
        left, top, right, bottom = places.astype(np.int64).T
        canvas_heights, canvas_widths = (np.where(applied, 2 * side, side) for side in (height, width))
        nothing = np.zeros(frame.num)
        frame.crop(nothing, nothing, frame.out_widths, frame.out_heights, bottom - top, right - left)
        frame.pad(-left, -top, canvas_widths, canvas_heights)
        frame.is_edge_kept = np.ones(frame.num, np.bool_)  # images that meet do not mix


def _around(cells: Int, owners: Int, scaled: Int) -> Int:
    """(n, 2) x and y of the upper left corners of images of nine, from that of the own one; of (n, 2) scaled width and
    height.

    Four pairs of images go around the own one: the first of each pair begins at a corner of the own one and lies along
    its edge, and the second one lies next to the first.
    """
    _, which = np.unique(owners, return_inverse=True)
    sides = np.zeros((which.max(initial=0) + 1, 9, 2), np.int64)
    sides[which, cells] = scaled
    of_own = sides[which, 0]
    first = np.where((cells % 2 == 0)[:, None], sides[which, np.maximum(cells - 1, 0)], 0)
    (wide, high), (right, below) = scaled.T, of_own.T
    x = [0 * wide, first[:, 0], right, right - wide - first[:, 0], -wide]
    y = [0 * high, -high, first[:, 1], below, below - high - first[:, 1]]
    pair = (cells + 1) // 2
    return np.stack([np.choose(pair, x), np.choose(pair, y)], axis=1)


def refused(ops: Sequence[Op]) -> str | None:
    """Why a mosaic does not go with the first op that makes a pixel of several, as each image of it is rendered by
    itself and would not see the others, or that moves pixels one by one."""
    for op in (inner for one in ops for inner in one.flat if not inner.is_crop):
        always = op.model_copy(update={"p": 1.0}) if "p" in op.field_names() else op
        sides = np.full(NUM_TRIED, NUM_TRIED)
        frame = Frame(sides, sides)
        stream = Stream(seed_key(0), 0, np.arange(NUM_TRIED, dtype=np.uint32), op.op)
        always.apply(frame, always.draw(RandomWords(stream.words(max(op.num_words, 1)), stream, 0), frame))
        if frame.blur_variance is not None or any((step.kinds >= FIRST_LOOK).any() for step in frame.steps):
            return (
                f"{op.op} looks at a pixel's neighbours or at the whole image, and the images of a mosaic are rendered "
                f"one by one. Leave {op.op} out, or the mosaic."
            )
        if frame.bends is not None:
            return (
                f"{op.op} moves pixels one by one, and where the images of a mosaic meet is known of affine maps, "
                f"perspectives and lenses only. Leave {op.op} out, or the mosaic."
            )
    return None
