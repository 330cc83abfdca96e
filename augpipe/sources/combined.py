"""Sources made of others: several one after the other, and one that is divided in two."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.sources.protocol import (
    Ints,
    Labels,
    Pixels,
    Source,
    check_unchanged,
    columns_of,
    content_digest_of,
    has_stored_names,
    is_sized,
    is_source,
    label_width_of,
    labels_of,
    num_parts_of,
    parts_of,
    stamp_of,
)
from augpipe.sources.subset import Subset, as_target_source, check_id, check_ids, check_source, row_index_of
from augpipe.sources.targets import LabelMap, Targets, has_targets, joined, targets_of_none
from augpipe.validation.arguments import as_seed
from augpipe.validation.plural import count

HOLDOUT_EPOCH = 2**32 - 1
"""The epoch whose order holds samples out: the last there could be."""


class Concat:
    """Several sources as one, whose samples are numbered on from one source to the next.

    Each source is a part: a sample that cannot be used is replaced by another one of its own part, and
    `sampling.Mixture` draws from each part by its share.

    Args:
        sources: one or more; those that have classes have the same ones, in the same order.

    Raises:
        ValueError: there is none, or they differ in their classes.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        if is_source(sources) or not len(sources):
            raise ValueError("sources must be a list of one or more sources: Concat([first, second]).")
        for number, source in enumerate(sources):
            check_source(f"sources[{number}]", source)
        labelled = [number for number, source in enumerate(sources) if len(source.classes)]
        for first, other in pairwise(labelled):
            if list(sources[first].classes) != list(sources[other].classes):
                raise ValueError(
                    f"sources[{first}] and sources[{other}] have different classes, so that one label would mean two "
                    "things. Open both with the same classes=[...]."
                )
        self._sources = tuple(sources)
        kinds = [_label_kind(source) for source in sources]
        for number, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise ValueError(
                    f"labels of sources[0] are {_in_words(kinds[0])}, and those of sources[{number}] "
                    f"{_in_words(kind)}, so that no batch can hold both. Give all the same kind of labels."
                )
        _check_targets(sources)
        self.label_width, self._label_dtype = kinds[0]
        self.classes: Sequence[str] = sources[labelled[0]].classes if labelled else ()
        """Those of the sources that have any."""
        self.lengths = tuple(map(len, sources))
        """How many samples each part holds."""
        self._starts = list(accumulate(self.lengths, initial=0))
        self._first_parts = list(accumulate(map(num_parts_of, sources), initial=0))

    @property
    def num_parts(self) -> int:
        """How many there are, where parts that have parts count as those."""
        return self._first_parts[-1]

    @property
    def knows_sizes(self) -> bool:
        """Whether all sources have `size`."""
        return all(map(is_sized, self._sources))

    def __len__(self) -> int:
        return self._starts[-1]

    def parts_of(self, sample_ids: Ints) -> Ints:
        """(B,) which part each lies in, from 0."""
        parts = np.empty(len(sample_ids), np.int64)
        for number, where, inner in self._by_source(sample_ids):
            parts[where] = self._first_parts[number] + parts_of(self._sources[number], inner)
        return parts

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width in pixels, where the sources know them."""
        source, inner = self._find(sample_id)
        assert is_sized(source)
        return source.size(inner)

    def read(self, sample_id: int) -> bytes | Pixels:
        """The sample's file or pixels."""
        source, inner = self._find(sample_id)
        return source.read(inner)

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """Where its rows begin, as far as its source knows."""
        return row_index_of(*self._find(sample_id))

    def label(self, sample_id: int) -> int | Labels:
        """The sample's class, or numbers."""
        source, inner = self._find(sample_id)
        return source.label(inner)

    def labels_of(self, sample_ids: Ints) -> Labels:
        """(B,) or (B, k): the samples' labels."""
        shape = (len(sample_ids), self.label_width) if self.label_width else (len(sample_ids),)
        labels: Labels = np.empty(shape, self._label_dtype)
        for number, where, inner in self._by_source(sample_ids):
            labels[where] = labels_of(self._sources[number], inner)
        return labels

    def columns_of(self, sample_ids: Ints) -> Mapping[str, Any]:
        """The sources' further columns; None for samples of a source that has no such column."""
        columns: dict[str, list[Any]] = {}
        for number, where, inner in self._by_source(sample_ids):
            for name, values in columns_of(self._sources[number], inner).items():
                column = columns.setdefault(name, [None] * len(sample_ids))
                for place, value in zip(where.tolist(), values, strict=True):
                    column[place] = value
        return columns

    def name(self, sample_id: int) -> str:
        """The sample's name."""
        source, inner = self._find(sample_id)
        return source.name(inner)

    @property
    def has_stored_names(self) -> bool:
        """Whether all sources have `stored_name`."""
        return all(map(has_stored_names, self._sources))

    def stored_name(self, sample_id: int) -> str:
        """The sample's name in its source, behind that source's number."""
        source, inner = self._find(sample_id)
        assert has_stored_names(source)
        return f"{bisect_right(self._starts, sample_id) - 1}/{source.stored_name(inner)}"

    def content_digest(self) -> str:
        """Those of all sources."""
        return ",".join(map(content_digest_of, self._sources))

    def check_unchanged(self) -> None:
        """Raise ValueError where a file of one of them has changed since it was opened."""
        for source in self._sources:
            check_unchanged(source)

    def stamp(self, sample_id: int) -> tuple[int, int] | None:
        """Size and time of writing of the sample's file, where its source knows them."""
        return stamp_of(*self._find(sample_id))

    def label_map_stamp(self, sample_id: int) -> tuple[int, int] | None:
        """The same of its label map."""
        return stamp_of(*self._find(sample_id), by="label_map_stamp")

    @property
    def has_targets(self) -> bool:
        """Whether the sources know objects or label maps."""
        return has_targets(self._sources[0])

    @property
    def object_classes(self) -> Sequence[str]:
        """Those of all sources."""
        return as_target_source(self._sources[0]).object_classes

    @property
    def keypoint_swaps(self) -> Sequence[tuple[int, int]]:
        """Those of all sources."""
        return as_target_source(self._sources[0]).keypoint_swaps

    @property
    def has_label_maps(self) -> bool:
        """Whether the sources have `label_map`."""
        return has_targets(self._sources[0]) and self._sources[0].has_label_maps

    def targets_of(self, sample_ids: Ints) -> Targets | None:
        """The objects of these samples; None where only label maps are known."""
        asked = {number: (where, inner) for number, where, inner in self._by_source(sample_ids)}
        parts = []
        for number, source in enumerate(map(as_target_source, self._sources)):
            where, inner = asked.get(number, (_NOWHERE, None))  # so that each batch has what any of them knows
            objects = targets_of_none(source) if inner is None else source.targets_of(inner)
            if objects is None:
                return None
            parts.append((where, objects))
        return joined(parts, len(sample_ids))

    def label_map(self, sample_id: int) -> LabelMap:
        """The class of each pixel of the sample."""
        source, inner = self._find(sample_id)
        return as_target_source(source).label_map(inner)

    def __repr__(self) -> str:
        return f"Concat({', '.join(map(repr, self._sources))})"

    def _find(self, sample_id: int) -> tuple[Source, int]:
        check_id(sample_id, len(self))
        number = bisect_right(self._starts, sample_id) - 1
        return self._sources[number], sample_id - self._starts[number]

    def _by_source(self, sample_ids: Ints) -> list[tuple[int, npt.NDArray[np.intp], Ints]]:
        """(source's number, where its samples stand in `sample_ids`, their ids there) of each source that has some."""
        check_ids(sample_ids, len(self))
        numbers = np.searchsorted(self._starts, sample_ids, side="right") - 1
        found = []
        for number in np.unique(numbers).tolist():
            where = np.flatnonzero(numbers == number)
            found.append((number, where, sample_ids[where] - self._starts[number]))
        return found


