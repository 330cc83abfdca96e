"""What a source may know of its images: objects with boxes, outlines and key points, and label maps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from augpipe.sources.protocol import Ints, Source
from augpipe.validation.plural import count

Floats = npt.NDArray[np.float64]
LabelMap = npt.NDArray[Any]
"""(H, W), or (H, W, C) for labels in colours, of the upright image's size."""


class Outlines(Sequence[Sequence[Floats]]):
    """The rings of N objects, made when the first of them is asked for: who wants boxes alone does not wait for them.

    Args:
        num: N.
        make: gives N lists of rings.
    """

    def __init__(self, num: int, make: Callable[[], Sequence[Sequence[Floats]]]) -> None:
        self._num, self._make = num, make
        self._made: Sequence[Sequence[Floats]] | None = None

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, number: Any) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made[number]


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
    rotated_boxes: Floats | None = None
    """(N, 4, 2) corners x, y, one after the other around each object, in place of polygons. Corners may lie outside
    the image."""
    keypoints: Floats | None = None
    """(N, K, 3) x, y and COCO's visibility: 0 not labelled, 1 hidden, 2 visible."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Name -> (N,) values, an array or a list, such as `iscrowd` or `id`; the same names for all images."""

    @property
    def images(self) -> Ints:
        """(N,) which of the images each object belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def starts(self) -> Ints:
        """(B,) the number of the first object of each image."""
        starts: Ints = np.cumsum(self.counts) - self.counts
        return starts

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise ValueError(f"counts={counts!r:.60} must be (B,) whole numbers: how many objects each image has.")
        object.__setattr__(self, "counts", counts.astype(np.int64))
        total = int(counts.sum())
        for name in _RESERVED & self.fields.keys():
            raise ValueError(f"a field is called {name}, as what a batch holds itself. Give it another name.")
        if self.polygons is not None and self.rotated_boxes is not None:
            raise ValueError("targets have polygons and rotated_boxes. Give one: they say what is shown of an object.")
        known = {name: getattr(self, name) for name in (*_ARRAYS, "polygons")}
        for name, values in {**known, **self.fields}.items():
            if values is not None and len(values) != total:
                raise ValueError(
                    f"targets have {count(total, 'object')} by their counts, and {name} is of length {len(values)}. "
                    "Give one entry for each object, image by image."
                )
        for name, (kinds, shape) in _ARRAYS.items():
            values = getattr(self, name)
            array = np.asarray(values) if values is not None else np.empty((0,) * len(shape))
            fits = array.ndim == len(shape) and all(
                side in (None, found) for side, found in zip(shape, array.shape, strict=True)
            )
            if values is not None and (not fits or (total and array.dtype.kind not in kinds)):
                wanted = f"({', '.join('N' if side is None else str(side) for side in shape)})"
                raise ValueError(
                    f"{name} has shape {array.shape} and dtype {array.dtype}. Give an array of shape {wanted}"
                    f"{', of whole numbers' if kinds == 'iu' else ''}."
                )


_ARRAYS: dict[str, tuple[str, tuple[int | None, ...]]] = {
    "labels": ("iu", (None,)),
    "boxes": ("iuf", (None, 4)),
    "rotated_boxes": ("iuf", (None, 4, 2)),
    "keypoints": ("iuf", (None, None, 3)),
}
"""Name -> kinds of numbers, and the shape, None for any length."""
_RESERVED = frozenset(
    "boxes labels polygons rotated_boxes xywhr keypoints masks mask image_id lengths batch_idx cls bboxes from_sample "
    "mix_weight".split()
)
"""What a batch's targets hold under these names is not a field of the source."""


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


def joined(parts: Sequence[tuple[npt.NDArray[np.intp], Targets]], num: int) -> Targets:
    """The objects of B images that lie in several sources.

    Args:
        parts: of each source where its images stand among all of them, and their objects. All know the same, except
            outlines and fields: objects of a source without those have no rings, and None. What is said of images
            without objects alone does not matter.
        num: B.
    """
    counts = np.zeros(num, np.int64)
    for where, objects in parts:
        counts[where] = objects.counts
    image = np.concatenate([np.repeat(where, objects.counts) for where, objects in parts])
    order = np.argsort(image, kind="stable")
    every = [objects for _, objects in parts]
    all_objects = [objects for objects in every if objects.counts.any()] or every

    def column(name: str) -> Any:
        known = [getattr(objects, name) for objects in all_objects]
        return None if any(values is None for values in known) else np.concatenate(known)[order]

    has_polygons = any(objects.polygons is not None for objects in every)
    names = dict.fromkeys(name for objects in every for name in objects.fields)

    def rings() -> list[Sequence[Floats]]:
        known = [one for objects in all_objects for one in objects.polygons or [()] * int(objects.counts.sum())]
        return [known[number] for number in order]

    return Targets(
        counts=counts,
        labels=column("labels"),
        boxes=column("boxes"),
        polygons=Outlines(len(order), rings) if has_polygons else None,
        rotated_boxes=column("rotated_boxes"),
        keypoints=column("keypoints"),
        fields={name: _joined_field(all_objects, name, order) for name in names},
    )


