"""One region of one JPEG, at any DCT scale: header, stream, the MCUs that it needs, their levels, and its pixels.

Of the rows of MCUs above the region, and of what lies next to it, codes are passed over and nothing is computed.
Nothing below it is read, except the end of the file. All memory is the caller's `Workspace`; no more is written than
was checked to be there.
"""

from numba import uint64

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.bits import STREAM_PADDING
from augpipe.gpu_ops.jpeg.colour import write_pixels
from augpipe.gpu_ops.jpeg.entropy import (
    GROUP_ITEMS,
    UNSOUND,
    consumed_bits,
    skip_blocks,
    start_reader,
    store_blocks,
)
from augpipe.gpu_ops.jpeg.header import (
    AC_TABLE,
    COMPONENT_ITEMS,
    DC_TABLE,
    FIRST_COMPONENT,
    HEIGHT,
    LEFT,
    NUM_COMPONENTS,
    RESTART_INTERVAL,
    SCAN_START,
    TAKEN,
    WIDTH,
    read_header,
)
from augpipe.gpu_ops.jpeg.huffman import (
    LANES,
    NUM_TABLES,
    PAIR_BITS,
    SKIP_BITS,
    SYMBOL_BITS,
    pairs_of,
    skips_of,
    symbols_of,
)
from augpipe.gpu_ops.jpeg.layout import (
    COEFFICIENTS,
    COLUMNS,
    FIRST_COLUMN,
    FIRST_ROW,
    INTERVALS,
    LAYER_BYTES,
    LAYER_GROUP,
    LAYER_GROUPS,
    LAYER_PLANE,
    LAYER_QUANTIZATION,
    LAYER_SIZE,
    LAYER_STEP,
    MCU_COLUMNS,
    MCU_ROWS,
    PLANES,
    POINTS,
    SCALED_HEIGHT,
    SCALED_WIDTH,
    STOP_COLUMN,
    STOP_ROW,
    STREAM,
    STUFFED,
    choose_scale,
    find_extent,
    lay_out,
)
from augpipe.gpu_ops.jpeg.points import (
    COLUMN_STEP,
    FIRST_BYTE,
    NUM_ROWS,
    NUM_STUFFED,
    ROW_STEP,
    choose_steps,
    go_to_point,
    has_points,
    note_point,
    point_byte,
)
from augpipe.gpu_ops.jpeg.reduced import transform_to
from augpipe.gpu_ops.jpeg.stream import COPIED_AT_ONCE, unstuffed
from augpipe.gpu_ops.memory import borrowed

SMALL = 2
"""The workspace is too small: `needed` says how large it has to be."""


@kernel()
def build_tables(frame, counts, values, symbols, limits, pairs, skips, has_skips):
    """Fill the tables that the components take, those of skips where blocks are skipped; whether all are codes."""
    done = 0
    for component in range(frame[NUM_COMPONENTS]):
        for item in (DC_TABLE, AC_TABLE):
            table = frame[FIRST_COMPONENT + component * COMPONENT_ITEMS + item]
            if done >> table & 1:
                continue
            done |= 1 << table
            of_table = symbols[table << SYMBOL_BITS : (table + 1) << SYMBOL_BITS]
            if not symbols_of(counts[table], values[table], item == AC_TABLE, of_table, limits[table]):
                return False
            if item == AC_TABLE:
                nth = table - NUM_TABLES // 2
                of_pairs = pairs[nth << PAIR_BITS : (nth + 1) << PAIR_BITS]
                pairs_of(of_table, of_pairs)
                if has_skips:
                    skips_of(of_pairs, skips[nth << SKIP_BITS : (nth + 1) << SKIP_BITS])
    return True


