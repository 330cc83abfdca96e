"""What a tar file holds and where, from its headers alone: nothing is extracted and nothing is written.

Read here, not by `tarfile`, which takes several times as long, keeps every header it has seen, and reads an extended
header of any length into memory. Formats: POSIX.1-1988 (ustar), POSIX.1-2001 (pax), GNU and the one before them all.
"""

import os
import warnings
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from augpipe.datasets.metadata.names import printable

BLOCK_BYTES = 512
_MAX_EXTENSION_BYTES = 1 << 20
_REGULAR = (b"0", b"7", bytes(1))
_REFUSED = {
    b"1": "a hard link. Pack the files themselves: tar --hard-dereference",
    b"2": "a symbolic link. Pack its target: tar --dereference",
    b"3": "a character device, which has no place in a data set",
    b"4": "a block device, which has no place in a data set",
    b"6": "a pipe, which has no place in a data set",
    b"S": "a sparse file. Pack it whole: tar without --sparse",
    b"M": "a part of a file that goes on in another archive. Pack it whole: tar without --multi-volume",
}
_CHECKSUM = slice(148, 156)


class Member(NamedTuple):
    """A regular file in a tar file."""

    name: bytes
    offset: int
    """Where its first byte lies in the tar file."""
    num_bytes: int


def read_members(file: BinaryIO) -> Iterator[Member]:
    """The regular files of a tar file in their order; folders and global pax headers are passed over.

    Args:
        file: buffered and seekable. It may be read and moved between two members.

    Raises:
        ValueError: it is truncated or damaged, or a member is a link, a device, or named to lead out of a folder; the
            reason, without the tar file's name.
        OSError: it cannot be read.
    """
    end = file.seek(0, os.SEEK_END)
    position = 0
    long_name: bytes | None = None
    long_size: int | None = None
    while True:
        block = _block_at(file, position, end)
        if block is None:
            break
        kind = block[156:157]
        size = _number(block[124:136], position)
        name = _header_name(block)
        data = position + BLOCK_BYTES
        if kind in (b"x", b"L"):
            extension = _extension(file, data, size, end, name)
            if kind == b"L":
                long_name = extension.rstrip(b"\0")
            else:
                found_name, found_size = _pax(extension, position)
                long_name = found_name or long_name
                long_size = found_size if found_size is not None else long_size
            position = data + _padded(size)
            continue
        if kind in (b"g", b"K"):
            position = data + _padded(size)
            continue
        name = long_name or name
        size = size if long_size is None else long_size
        long_name = long_size = None
        shown = name.decode("utf-8", "backslashreplace")
        _check_name(name, shown)
        if kind in _REFUSED:
            raise ValueError(f"its member {shown!r} is {_REFUSED[kind]}")
        if kind == b"5" or (kind == b"\0" and name.endswith(b"/")):
            position = data
            continue
        if kind not in _REGULAR:
            raise ValueError(f"its member {shown!r} is of the unknown kind {kind!r}: the tar file is damaged")
        if data + size > end:
            raise ValueError(
                f"it ends after {end} bytes, within its member {shown!r} of {size} bytes at {data}: it is truncated, "
                "or its header lies. Copy it again"
            )
        yield Member(name, data, size)
        position = data + _padded(size)
    if long_name is not None or long_size is not None:
        raise ValueError("it ends after a long name, before the file of that name: it is truncated. Copy it again")


