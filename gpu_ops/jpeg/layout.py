"""Which MCUs a region needs, and where in memory their coefficients and levels lie."""

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.entropy import (
    BLOCK_AC,
    BLOCK_COMPONENT,
    BLOCK_DC,
    BLOCK_GROUP,
    BLOCK_LANE,
    BLOCK_STEP,
    GROUP_ITEMS,
)
from augpipe.gpu_ops.jpeg.header import (
    AC_TABLE,
    COMPONENT_ITEMS,
    DC_TABLE,
    FIRST_COMPONENT,
    HEIGHT,
    HORIZONTAL,
    NUM_COMPONENTS,
    QUANTIZATION,
    VERTICAL,
    WIDTH,
)
from augpipe.gpu_ops.jpeg.huffman import LANES

(
    MCU_COLUMNS,
    MCU_ROWS,
    FIRST_COLUMN,
    STOP_COLUMN,
    FIRST_ROW,
    STOP_ROW,
    LEFT_SAMPLE,
    STOP_SAMPLE,
    TOP_SAMPLE,
    END_SAMPLE,
) = range(10)
"""How many MCUs an image has, which ones a region needs, and which samples of subsampled components."""

LAYER_GROUP, LAYER_GROUPS, LAYER_QUANTIZATION, LAYER_PLANE, LAYER_WORDS, LAYER_STEP = range(6)
"""A row of blocks in a row of MCUs: where its groups of coefficients begin, how many there are, its table, where
its levels begin in the planes, words from row to row there, and words from one row of MCUs to the next."""

MARGIN_WORDS = 4
"""Between planes, for what is written beside the first and last column, and read by whole words."""

STREAM, INTERVALS, COEFFICIENTS, PLANES, COLUMNS, STUFFED, POINTS = range(7)
"""What grows with images: bytes of the stream, restart intervals, coefficients, words of planes, columns of chroma,
stuffed zeros, points."""


@kernel()
def find_extent(frame, region, extent):
    """Fill what a region needs. Smoothing looks at one more sample of a subsampled component on each side."""
    horizontal, vertical = frame[HORIZONTAL], frame[VERTICAL]
    for first, stop, size, sampling, first_at, stop_at in (
        (region[0], region[2], frame[WIDTH], horizontal, LEFT_SAMPLE, STOP_SAMPLE),
        (region[1], region[3], frame[HEIGHT], vertical, TOP_SAMPLE, END_SAMPLE),
    ):
        if sampling == 2:
            extent[first_at] = max(0, (first >> 1) - 1)
            extent[stop_at] = min((size + 1) >> 1, ((stop - 1) >> 1) + 2)
        else:
            extent[first_at], extent[stop_at] = first, stop
    extent[MCU_COLUMNS] = (frame[WIDTH] + 8 * horizontal - 1) // (8 * horizontal)
    extent[MCU_ROWS] = (frame[HEIGHT] + 8 * vertical - 1) // (8 * vertical)
    extent[FIRST_COLUMN], extent[STOP_COLUMN] = extent[LEFT_SAMPLE] >> 3, (extent[STOP_SAMPLE] + 7) >> 3
    extent[FIRST_ROW], extent[STOP_ROW] = extent[TOP_SAMPLE] >> 3, (extent[END_SAMPLE] + 7) >> 3
    if region[0] == region[2]:  # no pixel, and all codes
        extent[STOP_COLUMN] = extent[FIRST_COLUMN]
        extent[FIRST_ROW] = extent[STOP_ROW] = extent[MCU_ROWS]


@kernel()
def lay_out(frame, extent, blocks, layers, needed):
    """Fill the blocks of an MCU and the layers of a row of MCUs; how many there are of both."""
    num_columns, num_rows = extent[STOP_COLUMN] - extent[FIRST_COLUMN], extent[STOP_ROW] - extent[FIRST_ROW]
    num_blocks, num_layers, group, word = 0, 0, 0, MARGIN_WORDS
    for component in range(frame[NUM_COMPONENTS]):
        at = FIRST_COMPONENT + component * COMPONENT_ITEMS
        horizontal = frame[HORIZONTAL] if component == 0 else 1
        vertical = frame[VERTICAL] if component == 0 else 1
        num_groups = (num_columns * horizontal + LANES - 1) // LANES
        row_words = num_groups * LANES + MARGIN_WORDS
        for block_row in range(vertical):
            layer = layers[num_layers]
            layer[LAYER_GROUP], layer[LAYER_GROUPS] = group, num_groups
            layer[LAYER_QUANTIZATION] = frame[at + QUANTIZATION]
            layer[LAYER_PLANE], layer[LAYER_WORDS] = word + 8 * block_row * row_words, row_words
            layer[LAYER_STEP] = 8 * vertical * row_words
            num_layers += 1
            for block_column in range(horizontal):
                block = blocks[num_blocks]
                block[BLOCK_COMPONENT] = component
                block[BLOCK_DC], block[BLOCK_AC] = frame[at + DC_TABLE], frame[at + AC_TABLE]
                block[BLOCK_GROUP], block[BLOCK_LANE], block[BLOCK_STEP] = group, block_column, horizontal
                num_blocks += 1
            group += num_groups * GROUP_ITEMS
        word += num_rows * 8 * vertical * row_words + MARGIN_WORDS
    needed[COEFFICIENTS], needed[PLANES] = group, word
    needed[COLUMNS] = num_columns * 8 + 16
    return num_blocks, num_layers


@kernel()
def plane_start(layer, extent, horizontal, vertical):
    """Where the first sample of an image would lie in the bytes of a plane."""
    row_bytes = layer[LAYER_WORDS] * 8
    return layer[LAYER_PLANE] * 8 - extent[FIRST_COLUMN] * 8 * horizontal - extent[FIRST_ROW] * 8 * vertical * row_bytes