@kernel()
def decode_rows(
    frame, extent, first_row, known, positions, predictors, stuffed, stream, end, intervals, num_intervals, reader,
    blocks, layers, values, quantization, symbols, limits, pairs, skips, coefficients, num_coefficients, between,
    planes,
):  # fmt: skip
    """Decode the rows of MCUs down to the region's last one into planes of levels; UNSOUND where all is not well."""
    known, positions, predictors, stuffed, stream, reader = borrowed(
        (known, positions, predictors, stuffed, stream, reader)
    )
    blocks, layers, values, quantization, symbols, limits, pairs, skips, coefficients, between, planes = borrowed(
        (blocks, layers, values, quantization, symbols, limits, pairs, skips, coefficients, between, planes)
    )
    num_columns, first, stop = extent[MCU_COLUMNS], extent[FIRST_COLUMN], extent[STOP_COLUMN]
    is_to_the_end = extent[STOP_ROW] == extent[MCU_ROWS] and known[NUM_ROWS] < extent[MCU_ROWS]
    interval, left = 0, num_columns * extent[MCU_ROWS]
    if frame[RESTART_INTERVAL]:
        left = frame[RESTART_INTERVAL]
    start_reader(reader, 0)
    for row in range(first_row, extent[STOP_ROW]):
        is_wanted = row >= extent[FIRST_ROW]
        is_noted = known[ROW_STEP] > 0 and row >= known[NUM_ROWS] and row % known[ROW_STEP] == 0
        is_last = row == extent[STOP_ROW] - 1 and not is_to_the_end
        column, row_stop = 0, num_columns
        if is_last or has_points(known, row + 1):
            row_stop = stop if is_wanted else 0
        if has_points(known, row):
            from_column = first if is_wanted else 0
            column = from_column - from_column % known[COLUMN_STEP]
            if go_to_point(known, positions, predictors, stuffed, stream, end, reader, row, column) == UNSOUND:
                return UNSOUND
        if is_wanted:
            coefficients[:num_coefficients] = 0
        while column < row_stop:
            if left == 0:
                if interval + 1 == num_intervals or (consumed_bits(reader) + 7) >> 3 != intervals[interval + 1]:
                    return UNSOUND
                interval += 1
                start_reader(reader, intervals[interval] * 8)
                left = frame[RESTART_INTERVAL]
            until = num_columns
            if is_wanted and column < stop:
                until = first if column < first else stop
            until = min(until, column + left)
            if is_noted:
                into_step = column % known[COLUMN_STEP]
                until = min(until, column + known[COLUMN_STEP] - into_step)
                if into_step == 0:
                    if note_point(known, positions, predictors, stuffed, reader, row, column) == UNSOUND:
                        return UNSOUND
            if is_wanted and first <= column < stop:
                result = store_blocks(
                    stream,
                    end,
                    reader,
                    column - first,
                    until - column,
                    blocks,
                    symbols,
                    limits,
                    values,
                    pairs,
                    coefficients,
                )
            else:
                result = skip_blocks(stream, end, reader, until - column, blocks, symbols, limits, values, skips)
            if result == UNSOUND:
                return UNSOUND
            left -= until - column
            column = until
        if row == known[NUM_ROWS] and column == num_columns and known[ROW_STEP] > 0:
            known[NUM_ROWS] += 1
        if is_wanted:
            for nth in range(len(layers)):
                layer = layers[nth]
                start = layer[LAYER_PLANE] + (row - extent[FIRST_ROW]) * layer[LAYER_STEP]
                for group in range(layer[LAYER_GROUPS]):
                    is_small = transform_to(
                        layer[LAYER_SIZE],
                        coefficients,
                        uint64(layer[LAYER_GROUP] + group * GROUP_ITEMS),
                        quantization[layer[LAYER_QUANTIZATION]],
                        between,
                        planes,
                        uint64(start + group * LANES * layer[LAYER_SIZE]),
                        uint64(layer[LAYER_BYTES]),
                    )
                    if not is_small:
                        return UNSOUND
    taken = (consumed_bits(reader) + 7) >> 3
    if is_to_the_end:
        return TAKEN if taken == end and interval + 1 == num_intervals else UNSOUND
    if interval + 1 < num_intervals:  # what stands behind a marker belongs to other MCUs
        end = intervals[interval + 1]
        if left == 0 and taken != end:
            return UNSOUND
    return TAKEN if taken <= end else UNSOUND


