"""The table that a fused kernel reads: one record an output image, the same on CPU and GPU."""

import numpy as np

GRID, SPLINE = 1, 2
"""As `field`; see `gpu_ops.image.field`."""
NUM_NODES = 11
"""Along an axis of a `GRID`, at most."""

KERNEL_ROW = np.dtype(
    [
        # output pixel -> lens coordinates (with a lens) or unused
        ("before_xx", np.float32),
        ("before_xy", np.float32),
        ("before_yx", np.float32),
        ("before_yy", np.float32),
        # what is added to them, and what their sum is divided by, along x, along y and at the frame's centre
        ("before_x0", np.float32),
        ("before_y0", np.float32),
        ("before_wx", np.float32),
        ("before_wy", np.float32),
        ("before_w0", np.float32),
        # lens coordinates (with a lens) or output pixel (without) -> source pixel, relative to the origin
        ("after_xx", np.float32),
        ("after_xy", np.float32),
        ("after_yx", np.float32),
        ("after_yy", np.float32),
        ("offset_x", np.float32),
        ("offset_y", np.float32),
        ("k1", np.float32),
        ("k2", np.float32),
        ("k3", np.float32),
        ("p1", np.float32),
        ("p2", np.float32),
        # TRIANGLE, CUBIC, BOX or SHARP_CUBIC
        ("filter", np.int32),
        # half-width of the filter, in source pixels; of a triangle 1 is bilinear
        ("support_x", np.float32),
        ("support_y", np.float32),
        # the vignette, in squared radii of the output frame
        ("inverse_corner_r2", np.float32),
        ("vignette_inner_r2", np.float32),
        ("vignette_inverse_span", np.float32),
        ("vignette_strength", np.float32),
        ("cast", np.float32, (3,)),
        ("scale", np.float32, (3,)),
        ("bias", np.float32, (3,)),
        ("fill", np.float32, (3,)),
        # pixels that exist to the sampler, relative to the origin, both ends included
        ("low_x", np.int32),
        ("low_y", np.int32),
        ("high_x", np.int32),
        ("high_y", np.int32),
        # where what is shown of the image begins and ends, for `SHARP`: within the outermost pixels where a crop does
        ("begin_x", np.float32),
        ("begin_y", np.float32),
        ("end_x", np.float32),
        ("end_y", np.float32),
        # the source pixel that relative coordinates count from: small floats stay exact wherever the crop lies
        ("origin_x", np.int32),
        ("origin_y", np.int32),
        # whether lens coordinates are used at all, and whether they are more than linear in the output pixel's
        ("has_lens", np.int32),
        ("has_projection", np.int32),
        # 0: pixels outside are like the nearest one inside; else how the image goes on there, as below
        ("reflects", np.int32),
        # 0: no fill is seen; 1: taps outside are the fill; SHARP, MEETING: an output pixel is the image or the fill
        ("is_constant", np.int32),
        ("casts_last", np.int32),
        # a displacement that is added to where a pixel comes from: its kind, 0 for none, and what it becomes in source
        # pixels; where in it, counted in nodes, a point of lens coordinates (`GRID`) or an output pixel
        # (`SPLINE`) lies
        ("field", np.int32),
        ("field_xx", np.float32),
        ("field_xy", np.float32),
        ("field_yx", np.float32),
        ("field_yy", np.float32),
        ("field_scale_x", np.float32),
        ("field_scale_y", np.float32),
        ("field_x0", np.float32),
        ("field_y0", np.float32),
        # `GRID`: cells along an axis, and the displacements along x and along y at their ends
        ("field_cells", np.int32),
        ("field_nodes", np.float32, (2, NUM_NODES)),
        # `SPLINE`: what its nodes are made of; `GRID`: width and height of cells of whole pixels, 0 for joined ones
        ("field_key", np.uint32, (2,)),
    ],
    align=True,
)
"""Coordinates are centred on the output frame: (0, 0) is its middle and pixel (i, j) lies at j + 0.5 - width/2 and
i + 0.5 - height/2; y points down."""

REFLECT, REFLECT_101, WRAP = 1, 2, 3
"""As `reflects`: d c b a | a b c d | d c b a, d c b | a b c d | c b a and a b c d | a b c d | a b c d."""

TRIANGLE, CUBIC, BOX, SHARP_CUBIC = range(4)
"""Filters: bilinear where it is not widened; bicubic with a = -0.5 and with a = -0.75; and the nearest pixel."""

SHARP, MEETING = 2, 3
"""As `is_constant`: an image that was padded after it was resized has an edge that is not resampled. One that meets
others goes on a little beyond its edge, so that none shows the fill where the middle of a pixel lies on a seam."""

PIXEL_TABLE_COLUMNS = ("address", "stride", "first_x", "first_y")
"""Per image, int64: address of the first RGBX pixel held, pixels from row to row, and which pixel of the image
that first one is (0, 0 for a whole one; else where the decoded region starts)."""
