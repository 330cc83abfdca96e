"""All codes of a JPEG, of any sampling and in any scans, passed over: whether libjpeg would warn of one.

For files that no decoder at hand both decodes and tells damage of. Markers between the scans are followed as libjpeg's
`next_marker` does, and codes as its decoders of sequential and progressive scans do (T.81, F.2.2 and G.1.2).
"""

import numpy as np
from numba import int64

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.bits import STREAM_PADDING
from augpipe.gpu_ops.jpeg.entropy import (
    BLOCK_AC,
    BLOCK_COMPONENT,
    BLOCK_DC,
    FIRST_DC,
    UNSOUND,
    consumed_bits,
    skip_blocks,
    start_reader,
)
from augpipe.gpu_ops.jpeg.header import LEFT, read_huffman, word_at
from augpipe.gpu_ops.jpeg.huffman import (
    NUM_TABLES,
    PAIR_BITS,
    SKIP_BITS,
    SYMBOL_BITS,
    pairs_of,
    skips_of,
    symbols_of,
)
from augpipe.gpu_ops.jpeg.progressive import bits_at, symbol_at, walk_band

SOUND, DAMAGED, TRUNCATED = range(3)
"""What is said of a file's codes."""

_SOF0, _SOF1, _SOF2, _SOF15, _DHT, _JPG, _DAC = 0xC0, 0xC1, 0xC2, 0xCF, 0xC4, 0xC8, 0xCC
_TEM, _RST0, _RST7, _SOI, _EOI, _SOS, _DRI = 0x01, 0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xDD

_MAX_COMPONENTS, _MAX_BLOCKS = 4, 10
"""Of an image, and in an MCU."""

_IDENTIFIER, _HORIZONTAL, _VERTICAL, _COLUMNS, _ROWS, _FIRST_MASK, _COMPONENT_ITEMS = range(7)
"""What is told of a component: its number in the file, its sampling, its blocks along each axis, and which of all
blocks is its first."""


(
    _NUM_COMPONENTS,
    _IS_PROGRESSIVE,
    _INTERLEAVED_MCUS,
    _RESTART,
    _FIRST,
    _LAST,
    _HIGH,
    _NUM_BLOCKS,
    _MCUS,
    _SCAN_ITEMS,
) = range(10)
"""Where `scan` holds what: of the file its components, its kind, MCUs of all components, and MCUs between restart
markers or 0; of a scan its first and last coefficient, the bit that was told of them before or 0, blocks of an MCU, and
MCUs."""

_BLOCK_MASK = BLOCK_AC + 1
"""Of a block of an MCU, behind its component and tables: the first block of its component."""


