"""The objects that crops with `keep_objects` look at, asked of the source before any image is decoded."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.ops.keep_objects import KnownObjects
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Ints, Source
from augpipe.sources.targets import are_outside, has_targets, targets_of, targets_of_none
from augpipe.validation.plural import count
from augpipe.validation.suggest import nearest


def check_kept_objects(source: Source, recipes: Sequence[Recipe]) -> None:
    """Refuse recipes with crops that look at objects which a source does not know.

    Raises:
        ValueError: a crop has `keep_objects`, and the source has no boxes, or not the classes that it names.
    """
    for recipe in recipes:
        for kind, keep in recipe.keeping:
            told = f"{kind} of {recipe.called} keeps objects"
            known = targets_of_none(source) if has_targets(source) else None
            if known is None or known.boxes is None:
                raise ValueError(
                    f"{told}, and the source has no boxes: {source!r:.200}. Give one with annotations of objects, or "
                    "leave keep_objects out."
                )
            assert has_targets(source)
            names = source.object_classes
            if keep.classes and known.labels is None:
                raise ValueError(
                    f"{told} of some classes, and the source has no labels of objects: {source!r:.200}. Leave "
                    "keep_objects.classes out."
                )
            for unknown in keep.unknown_classes(names):
                near = nearest(unknown, names)
                hint = f" Did you mean {near!r}?" if near else ""
                raise ValueError(
                    f"{told} of class {unknown!r}, which is not one of the {count(len(names), 'class')} of the source: "
                    f"{', '.join(names):.200}.{hint} Name one of them, or its number."
                )


def objects_of(source: Source, sample_ids: Ints, is_usable: npt.NDArray[np.bool_] | None = None) -> KnownObjects:
    """The objects of samples, for crops: without crowds, and without rotated boxes outside their image.

    Args:
        source: one that `check_kept_objects` has passed.
        sample_ids: (B,).
        is_usable: (B,) which samples are asked for; the others have no objects. None: all are.
    """
    assert has_targets(source), "the loader has checked it"
    asked = sample_ids if is_usable is None else sample_ids[is_usable]
    found = targets_of(source, asked)
    assert found is not None and found.boxes is not None, "the loader has checked it"
    known = KnownObjects(
        counts=found.counts,
        boxes=found.boxes.astype(np.float64),
        labels=None if found.labels is None else found.labels.astype(np.int64),
        classes=source.object_classes,
    )
    known = _of(known, ~(are_outside(found) | np.asarray(found.fields.get("iscrowd", False), np.bool_)))
    if is_usable is None:
        return known
    counts = np.zeros(len(sample_ids), np.int64)
    counts[is_usable] = known.counts
    return replace(known, counts=counts)


def without_crowds(known: KnownObjects, iscrowd: Any) -> KnownObjects:
    """Objects without those of (N,) `iscrowd`, which are ignored in training and evaluation too."""
    return _of(known, np.array([not flag for flag in iscrowd], np.bool_))


def _of(known: KnownObjects, stays: npt.NDArray[np.bool_]) -> KnownObjects:
    image = np.repeat(np.arange(len(known.counts)), known.counts)
    return replace(
        known,
        counts=np.bincount(image[stays], minlength=len(known.counts)),
        boxes=known.boxes[stays],
        labels=None if known.labels is None else known.labels[stays],
    )