@kernel()
def find_part(file, frame, extent, known, positions):
    """The first row of MCUs that is decoded, and where the part of the scan that is looked at starts and stops."""
    start, stop = frame[SCAN_START], len(file)
    first_row = min(extent[FIRST_ROW], known[NUM_ROWS] - 1)
    if first_row < 0:
        return 0, start, stop
    first_row -= first_row % known[ROW_STEP]
    column = extent[FIRST_COLUMN] if first_row == extent[FIRST_ROW] else 0
    known[FIRST_BYTE] = point_byte(known, positions, first_row, column)
    stop_row = extent[STOP_ROW] + -extent[STOP_ROW] % known[ROW_STEP]
    if has_points(known, stop_row):
        # the next row may begin within a byte behind which a zero was stuffed
        stop = min(stop, start + point_byte(known, positions, stop_row, 0) + 2)
    return first_row, min(start + known[FIRST_BYTE], stop), stop


@kernel()
def decode_region(
    file, region, size, out, known, positions, predictors, frame, extent, reader, counts, values, quantization, symbols,
    limits, pairs, skips, blocks, layers, between, needed, stream, intervals, coefficients, planes, sums, doubled,
    chroma, stuffed,
):  # fmt: skip
    """Decode; TAKEN, LEFT to libjpeg-turbo with `out` undefined, or SMALL. The arguments are a `Workspace`'s.

    `region` counts pixels at the DCT scale; `size` is height and width before it, and the factor by which it divides.
    """
    if read_header(file, frame, quantization, counts, values) == LEFT:
        return LEFT
    left, top, right, bottom = region[0], region[1], region[2], region[3]
    if frame[HEIGHT] != size[0] or frame[WIDTH] != size[1] or not choose_scale(frame, size[2], extent):
        return LEFT
    is_empty = left == right and top == bottom
    if not is_empty and not (0 <= left < right <= extent[SCALED_WIDTH] and 0 <= top < bottom <= extent[SCALED_HEIGHT]):
        return LEFT
    if (right - left) * (bottom - top) > len(out):
        return LEFT
    find_extent(frame, region, extent)
    num_stored = (extent[STOP_COLUMN] - extent[FIRST_COLUMN]) * (extent[STOP_ROW] - extent[FIRST_ROW])
    has_skips = num_stored < extent[MCU_COLUMNS] * extent[MCU_ROWS]
    if not build_tables(frame, counts, values, symbols, limits, pairs, skips, has_skips):
        return LEFT
    num_blocks, num_layers = lay_out(frame, extent, blocks, layers, needed)
    needed[STREAM] = len(file) - frame[SCAN_START] + COPIED_AT_ONCE + STREAM_PADDING
    needed[STUFFED] = (len(file) - frame[SCAN_START]) // 2 + 1
    num_intervals, num_mcus = 1, extent[MCU_COLUMNS] * extent[MCU_ROWS]
    if frame[RESTART_INTERVAL]:
        num_intervals = (num_mcus + frame[RESTART_INTERVAL] - 1) // frame[RESTART_INTERVAL]
    needed[INTERVALS] = num_intervals + 1
    needed[POINTS] = choose_steps(frame, extent, len(file), known)
    is_small = len(stream) < needed[STREAM] or len(intervals) < needed[INTERVALS]
    is_small |= len(coefficients) < needed[COEFFICIENTS] or len(planes[3]) < needed[PLANES]
    is_small |= len(stuffed) < needed[STUFFED] or len(positions) < needed[POINTS] or len(predictors) < needed[POINTS]
    if is_small or len(sums) < needed[COLUMNS] or doubled.shape[1] < needed[COLUMNS]:
        return SMALL
    first_row, start, stop = find_part(file, frame, extent, known, positions)
    is_part = stop < len(file)
    end, num_found, known[NUM_STUFFED] = unstuffed(file[:stop], start, is_part, stream, intervals, stuffed)
    if num_found != num_intervals:
        return LEFT
    result = decode_rows(
        frame, extent, first_row, known, positions, predictors, stuffed, stream, end, intervals, num_intervals, reader,
        blocks[:num_blocks], layers[:num_layers], values, quantization, symbols, limits, pairs, skips, coefficients,
        needed[COEFFICIENTS], between, planes,
    )  # fmt: skip
    if result == UNSOUND:
        return LEFT
    if not is_empty:
        write_pixels(frame, extent, layers, region, planes[0], sums, doubled, chroma, out)
    return TAKEN
