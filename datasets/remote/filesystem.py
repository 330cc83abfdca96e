"""Remote file systems of fsspec: opened once a process, asked with retries, their answers checked."""

import errno
import os
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from augpipe.datasets.remote.http import Answer, client_options, fetch_part, fetch_whole
from augpipe.datasets.remote.remote_error import LastingError, PassingError, reason_of
from augpipe.datasets.remote.retry import with_retries
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import is_http, protocol_of, shown

Value = TypeVar("Value")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_VERSION_FIELDS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "mtime", "created")


class RemoteFileSystem:
    """Asks for files by URL; any number of threads may. After a fork the child opens file systems of its own."""

    def __init__(self, settings: RemoteSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._systems: dict[str, Any] = {}
        self._process = os.getpid()

    def part(self, url: str, start: int, num_bytes: int, total_bytes: int | None = None) -> Answer:
        """`num_bytes` from `start`, or fewer where the file ends before.

        Args:
            url: the file's.
            start: of the part.
            num_bytes: its length.
            total_bytes: the file's length, where it is known; only HTTP does not need it, as each answer says it; not
                asked for then, nor the file's state.

        Raises:
            RemoteError: no usable answer came.
            FileNotFoundError: there is no such file.
            ImportError: a package is missing.
            ValueError: no such protocol.
        """
        system = self._system(url)
        if is_http(url):
            return self._http(system, url, fetch_part, start, num_bytes)
        return self._asked(url, lambda: _part(system, url, start, num_bytes, total_bytes))

    def whole(self, url: str, most_bytes: int) -> Answer:
        """A file of at most `most_bytes`; raises as `part` does, and `RemoteError` for a longer one."""
        system = self._system(url)
        if is_http(url):
            return self._http(system, url, fetch_whole, most_bytes)
        return self._asked(url, lambda: _whole(system, url, most_bytes))

    def files_in(self, folder: str, *, deep: bool) -> list[tuple[str, int, str]]:
        """(URL, bytes, version) of the files in a folder, in folders below it too if `deep`; sorted by URL.

        Raises:
            RemoteError, FileNotFoundError, ImportError, ValueError: as `part`; ValueError where there are no folders.
        """
        if is_http(folder):
            raise ValueError(
                f"{shown(folder)} cannot be listed: HTTP has no folders. Name the files: a pattern such as "
                "shard-{000000..000009}.tar, or the folder of a data set that augpipe prepare wrote."
            )
        system = self._system(folder)
        depth = None if deep else 1
        found = self._asked(folder, lambda: system.find(folder, maxdepth=depth, detail=True))
        files = [(_url_in(system, folder, name), *_facts(info)) for name, info in found.items()]
        return sorted(files, key=lambda file: os.fsencode(file[0]))

    def matching(self, pattern: str) -> list[str]:
        """The files that a pattern with `*`, `?` or `[...]` names, sorted by URL; raises as `files_in`."""
        if is_http(pattern):
            raise ValueError(
                f"{shown(pattern)!r}: HTTP has no folders, in which to look for *. Write the numbers in braces, as in "
                "shard-{000000..000009}.tar."
            )
        system = self._system(pattern)
        found = self._asked(pattern, lambda: system.glob(pattern, detail=True))
        folder = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        names = [_url_in(system, folder, name) for name, info in found.items() if info.get("type") == "file"]
        return sorted(names, key=os.fsencode)

    def _http(self, system: Any, url: str, fetch: Any, *arguments: int) -> Answer:
        from fsspec.asyn import sync
        from fsspec.exceptions import FSTimeoutError

        def attempt(left_s: float) -> Answer:
            try:
                answer: Answer = sync(system.loop, fetch, system, url, *arguments, timeout=left_s)
            except FSTimeoutError as problem:
                raise PassingError(f"no whole answer within the {left_s:.0f} s that were left") from problem
            return answer

        return with_retries(attempt, url, self.settings)

    def _asked(self, url: str, ask: Callable[[], Value]) -> Value:
        def attempt(_: float) -> Value:
            try:
                return ask()
            except (PassingError, LastingError):
                raise
            except FileNotFoundError as problem:
                raise FileNotFoundError(errno.ENOENT, "there is no such file", shown(url)) from problem
            except PermissionError as problem:
                raise LastingError(f"it is refused ({reason_of(problem)}). Check the credentials") from problem
            except (ValueError, TypeError, NotImplementedError, ImportError) as problem:
                raise LastingError(reason_of(problem)) from problem
            except Exception as problem:  # each file system has exceptions of its own for what may pass
                raise PassingError(reason_of(problem)) from problem

        return with_retries(attempt, url, self.settings)

    def _system(self, url: str) -> Any:
        if self._process != os.getpid():  # a fork copies locks as they are, and connections that the parent uses
            self._lock, self._systems, self._process = threading.Lock(), {}, os.getpid()
        protocol = protocol_of(url)
        with self._lock:
            system = self._systems.get(protocol)
            if system is None:
                system = self._systems[protocol] = open_file_system(protocol, url, self.settings)
        return system


def open_file_system(protocol: str, url: str, settings: RemoteSettings) -> Any:
    """fsspec's file system for a protocol.

    Raises:
        ImportError: a package is missing; says how to install it.
        ValueError: there is no such protocol, or the options do not fit.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f'{shown(url)} is read with fsspec: pip install "augpipe[remote]"') from error
    try:
        if protocol in ("http", "https"):
            return fsspec.filesystem(protocol, **client_options(settings), skip_instance_cache=True)
        return fsspec.filesystem(protocol, **settings.storage_options, use_listings_cache=False)
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        command = f"pip install {package}" if package else 'pip install "augpipe[remote]"'
        if package is None and protocol not in ("http", "https"):
            command = str(error)
        raise ImportError(f"{shown(url)} cannot be read, since a package is missing: {command}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{shown(url)} cannot be opened: {error}") from error


def _url_in(system: Any, folder: str, name: str) -> str:
    """The URL of a file that was listed, written as its folder's is: file systems give names of their own."""
    inner = system._strip_protocol(folder).rstrip("/") + "/"
    if not name.startswith(inner):
        raise ValueError(f"{shown(folder)} lists {name!r}, which does not lie in it")
    return f"{folder.rstrip('/')}/{name.removeprefix(inner)}"


def _part(system: Any, url: str, start: int, num_bytes: int, total_bytes: int | None) -> Answer:
    total, version = _facts(system.info(url)) if total_bytes is None else (total_bytes, "")
    data = system.cat_file(url, start=start, end=min(start + num_bytes, total)) if start < total else b""
    expected = max(min(start + num_bytes, total) - start, 0)
    if len(data) != expected:
        raise PassingError(f"{len(data)} bytes came, and {expected} were asked for")
    return Answer(data, total, version)


def _whole(system: Any, url: str, most_bytes: int) -> Answer:
    total, version = _facts(system.info(url))
    if total > most_bytes:
        raise LastingError(f"the file has {total} bytes, and at most {most_bytes} are expected of it")
    data = system.cat_file(url)
    if len(data) != total:
        raise PassingError(f"{len(data)} bytes came, and the file has {total}")
    return Answer(data, total, version)


def _facts(info: dict[str, Any]) -> tuple[int, str]:
    if info.get("type") == "directory":
        raise LastingError("it is a folder, and a file was asked for")
    if not isinstance(info.get("size"), int):
        raise LastingError("its length is not known")
    return info["size"], next((str(info[name]) for name in _VERSION_FIELDS if info.get(name)), "")
