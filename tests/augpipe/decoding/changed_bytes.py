"""Sound JPEGs with one changed byte among their codes, and what libjpeg-turbo says of them at its strictest."""

import random
import re
from collections.abc import Iterator

import simplejpeg

_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)
_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker 0x(..)$")


def scans(data: bytes) -> list[tuple[int, int]]:
    """(start, stop) of the codes of each scan of a sound file, restart markers among them."""
    found, position = [], 2
    while data[position + 1] != 0xD9:
        stop = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if data[position + 1] == 0xDA:
            end = _END_OF_SCAN.search(data, stop)
            assert end is not None
            found.append((stop, end.start()))
            stop = end.start()
        position = stop
    return found


def one_byte_changes(data: bytes, num: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """`num` copies of a sound file, each with another byte at one place of its scans, and that place."""
    places = [at for start, stop in scans(data) for at in range(start, stop)]
    chance = random.Random(seed)
    for _ in range(num):
        at = chance.choice(places)
        yield at, data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]


def warning_of(data: bytes, colours: str = "RGBX") -> str:
    """libjpeg-turbo's first warning of a file, or its error; empty where it decodes it without one."""
    try:
        simplejpeg.decode_jpeg(data, colours, fastdct=False, fastupsample=False, strict=True)
    except ValueError as error:
        return str(error)
    return ""


def is_harmless(data: bytes, warning: str) -> bool:
    """Whether a warning is of padding behind the codes: zeros, or another byte twice or more, before the end mark."""
    found = _EXTRANEOUS.search(warning)
    if not found or found[2] != "d9":
        return False
    num, end = int(found[1]), data.index(b"\xff\xd9", scans_start(data))
    rest = data[end - max(num, 2) : end]
    return len(set(rest)) == 1 or (num == 1 and rest[-1:] == b"\0")


def scans_start(data: bytes) -> int:
    """Where the first scan's codes begin, by the segments before it."""
    position = 2
    while data[position + 1] != 0xDA:
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")


def is_refused(data: bytes, colours: str = "RGBX") -> bool:
    """Whether libjpeg-turbo refuses a file for more than padding behind its codes."""
    warning = warning_of(data, colours)
    return bool(warning) and not is_harmless(data, warning)


def refuses_rows(data: bytes, num_rows: int, restart: int | None = None) -> bool:
    """Whether libjpeg-turbo refuses what a file of one scan holds of its first rows of pixels.

    Args:
        data: the file.
        num_rows: whole MCUs.
        restart: where the restart marker behind these MCUs stands in the sound file; None where it has no such markers,
            and bytes left over behind them are the next ones' codes.
    """
    position = 2
    while data[position + 1] not in (0xC0, 0xC1):
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    upper = data[: position + 5] + num_rows.to_bytes(2, "big") + data[position + 7 :]
    if restart is not None:
        return is_refused(upper[:restart] + b"\xff\xd9")
    warning = warning_of(upper)
    return bool(warning) and _EXTRANEOUS.search(warning) is None
