"""The cache of remote files on the local disk: its limit, damaged entries, killed and parallel writers."""

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from augpipe.datasets.remote.disk_cache import DiskCache
from augpipe.datasets.remote.remote_error import LastingError, PassingError, RemoteError
from augpipe.datasets.remote.retry import with_retries
from augpipe.datasets.remote.settings import BYTES_VARIABLE, RemoteSettings

ROOT = Path(__file__).resolve().parents[3]
ENTRY = 1000 + 8


def entries(cache: DiskCache) -> list[Path]:
    return sorted(path for path in Path(cache.folder).glob("??/*") if path.is_file())


def test_what_is_kept_comes_back_and_what_is_not_does_not(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), 10_000)
    assert cache.get("a") is None
    cache.put("a", b"one")
    cache.put("b", b"")
    cache.put("a", b"two")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"two", b"", None)
    assert DiskCache(cache.folder, 10_000).get("a") == b"two"
    cache.discard("a")
    assert cache.get("a") is None


def test_what_was_not_read_for_longest_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10 * ENTRY)
    made: list[Path] = []
    for number in range(10):
        cache.put(str(number), bytes(1000))
        made += set(entries(cache)) - set(made)
    for age, path in enumerate(made):
        os.utime(path, (age, age))
    assert cache.get("0") is not None, "and is now the one read last"
    cache.put("new", bytes(1000))
    # nine tenths of what is left beside the new one: eight
    assert {number for number in range(10) if cache.get(str(number)) is not None} == {0, 3, 4, 5, 6, 7, 8, 9}
    assert cache.get("new") is not None
    assert int.from_bytes((tmp_path / "lock").read_bytes(), "little") == cache.num_bytes() == 9 * ENTRY