def hold_out(source: Source, fraction: float, seed: int = 0) -> tuple[Subset, Subset]:
    """(the others, the share that is held out): two parts without a common sample, both in the source's order.

    Which samples are held out depends on their ids, how many there are, and `seed`: nothing that is done with a part
    changes the other. A source that has grown is divided again.

    Args:
        source: the whole.
        fraction: between 0 and 1; of so many samples the nearest whole number is held out.
        seed: 0..2^64 - 1.

    Raises:
        ValueError: an argument is out of range, or one of the two would be empty.
    """
    check_source("source", source)
    total = len(source)
    if not isinstance(fraction, float | int) or not 0 < fraction < 1:
        raise ValueError(f"holdout={fraction!r:.50} must lie between 0 and 1, as 0.1 does: the share that is held out.")
    num = round(total * fraction)
    if not 0 < num < total:
        raise ValueError(
            f"holdout={fraction:g} of {count(total, 'photograph')} is {num}: both parts need some. Give another share."
        )
    from augpipe.gpu_ops.random.permutation import permute  # numba comes with it: not for opening a source

    drawn = permute(np.arange(total, dtype=np.int64), total, as_seed(seed), HOLDOUT_EPOCH)
    return Subset(source, np.sort(drawn[num:])), Subset(source, np.sort(drawn[:num]))


def _label_kind(source: Source) -> tuple[int, np.dtype[Any]]:
    """How many numbers a label is, 0 for a class, and their dtype."""
    width = label_width_of(source)
    return width, labels_of(source, np.empty(0, np.int64)).dtype if width else np.dtype(np.int64)


def _in_words(kind: tuple[int, np.dtype[Any]]) -> str:
    width, dtype = kind
    return f"{count(width, 'number')} of {dtype} each" if width else "classes"


def _check_targets(sources: Sequence[Source]) -> None:
    """Raise ValueError unless all sources know the same of their images."""
    kinds = [_target_kind(source) for source in sources]
    for number, kind in enumerate(kinds):
        for what, first, other in zip(_KINDS, kinds[0], kind, strict=True):
            if first != other:
                raise ValueError(
                    f"sources[0] and sources[{number}] differ in their targets: {what} {first} and {other}, so that no "
                    "batch can hold both. Open both in the same way, with the same classes."
                )


_NOWHERE = np.empty(0, np.intp)
_KINDS = ("whether there are any", "label maps", "classes of objects", "swapped key points", "what is known of objects")


def _target_kind(source: Source) -> tuple[Any, ...]:
    if not has_targets(source):
        return False, False, [], [], []
    objects = targets_of_none(source)
    names = ("labels", "boxes", "rotated_boxes", "keypoints")
    known = [] if objects is None else [name for name in names if getattr(objects, name) is not None]
    if objects is not None and objects.keypoints is not None:
        known.append(f"{objects.keypoints.shape[1]} points each")
    swaps = [tuple(pair) for pair in source.keypoint_swaps]
    return True, bool(source.has_label_maps), list(source.object_classes), swaps, known
