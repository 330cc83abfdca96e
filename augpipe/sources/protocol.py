"""What the loader asks of a place that holds images."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from augpipe.validation.plural import count

Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.float32]
"""(B,) int64 classes, or (B, k) numbers."""
Pixels = npt.NDArray[np.uint8]


@runtime_checkable
class Source(Protocol):
    """N images with the sample ids 0..N-1; `read` is called from several threads at once.

    What more a source may know makes a loader faster: the sizes of its JPEGs (`SizedSource`), one array of all images
    (`StackedSource`), and labels many at a time (`LabelledSource`). One whose labels are not classes says how many
    numbers each is (`VectorLabelledSource`), one with further columns hands them on (`ColumnedSource`), and one that is
    made of several says which sample is of which (`PartedSource`).
    Names that last (`NamedSource`) and a digest of its content (`DigestedSource`) tell it from another source, and one
    that lies in files can see whether they have changed under it (`WatchedSource`, `StampedSource`).
    """

    @property
    def classes(self) -> Sequence[str]:
        """Label -> class name; empty where there are no labels. For k numbers a label: their names, or empty."""

    def __len__(self) -> int: ...

    def read(self, sample_id: int) -> bytes | Pixels:
        """The encoded file, or an uint8 array of shape (H, W, 3), (H, W, 4), (H, W, 1) or (H, W).

        Raises:
            OSError: the file cannot be read; the loader adds the sample's name.
        """

    def label(self, sample_id: int) -> int | Labels:
        """The class, or -1 where there is none; (k,) numbers of a `VectorLabelledSource`."""

    def name(self, sample_id: int) -> str:
        """A path or a description, for captions and error messages."""


class SizedSource(Source, Protocol):
    """JPEGs whose sizes are known without reading them.

    A loader with no cache and the native backend plans many samples at once before it reads them, which is faster;
    where a size proves wrong, or the image is large and not a JPEG, it is planned again, which is slower.
    """

    @property
    def knows_sizes(self) -> bool:
        """True; False is as if there were no `size`."""

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width, in pixels, as the image shows."""


class StackedSource(Source, Protocol):
    """Images of one size in one array.

    A loader on the CPU with the native backend and no cache renders them from there, a batch at a time.
    """

    @property
    def stack(self) -> Pixels | None:
        """(N, H, W, 1 | 3 | 4) or (N, H, W) uint8: image i is that of sample i; None is as if there were no `stack`."""


class LabelledSource(Source, Protocol):
    """Images whose labels can be looked up many at a time."""

    def labels_of(self, sample_ids: Ints) -> Labels:
        """(B,) int64, or (B, k) float32 or int64: what `label` says of each."""


class VectorLabelledSource(Source, Protocol):
    """Images each of which is labelled by k numbers: several classes at once (multi-hot), soft labels, regression.

    They are all float32, or all int64, and reach `Batch.labels` as they are, (B, k). Labels that are given as booleans
    are float32, 0 or 1, as binary cross-entropy takes them.
    """

    @property
    def label_width(self) -> int:
        """k; 0 is as if there were no `label_width`: each label is a class."""


class ColumnedSource(Source, Protocol):
    """Images with further columns, such as a path, a caption or an id of their own, which reach `Batch.columns`."""

    def columns_of(self, sample_ids: Ints) -> Mapping[str, Any]:
        """Column -> (B,) values, a list or an array; the same columns for all samples."""


class PartedSource(Source, Protocol):
    """Images of several origins: one that cannot be used is replaced by another of its own."""

    @property
    def num_parts(self) -> int:
        """How many there are."""

    def parts_of(self, sample_ids: Ints) -> Ints:
        """(B,) int64 in 0..num_parts - 1: which part each lies in."""


