"""What a file or a folder is, by its content: which source reads it."""

import inspect
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from augpipe.datasets.files.image_files import is_hidden, is_image_name
from augpipe.datasets.files.splits import chosen
from augpipe.datasets.formats.cifar import CifarSource, kind_in, refuse_pickle
from augpipe.datasets.formats.container import refuse_compressed
from augpipe.datasets.formats.idx import IdxSource
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.formats.tfrecord.tfrecord_source import TFRecordSource, is_tfrecord
from augpipe.datasets.metadata.names import listed, printable
from augpipe.datasets.shards.half_made import refuse_unfinished
from augpipe.sources.protocol import Source

_TAR_MAGIC = slice(257, 262)
_SNIFFED_BYTES = 512
_IDX_IMAGES = re.compile(r"images.?idx[34].*ubyte(\.gz)?")
_COMPRESSED = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz)", re.IGNORECASE)
_TF_RECORD = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$|-\d{5}-of-\d{5}$", re.IGNORECASE)


Options = Mapping[str, Any]
"""`classes`, `split`, `columns`, `label` and `on_error` as the user gave them; None where he did not."""


class Opener(NamedTuple):
    """A source that reads many files of one kind."""

    extension: str
    kind: Callable[..., Source]


_MANY = (Opener(".tar", TarSource), Opener(".parquet", ParquetSource), Opener(".bin", CifarSource))


def made(kind: Callable[..., Source], *arguments: Any, options: Options, **others: Any) -> Source:
    """The source of this kind, with the options that were given.

    Raises:
        ValueError: it takes no such option; or what the source raises.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in inspect.signature(kind).parameters:
            raise ValueError(f"{printable(str(arguments[0]))}: a {kind.__name__} takes no {name}=.... Leave it out.")
    return kind(*arguments, **given, **others)


def open_container(path: str, options: Options) -> Source | None:
    """The source for a file that holds many images; None if it is none of those.

    Raises:
        ImportError: pyarrow is needed and not installed.
        ValueError: the file is damaged, or of a kind that is not read; says what to do.
        OSError: it cannot be read.
    """
    name = os.path.basename(path)
    with open(path, "rb") as file:
        start = file.read(_SNIFFED_BYTES)
    if start[_TAR_MAGIC] == b"ustar" or name.lower().endswith(".tar"):
        return made(TarSource, path, options=options)
    if _COMPRESSED.search(name):
        refuse_compressed(path, start)
    if start.startswith(b"PAR1") or name.lower().endswith(".parquet"):
        return made(ParquetSource, path, options=options)
    if _is_idx(_expanded(start)):
        return made(IdxSource, path, options=options)
    refuse_pickle(path)
    if name.lower().endswith(".bin"):
        return made(CifarSource, path, options=options)
    if _TF_RECORD.search(name) or is_tfrecord(path):
        return made(TFRecordSource, path, options=options)
    return None


def open_container_folder(path: str, options: Options) -> Source | None:
    """The source for a folder of tar, Parquet, IDX or CIFAR files; None if it holds none of those.

    Where images or other folders lie next to tar or Parquet files, it is not plain what is meant: None.

    Raises:
        ImportError: pyarrow is needed and not installed.
        ValueError: a file is damaged, or the folder holds several splits; says which to give.
        OSError: it cannot be read.
    """
    if kind_in(path) is not None:
        return made(CifarSource, path, options=options)
    files, has_others = _look_into(path)
    images = [name for name in files if _IDX_IMAGES.search(name)]
    if images:
        return _open_idx_folder(path, images, options)
    if not has_others:
        kinds = [opener for opener in _MANY[:2] if any(name.lower().endswith(opener.extension) for name in files)]
        if len(kinds) > 1:
            raise ValueError(f"{printable(path)} holds tar files and Parquet files. Give a pattern, e.g. *.tar in it.")
        if kinds:
            return made(kinds[0].kind, path, options=options)
    if "data.mdb" in files:
        raise ValueError(
            f"{printable(path)} is an LMDB database, which is not read: no layout of images and labels in it is agreed "
            "upon. Write its images into WebDataset tar files or Parquet."
        )
    for name in ("data_batch_1", "train"):
        refuse_pickle(os.path.join(path, name))
    return None


def open_pattern(pattern: str, paths: Sequence[str], options: Options) -> Source:
    """The source for the files that a pattern names, which must be of one kind by their extension.

    Raises:
        ImportError: pyarrow is needed and not installed.
        ValueError: they are of several kinds, or of none; or a file is damaged.
        OSError: a file cannot be read.
    """
    for opener in _MANY:
        if all(path.lower().endswith(opener.extension) for path in paths):
            for folder in sorted({os.path.dirname(path) for path in paths if opener.kind is TarSource}):
                refuse_unfinished(folder)
            return made(opener.kind, paths, options=options)
    if all(_TF_RECORD.search(path) for path in paths):
        return made(TFRecordSource, paths, options=options)
    kinds = ", ".join(f"*{opener.extension}" for opener in _MANY)
    raise ValueError(
        f"{printable(pattern)!r} names {len(paths)} files ({listed(paths)}), and only one kind of {kinds} is taken by "
        "a pattern. Write their names into a list, or give their folder."
    )


def _open_idx_folder(path: str, images: Sequence[str], options: Options) -> Source:
    """The only file of images, or the one of the split that was asked for."""
    of_plain = {name.removesuffix(".gz"): name for name in sorted(images, reverse=True)}
    plain, split = sorted(of_plain), options["split"]
    if split is not None:
        as_split = {name.replace("t10k", "test"): name for name in plain}  # as MNIST's files are called
        plain = [as_split[chosen(path, list(as_split), split)]]
    if len(plain) > 1:
        raise ValueError(
            f"{printable(path)} holds several files of images: {listed(plain)}. Give one of them, e.g. "
            f'{printable(os.path.join(path, sorted(images)[-1]))}, or split="train".'
        )
    return made(IdxSource, os.path.join(path, of_plain[plain[0]]), options={**options, "split": None})


def _look_into(path: str) -> tuple[list[str], bool]:
    """A folder's files, without the hidden, and whether it holds folders; no files where images are among them."""
    files, has_others = [], False
    with os.scandir(path) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if is_image_name(entry.name):
                return [], True  # a folder of a million images is listed once, by who reads it
            if entry.is_dir():
                has_others = True
            elif entry.is_file():
                files.append(entry.name)
    return files, has_others


def _is_idx(start: bytes) -> bool:
    return len(start) >= 4 and start[:2] == b"\0\0" and 0x08 <= start[2] <= 0x0E and 1 <= start[3] <= 4


def _expanded(start: bytes) -> bytes:
    """The first bytes behind gzip's header, or `start` itself."""
    if not start.startswith(b"\x1f\x8b"):
        return start
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, 4)
    except zlib.error:
        return b""
