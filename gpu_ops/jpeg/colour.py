"""From planes of levels to rows of RGBX: upsampling and colours as libjpeg-turbo has them (jdsample, jdcolor).

Planes are uint8 arrays; `_at` arguments are indices in them. What is read next to a plane's first and last column is
theirs once more, which the caller has written there.
"""

from numba import int16, int32, uint16, uint32, uint64

from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.jpeg.bits import U
from augpipe.gpu_ops.jpeg.header import IS_RGB, NUM_COMPONENTS, VERTICAL
from augpipe.gpu_ops.jpeg.layout import (
    END_SAMPLE,
    LAYER_BYTES,
    LEFT_SAMPLE,
    REPEATS_X,
    REPEATS_Y,
    SCALED_HEIGHT,
    SCALED_WIDTH,
    STOP_SAMPLE,
    TOP_SAMPLE,
    plane_start,
)

OPAQUE = 0xFF000000


@leaf
def level(value):
    """Within 0..255."""
    return uint32(min(max(value, int32(0)), int32(255)))


@kernel()
def write_coloured(luma, luma_at, blue, blue_at, red, red_at, out, out_at, num):
    """`num` pixels from Y, Cb and Cr."""
    for i in range(num):
        x = uint64(i)
        y = int32(luma[luma_at + x])
        cb, cr = int32(int32(blue[blue_at + x]) - int32(128)), int32(int32(red[red_at + x]) - int32(128))
        r = int32(y + int32(int32(int32(cr * int32(91881)) + int32(32768)) >> 16))
        less_green = int32(int32(32768) - int32(cb * int32(22554)))
        g = int32(y + int32(int32(less_green - int32(cr * int32(46802))) >> 16))
        b = int32(y + int32(int32(int32(cb * int32(116130)) + int32(32768)) >> 16))
        out[out_at + x] = uint32(level(r) | uint32(level(g) << 8) | uint32(level(b) << 16) | uint32(OPAQUE))


@kernel()
def write_stored(first, first_at, second, second_at, third, third_at, out, out_at, num):
    """`num` pixels from planes that are R, G and B, or one for all three."""
    for i in range(num):
        x = uint64(i)
        r, g, b = uint32(first[first_at + x]), uint32(second[second_at + x]), uint32(third[third_at + x])
        out[out_at + x] = uint32(r | uint32(g << 8) | uint32(b << 16) | uint32(OPAQUE))


@kernel()
def widen_and_lengthen(plane, near, far, sums, out, out_at, num):
    """2 `num` columns from a row and the one next to it on the other side: 9, 3, 3 and 1 sixteenths.

    `near` and `far` are where the column before the first one lies. `sums` is int16 (num + 2,); `out` holds two levels
    each.
    """
    for i in range(num + 2):
        x = uint64(i)
        sums[x] = int16(int16(plane[near + x]) * int16(3) + int16(plane[far + x]))
    for i in range(num):
        x = uint64(i)
        middle = uint16(uint16(sums[x + U(1)]) * uint16(3))
        left = uint16(uint16(uint16(middle + uint16(sums[x])) + uint16(8)) >> 4)
        right = uint16(uint16(uint16(middle + uint16(sums[x + U(2)])) + uint16(7)) >> 4)
        out[out_at + x] = uint16(left | uint16(right << 8))


@kernel()
def widen(plane, near, out, out_at, num):
    """2 `num` columns from a row: 3 and 1 quarters."""
    for i in range(num):
        x = uint64(i)
        middle = uint16(uint16(plane[near + x + U(1)]) * uint16(3))
        left = uint16(uint16(uint16(middle + uint16(plane[near + x])) + uint16(1)) >> 2)
        right = uint16(uint16(uint16(middle + uint16(plane[near + x + U(2)])) + uint16(2)) >> 2)
        out[out_at + x] = uint16(left | uint16(right << 8))


@kernel()
def lengthen(plane, near, far, bias, out, out_at, num):
    """`num` columns from a row and the one next to it on the other side: 3 and 1 quarters; `bias` is 1 or 2."""
    for i in range(num):
        x = uint64(i)
        summed = uint16(uint16(plane[near + x]) * uint16(3) + uint16(plane[far + x]))
        out[out_at + x] = uint16(summed + uint16(bias)) >> 2


@kernel()
def repeat_edges(plane, start, row_bytes, extent, num_samples):
    """Write the first and the last column of a component once more next to them, in the rows that are needed."""
    for y in range(extent[TOP_SAMPLE], extent[END_SAMPLE]):
        row = start + y * row_bytes
        if extent[LEFT_SAMPLE] == 0:
            plane[row - 1] = plane[row]
        if extent[STOP_SAMPLE] == num_samples:
            plane[row + num_samples] = plane[row + num_samples - 1]


@kernel()
def write_pixels(frame, extent, layers, region, planes, sums, doubled, chroma, out):
    """The region as rows of RGBX, from planes; `chroma` is the memory of `doubled`, (2, COLUMNS) uint16, as bytes."""
    left, top, right, bottom = region[0], region[1], region[2], region[3]
    horizontal, vertical = extent[REPEATS_X], extent[REPEATS_Y]
    num = right - left
    luma = plane_start(layers[0], extent) + left
    luma_bytes = layers[0][LAYER_BYTES]
    if frame[NUM_COMPONENTS] == 1:
        for y in range(top, bottom):
            at = uint64(luma + y * luma_bytes)
            write_stored(planes, at, planes, at, planes, at, out, uint64((y - top) * num), num)
        return
    first_chroma = layers[frame[VERTICAL]]
    chroma_bytes = first_chroma[LAYER_BYTES]
    blue, red = plane_start(first_chroma, extent), plane_start(layers[frame[VERTICAL] + 1], extent)
    if horizontal == 2:
        for start in (blue, red):
            repeat_edges(planes, start, chroma_bytes, extent, (extent[SCALED_WIDTH] + 1) >> 1)
    first = left >> (horizontal - 1)
    num_samples = ((right - 1) >> (horizontal - 1)) + 1 - first
    last_row = (extent[SCALED_HEIGHT] - 1) >> 1
    for y in range(top, bottom):
        near, far = y, y
        if vertical == 2:
            near = y >> 1
            far = min(max(near - 1 + 2 * (y & 1), 0), last_row)
        for nth, start in enumerate((blue, red)):
            near_at = uint64(start + near * chroma_bytes + first - (horizontal - 1))
            far_at = uint64(start + far * chroma_bytes + first - (horizontal - 1))
            if horizontal == 2 and vertical == 2:
                widen_and_lengthen(planes, near_at, far_at, sums, doubled[nth], uint64(0), num_samples)
            elif horizontal == 2:
                widen(planes, near_at, doubled[nth], uint64(0), num_samples)
            elif vertical == 2:
                lengthen(planes, near_at, far_at, 1 + (y & 1), chroma[nth], uint64(0), num_samples)
        at, to = uint64(luma + y * luma_bytes), uint64((y - top) * num)
        if horizontal * vertical > 1:
            skipped = uint64(left & (horizontal - 1))
            write_coloured(planes, at, chroma[0], skipped, chroma[1], skipped, out, to, num)
            continue
        blue_at, red_at = uint64(blue + y * chroma_bytes + left), uint64(red + y * chroma_bytes + left)
        if frame[IS_RGB]:
            write_stored(planes, at, planes, blue_at, planes, red_at, out, to, num)
        else:
            write_coloured(planes, at, planes, blue_at, planes, red_at, out, to, num)
