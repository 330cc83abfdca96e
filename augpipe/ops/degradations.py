"""What storing or sending an image takes from it, done to the rendered view."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from augpipe.gpu_ops.image.program_rows import COARSEN, JPEG
from augpipe.ops.draws import Applied, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range
from augpipe.validation.models import told

__all__ = ["Downscale", "JpegCompression"]

Quality = Annotated[int, Field(ge=1, le=100)]


class Downscale(Op):
    """Scale the view down and up again by nearest pixels, as albumentations' Downscale does by default."""

    op: Literal["downscale"] = "downscale"
    scale: Annotated[Range, Within(0.01, 1.0, ", and 1 changes nothing. Choose a range within it.")] = (0.25, 0.75)
    """Smallest and largest part of the height and the width that is kept in between."""
    p: Probability = 0.5
    """How often the view is made coarse."""

    draws = (Number("scale", neutral=1.0),)
    is_within_output = True
    formula = "the pixel at floor(floor(x scale) / scale), along y alike"
    inspect_text = "{scale[0]:g} to {scale[1]:g} of the sides in between"
    caption_text = "downscale {scale:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        scale = drawn["scale"]
        smaller = [np.maximum(np.rint(sides * scale), 1.0) for sides in frame.final_sides]
        frame.look_at_image(COARSEN, np.stack([*smaller, 1.0 / scale], axis=1), self.changes(drawn))


class JpegCompression(Op):
    """Show the view as a JPEG file of some quality would: written and read again by libjpeg, its chroma halved (4:2:0).

    The levels are those of Pillow, OpenCV, torchvision and albumentations, bit by bit.
    """

    op: Literal["jpeg_compression"] = "jpeg_compression"
    quality: Annotated[
        tuple[Quality, Quality], told("must be two whole qualities in 1..100: {name}=[smallest, largest]")
    ] = (50, 95)
    """Smallest and largest quality, as libjpeg counts it; each whole number between is as likely."""
    blue_first: bool = False
    """Whether red is compressed as blue, and blue as red: what OpenCV does to RGB, and so albumentations."""
    p: Probability = 0.5
    """How often the view is compressed."""

    draws = (Number("quality", np.int8, step=1.0, neutral=None), Applied())
    formula = "what libjpeg reads of what it has written, 4:2:0"
    inspect_text = "a JPEG of quality {quality[0]} to {quality[1]}"
    caption_text = "JPEG {quality}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        swapped = np.broadcast_to(np.eye(4)[[2, 1, 0]], (frame.num, 3, 4))
        if self.blue_first:
            frame.combine_channels(swapped, drawn["applied"])
        frame.look_at_image(JPEG, drawn["quality"][:, None].astype(np.float64), drawn["applied"])
        if self.blue_first:
            frame.combine_channels(swapped, drawn["applied"])
