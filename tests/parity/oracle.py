"""What an image should look like, worked out another way than the package does: in float64, op by op, point by point.

An op's row in `tests.parity.table` says what it does to an `Expected`, from the op's docstring alone. The look-ups are
followed back from the output to the image one op after the other, never composed into matrices; bilinear samples
come from scipy, antialiased ones from sums over every pixel of the padded image.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Side = Fraction | int
LookUp = Callable[[Float, Float], tuple[Float, Float]]
SCIPY_MODES = {
    "context": "reflect",
    "reflect": "reflect",
    "edge": "nearest",
    "constant": "grid-constant",
    "reflect_101": "mirror",
    "wrap": "grid-wrap",
}
NUMPY_MODES = {
    "context": "symmetric",
    "reflect": "symmetric",
    "edge": "edge",
    "constant": "constant",
    "reflect_101": "reflect",
    "wrap": "wrap",
}


Weights = Callable[[Float], Float]


@dataclass
class Expected:
    """An output image while it is being described."""

    height: int
    """The height of the image, as its width is."""
    width: int
    out_height: int = 0
    out_width: int = 0
    crop: tuple[Fraction, Fraction, Fraction, Fraction] = (Fraction(0),) * 4
    """x, y, width, height in pixels of the image; it may reach outside."""
    beyond: tuple[str, tuple[float, ...]] | None = None
    """The border and the fill that an op asks for."""
    padded: tuple[Fraction, Fraction, Fraction, Fraction] | None = None
    """What was there before it was padded, as `crop`."""
    is_edge_sharp: bool = False
    """Whether the image was padded after it was resized: each pixel is the image's, or the fill."""
    is_edge_kept: bool = False
    """Whether nothing was padded, though the op pads other images: the fill does not mix with the edge."""
    kept: tuple[int, int] | None = None
    """Height and width of the crop in pixels of the frame that the first look-up leads to."""
    is_mapped: bool = False
    """Whether an op of geometry stood before, applied or not: from then on a crop is a look-up, and no border moves."""
    mirrored: int = 0
    """Whether the image was only mirrored so far: 1 along x, 2 along y."""
    look_ups: list[LookUp] = field(default_factory=list)
    """For each op in order: the point, in pixels from the frame's centre, that a point of its result shows."""
    blur_variance: float = 0.0
    """What the filter's variance grows by, in squared pixels of the output."""
    has_lens: bool = False
    is_projected: bool = False
    """Whether a perspective was applied."""
    is_moved: bool = False
    """Whether an op moves the frame's centre under a lens, perhaps to where that spreads pixels without bound."""
    tones: list[Callable[[Float, Float], Float]] = field(default_factory=list)
    """For each op in order: new levels (H, W, 3) from levels and radii (H, W, 1), where 1 is the corner."""
    mean: Float = field(default_factory=lambda: np.zeros(3))
    std: Float = field(default_factory=lambda: np.full(3, 1 / 255))

    def __post_init__(self) -> None:
        self.out_height, self.out_width = self.height, self.width
        self.crop = (Fraction(0), Fraction(0), Fraction(self.width), Fraction(self.height))

    def keep(self, x: Side, y: Side, width: Side, height: Side, out_height: int, out_width: int) -> None:
        """Keep a rectangle of what is there, in its pixels, at a size in pixels."""
        self.is_edge_sharp &= (height, width) == (out_height, out_width)
        if self.is_mapped:
            self._look_up(*map(float, (x, y, width, height)), out_height, out_width)
            return
        self.blur_variance *= out_width / width * (out_height / height)
        if self.mirrored & 1:
            x = self.out_width - x - width
        if self.mirrored & 2:
            y = self.out_height - y - height
        left, top, whole_width, whole_height = self.crop
        across, down = whole_width / self.out_width, whole_height / self.out_height
        self.crop = (left + x * across, top + y * down, width * across, height * down)
        self.out_height, self.out_width = out_height, out_width

    def _look_up(self, left: float, top: float, width: float, height: float, out_height: int, out_width: int) -> None:
        frame_height, frame_width = self.out_height, self.out_width
        self.kept = self.kept or (frame_height, frame_width)

        def look_up(x: Float, y: Float) -> tuple[Float, Float]:
            x, y = left + (x / out_width + 0.5) * width, top + (y / out_height + 0.5) * height
            return x - frame_width / 2, y - frame_height / 2

        self.look_ups.append(look_up)
        self.blur_variance *= out_width / width * (out_height / height)
        self.out_height, self.out_width = out_height, out_width

    def sharpen(self) -> None:
        """What is there is about to be padded."""
        self.padded = self.padded or self.crop
        self.is_edge_sharp |= not self.is_mapped and self.crop[2:] != (self.out_width, self.out_height)
        self.is_edge_kept = False

    @property
    def corner(self) -> float:
        """Pixels from the output's centre to its corner."""
        return float(np.hypot(self.out_height, self.out_width)) / 2

    def grid(self) -> tuple[Float, Float]:
        """x and y of every output pixel's centre, from the frame's centre."""
        y, x = np.mgrid[: self.out_height, : self.out_width]
        return x + 0.5 - self.out_width / 2, y + 0.5 - self.out_height / 2

    def source(self, x: Float, y: Float) -> tuple[Float, Float]:
        """The point of the image, pixel centres at +0.5, that a point of the output shows."""
        for look_up in reversed(self.look_ups):
            x, y = look_up(x, y)
        left, top, width, height = (float(value) for value in self.crop)
        kept_height, kept_width = self.kept or (self.out_height, self.out_width)
        return left + (x / kept_width + 0.5) * width, top + (y / kept_height + 0.5) * height

    @property
    def hides_border(self) -> bool:
        """Whether all corners of a frame neither bent nor projected show what crops keep: no edge meets a fill."""
        half_width, half_height = 0.5 * self.out_width, 0.5 * self.out_height
        x, y = self.source(half_width * np.array([-1, 1, -1, 1]), half_height * np.array([-1, -1, 1, 1]))
        left, top, width, height = map(float, self.padded or self.crop)
        found = np.concatenate([x - left, left + width - x, y - top, top + height - y])
        return not (self.has_lens or self.is_projected) and bool((found >= -1e-6).all())

    def support(self) -> tuple[float, float]:
        """How many source pixels an output pixel covers at the frame's centre, along x and y of the image."""
        step = 1e-4 * self.corner
        points = np.array([step, -step, 0.0, 0.0]), np.array([0.0, 0.0, step, -step])
        sizes = [np.hypot(at[0] - at[1], at[2] - at[3]) / (2 * step) for at in self.source(*points)]
        widest = 2.0 * max(self.height, self.width) if self.is_moved else np.inf
        return min(float(sizes[0]), widest), min(float(sizes[1]), widest)

    def sampled(
        self,
        image: npt.NDArray[np.uint8],
        border: str,
        fill: tuple[float, ...],
        factor: int = 1,
        interpolation: str = "bilinear",
        antialias: bool = True,
    ) -> Float:
        """(H, W, 3) levels before tone; `factor` is that of an image that was stored 1/factor as large."""
        x, y = self.source(*self.grid())
        averages = antialias and interpolation != "nearest"
        weights = {"bilinear": triangle, "bicubic": keys(-0.5 if antialias else -0.75), "nearest": box}[interpolation]
        # a triangle's variance is a sixth of its squared half-width
        support = [
            (max(1.0, averages * covered / factor) ** 2 + 6 * self.blur_variance * (covered / factor) ** 2) ** 0.5
            for covered in self.support()
        ]
        x, y = x / factor - 0.5, y / factor - 0.5
        pixels = image.astype(np.float64)
        if border != "context":
            left, top, width, height = (value / factor for value in self.padded or self.crop)
            first_y = min(max(floor(top), 0), pixels.shape[0] - 1)
            first_x = min(max(floor(left), 0), pixels.shape[1] - 1)
            pixels = pixels[
                first_y : max(ceil(top + height), first_y + 1), first_x : max(ceil(left + width), first_x + 1)
            ]
            x, y = x - first_x, y - first_y
        is_sharp = self.is_edge_sharp or self.is_edge_kept
        if (border == "constant" and is_sharp) or (border in ("constant", "wrap") and self.hides_border):
            is_seen = (x > -0.5) & (x < pixels.shape[1] - 0.5) & (y > -0.5) & (y < pixels.shape[0] - 0.5)
            black = averaged(pixels, x, y, support, "constant", (0.0, 0.0, 0.0), weights)
            weight = averaged(np.ones_like(pixels), x, y, support, "constant", (0.0, 0.0, 0.0), weights)
            shown = np.clip(black / np.where(is_seen[:, :, None], weight, 1.0), 0.0, 255.0)
            return np.where(is_seen[:, :, None], shown, fill)
        if max(support) > 1.0 + 1e-5 or interpolation != "bilinear":
            return np.clip(averaged(pixels, x, y, support, border, fill, weights), 0.0, 255.0)
        return interpolated(pixels, x, y, border, fill)

    def finished(self, levels: Float) -> Float:
        """(H, W, 3) after tone and normalisation."""
        x, y = self.grid()
        radius = np.hypot(x, y)[:, :, None] / self.corner
        for tone in self.tones:
            levels = tone(levels, radius)
        return (levels / 255 - self.mean) / self.std


