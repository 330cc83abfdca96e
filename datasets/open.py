"""From what a user types or holds to a source."""

import os
from typing import Any

import numpy as np

from augpipe.datasets.arrays import ArraySource
from augpipe.datasets.detect import open_container, open_container_folder, open_pattern
from augpipe.datasets.file_list import LIST_EXTENSIONS, FileListSource
from augpipe.datasets.files import EXTENSIONS, is_photograph_name
from augpipe.datasets.folder import FolderSource
from augpipe.datasets.hugging_face import HuggingFaceSource, is_hugging_face
from augpipe.datasets.names import printable
from augpipe.datasets.patterns import expand, is_pattern
from augpipe.datasets.remote.open import open_url
from augpipe.datasets.remote.urls import as_url
from augpipe.datasets.shards.manifest import locate
from augpipe.datasets.shards.source import ShardSource
from augpipe.datasets.single import SingleSource
from augpipe.source import Source, is_source

ACCEPTED = (
    "a folder that augpipe prepare wrote, or of one scale in it; "
    f"a folder of photographs or of class folders; a list ({', '.join(LIST_EXTENSIONS)}) of path,label lines; "
    f"one photograph ({', '.join(EXTENSIONS)}); "
    "a WebDataset tar file, a folder of them, or a pattern such as shard-{000000..000009}.tar; a Parquet file, a "
    "folder or a pattern of them; a URL (https://, s3://, gs://, ...) of shards, tar or Parquet files; "
    "a TFRecord file or a pattern of them; a file of MNIST (IDX) or CIFAR (binary); "
    "a datasets.Dataset of Hugging Face; "
    "an uint8 array (N, H, W, C) or a list of (H, W, C) arrays; "
    "or an object with classes, __len__, read, label and name (augpipe.source.Source)"
)


def open_source(path_or_source: Any) -> Source:
    """The source for a path, by what it holds, for arrays or a data set of Hugging Face; a source is returned as it is.

    Raises:
        ImportError: Parquet, and pyarrow is not installed; a URL, and a package for its protocol is not.
        ValueError: it is none of these; the message lists what is accepted. It is damaged, or holds several splits.
        OSError: a folder or a file cannot be read; `RemoteError` where remote storage gave no usable answer.
    """
    if is_source(path_or_source):
        source: Source = path_or_source
        return source
    if isinstance(path_or_source, (str, os.PathLike)):
        return _open_path(os.fspath(path_or_source))
    if isinstance(path_or_source, np.ndarray):
        return ArraySource(path_or_source)
    if isinstance(path_or_source, (list, tuple)) and all(isinstance(item, np.ndarray) for item in path_or_source):
        return ArraySource(path_or_source)
    if is_hugging_face(path_or_source):
        return HuggingFaceSource(path_or_source)
    raise ValueError(f"a {type(path_or_source).__name__} is not a source of photographs. Accepted: {ACCEPTED}.")


def _open_path(path: str) -> Source:
    url = as_url(path)
    if url is not None:
        return open_url(url)
    if os.path.isdir(path):
        shards = locate(path)
        if shards is not None:
            return ShardSource(*shards)
        return open_container_folder(path) or FolderSource(path)
    if not os.path.lexists(path):
        if is_pattern(path):
            return open_pattern(path, expand(path))
        raise ValueError(
            f"{printable(path)!r} does not exist (the current folder is {printable(os.getcwd())}). "
            f"Accepted: {ACCEPTED}."
        )
    extension = os.path.splitext(path)[1].lower()
    if extension in LIST_EXTENSIONS:
        return FileListSource(path)
    if is_photograph_name(path):
        return SingleSource(path)
    source = open_container(path) if os.path.isfile(path) else None  # a pipe would be waited for
    if source is not None:
        return source
    if not extension:
        return SingleSource(path)
    raise ValueError(
        f"{printable(path)!r} is neither a photograph nor a list, by its name, nor a file of many images that is read, "
        f"by its content. Accepted: {ACCEPTED}. "
        "If it is a photograph all the same, pass augpipe.datasets.single.SingleSource(path)."
    )
