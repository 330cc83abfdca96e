"""Sources made of others: some of a source's samples, and several sources one after the other."""

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
    stack_of,
    stamp_of,
)
from augpipe.validation.arguments import as_seed
from augpipe.validation.plural import count

HOLDOUT_EPOCH = 2**32 - 1
"""The epoch whose order holds samples out: the last there could be."""

__all__ = ["Concat", "Subset", "hold_out"]


class Subset:
    """The samples `ids` of a source, numbered anew from 0 in the order given; it takes 4 bytes a sample.

    A sample that is named twice is two samples, each with draws and room in a cache of its own: where samples are to
    come several times an epoch, `augpipe.sampling` draws them instead.

    Args:
        source: where they are read.
        ids: (N,) sample ids of `source`.

    Raises:
        ValueError: there are none, or one is no sample's.
    """

    def __init__(self, source: Source, ids: npt.ArrayLike) -> None:
        _check_source("source", source)
        given = np.asarray(ids)
        if given.dtype == np.bool_:
            raise ValueError("ids are sample ids, and a mask was given. Pass np.flatnonzero(mask).")
        if given.ndim != 1 or not given.size:
            raise ValueError(
                f"ids has shape {given.shape}, and (N,) with at least one sample id is needed. "
                "Give some, or leave this subset out."
            )
        if given.dtype.kind not in "iu":
            raise ValueError(f"ids has dtype {given.dtype}, and sample ids are integers. Convert them.")
        outside = given[(given < 0) | (given >= len(source))]
        if len(outside):
            raise ValueError(
                f"ids holds {outside[0]}, and the source holds {count(len(source), 'photograph')}, with the ids "
                f"0..{len(source) - 1}. Leave out what lies beyond."
            )
        self._source = source
        self._ids = given.astype(np.uint32)

    @property
    def classes(self) -> Sequence[str]:
        """Those of the whole source."""
        return self._source.classes

    @property
    def ids(self) -> Ints:
        """(N,) the samples' ids in the whole source; a copy."""
        return self._ids.astype(np.int64)

    @property
    def whole(self) -> Source:
        """The whole source."""
        return self._source

    @property
    def num_whole(self) -> int:
        """How many samples the whole source holds."""
        return len(self._source)

    @property
    def num_parts(self) -> int:
        """As many as the whole source has, whether or not samples of all are left."""
        return num_parts_of(self._source)

    @property
    def knows_sizes(self) -> bool:
        """Whether the whole source has `size`."""
        return is_sized(self._source)

    @property
    def stack(self) -> Pixels | None:
        """A view of the whole source's array, where the ids rise in even steps; else None."""
        stack = stack_of(self._source)
        first, step = int(self._ids[0]), int(self._ids[1]) - int(self._ids[0]) if len(self) > 1 else 1
        if stack is None or step < 1 or np.any(np.diff(self._ids.astype(np.int64)) != step):
            return None
        return stack[first : int(self._ids[-1]) + 1 : step]

    def __len__(self) -> int:
        return len(self._ids)

    def parts_of(self, sample_ids: Ints) -> Ints:
        """(B,) which of the whole source's parts each lies in."""
        return parts_of(self._source, self._inner(sample_ids))

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width in pixels, where the whole source knows them."""
        assert is_sized(self._source)
        return self._source.size(self._inner_id(sample_id))

    def read(self, sample_id: int) -> bytes | Pixels:
        """The sample's file or pixels."""
        return self._source.read(self._inner_id(sample_id))

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """Where its rows begin, as far as the whole source knows."""
        return _row_index(self._source, self._inner_id(sample_id))

    @property
    def label_width(self) -> int:
        """The whole source's."""
        return label_width_of(self._source)

    def label(self, sample_id: int) -> int | Labels:
        """The sample's class, or numbers."""
        return self._source.label(self._inner_id(sample_id))

    def labels_of(self, sample_ids: Ints) -> Labels:
        """(B,) or (B, k): the samples' labels."""
        return labels_of(self._source, self._inner(sample_ids))

    def columns_of(self, sample_ids: Ints) -> Mapping[str, Any]:
        """The whole source's further columns."""
        return columns_of(self._source, self._inner(sample_ids))

    def name(self, sample_id: int) -> str:
        """The sample's name."""
        return self._source.name(self._inner_id(sample_id))

    @property
    def has_stored_names(self) -> bool:
        """Whether the whole source has `stored_name`."""
        return has_stored_names(self._source)

    def stored_name(self, sample_id: int) -> str:
        """The sample's name in the whole source."""
        assert has_stored_names(self._source)
        return self._source.stored_name(self._inner_id(sample_id))

    def content_digest(self) -> str:
        """The whole source's."""
        return content_digest_of(self._source)

    def check_unchanged(self) -> None:
        """Raise ValueError where a file of the whole source has changed since it was opened."""
        check_unchanged(self._source)

    def stamp(self, sample_id: int) -> tuple[int, int] | None:
        """Size and time of writing of the sample's file, where the whole source knows them."""
        return stamp_of(self._source, self._inner_id(sample_id))

    def __repr__(self) -> str:
        return f"Subset({count(len(self), 'photograph')} of {self._source!r})"

    def _inner_id(self, sample_id: int) -> int:
        _check_id(sample_id, len(self))
        return int(self._ids[sample_id])

    def _inner(self, sample_ids: Ints) -> Ints:
        _check_ids(sample_ids, len(self))
        return self._ids[sample_ids].astype(np.int64)


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
            _check_source(f"sources[{number}]", source)
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
        return _row_index(*self._find(sample_id))

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

    def __repr__(self) -> str:
        return f"Concat({', '.join(map(repr, self._sources))})"

    def _find(self, sample_id: int) -> tuple[Source, int]:
        _check_id(sample_id, len(self))
        number = bisect_right(self._starts, sample_id) - 1
        return self._sources[number], sample_id - self._starts[number]

    def _by_source(self, sample_ids: Ints) -> list[tuple[int, npt.NDArray[np.intp], Ints]]:
        """(source's number, where its samples stand in `sample_ids`, their ids there) of each source that has some."""
        _check_ids(sample_ids, len(self))
        numbers = np.searchsorted(self._starts, sample_ids, side="right") - 1
        found = []
        for number in np.unique(numbers).tolist():
            where = np.flatnonzero(numbers == number)
            found.append((number, where, sample_ids[where] - self._starts[number]))
        return found


