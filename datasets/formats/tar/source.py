"""WebDataset tar files as they are: images by sample id, nothing unpacked."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from augpipe.checks.plural import count
from augpipe.datasets.files.descriptors import FileSet, most_descriptors
from augpipe.datasets.files.image_files import EXTENSIONS
from augpipe.datasets.files.patterns import expand, refuse_splits
from augpipe.datasets.formats.tar.index import TarIndexer
from augpipe.datasets.metadata.labelled_source import LabelledSource, check_sample_id
from augpipe.datasets.metadata.names import listed, printable
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.patterns import remote_files
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown


class TarSource(LabelledSource):
    """The images of one tar file or of many; sample ids count through the files, and in each in its own order.

    Members that follow one another and whose names agree up to the first dot are one sample, as in WebDataset. Its
    image is the member with an extension of `files.EXTENSIONS`. Its label is its `.cls` member, else the field `label`
    of its `.json` member, else none: integers, or class names, which are then sorted by their bytes. A tar file of
    nothing but images is taken as well, all with label -1.

    Opening reads every header once, and keeps 24 bytes a sample beside the image's name. Any number of threads may
    read; a copy made by pickle takes the index along. All this holds for URLs too, where opening fetches most of each
    file, as its headers lie all over it.

    Args:
        paths: a tar file, a folder whose tar files are taken sorted by name, a pattern such as
            `shard-{000000..000009}.tar` or `shard-*.tar`, or a sequence of tar files; paths or URLs.
        extension: which member is the image, where a sample has several: "jpg", "left.png".
        label_key: the field of the JSON member that holds the label.
        classes: label -> class name.
        remote: limits and the cache of files at URLs; the environment's if left out.

    Raises:
        ValueError: no such file; one that is no tar file, is compressed, truncated or damaged, holds a link, a device
            or a name that leads out of a folder, or a key twice; no image in it; labels that do not fit. Says where.
        OSError: a file cannot be read; `RemoteError` where no usable answer came.
        ImportError: a package for its URL is missing.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        extension: str | None = None,
        label_key: str = "label",
        classes: Sequence[str] | None = None,
        remote: RemoteSettings | None = None,
    ) -> None:
        urls = remote_files(paths, ".tar", remote)
        self._files: FileSet | RemoteFileSet
        indexer = TarIndexer(extension, label_key)
        if urls is None:
            self._paths = _tar_files(paths)
            for path in self._paths:
                refuse_compressed(path)
                indexer.add(path)
            self._files = FileSet(self._paths, most_descriptors())
        else:
            self._files = RemoteFileSet(urls, remote)
            self._paths = [shown(url) for url in urls]
            for number, path in enumerate(self._paths):
                _index_remote(indexer, path, self._files, number)
        if not indexer.offsets:
            raise ValueError(_nothing_found(self._paths, extension, indexer))
        self._offsets = np.frombuffer(indexer.offsets, np.uint64)
        self._lengths = np.frombuffer(indexer.lengths, np.uint32)
        self._names = indexer.names
        self._ends = indexer.ends
        self._labels, self.classes = indexer.labels.numbered(classes, self.name)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, sample_id: int) -> bytes:
        """The image's bytes, copied out of the tar file.

        Raises:
            IndexError: no such sample.
            ValueError: the tar file has become shorter; the reason alone.
            OSError: it cannot be read.
        """
        check_sample_id(sample_id, len(self))
        length = int(self._lengths[sample_id])
        data = self._files.read(self._file(sample_id), length, int(self._offsets[sample_id]))
        if len(data) != length:
            raise ValueError(f"the tar file ends after {len(data)} of its {length} bytes: it was cut short meanwhile")
        return data

    def name(self, sample_id: int) -> str:
        """The tar file's path and the image's name in it.

        Raises:
            IndexError: no such sample.
        """
        check_sample_id(sample_id, len(self))
        return printable(f"{self._paths[self._file(sample_id)]}/{self._names[sample_id]}")

    def _file(self, sample_id: int) -> int:
        return bisect_right(self._ends, sample_id)

    def __getstate__(self) -> dict[str, Any]:
        is_kept = isinstance(self._files, RemoteFileSet)
        return {name: value for name, value in self.__dict__.items() if is_kept or name != "_files"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_files" not in state:
            self._files = FileSet(self._paths, most_descriptors())

    def __repr__(self) -> str:
        where = printable(self._paths[0]) + (f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else "")
        return f"TarSource({where!r}: {count(len(self), 'image')}, {count(len(self.classes), 'class')})"


def refuse_compressed(path: str) -> None:
    """Refuse a compressed file, which cannot be read at any place but from its beginning.

    Raises:
        ValueError: it is compressed by gzip, bzip2, xz or zstd.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        _refuse_compressed(path, file)


def _refuse_compressed(path: str, file: BinaryIO) -> None:
    start = file.read(6)
    for beginning, program in (
        (b"\x1f\x8b", "gunzip"),
        (b"BZh", "bunzip2"),
        (b"\xfd7zXZ\0", "unxz"),
        (b"\x28\xb5\x2f\xfd", "unzstd"),
    ):
        if start.startswith(beginning):
            raise ValueError(
                f"{printable(path)} is compressed, and can only be read from its beginning to its end. Expand it once: "
                f"{program} --keep {printable(path)}"
            )


def _index_remote(indexer: TarIndexer, path: str, files: RemoteFileSet, number: int) -> None:
    with files.open(number) as file:
        _refuse_compressed(path, file)
    indexer.add(path, lambda: files.open(number))


def _tar_files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    if not isinstance(paths, (str, os.PathLike)):
        found = [os.fspath(path) for path in paths]
        if not found:
            raise ValueError("paths is empty: TarSource takes at least one tar file. Pass one.")
        return [_checked(path) for path in found]
    path = os.fspath(paths)
    if os.path.isdir(path):
        names = [name for name in os.listdir(path) if name.lower().endswith(".tar") and not name.startswith(".")]
        if not names:
            raise ValueError(f"{printable(path)} holds no tar file (*.tar). Give the folder that they lie in.")
        refuse_splits(path, names)
        return [_checked(os.path.join(path, name)) for name in sorted(names, key=os.fsencode)]
    if os.path.lexists(path):
        return [_checked(path)]
    return [_checked(name) for name in expand(path)]


def _checked(path: str) -> str:
    if not os.path.isfile(path):  # a pipe would be waited for
        what = "does not exist" if not os.path.lexists(path) else "is no regular file"
        raise ValueError(f"{printable(path)} {what}; TarSource takes tar files. Check the spelling.")
    return path


def _nothing_found(paths: Sequence[str], extension: str | None, indexer: TarIndexer) -> str:
    wanted = f".{extension.lstrip('.')}" if extension else ", ".join(EXTENSIONS)
    found = "no samples at all"
    if indexer.num_without_image:
        extensions = listed(sorted(indexer.found_extensions))
        found = f"{count(indexer.num_without_image, 'sample')} of other members ({extensions})"
    return (
        f"no image in {listed(paths)}: looked for members that end with {wanted}, and found {found}. "
        "Pass extension=, the one of the images, if they are there under another name."
    )