def _joined_field(parts: Sequence[Targets], name: str, order: npt.NDArray[np.intp]) -> Any:
    """An array where all have one, else a list, with None for the objects of a source without the field.

    Without `iscrowd` none is a crowd.
    """
    values = []
    for objects in parts:
        num = int(objects.counts.sum())
        missing: Any = np.zeros(num, np.int64) if name == "iscrowd" else [None] * num
        values.append(objects.fields.get(name, missing))
    if all(isinstance(some, np.ndarray) for some in values):
        return np.concatenate(values)[order]
    flat = [value for some in values for value in some]
    return [flat[number] for number in order]


def targets_of(source: TargetSource, sample_ids: Ints) -> Targets | None:
    """What a source says of the objects of samples.

    Raises:
        ValueError: it is not of as many images.
    """
    objects = source.targets_of(sample_ids)
    if objects is not None and len(objects.counts) != len(sample_ids):
        raise ValueError(
            f"targets_of gave counts of {count(len(objects.counts), 'image')} for {len(sample_ids)} sample ids. "
            "Return one number for each, 0 for an image without objects."
        )
    return objects


def targets_of_none(source: TargetSource) -> Targets | None:
    """The targets of no image, which tell of what kind those of a source are: the first sample's, cut."""
    if not len(source):
        return source.targets_of(np.empty(0, np.int64))
    first = source.targets_of(np.zeros(1, np.int64))  # many sources of one's own have no answer to none
    if first is None:
        return None
    names = ("counts", "labels", "boxes", "rotated_boxes", "keypoints")
    cut = {name: values[:0] for name in names if (values := getattr(first, name)) is not None}
    fields = {name: values[:0] for name, values in first.fields.items()}
    return Targets(**cut, polygons=None if first.polygons is None else [], fields=fields)


def ranges(first: Ints, num: Ints) -> Ints:
    """first[i], first[i] + 1, ..., `num[i]` of them, for one i after the other."""
    skipped = np.cumsum(num) - num
    found: Ints = np.repeat(first - skipped, num) + np.arange(num.sum())
    return found


def are_outside(objects: Targets) -> npt.NDArray[np.bool_]:
    """(N,) which rotated boxes have no part in their image: the boxes around them, cut at its edge, have no size."""
    if objects.rotated_boxes is None or objects.boxes is None:
        return np.zeros(int(objects.counts.sum()), np.bool_)
    is_out: npt.NDArray[np.bool_] = np.any(objects.boxes[:, 2:] <= objects.boxes[:, :2], axis=1)
    return is_out


def cross_themselves(boxes: Floats) -> npt.NDArray[np.bool_]:
    """(N,) whether sides of (N, 4, 2) corners cross each other, as they do where two corners are swapped."""

    def is_between(a: Floats, b: Floats, c: Floats, d: Floats) -> npt.NDArray[np.bool_]:
        """Whether c and d lie on different sides of the line through a and b."""
        sides = [(b - a)[:, 0] * (point - a)[:, 1] - (b - a)[:, 1] * (point - a)[:, 0] for point in (c, d)]
        apart: npt.NDArray[np.bool_] = sides[0] * sides[1] < 0.0
        return apart

    a, b, c, d = (boxes[:, n] for n in range(4))
    with np.errstate(invalid="ignore"):  # corners that are not finite, which are told of as such
        crossed: npt.NDArray[np.bool_] = is_between(a, b, c, d) & is_between(c, d, a, b)
        crossed |= is_between(b, c, d, a) & is_between(d, a, b, c)
    return crossed


def has_targets(source: Source) -> TypeGuard[TargetSource]:
    """Whether a source knows of objects or label maps."""
    return bool(getattr(source, "has_targets", False))
