"""What is wrong with one sample of a shard, if anything."""

import json
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.datasets.shards.index import EXTENSIONS, Record, extension_of
from augpipe.datasets.shards.ustar import BLOCK_BYTES, Member, padded, parse_header
from augpipe.datasets.shards.writer import MAX_IMAGE_BYTES, MAX_NOTE_BYTES
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.decoding.row_index import row_index_of

FILES_OF_A_SAMPLE = (tuple(EXTENSIONS.values()), ("cls",), ("json",))
"""The extensions that each of a sample's three files may have, in their order."""
_FEWEST_BYTES = 6 * BLOCK_BYTES  # three headers with at least a block behind each
_MOST_BYTES = MAX_IMAGE_BYTES + 2 * MAX_NOTE_BYTES + _FEWEST_BYTES


class Contents(NamedTuple):
    """A sample as its part of the tar file has it."""

    key: str
    extension: str
    """The image's."""
    image: memoryview
    label: int
    height: int
    width: int
    numbers: Any
    """The .json's "label", a list where labels are several numbers."""


def read_sample(group: bytes) -> Contents:
    """A sample from all that it takes in the tar file: three headers with their files, and nothing more.

    Raises:
        ValueError: it is not as a writer would have written it; the reason alone.
    """
    members: list[Member] = []
    contents: list[memoryview] = []
    view = memoryview(group)
    at = 0
    for extensions in FILES_OF_A_SAMPLE:
        member = parse_header(view[at : at + BLOCK_BYTES])
        key, _, found = member.name.partition(".")
        if found not in extensions or (members and key != members[0].name.partition(".")[0]):
            raise ValueError(f"{member.name!r} stands where the sample's .{extensions[0]} belongs")
        at += BLOCK_BYTES
        content = view[at : at + member.num_bytes]
        if len(content) < member.num_bytes:
            raise ValueError(f"{member.name!r} ends after {len(content)} of its {member.num_bytes} bytes")
        at += padded(member.num_bytes)
        members.append(member)
        contents.append(content)
    if at != len(group):
        raise ValueError(f"it takes {len(group)} bytes of the tar file, and its three files take {at}")
    label = _parse_label(bytes(contents[1]))
    height, width, numbers = _parse_note(bytes(contents[2]))
    key, _, extension = members[0].name.partition(".")
    return Contents(key, extension, contents[0], label, height, width, numbers)


def compare(sample: Contents, record: Record, key: str, numbers: list[int] | list[float] | None = None) -> None:
    """Refuse an index that says something else than the tar file.

    Raises:
        ValueError: what differs; the reason alone.
    """
    if numbers is not None and sample.numbers != numbers:
        raise ValueError(f"label is {numbers!r:.100} in the index and {sample.numbers!r:.100} in the tar file's .json")
    for what, indexed, stored in (
        ("the key", key, sample.key),
        ("format", extension_of(record.format), sample.extension),
        ("length", record.length, len(sample.image)),
        ("label", record.label, sample.label),
        ("height", record.height, sample.height),
        ("width", record.width, sample.width),
    ):
        if indexed != stored:
            raise ValueError(f"{what} is {indexed!r} in the index and {stored!r} in the tar file")


def check_crc(group: bytes, record: Record) -> None:
    """Refuse other bytes than those that were written.

    Raises:
        ValueError: the reason alone.
    """
    if zlib.crc32(group) != record.crc:
        raise ValueError("its bytes are not those that were written (their CRC-32 differs)")


def check_image(sample: Contents, row_index: bytes | memoryview) -> None:
    """Decode the image, and compare its format, its size and its row index with what the shard says of them.

    Args:
        sample: the sample.
        row_index: as the index has it; empty where it has none.

    Raises:
        ValueError: the reason alone.
    """
    header = probe(sample.image, max_pixels=MAX_PIXELS)
    if EXTENSIONS[header.format] != sample.extension:
        raise ValueError(f"it is a {header.format}, and its name ends with .{sample.extension}")
    if (header.height, header.width) != (sample.height, sample.width):
        raise ValueError(
            f"the photograph has {header.width}x{header.height} pixels, and its .json says "
            f"{sample.width}x{sample.height}"
        )
    decode(sample.image, header)
    if row_index:
        expected = row_index_of(sample.image, header.height, header.width) if header.may_crop else b""
        if row_index != expected:
            raise ValueError("its row index is not the one that is found in the photograph")


def _parse_label(text: bytes) -> int:
    if not text.removeprefix(b"-").isdigit() or len(text) > 10 or b"%d" % int(text) != text:
        raise ValueError(f"its .cls holds {text[:20]!r}, and a label is written in decimal digits")
    return int(text)


def _parse_note(text: bytes) -> tuple[int, int, Any]:
    try:
        note = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its .json cannot be read ({error})") from error
    sides = (note.get("height"), note.get("width")) if isinstance(note, dict) else (None, None)
    if type(sides[0]) is not int or type(sides[1]) is not int:
        raise ValueError("its .json holds no height and width in pixels")
    return sides[0], sides[1], note.get("label")


def follow_each_other(records: npt.NDArray[np.void], shard_bytes: int, end_bytes: int) -> bool:
    """Whether samples of possible lengths follow each other from the tar file's first byte to its end marks."""
    offsets = records["offset"]
    if len(offsets) == 0:
        return shard_bytes == end_bytes
    if int(offsets.max()) > shard_bytes:
        return False
    starts = np.append(offsets.astype(np.int64) - BLOCK_BYTES, shard_bytes - end_bytes)
    lengths = np.diff(starts)
    return bool(starts[0] == 0 and (lengths >= _FEWEST_BYTES).all() and (lengths <= _MOST_BYTES).all())
