"""Tar files for tests, by tarfile or header by header."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

Members = Sequence[tuple[str, bytes]]


def put(path: Path, members: Members, form: int = tarfile.USTAR_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def put_special(path: Path, name: str, kind: bytes, target: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.linkname = target
        archive.addfile(info)
    return path


def samples(first: int, count: int, label: int = 0) -> list[tuple[str, bytes]]:
    members = []
    for number in range(first, first + count):
        members += [(f"{number:04}.cls", b"%d\n" % label), (f"{number:04}.jpg", b"image %d" % number)]
    return members


def put_raw(path: Path, *parts: tuple[bytes, str, int, bytes]) -> Path:
    """Headers as they are given, each (kind, name, the size that it states) with the bytes that follow it."""
    with path.open("wb") as file:
        for kind, name, size, content in parts:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, size
            file.write(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
        file.write(bytes(1024))
    return path


def pax(**records: object) -> tuple[bytes, str, int, bytes]:
    """A pax header; its records count themselves, here in two digits."""
    content = b"".join(b"%02d %b=%b\n" % (len(f"{k}={v}") + 4, k.encode(), f"{v}".encode()) for k, v in records.items())
    return tarfile.XHDTYPE, "pax", len(content), content


def long_name(name: str) -> tuple[bytes, str, int, bytes]:
    return tarfile.GNUTYPE_LONGNAME, "././@LongLink", len(name) + 1, name.encode() + b"\0"
