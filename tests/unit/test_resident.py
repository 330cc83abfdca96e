"""Reading what lies in the page cache: the file's bytes, whether or not the system can say where they lie."""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.shards import resident
from augpipe.datasets.shards.descriptors import FileSet

CONTENT = np.random.default_rng(0).integers(0, 256, 3 * 2**20, np.uint8).tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def test_what_was_just_written_is_read_without_waiting(path: Path) -> None:
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system cannot say whether a read would wait")
    with path.open("rb") as file:
        buffer = np.zeros(70_000, np.uint8)
        assert resident.read_resident(file.fileno(), buffer, 12_345)
        assert buffer.tobytes() == CONTENT[12_345:82_345]


@pytest.mark.parametrize("answer", ["the system's", "not in memory", "not known here"])
def test_a_view_has_the_bytes_of_a_read(path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    if answer != "the system's":
        call: Any = None if answer == "not known here" else lambda *_: -1
        monkeypatch.setattr(resident, "_call", call)
    files = FileSet([os.fspath(path)], 1)
    large = resident.MOST_BYTES + 1
    for first, num in ((0, 1), (5, 0), (7, 90_000), (1, large), (len(CONTENT) - 10, 10), (len(CONTENT) - 10, 90)):
        view = files.view(0, num, first)
        assert view.readonly and view.contiguous and view.format == "B"
        assert bytes(view) == CONTENT[first : first + num] == files.read(0, num, first)
    assert files.view(0, 9, len(CONTENT) + 1) == b""


def test_two_views_share_no_memory(path: Path) -> None:
    files = FileSet([os.fspath(path)], 1)
    first = files.view(0, 100, 0)
    files.view(0, 100, 200)
    assert first == CONTENT[:100]


def test_a_descriptor_that_fails_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FileSet([os.fspath(path)], 1)

    class Directory:
        number = os.open(path.parent, os.O_RDONLY)

    monkeypatch.setattr(files, "_descriptor", lambda _: Directory)
    try:
        with pytest.raises(IsADirectoryError):
            files.view(0, 10, 0)
    finally:
        os.close(Directory.number)


def test_the_lock_is_kept_while_memory_is_copied() -> None:
    if resident._call is None:
        pytest.skip("this system cannot say whether a read would wait")
    keeps_lock = ctypes._FUNCFLAG_PYTHONAPI  # type: ignore[attr-defined]
    assert resident._call._flags_ & keeps_lock  # type: ignore[attr-defined]
    assert not ctypes.CDLL(None).preadv2._flags_ & keeps_lock
