"""The live page's server: who may ask, what for, and that nothing is left behind."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, ops
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.preview.live import Answers, LiveServer, server
from tests.child_path import child_path

ROOT = Path(__file__).resolve().parents[3]
RECIPE = Recipe(name="small", ops=(ops.RandomCrop(size=32), ops.Rotate()))
IMAGES = np.random.default_rng(3).integers(0, 256, (5, 40, 50, 3), dtype=np.uint8)
PICTURES = {"recipe": RECIPE.model_dump(mode="json"), "samples": [0]}


@contextmanager
def running() -> Iterator[LiveServer]:
    """A server over five images, answering on a thread."""
    with LiveServer(Answers(ArraySource(IMAGES), RECIPE, title="five")) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join(10)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with running() as made:
        yield made


def ask(
    live: LiveServer, path: str, question: Any = None, *, whole: bool = False, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of a path behind the token, or of a `whole` one; a question is posted."""
    connection = http.client.HTTPConnection("127.0.0.1", live.server_port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if question is not None:
        sent = {"Content-Type": "application/json"} | sent
    body = question if isinstance(question, bytes | None) else json.dumps(question).encode()
    try:
        target = path if whole else f"/{live.token}/{path}"
        connection.request("GET" if body is None else "POST", target, body, sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_the_page_and_its_answers_come_by_the_whole_address(live: LiveServer) -> None:
    assert re.fullmatch(rf"http://127\.0\.0\.1:{live.server_port}/[\w-]{{32}}/", live.address)
    for path, kind in (("", "text/html"), ("page.css", "text/css"), ("page.js", "text/javascript")):
        status, headers, body = ask(live, path)
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, kind) and body
    assert json.loads(ask(live, "about")[2])["num_photographs"] == 5
    assert json.loads(ask(live, "photographs/3")[2])[-1]["id"] == 4
    assert ask(live, "thumbnails/4")[2][:2] == b"\xff\xd8"
    assert len(json.loads(ask(live, "pictures", PICTURES)[2])["pictures"]) == 12
    assert json.loads(ask(live, "open", {"text": RECIPE.to_toml()})[2])["recipe"]["name"] == "small"


@pytest.mark.parametrize("path", ["", "page.js", "about", "thumbnails/0", "photographs/0"])
def test_without_the_token_nothing_is_answered(live: LiveServer, path: str) -> None:
    token = live.token
    for wrong in ("", "/", f"/{token[:-1]}/", f"/{token}x/", f"/{token.swapcase()}/", "//", f"/x/{token}/", "/é/"):
        target = wrong.encode().decode("latin-1") + path
        raw = f"GET {target or '*'} HTTP/1.0\r\nHost: 127.0.0.1:{live.server_port}\r\n\r\n".encode("latin-1")
        with socket.create_connection(("127.0.0.1", live.server_port), timeout=10) as connection:
            connection.sendall(raw)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.0 403 ") and b"the token is missing or wrong" in answer, wrong
        assert token.encode() not in answer
    assert ask(live, f"/{path}?{token}", PICTURES, whole=True)[0] == 403


def test_other_hosts_are_refused(live: LiveServer) -> None:
    port = live.server_port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert ask(live, "about", Host=host)[0] == 200
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"127.0.0.1:{port}.evil.example", ""):
        status, _, body = ask(live, "about", Host=host)
        assert (status, b"schema" in body) == (403, False), host
    for hosts in ("", f"Host: evil.example\r\nHost: 127.0.0.1:{port}\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"GET /{live.token}/about HTTP/1.0\r\n{hosts}\r\n".encode())
            assert connection.makefile("rb").read().startswith(b"HTTP/1.0 403 ")


def test_other_origins_are_refused(live: LiveServer) -> None:
    port = live.server_port
    for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
        assert ask(live, "pictures", PICTURES, Origin=origin, Sec_Fetch_Site="same-origin")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"):
        assert ask(live, "pictures", PICTURES, Origin=origin)[0] == 403, origin
    for site in ("cross-site", "same-site"):
        assert ask(live, "thumbnails/0", Sec_Fetch_Site=site)[0] == 403
    assert ask(live, "", Sec_Fetch_Site="none")[0] == 200
    assert ask(live, "", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200, "a link, as in a terminal"
    assert ask(live, "open", {}, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        *("../../../../etc/passwd", "..%2f..%2fetc/passwd", "page/../server.py", "server.py", "page/index.html"),
        *("/etc/passwd", "thumbnails/../about", "thumbnails/-1", "thumbnails/5", "thumbnails/0x1", "thumbnails/%C2%B2"),
        *("thumbnails//etc/passwd", "thumbnails/" + "9" * 400, "photographs/..", "pictures", "index.html", "speed/"),
    ],
)
def test_what_is_not_there_is_refused(live: LiveServer, path: str) -> None:
    status, _, body = ask(live, path)
    assert status == 404 and b"root:" not in body and b"import" not in body


def test_every_answer_keeps_other_content_out(live: LiveServer) -> None:
    for path in ("", "about", "nothing", "thumbnails/9"):
        headers = ask(live, path)[1]
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert "Access-Control-Allow-Origin" not in headers
    for name in set(server.PAGE.values()):
        text = (ROOT / "augpipe/preview/live/page" / name).read_text(encoding="utf-8")
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == [], "the page works offline"
        assert "innerHTML" not in text and " style=" not in text and "onclick" not in text


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"[1]", {}, 400),
        (b"{", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"\xff", {}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b"{}", {"Content_Length": "-1"}, 411),
        (b"{}", {"Content_Length": str(2**20 + 1)}, 413),
        (b"{}", {"Content_Length": "9" * 30}, 413),
    ],
)
def test_a_question_that_is_none_is_refused(
    live: LiveServer, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert ask(live, "pictures", body, **headers)[0] == status


def test_who_says_nothing_is_hung_up_on(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.Handler, "timeout", 0.2)
    head = f"POST /{live.token}/pictures HTTP/1.0\r\nHost: 127.0.0.1:{live.server_port}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    for said in (b"", b"GET /", head.encode()):
        with socket.create_connection(("127.0.0.1", live.server_port), timeout=10) as connection:
            connection.sendall(said)
            assert connection.recv(1) == b""


def test_too_many_at_once_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_THREADS", 2)
    with running() as live:
        idle = [socket.create_connection(("127.0.0.1", live.server_port), timeout=10) for _ in range(2)]
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(live, "about")
        for connection in idle:
            connection.close()
        assert ask(live, "about")[0] == 200


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux counts memory there")
def test_two_hundred_quick_moves_leave_no_thread_and_no_memory(live: LiveServer) -> None:
    def move(number: int) -> bool:
        answer = json.loads(ask(live, "pictures", {**PICTURES, "seed": number})[2])
        assert len(answer.get("pictures", ())) == 12 or answer["superseded"]
        return "pictures" in answer

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(move, range(100)))  # each thread's memory pool is filled
        threads, before = threading.active_count(), resident_bytes()
        drawn = list(clients.map(move, range(200)))
        give_up = time.monotonic() + 10
        while threading.active_count() > threads and time.monotonic() < give_up:
            time.sleep(0.01)
        assert threading.active_count() <= threads
    assert any(drawn[-8:]) and sum(drawn) < 200, "the newest of those on their way is drawn, and not all are"
    assert resident_bytes() - before < 8 * 2**20, "pictures of 32 x 32 pixels take 0.1 MB a move"