@kernel()
def walk_frame(file, start, stop, components):
    """Fill what is told of each component; how many there are, 0 where an image has no such, and MCUs of all."""
    num = int64(file[start + 5]) if stop - start > 6 else 0
    if num == 0 or num > _MAX_COMPONENTS or stop - start != 6 + 3 * num or file[start] != 8:
        return 0, 0
    height, width = word_at(file, start + 1), word_at(file, start + 3)
    most_x = most_y = 1
    for nth in range(num):
        at = start + 6 + 3 * nth
        x, y = int64(file[at + 1]) >> 4, int64(file[at + 1]) & 15
        if not 1 <= x <= 4 or not 1 <= y <= 4:
            return 0, 0
        components[nth, _IDENTIFIER], components[nth, _HORIZONTAL], components[nth, _VERTICAL] = file[at], x, y
        most_x, most_y = max(most_x, x), max(most_y, y)
    first = 0
    for nth in range(num):
        component = components[nth]
        component[_COLUMNS] = (width * component[_HORIZONTAL] + 8 * most_x - 1) // (8 * most_x)
        component[_ROWS] = (height * component[_VERTICAL] + 8 * most_y - 1) // (8 * most_y)
        component[_FIRST_MASK] = first
        first += component[_COLUMNS] * component[_ROWS]
    return num, ((width + 8 * most_x - 1) // (8 * most_x)) * ((height + 8 * most_y - 1) // (8 * most_y))


@kernel()
def walk_unstuffed(file, position, num_intervals, stream, intervals):
    """Copy a scan's codes into `stream`, up to the marker behind them.

    `intervals` is filled with where each restart interval begins in the stream, and at last with its end.

    Returns:
        Where that marker stands, or behind the file; -1 where restart markers do not count, or are too few.
    """
    written, num = 0, 1
    intervals[0] = 0
    while position < len(file):
        if file[position] != 0xFF:
            stream[written] = file[position]
            written += 1
            position += 1
            continue
        at = position + 1
        while at < len(file) and file[at] == 0xFF:  # fills
            at += 1
        if at == len(file):
            position = at
            break
        marker = int64(file[at])
        if marker == 0:
            stream[written] = 0xFF
            written += 1
        elif marker == _RST0 + ((num - 1) & 7) and num < num_intervals:
            intervals[num] = written
            num += 1
        else:
            break
        position = at + 1
    intervals[num] = written
    stream[written : written + STREAM_PADDING] = 0
    return position if num == num_intervals else -1


@kernel()
def walk_progressive(stream, intervals, interval_mcus, scan, blocks, masks, limits, values):
    """Pass over a scan of a progressive file; the bit behind it, -1 where it makes no sense."""
    first, last, is_first, num_mcus = scan[_FIRST], scan[_LAST], scan[_HIGH] == 0, scan[_MCUS]
    bit, run, nth = 0, 0, -1
    for mcu in range(num_mcus):
        if mcu % interval_mcus == 0:
            nth += 1
            if nth > 0 and (bit + 7) >> 3 != intervals[nth]:
                return -1
            bit, run = intervals[nth] * 8, 0
        for block in range(scan[_NUM_BLOCKS]):
            if first > 0:
                at, table = blocks[block, _BLOCK_MASK] + mcu, blocks[block, BLOCK_AC]
                bit, run, masks[at] = walk_band(
                    stream, bit, first, last, run, is_first, masks[at], limits, values, table
                )
            elif is_first:
                size, length = symbol_at(bits_at(stream, bit), limits, values, blocks[block, BLOCK_DC])
                bit = bit + length + size if length else -1
            else:
                bit += 1
            if bit < 0 or (bit + 7) >> 3 > intervals[nth + 1]:
                return -1
    return bit


@kernel()
def walk_sequential(stream, intervals, interval_mcus, num_mcus, blocks, symbols, limits, values, skips):
    """Pass over a scan of a sequential file; the bit behind it, -1 where it makes no sense."""
    reader = np.zeros(FIRST_DC + _MAX_COMPONENTS, np.int64)
    bit = 0
    for mcu in range(0, num_mcus, interval_mcus):
        nth = mcu // interval_mcus
        if nth > 0 and (bit + 7) >> 3 != intervals[nth]:
            return -1
        start_reader(reader, intervals[nth] * 8)
        num = min(interval_mcus, num_mcus - mcu)
        if skip_blocks(stream, intervals[nth + 1], reader, num, blocks, symbols, limits, values, skips) == UNSOUND:
            return -1
        bit = consumed_bits(reader)
        if (bit + 7) >> 3 > intervals[nth + 1]:
            return -1
    return bit


@kernel()
def walk_tables(scan, dc, ac, counts, values, symbols, limits, pairs, skips):
    """Make the tables of a component's codes in a scan, as far as it has such; whether they are codes."""
    is_ac_scan, is_sequential = scan[_FIRST] > 0, not scan[_IS_PROGRESSIVE]
    for table in (dc, ac):
        is_ac = table == ac
        if not is_sequential and (is_ac != is_ac_scan or (not is_ac and scan[_HIGH] > 0)):
            continue
        of_table = symbols[table << SYMBOL_BITS : (table + 1) << SYMBOL_BITS]
        if counts[table, 0] == 0 or not symbols_of(counts[table], values[table], is_ac, of_table, limits[table]):
            return False
        if is_ac and is_sequential:
            at = (ac - NUM_TABLES // 2) << SKIP_BITS
            pairs_of(of_table, pairs)
            skips_of(pairs, skips[at : at + (1 << SKIP_BITS)])
    return True


@kernel()
def walk_scan_header(file, start, stop, scan, components, known, blocks, counts, values, symbols, limits, pairs, skips):
    """Fill the facts of a scan, except its restart interval, and the blocks of its MCUs; whether it makes sense."""
    num = int64(file[start]) if stop > start else 0
    if num == 0 or num > scan[_NUM_COMPONENTS] or stop - start != 4 + 2 * num:
        return False
    first, last = int64(file[stop - 3]), int64(file[stop - 2])
    high, low = int64(file[stop - 1]) >> 4, int64(file[stop - 1]) & 15
    scan[_FIRST], scan[_LAST], scan[_HIGH], scan[_NUM_BLOCKS] = first, last, high, 0
    scan[_MCUS] = scan[_INTERLEAVED_MCUS]
    if not scan[_IS_PROGRESSIVE] and (first != 0 or last != 63 or high != 0 or low != 0):
        return False
    if scan[_IS_PROGRESSIVE] and first > 0 and num > 1:
        return False
    for nth in range(num):
        at, found = start + 1 + 2 * nth, -1
        for other in range(scan[_NUM_COMPONENTS]):
            if components[other, _IDENTIFIER] == file[at]:
                found = other
        dc, ac = int64(file[at + 1]) >> 4, NUM_TABLES // 2 + (int64(file[at + 1]) & 15)
        if found < 0 or dc >= NUM_TABLES // 2 or ac >= NUM_TABLES:
            return False
        if scan[_IS_PROGRESSIVE] and not walk_script(first, last, high, low, known[found]):
            return False
        if not walk_tables(scan, dc, ac, counts, values, symbols, limits, pairs, skips):
            return False
        component = components[found]
        num_blocks = component[_HORIZONTAL] * component[_VERTICAL]
        if num == 1:  # not interleaved: its blocks alone, row by row
            num_blocks, scan[_MCUS] = 1, component[_COLUMNS] * component[_ROWS]
        if scan[_NUM_BLOCKS] + num_blocks > _MAX_BLOCKS:
            return False
        for _ in range(num_blocks):
            block = blocks[scan[_NUM_BLOCKS]]
            block[BLOCK_COMPONENT], block[BLOCK_DC], block[BLOCK_AC] = found, dc, ac
            block[_BLOCK_MASK] = component[_FIRST_MASK]
            scan[_NUM_BLOCKS] += 1
    return True


@kernel()
def is_padding(stream, start, stop):
    """Whether bytes behind the last code are none of a code: zeros, or one other value twice or more."""
    for at in range(start, stop):
        if stream[at] != stream[start]:
            return False
    return stop - start != 1 or stream[start] == 0


@kernel()
def walk_script(first, last, high, low, known):
    """Whether a progressive scan of a component tells what is still to be told; `known` is (64,), bits left or -1."""
    if low > 13 or (high > 0 and high != low + 1) or (first == 0 and last != 0) or last < first or last > 63:
        return False
    if first > 0 and known[0] < 0:
        return False
    for k in range(first, last + 1):
        if high != max(known[k], 0):
            return False
        known[k] = low
    return True


@kernel()
def walk_scan(
    file, position, scan, blocks, values, symbols, limits, skips, masks, stream, intervals
):  # fmt: skip
    """Pass over a scan's codes; where the marker behind them stands and SOUND, or else DAMAGED or TRUNCATED."""
    interval_mcus = scan[_RESTART] if scan[_RESTART] else scan[_MCUS]
    num_intervals = (scan[_MCUS] + interval_mcus - 1) // interval_mcus
    if num_intervals > len(intervals) - 1:
        return position, DAMAGED
    position = walk_unstuffed(file, position, num_intervals, stream, intervals)
    if position < 0:
        return position, DAMAGED
    if scan[_IS_PROGRESSIVE]:
        bit = walk_progressive(stream, intervals, interval_mcus, scan, blocks, masks, limits, values)
    else:
        in_mcu = blocks[: scan[_NUM_BLOCKS]]
        bit = walk_sequential(stream, intervals, interval_mcus, scan[_MCUS], in_mcu, symbols, limits, values, skips)
    if bit < 0:
        return position, TRUNCATED if position == len(file) else DAMAGED
    taken, end = (bit + 7) >> 3, intervals[num_intervals]
    if taken < end:
        behind = position + 1
        while behind < len(file) and file[behind] == 0xFF:
            behind += 1
        is_end = behind < len(file) and file[behind] == _EOI
        if not is_end or not is_padding(stream, taken, end):
            return position, DAMAGED
    return position, SOUND


@kernel()
def walk(file):
    """Pass over all codes of a file, and say SOUND, DAMAGED or TRUNCATED.

    Args:
        file: (n,) uint8, the whole file, of no more pixels than memory is set aside for; what else its header says is
            left to who decodes it.
    """
    scan, components = np.zeros(_SCAN_ITEMS, np.int64), np.zeros((_MAX_COMPONENTS, _COMPONENT_ITEMS), np.int64)
    known = np.full((_MAX_COMPONENTS, 64), -1, np.int64)
    counts, values = np.zeros((NUM_TABLES, 17), np.uint8), np.zeros((NUM_TABLES, 256), np.uint8)
    limits = np.zeros((NUM_TABLES, 2, 17), np.int64)
    symbols = np.zeros(NUM_TABLES << SYMBOL_BITS, np.uint32)
    pairs, skips = np.zeros(1 << PAIR_BITS, np.uint64), np.zeros(NUM_TABLES // 2 << SKIP_BITS, np.uint16)
    blocks = np.zeros((_MAX_BLOCKS, _BLOCK_MASK + 1), np.int64)
    stream = np.zeros(len(file) + STREAM_PADDING, np.uint8)
    intervals, masks = np.zeros(len(file) // 2 + 3, np.int64), np.zeros(0, np.uint64)
    position = 2
    while position + 1 < len(file):
        if file[position] != 0xFF:
            return DAMAGED
        marker = int64(file[position + 1])
        if marker == 0xFF:  # fills
            position += 1
            continue
        position += 2
        if marker == _EOI:
            return SOUND if scan[_NUM_COMPONENTS] else DAMAGED
        if marker == _TEM or _RST0 <= marker <= _RST7:
            continue
        if marker == 0 or marker == _SOI:
            return DAMAGED
        if position + 2 > len(file) or position + word_at(file, position) > len(file):
            return TRUNCATED
        start, stop = position + 2, position + word_at(file, position)
        if stop < start:
            return DAMAGED
        position = stop
        if marker == _DHT:
            if read_huffman(file, start, stop, counts, values) == LEFT:
                return DAMAGED
        elif marker == _DRI:
            if stop - start != 2:
                return DAMAGED
            scan[_RESTART] = word_at(file, start)
        elif _SOF0 <= marker <= _SOF15 and marker != _JPG and marker != _DAC:
            if scan[_NUM_COMPONENTS] or marker > _SOF2:
                return DAMAGED
            scan[_IS_PROGRESSIVE] = marker == _SOF2
            scan[_NUM_COMPONENTS], scan[_INTERLEAVED_MCUS] = walk_frame(file, start, stop, components)
            if scan[_INTERLEAVED_MCUS] == 0:
                return DAMAGED
            if marker == _SOF2:
                last = components[scan[_NUM_COMPONENTS] - 1]
                masks = np.zeros(last[_FIRST_MASK] + last[_COLUMNS] * last[_ROWS], np.uint64)
        elif marker == _SOS:
            if not walk_scan_header(
                file, start, stop, scan, components, known, blocks, counts, values, symbols, limits, pairs, skips
            ):
                return DAMAGED
            position, verdict = walk_scan(
                file, stop, scan, blocks, values, symbols, limits, skips, masks, stream, intervals
            )
            if verdict != SOUND:
                return verdict
    return TRUNCATED


declare(__name__, walk, any=lambda: (np.frombuffer(b"\0", np.uint8),))
