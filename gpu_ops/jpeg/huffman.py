"""Huffman codes as tables that are looked up by the next bits of a stream: T.81, annexes C and F.

Three of them a code: one symbol (`symbols_of`), for DC and what the others leave; two coefficients with their values
(`pairs_of`), for blocks that are wanted; as many as fit without their values (`skips_of`), for blocks that are not.
"""

import numpy as np
from numba import int64, uint32, uint64

from augpipe.gpu_ops.jit import kernel

LANES = 16
"""Blocks that are transformed side by side: a coefficient of theirs lies in as many neighbouring int16."""

NUM_TABLES = 8
"""Four for DC, then four for AC."""

SYMBOL_BITS, PAIR_BITS, SKIP_BITS = 10, 11, 11
"""How many bits are looked up at once; skips are made of pairs."""

END_OF_BLOCK = 128
"""How far the symbol that ends a block advances: beyond what any other may reach."""

IS_LONG = 1 << 28
"""The entry of pairs where the first coefficient takes more bits than are looked up."""

MAX_DC_BITS, MAX_AC_BITS = 11, 10
"""More are not in 8-bit images."""


def _natural_order() -> np.ndarray:
    """Where each coefficient lies in a block, row by row, from the order in which they are coded."""

    def place(index: int) -> tuple[int, int]:
        row, column = divmod(index, 8)
        return row + column, row if (row + column) % 2 else column

    return np.array(sorted(range(64), key=place), np.int64)


NATURAL_ORDER = _natural_order()

STORED_AT = np.full(256, 64 * LANES, np.uint16)
"""Where a coefficient of lane 0 is stored, by its place in the code; beyond the last one, where nobody reads."""
STORED_AT[:64] = NATURAL_ORDER * LANES


@kernel()
def entry_of(symbol, length, is_ac):
    """A symbol as uint32: all its bits from bit 0, its advance from 6, its value's bits from 14, its code's from 19."""
    size, advance = symbol & 15, 0
    if is_ac:
        advance = (symbol >> 4) + 1
        if size == 0:
            advance = 16 if symbol == 0xF0 else END_OF_BLOCK
    return uint32((length + size) | (advance << 6) | (size << 14) | (length << 19))


@kernel()
def symbols_of(counts, values, is_ac, table, limits):
    """Fill a table with `entry_of` every short code, 0 where a code is longer or its symbol is not taken.

    Args:
        counts: (17,) uint8 codes of each length.
        values: (256,) uint8 symbols in the order of their codes.
        is_ac: whether these are run and size, or a size alone.
        table: (2^SYMBOL_BITS,) uint32, filled.
        limits: (2, 17) int64, filled for `long_symbol`: by length the first code that is longer, as 16 bits, and
            where in `values` a code of that length stands less the code.

    Returns:
        Whether they are a code.
    """
    code, position, filled = 0, 0, 0
    for length in range(1, 17):
        num = int64(counts[length])
        limits[1, length] = position - code
        if num > 0 and code + num >= 1 << length:  # no code is of ones alone
            return False
        for nth in range(num):
            symbol = int64(values[position + nth])
            if not is_ac and symbol > 15:
                return False
            if length <= SYMBOL_BITS:
                entry = entry_of(symbol, length, is_ac) if is_taken(symbol, is_ac) else uint32(0)
                until = filled + (1 << (SYMBOL_BITS - length))
                for at in range(filled, until):
                    table[uint64(at)] = entry
                filled = until
        code += num
        position += num
        limits[0, length] = code << (16 - length)
        code <<= 1
    table[filled:] = 0
    return True


@kernel()
def is_taken(symbol, is_ac):
    """Whether a symbol occurs in images of 8 bits."""
    return (symbol & 15) <= MAX_AC_BITS if is_ac else symbol <= MAX_DC_BITS


@kernel()
def long_symbol(bits, limits, values, table, is_ac):
    """The entry of a code that is not among a table's symbols; 0 where there is none."""
    code = int64(bits >> uint64(48))
    for length in range(1, 17):
        if code < limits[table, 0, length]:
            symbol = int64(values[table, (limits[table, 1, length] + (code >> (16 - length))) & 255])
            return uint64(entry_of(symbol, length, is_ac)) if is_taken(symbol, is_ac) else uint64(0)
    return uint64(0)


@kernel()
def value_of(bits, size):
    """The signed number that `size` bits stand for."""
    return bits if size == 0 or bits >= 1 << (size - 1) else bits + 1 - (1 << size)


@kernel()
def pairs_of(symbols, pairs):
    """Fill (2^PAIR_BITS,) uint64 with two coefficients each, as far as they fit.

    From the lowest bit: bits of both (6), how far both advance (8), how far the first does (8), bits of the first (6),
    IS_LONG, and from bit 32 the two values, of 16 bits each. Where one alone fits, both are that one; where none does,
    there is IS_LONG, and from bit 32 the first one's symbol, as in `symbols`.
    """
    index = 0
    while index < 1 << PAIR_BITS:  # one coefficient each
        entry = int64(symbols[index >> (PAIR_BITS - SYMBOL_BITS)])
        taken, advance, size = entry & 63, (entry >> 6) & 255, (entry >> 14) & 31
        packed, free_bits = uint64(IS_LONG) | uint64(entry) << uint64(32), PAIR_BITS - SYMBOL_BITS
        if entry != 0 and taken > PAIR_BITS:
            free_bits = PAIR_BITS - (entry >> 19)
        elif entry != 0:
            free_bits = PAIR_BITS - taken
            value = uint64(value_of((index >> free_bits) & ((1 << size) - 1), size) & 0xFFFF)
            numbers = uint64(taken | (advance << 6) | (advance << 14) | (taken << 22))
            packed = numbers | value << uint64(32) | value << uint64(48)
        until = index + (1 << free_bits)
        for at in range(index, until):
            pairs[uint64(at)] = packed
        index = until
    for index in range(1 << PAIR_BITS):
        first = int64(pairs[index])
        taken, advance = first & 63, (first >> 6) & 255
        # where two stand there already the first one is meant
        following = int64(pairs[uint64((index << taken) & ((1 << PAIR_BITS) - 1))])
        more, further = (following >> 22) & 63, (following >> 14) & 255
        numbers = (first & 0xFFFFFFFFFFFF) + more + (further << 6)
        both = uint64(numbers) | uint64(following >> 32) << uint64(48)
        is_long = (first | following) & IS_LONG != 0
        fits = (taken + more <= PAIR_BITS) & (advance < END_OF_BLOCK) & (not is_long)
        pairs[index] = both if fits else uint64(first)


@kernel()
def skips_of(pairs, skips):
    """Fill (2^SKIP_BITS,) uint16 with up to four coefficients: their bits with values (6), how far they advance.

    0 where not even the first fits.
    """
    for index in range(1 << SKIP_BITS):
        pair = int64(pairs[index])
        taken, advance = pair & 63, (pair >> 6) & 255
        following = int64(pairs[uint64((index << taken) & ((1 << SKIP_BITS) - 1))])
        fits_both = taken + (following & 63) <= SKIP_BITS
        more = following & 63 if fits_both else (following >> 22) & 63
        further = advance + (((following >> 6) & 255) if fits_both else ((following >> 14) & 255))
        fits = taken + more <= SKIP_BITS and not following & IS_LONG and not 63 < further < END_OF_BLOCK
        if fits and advance < END_OF_BLOCK:
            taken, advance = taken + more, further
        skips[index] = 0 if pair & IS_LONG else taken | (advance << 6)