class NamedSource(Source, Protocol):
    """Images with names of their own, as files have them: a row's number in a file is none.

    Held-out samples are found again by these names when a source has grown.
    """

    @property
    def has_stored_names(self) -> bool:
        """True; False is as if there were no `stored_name`."""

    def stored_name(self, sample_id: int) -> str:
        """The sample's name within the source, the same wherever the source lies and whatever else it holds."""


class DigestedSource(Source, Protocol):
    """Images of whose content something is known without reading them: lengths, checksums, times of writing."""

    def content_digest(self) -> str:
        """A digest of that; another one when a file was replaced by another of the same name. Empty for nothing."""


class WatchedSource(Source, Protocol):
    """Images whose place in their files was found when the source was opened, so that the files must stay as they were.

    A tar file that is written again while it is in use would give other photographs under the old labels.
    """

    def check_unchanged(self) -> None:
        """Look whether the files are still those that were opened: by their size and time of writing, or an ETag.

        A loader calls it as each pass begins, so it must take milliseconds: a source of a million files looks at those
        that it read to know the others, such as lists and indexes.

        Raises:
            ValueError: a file has changed or is gone; names it, and says to open the source again.
        """


class StampedSource(Source, Protocol):
    """Images that are files of their own, of which a cache can tell whether they have changed since they were read."""

    def stamp(self, sample_id: int) -> tuple[int, int] | None:
        """The size in bytes and the time of writing in ns of the sample's file as it is now.

        None where it has no file of its own, or where asking for it takes long. Sources of label maps say the same of
        their files by `label_map_stamp`.

        Raises:
            OSError: the file is gone or cannot be looked at.
        """


def num_parts_of(source: Source) -> int:
    """How many parts a source is made of; 1 for one that does not say."""
    num: int = getattr(source, "num_parts", 1)
    return num


def parts_of(source: Source, sample_ids: Ints) -> Ints:
    """(B,) int64: which part of the source each lies in."""
    if hasattr(source, "parts_of"):
        parts: Ints = source.parts_of(sample_ids)
        return parts
    return np.zeros(len(sample_ids), np.int64)


def stack_of(source: Source) -> Pixels | None:
    """(N, H, W, C) uint8 where all images lie in one array, else None."""
    stack: Pixels | None = getattr(source, "stack", None)
    if stack is None:
        return None
    return np.asarray(stack[..., None] if stack.ndim == 3 else stack)


def label_width_of(source: Source) -> int:
    """How many numbers each label is; 0 where it is a class."""
    width: int = getattr(source, "label_width", 0)
    return width


def labels_of(source: Source, sample_ids: Ints) -> Labels:
    """(B,) int64: the classes, -1 where there is none. Of a `VectorLabelledSource`: (B, k) float32 or int64.

    Raises:
        ValueError: a label is not of k numbers, or not a class where there is no `label_width`.
    """
    width, num = label_width_of(source), len(sample_ids)
    if hasattr(source, "labels_of"):
        labels: Labels = np.asarray(source.labels_of(sample_ids))
        if labels.shape != ((num, width) if width else (num,)) or (
            num and not width and labels.dtype.kind not in "iub"
        ):
            needed = f"{num} x {width} numbers" if width else f"{num} classes"
            raise ValueError(
                f"labels_of of the {type(source).__name__} gives shape {labels.shape} and dtype {labels.dtype}, and "
                f"{needed} are needed. Return one label for each of sample_ids; label_width is how many numbers it has."
            )
        return as_label_rows(labels) if width else labels.astype(np.int64, copy=False)
    if not width:
        return np.array([class_of(source, sample_id) for sample_id in sample_ids.tolist()], np.int64)
    rows = []
    for sample_id in sample_ids.tolist() or [0]:  # a batch without samples is of the same dtype
        row = np.asarray(source.label(sample_id))
        if row.shape != (width,) or row.dtype.kind not in "iufb":
            raise ValueError(
                f"{source.name(sample_id)}: its label has shape {row.shape} and dtype {row.dtype}, and label_width "
                f"says {count(width, 'number')}. Return an array of shape ({width},)."
            )
        rows.append(row)
    return as_label_rows(np.stack(rows)[: len(sample_ids)])


