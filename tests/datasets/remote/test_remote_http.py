"""Parts of files from a server that errs, stalls, drops connections and sends other bytes than it should."""

import os
import pickle
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from augpipe.datasets.remote.blocks import BlockStore
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.remote_error import RemoteError
from tests.datasets.remote import misbehaving_server as faults
from tests.datasets.remote.misbehaving_server import Server, quick, serving

DATA = os.urandom(50_000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / "served"
    root.mkdir()
    (root / "a.bin").write_bytes(DATA)
    (root / "empty").write_bytes(b"")
    with serving(root) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> BlockStore:
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind", "")
    # short where it is waited for, long where a busy machine must not be taken for a stalled server
    return BlockStore(quick(tmp_path / "cache", stall_timeout_s=1.0 if "stalls" in (kind or "") else 10.0))


def test_any_part_is_read_and_none_twice(server: Server, store: BlockStore) -> None:
    file = store.find(server.url("a.bin"))
    assert file.num_bytes == len(DATA)
    for offset, length in ((0, 10), (4090, 12), (4096, 4096), (0, 50_000), (49_990, 100), (50_000, 5), (9, 0)):
        assert store.read(file, length, offset) == DATA[offset : offset + length]
    asked = server.num_requests("a.bin")
    assert store.read(file, 50_000, 0) == DATA
    assert server.num_requests("a.bin") == asked
    assert store.find(server.url("empty")).num_bytes == 0


def test_files_are_asked_for_as_they_are(server: Server, store: BlockStore) -> None:
    store.read(store.find(server.url("a.bin")), 10, 9000)
    store.files.whole(server.url("a.bin"), 100_000)
    assert server.accepted == {"identity"}, "what a server compresses comes in other parts"


def test_blocks_side_by_side_come_by_one_request(server: Server, store: BlockStore) -> None:
    file = store.find(server.url("a.bin"))
    store.read(file, 20_000, 8192)
    assert server.ranges("a.bin")[1:] == ["bytes=8192-28671"]


def test_reading_in_order_fetches_ahead_and_at_random_does_not(server: Server, store: BlockStore) -> None:
    file = store.find(server.url("a.bin"))
    for at in range(0, 50_000, 4096):
        store.read(file, 4096, at)
    assert server.num_requests("a.bin") < 8
    other = BlockStore(quick(Path(store.settings.cache_folder + "2")))
    file = other.find(server.url("a.bin"))
    before = server.num_requests("a.bin")
    for number in (9, 3, 7, 1, 5):
        other.read(file, 10, number * 4096)
    assert server.ranges("a.bin")[before:] == [
        f"bytes={number * 4096}-{number * 4096 + 4095}" for number in (9, 3, 7, 1, 5)
    ]


@pytest.mark.parametrize(
    ("changes", "num_fetched"),
    [
        ({}, [1, 1, 2, 3, 5, 1]),
        ({"read_ahead_blocks": 2}, [1, 1, 2, 3, 3, 3]),
        ({"read_ahead_blocks": 0}, [1] * 13),
        ({"cache_bytes": 2 * 4096 - 1}, [1] * 13),  # what came ahead would be dropped before it is read
    ],
)
def test_no_more_is_fetched_ahead_than_is_asked_for_or_kept(
    server: Server, tmp_path: Path, changes: dict[str, int], num_fetched: list[int]
) -> None:
    store = BlockStore(quick(tmp_path / "other", **changes))
    file = store.find(server.url("a.bin"))
    for at in range(0, 50_000, 4096):
        store.read(file, 4096, at)
    asked = [re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "") for asked in server.ranges("a.bin")]
    found = [-(-(int(part[2]) + 1 - int(part[1])) // 4096) for part in asked if part is not None]
    assert found == num_fetched


PASSING = {
    "503": (faults.status(503), "HTTP 503"),
    "500": (faults.status(500), "HTTP 500"),
    "429": (faults.status(429), "HTTP 429"),
    "drops before": (faults.drops_before, "the connection ended before an answer"),
    "drops within": (faults.drops_within, "the connection ended within the answer"),
    "stalls before": (faults.stalls_before, "the answer stalled"),
    "stalls within": (faults.stalls_within, "the answer stalled"),
    "another part": (faults.other_part, "were sent, and 4096 to 8191 were asked for"),
    "a smaller part": (faults.smaller_part, "bytes 4096 to 8190 of 50000 were sent, and 4096 to 8191 were asked for"),
    "a part without its place": (faults.unnamed_part, "does not say which part it is"),
    "too few bytes": (faults.short, "held 4095 of the 4096 bytes"),
    "too many bytes": (faults.long, "held more than the 4096 bytes"),
    "bytes without end": (faults.endless, "held more than the 4096 bytes"),
    "compressed": (faults.compressed, "compressed"),
}


@pytest.mark.parametrize("kind", PASSING)
def test_what_passes_is_tried_again(server: Server, store: BlockStore, kind: str) -> None:
    fault, _ = PASSING[kind]
    file = store.find(server.url("a.bin"))
    server.faults["a.bin"].extend([fault, fault])
    assert store.read(file, 100, 5000) == DATA[5000:5100]
    assert server.ranges("a.bin")[1:] == ["bytes=4096-8191"] * 3


@pytest.mark.parametrize("kind", PASSING)
def test_what_does_not_pass_ends_with_the_reason_of_every_attempt(server: Server, store: BlockStore, kind: str) -> None:
    fault, reason = PASSING[kind]
    file = store.find(server.url("a.bin"))
    server.faults["a.bin"].append(faults.status(502))
    server.forever["a.bin"] = fault
    with pytest.raises(RemoteError) as caught:
        store.read(file, 100, 5000)
    # aiohttp itself asks anew where a connection that was kept turns out to be closed
    assert 1 + 3 <= server.num_requests("a.bin") <= 1 + 2 * 3
    assert str(caught.value).startswith(f"{server.url('a.bin')}: no usable answer after 3 attempts in ")
    assert "(1: HTTP 502 Bad Gateway; 2 to 3: " in str(caught.value) and reason in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.errno == caught.value.errno
    del server.forever["a.bin"]
    assert store.read(file, 100, 5000) == DATA[5000:5100], "a failure is not kept"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (faults.whole, "the server sent the whole file where a part was asked for"),
        (faults.status(403), "the server refuses it .HTTP 403"),
        (faults.status(401), "the server refuses it .HTTP 401"),
        (faults.status(400), "HTTP 400 Bad Request$"),
        (faults.status(416), "shorter than it was"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(
    server: Server, store: BlockStore, fault: faults.Fault, reason: str
) -> None:
    file = store.find(server.url("a.bin"))
    server.forever["a.bin"] = fault
    with pytest.raises(RemoteError, match=reason):
        store.read(file, 100, 5000)
    assert server.num_requests("a.bin") == 2


def test_a_missing_file_is_no_failure_of_the_server(server: Server, store: BlockStore) -> None:
    with pytest.raises(FileNotFoundError, match="HTTP 404"):
        store.find(server.url("b.bin"))
    assert server.num_requests("b.bin") == 1


def test_errors_that_are_kept_hold_no_connection(server: Server, tmp_path: Path) -> None:
    """An error keeps alive whatever its traceback knows; a client has 100 connections in all."""
    store = BlockStore(quick(tmp_path / "other", total_timeout_s=10.0))
    kept = []
    for number in range(101):
        server.forever[f"{number}.bin"] = faults.long_no
        with pytest.raises(FileNotFoundError) as caught:
            store.find(server.url(f"{number}.bin"))
        kept.append(caught.value)
    assert len(kept) == 101 and store.find(server.url("a.bin")).num_bytes == len(DATA)


def test_no_server_at_all(server: Server, store: BlockStore) -> None:
    url = server.url("a.bin")
    server.ended.set()
    server.shutdown()
    server.server_close()
    with pytest.raises(RemoteError, match="1 to 3: no connection"):
        store.find(url)


def test_the_total_limit_holds_against_a_trickle(server: Server, tmp_path: Path) -> None:
    store = BlockStore(quick(tmp_path / "cache", total_timeout_s=1.0))
    file = store.find(server.url("a.bin"))
    server.forever["a.bin"] = lambda handler, data, first, last, total: faults.trickles(
        handler, data, 4096, 8191, 50_000
    )
    with pytest.raises(RemoteError):
        store.read(file, 100, 5000)


def test_retry_after_is_heeded_and_one_beyond_the_limit_ends_it(server: Server, store: BlockStore) -> None:
    file = store.find(server.url("a.bin"))
    server.faults["a.bin"].append(faults.status(503, {"Retry-After": "1"}))
    assert store.read(file, 1, 0) == DATA[:1]
    server.faults["a.bin"].append(faults.status(503, {"Retry-After": "3000"}))
    with pytest.raises(RemoteError, match="the next would have come after the limit of 20 s"):
        store.read(file, 1, 5000)


def test_a_file_that_changes_while_it_is_read(server: Server, store: BlockStore) -> None:
    file = store.find(server.url("a.bin"))
    server.etags["a.bin"] = '"other"'
    with pytest.raises(RemoteError, match="it has changed since it was opened"):
        store.read(file, 10, 5000)
    (server.root / "a.bin").write_bytes(DATA[::-1])
    again = store.find(server.url("a.bin"))
    assert store.read(again, 10, 5000) == DATA[::-1][5000:5010], "nothing of the old state is given"


def test_a_server_without_a_word_on_state_has_nothing_kept_for_the_next_run(server: Server, store: BlockStore) -> None:
    server.forever["a.bin"] = lambda handler, data, first, last, total: handler.part(data, first, last)
    file = store.find(server.url("a.bin"))
    assert store.read(file, 10, 5000) == store.read(file, 10, 5000) == DATA[5000:5010]
    (server.root / "a.bin").write_bytes(DATA[::-1])
    assert store.read(store.find(server.url("a.bin")), 10, 5000) == DATA[::-1][5000:5010]


def test_threads_that_want_one_block_fetch_it_once(server: Server, store: BlockStore) -> None:
    file = store.find(server.url("a.bin"))
    together = threading.Barrier(8)

    def read(_: int) -> bytes:
        together.wait(30)
        return store.read(file, 9000, 20_000)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {DATA[20_000:29_000]}
    asked = server.ranges("a.bin")[1:]
    assert len(asked) == len(set(asked)) <= 3


def test_a_secret_in_the_url_is_not_shown(server: Server, store: BlockStore) -> None:
    url = server.url("missing?signature=SECRET").replace("http://", "http://user:PASSWORD@")
    server.forever["missing"] = faults.status(500)
    with pytest.raises(RemoteError) as caught:
        store.find(url)
    assert "SECRET" not in str(caught.value) and "PASSWORD" not in str(caught.value)
    assert str(caught.value).startswith(f"{server.url('missing')}: ")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # forking beside threads is what is tried
def test_a_fork_waits_for_no_thread_of_its_parent(server: Server, tmp_path: Path) -> None:
    store = BlockStore(quick(tmp_path / "cache", stall_timeout_s=1.0))
    file = store.find(server.url("a.bin"))
    asked = threading.Event()

    def stall(handler: faults.Handler, data: bytes, first: int, last: int, total: int) -> None:
        asked.set()
        faults.stalls_before(handler, data, first, last, total)

    server.faults["a.bin"].append(stall)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(store.read, file, 100, 30_000)
        assert asked.wait(30)
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                os.write(sender, store.read(file, 100, 30_000))
            finally:
                os._exit(0)
        os.close(sender)
        with open(receiver, "rb") as pipe:
            assert pipe.read() == DATA[30_000:30_100]
        os.waitpid(child, 0)
        assert answer.result(30) == DATA[30_000:30_100]


def test_a_remote_file_is_a_file_for_who_reads_files(server: Server, tmp_path: Path) -> None:
    with RemoteFileSet([server.url("a.bin")], quick(tmp_path / "cache")).open(0) as file:
        assert file.read() == DATA
        assert file.seek(-5, os.SEEK_END) == len(DATA) - 5
        assert file.read(100) == DATA[-5:] and file.read(1) == b""
        with pytest.raises(ValueError, match="before the begin"):
            file.seek(-1)
