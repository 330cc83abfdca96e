"""Our shards at a URL: heads of indices kept on the local disk and checked by their sum, the rest fetched in parts."""

import hashlib
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from augpipe.datasets.remote.blocks import BlockStore, RemoteFile
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown
from augpipe.datasets.shards.manifest import ShardInfo

_NUM_OPENED = 16
"""Indices asked for at once: it is the way there and back that takes time."""


def fetch_heads(store: BlockStore, urls: Sequence[str], shards: Sequence[ShardInfo]) -> list[str]:
    """Local paths of the heads of index files, without the row indexes, kept under their SHA-256.

    Raises:
        ValueError: what came has another sum, twice.
        RemoteError, FileNotFoundError: no usable answer came.
        OSError: the cache's folder cannot be written.
    """
    with ThreadPoolExecutor(min(_NUM_OPENED, len(urls))) as pool:
        return list(pool.map(lambda url, shard: _fetch_head(store, url, shard), urls, shards))


def _fetch_head(store: BlockStore, url: str, shard: ShardInfo) -> str:
    sha256 = shard.head_sha256
    key = f"index {sha256}"
    path = store.cache.path_of_file(key)
    try:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == sha256:
                os.utime(path)
                return path
    except OSError:
        pass  # it is not kept, or no longer
    found = ""
    for _ in range(2):  # what comes wrong once may have been changed on its way
        data = store.files.part(url, 0, shard.head_bytes, shard.index_bytes).data
        found = hashlib.sha256(data).hexdigest()
        if found == sha256:
            return store.cache.put_file(key, data)
    raise ValueError(
        f"{shown(url)} is not the index that the manifest knows: its SHA-256 is {found}, and the manifest says "
        f"{sha256}. Copy the data set there again."
    )


def remote_shards(urls: Sequence[str], shards: Sequence[ShardInfo], settings: RemoteSettings) -> RemoteFileSet:
    """The tar files, of which the manifest says all that is needed; none is asked for yet."""
    files = [
        RemoteFile(url, shard.num_bytes, "", f"shard {shard.sha256}") for url, shard in zip(urls, shards, strict=True)
    ]
    return RemoteFileSet.of(files, settings)


def remote_indices(urls: Sequence[str], shards: Sequence[ShardInfo], settings: RemoteSettings) -> RemoteFileSet:
    """The index files, as above; for the row indexes in them."""
    files = [
        RemoteFile(url, shard.index_bytes, "", f"rows {shard.index_sha256}")
        for url, shard in zip(urls, shards, strict=True)
    ]
    return RemoteFileSet.of(files, settings)


def remote_targets(urls: Sequence[str], shards: Sequence[ShardInfo], settings: RemoteSettings) -> RemoteFileSet:
    """The files with targets, as above."""
    files = [
        RemoteFile(url, shard.targets_bytes or 0, "", f"targets {shard.targets_sha256}")
        for url, shard in zip(urls, shards, strict=True)
    ]
    return RemoteFileSet.of(files, settings)


def read_checked(files: RemoteFileSet, shard: int, start: int, num_bytes: int, crc: int) -> bytes:
    """All that a sample takes in its shard, once its CRC-32 is the index's; asked for a second time if it is not.

    Raises:
        ValueError: it is not; the reason alone.
        RemoteError, FileNotFoundError: no usable answer came.
    """
    for _ in range(2):
        group = files.read(shard, num_bytes, start)
        if len(group) == num_bytes and zlib.crc32(group) == crc:
            return group
        files.forget(shard, num_bytes, start)
    raise ValueError(
        "the bytes that came are not those that were written (their CRC-32 differs from the index's, twice): the shard "
        "is damaged where it lies"
    )