def interpolated(pixels: Float, x: Float, y: Float, border: str, fill: tuple[float, ...]) -> Float:
    """Bilinear samples at (x, y), pixel centres at whole numbers."""
    from scipy import ndimage  # only here: gpu-check runs the table's cases without it

    channels = [
        ndimage.map_coordinates(
            pixels[:, :, i], [y, x], order=1, mode=SCIPY_MODES[border], cval=fill[i], prefilter=False
        )
        for i in range(3)
    ]
    return np.stack(channels, axis=2)


def triangle(t: Float) -> Float:
    """Weights at distances in output pixels."""
    return np.maximum(0.0, 1.0 - np.abs(t))


def box(t: Float) -> Float:
    """Weights at distances in pixels: the nearest one has all."""
    return ((t >= -0.5) & (t < 0.5)).astype(np.float64)


def keys(a: float) -> Weights:
    """R. G. Keys, Cubic convolution interpolation for digital image processing (1981)."""

    def weights(t: Float) -> Float:
        t = np.abs(t)
        far = a * (t**3 - 5 * t**2 + 8 * t - 4) * (t < 2)
        return np.where(t < 1, (a + 2) * t**3 - (a + 3) * t**2 + 1, far)

    return weights


def averaged(
    pixels: Float,
    x: Float,
    y: Float,
    support: list[float],
    border: str,
    fill: tuple[float, ...],
    weights: Weights = triangle,
) -> Float:
    """Means over a filter `support` times as wide around (x, y), with every pixel of the padded image weighed."""
    reach = [2 * ceil(value) + 2 for value in support]
    before_x, after_x = max(0, ceil(-x.min())) + reach[0], max(0, ceil(x.max()) - pixels.shape[1] + 1) + reach[0]
    before_y, after_y = max(0, ceil(-y.min())) + reach[1], max(0, ceil(y.max()) - pixels.shape[0] + 1) + reach[1]
    mode = NUMPY_MODES[border]
    padding = ((before_y, after_y), (before_x, after_x))
    channels = []
    weight_x = normalised(weights, x.ravel() + before_x, before_x + pixels.shape[1] + after_x, support[0])
    weight_y = normalised(weights, y.ravel() + before_y, before_y + pixels.shape[0] + after_y, support[1])
    for i in range(3):
        options = {"constant_values": fill[i]} if mode == "constant" else {}
        padded = np.pad(pixels[:, :, i], padding, mode=mode, **options)  # type: ignore[call-overload]
        channels.append(np.einsum("pw,pw->p", weight_y @ padded, weight_x).reshape(x.shape))
    return np.stack(channels, axis=2)


def normalised(weights: Weights, at: Float, length: int, support: float) -> Float:
    """(points, length) weights, which sum to 1."""
    all_of_them = weights((np.arange(length) - at[:, None]) / support)
    return all_of_them / all_of_them.sum(axis=1, keepdims=True)
