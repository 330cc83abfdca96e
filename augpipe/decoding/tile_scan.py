"""Restart segments in a JPEG's coded data: whether a table of them is right, and cutting some of them out.

All of it holds the GIL: these take microseconds, and a thread that gives the lock away waits longer for it.
"""

import numpy as np
from numba import njit

from augpipe.gpu_ops.jit import kernel

ALL_RIGHT, OTHER_MARKERS, TOO_SHORT = -1, -2, -3
_BLOCK_BYTES = 128
"""Counted in one byte, so that LLVM compares a whole vector of bytes at once: 3.6 microseconds for 88 kB where a 32-bit
count took 15.5."""


@kernel(nogil=False)
def place_segments(data, start, lengths, bounds):
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


@njit(inline="always")
def _uint16(data, at):
    return np.int64(data[at]) << 8 | np.int64(data[at + 1])


@kernel(nogil=False)
def scan_usual(data, table_start, head, bounds, found):
    """All that `tiles.tiles_of` finds out, of a file as `prepare` writes it: 4 microseconds where that takes 30.

    Args:
        data: (num_bytes,) uint8, the whole file; nothing outside it is read.
        table_start: (k,) uint8, what the marker of a tile table holds before the table's body.
        head: (n,) uint8, written: all that stands before the coded data, but notes and the table.
        bounds: (m,) int64, written as by `place_segments`.
        found: (9,) int64, written: stored height and width, true height and width, rows and columns of blocks in an
            MCU, restart interval, bytes of `head`, and where in it the stored height stands.

    Returns:
        How many tiles there are; 0 where anything is not as `prepare` writes it, or `head` or `bounds` is too short:
        the slower way tells good files from bad ones, and what is wrong.
    """
    end = data.size
    if end < 4 or data[0] != 0xFF or data[1] != 0xD8 or head.size < 2:
        return 0
    head[0], head[1] = 0xFF, 0xD8
    num_head = position = 2
    frame_at = table_at = table_stop = 0
    interval = np.int64(0)
    while True:
        if position + 4 > end or data[position] != 0xFF:
            return 0
        marker = np.int64(data[position + 1])
        stop = position + 2 + _uint16(data, position + 2)
        if marker <= 0x01 or 0xD0 <= marker <= 0xD9 or marker == 0xFF or stop < position + 4 or stop > end:
            return 0
        if 0xC0 <= marker < 0xD0 and marker != 0xC4 and marker != 0xC8 and marker != 0xCC:
            if marker != 0xC0 or frame_at != 0 or stop - position < 10:
                return 0
            frame_at = position
            found[8] = num_head + 5
        elif marker == 0xDD and stop == position + 6:
            interval = _uint16(data, position + 4)
        elif marker == 0xE1:
            if stop - position < 10 or data[position + 4] == 0x45:  # EXIF
                return 0
        elif marker == 0xE9:
            if table_at != 0 or stop - position < 4 + table_start.size:
                return 0
            for i in range(table_start.size):
                if data[position + 4 + i] != table_start[i]:
                    return 0
            table_at, table_stop = position + 4 + table_start.size, stop
        if marker <= 0xE0 or marker == 0xEE:
            if num_head + stop - position > head.size:
                return 0
            for i in range(stop - position):
                head[num_head + i] = data[position + i]
            num_head += stop - position
        if marker == 0xDA:
            break
        position = stop
    if frame_at == 0 or table_at == 0 or interval == 0:
        return 0
    num_components = np.int64(data[frame_at + 9])
    if stop - position != 8 + 2 * num_components or data[position + 4] != num_components or data[frame_at + 4] != 8:
        return 0
    if _uint16(data, frame_at + 2) < 8 + 3 * num_components:
        return 0
    blocks_y = blocks_x = np.int64(1)
    if num_components == 3:
        blocks_y, blocks_x = np.int64(data[frame_at + 11]) & 15, np.int64(data[frame_at + 11]) >> 4
        if data[frame_at + 14] != 0x11 or data[frame_at + 17] != 0x11:
            return 0
    elif num_components != 1 or data[frame_at + 11] != 0x11:
        return 0
    if not (1 <= blocks_y <= blocks_x <= 2):
        return 0
    height, width = _uint16(data, frame_at + 5), _uint16(data, frame_at + 7)
    true_height, true_width = _uint16(data, table_at), _uint16(data, table_at + 2)
    row_mcus = (width + 8 * blocks_x - 1) // (8 * blocks_x)
    if not (1 <= true_height <= height and 1 <= true_width <= width) or row_mcus % interval != 0:
        return 0
    num = row_mcus // interval * ((height + 8 * blocks_y - 1) // (8 * blocks_y))
    item_bytes = np.int64(data[table_at + 4])
    if (item_bytes != 2 and item_bytes != 4) or table_stop - table_at != 5 + num * item_bytes or num + 1 > bounds.size:
        return 0
    lengths = np.empty(num, np.int64)
    for i in range(num):
        length = np.int64(0)
        for k in range(item_bytes):
            length = length << 8 | np.int64(data[table_at + 5 + i * item_bytes + k])
        lengths[i] = length
    if place_segments(data, stop, lengths, bounds[: num + 1]) != ALL_RIGHT:
        return 0
    found[0], found[1], found[2], found[3] = height, width, true_height, true_width
    found[4], found[5], found[6], found[7] = blocks_y, blocks_x, interval, num_head
    return num


@kernel(nogil=False)
def renumber(coded, bounds, num_columns, first_row, last_row, first_column, last_column):
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
def num_coded_bytes(bounds, num_columns, first_row, last_row, first_column, last_column):
    """How many bytes some tiles take together.

    Args:
        bounds: (n + 1,) int64, as `place_segments` wrote them.
        num_columns: tiles side by side in the file.
        first_row: of the tiles, as are the others; within the file.
        last_row: excluded.
        first_column: likewise.
        last_column: excluded.
    """
    num = 0
    for row in range(first_row, last_row):
        num += bounds[row * num_columns + last_column] - bounds[row * num_columns + first_column]
    return num


@kernel(nogil=False)
def cut(data, bounds, num_columns, first_row, last_row, first_column, last_column, coded):
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
