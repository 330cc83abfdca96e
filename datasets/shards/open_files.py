"""The files of a scale's shards are opened: indices, and the files with targets."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from augpipe.datasets.files.descriptors import FileSet, absolute
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.remote.blocks import store_for
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown
from augpipe.datasets.shards.index import ShardIndex, index_path
from augpipe.datasets.shards.manifest import Scale, ShardInfo
from augpipe.datasets.shards.remote_shards import fetch_heads
from augpipe.datasets.shards.shard_targets import targets_path
from augpipe.validation.plural import count

_NUM_OPENERS = 16
"""Threads that open indices: a disk, and a network drive even more, has most of them waiting."""
_SHARDS_A_TASK = 64


def target_file_set(paths: Sequence[str]) -> FileSet:
    """The targets' files next to shards that are there."""
    try:
        return FileSet([targets_path(path) for path in paths])
    except FileNotFoundError as error:
        raise ValueError(
            f"{printable(str(error.filename))} is missing: the manifest says that the shards have targets. Copy it "
            "there, or prepare the data set again."
        ) from error


def index_files(paths: Sequence[str]) -> FileSet:
    """The indices next to shards that are there."""
    try:
        return FileSet([index_path(path) for path in paths])
    except FileNotFoundError as error:
        path = next(path for path in paths if absolute(index_path(path)) == error.filename)
        raise ValueError(
            f"{printable(path)} has no index: {printable(os.path.basename(index_path(path)))} is not next to it. Copy "
            "it there, or prepare the data set again; augpipe prepare "
            f"'{printable(os.path.dirname(path))}/*.tar' NEW --keep makes one of the tar files as they are, whose "
            "classes are numbers."
        ) from error


def open_remote_indices(urls: Sequence[str], scale: Scale, settings: RemoteSettings) -> list[ShardIndex]:
    """The heads of indices at a distance."""
    indices = [ShardIndex.open(path, is_head=True) for path in fetch_heads(store_for(settings), urls, scale.shards)]
    for url, index, shard in zip(urls, indices, scale.shards, strict=True):
        _check_agree(shown(url), index, shard)
    return indices


def _check_agree(path: str, index: ShardIndex, shard: ShardInfo) -> None:
    found = index.num_samples, index.shard_bytes, index.shard_sha256
    if found != (shard.num_samples, shard.num_bytes, shard.sha256):
        raise ValueError(
            f"{printable(path)} belongs to another shard than the manifest's {shard.name}: it has "
            f"{count(index.num_samples, 'sample')} in {index.shard_bytes} bytes, and the manifest {shard.num_samples} "
            f"in {shard.num_bytes}. augpipe verify lists all that is damaged."
        )


def open_indices(paths: Sequence[str], shards: Sequence[ShardInfo]) -> list[ShardIndex]:
    """The indices of all shards; an error is the first shard's, however many there are."""
    if len(paths) <= _SHARDS_A_TASK:
        return [_open_index(path, shard) for path, shard in zip(paths, shards, strict=True)]

    def opened(first: int) -> list[ShardIndex]:
        some = slice(first, first + _SHARDS_A_TASK)
        return [_open_index(path, shard) for path, shard in zip(paths[some], shards[some], strict=True)]

    with ThreadPoolExecutor(_NUM_OPENERS) as pool:
        return [index for part in pool.map(opened, range(0, len(paths), _SHARDS_A_TASK)) for index in part]


def _open_index(path: str, shard: ShardInfo) -> ShardIndex:
    """The index of a shard, once it, the manifest and the tar file's length agree."""
    index = ShardIndex.open(index_path(path))
    _check_agree(index.path, index, shard)
    num_bytes = os.stat(path).st_size
    if num_bytes != shard.num_bytes:
        raise ValueError(
            f"{printable(path)} has {num_bytes} bytes, and the manifest says {shard.num_bytes}: it was cut short or "
            "changed. augpipe verify lists all that is damaged."
        )
    return index
