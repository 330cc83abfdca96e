"""Points: where in a file an MCU begins, so that decoding starts there and not at the first one of all.

A point is all that a reader needs: the bit of the scan, and the DC predictors. Those of every ROW_STEP-th row of MCUs,
and there of every COLUMN_STEP-th column, are noted as rows are decoded, and taken when the same file is decoded once
more. They are trusted for pixels, and never for where memory ends.
"""

from numba import int64, uint64

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.entropy import BITS, COUNT, FIRST_DC, MAX_DC, POSITION, SOUND, UNSOUND, consumed_bits
from augpipe.gpu_ops.jpeg.header import RESTART_INTERVAL
from augpipe.gpu_ops.jpeg.layout import MCU_COLUMNS, MCU_ROWS

(
    ROW_STEP,
    COLUMN_STEP,
    NUM_ROWS,
    NUM_POINTS,
    POINTS_A_ROW,
    FIRST_BYTE,
    NUM_STUFFED,
    NUM_PASSED,
    KNOWN_ITEMS,
) = range(9)
"""Where `known` holds what, as int64: the steps, 0 where none are chosen or nothing is noted; of how many rows, from
the first one on, the points are known; how many points these are or, where no row is known yet, how many there may be;
points in a row; and of one decoding where its stream begins in the scan, how many zeros were stuffed into it, and how
many of them the reader has passed."""

COLUMNS_A_POINT = 16

MAX_SCAN_BYTES = 1 << 29
"""Bits of longer ones are not counted in 32 bits."""


@kernel()
def choose_steps(frame, extent, num_bytes, known):
    """Choose steps where none are; how many points all rows have, 0 where nothing is noted."""
    num_rows, num_columns = extent[MCU_ROWS], extent[MCU_COLUMNS]
    is_known = 0 < known[NUM_ROWS] <= num_rows and known[ROW_STEP] > 0 and known[COLUMN_STEP] > 0
    if not is_known:
        known[ROW_STEP], known[COLUMN_STEP], known[NUM_ROWS] = 1, COLUMNS_A_POINT, 0
    if frame[RESTART_INTERVAL] or num_bytes >= MAX_SCAN_BYTES:
        known[ROW_STEP] = 0
    while known[ROW_STEP]:
        row_step = known[ROW_STEP]
        known[POINTS_A_ROW] = (num_columns + known[COLUMN_STEP] - 1) // known[COLUMN_STEP]
        num = (num_rows + row_step - 1) // row_step * known[POINTS_A_ROW]
        if is_known:
            if (known[NUM_ROWS] + row_step - 1) // row_step * known[POINTS_A_ROW] == known[NUM_POINTS]:
                return num
            break
        if num <= known[NUM_POINTS]:
            return num
        if known[POINTS_A_ROW] > 1:
            known[COLUMN_STEP] *= 2
        else:
            known[ROW_STEP] = 2 * row_step if row_step < num_rows else 0
    known[ROW_STEP] = known[NUM_ROWS] = 0
    return 0


@kernel()
def has_points(known, row):
    """Whether the points of a row are known."""
    return row < known[NUM_ROWS] and row % known[ROW_STEP] == 0


@kernel()
def point_byte(known, positions, row, column):
    """The byte of the scan in which an MCU begins, whose row has points."""
    return int64(positions[point_of(known, row, column)]) >> 3


@kernel()
def point_of(known, row, column):
    """Which point stands at an MCU, or before it in its row."""
    return row // known[ROW_STEP] * known[POINTS_A_ROW] + column // known[COLUMN_STEP]


@kernel()
def note_point(known, positions, predictors, stuffed, reader, row, column):
    """Note where the reader is, before an MCU at which a point stands; SOUND or UNSOUND."""
    nth = point_of(known, row, column)
    bit = consumed_bits(reader)
    passed, byte = known[NUM_PASSED], bit >> 3
    while passed < known[NUM_STUFFED] and stuffed[passed] < byte:
        passed += 1
    known[NUM_PASSED] = passed
    positions[nth] = (known[FIRST_BYTE] + byte + passed) << 3 | (bit & 7)
    for component in range(3):
        predictor = reader[FIRST_DC + component]
        if predictor > MAX_DC or predictor < -MAX_DC:
            return UNSOUND
        predictors[nth, component] = predictor
    return SOUND


@kernel()
def go_to_point(known, positions, predictors, stuffed, stream, end, reader, row, column):
    """Put the reader at a point, or UNSOUND where that is not in the stream; the points of a call go forward."""
    nth = point_of(known, row, column)
    byte = (int64(positions[nth]) >> 3) - known[FIRST_BYTE]
    passed = known[NUM_PASSED]
    while passed < known[NUM_STUFFED] and int64(stuffed[passed]) + passed < byte:
        passed += 1
    known[NUM_PASSED] = passed
    byte -= passed
    if byte < 0 or byte > end:
        return UNSOUND
    bit = int64(positions[nth]) & 7
    reader[POSITION] = byte + 1
    reader[BITS] = int64(uint64(stream[byte]) << uint64(56 + bit))
    reader[COUNT] = 8 - bit
    for component in range(3):
        reader[FIRST_DC + component] = predictors[nth, component]
    return SOUND
