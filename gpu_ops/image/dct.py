"""A pass of the discrete cosine transform of eight numbers, and one of its inverse, in libjpeg's accurate integers.

They are jfdctint's and jidctint's, after Loeffler, Ligtenberg and Moschytz (1989). Numbers are int32.
"""

from numba import int32, uint32

from augpipe.gpu_ops.jit import leaf


@leaf
def times(a, b):
    """The product as int32, which numba would widen."""
    return int32(a * b)


@leaf
def plus(a, b):
    """The sum as int32, which numba would widen."""
    return int32(a + b)


@leaf
def minus(a, b):
    """The difference as int32, which numba would widen."""
    return int32(a - b)


@leaf
def forward_pass(rounding, s0, s1, s2, s3, s4, s5, s6, s7):
    """Eight coefficients of eight samples, times 2^13 (and sqrt(8)), plus `rounding`."""
    t0, t7, t1, t6 = plus(s0, s7), minus(s0, s7), plus(s1, s6), minus(s1, s6)
    t2, t5, t3, t4 = plus(s2, s5), minus(s2, s5), plus(s3, s4), minus(s3, s4)
    e0, e3, e1, e2 = plus(t0, t3), minus(t0, t3), plus(t1, t2), minus(t1, t2)
    even = plus(times(plus(e2, e3), int32(4433)), rounding)
    z5 = plus(times(plus(plus(t4, t6), plus(t5, t7)), int32(9633)), rounding)
    z1, z2 = times(plus(t4, t7), int32(-7373)), times(plus(t5, t6), int32(-20995))
    z3, z4 = plus(times(plus(t4, t6), int32(-16069)), z5), plus(times(plus(t5, t7), int32(-3196)), z5)
    return (
        plus(int32(plus(e0, e1) << 13), rounding),
        plus(times(t7, int32(12299)), plus(z1, z4)),
        plus(even, times(e3, int32(6270))),
        plus(times(t6, int32(25172)), plus(z2, z3)),
        plus(int32(minus(e0, e1) << 13), rounding),
        plus(times(t5, int32(16819)), plus(z2, z4)),
        minus(even, times(e2, int32(15137))),
        plus(times(t4, int32(2446)), plus(z1, z3)),
    )


@leaf
def inverse_pass(rounding, c0, c1, c2, c3, c4, c5, c6, c7):
    """Eight sums of eight coefficients, times 2^13 (and sqrt(8)), plus `rounding`."""
    z1 = times(plus(c2, c6), int32(4433))
    even2, even3 = minus(z1, times(c6, int32(15137))), plus(z1, times(c2, int32(6270)))
    even0 = plus(int32(plus(c0, c4) << 13), rounding)
    even1 = plus(int32(minus(c0, c4) << 13), rounding)
    e0, e1, e2, e3 = plus(even0, even3), plus(even1, even2), minus(even1, even2), minus(even0, even3)
    z3, z4 = plus(c7, c3), plus(c5, c1)
    z5 = times(plus(z3, z4), int32(9633))
    z1, z2 = times(plus(c7, c1), int32(-7373)), times(plus(c5, c3), int32(-20995))
    z3, z4 = plus(times(z3, int32(-16069)), z5), plus(times(z4, int32(-3196)), z5)
    o3 = plus(times(c7, int32(2446)), plus(z1, z3))
    o2 = plus(times(c5, int32(16819)), plus(z2, z4))
    o1 = plus(times(c3, int32(25172)), plus(z2, z3))
    o0 = plus(times(c1, int32(12299)), plus(z1, z4))
    return (
        plus(e0, o0),
        plus(e1, o1),
        plus(e2, o2),
        plus(e3, o3),
        minus(e3, o3),
        minus(e2, o2),
        minus(e1, o1),
        minus(e0, o0),
    )


@leaf
def four_levels(a, b, c, d):
    """The samples of four sums of the inverse's second pass as bytes, the first one lowest."""
    levels = uint32(min(max(int32(a >> 18), int32(0)), int32(255)))
    levels |= uint32(uint32(min(max(int32(b >> 18), int32(0)), int32(255))) << 8)
    levels |= uint32(uint32(min(max(int32(c >> 18), int32(0)), int32(255))) << 16)
    return uint32(levels | uint32(uint32(min(max(int32(d >> 18), int32(0)), int32(255))) << 24))
