"""Writing shards: the same bytes for the same samples, whole files or none, and what is refused."""

import hashlib
import json
import os
import signal
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from augpipe.datasets.files import atomic
from augpipe.datasets.files.atomic import AtomicFile, remove_leftovers, write_atomically
from augpipe.datasets.shards.index import ShardIndex
from augpipe.datasets.shards.ustar import (
    BLOCK_BYTES,
    END,
    MAX_KEY_BYTES,
    check_key,
    header,
    is_header_of,
    padded,
    parse_header,
    sample_key,
)
from augpipe.datasets.shards.writer import ShardWriter
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import run_python
from tests.datasets.shards.shard_sets import jpeg, key, label, note, row_index, write_shard

GOLDEN_SHA256 = "8180004f9491f3b62ddeb588650635a3006468675c3c027676ef83acd4d4dcfd"
GOLDEN_INDEX_SHA256 = "47971a0203ff168382b4eafd1426f9cfe1260e069ce4ab39b3940459d9acd19f"
"""The sums of the files written in `test_the_bytes_are_these`. A change of them is a new version of the format."""


def members(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


def test_a_shard_is_a_tar_file_of_three_files_a_sample(tmp_path: Path) -> None:
    write_shard(tmp_path / "000000.tar", range(5))
    expected = []
    for i in range(5):
        text = json.dumps(note(i), sort_keys=True, separators=(",", ":")).encode()
        expected += [(f"{key(i)}.jpg", jpeg(i)), (f"{key(i)}.cls", str(label(i)).encode()), (f"{key(i)}.json", text)]
    assert members(tmp_path / "000000.tar") == expected
    assert tuple(sorted({label(i) for i in range(5)})) == (-1, 0, 1)


def test_our_headers_are_those_of_tarfile() -> None:
    for name, num_bytes in (("a.jpg", 0), ("k" * 95 + ".json", 8**11 - 1), ("000000001-x_y.cls", 513)):
        info = tarfile.TarInfo(name)
        info.size = num_bytes
        read = tarfile.TarInfo.frombuf(header(name, num_bytes), "ascii", "strict")  # checks the checksum
        assert (read.name, read.size, read.type) == (name, num_bytes, tarfile.REGTYPE)
        ours, theirs = bytearray(header(name, num_bytes)), bytearray(info.tobuf(tarfile.USTAR_FORMAT))
        for block in (ours, theirs):
            block[148:156] = bytes(8)
            block[329:345] = bytes(16)  # device numbers: Python's versions differ
        assert ours == theirs


def test_headers_are_read_back_and_no_others() -> None:
    block = header("key.jpg", 1234)
    assert parse_header(block) == ("key.jpg", 1234)
    for at in range(BLOCK_BYTES):
        changed = bytearray(block)
        changed[at] ^= 1
        with pytest.raises(ValueError, match="tar header"):
            parse_header(bytes(changed))
    with pytest.raises(ValueError, match="ends within a header, after 100 of its 512 bytes"):
        parse_header(block[:100])
    with pytest.raises(ValueError, match="no tar header of ours"):
        parse_header(bytes(BLOCK_BYTES))
    assert is_header_of(block, "key.jpg", 1234)
    assert not any(
        is_header_of(*changed)
        for changed in (
            (block, "key.jp", 1234),
            (block, "ey.jpg", 1234),
            (block, "key.jpg", 1235),
            (b"", "key.jpg", 1234),
        )
    )


def test_the_bytes_are_these(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "000000.tar") as writer:
        writer.add("000000000-a", b"\xff\xd8\xff golden", 7, {"width": 3, "height": 2, "name": "ä"})
        writer.add("000000001-b", b"\xff\xd8\xff" + bytes(600), -1, {"width": 5, "height": 4}, b"row index")
        info = writer.close()
    data = (tmp_path / "000000.tar").read_bytes()
    assert info.sha256 == hashlib.sha256(data).hexdigest() == GOLDEN_SHA256
    index = (tmp_path / "000000.idx").read_bytes()
    assert info.index_sha256 == hashlib.sha256(index).hexdigest() == GOLDEN_INDEX_SHA256
    assert (info.index_bytes, info.head_bytes) == (len(index), len(index) - 9)
    assert len(data) == info.num_bytes == BLOCK_BYTES * (6 + 3 + 4) + len(END)


def test_the_bytes_depend_on_the_samples_alone(tmp_path: Path) -> None:
    infos = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        infos.append(write_shard(tmp_path / folder / "000007.tar", [3, 1, 2]))
    backwards = tmp_path / "000007.tar"
    with ShardWriter(backwards) as writer:
        for i in [3, 1, 2]:
            writer.add(key(i), jpeg(i), label(i), dict(reversed(note(i).items())), row_index(i))
        infos.append(writer.close())
    assert infos[0] == infos[1] == infos[2]
    for suffix in ("tar", "idx"):
        first, second = ((tmp_path / f / f"000007.{suffix}").read_bytes() for f in ("first", "second"))
        assert first == second == (tmp_path / f"000007.{suffix}").read_bytes()


@pytest.mark.parametrize("name", ["third.tar", "000000.zip", "1.tar", "000000.tar ", "000000.tar\n"])
def test_a_shard_has_a_number(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a shard's name. Write a number of six digits"):
        ShardWriter(tmp_path / name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_an_image_is_named_by_its_format(tmp_path: Path, kind: str) -> None:
    with ShardWriter(tmp_path / "000000.tar") as writer:
        writer.add("a", encoded(scene(8, 9), kind), 0, {"height": 8, "width": 9})
        writer.close()
    name = f"a.{ {'JPEG': 'jpg', 'TIFF': 'tif'}.get(kind, kind.lower()) }"
    assert [member for member, _ in members(tmp_path / "000000.tar")] == [name, "a.cls", "a.json"]
    assert ShardIndex.open(tmp_path / "000000.idx").name(0) == name


def test_row_indexes_that_have_no_room_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.datasets.shards.writer.MAX_ROW_BYTES", 50)
    with ShardWriter(tmp_path / "000000.tar") as writer:
        for i, row_index in enumerate((b"x" * 30, b"y" * 21, b"z" * 20)):
            writer.add(key(i), jpeg(i), 0, note(i), row_index)
        writer.close()
    index = ShardIndex.open(tmp_path / "000000.idx")
    assert [bytes(index.row_index(i)) for i in range(3)] == [b"x" * 30, b"", b"z" * 20]


def test_counts_grow_with_the_samples(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "000000.tar") as writer:
        assert (writer.num_samples, writer.num_bytes) == (0, 0)
        writer.add(key(0), jpeg(0), 0, note(0))
        assert (writer.num_samples, writer.num_bytes) == (1, 5 * BLOCK_BYTES + padded(len(jpeg(0))))
        assert writer.close().num_bytes == writer.num_bytes == 5 * BLOCK_BYTES + padded(len(jpeg(0))) + len(END)


def test_nothing_is_there_before_close_and_after_abort(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "000000.tar") as writer:
        writer.add(key(0), jpeg(0), 0, note(0))
        (temporary,) = os.listdir(tmp_path)
        assert temporary.startswith(".000000.tar.") and temporary.endswith(".tmp")
    assert os.listdir(tmp_path) == []
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path / "000000.tar"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_the_index_comes_after_the_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = []

    def replace(source: str, target: str) -> None:
        renamed.append(os.path.basename(target))
        os.rename(source, target)

    monkeypatch.setattr(atomic.os, "replace", replace)
    write_shard(tmp_path / "000000.tar", [0])
    assert renamed == ["000000.tar", "000000.idx"]


def test_files_reach_the_disk_before_their_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        calls.append("folder" if stat.S_ISDIR(status.st_mode) else f"file of {status.st_size} bytes")
        fsync(descriptor)

    def note_replace(source: str, target: str) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(atomic.os, "fsync", note_fsync)
    monkeypatch.setattr(atomic.os, "replace", note_replace)
    write_atomically(str(tmp_path / "x"), b"whole")
    assert calls == ["file of 5 bytes", "rename", "folder"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b"old")
    with AtomicFile(str(path)) as file:
        file.write(b"new, but not comm")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"old"
    write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["manifest.json"]


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(str(tmp_path / "x"), b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_two_writers_of_one_shard_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "000000.tar"
    with ShardWriter(path) as one, ShardWriter(path) as other:
        for i in range(3):
            one.add(key(i), jpeg(i), 0, note(i))
            other.add(key(i), jpeg(i), 0, note(i))
        assert one.close() == other.close()
    assert len(members(path)) == 9
    assert sorted(os.listdir(tmp_path)) == ["000000.idx", "000000.tar"]


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: '.*000000.tar'"):
        write_shard(tmp_path / "000000.tar", range(2))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_disk_that_fills_up_while_writing_is_named(tmp_path: Path) -> None:
    with AtomicFile(str(tmp_path / "x")) as file:
        file._file.close()
        file._file = open("/dev/full", "wb", buffering=0)  # type: ignore[assignment]  # noqa: SIM115
        with pytest.raises(OSError, match="No space left on device: '.*/x'"):
            file.write(bytes(10))
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_what_a_killed_writer_leaves_is_no_shard_and_can_be_removed(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from augpipe.datasets.shards.writer import ShardWriter\n"
        f"writer = ShardWriter({str(tmp_path / '000000.tar')!r})\n"
        "writer.add('k', b'\\xff\\xd8\\xff' + bytes(3_000_000), 0, {'height': 1, 'width': 1})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_python(program).returncode == -signal.SIGKILL
    (left,) = os.listdir(tmp_path)
    assert left.endswith(".tmp")
    write_shard(tmp_path / "000001.tar", [0])
    (tmp_path / ".hidden.tmp").write_bytes(b"somebody else's")
    assert remove_leftovers(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == [".hidden.tmp", "000001.idx", "000001.tar"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "a.b"}, "key='a.b' is not a key: 1 to 80 ASCII letters"),
        ({"key": "../a"}, "is not a key"),
        ({"key": ""}, "is not a key"),
        ({"key": "a\n"}, "is not a key"),
        ({"key": "a" * (MAX_KEY_BYTES + 1)}, "is not a key"),
        ({"key": key(0)}, "is in the shard already"),
        ({"image": b"\x89PN"}, "not a picture: it begins with"),
        ({"image": b""}, r"the file is empty \(0 bytes\)"),
        ({"label": -2}, "label=-2, and a label is a class number from 0"),
        ({"label": 2**31}, "label=2147483648"),
        ({"meta": {"height": 3}}, "height=3 and width=None, and both are whole numbers"),
        ({"meta": {"height": 0, "width": 3}}, "height=0"),
        ({"meta": {"height": True, "width": 3}}, "height=True"),
        ({"meta": {"height": 2, "width": 3, "gain": float("nan")}}, "not JSON compliant"),
        ({"meta": {"height": 2, "width": 3, "name": "x" * 2**20}}, "meta takes 1048608 bytes as JSON"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_of_it_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    sample: dict[str, Any] = {"key": key(1), "image": jpeg(1), "label": 1, "meta": note(1)}
    with ShardWriter(tmp_path / "000000.tar") as writer:
        writer.add(key(0), jpeg(0), 0, note(0))
        with pytest.raises(ValueError, match=message):
            writer.add(**{**sample, **changes})
        writer.add(**sample)
        writer.close()
    assert [name for name, _ in members(tmp_path / "000000.tar")] == [
        f"{key(i)}.{extension}" for i in range(2) for extension in ("jpg", "cls", "json")
    ]


@pytest.mark.parametrize(
    ("position", "name", "expected"),
    [
        (0, "cats/tabby cat.jpeg", "000000000-tabby_cat"),
        (1234, "n01440764/n01440764_10026.JPEG", "000001234-n01440764_10026"),
        (7, "a.b.c.png", "000000007-a_b_c"),
        (8, "Käse/größe.jpg", "000000008-gr__e"),
        (9, "..", "000000009-__"),
        (9, "a\0b\n", "000000009-a_b_"),
        (10**10, "x", "10000000000-x"),
        (3, "y" * 300, "000000003-" + "y" * 60),
    ],
)
def test_keys_come_from_position_and_name(position: int, name: str, expected: str) -> None:
    assert sample_key(position, name) == expected
    check_key(expected)
