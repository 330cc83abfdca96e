"""What the objects of a source's images are like: how many, of which classes, how large."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from augpipe.sources.protocol import Source
from augpipe.sources.targets import are_outside, has_targets
from augpipe.validation.plural import count

_CHUNK = 1_024
"""Images whose objects are looked up at once."""
SMALL_PX, LARGE_PX = 32, 96
"""COCO's sizes: below the square of the first a box is small, from that of the second on large."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStatistics:
    """Counts over all images whose size is known."""

    num: int
    num_images: int
    """With an object."""
    most: int
    """In one image."""
    num_crowds: int
    num_outlines: int
    """Objects with an outline."""
    num_keypoints: int
    """Key points that are labelled."""
    class_sizes: dict[str, int]
    """Class -> objects."""
    box_sizes: dict[str, int]
    """small, medium, large -> objects, by the areas of their boxes."""
    mended: tuple[str, ...]
    """What was changed as they were read: "3 objects reaching outside the image, cut at its edge ..."."""

    def to_json(self) -> dict[str, Any]:
        """The fields as they are."""
        return asdict(self)


def object_statistics(source: Source) -> ObjectStatistics | None:
    """Count the objects of all images; None for a source without objects. Headers are read, and no image is decoded."""
    if not has_targets(source):
        return None
    counts, labels, areas = [], [], []
    num_crowds = num_outlines = num_keypoints = num_outside = 0
    for begin in range(0, len(source), _CHUNK):
        found = source.targets_of(np.arange(begin, min(begin + _CHUNK, len(source)), dtype=np.int64))
        if found is None:
            return None
        counts.append(found.counts)
        labels.append(np.empty(0, np.int64) if found.labels is None else found.labels)
        if found.boxes is not None:
            stays = ~are_outside(found)
            num_outside += int(np.count_nonzero(~stays))
            areas.append((found.boxes[stays, 2:] - found.boxes[stays, :2]).prod(axis=1))
        num_crowds += int(np.sum(found.fields.get("iscrowd", 0)))
        num_outlines += sum(len(rings) > 0 for rings in found.polygons or ())
        num_keypoints += 0 if found.keypoints is None else int(np.count_nonzero(found.keypoints[:, :, 2]))
    of_image, of_class = (
        np.concatenate(counts),
        np.bincount(np.concatenate(labels), minlength=len(source.object_classes)),
    )
    names = [*source.object_classes, *map(str, range(len(source.object_classes), len(of_class)))]
    kinds = np.searchsorted([SMALL_PX**2, LARGE_PX**2], np.concatenate([np.empty(0), *areas]), side="right")
    notes = [f"{count(num_outside, 'object')} outside the image, which batches drop"] if num_outside else []
    return ObjectStatistics(
        num=int(of_image.sum()),
        num_images=int(np.count_nonzero(of_image)),
        most=int(of_image.max()),
        num_crowds=num_crowds,
        num_outlines=num_outlines,
        num_keypoints=num_keypoints,
        class_sizes=dict(zip(names, of_class.tolist(), strict=True)),
        box_sizes=dict(zip(("small", "medium", "large"), np.bincount(kinds, minlength=3).tolist(), strict=True)),
        mended=(*getattr(source, "notes", ()), *notes),
    )
