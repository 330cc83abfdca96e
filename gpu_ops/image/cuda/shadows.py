"""The pixel of shadows of polygons, by the leaves of `gpu_ops.image.shadows`."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import kept, load_f32, load_u32
from augpipe.gpu_ops.image import shadows

end_x, end_y = shared(shadows.end_x), shared(shadows.end_y)
edge_mark, joined = shared(shadows.edge_mark), shared(shadows.joined)
edge_least, edge_most = shared(shadows.edge_least), shared(shadows.edge_most)
chroma_gain, shaded_leaf = shared(shadows.chroma_gain), shared(shadows.shaded)


@function("int32")
def mark_of(edge, x, y):
    """What an edge says of a pixel."""
    upper, lower = load_u32(edge), load_u32(edge + 4)
    top, bottom = end_y(upper), end_y(lower)
    mark = np.int32(0)
    if top <= y and y <= bottom:
        first, last = end_x(upper), end_x(lower)
        across, rise = np.int32(last - first), np.int32(bottom - top)
        along = np.int64(across) * np.int64(np.int32(y - top)) + np.int64(first) * np.int64(rise)
        least, most, crosses = edge_least(across, rise), edge_most(across, rise), 1 if y < bottom else 0
        mark = edge_mark(x, along, rise, least, most, min(first, last), max(first, last), crosses)
    return np.int32(mark)


@function("float32")
def light_left(numbers, edges, pixel, width):
    """The part of the light that the polygons of a `SHADE` step leave a pixel."""
    x, y, gain = np.int32(pixel % width), np.int32(pixel // width), np.float32(1.0)
    nth, polygon, marks = np.int32(0), np.int32(0), np.int32(0)
    while polygon < np.int32(load_f32(numbers)):
        here = np.int64(kept(nth) - nth)  # 0, of which the compiler knows nothing: few numbers stay in registers
        marks = np.int32(joined(marks, mark_of(edges + here + 8 * np.int64(nth), x, y)))
        nth += np.int32(1)
        if nth == np.int32(load_f32(numbers + here + 4)) * (polygon + np.int32(1)):
            if marks != 0:
                own = load_f32(numbers + here + 12 + 4 * np.int64(polygon))
                gain = min(gain, own) if load_f32(numbers + here + 8) > np.float32(0.0) else gain * own
            polygon += np.int32(1)
            marks = np.int32(0)
    return np.float32(gain)


@function("float32", "float32", "float32")
def shaded(red, green, blue, gain, is_of_lightness):
    """A pixel by the part of its light that is left."""
    twice = max(red, max(green, blue)) + min(red, min(green, blue))
    of_chroma = np.float32(chroma_gain(twice, gain)) if is_of_lightness > np.float32(0.0) else gain
    red = np.float32(shaded_leaf(red, twice, gain, of_chroma))
    green = np.float32(shaded_leaf(green, twice, gain, of_chroma))
    blue = np.float32(shaded_leaf(blue, twice, gain, of_chroma))
    return red, green, blue
