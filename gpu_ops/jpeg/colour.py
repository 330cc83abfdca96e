"""From planes of levels to rows of RGBX: upsampling and colours as libjpeg-turbo has them (jdsample, jdcolor).

Planes are uint8 arrays; `_at` arguments are indices in them. What is read beside a plane's first and last column is
theirs once more, which the caller has written there.
"""

from numba import int16, int32, uint16, uint32, uint64

from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.jpeg.bits import U

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
