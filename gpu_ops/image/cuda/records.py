"""Where the tables' fields lie in device memory: constants to a kernel."""

from augpipe.gpu_ops.image.rows import KERNEL_ROW

DEVICE_PIXEL_COLUMNS = ("address", "stride", "first_x", "first_y", "channels")
"""Per image, int64: device address of the first uint8 held, pixels from row to row, which pixel of the image that
first one is, and 1 (gray), 3 (RGB) or 4 (RGBX, its address a multiple of 4) channels, interleaved."""

PIXEL_RECORD_BYTES = 8 * len(DEVICE_PIXEL_COLUMNS)
STRIDE, FIRST_X, FIRST_Y, CHANNELS = 8, 16, 24, 32
"""Bytes from the start of a pixel record."""

ROW_BYTES = KERNEL_ROW.itemsize


def _offset(name: str) -> int:
    assert KERNEL_ROW.fields is not None
    return int(KERNEL_ROW.fields[name][1])


# bytes from the start of a KERNEL_ROW
BEFORE_XX, BEFORE_XY, BEFORE_YX, BEFORE_YY = (_offset(f"before_{name}") for name in ("xx", "xy", "yx", "yy"))
BEFORE_X0, BEFORE_Y0 = _offset("before_x0"), _offset("before_y0")
BEFORE_WX, BEFORE_WY, BEFORE_W0 = (_offset(f"before_{name}") for name in ("wx", "wy", "w0"))
AFTER_XX, AFTER_XY, AFTER_YX, AFTER_YY = (_offset(f"after_{name}") for name in ("xx", "xy", "yx", "yy"))
OFFSET_X, OFFSET_Y = _offset("offset_x"), _offset("offset_y")
K1, K2, K3, P1, P2 = (_offset(name) for name in ("k1", "k2", "k3", "p1", "p2"))
FILTER, SUPPORT_X, SUPPORT_Y = _offset("filter"), _offset("support_x"), _offset("support_y")
INVERSE_CORNER_R2, INNER_R2 = _offset("inverse_corner_r2"), _offset("vignette_inner_r2")
INVERSE_SPAN, STRENGTH = _offset("vignette_inverse_span"), _offset("vignette_strength")
CAST, SCALE, BIAS, FILL = (_offset(name) for name in ("cast", "scale", "bias", "fill"))
LOW_X, LOW_Y, HIGH_X, HIGH_Y = (_offset(name) for name in ("low_x", "low_y", "high_x", "high_y"))
BEGIN_X, BEGIN_Y, END_X, END_Y = (_offset(name) for name in ("begin_x", "begin_y", "end_x", "end_y"))
ORIGIN_X, ORIGIN_Y = _offset("origin_x"), _offset("origin_y")
HAS_LENS, HAS_PROJECTION, REFLECTS = _offset("has_lens"), _offset("has_projection"), _offset("reflects")
IS_CONSTANT, CASTS_LAST = _offset("is_constant"), _offset("casts_last")
FIELD, FIELD_CELLS, FIELD_NODES, FIELD_KEY = (
    _offset(name) for name in ("field", "field_cells", "field_nodes", "field_key")
)
FIELD_XX, FIELD_XY, FIELD_YX, FIELD_YY = (_offset(f"field_{name}") for name in ("xx", "xy", "yx", "yy"))
FIELD_SCALE_X, FIELD_SCALE_Y = _offset("field_scale_x"), _offset("field_scale_y")
FIELD_X0, FIELD_Y0 = _offset("field_x0"), _offset("field_y0")
