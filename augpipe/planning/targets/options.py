"""What is done with targets besides mapping them, and which objects are dropped and why."""

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from augpipe.planning.targets.boxes import box_areas
from augpipe.validation.models import Checked, told

Float = npt.NDArray[np.float64]

Index = Annotated[int, Field(ge=0)]
TargetForm = Literal["list", "padded", "flat"]
Interpolation = Literal["nearest", "majority", "linear"]
NAMED = frozenset(
    "image images mask masks bboxes polygons rotated_boxes keypoints bbox_format keypoint_format targets plan "
    "sample_ids epoch object_ids dropped keypoint_ids".split()
)
"""Arguments and results of a call that are known by their names."""


class TargetOptions(Checked):
    """How boxes, key points and masks are mapped, and which objects stay."""

    boxes: Literal["tight", "corners", "ellipse"] = "tight"
    """tight: around what is shown of the object. corners: around its box's four mapped corners, cut at the frame after
    that, as torchvision and albumentations do. ellipse: around the mapped ellipse that touches the box's sides, as
    albumentations' `rotate_method="ellipse"`."""
    rotated_boxes: Literal["tight", "whole"] = "tight"
    """tight: the rectangle of least area around what is shown of the object, as Ultralytics trains with. whole: around
    all of it, so that corners may lie outside the frame, as torchvision and MMRotate keep them."""
    min_area: Annotated[float, Field(ge=0.0)] = 0.0
    """Objects whose box in the output has a smaller area are dropped, in square pixels."""
    min_visibility: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Objects of which a smaller share of the area is shown are dropped, in 0..1."""
    clip: bool = False
    """Whether boxes that reach outside their image are cut at its edge; else they are an error."""
    drop_empty: bool | None = None
    """Whether objects are dropped of which nothing is shown. None: of `bboxes=` they are, as in albumentations; in
    structures of tv_tensors all objects stay unless `min_area` or `min_visibility` is set, as in torchvision."""
    mask_fill: Annotated[int, Field(ge=0)] = 255
    """The label outside the image; 255 is what training losses are told to ignore. Masks of single objects have 0."""
    mask_border: Literal["fill", "image"] = "fill"
    """fill: `mask_fill` wherever the image has no pixels. image: the recipe's border, so that labels are mirrored where
    pixels are; where that is constant, `mask_fill`."""
    mask_holes: bool = False
    """Whether masks are filled, too, where the recipe fills holes: of `CoarseDropout`, `Erase`, `GridDropout` and
    `PixelDropout`. With `mask_fill`, and with 0 in `masks` of a call. Boxes, outlines, points, paired images and the
    masks that a `Loader` makes of outlines stay as they are."""
    mask_interpolation: Interpolation = "nearest"
    """How `mask`, or a source's label map, is looked up. nearest: the pixel nearest to the one that is looked up.
    majority: the most frequent label of the pixels that an output pixel covers, for images that are made smaller; the
    least of equally frequent ones, and what lies outside counts as `mask_fill`. linear: between pixels, for depth and
    other numbers; not smoothed where images are made smaller. Masks of single objects are always nearest."""
    paired: Annotated[
        dict[str, Literal["nearest", "linear"]],
        told('must give names of arguments "nearest" or "linear": {name}={"depth": "linear"}'),
    ] = Field(default_factory=dict)
    """In a call by names: further arguments that are images of the same size, and how each is looked up, as depth,
    normals or infrared. They move as the image does and keep their numbers: directions, as of normals, are not turned.
    Outside the image they have `mask_fill`."""
    keypoint_swaps: Annotated[
        tuple[tuple[Index, Index], ...], told("must be a list of pairs of points: {name}=[[1, 2], [3, 4]]")
    ] = ()
    """Pairs of key points of an object, as left and right eye, that trade places where the image is mirrored."""

    form: TargetForm = "list"
    """What a `Loader` makes of a batch's objects. list: a dict for each image, as torchvision's detection models take
    them. padded: one dict of arrays (B, most objects, ..) with `lengths`. flat: one dict of arrays (N, ..) of all
    objects, as Ultralytics' models take them. A source with label maps only gives (B, H, W) in all of them."""
    polygons: bool = False
    """Whether a `Loader` also gives the outline of each object, cut at the frame."""
    masks: bool = False
    """Whether a `Loader` also gives a mask of each object, made of its outline; an object without one has no pixels."""

    @field_validator("keypoint_swaps")
    @classmethod
    def _are_pairs_apart(cls, swaps: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        points = [point for pair in swaps for point in pair]
        for point in points:
            if points.count(point) > 1:
                raise ValueError(f"keypoint_swaps={[list(pair) for pair in swaps]}: point {point} is in it twice.")
        return swaps

    @field_validator("paired")
    @classmethod
    def _have_names_of_their_own(cls, paired: dict[str, str]) -> dict[str, str]:
        for name in paired.keys() & NAMED:
            raise ValueError(
                f"paired={paired}: {name} is known already, as an argument or a result of calls. Give the image "
                "another name; mask_interpolation says how mask is looked up."
            )
        return paired

    def __hash__(self) -> int:
        others = [getattr(self, name) for name in type(self).model_fields if name != "paired"]
        return hash((*others, frozenset(self.paired.items())))

    @property
    def drops(self) -> bool:
        """Whether anything but `drop_empty` drops objects."""
        return self.min_area > 0.0 or self.min_visibility > 0.0


def reasons_to_drop(boxes: Float, shares: Float, options: TargetOptions, *, drops_empty: bool) -> list[str | None]:
    """For each of (N, 4) output boxes, of which (N,) shares of their objects' areas are shown, why it is dropped."""
    areas = box_areas(boxes.astype(np.float32))  # as they are handed out: none of those that stay is of no width
    reasons: list[str | None] = []
    for area, share in zip(areas.tolist(), shares.tolist(), strict=True):
        if area <= 0.0:
            reasons.append("nothing of it is shown" if drops_empty else None)
        elif area < options.min_area:
            reasons.append(f"its box of {area:.4g} square pixels is below min_area={options.min_area:g}")
        elif share < options.min_visibility:
            reasons.append(f"{share:.2%} of it is shown, below min_visibility={options.min_visibility:g}")
        else:
            reasons.append(None)
    return reasons
