"""Where the values of a `tf.train.Example` lie, without reading those that are large.

The message is Features of a map from a name to one of three lists: of bytes, of floats, of int64
(tensorflow/core/example/feature.proto). In protobuf's wire format all of them are length-delimited, so that an image is
stepped over.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_KINDS = {1: "bytes", 2: "float", 3: "int64"}
_MAX_NAME_BYTES = 4096
_MAX_FEATURES = 10_000
_FLOAT_BYTES = 4


class Feature(NamedTuple):
    """A list of values, by its place in the file."""

    kind: str
    """"bytes", "float" or "int64"; "" for a feature that holds no list."""
    first: int
    end: int


def features_of(file: BinaryIO, first: int, length: int) -> dict[str, Feature]:
    """Name -> place of each feature of the Example in `length` bytes from `first`.

    Raises:
        ValueError: it is not an Example, or a length leads out of it; the reason alone.
    """
    found: dict[str, Feature] = {}
    for number, start, end in _fields(file, first, first + length):
        if number != 1:
            continue
        for inner, entry, entry_end in _fields(file, start, end):
            if inner != 1:
                continue
            name, feature = _entry(file, entry, entry_end)
            if name in found:
                raise ValueError(f"its feature {name!r:.100} is there twice")
            found[name] = feature
            if len(found) > _MAX_FEATURES:
                raise ValueError(f"it has more than {_MAX_FEATURES} features")
    return found


def bytes_of(file: BinaryIO, feature: Feature) -> list[tuple[int, int]]:
    """(where it begins, where it ends) for each value of a list of bytes."""
    assert feature.kind == "bytes"
    return [(start, end) for number, start, end in _fields(file, feature.first, feature.end) if number == 1]


def integers_of(file: BinaryIO, feature: Feature) -> list[int]:
    """The values of a list of int64, packed or not.

    Raises:
        ValueError: the list is damaged.
    """
    assert feature.kind == "int64"
    values: list[int] = []
    position = feature.first
    while position < feature.end:
        tag, position = _varint(file, position, feature.end)
        if tag == 1 << 3 | _VARINT:
            end = feature.end
            value, position = _varint(file, position, end)
            values.append(_signed(value))
            continue
        if tag != 1 << 3 | _DELIMITED:
            raise ValueError("one of its lists of int64 holds something else")
        size, position = _varint(file, position, feature.end)
        if size > feature.end - position:
            raise ValueError("a length leads out of one of its lists of int64")
        end = position + size
        while position < end:
            value, position = _varint(file, position, end)
            values.append(_signed(value))
    return values


def floats_of(file: BinaryIO, feature: Feature) -> list[float]:
    """The values of a list of float, packed or not.

    Raises:
        ValueError: the list is damaged.
    """
    assert feature.kind == "float"
    values: list[float] = []
    position = feature.first
    while position < feature.end:
        tag, position = _varint(file, position, feature.end)
        size = _FLOAT_BYTES
        if tag == 1 << 3 | _DELIMITED:
            size, position = _varint(file, position, feature.end)
        elif tag != 1 << 3 | _FIXED_32:
            raise ValueError("one of its lists of float holds something else")
        if size > feature.end - position or size % _FLOAT_BYTES:
            raise ValueError("a length leads out of one of its lists of float")
        file.seek(position)
        values += struct.unpack(f"<{size // _FLOAT_BYTES}f", file.read(size))
        position += size
    return values


def _entry(file: BinaryIO, first: int, end: int) -> tuple[str, Feature]:
    name, feature = "", Feature("", first, first)
    for number, start, stop in _fields(file, first, end):
        if number == 1:
            if stop - start > _MAX_NAME_BYTES:
                raise ValueError(f"the name of a feature has {stop - start} bytes")
            file.seek(start)
            name = file.read(stop - start).decode("utf-8", "backslashreplace")
        elif number == 2:
            lists = [(_KINDS[kind], a, b) for kind, a, b in _fields(file, start, stop) if kind in _KINDS]
            if len(lists) > 1:
                raise ValueError(f"its feature {name!r:.100} holds lists of {len(lists)} kinds")
            feature = Feature(*lists[0]) if lists else Feature("", start, start)
    return name, feature


def _fields(file: BinaryIO, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of each length-delimited field of a message; others are stepped over."""
    position = first
    while position < end:
        tag, position = _varint(file, position, end)
        number, wire = tag >> 3, tag & 7
        if wire == _DELIMITED:
            size, position = _varint(file, position, end)
        elif wire == _VARINT:
            _, position = _varint(file, position, end)
            continue
        elif wire in (_FIXED_64, _FIXED_32):
            position += 8 if wire == _FIXED_64 else 4
            if position > end:
                raise ValueError("a field leads out of it: it is not a tf.train.Example")
            continue
        else:
            raise ValueError(f"it holds a field of the unknown kind {wire}: it is not a tf.train.Example")
        if number == 0 or size > end - position:
            raise ValueError("a length leads out of it: it is not a tf.train.Example")
        yield number, position, position + size
        position += size


def _varint(file: BinaryIO, position: int, end: int) -> tuple[int, int]:
    """A number and where it ends."""
    file.seek(position)
    value = 0
    for count, byte in enumerate(file.read(min(10, end - position))):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + count + 1
    raise ValueError("a number in it has no end: it is not a tf.train.Example")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
