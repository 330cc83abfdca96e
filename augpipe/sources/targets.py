"""What a source may know of its images: objects with boxes, outlines and key points, and label maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from augpipe.sources.protocol import Source
from augpipe.validation.plural import count

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LabelMap = npt.NDArray[Any]
"""(H, W), or (H, W, C) for labels in colours, of the upright image's size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """The N objects of B images, image by image, in pixels of the upright images; what is not known is None.

    Pixel centres lie at +0.5: the first pixel reaches from 0 to 1.
    """

    counts: Ints
    """(B,) how many objects each image has; they add up to N."""
    labels: Ints | None = None
    """(N,) class numbers, see `TargetSource.object_classes`."""
    boxes: Floats | None = None
    """(N, 4) left, top, right, bottom."""
    polygons: Sequence[Sequence[Floats]] | None = None
    """N lists of rings, (K, 2) corners each; an empty list for an object without outline."""
    keypoints: Floats | None = None
    """(N, K, 3) x, y and COCO's visibility: 0 not labelled, 1 hidden, 2 visible."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Name -> (N,) values, an array or a list, such as `iscrowd` or `id`; the same names for all images."""

    def __post_init__(self) -> None:
        total = int(self.counts.sum())
        known = {"labels": self.labels, "boxes": self.boxes, "polygons": self.polygons, "keypoints": self.keypoints}
        for name, values in {**known, **self.fields}.items():
            if values is not None and len(values) != total:
                raise ValueError(
                    f"targets have {count(total, 'object')} by their counts, and {name} is of length {len(values)}. "
                    "Give one entry for each object, image by image."
                )


class TargetSource(Source, Protocol):
    """Images whose objects are known without decoding them, and label maps that are read where they are needed."""

    @property
    def has_targets(self) -> bool:
        """True; False is as if there were none of these."""

    @property
    def object_classes(self) -> Sequence[str]:
        """Class number -> name; empty where objects have no classes."""

    @property
    def keypoint_swaps(self) -> Sequence[tuple[int, int]]:
        """Pairs of key points, as left and right eye, that trade places where an image is mirrored; often empty."""

    @property
    def has_label_maps(self) -> bool:
        """Whether `label_map` may be asked."""

    def targets_of(self, sample_ids: Ints) -> Targets | None:
        """The objects of these samples, in this order; None where only label maps are known."""

    def label_map(self, sample_id: int) -> LabelMap:
        """The class of each pixel; called from several threads at once.

        Raises:
            OSError: it cannot be read.
            ValueError: it cannot be decoded; names the file.
        """


def has_targets(source: Source) -> TypeGuard[TargetSource]:
    """Whether a source knows of objects or label maps."""
    return bool(getattr(source, "has_targets", False))
