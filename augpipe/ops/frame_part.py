"""Some images of a frame, for an op that is applied to these alone, or for crops that only these take."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import affine
from augpipe.ops.frame import Frame, Int

OF_CROPS = (
    *("out_heights", "out_widths", "kept_heights", "kept_widths", "mirrored", "crop_x", "crop_y", "crop_width"),
    *("crop_height", "is_unpadded", "is_edge_sharp", "is_edge_kept", "after_lens", "before_lens", "blur_variance"),
)
"""What crops look at and change, an entry an image."""


class _OwnRows:
    """An attribute of a frame of which a part has its own rows, and changes them there."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, part: "PartOfFrame", owner: type) -> Any:
        values = getattr(part.whole, self.name)
        return None if values is None else values[part.rows]

    def __set__(self, part: "PartOfFrame", values: Any) -> None:
        current = getattr(part.whole, self.name)
        if current is None:
            current = affine.identity(part.whole.num) if values.ndim == 3 else np.zeros(part.whole.num, values.dtype)
        if values.ndim == 3 and current.shape[1:] != values.shape[1:]:
            current, values = affine.homogeneous(current), affine.homogeneous(values)
        current[part.rows] = values
        setattr(part.whole, self.name, current)


class _Shared:
    """An attribute of a frame that its parts have, too."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, part: "PartOfFrame", owner: type) -> Any:
        return getattr(part.whole, self.name)

    def __set__(self, part: "PartOfFrame", value: Any) -> None:
        setattr(part.whole, self.name, value)


class PartOfFrame(Frame):
    """Some images of a frame: what an op does to the part is done to these images of the whole.

    Its `steps` are its own, an entry an image of the part.
    """

    heights: Any = _OwnRows()
    widths: Any = _OwnRows()
    out_heights: Any = _OwnRows()
    out_widths: Any = _OwnRows()
    after_lens: Any = _OwnRows()
    before_lens: Any = _OwnRows()
    lens: Any = _OwnRows()
    bends: Any = _OwnRows()
    mirrored: Any = _OwnRows()
    blur_variance: Any = _OwnRows()
    cast: Any = _OwnRows()
    vignette: Any = _OwnRows()
    crops: Any = _Shared()
    is_mapped: Any = _Shared()
    is_projective: Any = _Shared()
    has_cast: Any = _Shared()
    cast_is_last: Any = _Shared()
    has_vignette: Any = _Shared()

    def split(self) -> None:
        self.whole.split()

    def __init__(self, whole: Frame, rows: npt.NDArray[np.int64]) -> None:
        # not the frame's own: every attribute is the whole's, and one that is not named above is missed
        self.num = len(rows)
        self.rows = rows
        self.whole = whole
        self.steps = []


def cropped_apart(frame: Frame, rows: Int) -> Frame:
    """A frame of some of its images, for crops that act on these alone; `take_back` joins them."""
    made = Frame(frame.heights[rows], frame.widths[rows])
    for name in OF_CROPS:
        values = getattr(frame, name)
        setattr(made, name, None if values is None else values[rows])
    made.is_mapped, made.is_cropped, made.is_projective = frame.is_mapped, frame.is_cropped, frame.is_projective
    if frame.padded is not None:
        left, top, right, bottom = frame.padded
        made.padded = left[rows], top[rows], right[rows], bottom[rows]
    made.lens_sizes = frame.lens_sizes and (frame.lens_sizes[0][rows], frame.lens_sizes[1][rows])
    return made


def take_back(frame: Frame, parts: Sequence[Frame], order: Int) -> None:
    """Have a frame be as its parts, of which `order` says where each image is, part after part."""

    def joined(values: Iterable[Any]) -> Any:
        listed = list(values)
        if len({value.shape[1:] for value in listed}) > 1:  # maps, of which some move
            listed = [affine.homogeneous(value) for value in listed]
        return np.concatenate(listed)[order]

    if any(part.padded is not None for part in parts):
        unpadded = [
            np.full(part.num, part.padded is None) if part.is_unpadded is None else part.is_unpadded for part in parts
        ]
        left, top, right, bottom = map(joined, zip(*(part.padded or part.seen for part in parts), strict=True))
        frame.padded = left, top, right, bottom
        frame.is_unpadded = joined(unpadded) if np.concatenate(unpadded).any() else None
    if any(part.lens_sizes is not None for part in parts) and frame.lens_sizes is None:
        frame.lens_sizes = frame.out_heights, frame.out_widths
    for name in OF_CROPS:
        if name != "is_unpadded" and getattr(frame, name) is not None:
            setattr(frame, name, joined(getattr(part, name) for part in parts))
    frame.is_mapped, frame.is_cropped = any(part.is_mapped for part in parts), True
