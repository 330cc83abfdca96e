"""Some images of a frame, for an op that is applied to these alone."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import affine
from augpipe.ops.frame import Frame


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
