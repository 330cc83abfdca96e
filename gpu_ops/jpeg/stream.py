"""The coded bytes of a scan without what was stuffed between them, and where its restart intervals begin."""

from numba import int64, uint64

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.bits import (
    STREAM_PADDING,
    U,
    load_little_endian,
    marker_bytes,
    store_little_endian,
    trailing_zeros,
)

COPIED_AT_ONCE = 32
END_OF_IMAGE, FIRST_RESTART = 0xD9, 0xD0

UNSOUND = -1


@kernel()
def unstuffed(file, start, is_part, stream, intervals, stuffed):
    """Copy the scan from `start` of `file` on into `stream`, up to the mark that ends the image.

    Args:
        file: (n,) uint8.
        start: 0..n, behind the header of a scan, or anywhere in it.
        is_part: whether the scan goes on beyond `file`, so that the mark is not looked for.
        stream: (n - start + COPIED_AT_ONCE + STREAM_PADDING,) uint8 or more: filled, with zeros behind.
        intervals: int64, filled with the offset in `stream` of each restart interval, the first of all included.
        stuffed: ((n - start) // 2 + 1,) uint32 or more: filled with the offset in `stream` of each byte behind which a
            zero was stuffed.

    Returns:
        The length of the stream, the number of intervals, and that of stuffed zeros; UNSOUND and zeros where the scan
        does not end with the mark that ends the image, or restart markers do not count from 0 to 7 over and over, or
        are too many for `intervals`.
    """
    num = len(file)
    read, written, num_intervals, num_stuffed = int64(start), 0, 1, 0
    intervals[0] = 0
    while True:
        # copied before it is looked at: most of a stream has no byte 255
        while read + COPIED_AT_ONCE <= num:
            at, to = uint64(read), uint64(written)
            a, b = load_little_endian(file, at), load_little_endian(file, at + U(8))
            c, d = load_little_endian(file, at + U(16)), load_little_endian(file, at + U(24))
            store_little_endian(stream, to, a)
            store_little_endian(stream, to + U(8), b)
            store_little_endian(stream, to + U(16), c)
            store_little_endian(stream, to + U(24), d)
            found, skipped = marker_bytes(a), 0
            if found == U(0):
                found, skipped = marker_bytes(b), 8
            if found == U(0):
                found, skipped = marker_bytes(c), 16
            if found == U(0):
                found, skipped = marker_bytes(d), 24
            if found == U(0):
                read += COPIED_AT_ONCE
                written += COPIED_AT_ONCE
                continue
            skipped += int64(trailing_zeros(found) >> U(3))
            read += skipped
            written += skipped
            if read + 1 >= num or file[uint64(read + 1)] != 0:
                break
            stuffed[uint64(num_stuffed)] = written
            num_stuffed += 1
            read += 2  # the byte 255 before it has been copied
            written += 1
        while read < num and file[uint64(read)] != 0xFF:
            stream[uint64(written)] = file[uint64(read)]
            read += 1
            written += 1
        if read + 1 >= num:
            if is_part:
                break
            return UNSOUND, 0, 0
        marker = file[uint64(read + 1)]
        read += 2
        if marker == 0:
            stuffed[uint64(num_stuffed)] = written
            num_stuffed += 1
            stream[uint64(written)] = 0xFF
            written += 1
        elif marker == END_OF_IMAGE:
            break
        elif marker == FIRST_RESTART + ((num_intervals - 1) & 7) and num_intervals < len(intervals):
            intervals[num_intervals] = written
            num_intervals += 1
        else:
            return UNSOUND, 0, 0
    stream[written : written + STREAM_PADDING] = 0
    return written, num_intervals, num_stuffed
