"""Files by HTTP through the session of fsspec's file system, with every answer checked against what was asked for.

The file system's own `cat_file` takes what comes: the whole file where a part was asked for, another part, too many
bytes or too few.
"""

import errno
import re
from typing import Any, NamedTuple

from augpipe.datasets.remote.remote_error import LastingError, PassingError, reason_of
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")
_PASSING = frozenset((408, 425, 429))
_FORBIDDEN = frozenset((401, 403, 407))
_MISSING = frozenset((404, 410))
_MOST_PAUSE_S = 3600.0


class Answer(NamedTuple):
    """What a server said of a file."""

    data: bytes
    total_bytes: int
    """The length of the whole file."""
    version: str
    """The server's word for the file's state, by which a change shows; empty where it has none."""


def client_options(settings: RemoteSettings) -> dict[str, Any]:
    """Options for fsspec's file system: the time limits, which are endless or 5 minutes in all if left alone."""
    import aiohttp

    limits = aiohttp.ClientTimeout(
        total=None, sock_connect=settings.connect_timeout_s, sock_read=settings.stall_timeout_s
    )
    options = dict(settings.storage_options)
    options["client_kwargs"] = {"timeout": limits, **options.get("client_kwargs", {})}
    return options


async def fetch_part(system: Any, url: str, start: int, num_bytes: int) -> Answer:
    """`num_bytes` from `start`, or fewer where the file ends before.

    Raises:
        PassingError, LastingError: there is no such answer.
        FileNotFoundError: nor such a file.
    """
    async with _Request(system, url, {"Range": f"bytes={start}-{start + num_bytes - 1}"}) as response:
        said = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status == 416:
            if said is not None and said[3] == "0" and start == 0:
                return Answer(b"", 0, _version(response))
            raise LastingError(f"the file ends before byte {start} (HTTP 416): it is shorter than it was, or was said")
        if response.status == 200:
            raise LastingError(
                "the server sent the whole file where a part was asked for (HTTP 200): it does not know range "
                "requests. Copy the data set here, or have it served by one that does (nginx, Apache, S3, ...)"
            )
        if response.status != 206:
            raise PassingError(f"HTTP {response.status} is not an answer to a request for a part")
        if said is None or said[1] is None or said[3] == "*":
            raise PassingError(
                f"the answer does not say which part it is (Content-Range {_header(response, 'Content-Range')})"
            )
        first, last, total = int(said[1]), int(said[2]), int(said[3])
        if first != start or last != min(start + num_bytes, total) - 1:
            raise PassingError(
                f"bytes {first} to {last} of {total} were sent, and {start} to {start + num_bytes - 1} were asked for"
            )
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise PassingError(f"the part came compressed ({_header(response, 'Content-Encoding')}), unasked")
        data = await _body(response, last + 1 - first)
        if len(data) != last + 1 - first:
            more = "more than" if len(data) > last + 1 - first else f"{len(data)} of"
            raise PassingError(f"the answer held {more} the {last + 1 - first} bytes that it spoke of")
        return Answer(data, total, _version(response))


async def fetch_whole(system: Any, url: str, most_bytes: int) -> Answer:
    """A small file; more than `most_bytes` are not taken.

    Raises:
        PassingError, LastingError: there is no such answer.
        FileNotFoundError: nor such a file.
    """
    async with _Request(system, url, {}) as response:
        if response.status != 200:
            raise PassingError(f"HTTP {response.status} is not an answer to a request for a file")
        length = response.headers.get("Content-Length", "")
        data = await _body(response, most_bytes)
        if len(data) > most_bytes:
            raise LastingError(f"the file has more than the {most_bytes} bytes that are expected of it at most")
        if length.isdigit() and "Content-Encoding" not in response.headers and len(data) != int(length):
            raise PassingError(f"the answer held {len(data)} of the {length} bytes that it spoke of")
        return Answer(data, len(data), _version(response))


class _Request:
    """An answer whose status is of those that have a body of use; what goes wrong meanwhile becomes a reason."""

    def __init__(self, system: Any, url: str, headers: dict[str, str]) -> None:
        self._system = system
        self._url = url
        self._headers = {"Accept-Encoding": "identity", **headers}

    async def __aenter__(self) -> Any:
        import aiohttp

        session = await self._system.set_session()
        options = dict(self._system.kwargs)
        headers = {**options.pop("headers", {}), **self._headers}
        try:
            self._response = await session.get(self._system.encode_url(self._url), headers=headers, **options)
        except (aiohttp.ClientError, OSError) as problem:
            raise _reason(problem) from problem
        try:
            _check_status(self._response, self._url)
        except BaseException:
            self._response.close()
            raise
        return self._response

    async def __aexit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        import aiohttp

        # not released, but closed where something is wrong: what else comes would be the next answer's begin
        if problem is None and self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()
        if isinstance(problem, (aiohttp.ClientError, OSError)):
            raise _reason(problem) from problem


async def _body(response: Any, most_bytes: int) -> bytes:
    """The body, and never more than one byte above `most_bytes`, however much is sent."""
    parts: list[bytes] = []
    wanted = most_bytes + 1
    while wanted > 0 and (part := await response.content.read(min(wanted, 1 << 20))):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _check_status(response: Any, url: str) -> None:
    status = response.status
    if status < 400 or status == 416:
        return
    said = f"HTTP {status} {response.reason or ''}".rstrip()
    if status in _MISSING:
        raise FileNotFoundError(errno.ENOENT, f"there is no such file ({said})", shown(url))
    if status in _FORBIDDEN:
        raise LastingError(f"the server refuses it ({said}). Check the URL, and the credentials if it needs some")
    if status in _PASSING or status >= 500:
        raise PassingError(said, _asked_pause(response))
    raise LastingError(said)


def _asked_pause(response: Any) -> float | None:
    seconds = response.headers.get("Retry-After", "")
    return min(float(seconds), _MOST_PAUSE_S) if seconds.isascii() and seconds.isdigit() else None


def _version(response: Any) -> str:
    return response.headers.get("ETag") or response.headers.get("Last-Modified") or ""


def _header(response: Any, name: str) -> str:
    value = response.headers.get(name)
    return "missing" if value is None else f"{value!r:.60}"


def _reason(problem: BaseException) -> PassingError | LastingError:
    import aiohttp

    if isinstance(problem, (aiohttp.ClientSSLError, aiohttp.TooManyRedirects)):
        return LastingError(reason_of(problem))
    if isinstance(problem, aiohttp.ClientConnectorError):
        return PassingError(f"no connection: {problem.os_error.strerror or problem.os_error}")
    if isinstance(problem, aiohttp.ConnectionTimeoutError):
        return PassingError("no connection in time")
    if isinstance(problem, TimeoutError):
        return PassingError("the answer stalled")
    if isinstance(problem, aiohttp.ClientPayloadError):
        return PassingError("the connection ended within the answer")
    if isinstance(problem, aiohttp.ServerDisconnectedError):
        return PassingError("the connection ended before an answer")
    return PassingError(reason_of(problem))
