"""The frame that a recipe's ops act on while a batch is planned: one entry an image, all in float64.

An op changes the frame by calling one of its methods; nothing here draws anything. Crops, maps and the lens act in the
order in which they are called, each on the frame as it is by then, counted from its centre; tone comes last.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import affine
from augpipe.gpu_ops.image.plan_records import BEND
from augpipe.gpu_ops.image.program_rows import (
    CONVOLVE,
    FILL,
    HSV,
    MATRIX,
    NOISE,
    SHADE,
    SHUFFLE,
    TABLE,
    TABLE_BYTES,
    VIGNETTE,
)
from augpipe.gpu_ops.image.rows import GRID, SPLINE
from augpipe.ops.colour_matrices import shifted
from augpipe.ops.colour_program import ColourStep

if TYPE_CHECKING:
    from augpipe.ops.keep_objects import KnownObjects
    from augpipe.ops.op import Op

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Sides = Int | int
Lengths = Float | Sides


class Frame:
    """What is known of n images' output so far; arrays are (n,) or (n, k)."""

    def __init__(
        self, heights: Int, widths: Int, crops: "Sequence[Op]" = (), objects: "KnownObjects | None" = None
    ) -> None:
        self.num = num = len(heights)
        self.heights = heights
        self.widths = widths
        self.out_heights = heights.copy()  # which some images' sides may be swapped in
        self.out_widths = widths.copy()
        self.kept_heights = heights
        """The size in pixels, before any map, of the rectangle of the image."""
        self.kept_widths = widths
        self.mirrored = np.zeros((num, 2), np.bool_)
        """Along x and y; mirroring alone keeps a crop a rectangle of the image."""
        self.is_mapped = False
        """Whether another map or a lens acted: from then on a crop is a map, too."""
        self.lens_sizes: tuple[Int, Int] | None = None
        """Heights and widths of the frames that the lens acted on, where they were cropped since."""
        self.crops = crops
        """The crops that act on it, for the size that it will have."""
        self.objects = objects
        """The objects of the images, where a crop looks at them."""
        self.is_cropped = False
        self.crop_x: Float = np.zeros(num)
        self.crop_y = np.zeros(num)
        self.crop_width = widths.astype(np.float64)
        self.crop_height = heights.astype(np.float64)
        self.padded: tuple[Float, Float, Float, Float] | None = None
        """Left, top, right and bottom of the rectangle that was padded, in pixels of the image."""
        self.is_unpadded: Bool | None = None
        """Where some images were padded, which were not; None: all were."""
        self.is_edge_sharp = np.zeros(num, np.bool_)
        """Whether an image was padded after it was resized: its edge is not resampled then."""
        self.is_edge_kept = np.zeros(num, np.bool_)
        """Whether an image was not padded where others are: its edge does not mix with their fill, even if resized."""
        self.after_lens = affine.identity(num)
        self.before_lens: Float | None = None
        self.is_projective = False
        self.lens = np.zeros((num, 5))
        self.bends: npt.NDArray[np.void] | None = None
        """(n,) `BEND`, where any op bends by a displacement."""
        self.blur_variance: Float | None = None
        self.cast = np.zeros((num, 3))
        self.has_cast = False
        self.cast_is_last = False
        self.vignette = np.zeros((num, 2))
        self.has_vignette = False
        self.steps: list[ColourStep] = []
        """What follows the cast and the vignette, in order."""
        self.mean = np.zeros(3)
        self.std = np.full(3, 1.0 / 255.0)

    def crop(
        self,
        x: Float,
        y: Float,
        width: Lengths,
        height: Lengths,
        out_heights: Sides,
        out_widths: Sides,
        align_corners: bool = False,
    ) -> None:
        """Keep the rectangle at (x, y) of what the crops before it kept, in its pixels, at another size in pixels.

        It may reach outside: there the border is seen. Chains of crops, resizes and paddings are one rectangle. With
        `align_corners` the centres of its corner pixels, and not its corners, become those of the output.
        """
        if align_corners:
            x, width = _between_centres(x, width, out_widths)
            y, height = _between_centres(y, height, out_heights)
        if self.blur_variance is not None:
            self.blur_variance = self.blur_variance * (out_widths / width) * (out_heights / height)
        if self.is_cropped or self.is_mapped:
            self.is_edge_sharp = self.is_edge_sharp & (width == out_widths) & (height == out_heights)
        if self.is_mapped:
            self._crop_mapped(x, y, width, height, out_heights, out_widths)
            return
        x = np.where(self.mirrored[:, 0], self.out_widths - x - width, x)
        y = np.where(self.mirrored[:, 1], self.out_heights - y - height, y)
        if self.is_cropped:
            scale_x, scale_y = self.crop_width / self.out_widths, self.crop_height / self.out_heights
            x, y = self.crop_x + x * scale_x, self.crop_y + y * scale_y
            width, height = width * scale_x, height * scale_y
        self.is_cropped = True
        self.crop_x, self.crop_y = x, y
        self.crop_width, self.crop_height = self._for_all(width), self._for_all(height)
        self.kept_heights = self.out_heights = np.full(self.num, out_heights, np.int64)
        self.kept_widths = self.out_widths = np.full(self.num, out_widths, np.int64)

    def _for_all(self, length: Lengths) -> Any:
        """(n,) of one number, or of one an image."""
        return length if isinstance(length, np.ndarray) and length.shape else np.full(self.num, length)

    def _crop_mapped(
        self, x: Float, y: Float, width: Lengths, height: Lengths, out_heights: Sides, out_widths: Sides
    ) -> None:
        scale_x, scale_y = np.full(self.num, width / out_widths), np.full(self.num, height / out_heights)
        matrix = affine.homogeneous(affine.magnification(1.0 / scale_x, 1.0 / scale_y))
        matrix[:, 0, 2] = x + 0.5 * (width - self.out_widths)
        matrix[:, 1, 2] = y + 0.5 * (height - self.out_heights)
        self.transform(matrix)
        if self.before_lens is not None and self.lens_sizes is None:
            self.lens_sizes = self.out_heights, self.out_widths
        self.out_heights = np.full(self.num, out_heights, np.int64)
        self.out_widths = np.full(self.num, out_widths, np.int64)

    def pad(self, x: Float, y: Float, width: Sides, height: Sides) -> None:
        """As `crop`, of a rectangle that reaches outside, and is not resized."""
        assert not self.is_mapped, "a recipe is checked to pad before geometry"
        if self.padded is None or self.is_unpadded is not None:
            self.padded, self.is_unpadded = self.seen, None
        resized = (self.crop_width != self.out_widths) | (self.crop_height != self.out_heights)
        self.crop(x, y, width, height, height, width)
        self.is_edge_sharp = self.is_edge_sharp | resized
        self.is_edge_kept = np.zeros(self.num, np.bool_)

    def mirror(self, across: Bool, down: Bool) -> None:
        """Mirror images left to right where `across` says so, and top to bottom where `down` does, each (n,)."""
        is_mapped = self.is_mapped
        self.transform(affine.magnification(np.where(across, -1.0, 1.0), np.where(down, -1.0, 1.0)))
        self.is_mapped = is_mapped
        self.mirrored = self.mirrored ^ np.stack([across, down], axis=1)

    def transform(self, matrix: Float) -> None:
        """Change the image by an (n, 2, 2) or (n, 3, 3) map of `gpu_ops.image.affine`."""
        self.is_mapped = True
        if self.before_lens is None:
            self.after_lens = affine.compose(self.after_lens, matrix)
        else:
            self.before_lens = affine.compose(self.before_lens, matrix)

    def swap_sides(self, swapped: Bool) -> None:
        """Have height and width of the frame change places where (n,) `swapped` says so."""
        heights, widths = self.out_heights, self.out_widths
        self.out_heights, self.out_widths = np.where(swapped, widths, heights), np.where(swapped, heights, widths)

    def project(self, matrix: Float) -> None:
        """Change the image by an (n, 3, 3) map whose last row need not be (0, 0, 1)."""
        self.is_projective = True
        self.transform(matrix)

    @property
    def seen(self) -> tuple[Float, Float, Float, Float]:
        """Left, top, right and bottom of the rectangle of the image that crops keep, without padding."""
        is_unpadded = self.is_unpadded
        if self.padded is not None and is_unpadded is None:
            return self.padded
        kept = self.crop_x, self.crop_y, self.crop_x + self.crop_width, self.crop_y + self.crop_height
        if self.padded is None or is_unpadded is None:
            return kept
        left, top, right, bottom = (
            np.where(is_unpadded, end, padded) for end, padded in zip(kept, self.padded, strict=True)
        )
        return left, top, right, bottom

    @property
    def seen_in_crops(self) -> tuple[Float, Float, Float, Float]:
        """`seen`, of crops behind padding as far as these reach: for a constant border, whose fill is seen beyond."""
        if self.padded is None:
            return self.seen
        left, top, right, bottom = self.seen
        end_x, end_y = self.crop_x + self.crop_width, self.crop_y + self.crop_height
        inner_x = np.maximum(left, self.crop_x), np.minimum(right, end_x)
        inner_y = np.maximum(top, self.crop_y), np.minimum(bottom, end_y)
        # where they do not meet, nothing of the image is seen before it moves
        meets = (inner_x[0] < inner_x[1]) & (inner_y[0] < inner_y[1])
        left, right = np.where(meets, inner_x[0], left), np.where(meets, inner_x[1], right)
        return left, np.where(meets, inner_y[0], top), right, np.where(meets, inner_y[1], bottom)

    @property
    def final_sides(self) -> tuple[Int, Int]:
        """Heights and widths of the output, when all crops have acted; known before, for what is drawn within it."""
        heights, widths = (self.heights, self.widths) if self.crops else (self.out_heights, self.out_widths)
        for op in self.crops:
            heights, widths = op.sides(heights, widths)
        return np.full(self.num, heights, np.int64), np.full(self.num, widths, np.int64)

    @property
    def maps(self) -> tuple[Float, Float | None]:
        """The maps after the lens and before it, in the direction of the look-up; None where no op is before it."""
        if self.is_projective and self.before_lens is None:
            return affine.identity(len(self.heights)), self.after_lens
        return self.after_lens, self.before_lens

    def distort(self, coefficients: Float) -> None:
        """Distort the image by (n, 5) Brown-Conrady coefficients k1, k2, k3, p1, p2."""
        self._begin_bend()
        self.lens = coefficients

    def bend_by_grid(self, ends: Float, applied: Bool, cell_px: npt.NDArray[np.int64] | None = None) -> None:
        """Move what the ends of k cells a side show by (n, 2, k) pixels, along x and along y.

        Cells divide the frame; or they have (n, 2) width and height in pixels, and each begins a pixel after the one
        before it ends, with what that showed last.
        """
        bend = np.zeros(self.num, BEND)
        bend["kind"], bend["cells"] = np.where(applied, GRID, 0), ends.shape[2]
        bend["nodes"][:, :, 1 : ends.shape[2] + 1] = ends
        if cell_px is not None:
            bend["key"] = np.where(applied[:, None], cell_px, 0)
        bend["matrix"] = np.eye(2)
        bend["sides"] = np.stack([self.out_widths, self.out_heights], axis=1)
        self._bend(bend)

    def bend_by_spline(
        self, matrix: Float, spacing_px: Float, phase: Float, key: npt.NDArray[np.uint32], applied: Bool
    ) -> None:
        """Move pixels by (n, 2, 2) `matrix` times fields of nodes in -1..1, (n,) `spacing_px` apart, made of
        (n, 2) keys, from (n, 2) parts of a node on."""
        bend = np.zeros(self.num, BEND)
        bend["kind"] = np.where(applied, SPLINE, 0)
        bend["matrix"], bend["spacing"], bend["phase"], bend["key"] = matrix, spacing_px[:, None], phase, key
        self._bend(bend)

    def _bend(self, bend: npt.NDArray[np.void]) -> None:
        self._begin_bend()
        self.bends = bend

    def _begin_bend(self) -> None:
        """Have all maps so far act after the lens, for images that none acts on yet: a recipe is checked for that."""
        self.is_mapped = True
        self.split()
        assert self.before_lens is not None
        self.after_lens = affine.compose(self.after_lens, self.before_lens)
        self.before_lens = affine.identity(self.num)

    def split(self) -> None:
        """Tell maps before the lens from those after it; one that projects is before it."""
        if self.before_lens is None:
            self.before_lens = affine.identity(self.num)
            if self.is_projective:
                self.before_lens, self.after_lens = self.after_lens, self.before_lens

    def blur(self, sigma_px: Float) -> None:
        """Blur the output by Gaussians of (n,) standard deviations, in its pixels; several add up."""
        self.blur_variance = sigma_px**2 + (0.0 if self.blur_variance is None else self.blur_variance)

    def shift_colour(self, levels: Float) -> None:
        """Add (n, 3) 8-bit levels to the channels."""
        if self.steps or self.has_cast:
            self.combine_channels(shifted(levels), (levels != 0.0).any(axis=1))
            return
        self.cast = levels
        self.has_cast = True
        self.cast_is_last = self.has_vignette

    def darken_corners(self, radii: Float, strengths: Float) -> None:
        """Darken from (n,) `radii` outwards, by (n,) `strengths` at the corner."""
        if self.steps or self.has_vignette:
            numbers = np.stack([radii**2, 1.0 / (1.0 - radii**2), strengths], axis=1)
            self.steps.append(ColourStep.of(VIGNETTE, numbers, strengths > 0.0))
            return
        self.vignette = np.stack([radii, strengths], axis=1)
        self.has_vignette = True

    def combine_channels(self, matrices: Float, applied: Bool) -> None:
        """Make each channel a sum over R, G, B and 1, by (n, 3, 4) `matrices`, kept within 0..255."""
        self.steps.append(ColourStep.of(MATRIX, matrices.reshape(-1, 12), applied))

    def shift_hsv(
        self, turns: Float, saturations: Float, values: Float, applied: Bool, least_chroma: float = 0.0
    ) -> None:
        """Add (n,) parts of a turn to the hue of HSV, parts of 1 to its saturation, and levels to its value.

        The saturation of pixels whose largest and smallest channel are less than `least_chroma` levels apart stays.
        """
        least = np.full(len(turns), least_chroma)
        self.steps.append(ColourStep.of(HSV, np.stack([6.0 * turns, saturations, values, least], axis=1), applied))

    def look_up_levels(self, tables: npt.NDArray[np.uint8], applied: Bool) -> None:
        """Replace the nearest level of each channel by that of (m, 256) `tables`, for the m images it is applied to."""
        step = ColourStep.of(TABLE, np.zeros((len(applied), 0)), applied)
        step.tables = np.zeros((len(applied), TABLE_BYTES), np.uint8)
        step.tables[applied] = tables
        self.steps.append(step)

    def look_at_image(self, kind: int, numbers: Float, applied: Bool) -> None:
        """Change levels by a kind of `program_rows` that looks at the whole rendered image, with (n, k) numbers."""
        self.steps.append(ColourStep.of(kind, numbers, applied))

    def filter(self, kind: int, sizes: Int, weights: Float, applied: Bool) -> None:
        """Make each level a weighted sum of those around it: `SEPARABLE` of (n,) radii, or `CONVOLVE` of (n,) sides.

        (n, k) weights, k of them at most `program_rows.TABLE_BYTES` in float32.
        """
        self._add_with_table(kind, sizes[:, None].astype(np.float64), applied, weights.astype(np.float32))

    def smear(self, sides: Int, places: Bool, applied: Bool) -> None:
        """Make each level the mean of those at (n, k) places of a square of (n,) sides around it, row by row."""
        numbers = np.stack([sides, 1.0 / places.sum(axis=1)], axis=1)
        self._add_with_table(CONVOLVE, numbers, applied, places.astype(np.uint8))

    def shuffle(self, grid: tuple[int, int], sources: Int, applied: Bool) -> None:
        """Show in each of a `grid` of cells, along the height and along the width, what stood in another one, by (n, k)
        numbers of cells, row by row."""
        numbers = np.broadcast_to(np.array(grid, np.float64), (len(applied), 2))
        self._add_with_table(SHUFFLE, numbers, applied, sources.astype(np.uint8))

    def shade(self, numbers: Float, edges: npt.NDArray[np.uint32], applied: Bool) -> None:
        """Darken polygons, by (n, k) numbers of a `SHADE` and (n, m) ends of edges."""
        self._add_with_table(SHADE, numbers, applied, edges.astype(np.uint32))

    def _add_with_table(self, kind: int, numbers: Float, applied: Bool, values: npt.NDArray[Any]) -> None:
        """Add a step whose table holds (n, k) values of any type, as its first bytes."""
        step = ColourStep.of(kind, numbers, applied)
        step.tables = np.zeros((len(applied), TABLE_BYTES), np.uint8)
        step.tables.view(values.dtype)[:, : values.shape[1]] = values
        self.steps.append(step)

    def add_noise(
        self, stds: Float, speckle_stds: Float, is_shared: bool, keys: npt.NDArray[np.uint32], applied: Bool
    ) -> None:
        """Add normal noise of (n,) standard deviations in levels and in parts of the level, by (n, 2) seeds; the same
        to all channels where it `is_shared`."""
        numbers = np.stack([stds, speckle_stds, np.full(len(stds), float(is_shared))], axis=1)
        self.steps.append(ColourStep.of(NOISE, numbers, applied, keys))

    def scatter(self, kind: int, numbers: Float, keys: npt.NDArray[np.uint32], applied: Bool) -> None:
        """Change pixels by a kind of `program_rows` that draws by their place, with (n, k) numbers and (n, 2) seeds."""
        self.steps.append(ColourStep.of(kind, numbers, applied, keys))

    def fill(self, edges: Float, levels: Float, spread: Float, keys: npt.NDArray[np.uint32], applied: Bool) -> None:
        """Fill rectangles, (n, 4) left, top, right and bottom in output pixels, with noise about (n, 3) levels."""
        self.steps.append(ColourStep.of(FILL, np.concatenate([edges, levels, spread], axis=1), applied, keys))

    def act_as(self, other: "Frame", rows: slice, *, has_its_sides: bool) -> None:
        """Have all that acts on the crops be what acts on some images of another frame, which is cropped alike.

        With `has_its_sides`, the output has the sides that it has there.
        """
        for name in ("after_lens", "before_lens", "lens", "bends", "blur_variance"):
            values = getattr(other, name)
            setattr(self, name, None if values is None else values[rows])
        self.is_projective = other.is_projective
        self.lens_sizes = other.lens_sizes and (other.lens_sizes[0][rows], other.lens_sizes[1][rows])
        if has_its_sides:
            self.out_heights, self.out_widths = other.out_heights[rows], other.out_widths[rows]

    def normalise(self, mean: tuple[float, float, float], std: tuple[float, float, float]) -> None:
        """Subtract the mean and divide by the standard deviation, both in 0..1 per channel."""
        self.mean, self.std = np.array(mean), np.array(std)


def _between_centres(begin: Float, length: Lengths, out: Sides) -> tuple[Float, Lengths]:
    """Where to begin along an axis, and how far to go: the first and last of `out` pixels keep their centres."""
    pixel = np.where(np.equal(out, 1), 1.0, np.maximum(length - 1.0, 1e-3) / np.maximum(out - 1, 1))
    return begin + 0.5 - 0.5 * pixel, pixel * out
