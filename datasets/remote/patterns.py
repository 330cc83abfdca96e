"""Patterns and folders of remote files: what `patterns.expand` and a listing are for local ones."""

import os
from collections.abc import Sequence

from augpipe.datasets.files.patterns import MAX_FILES, braces
from augpipe.datasets.files.splits import files_of_split
from augpipe.datasets.remote.blocks import BlockStore, store_for
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import as_url, is_http, name_of, shown

_WILD = "*?["


def is_remote_pattern(url: str) -> bool:
    """Whether a URL stands for several files; over HTTP `?` and `[` belong to the URL."""
    return "{" in url or any(letter in url for letter in (_WILD[:1] if is_http(url) else _WILD))


def expand_remote(pattern: str, store: BlockStore) -> list[str]:
    """The files that a pattern names: braces in the order written, then `*`, `?` and `[...]` sorted by bytes.

    A file that braces alone name is taken to be there: whoever opens it finds out.

    Raises:
        ValueError: no file has such a name, they are more than 100,000, or over HTTP there is a `*`.
        RemoteError, FileNotFoundError, ImportError: the folder cannot be listed.
    """
    found: list[str] = []
    for url in braces(pattern):
        if any(letter in url for letter in (_WILD[:1] if is_http(url) else _WILD)):
            names = store.files.matching(url)
            if not names:
                raise ValueError(f"no file is named like {shown(url)!r}. Check its spelling.")
            found += names
        else:
            found.append(url)
        if len(found) > MAX_FILES:
            raise ValueError(f"{shown(pattern)!r} names more than {MAX_FILES} files. Check the numbers in it.")
    return found


def remote_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extension: str,
    remote: RemoteSettings | None,
    split: str | None = None,
) -> list[str] | None:
    """The URLs that `paths` stands for; None where it is local.

    Raises:
        ValueError: there is no such file, or some are URLs and others are not.
        RemoteError, FileNotFoundError, ImportError: a folder cannot be listed.
    """
    if isinstance(paths, (str, os.PathLike)):
        url = as_url(paths)
        return None if url is None else files_of(url, extension, store_for(remote), split)
    urls = [as_url(path) for path in paths]
    found = [url for url in urls if url is not None]
    if found and len(found) != len(urls):
        raise ValueError(f"{len(found)} of {len(urls)} files are URLs, e.g. {shown(found[0])}, and others are not.")
    return found or None


def files_of(url: str, extension: str, store: BlockStore, split: str | None = None) -> list[str]:
    """The files of one kind that a URL stands for: a file, a pattern, or all that lie in a folder, sorted.

    Raises:
        ValueError: there is none, they are of several splits, or not of the one asked for.
        RemoteError, FileNotFoundError, ImportError: the folder cannot be listed.
    """
    is_folder = not is_remote_pattern(url) and not name_of(url).lower().endswith(extension)
    if split is not None and not is_folder:
        raise ValueError(f"split={split!r} chooses from a folder, and files are given. Leave it out.")
    if is_remote_pattern(url):
        return expand_remote(url, store)
    if not is_folder:
        return [url]
    found = visible(store.files.files_in(url, deep=False), extension)
    if not found:
        raise ValueError(f"{shown(url)} holds no file *{extension}. Give the folder that they lie in.")
    by_name = {name_of(file): file for file in found}
    return [by_name[name] for name in files_of_split(shown(url), list(by_name), split)]


def visible(files: Sequence[tuple[str, int, str]], extension: str) -> list[str]:
    """Those with an extension, without the hidden."""
    names = [url for url, _, _ in files]
    found = [url for url in names if url.lower().endswith(extension) and not name_of(url).startswith(".")]
    return sorted(found, key=os.fsencode)
