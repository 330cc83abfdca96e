"""A real HTTP server on localhost that serves a folder with range requests, and misbehaves when told to."""

import contextlib
import re
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from augpipe.datasets.remote.settings import RemoteSettings

Fault = Callable[["Handler", bytes, int, int, int], None]
"""Answers instead: gets the handler, the file, first and last byte asked for (-1: no range), and the file's length."""


class Server(ThreadingHTTPServer):
    """Its `faults` are used up one a request, and the last one of a `forever` never is."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.forever: dict[str, Fault] = {}
        self.etags: dict[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.accepted: set[str | None] = set()
        """Encodings that were asked for."""
        self.ended = threading.Event()
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()

    def url(self, name: str = "") -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def num_requests(self, name: str) -> int:
        return sum(path == f"/{name}" for path, _ in self.requests)

    def ranges(self, name: str) -> list[str | None]:
        return [asked for path, asked in self.requests if path == f"/{name}"]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or a fault that closed the connection."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        asked = self.headers.get("Range")
        with self.server.lock:
            self.server.requests.append((f"/{name}", asked))
            self.server.accepted.add(self.headers.get("Accept-Encoding"))
            faults = self.server.faults[name]
            fault = faults.popleft() if faults else self.server.forever.get(name)
        path = self.server.root / name
        data = path.read_bytes() if path.is_file() else None
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
        first, last = (int(match[1]), int(match[2])) if match else (-1, -1)
        if fault is not None:
            self.close_connection = True
            fault(self, data or b"", first, last, len(data or b""))
        elif data is None:
            self.answer(404, b"no such file")
        elif match is None:
            self.answer(200, data, {"ETag": self.etag(name, data)})
        elif first >= len(data):
            self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            self.part(data, first, last, {"ETag": self.etag(name, data)})

    def etag(self, name: str, data: bytes) -> str:
        return self.server.etags.get(name, f'"{hash(data) & 0xFFFFFFFF:x}"')

    def part(self, data: bytes, first: int, last: int, headers: dict[str, str] | None = None) -> None:
        last = min(last, len(data) - 1)
        self.answer(
            206,
            data[first : last + 1],
            {"Content-Range": f"bytes {first}-{last}/{len(data)}", **(headers or {})},
        )

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def status(code: int, headers: dict[str, str] | None = None) -> Fault:
    """Answer with an error."""
    return lambda handler, data, first, last, total: handler.answer(code, b"trouble", headers)


def long_no(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Say with many words that there is no such file."""
    handler.answer(404, bytes(1 << 20))


def drops_before(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Close the connection without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def drops_within(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Close it in the middle of the body."""
    last = min(last, total - 1) if first >= 0 else total - 1
    first = max(first, 0)
    handler.send_response(206 if handler.headers.get("Range") else 200)
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.send_header("Content-Range", f"bytes {first}-{last}/{total}")
    handler.end_headers()
    handler.wfile.write(data[first : (first + last) // 2])
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def stalls_before(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Take the request, and say nothing until the test ends."""
    handler.server.ended.wait(60)


def stalls_within(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Send a part of the body, and no more until the test ends."""
    last = min(last, total - 1) if first >= 0 else total - 1
    first = max(first, 0)
    handler.send_response(206 if handler.headers.get("Range") else 200)
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.send_header("Content-Range", f"bytes {first}-{last}/{total}")
    handler.end_headers()
    handler.wfile.write(data[first : (first + last) // 2])
    handler.wfile.flush()
    handler.server.ended.wait(60)


def trickles(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Send a byte every 50 ms: it never stalls, and never ends."""
    handler.send_response(206 if handler.headers.get("Range") else 200)
    handler.send_header("Content-Length", "100000")
    handler.send_header("Content-Range", f"bytes {max(first, 0)}-{max(first, 0) + 99_999}/{10**9}")
    handler.end_headers()
    while not handler.server.ended.wait(0.05):
        handler.wfile.write(b"x")


def whole(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Ignore the range, as Python's own http.server does."""
    handler.answer(200, data)


def other_part(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Send another part than was asked for, and say so."""
    handler.part(data, first + 1, last)


def smaller_part(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Send a byte less than was asked for, and say so."""
    handler.part(data, first, last - 1)


def unnamed_part(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Do not say which part it is."""
    handler.answer(206, data[first : last + 1])


def short(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Name the right part, and send less of it, as long as its Content-Length says."""
    last = min(last, total - 1)
    handler.answer(206, data[first:last], {"Content-Range": f"bytes {first}-{last}/{total}"})


def long(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Name the right part, and send 4 MiB more."""
    last = min(last, total - 1)
    body = data[first : last + 1] + bytes(4 << 20)
    with contextlib.suppress(OSError):
        handler.answer(206, body, {"Content-Range": f"bytes {first}-{last}/{total}"})


def endless(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Send chunks for ever."""
    last = min(last, total - 1)
    handler.send_response(206 if handler.headers.get("Range") else 200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.send_header("Content-Range", f"bytes {first}-{last}/{total}")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while not handler.server.ended.is_set():
            handler.wfile.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")


def compressed(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Compress what was asked for as it is."""
    import gzip

    last = min(last, total - 1)
    headers = {"Content-Range": f"bytes {first}-{last}/{total}", "Content-Encoding": "gzip"}
    handler.answer(206, gzip.compress(data[first : last + 1]), headers)


def corrupts(handler: Handler, data: bytes, first: int, last: int, total: int) -> None:
    """Send as much as was asked for, with every byte changed."""
    changed = bytes(byte ^ 0x55 for byte in data)
    if first < 0:
        handler.answer(200, changed)
    else:
        handler.part(changed, first, last)


@contextlib.contextmanager
def serving(root: Path) -> Iterator[Server]:
    """A server for a folder, for as long as the block lasts."""
    with Server(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join(30)


def quick(folder: Path, **changes: Any) -> RemoteSettings:
    """Settings with a cache of their own, and time limits for tests."""
    fields: dict[str, Any] = {
        "cache_folder": str(folder),
        "cache_bytes": 64 << 20,
        "block_bytes": 4096,
        "connect_timeout_s": 5.0,
        "stall_timeout_s": 10.0,
        "total_timeout_s": 20.0,
        "max_attempts": 3,
        "first_pause_s": 0.01,
        "max_pause_s": 0.05,
    }
    return RemoteSettings(**{**fields, **changes})


def contents(server: Server, names: Sequence[str]) -> dict[str, bytes]:
    """What lies in the folder."""
    return {name: (server.root / name).read_bytes() for name in names}
