"""URLs of remote files and folders: which strings are some, how they are joined, and how they are shown."""

import os
import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from augpipe.datasets.metadata.names import printable

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/{1,2})(?=[^/])(.+)", re.DOTALL)
"""Two letters at least before the colon: one would be a drive of Windows."""
HTTP = ("http", "https")


def as_url(path: Any) -> str | None:
    """The URL that a path is, with its protocol in small letters; None for a local path.

    `pathlib.Path` makes one slash of two (`https:/host/data`): they are put back.
    """
    if not isinstance(path, (str, os.PathLike)):
        return None
    text = os.fspath(path)
    match = _URL.fullmatch(text) if isinstance(text, str) else None
    if match is None or (len(match[2]) == 1 and os.path.lexists(text)):
        return None
    return f"{match[1].lower()}://{match[3]}"


def protocol_of(url: str) -> str:
    """`s3` of `s3://bucket/folder`."""
    return url.partition("://")[0]


def is_http(url: str) -> bool:
    """Whether it is read by HTTP itself, which has no folders that could be listed."""
    return protocol_of(url) in HTTP


def name_of(url: str) -> str:
    """The last part of its path, without what a signed URL carries behind it."""
    return _without_query(url).rstrip("/").rpartition("/")[2]


def join(folder: str, *names: str) -> str:
    """The URL of a file in a folder; what stands behind a `?` (a signature) stays at the end."""
    plain, query = _without_query(folder), folder[len(_without_query(folder)) :]
    return "/".join((plain.rstrip("/"), *names)) + query


def parent(url: str) -> tuple[str, str]:
    """(folder, last part) of a URL."""
    plain, query = _without_query(url), url[len(_without_query(url)) :]
    above, _, name = plain.rstrip("/").rpartition("/")
    return above + query, name


def shown(url: str) -> str:
    """The URL for messages and names of samples: without user, password and signature, which are secrets."""
    if not is_http(url):
        return printable(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket without its fellow: whoever opens it says so
        return printable(_without_query(url))
    return printable(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))


def _without_query(url: str) -> str:
    return re.split(r"[?#]", url, maxsplit=1)[0] if is_http(url) else url
