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
    SCALED_WIDTH,
    SCALED_HEIGHT,
    LUMA_SIZE,
    CHROMA_SIZE,
    REPEATS_X,
    REPEATS_Y,
    EXTENT_ITEMS,
) = range(17)
"""How many MCUs an image has, which ones a region needs, and which samples of subsampled components; then what the
DCT scale makes of it: the image's size, samples a side of a block of the first component and of the others, and how
many pixels a sample of the others has along each axis."""

(
    LAYER_GROUP,
    LAYER_GROUPS,
    LAYER_QUANTIZATION,
    LAYER_SIZE,
    LAYER_PLANE,
    LAYER_BYTES,
    LAYER_STEP,
    LAYER_MCU,
    LAYER_ITEMS,
) = range(9)
"""A row of blocks in a row of MCUs: where its groups of coefficients begin, how many there are, its table, samples a
side of a block, where its levels begin in the planes, bytes from row to row there, from one row of MCUs to the next,
and from one MCU to the next."""

MARGIN_BYTES = 32
"""Between planes, for what is written next to the first and last column; a multiple of 8, as rows are."""

STREAM, INTERVALS, COEFFICIENTS, PLANES, COLUMNS, STUFFED, POINTS = range(7)
"""What grows with images: bytes of the stream, restart intervals, coefficients, words of planes, columns of chroma,
stuffed zeros, points."""

LEAST_SIDE = 8
"""The least longer side of an image: of smaller ones libjpeg-turbo may take another scale than it is asked for."""


@kernel()
def choose_scale(frame, factor, extent):
    """Fill in what 1/`factor` makes of an image, as libjpeg's jdmaster has it; whether it is decoded here."""
    horizontal, vertical = frame[HORIZONTAL], frame[VERTICAL]
    if factor != 1 and factor != 2 and factor != 4 and factor != 8:
        return False
    extent[SCALED_WIDTH] = (frame[WIDTH] + factor - 1) // factor
    extent[SCALED_HEIGHT] = (frame[HEIGHT] + factor - 1) // factor
    extent[LUMA_SIZE] = extent[CHROMA_SIZE] = 8 // factor
    extent[REPEATS_X], extent[REPEATS_Y] = horizontal, vertical
    if factor > 1 and horizontal * vertical == 4:  # a larger block holds as many samples as the first component's four
        extent[CHROMA_SIZE] *= 2
        extent[REPEATS_X] = extent[REPEATS_Y] = 1
    if factor > 1 and max(frame[WIDTH], frame[HEIGHT]) < LEAST_SIDE:
        return False
    # libjpeg does not smooth so few columns, nor where a block has one sample
    if extent[REPEATS_X] == 2 and extent[SCALED_WIDTH] <= 4:
        return False
    return factor < 8 or extent[REPEATS_X] * extent[REPEATS_Y] == 1


@kernel()
def find_extent(frame, region, extent):
    """Fill what a region needs. Smoothing looks at one more sample of a subsampled component on each side."""
    for first, stop, num_pixels, repeats, first_at, stop_at in (
        (region[0], region[2], extent[SCALED_WIDTH], extent[REPEATS_X], LEFT_SAMPLE, STOP_SAMPLE),
        (region[1], region[3], extent[SCALED_HEIGHT], extent[REPEATS_Y], TOP_SAMPLE, END_SAMPLE),
    ):
        if repeats == 2:
            extent[first_at] = max(0, (first >> 1) - 1)
            extent[stop_at] = min((num_pixels + 1) >> 1, ((stop - 1) >> 1) + 2)
        else:
            extent[first_at], extent[stop_at] = first, stop
    size = extent[CHROMA_SIZE]  # an MCU has one block of chroma, and of gray alone
    extent[FIRST_COLUMN], extent[STOP_COLUMN] = extent[LEFT_SAMPLE] // size, (extent[STOP_SAMPLE] + size - 1) // size
    extent[FIRST_ROW], extent[STOP_ROW] = extent[TOP_SAMPLE] // size, (extent[END_SAMPLE] + size - 1) // size
    extent[MCU_COLUMNS] = (frame[WIDTH] + 8 * frame[HORIZONTAL] - 1) // (8 * frame[HORIZONTAL])
    extent[MCU_ROWS] = (frame[HEIGHT] + 8 * frame[VERTICAL] - 1) // (8 * frame[VERTICAL])
    if region[0] == region[2]:  # no pixel, and all codes
        extent[STOP_COLUMN] = extent[FIRST_COLUMN]
        extent[FIRST_ROW] = extent[STOP_ROW] = extent[MCU_ROWS]


@kernel()
def lay_out(frame, extent, blocks, layers, needed):
    """Fill the blocks of an MCU and the layers of a row of MCUs; how many there are of both."""
    num_columns, num_rows = extent[STOP_COLUMN] - extent[FIRST_COLUMN], extent[STOP_ROW] - extent[FIRST_ROW]
    num_blocks, num_layers, group, plane = 0, 0, 0, MARGIN_BYTES
    for component in range(frame[NUM_COMPONENTS]):
        at = FIRST_COMPONENT + component * COMPONENT_ITEMS
        horizontal = frame[HORIZONTAL] if component == 0 else 1
        vertical = frame[VERTICAL] if component == 0 else 1
        size = extent[LUMA_SIZE] if component == 0 else extent[CHROMA_SIZE]
        num_groups = (num_columns * horizontal + LANES - 1) // LANES
        row_bytes = num_groups * LANES * size + MARGIN_BYTES
        for block_row in range(vertical):
            layer = layers[num_layers]
            layer[LAYER_GROUP], layer[LAYER_GROUPS] = group, num_groups
            layer[LAYER_QUANTIZATION], layer[LAYER_SIZE] = frame[at + QUANTIZATION], size
            layer[LAYER_PLANE], layer[LAYER_BYTES] = plane + size * block_row * row_bytes, row_bytes
            layer[LAYER_STEP], layer[LAYER_MCU] = size * vertical * row_bytes, size * horizontal
            num_layers += 1
            for block_column in range(horizontal):
                block = blocks[num_blocks]
                block[BLOCK_COMPONENT] = component
                block[BLOCK_DC], block[BLOCK_AC] = frame[at + DC_TABLE], frame[at + AC_TABLE]
                block[BLOCK_GROUP], block[BLOCK_LANE], block[BLOCK_STEP] = group, block_column, horizontal
                num_blocks += 1
            group += num_groups * GROUP_ITEMS
        plane += num_rows * size * vertical * row_bytes + MARGIN_BYTES
    needed[COEFFICIENTS], needed[PLANES] = group, plane // 8
    needed[COLUMNS] = num_columns * 8 + 16
    return num_blocks, num_layers


@kernel()
def plane_start(layer, extent):
    """Where the first sample of an image would lie in the bytes of a plane."""
    return layer[LAYER_PLANE] - extent[FIRST_COLUMN] * layer[LAYER_MCU] - extent[FIRST_ROW] * layer[LAYER_STEP]