def hold_out(source: Source, fraction: float, seed: int = 0) -> tuple[Subset, Subset]:
    """(the others, the share that is held out): two parts without a common sample, both in the source's order.

    Which samples are held out depends on their ids, how many there are, and `seed`: nothing that is done with a part
    changes the other. A source that has grown is divided anew.

    Args:
        source: the whole.
        fraction: between 0 and 1; of so many samples the nearest whole number is held out.
        seed: 0..2^64 - 1.

    Raises:
        ValueError: an argument is out of range, or one of the two would be empty.
    """
    _check_source("source", source)
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


def _check_source(name: str, source: Any) -> None:
    if not is_source(source):
        raise ValueError(
            f"{name} is a {type(source).__name__}, and must be a source. augpipe.datasets.open.open_source(path) opens "
            "one."
        )


def _check_ids(sample_ids: Ints, num_samples: int) -> None:
    for sample_id in (sample_ids.min(), sample_ids.max()) if len(sample_ids) else ():
        _check_id(int(sample_id), num_samples)


def _check_id(sample_id: int, num_samples: int) -> None:
    if not 0 <= sample_id < num_samples:
        raise IndexError(
            f"sample_id={sample_id} is out of range: this source holds {count(num_samples, 'photograph')}, "
            f"with the ids 0..{num_samples - 1}."
        )


def _label_kind(source: Source) -> tuple[int, np.dtype[Any]]:
    """How many numbers a label is, 0 for a class, and their dtype."""
    width = label_width_of(source)
    return width, labels_of(source, np.empty(0, np.int64)).dtype if width else np.dtype(np.int64)


def _in_words(kind: tuple[int, np.dtype[Any]]) -> str:
    width, dtype = kind
    return f"{count(width, 'number')} of {dtype} each" if width else "classes"


def _row_index(source: Source, sample_id: int) -> bytes | memoryview:
    known = getattr(source, "row_index", None)
    found: bytes | memoryview = b"" if known is None else known(sample_id)
    return found
