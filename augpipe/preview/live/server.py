"""The server of the live page: it answers this machine only, and only requests that know its token."""

import contextlib
import hmac
import json
import secrets
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from augpipe.preview.live.answers import Answers

HOST = "127.0.0.1"
MOST_BODY_BYTES = 2**20
MOST_THREADS = 32
"""Requests that are answered at once; a browser sends six."""
IDLE_S = 10.0
"""How long a connection may say nothing."""
LAST_S = 5.0
"""How long Ctrl-C waits for what is being drawn."""
PAGE = {"": "index.html", "page.css": "page.css", "page.js": "page.js", "controls.js": "controls.js"}
"""What follows the token in an address -> the page's file; a name from outside never becomes a path."""
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is not answered, with its status and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class LiveServer(ThreadingHTTPServer):
    """Answers on 127.0.0.1, on a thread a request, to requests that name the token.

    Args:
        answers: what is asked for.
        port: 0 takes a free one.

    Raises:
        OSError: the port is in use.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answers: Answers, port: int = 0) -> None:
        self.answers = answers
        self.token = secrets.token_urlsafe(24)
        self._free = threading.BoundedSemaphore(MOST_THREADS)
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        """The page's address, with the token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """What a request may call this server: any other name is a site's that points here (DNS rebinding)."""
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"

    def server_bind(self) -> None:
        """Without asking the network for this machine's name, as `HTTPServer` does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; where too many are answered already and none ends soon, hang up."""
        if not self._free.acquire(timeout=1.0):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread of one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is not one; anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """One request: who asks is checked first, then what for."""

    server: LiveServer
    timeout = IDLE_S
    server_version = "augpipe"
    sys_version = ""

    def do_GET(self) -> None:
        """The page's files, its lists and its thumbnails."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """A question in JSON."""
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the token stands in every request."""

    def _answer(self, find: Callable[[list[str]], tuple[str, bytes]]) -> None:
        try:
            kind, body = find(self._checked_path())
            status = HTTPStatus.OK
        except Refused as refused:
            status, kind, body = refused.status, "text/plain; charset=utf-8", f"{refused}\n".encode()
        except OSError:
            raise  # the browser has gone
        except Exception as fault:  # the page shows it and lives on; the terminal has where it lies
            traceback.print_exc()
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8"
            body = f"a fault of augpipe's: {type(fault).__name__}: {fault}\n".encode(errors="replace")
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _checked_path(self) -> list[str]:
        """The parts of the path behind the token.

        Raises:
            Refused: the request comes from another site, or does not know the token.
        """
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, f"this server is called {' or '.join(self.server.hosts)}.")
        origins = self.headers.get_all("Origin") or []
        is_ours = all(origin in [f"http://{host}" for host in self.server.hosts] for origin in origins)
        is_link = self.command == "GET" and self.headers.get("Sec-Fetch-Mode") == "navigate"  # as in a terminal
        is_ours &= is_link or self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not is_ours:
            raise Refused(HTTPStatus.FORBIDDEN, "this server answers its own page, and no other site.")
        token, slash, rest = self.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise Refused(
                HTTPStatus.FORBIDDEN, "the token is missing or wrong: take the whole address that augpipe printed."
            )
        return rest.partition("?")[0].split("/")

    def _get(self, path: list[str]) -> tuple[str, bytes]:
        answers = self.server.answers
        match path:
            case [name] if name in PAGE:
                file = PAGE[name]
                return TYPES[file.rpartition(".")[2]], files(__package__).joinpath("page", file).read_bytes()
            case ["about"]:
                return _as_json(answers.about())
            case ["photographs", number] if number.isdecimal() and len(number) < 19:
                return _as_json(answers.photographs(int(number)))
            case ["thumbnails", number] if number.isdecimal() and len(number) < 19:
                try:
                    return "image/jpeg", answers.thumbnail(int(number))
                except (ValueError, OSError) as error:
                    raise Refused(HTTPStatus.NOT_FOUND, str(error)) from error
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such page.")

    def _post(self, path: list[str]) -> tuple[str, bytes]:
        answers = self.server.answers
        known = {"pictures": answers.pictures, "open": answers.open, "speed": answers.speed}
        if len(path) != 1 or path[0] not in known:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such question.")
        return _as_json(known[path[0]](self._question()))

    def _question(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a question is JSON.")
        if not length.isdecimal():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "a question has a Content-Length.")
        if len(length) > 9 or int(length) > MOST_BODY_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has {MOST_BODY_BYTES:,} bytes at most.")
        body = self.rfile.read(int(length))
        try:
            question = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "the question is not JSON.") from error
        if not isinstance(question, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "a question is a JSON object.")
        return question


def _as_json(data: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(data).encode()


def serve(answers: Answers, port: int, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C.

    Args:
        answers: what is asked for.
        port: 0 takes a free one.
        say: told the page's address once it is served.

    Raises:
        ValueError: the port is in use.
    """
    try:
        server = LiveServer(answers, port)
    except OSError as error:
        raise ValueError(
            f"--port {port} cannot be served: {error.strerror}. Leave --port out for a free one."
        ) from error
    with server, contextlib.suppress(KeyboardInterrupt):
        say(server.address)
        server.serve_forever()
    answers.finish(LAST_S)
