"""All objects of a source in a few arrays, image by image, and the objects of some images out of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.sources.targets import Outlines, Targets, ranges

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectTable:
    """M objects of N images; corners and key points as float32, which is exact to 0.001 pixels."""

    starts: Ints
    """(N + 1,) where each image's objects begin."""
    labels: npt.NDArray[np.int32]
    """(M,)."""
    boxes: Floats
    """(M, 4) left, top, right, bottom."""
    rings: Ints | None
    """(M + 1,) where each object's rings begin; None where no object has any."""
    corners: Ints
    """(R + 1,) where each ring's corners begin."""
    points: Floats32
    """(P, 2) corners."""
    keypoints: Floats32 | None
    """(M, K, 3)."""
    rotated_boxes: Floats32 | None = None
    """(M, 4, 2) corners, which may lie outside the image; no object has rings then."""
    fields: Mapping[str, npt.NDArray[Any]]
    """Name -> (M,)."""

    def __len__(self) -> int:
        return len(self.labels)

    def of(self, sample_ids: Ints) -> Targets:
        """The objects of some images, in the images' order."""
        counts = self.starts[sample_ids + 1] - self.starts[sample_ids]
        rows = ranges(self.starts[sample_ids], counts)
        polygons = None if self.rings is None else Outlines(len(rows), lambda: self._rings_of(rows))
        return Targets(
            counts=counts,
            labels=self.labels[rows].astype(np.int64),
            boxes=self.boxes[rows],
            polygons=polygons,
            rotated_boxes=None if self.rotated_boxes is None else self.rotated_boxes[rows].astype(np.float64),
            keypoints=None if self.keypoints is None else self.keypoints[rows].astype(np.float64),
            fields={name: values[rows] for name, values in self.fields.items()},
        )

    def _rings_of(self, rows: Ints) -> list[list[Floats]]:
        """The rings of some objects, all of them parts of one new array, which takes less time than one array each."""
        assert self.rings is not None
        num = self.rings[rows + 1] - self.rings[rows]
        which = ranges(self.rings[rows], num)
        lengths = self.corners[which + 1] - self.corners[which]
        points = self.points[ranges(self.corners[which], lengths)].astype(np.float64)
        rings = [points[begin:end] for begin, end in pairwise([0, *np.cumsum(lengths).tolist()])]
        return [rings[begin:end] for begin, end in pairwise([0, *np.cumsum(num).tolist()])]
