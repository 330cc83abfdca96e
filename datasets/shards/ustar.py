"""The names of samples in a shard, and headers of tar members in the USTAR format (POSIX.1-1988).

Written here, not by `tarfile`, whose bytes for the same member have changed between Python's versions.
"""

import os
import re
from typing import NamedTuple

BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)
"""What ends an archive: two blocks of zeros."""
MAX_NAME_BYTES = 100
_CHECKSUM = slice(148, 156)
MAX_KEY_BYTES = 80
_KEY = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_KEY_BYTES}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_STEM_LETTERS = 60


class Member(NamedTuple):
    """What a header says of the file that follows it."""

    name: str
    num_bytes: int


def header(name: str, num_bytes: int) -> bytes:
    """The 512 bytes before a regular file: mode 0644, owner and group 0, modified at 0, so that they say nothing else.

    Args:
        name: ASCII, at most 100 bytes.
        num_bytes: the file's length, below 8 GiB.
    """
    encoded = name.encode("ascii")
    assert 0 < len(encoded) <= MAX_NAME_BYTES and 0 <= num_bytes < 8**11
    block = b"".join(
        (
            encoded.ljust(MAX_NAME_BYTES, b"\0"),
            b"0000644\0",
            b"0000000\0" * 2,  # owner and group
            b"%011o\0" % num_bytes,
            b"%011o\0" % 0,  # when it was modified
            b" " * 8,  # the checksum is taken over blanks in its own place
            b"0",  # a regular file
            bytes(100),  # what a link would point to
            b"ustar\0" + b"00",
            bytes(64),  # the names of owner and group
            b"0000000\0" * 2,  # the numbers of a device
            bytes(155 + 12),  # the beginning of a long name, and what fills the block
        )
    )
    return block[: _CHECKSUM.start] + b"%06o\0 " % sum(block) + block[_CHECKSUM.stop :]


def is_header_of(block: bytes, name: str, num_bytes: int) -> bool:
    """Whether a header names this file and this length; a microsecond, as the rest is not looked at."""
    return block.startswith(b"%b\0" % name.encode("ascii")) and block[124:136] == b"%011o\0" % num_bytes


def padding(num_bytes: int) -> bytes:
    """The zeros between a file's end and the next header."""
    return bytes(-num_bytes % BLOCK_BYTES)


def padded(num_bytes: int) -> int:
    """How many bytes a file takes without its header."""
    return num_bytes + -num_bytes % BLOCK_BYTES


def parse_header(block: bytes | memoryview) -> Member:
    """What a header says, if `header` could have written it: nothing else is taken in our shards.

    Raises:
        ValueError: what it is instead; the reason alone.
    """
    block = bytes(block)
    if len(block) < BLOCK_BYTES:
        raise ValueError(f"the tar ends within a header, after {len(block)} of its {BLOCK_BYTES} bytes")
    name, digits = block[:MAX_NAME_BYTES].rstrip(b"\0"), block[124:135]
    if not digits.isdigit() or max(digits) > ord("7") or not name or not name.isascii():
        raise ValueError("no tar header of ours stands there")
    member = Member(name.decode("ascii"), int(digits, 8))
    if block != header(*member):
        raise ValueError(f"the tar header of {member.name.partition(chr(0))[0]!r} is not as it was written")
    return member


def sample_key(position: int, name: str) -> str:
    """The key of the sample at `position` of a data set, e.g. `000001234-tabby_cat` from "cats/tabby cat.jpeg".

    The position makes it unique; the rest is the name's last part, without its extension and with "_" for every
    character but ASCII letters, digits, "_" and "-", so that people recognise it.
    """
    stem = os.path.splitext(os.path.basename(name))[0]
    return f"{position:09}-{_UNSAFE.sub('_', stem)[:_STEM_LETTERS]}"


def check_key(key: str) -> None:
    """Refuse a key that some reader of WebDataset tar files would take for something else.

    Raises:
        ValueError: it holds other characters than ASCII letters, digits, "_" and "-" (a dot would end it, a slash make
            a folder), or is empty or longer than `MAX_KEY_BYTES`.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"key={key!r} is not a key: 1 to {MAX_KEY_BYTES} ASCII letters, digits, '_' and '-' are. "
            "Use augpipe.datasets.shards.ustar.sample_key(position, name)."
        )
