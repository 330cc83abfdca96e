"""What objects of a source cannot be: boxes of negative size or outside their image, numbers that are not finite."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from augpipe.planning.kernel_rows import Rows
from augpipe.sources.targets import Floats, Targets, TargetSource, cross_themselves

Flags = Any
"""(N,) bool."""

BEYOND_PX = 0.5
"""How far a box may reach outside its image: files round, and what is shown is cut at the image's edge."""


def problems_of(objects: Targets, rows: Rows, source: TargetSource, *, clips: bool) -> dict[int, str]:
    """Number of an image -> what is wrong with the first of its objects that cannot be, for images with such ones.

    Args:
        objects: of B images.
        rows: (B,) plan records of the images.
        source: knows the classes of objects, or none.
        clips: whether boxes may reach outside their image, as they are cut at its edge.
    """
    image, starts, num_classes = objects.images, objects.starts, len(source.object_classes)
    sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.float64)
    ids = objects.fields.get("id")
    found: dict[int, tuple[int, str]] = {}
    for is_wrong, problem in _rules(objects, sizes[image], clips=clips, num_classes=num_classes):
        for number in np.flatnonzero(is_wrong).tolist():
            place = int(image[number])
            if place not in found or number < found[place][0]:
                known_as = "" if ids is None else f" (id {ids[number]})"
                box = "" if objects.boxes is None else "({:g}, {:g}) to ({:g}, {:g})".format(*objects.boxes[number])
                label = "" if objects.labels is None else objects.labels[number]
                text = f"object {number - starts[place]}{known_as}: {problem.format(box=box, label=label)}"
                found[place] = number, text
    return {place: text for place, (_, text) in sorted(found.items())}


def _rules(objects: Targets, sizes: Floats, *, clips: bool, num_classes: int) -> Iterator[tuple[Flags, str]]:
    """(N,) which objects break a rule, and what is said of them."""
    boxes, polygons, keypoints, labels = objects.boxes, objects.polygons, objects.keypoints, objects.labels
    if labels is not None:
        yield labels < 0, "its label {label} is negative. Classes are numbered from 0"
        if num_classes:
            yield labels >= num_classes, f"its label {{label}} is not one of the classes 0..{num_classes - 1}"
    if boxes is not None:
        yield ~np.isfinite(boxes).all(axis=1), "the box from {box} is not finite"
        yield (boxes[:, 2:] < boxes[:, :2]).any(axis=1), "the box from {box} has a negative size"
        if not clips:
            is_outside = (boxes[:, :2] < -BEYOND_PX).any(axis=1) | (boxes[:, 2:] > sizes + BEYOND_PX).any(axis=1)
            yield (
                is_outside,
                "the box from {box} px reaches outside its image. Mend it, or cut such boxes with "
                "targets=TargetOptions(clip=True)",
            )
    if polygons is not None:
        corners = [ring for rings in polygons for ring in rings]
        if corners and not np.isfinite(np.concatenate(corners)).all():
            yield (
                np.array([not all(np.isfinite(ring).all() for ring in rings) for rings in polygons], np.bool_),
                "a corner of its polygon is not finite",
            )
    if objects.rotated_boxes is not None:
        yield ~np.isfinite(objects.rotated_boxes).all(axis=(1, 2)), "a corner of its rotated box is not finite"
        yield cross_themselves(objects.rotated_boxes), "sides of its rotated box cross. Give its corners around it"
    if keypoints is not None:
        yield ~np.isfinite(keypoints).all(axis=(1, 2)), "a key point is not finite"
        is_known = np.isin(keypoints[:, :, 2], (0.0, 1.0, 2.0)).all(axis=1)
        yield ~is_known, "a key point has a visibility that is not 0, 1 or 2"
