"""Some of a source's samples as a source."""

from collections.abc import Mapping, Sequence
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
from augpipe.sources.targets import LabelMap, Targets, TargetSource, has_targets
from augpipe.validation.plural import count


class Subset:
    """The samples `ids` of a source, renumbered from 0 in the order given; it takes 4 bytes a sample.

    A sample that is named twice is two samples, each with draws and room in a cache of its own: where samples are to
    come several times an epoch, `augpipe.sampling` draws them instead.

    Args:
        source: where they are read.
        ids: (N,) sample ids of `source`.

    Raises:
        ValueError: there are none, or one is not a sample's.
    """

    def __init__(self, source: Source, ids: npt.ArrayLike) -> None:
        check_source("source", source)
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
        return row_index_of(self._source, self._inner_id(sample_id))

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

    def label_map_stamp(self, sample_id: int) -> tuple[int, int] | None:
        """The same of its label map."""
        return stamp_of(self._source, self._inner_id(sample_id), by="label_map_stamp")

    @property
    def has_targets(self) -> bool:
        """Whether the whole source knows objects or label maps."""
        return has_targets(self._source)

    @property
    def object_classes(self) -> Sequence[str]:
        """Those of the whole source."""
        return as_target_source(self._source).object_classes

    @property
    def keypoint_swaps(self) -> Sequence[tuple[int, int]]:
        """Those of the whole source."""
        return as_target_source(self._source).keypoint_swaps

    @property
    def has_label_maps(self) -> bool:
        """Whether the whole source has `label_map`."""
        return has_targets(self._source) and self._source.has_label_maps

    def targets_of(self, sample_ids: Ints) -> Targets | None:
        """The objects of these samples; None where only label maps are known."""
        return as_target_source(self._source).targets_of(self._inner(sample_ids))

    def label_map(self, sample_id: int) -> LabelMap:
        """The class of each pixel of the sample."""
        return as_target_source(self._source).label_map(self._inner_id(sample_id))

    def __repr__(self) -> str:
        return f"Subset({count(len(self), 'photograph')} of {self._source!r})"

    def _inner_id(self, sample_id: int) -> int:
        check_id(sample_id, len(self))
        return int(self._ids[sample_id])

    def _inner(self, sample_ids: Ints) -> Ints:
        check_ids(sample_ids, len(self))
        return self._ids[sample_ids].astype(np.int64)


def check_source(name: str, source: Any) -> None:
    """Raise ValueError unless it is a source; `name` is the argument's."""
    if not is_source(source):
        raise ValueError(
            f"{name} is a {type(source).__name__}, and must be a source. augpipe.datasets.open.open_source(path) opens "
            "one."
        )


def check_ids(sample_ids: Ints, num_samples: int) -> None:
    """Raise IndexError unless all lie in 0..num_samples - 1."""
    for sample_id in (sample_ids.min(), sample_ids.max()) if len(sample_ids) else ():
        check_id(int(sample_id), num_samples)


def check_id(sample_id: int, num_samples: int) -> None:
    """Raise IndexError unless it lies in 0..num_samples - 1; negative ids do not count from the end."""
    if not 0 <= sample_id < num_samples:
        raise IndexError(
            f"sample_id={sample_id} is out of range: this source holds {count(num_samples, 'photograph')}, "
            f"with the ids 0..{num_samples - 1}."
        )


def as_target_source(source: Source) -> TargetSource:
    """The source, where it has targets.

    Raises:
        AttributeError: it has none, as of any source without them.
    """
    if not has_targets(source):
        raise AttributeError(f"{source!r} has no targets.")
    return source


def row_index_of(source: Source, sample_id: int) -> bytes | memoryview:
    """Where rows of a sample's JPEG begin, as far as its source knows; empty for nothing."""
    known = getattr(source, "row_index", None)
    found: bytes | memoryview = b"" if known is None else known(sample_id)
    return found
