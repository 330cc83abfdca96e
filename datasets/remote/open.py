"""From a URL to a source."""

from augpipe.datasets.names import listed
from augpipe.datasets.parquet import ParquetSource
from augpipe.datasets.remote.folder import RemoteFolderSource
from augpipe.datasets.remote.patterns import is_remote_pattern
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.stores import store_for
from augpipe.datasets.remote.urls import is_http, name_of, shown
from augpipe.datasets.shards.manifest import MANIFEST_NAME, locate_url
from augpipe.datasets.shards.source import ShardSource
from augpipe.datasets.tar import TarSource
from augpipe.source import Source

ACCEPTED = (
    "the folder of a data set that augpipe prepare wrote, of one scale in it, or its manifest.json; a WebDataset tar "
    "file or a Parquet file, or a pattern of them such as shard-{000000..000009}.tar; and, where files can be listed "
    "(not over HTTP), a folder of tar files, of Parquet files, of photographs or of class folders"
)

_FILES = ("csv", "tsv", "txt", "tgz", "gz", "zip", "bin", "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff")


def open_url(url: str, remote: RemoteSettings | None = None) -> Source:
    """The source for a URL, by its name where it is a file, else by what the folder holds.

    Args:
        url: with its protocol, as `urls.as_url` gives it.
        remote: limits and the cache; the environment's if left out.

    Raises:
        ImportError: a package for the protocol is missing; says how to install it.
        ValueError: it is none of what is read; or it is damaged.
        RemoteError: no usable answer came.
        FileNotFoundError: there is no such file.
    """
    remote = remote or RemoteSettings()
    name = name_of(url).lower()
    if name.endswith(".tar"):
        return TarSource(url, remote=remote)
    if name.endswith(".parquet"):
        return ParquetSource(url, remote=remote)
    if is_remote_pattern(url) or (name != MANIFEST_NAME and name.rpartition(".")[2] in _FILES):
        raise ValueError(f"{shown(url)} is nothing that is read from a URL. Accepted: {ACCEPTED}.")
    shards = locate_url(url, remote)
    if shards is not None:
        return ShardSource(*shards, remote=remote)
    if is_http(url):
        raise ValueError(
            f"{shown(url)} holds no {MANIFEST_NAME} of ours, and HTTP has no folders to look into. "
            f"Accepted: {ACCEPTED}."
        )
    return _open_folder(url, remote)


def _open_folder(url: str, remote: RemoteSettings) -> Source:
    files = [name_of(file) for file, _, _ in store_for(remote).files.files_in(url, deep=False)]
    kinds = [kind for kind in (".tar", ".parquet") if any(name.lower().endswith(kind) for name in files)]
    if len(kinds) > 1:
        raise ValueError(f"{shown(url)} holds tar files and Parquet files ({listed(files)}). Give a pattern: *.tar")
    if kinds:
        return TarSource(url, remote=remote) if kinds == [".tar"] else ParquetSource(url, remote=remote)
    return RemoteFolderSource(url, remote=remote)