def _block_at(file: BinaryIO, position: int, end: int) -> bytes | None:
    """The header at `position`; None at the end of the archive.

    Two blocks of zeros should end it, and many readers take it without them; so do we, with a warning.
    """
    if position == end and position > 0:
        warnings.warn(
            f"{printable(str(file.name))} ends without the mark that ends a tar file: it may have been cut short. "
            "Compare its length with the original's.",
            stacklevel=2,
        )
        return None
    if position > end:
        raise ValueError(f"it ends after {end} bytes, within a member: it is truncated. Copy it again")
    file.seek(position)
    block = file.read(BLOCK_BYTES)
    if len(block) < BLOCK_BYTES:
        raise ValueError(
            f"it ends within a header, after {len(block)} of its {BLOCK_BYTES} bytes at {position}: it is not a tar "
            "file, or it is truncated. Copy it again"
        )
    if block[0] == 0 and not any(block):
        _check_end(file)
        return None
    field = block[_CHECKSUM]
    stated = _number(field, position)
    if stated != sum(block) - sum(field) + 8 * 32 and stated != _signed_sum(block):
        raise ValueError(f"there is no tar header at byte {position}: its checksum is wrong. Copy it again")
    return block


def _check_end(file: BinaryIO) -> None:
    """Refuse anything but zeros after the end: what is joined by `cat` would silently be lost."""
    position = file.tell()
    while chunk := file.read(1 << 16):
        if any(chunk):
            raise ValueError(
                f"it goes on after its end mark at byte {position}, as tar files joined by cat do. Use the single "
                "files, or pack them again"
            )


def _signed_sum(block: bytes) -> int:
    """The sum over signed characters, which some old programs take."""
    return sum(byte - 256 if byte > 127 else byte for byte in block[:148] + b" " * 8 + block[156:])


def _number(field: bytes, position: int) -> int:
    """An octal number, or GNU's base 256 where the first bit is set."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if digits and (not digits.isdigit() or max(digits) > ord("7")):
        raise ValueError(f"there is no tar header at byte {position}: {field!r} is not a number. Copy it again")
    return int(digits or b"0", 8)


def _header_name(block: bytes) -> bytes:
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0":  # in GNU's own format other things stand where POSIX has the prefix
        prefix = block[345:500].split(b"\0", 1)[0]
        return prefix + b"/" + name if prefix else name
    return name


def _extension(file: BinaryIO, offset: int, size: int, end: int, name: bytes) -> bytes:
    if size > _MAX_EXTENSION_BYTES:
        raise ValueError(
            f"the extended header {name.decode('utf-8', 'backslashreplace')!r} has {size} bytes, more than "
            f"{_MAX_EXTENSION_BYTES}: the tar file is damaged"
        )
    if offset + size > end:
        raise ValueError(f"it ends after {end} bytes, within an extended header: it is truncated. Copy it again")
    file.seek(offset)
    return file.read(size)


def _pax(extension: bytes, position: int) -> tuple[bytes | None, int | None]:
    """The name and the length that a pax header gives; its records are `LENGTH KEY=VALUE\\n`."""
    name, size = None, None
    start = 0
    while start < len(extension) and extension[start] != 0:
        digits = extension[start : start + 20].split(b" ", 1)[0]
        length = int(digits) if digits.isdigit() else 0
        record = extension[start : start + length]
        key, found, value = record[len(digits) + 1 : -1].partition(b"=")
        if not found or len(record) != length or not record.endswith(b"\n"):
            raise ValueError(f"the pax header at byte {position} is damaged. Copy the tar file again")
        if key == b"path":
            name = value
        elif key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise ValueError(f"the pax header at byte {position} gives {value[:40]!r} for a length: it is damaged")
            size = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise ValueError("a member is a sparse file. Pack it whole: tar without --sparse")
        start += length
    return name, size


def _check_name(name: bytes, shown: str) -> None:
    if not name or b"\0" in name:
        raise ValueError(f"it holds a member of the name {shown!r:.200}: it is damaged. Copy it again")
    if name.startswith(b"/") or b".." in name.split(b"/"):
        raise ValueError(
            f"its member {shown!r:.200} is named to lie outside of it. Nothing is written, but such an archive is not "
            "to be trusted: pack the files again, from within their folder"
        )


def _padded(num_bytes: int) -> int:
    return num_bytes + -num_bytes % BLOCK_BYTES