def test_a_fault_of_ours_is_told_and_ends_nothing(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyError("gone")

    monkeypatch.setattr(live.answers, "about", fail)
    status, _, body = ask(live, "about")
    assert (status, body) == (500, b"a fault of augpipe's: KeyError: 'gone'\n")
    assert "Traceback" in capsys.readouterr().err
    assert ask(live, "")[0] == 200


# the command


@contextmanager
def command(folder: Path, *more: str) -> "Iterator[subprocess.Popen[str]]":
    arguments = [sys.executable, "-m", "augpipe", "preview", str(folder), "--serve", *more]
    environment = {**os.environ, "PYTHONPATH": child_path(ROOT)}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    root = tmp_path_factory.mktemp("photographs")
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).resize((400, 300)).save(root / f"{number}.jpg")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("is_drawing", [False, True])
def test_ctrl_c_ends_it_cleanly(folder: Path, is_drawing: bool) -> None:
    with command(folder, "--size", "64", "--sample", "3") as process:
        assert process.stdout is not None
        address, more = process.stdout.readline().strip(), process.stdout.readline()
        assert more == "Open it in a browser on this machine. Ctrl-C ends it.\n"
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]+/)", address)
        assert found, address
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        connection.request("GET", f"{found[2]}about")
        about = json.loads(connection.getresponse().read())
        assert (about["samples"], about["recipe"]["name"]) == ([3], "deep_image")
        if is_drawing:
            body = json.dumps({"recipe": about["recipe"], "samples": [0, 1, 2]})
            connection.request("POST", f"{found[2]}pictures", body, {"Content-Type": "application/json"})
            time.sleep(0.05)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=30)
        connection.close()
    assert (process.returncode, errors) == (0, "")
    assert said == "ended\n"
    assert time.monotonic() - began < 20


def test_a_port_in_use_is_told(folder: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        command(folder, "--port", str(taken.getsockname()[1])) as process,
    ):
        said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (2, "")
    assert "Leave --port out for a free one." in errors