def class_of(source: Source, sample_id: int) -> int:
    """A sample's class, -1 for none.

    Raises:
        ValueError: its label is none: a number with a point, a name, or several numbers.
    """
    label: Any = source.label(sample_id)
    try:
        return int(label) if isinstance(label, np.bool_) else operator.index(label)
    except TypeError:
        raise ValueError(
            f"{source.name(sample_id)}: its label is {label!r:.100}, and a source without label_width gives a class, "
            "an int. Return one; or set label_width to how many numbers a label has, and return an array of them."
        ) from None


def as_label_rows(numbers: npt.NDArray[Any]) -> Labels:
    """(N, k) numbers as `VectorLabelledSource` has them: integers as int64, all others as float32."""
    is_whole = numbers.dtype.kind in "iu"
    return numbers.astype(np.int64) if is_whole else numbers.astype(np.float32)


def columns_of(source: Source, sample_ids: Ints) -> Mapping[str, Any]:
    """Column -> (B,) values; empty for a source without further columns."""
    known = getattr(source, "columns_of", None)
    found: Mapping[str, Any] = {} if known is None else known(sample_ids)
    return found


def classes_of(source: Source, sample_ids: Ints, what: str) -> Ints:
    """(B,) int64: the classes, -1 where there is none; `what` needs them.

    Raises:
        ValueError: labels are not classes.
    """
    require_classes(source, what)
    return labels_of(source, sample_ids).astype(np.int64)


def require_classes(source: Source, what: str, remedy: str = "Give a source whose labels are class numbers") -> None:
    """Raise ValueError where labels are not classes, which `what` needs."""
    width = label_width_of(source)
    if width:
        raise ValueError(
            f"{what} needs one class an image, and labels here are {count(width, 'number')} each ({source.name(0)} is "
            f"one such image). {remedy}."
        )


def sizes_of(source: SizedSource, sample_ids: Ints) -> Ints:
    """(N, 2) heights and widths in pixels; 0 where the source cannot say, or says what is not a size."""
    sizes = np.zeros((len(sample_ids), 2), np.int64)
    for row, sample_id in enumerate(sample_ids.tolist()):
        try:
            sizes[row] = [int(side) for side in source.size(sample_id)]
        except (ValueError, OSError, OverflowError):
            continue
    return sizes


def is_sized(source: Source) -> TypeGuard[SizedSource]:
    """Whether `source.size` may be asked."""
    return bool(getattr(source, "knows_sizes", False))


def has_stored_names(source: Source) -> TypeGuard[NamedSource]:
    """Whether a name stands for the same image however many samples are added or taken away."""
    return bool(getattr(source, "has_stored_names", False))


def content_digest_of(source: Source) -> str:
    """What the source knows of its content without reading it, as a digest; empty where that is nothing."""
    known = getattr(source, "content_digest", None)
    return "" if known is None else str(known())


def check_unchanged(source: Source) -> None:
    """Raise ValueError where a file of a `WatchedSource` is not the one that was opened; other sources pass."""
    check = getattr(source, "check_unchanged", None)
    if check is not None:
        check()


def stamp_of(
    source: Source, sample_id: int, by: Literal["stamp", "label_map_stamp"] = "stamp"
) -> tuple[int, int] | None:
    """Size in bytes and time of writing in ns of a sample's file, or its label map's; None where nothing says it.

    Raises:
        OSError: the file is gone or cannot be looked at.
    """
    stamp = getattr(source, by, None)
    found: tuple[int, int] | None = None if stamp is None else stamp(sample_id)
    return found


def is_source(thing: Any) -> TypeGuard[Source]:
    """Whether `thing` can be handed to a `Loader` as it is."""
    return isinstance(thing, Source)