def test_an_entry_that_is_removed_while_it_is_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where another process makes room: this entry is not kept, and the next one is."""
    cache, rename = DiskCache(str(tmp_path), 10 * ENTRY), os.replace

    def taken(source: str, target: str) -> None:
        os.unlink(source)
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", taken)
        cache.put("a", bytes(1000))
    assert entries(cache) == [] and cache.get("a") is None
    cache.put("b", bytes(1000))
    assert cache.get("b") == bytes(1000)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_room_is_made_by_one_writer_at_a_time(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10 * ENTRY)
    cache.put("a", b"one")
    with open(tmp_path / "lock", "rb") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writing = pool.submit(cache.put, "b", b"two")
        with pytest.raises(TimeoutError):
            writing.result(0.2)
        fcntl.flock(lock, fcntl.LOCK_UN)
        writing.result(60)
    assert cache.get("b") == b"two"


def test_the_limit_holds_for_threads_and_processes_together(tmp_path: Path) -> None:
    limit = 50 * ENTRY
    program = (
        "import sys; from augpipe.datasets.remote.disk_cache import DiskCache\n"
        f"cache = DiskCache({str(tmp_path)!r}, {limit})\n"
        "for number in range(100): cache.put(sys.argv[1] + str(number), bytes(1000))\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, str(i)], cwd=ROOT) for i in range(2)]
    cache = DiskCache(str(tmp_path), limit)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: cache.put(f"mine {number}", bytes(1000)), range(200)))
    assert [other.wait(60) for other in others] == [0, 0]
    # what another process was writing while one made room is not in its count
    assert 0 < cache.num_bytes() <= limit + 6 * ENTRY
    cache.put("last", bytes(1000))
    assert cache.get("last") == bytes(1000)


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 500)
    cache.put("a", bytes(1000))
    assert cache.get("a") is None and entries(cache) == []


@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "another's", "longer"])
def test_a_damaged_entry_is_none(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(str(tmp_path), 10_000)
    cache.put("a", b"x" * 100)
    (path,) = entries(cache)
    content = path.read_bytes()
    cache.put("b", b"y" * 100)
    (other,) = set(entries(cache)) - {path}
    damaged = {
        "a bit": content[:50] + bytes([content[50] ^ 1]) + content[51:],
        "cut": content[:-1],
        "empty": b"",
        "another's": other.read_bytes(),
        "longer": content + b"x",
    }
    path.write_bytes(damaged[damage])
    assert cache.get("a") is None
    assert not path.exists(), "and it is asked for again"
    assert cache.get("b") == b"y" * 100


def test_killed_writers_leave_nothing_that_is_taken_for_an_entry(tmp_path: Path) -> None:
    program = (
        "from augpipe.datasets.remote.disk_cache import DiskCache\n"
        f"cache = DiskCache({str(tmp_path)!r}, {1 << 22})\n"
        "print('begun', flush=True)\n"
        "while True:\n"
        "    for number in range(20): cache.put(str(number), bytes([number]) * 100_000)\n"
    )
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"begun\n"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(0.1)
            writer.send_signal(signal.SIGKILL)
    cache = DiskCache(str(tmp_path), 1 << 22)
    kept = {number: cache.get(str(number)) for number in range(20)}
    assert all(data in (None, bytes([number]) * 100_000) for number, data in kept.items())
    for number in range(100):
        cache.put(f"new {number}", bytes(100_000))
    assert cache.num_bytes() <= 1 << 22
    cache.put("0", b"fine")
    assert cache.get("0") == b"fine"


def test_a_folder_that_cannot_be_written_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(str(tmp_path / "file" / "cache"), 10_000)
    with caplog.at_level(logging.WARNING, "augpipe"):
        cache.put("a", b"one")
        cache.put("b", b"one")
    assert [record.getMessage() for record in caplog.records] == [
        f"the cache of remote files in {cache.folder} cannot be written (Not a directory): what is read is not kept"
    ]
    assert cache.get("a") is None


def test_an_entry_that_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(str(tmp_path), 10_000)

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("augpipe.datasets.remote.disk_cache.os.replace", full)
    cache.put("a", b"one")
    assert entries(cache) == [] and cache.get("a") is None


# --- attempts and pauses, without a server


def failing(*problems: Exception | None) -> tuple[RemoteSettings, list[float], list[float], str]:
    """Run attempts that end in this way; (settings, pauses, seconds that were left, message or answer)."""
    settings = RemoteSettings(
        max_attempts=5, first_pause_s=1.0, max_pause_s=4.0, total_timeout_s=100.0, cache_folder="x", cache_bytes=0
    )
    pauses: list[float] = []
    left: list[float] = []
    outcomes = iter(problems)

    def attempt(left_s: float) -> str:
        left.append(left_s)
        problem = next(outcomes)
        if problem is not None:
            raise problem
        return "answer"

    try:
        answer = with_retries(
            attempt, "s3://bucket/a", settings, sleep=pauses.append, clock=lambda: sum(pauses) + 2.0 * len(left)
        )
    except RemoteError as error:
        answer = str(error)
    return settings, pauses, left, answer


def test_pauses_double_up_to_the_longest_and_are_cut_at_random() -> None:
    _, pauses, left, message = failing(*[PassingError("busy")] * 5)
    for pause, longest in zip(pauses, (1.0, 2.0, 4.0, 4.0), strict=True):
        assert longest / 2 <= pause <= longest
    assert len({tuple(failing(*[PassingError("busy")] * 5)[1]) for _ in range(3)}) == 3
    assert left[0] == 100.0 and left == sorted(left, reverse=True)
    assert "no usable answer after 5 attempts" in message and message.endswith("(1 to 5: busy)")


def test_every_reason_is_told() -> None:
    _, _, _, message = failing(PassingError("busy"), PassingError("cut"), LastingError("refused"))
    assert message.startswith("s3://bucket/a: no usable answer after 3 attempts in ")
    assert message.endswith("(1: busy; 2: cut; 3: refused)")
    assert failing(LastingError("refused"))[3] == "s3://bucket/a: refused"
    assert failing(PassingError("busy"), None)[3] == "answer"


def test_a_pause_that_would_take_all_the_time_that_is_left_is_not_begun() -> None:
    _, pauses, _, message = failing(PassingError("busy", 97.0), None)
    assert (pauses, message) == ([97.0], "answer")
    _, pauses, _, message = failing(PassingError("busy", 98.0), None)  # the attempt took two of a hundred seconds
    assert pauses == []
    assert "after 1 attempt (the next would have come after the limit of 100 s) in 2.0 s (1: busy)" in message


def test_the_global_generators_are_left_alone() -> None:
    import random

    import numpy as np

    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002  the global one is what is looked at
    failing(*[PassingError("busy")] * 5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_the_environment_says_how_much_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, "3GB")
    monkeypatch.setenv("AUGPIPE_REMOTE_CACHE", str(tmp_path))
    assert (RemoteSettings().cache_bytes, RemoteSettings().cache_folder) == (3 * 10**9, str(tmp_path))
    monkeypatch.setenv(BYTES_VARIABLE, "much")
    with pytest.raises(ValueError, match="AUGPIPE_REMOTE_CACHE_BYTES: 'much' is not a number of bytes"):
        RemoteSettings()
