"""Blocks of a progressive scan, passed over: T.81, G.1.2. They are not decoded here."""

from numba import int64, uint64

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.bits import U, load_big_endian


@kernel()
def bits_at(stream, bit):
    """The stream from a bit on, 57 or more, from the highest one down."""
    return load_big_endian(stream, uint64(bit >> 3)) << uint64(bit & 7)


@kernel()
def symbol_at(bits, limits, values, table):
    """The next symbol and the bits that its code takes; 0 bits where there is no such code."""
    code = int64(bits >> U(48))
    for length in range(1, 17):
        if code < limits[table, 0, length]:
            return int64(values[table, (limits[table, 1, length] + (code >> (16 - length))) & 255]), length
    return 0, 0


@kernel()
def walk_band(stream, bit, first, last, run, is_first, mask, limits, values, table):
    """Pass over one block of a scan of AC coefficients.

    Args:
        stream: as `bits_at` takes it.
        bit: where it begins.
        first: the band's first coefficient.
        last: and its last one.
        run: of how many blocks, this one included, the band is known to end here.
        is_first: whether it is the band's first scan, and none that tells one more bit of each.
        mask: a bit for each coefficient of the block that is not 0.
        limits: of codes.
        values: of codes.
        table: which code.

    Returns:
        The bit behind it, the run that is left, and the mask; -1 as the bit where it makes no sense.
    """
    k = first
    while k <= last and run == 0:
        bits = bits_at(stream, bit)
        symbol, length = symbol_at(bits, limits, values, table)
        if length == 0:
            return -1, 0, mask
        zeros, size = symbol >> 4, symbol & 15
        bit += length
        if size == 0 and zeros < 15:
            run = (1 << zeros) + int64((bits << uint64(length)) >> U(1) >> uint64(63 - zeros))
            bit += zeros
            break
        if not is_first and size > 1:
            return -1, 0, mask
        bit += size
        if is_first:
            k += zeros
        else:  # zeros are counted, and coefficients that are not 0 yet passed by, which take a bit each
            while k <= last:
                if mask >> uint64(k) & U(1):
                    bit += 1
                elif zeros == 0:
                    break
                else:
                    zeros -= 1
                k += 1
        if size:
            if k > last:
                return -1, 0, mask
            mask |= U(1) << uint64(k)
        k += 1
    if run:
        run -= 1
        while k <= last and not is_first:
            bit += int64(mask >> uint64(k) & U(1))
            k += 1
    return bit, run, mask
