"""Blocks of a stream: their coefficients, or where they end; T.81, F.2.2.

The two loops are the decoder's hot path. Neither looks at bounds within a block: whatever the bits are, it takes at
most `MAX_BLOCK_BYTES`, no coefficient beyond the last is stored where it is read, and after each block the reader looks
where it is. What is not a sound block gives UNSOUND, and libjpeg-turbo finds words for it.
"""

from numba import int64, uint64

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.bits import U, extend, refill
from augpipe.gpu_ops.jpeg.huffman import (
    END_OF_BLOCK,
    IS_LONG,
    LANES,
    NUM_TABLES,
    PAIR_BITS,
    SKIP_BITS,
    STORED_AT,
    SYMBOL_BITS,
    long_symbol,
)

POSITION, BITS, COUNT, FIRST_DC = range(4)
"""Where `reader` holds what, as int64: the reader's three numbers (see `bits`), then a DC predictor a component."""

READER_ITEMS = FIRST_DC + 3

LOOK_UPS = 4
"""How often tables of pairs or skips are looked up in the 56 bits that a reader has at least."""

GROUP_ITEMS = (64 + 1) * LANES
"""int16 that LANES blocks take: 64 coefficients, and a place for what lies beyond."""

MAX_DC = 2047
"""More is not in images of 8 bits, whatever their quantization."""

SOUND, UNSOUND = 0, 1

BLOCK_COMPONENT, BLOCK_DC, BLOCK_AC, BLOCK_GROUP, BLOCK_LANE, BLOCK_STEP = range(6)
"""A block of an MCU: its component, its two tables, the first item of its row of groups, the lane of the first
MCU's, and lanes from MCU to MCU."""


@kernel()
def start_reader(reader, first_bit):
    """Go to a bit of the stream that is the first of a byte, where predictors start again."""
    reader[:] = 0
    reader[POSITION] = first_bit >> 3


@kernel()
def consumed_bits(reader):
    """How many bits of the stream were taken."""
    return reader[POSITION] * 8 - reader[COUNT]


