"""TFRecord files of `tf.train.Example`s with an encoded image each, without TensorFlow."""

from array import array
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.formats.container import ContainerSource, Paths, container_files, refuse_compressed
from augpipe.datasets.formats.tfrecord.example import Feature, bytes_of, features_of, floats_of, integers_of
from augpipe.datasets.formats.tfrecord.frames import HEAD_BYTES, TAIL_BYTES, checksum, is_whole, read_frames
from augpipe.datasets.metadata.label_names import LABEL_NAMES, LabelArgument, label_like, unread, unusable
from augpipe.datasets.metadata.label_rows import AnyLabels, Numbers
from augpipe.datasets.metadata.names import listed, printable

IMAGE_NAMES = ("image/encoded", "image", "image_raw", "jpg", "jpeg", "png")
FEATURE_NAMES = ("image/class/label", "image/label", *LABEL_NAMES, "image/class/text")
"""What the feature of labels is called; the first of these that is there is taken."""
_MAX_RECORD_BYTES = 2**31 - 1
_MAX_TEXT_BYTES = 4096
_BUFFER_BYTES = 4096
_MOST_OTHERS = 20


class TFRecordSource(ContainerSource):
    """The images of one TFRecord file or of many; sample ids count through the files, one a record.

    The image is a feature of one value of bytes. The label is a feature of one int64 or of one text; texts are sorted
    by their bytes. Numbers are taken as they stand: in ImageNet's files as TensorFlow's models wrote them, classes
    begin at 1.

    Opening steps over the images and reads the rest; it keeps 32 bytes a sample. A record's checksum is verified each
    time it is read. Any number of threads may read; a copy made by pickle takes the index along.

    Args:
        paths: a TFRecord file, a pattern such as `train-?????-of-01024`, or a sequence of files.
        image: the feature that holds the encoded image; one of `IMAGE_NAMES` if left out.
        label: the feature that holds the label; one of `FEATURE_NAMES`, or none, if left out; False for none. A feature
            of several int64 or of floats, or several features of one number each, is named: each label is those numbers
            then, for several classes at once, soft labels or regression.
        classes: label -> class name.

    Raises:
        ImportError: google-crc32c is not installed.
        ValueError: no such file; one that is compressed, truncated or damaged, or holds something else than such
            Examples; labels that do not fit, or a feature that looks like the label and cannot be used. Says which
            record.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        image: str | None = None,
        label: LabelArgument = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._masked = checksum()
        if label is not None and label is not False and not label:
            raise ValueError(f"label={label!r} names no feature. Leave it out, or name some.")
        super().__init__(container_files(paths, "TFRecord"))
        self._files: FileSet = FileSet(self._paths)
        self._records, self._lengths = array("Q"), array("I")
        self._images, self._image_lengths = array("Q"), array("I")
        labels = AnyLabels()
        self._found = ""
        others: dict[str, None] = {}
        for path in self._paths:
            with open(path, "rb", buffering=_BUFFER_BYTES) as file:
                refuse_compressed(path, file.read(6))
                self._add(path, file, image, label, labels, others)
        if not len(self):
            raise ValueError(f"{listed(self._paths)} holds no records. Check what wrote it.")
        if classes is None and label and not isinstance(label, str):
            classes = label if len(label) > 1 else None
        self._labels, self.classes = labels.numbered(classes, self.name)
        if self._found not in ("", "image/class/label", "label"):
            self.notes = (f"labels are feature {self._found!r}",)
        self.notes, self.cautions = (*self.notes, *labels.texts.notes), labels.texts.cautions
        if label is None and not self._found and others:
            remedy = f"label={next(iter(others))!r} reads {'one' if len(others) > 1 else 'it'}"
            self.left_out = (unread(list(others), "feature of the records", remedy),)

    def _add(
        self,
        path: str,
        file: BinaryIO,
        image: str | None,
        label: LabelArgument,
        labels: AnyLabels,
        others: dict[str, None],
    ) -> None:
        before = len(self._records)
        try:
            for first, length in read_frames(file, self._masked):
                if length > _MAX_RECORD_BYTES:
                    raise ValueError(
                        f"it has {length} bytes, and a record of more than {_MAX_RECORD_BYTES} is not read"
                    )
                found = features_of(file, first, length)
                picture = _image_name(found, image)
                start, end = _image(file, found, picture)
                labels.append(self._label(file, found, label))
                if not self._found and len(others) < _MOST_OTHERS:
                    others.update(dict.fromkeys(name for name in found if name != picture))
                self._records.append(first)
                self._lengths.append(length)
                self._images.append(start)
                self._image_lengths.append(end - start)
        except ValueError as error:
            raise ValueError(f"{printable(path)}, record {len(self._records) - before}: {error}.") from error
        self._ends.append(len(self._records))

    def _label(self, file: BinaryIO, found: Mapping[str, Feature], wanted: LabelArgument) -> str | Numbers | None:
        if wanted is False:
            return None
        if wanted is not None:
            return _label(file, found, wanted)
        name = next((name for name in FEATURE_NAMES if name in found), "")
        name = name or next(iter(label_like(list(found), FEATURE_NAMES)), "")
        if not name:
            return None
        if self._found and name != self._found:
            raise ValueError(
                f"its label is feature {name!r}, and before it {self._found!r}. Pass label=, the one to take"
            )
        self._found = name
        kind = found[name].kind
        if kind not in ("int64", "bytes"):
            raise ValueError(unusable(f"feature {name!r}", kind or "nothing", kind == "float"))
        return _label(file, found, name, is_named=False)

    def read(self, sample_id: int) -> bytes:
        """The image's bytes, once the record's checksum is found right.

        Raises:
            ValueError: the record is damaged, or the file has become shorter; the reason alone.
            OSError: it cannot be read.
        """
        file, _ = self._find(sample_id)
        first, length = self._records[sample_id], self._lengths[sample_id]
        data = self._files.read(file, length + TAIL_BYTES, first)
        if not is_whole(data[:length], data[length:], self._masked):
            self._files.check_unchanged(file)
            raise ValueError(f"the record of {length} bytes at {first} is damaged: its checksum is wrong")
        start = self._images[sample_id] - first
        return data[start : start + self._image_lengths[sample_id]]

    def _known_content(self) -> bytes:
        return b"".join(numbers.tobytes() for numbers in (self._records, self._lengths, self._image_lengths))

    def name(self, sample_id: int) -> str:
        """The file's path and the record's number in it."""
        file, number = self._find(sample_id)
        return f"{printable(self._paths[file])}/record {number}"


def is_tfrecord(path: str) -> bool:
    """Whether a file begins as TFRecord files do; False where google-crc32c, which would tell, is not installed."""
    try:
        masked = checksum()
    except ImportError:
        return False
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    return len(head) == HEAD_BYTES and int.from_bytes(head[8:], "little") == masked(head[:8])


def _image_name(found: Mapping[str, Feature], wanted: str | None) -> str:
    names = IMAGE_NAMES if wanted is None else (wanted,)
    name = next((name for name in names if name in found), None)
    if name is None:
        raise ValueError(
            f"it has no feature {' or '.join(names)}, but {listed(sorted(found), most=10) or 'none at all'}. "
            "Pass image=, the one that holds the encoded image"
        )
    return name


def _image(file: BinaryIO, found: Mapping[str, Feature], name: str) -> tuple[int, int]:
    if found[name].kind != "bytes":
        kind = found[name].kind or "nothing"
        raise ValueError(f"its feature {name!r} holds {kind}, and an encoded image is bytes. Pass image=")
    values = bytes_of(file, found[name])
    if len(values) != 1:
        raise ValueError(f"its feature {name!r} holds {len(values)} values, and a sample has one image")
    return values[0]


def _named(found: Mapping[str, Feature], name: str) -> Feature:
    if name not in found:
        raise ValueError(f"it has no feature {name!r}, but {listed(sorted(found), most=10)}. Pass label=")
    return found[name]


def _one_number(file: BinaryIO, found: Mapping[str, Feature], name: str) -> int | float:
    feature = _named(found, name)
    numbers: Numbers = ()
    if feature.kind in ("int64", "float"):
        numbers = integers_of(file, feature) if feature.kind == "int64" else floats_of(file, feature)
    if len(numbers) != 1:
        held = f"{len(numbers)} numbers" if numbers else feature.kind or "nothing"
        raise ValueError(f"its feature {name!r} holds {held}, and of several features each is one number. Pass label=")
    return numbers[0]


def _label(
    file: BinaryIO, found: Mapping[str, Feature], wanted: str | Sequence[str], *, is_named: bool = True
) -> str | Numbers:
    if not isinstance(wanted, str):
        return [_one_number(file, found, name) for name in wanted]
    name = wanted
    feature = _named(found, name)
    if feature.kind == "int64":
        numbers = integers_of(file, feature)
        if len(numbers) == 1:
            return str(numbers[0])
        if is_named:
            return numbers
        raise ValueError(
            f"its feature {name!r} holds {len(numbers)} numbers, and a sample has one class. Pass label={name!r} if "
            "they are a label together"
        )
    if feature.kind == "float":
        return floats_of(file, feature)
    if feature.kind != "bytes":
        raise ValueError(
            f"its feature {name!r} holds {feature.kind or 'nothing'}, and a class is int64 or a text. Pass label="
        )
    texts = bytes_of(file, feature)
    if len(texts) != 1 or texts[0][1] - texts[0][0] > _MAX_TEXT_BYTES:
        raise ValueError(f"its feature {name!r} holds {len(texts)} values, and a label is one short text. Pass label=")
    start, end = texts[0]
    file.seek(start)
    try:
        return file.read(end - start).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"its feature {name!r} is not UTF-8, and a label is a text. Pass label=") from error
