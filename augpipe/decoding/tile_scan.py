"""Restart segments in a JPEG's coded data: whether a table of them is right, and cutting some of them out."""

import numpy as np

from augpipe.gpu_ops.jit import kernel

ALL_RIGHT, OTHER_MARKERS, TOO_SHORT = -1, -2, -3
_BLOCK_BYTES = 128
"""Counted in one byte, so that LLVM compares a whole vector of bytes at once: 3.6 microseconds for 88 kB where a 32-bit
count took 15.5."""


@kernel(nogil=False)
def place_segments(data, start, lengths, bounds):  # type: ignore[no-untyped-def]  # numba compiles it
    """Fill in `bounds`: where each restart segment of a scan stops, if `lengths` are those of all of them.

    In coded data a byte but zero follows 0xff in markers alone (ITU-T T.81, B.1.1.5). So where each of n ends has its
    own marker before it, and there are n markers, no end is missing or wrong, whoever wrote the table.

    Args:
        data: (num_bytes,) uint8, the whole file; nothing outside it is read, whatever the other arguments are.
        start: where the first segment starts, not negative.
        lengths: (n,) int64, n > 0: bytes of each, with the marker that closes it.
        bounds: (n + 1,) int64, written: `start`, then where each segment stops.

    Returns:
        `ALL_RIGHT`; `OTHER_MARKERS` where there are more; `TOO_SHORT` where the file ends before the last segment; or
        the number of the first one that is not closed by RST0 to RST7 in turn, the last by EOI.
    """
    num = lengths.size
    stop = start
    bounds[0] = start
    for i in range(num):
        closing = 0xD9 if i == num - 1 else 0xD0 + (i & 7)
        if lengths[i] < 2:
            return i
        if lengths[i] > data.size - stop:
            return TOO_SHORT
        stop += lengths[i]
        if data[stop - 2] != 0xFF or data[stop - 1] != closing:
            return i
        bounds[i + 1] = stop
    coded = data[start:stop]
    num_pairs = coded.size - 1
    num_whole = num_pairs // _BLOCK_BYTES
    num_markers = 0
    for block in range(num_whole):
        part = coded[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES + 1]
        count = np.uint8(0)
        for i in range(_BLOCK_BYTES):
            count = np.uint8(count + np.uint8((part[i] == 0xFF) & (part[i + 1] != 0)))
        num_markers += int(count)
    for i in range(num_whole * _BLOCK_BYTES, num_pairs):
        num_markers += int((coded[i] == 0xFF) & (coded[i + 1] != 0))
    return ALL_RIGHT if num_markers == num else OTHER_MARKERS


@kernel(nogil=False)
def renumber(coded, bounds, num_columns, first_row, last_row, first_column, last_column):  # type: ignore[no-untyped-def]
    """Number the restart markers of some tiles in turn, in place, and close the last with EOI.

    Args:
        coded: (num_bytes,) uint8, the tiles' bytes one after the other, row by row.
        bounds: (n + 1,) int64, as `place_segments` wrote them.
        num_columns: tiles side by side in the file.
        first_row: of the tiles in `coded`, as are the others; within the file.
        last_row: excluded.
        first_column: likewise.
        last_column: excluded.

    Returns:
        False where the bytes are not those that `bounds` speaks of, or none; nothing outside `coded` is written.
    """
    stop = 0
    number = 0
    for row in range(first_row, last_row):
        for tile in range(row * num_columns + first_column, row * num_columns + last_column):
            stop += bounds[tile + 1] - bounds[tile]
            closing = 0xD9 if tile == bounds.size - 2 else 0xD0 + (tile & 7)
            if stop > coded.size or coded[stop - 2] != 0xFF or coded[stop - 1] != closing:
                return False
            coded[stop - 1] = 0xD0 + (number & 7)
            number += 1
    if stop == 0 or stop != coded.size:
        return False
    coded[stop - 1] = 0xD9
    return True


@kernel(nogil=False)
def cut(data, bounds, num_columns, first_row, last_row, first_column, last_column, coded):  # type: ignore[no-untyped-def]
    """Copy some tiles out of a file, row by row, and `renumber` them.

    Args:
        data: (num_bytes,) uint8, the whole file.
        bounds: (n + 1,) int64, as `place_segments` wrote them for this file.
        num_columns: tiles side by side in the file.
        first_row: of the tiles to copy, as are the others; within the file.
        last_row: excluded.
        first_column: likewise.
        last_column: excluded.
        coded: (num_bytes,) uint8, written: as long as the tiles are together.

    Returns:
        False where the bytes are not those that `bounds` speaks of; nothing outside `data` and `coded` is touched.
    """
    stop = 0
    for row in range(first_row, last_row):
        begin = bounds[row * num_columns + first_column]
        end = bounds[row * num_columns + last_column]
        if begin < 0 or begin > end or end > data.size or end - begin > coded.size - stop:
            return False
        source, target = data[begin:end], coded[stop : stop + end - begin]
        for i in range(target.size):  # LLVM copies vectors; numba's own assignment of slices took six times as long
            target[i] = source[i]
        stop += end - begin
    return stop == coded.size and renumber(coded, bounds, num_columns, first_row, last_row, first_column, last_column)