@kernel()
def store_blocks(stream, end, reader, first_mcu, num, blocks, symbols, limits, values, pairs, coefficients):
    """Decode `num` MCUs into groups of LANES blocks, whose coefficients were 0.

    Args:
        stream: uint8, followed by `bits.STREAM_PADDING` zeros.
        end: its length without them.
        reader: (READER_ITEMS,) int64, moved on.
        first_mcu: which one of those that are stored of a row comes first.
        num: how many MCUs.
        blocks: (n, 6) int64, BLOCK_COMPONENT and so on.
        symbols: (NUM_TABLES * 2^SYMBOL_BITS,) uint32.
        limits: (NUM_TABLES, 2, 17) int64.
        values: (NUM_TABLES, 256) uint8.
        pairs: (NUM_TABLES / 2 * 2^PAIR_BITS,) uint64, of the AC tables.
        coefficients: int16.

    Returns:
        SOUND or UNSOUND.
    """
    position, bits, count = uint64(reader[POSITION]), uint64(reader[BITS]), uint64(reader[COUNT])
    beyond = uint64(end + 8)  # the reader loads ahead of what it takes
    for mcu in range(num):
        for block in range(len(blocks)):
            dc_table, ac_table = blocks[block, BLOCK_DC], blocks[block, BLOCK_AC]
            dc_symbols = uint64(dc_table) << U(SYMBOL_BITS)
            ac_pairs = uint64(ac_table - NUM_TABLES // 2) << U(PAIR_BITS)
            lane = uint64(blocks[block, BLOCK_LANE] + (first_mcu + mcu) * blocks[block, BLOCK_STEP])
            first = uint64(blocks[block, BLOCK_GROUP]) + lane // U(LANES) * U(GROUP_ITEMS) + lane % U(LANES)

            position, bits, count = refill(stream, position, bits, count)
            entry = uint64(symbols[dc_symbols + (bits >> U(64 - SYMBOL_BITS))])
            if entry == U(0):
                entry = long_symbol(bits, limits, values, dc_table, False)
                if entry == U(0):
                    return UNSOUND
            predictor = FIRST_DC + blocks[block, BLOCK_COMPONENT]
            dc = reader[predictor] + extend(bits << (entry >> U(19)), (entry >> U(14)) & U(31))
            reader[predictor] = dc
            if dc > MAX_DC or dc < -MAX_DC:
                return UNSOUND
            coefficients[first] = dc
            bits <<= entry & U(63)
            count -= entry

            at = before = U(0)
            while True:
                position, bits, count = refill(stream, position, bits, count)
                for _ in range(LOOK_UPS):
                    entry = pairs[ac_pairs + (bits >> U(64 - PAIR_BITS))]
                    if entry & U(IS_LONG):
                        break
                    before = at + ((entry >> U(14)) & U(255))
                    at += (entry >> U(6)) & U(255)
                    coefficients[first + uint64(STORED_AT[before])] = int64(entry >> U(32))
                    coefficients[first + uint64(STORED_AT[at])] = int64(entry >> U(48))
                    if at >= U(63):
                        break
                    bits <<= entry & U(63)
                    count -= entry
                else:
                    continue
                if entry & U(IS_LONG):
                    position, bits, count = refill(stream, position, bits, count)
                    entry >>= U(32)
                    if entry == U(0):
                        entry = long_symbol(bits, limits, values, ac_table, True)
                        if entry == U(0):
                            return UNSOUND
                    at += (entry >> U(6)) & U(255)
                    value = extend(bits << (entry >> U(19)), (entry >> U(14)) & U(31))
                    coefficients[first + uint64(STORED_AT[at])] = value
                if at >= U(63):
                    break
                bits <<= entry & U(63)
                count -= entry
            if before >= U(63):  # the block ends with the first of two
                at = before
                entry >>= U(22)
            bits <<= entry & U(63)
            count -= entry
            if (at != U(63) and at < U(END_OF_BLOCK)) or position > beyond:
                return UNSOUND
    reader[POSITION], reader[BITS], reader[COUNT] = int64(position), int64(bits), int64(count & U(63))
    return SOUND


@kernel()
def skip_blocks(stream, end, reader, num, blocks, symbols, limits, values, skips):
    """Pass `num` MCUs over; arguments and result are those of `store_blocks`, with the table of skips."""
    position, bits, count = uint64(reader[POSITION]), uint64(reader[BITS]), uint64(reader[COUNT])
    beyond = uint64(end + 8)
    for _ in range(num):
        for block in range(len(blocks)):
            dc_table, ac_table = blocks[block, BLOCK_DC], blocks[block, BLOCK_AC]
            dc_symbols, ac_symbols = uint64(dc_table) << U(SYMBOL_BITS), uint64(ac_table) << U(SYMBOL_BITS)
            ac_skips = uint64(ac_table - NUM_TABLES // 2) << U(SKIP_BITS)

            position, bits, count = refill(stream, position, bits, count)
            entry = uint64(symbols[dc_symbols + (bits >> U(64 - SYMBOL_BITS))])
            if entry == U(0):
                entry = long_symbol(bits, limits, values, dc_table, False)
                if entry == U(0):
                    return UNSOUND
            predictor = FIRST_DC + blocks[block, BLOCK_COMPONENT]
            reader[predictor] += extend(bits << (entry >> U(19)), (entry >> U(14)) & U(31))
            bits <<= entry & U(63)
            count -= entry

            at = after = U(0)
            while True:
                position, bits, count = refill(stream, position, bits, count)
                for _ in range(LOOK_UPS):
                    entry = uint64(skips[ac_skips + (bits >> U(64 - SKIP_BITS))])
                    after = at + (entry >> U(6))
                    if entry == U(0) or after >= U(63):
                        break
                    at = after
                    bits <<= entry & U(63)
                    count -= entry
                else:
                    continue
                is_end = after == U(63) or (after >= U(END_OF_BLOCK) and after < U(END_OF_BLOCK + 63))
                if entry == U(0) or not is_end:  # the block may end before what was looked up does: one symbol
                    position, bits, count = refill(stream, position, bits, count)
                    entry = uint64(symbols[ac_symbols + (bits >> U(64 - SYMBOL_BITS))])
                    if entry == U(0):
                        entry = long_symbol(bits, limits, values, ac_table, True)
                        if entry == U(0):
                            return UNSOUND
                    after = at + ((entry >> U(6)) & U(255))
                at = after
                bits <<= entry & U(63)
                count -= entry
                if at >= U(63):
                    break
            if (at != U(63) and at < U(END_OF_BLOCK)) or position > beyond:
                return UNSOUND
    reader[POSITION], reader[BITS], reader[COUNT] = int64(position), int64(bits), int64(count & U(63))
    return SOUND
