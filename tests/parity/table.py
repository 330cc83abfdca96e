"""The one table of ops: what each should do, and the recipes that are run. A new op joins by a row in ROWS."""

import colorsys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, permutations, product
from math import ceil, floor
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from augpipe import Plan, Recipe, ops
from augpipe.ops.levels import LevelsOp
from augpipe.ops.perspective import MAX_DISTORTION
from augpipe.ops.view_passes import in_one_pass
from tests.parity.oracle import Expected, Float, LookUp
from tests.parity.pixel_noise import normals, philox, splines

Row = Callable[[Expected, Any, Any], None]
SEPIA_WEIGHTS = ((0.393, 0.769, 0.189), (0.349, 0.686, 0.168), (0.272, 0.534, 0.131))
"""Those that albumentations hands to OpenCV."""
LENS_KINDS = ("barrel", "pincushion", "stretch_horizontal", "stretch_vertical")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def _crop_of_resized(expected: Expected, scale: int | None, x: float, y: float, size: tuple[int, int]) -> None:
    height, width = expected.out_height, expected.out_width
    short = min(height, width)
    across = Fraction(width, width * scale // short) if scale else Fraction(1)
    down = Fraction(height, height * scale // short) if scale else Fraction(1)
    expected.keep(Fraction(x) * across, Fraction(y) * down, size[1] * across, size[0] * down, *size)


def _center_crop(expected: Expected, op: ops.CenterCrop, drawn: Any) -> None:
    size, short = _pair(op.size), min(expected.out_height, expected.out_width)
    lengths = [
        length * op.scale // short if op.scale else length for length in (expected.out_height, expected.out_width)
    ]
    x, y = round(Fraction(lengths[1] - size[1], 2)), round(Fraction(lengths[0] - size[0], 2))
    _crop_of_resized(expected, op.scale, x, y, size)


def _multi_resolution_crop(expected: Expected, op: ops.MultiResolutionCrop, drawn: Any) -> None:
    _crop_of_resized(expected, int(drawn["scale"]), float(drawn["x"]), float(drawn["y"]), _pair(op.size))


def _random_resized_crop(expected: Expected, op: ops.RandomResizedCrop, drawn: Any) -> None:
    x, y, width, height = (Fraction(float(drawn[name])) for name in ("x", "y", "width", "height"))
    size = (expected.out_height, expected.out_width) if op.own_size else _pair(op.size)
    _keep(expected, x, y, width, height, size, op.align_corners)


def _keep(
    expected: Expected,
    x: Fraction,
    y: Fraction,
    width: Fraction,
    height: Fraction,
    size: tuple[int, int],
    aligned: bool,
) -> None:
    """A rectangle at a size, which may begin and end with the middles of its pixels."""
    if aligned:
        (x, width), (y, height) = _by_middles(x, width, size[1]), _by_middles(y, height, size[0])
    expected.keep(x, y, width, height, *size)


def _by_middles(begin: Fraction, length: Fraction, num: int) -> tuple[Fraction, Fraction]:
    pixel = max(length - 1, Fraction(1, 1000)) / (num - 1) if num > 1 else Fraction(1)
    return begin + (1 - pixel) / 2, pixel * num


def _seen_beyond(expected: Expected, border: str, fill: tuple[float, ...]) -> None:
    expected.beyond = border, fill


def _random_crop(expected: Expected, op: ops.RandomCrop, drawn: Any) -> None:
    if op.padding or op.pad_if_needed:
        expected.sharpen()
    _crop_of_resized(expected, None, float(drawn["x"]), float(drawn["y"]), _pair(op.size))
    if op.padding or op.pad_if_needed:
        _seen_beyond(expected, op.border, op.fill)


def _resize_to(expected: Expected, height: int, width: int, aligned: bool = False) -> None:
    sides = Fraction(expected.out_width), Fraction(expected.out_height)
    _keep(expected, Fraction(0), Fraction(0), *sides, (height, width), aligned)


def _resize(expected: Expected, op: ops.Resize, drawn: Any) -> None:
    _resize_to(expected, *_pair(op.size), aligned=op.align_corners)


def _resize_shortest(expected: Expected, op: ops.ResizeShortest, drawn: Any) -> None:
    short, long = sorted((expected.out_height, expected.out_width))
    new = [op.size, op.size * long // short if op.rounding == "down" else round(Fraction(op.size * long, short))]
    if op.max_size and new[1] > op.max_size:
        new = [max(1, op.max_size * new[0] // new[1]), op.max_size]
    _resize_to(expected, *(new if expected.out_height <= expected.out_width else new[::-1]), aligned=op.align_corners)


def _resize_longest(expected: Expected, op: ops.ResizeLongest, drawn: Any) -> None:
    longest = max(expected.out_height, expected.out_width)
    whole = floor if op.rounding == "down" else round
    sides = [max(1, whole(Fraction(side * op.size, longest))) for side in (expected.out_height, expected.out_width)]
    _resize_to(expected, *sides, aligned=op.align_corners)


def _random_resize(expected: Expected, op: ops.RandomResize, drawn: Any) -> None:
    height, width = expected.out_height, expected.out_width
    if op.size:
        own = min(height, width)
        _resize_to(expected, *(side * (int(drawn["short"]) or own) // own for side in (height, width)))
        return
    factor = float(drawn["factor"])
    if op.within:
        factor *= min(_pair(op.within)[0] / height, _pair(op.within)[1] / width)
    _resize_to(expected, max(1, int(height * factor)), max(1, int(width * factor)))


def _padded(expected: Expected, left: int, top: int, right: int, bottom: int) -> None:
    height, width = expected.out_height + top + bottom, expected.out_width + left + right
    expected.sharpen()
    expected.keep(-left, -top, width, height, height, width)


def _pad(expected: Expected, op: ops.Pad, drawn: Any) -> None:
    if isinstance(op.px, int):
        _padded(expected, *(op.px,) * 4)
    else:
        _padded(expected, *(op.px * 2 if len(op.px) == 2 else op.px))
    to_height, to_width = _pair(op.size or 1)
    every = op.multiple or 1
    missing_x = ceil(max(to_width, expected.out_width) / every) * every - expected.out_width
    missing_y = ceil(max(to_height, expected.out_height) / every) * every - expected.out_height
    _pad_at(expected, op.position, missing_x, missing_y)
    _seen_beyond(expected, op.border, op.fill)


def _pad_at(expected: Expected, position: str, missing_x: int, missing_y: int) -> None:
    left = {"c": missing_x // 2, "l": 0, "r": missing_x}[position.split("_")[-1][0]]
    top = {"c": missing_y // 2, "t": 0, "b": missing_y}[position[0]]
    _padded(expected, left, top, missing_x - left, missing_y - top)


def _letterbox(expected: Expected, op: ops.Letterbox, drawn: Any) -> None:
    height, width = _pair(op.size)
    scale = min(Fraction(height, expected.out_height), Fraction(width, expected.out_width))
    if not op.enlarge:
        scale = min(scale, Fraction(1))
    _resize_to(expected, *(max(1, round(scale * side)) for side in (expected.out_height, expected.out_width)))
    _pad_at(expected, op.position, width - expected.out_width, height - expected.out_height)
    _seen_beyond(expected, op.border, op.fill)


def _zoom_out(expected: Expected, op: ops.ZoomOut, drawn: Any) -> None:
    height, width = expected.out_height, expected.out_width
    (left, right), (top, bottom) = (
        (first := int(drawn[name] * (room + 1)), room - first)
        for room, name in ((int(width * drawn["factor"]) - width, "x"), (int(height * drawn["factor"]) - height, "y"))
    )
    assert min(left, top, right, bottom) >= 0
    is_first = expected.padded is None
    _padded(expected, left, top, right, bottom)
    expected.is_edge_kept = is_first and (height, width) == (expected.out_height, expected.out_width)
    _resize_to(expected, height, width)
    _seen_beyond(expected, op.border, op.fill)


def _one_crop(expected: Expected, op: ops.OneCrop, drawn: Any) -> None:
    name = f"chain_{drawn['chosen'] + 1}"
    for key, inner in op.keyed_chains[drawn["chosen"]]:
        ROWS[type(inner)](expected, inner, drawn[name][key] if inner.record.names else {})
        expected.is_mapped |= _moves(inner)
    if op.beyond:  # of the view, whichever is chosen
        _seen_beyond(expected, *op.beyond)


def _flip(expected: Expected, op: ops.Flip, drawn: Any) -> None:
    if drawn["flipped"] and not expected.is_mapped:
        expected.mirrored ^= {"horizontal": 1, "vertical": 2}[op.direction]
    if drawn["flipped"]:
        expected.look_ups.append(lambda x, y: (-x, y) if op.direction == "horizontal" else (x, -y))


def _rotate(expected: Expected, op: ops.Rotate, drawn: Any) -> None:
    turn = np.exp(-1j * np.pi * drawn["degrees"] / 180)

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        seen = (x - 1j * y) * turn  # y points down, and angles count upwards
        return seen.real, -seen.imag

    expected.look_ups.append(look_up)
    if op.fit_frame != "no":
        wide, high = expected.out_width, expected.out_height
        box = wide * abs(turn.real) + high * abs(turn.imag), wide * abs(turn.imag) + high * abs(turn.real)
        across, down = (max(ceil(side) if op.fit_frame == "up" else floor(side), 1) for side in box)
        expected.look_ups.append(lambda x, y: (x * across / wide, y * down / high))


def _stretch(expected: Expected, op: ops.Stretch, drawn: Any) -> None:
    expected.look_ups.append(lambda x, y: (x / drawn["horizontal"], y / drawn["vertical"]))


def _quarter_turn(expected: Expected, op: ops.QuarterTurn, drawn: Any) -> None:
    # a quarter anticlockwise shows at (x, y) what stood at (-y, x): y points down
    quarters: list[LookUp] = [
        lambda x, y: (x, y),
        lambda x, y: (-y, x),
        lambda x, y: (-x, -y),
        lambda x, y: (y, -x),
    ]
    expected.look_ups.append(quarters[int(drawn["turns"])])


def _transpose(expected: Expected, op: ops.Transpose, drawn: Any) -> None:
    if drawn["applied"]:
        expected.look_ups.append(lambda x, y: (y, x))


def _zoom(expected: Expected, op: ops.Zoom, drawn: Any) -> None:
    expected.look_ups.append(lambda x, y: (x / drawn["factor"], y / drawn["factor"]))


def _shear(expected: Expected, op: ops.Shear, drawn: Any) -> None:
    across, up = (float(np.tan(np.pi * drawn[name] / 180)) for name in ("horizontal_deg", "vertical_deg"))
    left, top = (-expected.out_width / 2, -expected.out_height / 2) if op.about == "corner" else (0.0, 0.0)

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        y = y + up * (x - left)  # what was done last is undone first
        return x + across * (y - top), y

    def look_up_y_first(x: Float, y: Float) -> tuple[Float, Float]:
        x = x + across * (y - top)
        return x, y + up * (x - left)

    def look_up_both(x: Float, y: Float) -> tuple[Float, Float]:
        (x, y), ((a, b), (c, d)) = (x - left, y - top), np.linalg.inv([[1, -across], [-up, 1]])
        return left + a * x + b * y, top + c * x + d * y

    expected.look_ups.append({"x_first": look_up, "y_first": look_up_y_first, "at_once": look_up_both}[op.order])
    expected.is_moved |= expected.has_lens and op.about == "corner"


def _perspective(expected: Expected, op: ops.Perspective, drawn: Any) -> None:
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    halves = np.array([expected.out_width / 2, expected.out_height / 2])
    # a frame of one pixel has no way between centres: it counts as two
    reach = halves if op.corners == "edges" else np.maximum(halves - 0.5, 0.5)
    inwards = halves * drawn["moved"]
    if op.corners == "whole_px":
        most = np.floor(op.distortion * np.floor(halves))
        inwards = np.minimum(np.floor(drawn["moved"] / op.distortion * (most + 1)), most)
    # centres of a few pixels would meet
    corners, moved = signs * reach, signs * (reach - np.minimum(inwards, MAX_DISTORTION * reach))
    if op.corners == "whole_px":  # the upper left corners of pixels
        corners, moved = corners - 0.5, moved - 0.5
    if op.inner_std is not None:  # each corner of the frame shows a moved one
        moved, corners = corners, moved
    # eight equations: each moved corner is looked up at the frame's own
    equations = np.zeros((8, 8))
    for i, ((x, y), (u, v)) in enumerate(zip(moved, corners, strict=True)):
        equations[2 * i] = [x, y, 1, 0, 0, 0, -u * x, -u * y]
        equations[2 * i + 1] = [0, 0, 0, x, y, 1, -v * x, -v * y]
    a, b, c, d, e, f, g, h = np.linalg.solve(equations, corners.ravel())

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        divisor = np.maximum(g * x + h * y + 1, 0.125)
        return (a * x + b * y + c) / divisor, (d * x + e * y + f) / divisor

    expected.look_ups.append(look_up)
    expected.is_moved = True
    expected.is_projected |= bool(np.any(drawn["moved"]))


def _blur(expected: Expected, op: ops.Blur, drawn: Any) -> None:
    expected.blur_variance += float(drawn["sigma_px"]) ** 2


def _convolved(levels: Float, weights: Float) -> Float:
    """The sum over a square about each pixel; beyond the image lies its mirror image without the outermost pixel."""
    radius = len(weights) // 2
    padded = np.pad(levels, ((radius, radius), (radius, radius), (0, 0)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape, axis=(0, 1))
    return np.einsum("hwcyx,yx->hwc", windows, weights)


def _gaussian_blur(expected: Expected, op: ops.GaussianBlur, drawn: Any) -> None:
    sigma = float(drawn["sigma_px"])
    if sigma > 0:
        radius = int(3.5 * sigma) if op.kernel_px is None else op.kernel_px // 2
        y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
        weights = np.exp(-(x**2 + y**2) / (2 * sigma**2))
        expected.tones.append(lambda levels, radius: _convolved(levels, weights / weights.sum()))


def _box_blur(expected: Expected, op: ops.BoxBlur, drawn: Any) -> None:
    size = int(drawn["size_px"])
    expected.tones.append(lambda levels, radius: _convolved(levels, np.full((size, size), size**-2.0)))


def _motion_blur(expected: Expected, op: ops.MotionBlur, drawn: Any) -> None:
    size, turn = int(drawn["size_px"]), np.exp(1j * np.pi * drawn["degrees"] / 180)
    if size == 1:
        return
    half, direction, (right, down) = size // 2, float(drawn["direction"]), drawn["shift"]
    weights = np.zeros((size, size))
    if op.line == "ends":
        x, y, last_x, last_y = map(int, drawn["ends"])
        cv2.line(weights, (x, y), (last_x, last_y), 1.0)
        expected.tones.append(lambda levels, radius: _convolved(levels, weights / weights.sum()))
        return
    for along in np.linspace(-half * min(1, 1 - direction), half * min(1, 1 + direction), size):
        point = half * (1 + 1j) + (along * turn).conjugate() + half / 2 * (right + 1j * down)
        weights[np.clip(round(point.imag), 0, size - 1), np.clip(round(point.real), 0, size - 1)] = 1
    expected.tones.append(lambda levels, radius: _convolved(levels, weights / weights.sum()))


def _blended(expected: Expected, alpha: float, weights: list[list[float]]) -> None:
    def blend(levels: Float, radius: Float) -> Float:
        return np.clip((1 - alpha) * levels + alpha * _convolved(levels, np.array(weights)), 0, 255)

    expected.tones.append(blend)


def _sharpen(expected: Expected, op: ops.Sharpen, drawn: Any) -> None:
    _blended(expected, float(drawn["alpha"]), [[-1, -1, -1], [-1, 8 + float(drawn["lightness"]), -1], [-1, -1, -1]])


def _emboss(expected: Expected, op: ops.Emboss, drawn: Any) -> None:
    s = float(drawn["strength"])
    _blended(expected, float(drawn["alpha"]), [[-1 - s, -s, 0], [-s, 1, s], [0, s, 1 + s]])


def _translate(expected: Expected, op: ops.Translate, drawn: Any) -> None:
    right, down = float(drawn["horizontal"]), float(drawn["vertical"])
    if op.unit == "fraction":
        right, down = right * expected.out_width, down * expected.out_height
    expected.look_ups.append(lambda x, y: (x - right, y - down))
    expected.is_moved |= expected.has_lens


def _lens_distortion(expected: Expected, op: ops.LensDistortion, drawn: Any) -> None:
    kind, strength = LENS_KINDS[drawn["kind"]], float(drawn["strength"])
    corner = expected.corner

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        radius = np.hypot(x, y) / corner
        if kind == "barrel":
            return x * (1 + strength * radius**2), y * (1 + strength * radius**2)
        if kind == "pincushion":
            return x * (1 - strength * radius**2), y * (1 - strength * radius**2)
        return (x / (1 + strength), y) if kind == "stretch_horizontal" else (x, y / (1 + strength))

    expected.look_ups.append(look_up)
    expected.has_lens |= strength != 0.0


def _brown_conrady(expected: Expected, op: ops.BrownConrady, drawn: Any) -> None:
    k1, k2, k3, p1, p2 = (float(drawn[name]) for name in ("k1", "k2", "k3", "p1", "p2"))
    corner = expected.corner

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        x, y = x / corner, y / corner
        r = np.hypot(x, y)
        radial = 1 + k1 * r**2 + k2 * r**4 + k3 * r**6
        seen_x = x * radial + 2 * p1 * x * y + p2 * (r**2 + 2 * x**2)
        seen_y = y * radial + p1 * (r**2 + 2 * y**2) + 2 * p2 * x * y
        return seen_x * corner, seen_y * corner

    expected.look_ups.append(look_up)
    expected.has_lens |= any((k1, k2, k3, p1, p2))


def _optical_distortion(expected: Expected, op: ops.OpticalDistortion, drawn: Any) -> None:
    k, corner = float(drawn["k"]), expected.corner
    units = (expected.out_width, expected.out_height) if op.mode == "camera" else (corner, corner)
    quartic = k if op.mode == "camera" else 0.0

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        r2 = (x / units[0]) ** 2 + (y / units[1]) ** 2
        gain = 1 + k * r2 + quartic * r2**2
        return x * gain, y * gain

    expected.look_ups.append(look_up)
    expected.has_lens |= k != 0.0


def _grid_distortion(expected: Expected, op: ops.GridDistortion, drawn: Any) -> None:
    shown = 1 + drawn["shares"][:, : op.num_steps].astype(float)
    if op.normalized:
        shown /= shown.mean(axis=1, keepdims=True)
    sides = expected.out_width, expected.out_height

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        if x.ndim == 1 or not drawn["shares"].any():  # the filter is that of the frame before it is bent
            return x, y
        if op.cells != "alike":
            return by_pixels(x, sides[0], 0), by_pixels(y, sides[1], 1)
        found = []
        for at, side, shares in zip((x, y), sides, shown, strict=True):
            ends = np.linspace(0, side, op.num_steps + 1)
            place = np.clip(at + side / 2, 0, side)
            found.append(at - place + np.interp(place, ends, np.append(0, np.cumsum(shares)) * side / op.num_steps))
        return found[0], found[1]

    def by_pixels(at: Float, side: int, axis: int) -> Float:
        """As albumentations fills its map, a cell at a time; cells have two pixels at least."""
        steps = 1 + drawn["shares"][axis, : op.num_steps + 1].astype(float)
        step = max(side // op.num_steps, 2)
        left = min(max(side - op.num_steps * step, 0), step)
        if op.normalized:
            steps[-1] *= left / step
            steps *= side / step / steps.sum()
        begins, slopes = [0.0], []
        for cell in range(op.num_steps + 1):
            num = step if cell < op.num_steps else left
            is_edge = op.cells == "to_edge" and cell == op.num_steps and left
            begins.append(side if is_edge else begins[cell] + step * steps[cell])
            slopes.append((begins[cell + 1] - begins[cell]) / (num - 1) if num > 1 else 0.0)
        cells = np.clip((at + side / 2) // step, 0, op.num_steps).astype(int)
        pixel = np.clip(at + side / 2 - 0.5 - cells * step, 0, step - 1)  # between two cells, that of the nearer one
        return at + np.array(begins)[cells] + np.array(slopes)[cells] * pixel - (cells * step + pixel)

    if drawn["shares"].any():  # a border is hidden as without the grid where that leads to places in its frame alone
        stays = op.cells == "alike" and bool((shown.cumsum(axis=1) <= op.num_steps + 1e-6).all())
        expected.has_lens |= not (stays and expected.hides_border)
    expected.look_ups.append(look_up)


def _elastic_transform(expected: Expected, op: ops.ElasticTransform, drawn: Any) -> None:
    """The affine map by its corners, and the field by scipy's B-splines over the output."""
    corners = min(expected.out_height, expected.out_width) / 3 * np.array([[1, 1], [1, -1], [-1, -1]])
    affine = np.linalg.solve(np.column_stack([corners + drawn["corners"], np.ones(3)]), corners)
    expected.look_ups.append(
        lambda x, y: (
            affine[0, 0] * x + affine[1, 0] * y + affine[2, 0],
            affine[0, 1] * x + affine[1, 1] * y + affine[2, 1],
        )
    )
    place = len(expected.look_ups)
    # nodes are sums of two evenly distributed numbers, and a field's variance the mean sum of their squared weights
    std = float(drawn["amplitude"]) / ((1 / 6) ** 0.5 * 151 / 315)
    key, phase = (int(drawn["key"][0]), int(drawn["key"][1])), drawn["phase"].astype(float)
    large = (expected.out_height * expected.out_width) ** 0.5 / op.side_px if op.side_px else 1.0

    def look_up(x: Float, y: Float) -> tuple[Float, Float]:
        if x.ndim == 1 or not std:
            return x, y
        step: tuple[Float, Float] = 1e-3 * np.array([1.0, -1, 0, 0]), 1e-3 * np.array([0.0, 0, 1, -1])
        for later in reversed(expected.look_ups[place + 1 :]):
            step = later(*step)
        covered = [np.hypot(step[0][i] - step[0][i + 1], step[1][i] - step[1][i + 1]) / 2e-3 for i in (0, 2)]
        sides, out = (expected.out_width, expected.out_height), expected.grid()
        fine = [min(1.0, one / (3**0.5 * op.sigma * large)) for one in covered]
        at = [1 + phase[i] + fine[i] * (out[i] + sides[i] / 2) for i in (0, 1)]
        dx, dy = splines(at[0], at[1], key)
        return x + std * dx, y + std * (dx if op.same else dy)

    expected.look_ups.append(look_up)
    expected.has_lens |= std > 0.0


def _vignette(expected: Expected, op: ops.Vignette, drawn: Any) -> None:
    inner, strength = float(drawn["radius"]), float(drawn["strength"])

    def tone(levels: Float, radius: Float) -> Float:
        depth = np.where(radius > inner, (radius**2 - inner**2) / (1 - inner**2), 0.0)
        return levels * (1 - strength * depth**2)

    expected.tones.append(tone)


def _color_cast(expected: Expected, op: ops.ColorCast, drawn: Any) -> None:
    shift = drawn["shift"].copy()
    expected.tones.append(lambda levels, radius: np.clip(levels + shift, 0, 255))


def _brightness(expected: Expected, op: ops.Brightness, drawn: Any) -> None:
    factor = float(drawn["factor"])
    expected.tones.append(lambda levels, radius: np.clip(factor * levels, 0, 255))


def _contrast(expected: Expected, op: ops.Contrast, drawn: Any) -> None:
    factor = float(drawn["factor"])
    expected.tones.append(lambda levels, radius: np.clip(127.5 + factor * (levels - 127.5), 0, 255))


def _brightness_contrast(expected: Expected, op: ops.BrightnessContrast, drawn: Any) -> None:
    gain, added = 1 + float(drawn["contrast"]), 255 * float(drawn["brightness"])
    if op.of_normalized is not None and (gain, added) != (1, 0):
        mean, std = np.array(op.of_normalized)

        def change(levels: Float, radius: Float) -> Float:
            numbers = np.clip(gain * (levels / 255 - mean) / std + added / 255, 0, 1)
            return 255 * (numbers * std + mean)

        expected.tones.append(change)
        return
    expected.tones.append(lambda levels, radius: np.clip(gain * levels + added, 0, 255))


def _saturated(levels: Float, factor: float) -> Float:
    gray = 0.299 * levels[:, :, :1] + 0.587 * levels[:, :, 1:2] + 0.114 * levels[:, :, 2:]
    return np.clip(gray + factor * (levels - gray), 0, 255)


def _saturation(expected: Expected, op: ops.Saturation, drawn: Any) -> None:
    factor = float(drawn["factor"])
    expected.tones.append(lambda levels, radius: _saturated(levels, factor))


def _hued(levels: Float, turn: float) -> Float:
    """Through the chroma I + jQ of the NTSC primaries (FCC), solved back channel by channel."""
    red, green, blue = np.moveaxis(levels, 2, 0)
    gray = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = 0.595716 * red - 0.274453 * green - 0.321263 * blue
    chroma = chroma + 1j * (0.211456 * red - 0.522591 * green + 0.311135 * blue)
    chroma = chroma * np.exp(-2j * np.pi * turn)
    turned = [0.9563, 0.6210], [-0.2721, -0.6474], [-1.1070, 1.7046]
    channels = [gray + of_i * chroma.real + of_q * chroma.imag for of_i, of_q in turned]
    return np.clip(np.stack(channels, axis=2), 0, 255)


def _hsv_shifted(levels: Float, turn: float, saturation: float, value: float, keeps_gray: bool = False) -> Float:
    """Through the standard library's HSV, pixel by pixel; `saturation` and `value` in parts of 1."""
    made = np.empty_like(levels)
    for place in np.ndindex(levels.shape[:2]):
        h, s, v = colorsys.rgb_to_hsv(*(levels[place] / 255))
        more = 0.0 if keeps_gray and np.ptp(levels[place]) < 0.5 else saturation
        made[place] = colorsys.hsv_to_rgb((h + turn) % 1, np.clip(s + more, 0, 1), np.clip(v + value, 0, 1))
    return 255 * made


def _turned(levels: Float, turn: float, space: str) -> Float:
    return _hsv_shifted(levels, turn, 0, 0) if space == "hsv" else _hued(levels, turn)


def _hue(expected: Expected, op: ops.Hue, drawn: Any) -> None:
    turn = float(drawn["turn"])
    expected.tones.append(lambda levels, radius: _turned(levels, turn, op.space) if turn else levels)


def _hue_saturation_value(expected: Expected, op: ops.HueSaturationValue, drawn: Any) -> None:
    hue, saturation, value = (float(drawn[name]) for name in ("hue", "saturation", "value"))
    gray = op.keeps_gray
    expected.tones.append(lambda levels, radius: _hsv_shifted(levels, hue, saturation / 255, value / 255, gray))


def _grayscale(expected: Expected, op: ops.Grayscale, drawn: Any) -> None:
    if drawn["applied"]:
        expected.tones.append(lambda levels, radius: _saturated(levels, 0.0))


def _sepia(expected: Expected, op: ops.Sepia, drawn: Any) -> None:
    weights = [[round(1024 * weight) / 1024 for weight in row] for row in SEPIA_WEIGHTS]
    if drawn["applied"]:
        expected.tones.append(lambda levels, radius: np.clip(levels @ np.array(weights).T, 0, 255))


def _channel_shuffle(expected: Expected, op: ops.ChannelShuffle, drawn: Any) -> None:
    order = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)][drawn["order"]]
    expected.tones.append(lambda levels, radius: levels[:, :, order])


def _channel_dropout(expected: Expected, op: ops.ChannelDropout, drawn: Any) -> None:
    dropped = drawn["dropped"].copy()
    expected.tones.append(lambda levels, radius: np.where(dropped, op.fill, levels))


def _lighting(expected: Expected, op: ops.Lighting, drawn: Any) -> None:
    vectors = ((-0.5675, -0.5808, -0.5836), (0.7192, -0.0045, -0.6948), (0.4009, -0.8140, 0.4203))
    shift = sum(
        255 * float(amount) * value * np.array(vector)
        for amount, value, vector in zip(drawn["amounts"], (0.2175, 0.0188, 0.0045), vectors, strict=True)
    )
    expected.tones.append(lambda levels, radius: np.clip(levels + shift, 0, 255))


def _color_jitter(expected: Expected, op: ops.ColorJitter, drawn: Any) -> None:
    brightness, contrast, saturation, turn = (
        float(drawn[name]) for name in ("brightness", "contrast", "saturation", "hue")
    )
    steps: list[Callable[[Float], Float]] = [
        lambda levels: np.clip(brightness * levels, 0, 255),
        lambda levels: np.clip(127.5 + contrast * (levels - 127.5), 0, 255),
        lambda levels: _saturated(levels, saturation),
        lambda levels: _turned(levels, turn, op.space) if turn else levels,
    ]
    mean, std = np.array(((0, 0, 0), (1, 1, 1)) if op.of_normalized is None else op.of_normalized)
    if (brightness, contrast, saturation, turn) == (1, 1, 1, 0):
        return
    expected.tones.append(lambda levels, radius: np.clip((levels - 255 * mean) / std, 0, 255))
    for which in list(permutations(range(4)))[drawn["order"]]:
        expected.tones.append(lambda levels, radius, step=steps[which]: step(levels))
    expected.tones.append(lambda levels, radius: levels * std + 255 * mean)


def _group(expected: Expected, op: Any, drawn: Any) -> None:
    seen: Counter[str] = Counter()
    for member, is_applied in zip(op.ops, drawn["applied"], strict=True):
        seen[member.op] += 1
        key = member.op if seen[member.op] == 1 else f"{member.op}_{seen[member.op]}"
        if is_applied:
            ROWS[type(member)](expected, member, drawn[key] if member.record.names else None)


def _identity(expected: Expected, op: ops.Identity, drawn: Any) -> None:
    pass


def _erase(expected: Expected, op: ops.Erase, drawn: Any) -> None:
    left, top, right, bottom = drawn["edges"]
    key = tuple(int(word) for word in drawn["key"])

    def fill(levels: Float, radius: Float) -> Float:
        filled = levels.copy()
        if op.fill == "noise":
            content = 255 * (np.array(op.mean) + np.array(op.std) * normals(levels.shape[:2], key))
        else:
            content = np.broadcast_to(255 * np.array(op.mean) if op.fill == "mean" else op.fill, levels.shape)
        filled[top:bottom, left:right] = content[top:bottom, left:right]
        return filled

    expected.tones.append(fill)


def _coarse_dropout(expected: Expected, op: ops.CoarseDropout, drawn: Any) -> None:
    edges = drawn["edges"].copy()

    def fill(levels: Float, radius: Float) -> Float:
        filled = levels.copy()
        for left, top, right, bottom in edges:
            filled[top:bottom, left:right] = op.fill
        return filled

    expected.tones.append(fill)


def _grid_dropout(expected: Expected, op: ops.GridDropout, drawn: Any) -> None:
    key, shift = tuple(int(word) for word in drawn["key"]), [int(one) for one in drawn["shift_px"]]
    sides, unit_px = (expected.out_height, expected.out_width), int(drawn["unit_px"])
    units = [max(min(unit_px, side) or side // num, 2) for side, num in zip(sides, op.grid, strict=True)]
    if op.fit == "square" and not unit_px:
        units[0] = max(min(units[1], sides[0]), 2)
    axes = []
    for side, unit, num in zip(sides, units, op.grid, strict=True):
        num_even = max(side // unit, 1) if unit_px else max(min(num, side // 2), 1)
        ends = [side * nth // num_even for nth in range(num_even + 1)]
        axes.append(list(pairwise(ends if op.fit == "even" else range(0, side + unit, unit))))
    words = philox(np.arange(len(axes[0]) * len(axes[1]), dtype=np.uint64), key)

    def fill(levels: Float, radius: Float) -> Float:
        filled, cells = levels.copy(), product(*axes)
        for nth, cell in enumerate(cells):
            hole = []
            for (first, end), word, offset in zip(cell, (words[1][nth], words[0][nth]), shift, strict=True):
                length = min(max(int((end - first) * op.ratio), 1), end - first - 1)
                room = end - first - length
                first += int(word) * (room + 1) // 2**32 if offset < 0 else min(offset, room)
                hole.append(slice(first, first + length))
            filled[tuple(hole)] = op.fill
        return filled

    if drawn["applied"]:
        expected.tones.append(fill)


def _pixel_dropout(expected: Expected, op: ops.PixelDropout, drawn: Any) -> None:
    share, key = float(drawn["share"]), tuple(int(word) for word in drawn["key"])
    fill = drawn["levels"].astype(np.float64)

    def drop(levels: Float, radius: Float) -> Float:
        words = philox(np.arange(levels[:, :, 0].size, dtype=np.uint64), key)
        chosen = np.stack([words[channel if op.per_channel else 0] for channel in range(3)], axis=-1)
        return np.where((chosen >> np.uint64(8)).reshape(levels.shape) < float(np.float32(share * 2**24)), fill, levels)

    if share:
        expected.tones.append(drop)


def _noise(expected: Expected, op: ops.Noise, drawn: Any) -> None:
    std, speckle = float(drawn["std"]), float(drawn["speckle"])
    key = tuple(int(word) for word in drawn["key"])

    def add(levels: Float, radius: Float) -> Float:
        drawn_numbers = normals(levels.shape[:2], key)
        if not op.per_channel:
            drawn_numbers = drawn_numbers[:, :, :1]
        return np.clip(levels + (std + speckle * levels) * drawn_numbers, 0, 255)

    if std or speckle:
        expected.tones.append(add)


def _fog(expected: Expected, op: ops.Fog, drawn: Any) -> None:
    """As albumentations 1 lists its discs: rings grow until they begin a disc's width outside."""
    density, key = float(drawn["density"]), tuple(int(word) for word in drawn["key"])
    height, width = expected.out_height, expected.out_width
    side, wide = max(int(width // 3 * density), 1), max(int(width // 3 * density), 10)
    rings, x, y = [], width // 2 - 2 * side, height // 2 - side
    while x > -side or y > -side:
        rings += [(x, y)] * (side // 10 * (1 + len(set(rings))))
        if not side // 10:
            break
        x -= max(3 * side * width // (width + height), 1)
        y -= max(3 * side * height // (width + height), 1)
    words = philox(np.arange(len(rings), dtype=np.uint64), key)

    def veil(levels: Float, radius: Float) -> Float:
        rows, columns = np.mgrid[:height, :width]
        for (x, y), word_x, word_y in zip(rings, words[0].tolist(), words[1].tolist(), strict=True):
            middle = [
                first + word * max(length - 2 * first - side + 1, 1) // 2**32 + wide // 2
                for first, word, length in ((x, word_x, width), (y, word_y, height))
            ]
            inside = (columns - middle[0]) ** 2 + (rows - middle[1]) ** 2 <= wide // 2 * (wide // 2 + 1)
            levels = np.where(inside[:, :, None], levels + op.alpha * density * (255 - levels), levels)
        return levels

    if density:
        expected.tones.append(veil)
        size = wide // 10 // 2 * 2 + 1
        expected.tones.append(lambda levels, radius: cv2.blur(levels, (size, size), borderType=cv2.BORDER_REFLECT_101))


def _iso_noise(expected: Expected, op: ops.ISONoise, drawn: Any) -> None:
    intensity, key = float(drawn["intensity"]), tuple(int(word) for word in drawn["key"])
    counted = 255 * op.contrast * intensity

    def grain(levels: Float, radius: Float) -> Float:
        numbers = normals(levels.shape[:2], key)
        changed = np.empty_like(levels)
        for place in np.ndindex(levels.shape[:2]):
            hue, lightness, saturation = colorsys.rgb_to_hls(*(levels[place] / 255))
            hue += np.clip(numbers[place][0] * float(drawn["hue"]) * intensity, -1, 1)
            added = max(counted + counted**0.5 * numbers[place][1], 0) / 255
            lightness = min(lightness + added * (1 - lightness), 1)
            changed[place] = 255 * np.array(colorsys.hls_to_rgb(hue % 1, lightness, saturation))
        return changed

    if intensity:
        expected.tones.append(grain)


def _shadow(expected: Expected, op: ops.Shadow, drawn: Any) -> None:
    """OpenCV draws the polygons, each by itself, in pixels of the view."""
    polygons = list(zip(drawn["at"].copy(), drawn["loss"].tolist(), strict=True))[: int(drawn["num"])]

    def shade(levels: Float, radius: Float) -> Float:
        left = np.ones(levels.shape[:2])
        for corners, loss in polygons:
            covered = cv2.fillPoly(np.zeros(levels.shape[:2], np.uint8), [corners], 1) > 0
            darker = np.minimum(left, 1 - loss) if op.of == "lightness" else left * (1 - loss)
            left = np.where(covered, darker, left)
        if op.of == "levels":
            return levels * left[:, :, None]
        changed = levels.copy()
        for place in zip(*np.nonzero(left < 1), strict=True):
            hue, lightness, saturation = colorsys.rgb_to_hls(*(np.clip(levels[place], 0, 255) / 255))
            changed[place] = 255 * np.array(colorsys.hls_to_rgb(hue, lightness * left[place], saturation))
        return changed

    if polygons:
        expected.tones.append(shade)


def _downscale(expected: Expected, op: ops.Downscale, drawn: Any) -> None:
    scale = float(np.float32(drawn["scale"]))

    def coarsen(levels: Float, radius: Float) -> Float:
        for axis, length in enumerate(levels.shape[:2]):
            num = max(round(length * scale), 1)
            small = [min(int(nth / scale), length - 1) for nth in range(num)]
            levels = levels.take([small[place * num // length] for place in range(length)], axis)
        return levels

    if scale < 1.0:
        expected.tones.append(coarsen)


def _grid_shuffle(expected: Expected, op: ops.GridShuffle, drawn: Any) -> None:
    (down, across), moves = op.grid, drawn["moves"].copy()

    def shuffle(levels: Float, radius: Float) -> Float:
        rows = [len(levels) * nth // down for nth in range(down + 1)]
        columns = [levels.shape[1] * nth // across for nth in range(across + 1)]
        cells = [
            (slice(top, bottom), slice(left, right))
            for top, bottom in pairwise(rows)
            for left, right in pairwise(columns)
        ]
        shuffled = np.full_like(levels, np.nan)
        for nth, cell in enumerate(cells):
            shuffled[cell] = levels[cells[nth + moves[nth]]]
        return shuffled

    if drawn["applied"]:
        expected.tones.append(shuffle)


def _normalize(expected: Expected, op: ops.Normalize, drawn: Any) -> None:
    expected.mean, expected.std = np.array(op.mean), np.array(op.std)


ROWS: dict[type[ops.Op], Row] = {
    ops.AllOf: _group,
    ops.Brightness: _brightness,
    ops.BrightnessContrast: _brightness_contrast,
    ops.ChannelDropout: _channel_dropout,
    ops.ChannelShuffle: _channel_shuffle,
    ops.ColorJitter: _color_jitter,
    ops.CoarseDropout: _coarse_dropout,
    ops.ElasticTransform: _elastic_transform,
    ops.Erase: _erase,
    ops.GridDistortion: _grid_distortion,
    ops.GridDropout: _grid_dropout,
    ops.GridShuffle: _grid_shuffle,
    ops.Downscale: _downscale,
    ops.Noise: _noise,
    ops.PixelDropout: _pixel_dropout,
    ops.Contrast: _contrast,
    ops.Grayscale: _grayscale,
    ops.Hue: _hue,
    ops.HueSaturationValue: _hue_saturation_value,
    ops.Identity: _identity,
    ops.Lighting: _lighting,
    ops.OneCrop: _one_crop,
    ops.OneOf: _group,
    ops.Saturation: _saturation,
    ops.Sepia: _sepia,
    ops.SomeOf: _group,
    ops.Blur: _blur,
    ops.BoxBlur: _box_blur,
    ops.Emboss: _emboss,
    ops.Fog: _fog,
    ops.ISONoise: _iso_noise,
    ops.Shadow: _shadow,
    ops.GaussianBlur: _gaussian_blur,
    ops.MotionBlur: _motion_blur,
    ops.Sharpen: _sharpen,
    ops.BrownConrady: _brown_conrady,
    ops.CenterCrop: _center_crop,
    ops.ColorCast: _color_cast,
    ops.Flip: _flip,
    ops.LensDistortion: _lens_distortion,
    ops.Letterbox: _letterbox,
    ops.MultiResolutionCrop: _multi_resolution_crop,
    ops.Normalize: _normalize,
    ops.OpticalDistortion: _optical_distortion,
    ops.Pad: _pad,
    ops.Perspective: _perspective,
    ops.QuarterTurn: _quarter_turn,
    ops.RandomCrop: _random_crop,
    ops.RandomResizedCrop: _random_resized_crop,
    ops.RandomResize: _random_resize,
    ops.Resize: _resize,
    ops.ResizeLongest: _resize_longest,
    ops.ResizeShortest: _resize_shortest,
    ops.Rotate: _rotate,
    ops.Shear: _shear,
    ops.Stretch: _stretch,
    ops.Translate: _translate,
    ops.Transpose: _transpose,
    ops.Vignette: _vignette,
    ops.Zoom: _zoom,
    ops.ZoomOut: _zoom_out,
}


GEOMETRY = (
    *(
        ops.BrownConrady,
        ops.LensDistortion,
        ops.OpticalDistortion,
        ops.Perspective,
        ops.QuarterTurn,
        ops.Rotate,
        ops.Shear,
    ),
    *(ops.ElasticTransform, ops.GridDistortion, ops.Stretch, ops.Translate, ops.Transpose, ops.Zoom),
)


def described(plan: Plan, position: int, view: int = 0) -> Expected:
    """What the recipe's ops should do to one image, given what was drawn for it."""
    row, chosen = plan.views[view][position], plan.recipe.all_views[view]
    expected = Expected(int(row["height"]), int(row["width"]))
    seen: Counter[str] = Counter()
    keyed = []
    for op in chosen.ops:
        seen[op.op] += 1
        keyed.append((op.op if seen[op.op] == 1 else f"{op.op}_{seen[op.op]}", op))
    if any(isinstance(op, ops.MultiResolutionCrop) for op in chosen.ops):  # as in the papers
        keyed.sort(key=lambda item: not item[1].is_crop)
    for key, op in keyed:
        ROWS[type(op)](expected, op, row["drawn"][key] if op.record.names else None)
        expected.is_mapped |= _moves(op)
    return expected


def _moves(op: ops.Op) -> bool:
    if isinstance(op, ops.OneCrop):
        return any(_moves(inner) for chain in op.chains for inner in chain)
    return any(isinstance(inner, GEOMETRY) for inner in op.flat)


def expected_image(image: npt.NDArray[np.uint8], plan: Plan, position: int = 0, view: int = 0) -> Float:
    """(H, W, 3) of the output that the plan's row should give."""
    expected = described(plan, position, view)
    recipe = plan.recipe
    border, fill = expected.beyond or (recipe.border, recipe.fill)
    look = {"interpolation": recipe.interpolation, "antialias": recipe.antialias}
    return expected.finished(expected.sampled(image, border, fill, **look))


TANGENTIAL = ops.BrownConrady(k1=(-0.15, 0.2), k2=(-0.05, 0.1), k3=(0.0, 0.05), p1=(-0.03, 0.03), p2=(-0.03, 0.03))

CASES: dict[str, tuple[ops.Op, ...]] = {
    # every op on its own
    "center_crop": (ops.CenterCrop(size=(33, 65)),),
    "center_crop resized": (ops.CenterCrop(size=(70, 90), scale=91),),
    "multi_resolution_crop": (ops.MultiResolutionCrop(size=(50, 67), scales=(67, 80, 97)),),
    "multi_resolution_crop anywhere": (ops.MultiResolutionCrop(size=45, scales=(70, 96), step=None),),
    "random_resized_crop": (ops.RandomResizedCrop(size=(70, 66), scale=(0.1, 0.5)),),
    "random_resized_crop anywhere": (ops.RandomResizedCrop(size=(41, 35), scale=(0.1, 0.3), step=None),),
    "random_resized_crop by middles": (ops.Flip(), ops.RandomResizedCrop(size=(60, 31), align_corners=True)),
    "random_resized_crop in pixels": (ops.RandomResizedCrop(size=(40, 66), height_px=(20, 70), ratio=(0.5, 1.3)),),
    "random_crop": (ops.RandomCrop(size=(37, 41)),),
    "random_crop at a place, flip": (ops.RandomCrop(size=(37, 41), at=(11, 7)), ops.Flip(p=1.0)),
    "random_crop, padded": (ops.RandomCrop(size=(70, 60), padding=20, fill=(9.0, 99.0, 200.0)),),
    "random_crop, larger": (ops.RandomCrop(size=(140, 150), pad_if_needed=True, border="reflect"),),
    "resize": (ops.Resize(size=(40, 77)),),
    "resize by middles": (
        ops.Resize(size=(40, 77), align_corners=True),
        ops.Rotate(),
        ops.RandomResizedCrop(size=9, align_corners=True),
    ),
    "resize_shortest": (ops.ResizeShortest(size=51),),
    "resize_shortest, bounded": (ops.ResizeShortest(size=60, max_size=65),),
    "resize_shortest, rounded": (ops.ResizeShortest(size=47, rounding="nearest"),),
    "resize_longest": (ops.ResizeLongest(size=77),),
    "resize_longest, rounded down": (ops.ResizeLongest(size=77, rounding="down"),),
    "random_resize": (ops.RandomResize(p=0.8), ops.Pad(size=(70, 90)), ops.RandomCrop(size=(64, 80)), ops.Flip()),
    "random_resize of the short side": (ops.Flip(), ops.RandomResize(size=(30, 99)), ops.RandomCrop(size=28)),
    "random_resize within, turned": (
        ops.RandomResize(factor=(0.4, 1.7), within=(80, 70)),
        ops.RandomCrop(size=66, pad_if_needed=True, border="reflect"),
        ops.Rotate(max_deg=40),
    ),
    "random_resize, random_resized_crop": (
        ops.RandomResize(size=(40, 120), p=0.6),
        ops.RandomResizedCrop(size=(50, 41), height_px=(20, 50), ratio=(0.8, 0.8)),
    ),
    "pad": (ops.Pad(px=(3, 9, 14, 0), fill=200.0),),
    "pad to a multiple": (ops.Pad(px=(1, 0), size=(10, 111), multiple=32, position="bottom_left", border="edge"),),
    "letterbox": (ops.Letterbox(size=(90, 50)),),
    "letterbox, no larger": (ops.Letterbox(size=200, enlarge=False, position="top_right", border="reflect"),),
    "one_crop": (
        ops.OneCrop(
            chains=[
                [ops.RandomResizedCrop(size=(41, 50))],
                [ops.ResizeShortest(size=60), ops.Pad(size=(64, 64)), ops.RandomCrop(size=(41, 50))],
                [ops.Resize(size=(41, 50))],
            ],
            weights=(1.0, 2.0, 1.0),
        ),
    ),
    "flip, one_crop, flip, resize, rotate": (
        ops.Flip(),
        ops.OneCrop(
            chains=[
                [],
                [ops.RandomCrop(size=(40, 50), padding=6, fill=90.0)],
                [ops.Resize(size=70), ops.RandomCrop(size=50)],
            ]
        ),
        ops.Flip(direction="vertical"),
        ops.Resize(size=(48, 40)),
        ops.Rotate(p=0.7),
    ),
    "random_crop, rotate, one_crop": (
        ops.RandomCrop(size=(50, 40)),
        ops.Rotate(p=0.7),
        ops.OneCrop(chains=[[ops.CenterCrop(size=36)], [ops.RandomResizedCrop(size=36)]]),
    ),
    "one_crop of flips and maps": (
        ops.OneCrop(
            chains=[
                [ops.RandomResizedCrop(size=(41, 50)), ops.Flip(), ops.Rotate(max_deg=40), ops.Zoom()],
                [ops.Flip(), ops.RandomCrop(size=(60, 44)), ops.QuarterTurn(), ops.Resize(size=(41, 50))],
                [ops.Shear(about="corner"), ops.Translate(), ops.CenterCrop(size=(41, 50)), ops.Transpose()],
                [ops.OneOf(ops=(ops.Flip(direction="vertical"), ops.Rotate())), ops.Resize(size=(41, 50))],
            ]
        ),
    ),
    "flip, resize, one_crop of maps, flip, rotate": (
        ops.Flip(),
        ops.Resize(size=(60, 72)),
        ops.OneCrop(
            chains=[
                [ops.Flip()],
                [ops.RandomCrop(size=(60, 72), padding=6, fill=90.0)],
                [ops.Stretch(), ops.RandomResizedCrop(size=(60, 72))],
                [ops.AllOf(ops=(ops.Rotate(max_deg=30), ops.Translate()), p=0.5)],
            ]
        ),
        ops.Flip(direction="vertical"),
        ops.Rotate(p=0.7),
    ),
    "one_crop of maps, random_resized_crop": (
        ops.RandomCrop(size=(80, 70)),
        ops.OneCrop(chains=[[ops.Flip()], [ops.Rotate(max_deg=60)], [ops.CenterCrop(size=50)]]),
        ops.RandomResizedCrop(size=44),
    ),
    "lens_distortion, one_crop of maps, center_crop": (
        ops.LensDistortion(kinds=("barrel",), p=1.0),
        ops.OneCrop(chains=[[ops.Rotate()], [ops.Resize(size=60), ops.Flip(p=1.0)]]),
        ops.CenterCrop(size=40, scale=48),
    ),
    "lens_distortion, one_crop, center_crop": (
        ops.LensDistortion(kinds=("barrel",), p=1.0),
        ops.OneCrop(chains=[[], [ops.Resize(size=60)]]),
        ops.CenterCrop(size=40, scale=48),
    ),
    "zoom_out": (ops.ZoomOut(p=1.0),),
    "zoom_out, resize": (ops.ResizeShortest(size=80), ops.ZoomOut(p=0.5, fill=200.0), ops.Resize(size=(50, 61))),
    "zoom_out, random_resized_crop, turned": (
        ops.Flip(p=1.0),
        ops.ZoomOut(factor=(1.2, 2.5), fill=(9.0, 99.0, 200.0), p=0.8),
        ops.RandomResizedCrop(size=(70, 66), scale=(0.3, 1.0)),
        ops.Rotate(max_deg=30),
    ),
    "resize_shortest, pad, random_crop, turned": (
        ops.ResizeShortest(size=60),
        ops.Pad(size=(90, 95)),
        ops.RandomCrop(size=(64, 80)),
        ops.Rotate(max_deg=40),
    ),
    "zoom_out, random_resized_crop of its own size, resize": (
        ops.ZoomOut(p=1.0),
        ops.RandomResizedCrop(own_size=True, scale=(0.3, 0.6)),
        ops.Flip(p=1.0),
        ops.Resize(size=(50, 61)),
    ),
    "random_resized_crop of a letterbox": (ops.Letterbox(size=90), ops.RandomResizedCrop(size=45, scale=(0.3, 0.9))),
    "rotate, random_resized_crop, rotate": (
        ops.Rotate(max_deg=30, step=None),
        ops.RandomResizedCrop(size=(40, 51), scale=(0.2, 0.8)),
        ops.Rotate(max_deg=30, step=None),
    ),
    "lens, crop, shear about the corner": (
        TANGENTIAL,
        ops.CenterCrop(size=(50, 41)),
        ops.Shear(about="corner"),
    ),
    "blur, perspective, resize, translate": (
        ops.Blur(sigma_px=(1.0, 2.0), p=1.0),
        ops.Perspective(distortion=0.3),
        ops.Resize(size=(40, 30)),
        ops.Translate(),
    ),
    "flip, padded crop, lens, crop, perspective": (
        ops.Flip(p=1.0),
        ops.RandomCrop(size=55, padding=6, border="reflect"),
        ops.LensDistortion(),
        ops.RandomCrop(size=41),
        ops.Perspective(distortion=0.3),
    ),
    "center_crop, pad": (ops.CenterCrop(size=40), ops.Pad(px=(9, 4), fill=(1.0, 99.0, 250.0))),
    "center_crop, pad, edge": (ops.CenterCrop(size=40, scale=70), ops.Pad(px=9, border="edge")),
    "random_crop, letterbox": (ops.RandomCrop(size=(40, 50)), ops.Letterbox(size=(90, 60), border="reflect")),
    "random_crop, random_crop padded": (ops.RandomCrop(size=50), ops.RandomCrop(size=48, padding=8, border="reflect")),
    "blur, resize": (ops.Blur(sigma_px=(1.0, 2.0), p=1.0), ops.Resize(size=(30, 40))),
    "flips, crop, flip, pad, crop": (
        ops.Flip(),
        ops.Flip(direction="vertical"),
        ops.RandomResizedCrop(size=(40, 51), scale=(0.2, 0.8)),
        ops.Flip(),
        ops.Pad(px=(3, 9, 14, 0), fill=200.0),
        ops.RandomCrop(size=(39, 50)),
    ),
    "letterbox, turned, cropped": (ops.Letterbox(size=90), ops.Rotate(max_deg=40, step=None), ops.RandomCrop(size=60)),
    "flip": (ops.Flip(p=1.0),),
    "flip vertical": (ops.Flip(p=1.0, direction="vertical"),),
    "rotate": (ops.Rotate(),),
    "rotate far": (ops.Rotate(max_deg=180.0, step=None),),
    "rotate all round": (ops.Rotate(max_deg=(-90.0, 1000.0), step=None),),
    "rotate to fit": (ops.Rotate(max_deg=(20.0, 70.0), step=None, fit_frame="up"),),
    "rotate to fit, cropped": (
        *(ops.Resize(size=(70, 50)), ops.Rotate(max_deg=(100.0, 170.0), step=None, fit_frame="down"), ops.Flip()),
        *(ops.RandomCrop(size=(40, 44)), ops.Rotate(max_deg=90, fit_frame="down")),
    ),
    "quarter_turn": (ops.QuarterTurn(turns=(1, 2, 3)),),
    "zoom": (ops.Zoom(factor=(1.0, 1.6)),),
    "zoom out": (ops.Zoom(factor=(0.3, 0.9)),),
    "shear": (ops.Shear(horizontal_deg=(-30.0, 30.0), vertical_deg=(-20.0, 20.0)),),
    "shear about the corner": (ops.Shear(horizontal_deg=(5.0, 40.0), vertical_deg=(0.0, 10.0), about="corner"),),
    "shear opposite": (
        ops.Shear(horizontal_deg=(-30.0, 20.0), vertical_deg=(-20.0, 30.0), order="y_first", opposite=True),
    ),
    "shear at once": (ops.Shear(horizontal_deg=(-30.0, 30.0), vertical_deg=(-40.0, 20.0), order="at_once"),),
    "shear at once about the corner": (
        ops.Shear(horizontal_deg=(5.0, 40.0), vertical_deg=(5.0, 20.0), about="corner", order="at_once"),
    ),
    "perspective": (ops.Perspective(),),
    "perspective of a part": (ops.Perspective(inner_std=(0.05, 0.15)),),
    "perspective, gently": (ops.Perspective(distortion=0.1),),
    "perspective of the corner pixels' centres": (ops.Perspective(distortion=0.6, corners="centres"),),
    "perspective by whole pixels": (ops.Perspective(distortion=0.5, corners="whole_px"),),
    "blur": (ops.Blur(sigma_px=(0.3, 2.0), p=1.0),),
    "stretch": (ops.Stretch(horizontal=(1.0, 1.6), vertical=(1.0, 1.3)),),
    "stretch smaller": (ops.Stretch(horizontal=(0.3, 0.9), vertical=(0.7, 1.5)),),
    "translate": (ops.Translate(),),
    "translate by pixels": (ops.Translate(horizontal=(-9.0, 30.0), vertical=(-20.0, 4.0), unit="px", step=0.5),),
    "lens_distortion barrel": (ops.LensDistortion(kinds=("barrel",)),),
    "lens_distortion pincushion": (ops.LensDistortion(kinds=("pincushion",)),),
    "lens_distortion stretches": (ops.LensDistortion(kinds=("stretch_horizontal", "stretch_vertical"), degrees=None),),
    "brown_conrady": (TANGENTIAL,),
    "optical_distortion": (ops.OpticalDistortion(k=(-0.4, 0.4)),),
    "optical_distortion fisheye": (ops.OpticalDistortion(k=(-0.3, 0.3), mode="fisheye"),),
    "grid_distortion": (ops.GridDistortion(),),
    "grid_distortion of whole pixels": (ops.GridDistortion(num_steps=4, cells="whole_px"),),
    "grid_distortion to the edge": (ops.GridDistortion(num_steps=5, normalized=False, cells="to_edge"),),
    "grid_distortion, fine": (ops.GridDistortion(num_steps=9, distort_limit=(-0.6, 0.6)),),
    "grid_distortion, further than the image": (
        ops.GridDistortion(num_steps=10, distort_limit=(-1.0, 1.0), normalized=False),
    ),
    "rotate, grid_distortion, translate, rotate": (
        ops.Rotate(max_deg=30, step=None),
        ops.GridDistortion(num_steps=3, normalized=False),
        ops.Translate(),
        ops.Rotate(max_deg=30, step=None),
    ),
    "flip, grid_distortion, perspective": (ops.Flip(p=1), ops.GridDistortion(num_steps=7), ops.Perspective()),
    "elastic_transform": (ops.ElasticTransform(alpha=60, sigma=6, p=1),),
    "elastic_transform, coarse and leaning": (ops.ElasticTransform(alpha=900, sigma=30, affine_px=20, same=True, p=1),),
    "elastic_transform, of another side": (ops.ElasticTransform(alpha=40, sigma=5, side_px=40, affine_px=4, p=1),),
    "elastic_transform, fine": (ops.ElasticTransform(alpha=3, sigma=0.5, p=1),),
    "rotate, elastic_transform, zoom, rotate": (
        ops.Rotate(max_deg=30, step=None),
        ops.ElasticTransform(alpha=90, sigma=8, p=1),
        ops.Zoom(factor=(1.2, 1.8)),
        ops.Rotate(max_deg=30, step=None),
    ),
    "one of five that bend": (
        ops.Rotate(max_deg=30, step=None),
        ops.OneOf(
            ops=(
                ops.Perspective(),
                ops.OpticalDistortion(k=(0.2, 0.4)),
                ops.AllOf(ops=(ops.Rotate(), ops.GridDistortion())),
                ops.ElasticTransform(alpha=60, sigma=6, p=1),
                TANGENTIAL,
            )
        ),
        ops.Translate(),
    ),
    "vignette": (ops.Vignette(),),
    "vignette to black": (ops.Vignette(radii=(0.0, 0.0), strengths=(1.0, 1.0)),),
    "color_cast": (ops.ColorCast(channel_p=1.0),),
    "color_cast strong": (ops.ColorCast(max_shift=200, step=None, channel_p=1.0),),
    "normalize": (ops.Normalize(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.1)),),
    "brightness": (ops.Brightness(),),
    "brightness strong": (ops.Brightness(factor=(0.0, 4.0)),),
    "contrast": (ops.Contrast(factor=(0.0, 3.0)),),
    "saturation": (ops.Saturation(factor=(0.0, 3.0)),),
    "hue": (ops.Hue(turns=(-0.5, 0.5)),),
    "hue of hsv": (ops.Hue(turns=(-0.5, 0.5), space="hsv"),),
    "hue_saturation_value": (ops.HueSaturationValue(hue=(-0.5, 0.5), saturation=(-99, 99), value=(-99, 99), p=1.0),),
    "hue_saturation_value, gray": (
        ops.Saturation(factor=(0.0, 0.0)),
        ops.HueSaturationValue(saturation=(60, 99), keeps_gray=True, p=1.0),
    ),
    "grayscale": (ops.Grayscale(p=1.0),),
    "channel_shuffle": (ops.ChannelShuffle(p=1.0),),
    "channel_dropout": (ops.ChannelDropout(max_channels=2, fill=9.0, p=1.0),),
    "lighting": (ops.Lighting(std=1.0),),
    "color_jitter": (ops.ColorJitter(brightness=0.4, contrast=(0.5, 2.0), saturation=0.9, hue=0.2),),
    "color_jitter of numbers": (
        ops.ColorJitter(brightness=0.4, hue=(-1.0, 1.0), space="hsv", of_normalized=((0.5, 0.4, 0.3), (0.3, 0.2, 0.5))),
    ),
    "brightness_contrast of numbers": (
        ops.BrightnessContrast(of_normalized=((0.5, 0.4, 0.3), (0.3, 0.2, 0.5)), p=0.7),
    ),
    "color_jitter in hsv": (ops.ColorJitter(brightness=0.4, saturation=0.9, hue=0.5, space="hsv"),),
    "identity": (ops.Identity(),),
    "erase": (ops.Erase(p=1.0, fill=(3.0, 99.0, 250.0)),),
    "erase to the mean": (ops.Erase(p=1.0, fill="mean"),),
    "erase to noise": (ops.Erase(p=1.0),),
    "coarse_dropout": (ops.CoarseDropout(fill=(3.0, 99.0, 250.0), p=1.0),),
    "coarse_dropout, fractions": (
        ops.CoarseDropout(num=(2, 4), height=(0.1, 0.5), width=(0.0, 0.2), unit="fraction", p=1.0),
    ),
    "grid_dropout": (ops.GridDropout(fill=(3.0, 99.0, 250.0), p=1.0),),
    "grid_dropout, cut": (ops.GridDropout(unit_px=(5, 30), fit="cut", place="shared", ratio=0.7, p=1.0),),
    "grid_dropout, square": (ops.GridDropout(grid=(3, 9), fit="square", place=(2, 99), ratio=0.3, p=1.0),),
    "grid_dropout, even": (ops.GridDropout(unit_px=(2, 40), ratio=1.0, p=1.0),),
    "pixel_dropout": (ops.PixelDropout(share=(0.0, 0.3), fill=(3.0, 99.0, 250.0), p=1.0),),
    "pixel_dropout, each channel": (ops.PixelDropout(share=(0.5, 1.0), per_channel=True, fill="random", p=1.0),),
    "shadow": (ops.Shadow(p=1.0),),
    "shadow, each darker": (ops.Shadow(num=(3, 4), num_corners=7, region=(0, 0, 1, 1), loss=(0.1, 0.9), p=1.0),),
    "shadow of lightness": (ops.Shadow(num=(2, 3), region=(0, 0, 1, 1), of="lightness", p=1.0),),
    "noise": (ops.Noise(p=1.0),),
    "noise, speckle": (ops.Noise(std=(0.0, 9.0), speckle=(0.0, 0.5), p=1.0),),
    "noise, shared": (ops.Noise(std=(9.0, 30.0), speckle=(0.0, 0.5), per_channel=False, p=1.0),),
    "gaussian_blur": (ops.GaussianBlur(sigma_px=(0.2, 6.0), p=1.0),),
    "gaussian_blur, cut off": (ops.GaussianBlur(sigma_px=(0.1, 2.0), kernel_px=5, p=1.0),),
    "box_blur": (ops.BoxBlur(sizes=(3, 9), p=1.0),),
    "motion_blur": (ops.MotionBlur(p=1.0),),
    "motion_blur, in the middle": (ops.MotionBlur(sizes=(7, 7), direction=(0, 0), shifts=False, p=1.0),),
    "motion_blur, long": (ops.MotionBlur(sizes=(9, 15), p=1.0), ops.MotionBlur(sizes=(15, 15), line="ends", p=0.5)),
    "motion_blur, between ends": (ops.MotionBlur(line="ends", p=1.0),),
    "motion_blur, between ends in the middle": (ops.MotionBlur(line="ends", shifts=False, p=1.0),),
    "sharpen": (ops.Sharpen(alpha=(0.0, 1.0), lightness=(0.0, 2.0), p=1.0),),
    "emboss": (ops.Emboss(alpha=(0.0, 1.0), strength=(0.0, 2.0), p=1.0),),
    "one_of": (ops.OneOf(ops=(ops.Rotate(), ops.Brightness(), ops.Identity(), ops.Hue(), ops.Vignette())),),
    "some_of": (ops.SomeOf(num=(0, 3), ops=(ops.Saturation(), ops.ColorCast(), ops.Stretch(), ops.Contrast())),),
    "all_of": (ops.AllOf(p=0.5, ops=(ops.Lighting(), ops.Flip(), ops.Vignette())),),
    # together: what comes first must come first
    "erase, brightness, erase, noise": (
        ops.Erase(p=1.0, fill=(200.0, 10.0, 60.0)),
        ops.Brightness(),
        ops.Erase(p=1.0),
        ops.Noise(p=1.0),
    ),
    "brightness, gaussian_blur, contrast, emboss, vignette": (
        ops.Brightness(factor=(1.2, 2.0)),
        ops.GaussianBlur(sigma_px=(1.0, 2.0), p=1.0),
        ops.Contrast(factor=(1.5, 2.0)),
        ops.Emboss(p=1.0),
        ops.Vignette(),
    ),
    "hue, cast, brightness, vignette": (ops.Hue(), ops.ColorCast(max_shift=90), ops.Brightness(), ops.Vignette()),
    "vignette, saturation, cast": (ops.Vignette(), ops.Saturation(factor=(2.0, 3.0)), ops.ColorCast(max_shift=99)),
    "one of one of": (
        ops.OneOf(
            weights=(1.0, 2.0),
            ops=(
                ops.OneOf(ops=(ops.Brightness(), ops.ColorCast(), ops.Contrast())),
                ops.AllOf(ops=(ops.Hue(), ops.Vignette(), ops.Saturation())),
            ),
        ),
        ops.Brightness(factor=(1.5, 2.5)),
    ),
    "cast, vignette": (ops.ColorCast(max_shift=200, channel_p=1.0), ops.Vignette()),
    "vignette, cast": (ops.Vignette(), ops.ColorCast(max_shift=200, channel_p=1.0)),
    "rotate, stretch": (ops.Rotate(max_deg=90, step=None), ops.Stretch(horizontal=(1.3, 1.6), vertical=(1, 1.1))),
    "stretch, rotate": (ops.Stretch(horizontal=(1.3, 1.6), vertical=(1, 1.1)), ops.Rotate(max_deg=90, step=None)),
    "flip, rotate, rotate": (ops.Flip(p=1), ops.Rotate(max_deg=40, step=20), ops.Rotate(max_deg=5)),
    "rotate, lens, flip": (ops.Rotate(max_deg=60, step=None), TANGENTIAL, ops.Flip(p=1)),
    "flip, lens, rotate": (ops.Flip(p=1), TANGENTIAL, ops.Rotate(max_deg=60, step=None)),
    "translate, rotate, translate": (ops.Translate(), ops.Rotate(max_deg=90, step=None), ops.Translate()),
    "shear about the corner, lens, shear about the corner": (
        ops.Shear(about="corner"),
        ops.LensDistortion(),
        ops.Shear(about="corner"),
    ),
    "rotate, perspective, rotate": (
        ops.Rotate(max_deg=90, step=None),
        ops.Perspective(distortion=0.4),
        ops.Rotate(max_deg=90, step=None),
    ),
    "translate, perspective, zoom": (ops.Translate(), ops.Perspective(distortion=0.3), ops.Zoom(factor=(0.8, 2.0))),
    "perspective now and then, translate": (ops.Perspective(p=0.5), ops.Translate()),
    "flip, lens, perspective": (ops.Flip(p=1), TANGENTIAL, ops.Perspective()),
    "lens, stretch, perspective, shear": (
        ops.LensDistortion(),
        ops.Stretch(),
        ops.Perspective(distortion=0.3),
        ops.Shear(about="corner"),
    ),
    "perspective, blur": (ops.Perspective(distortion=0.3), ops.Blur(sigma_px=(0.5, 1.0), p=1.0)),
    "blur, stretch, lens, blur": (
        ops.Blur(sigma_px=(0.5, 1.0), p=1.0),
        ops.Stretch(horizontal=(0.6, 0.7), vertical=(1.5, 2.0)),
        TANGENTIAL,
        ops.Blur(sigma_px=(0.5, 1.0), p=1.0),
    ),
    "translate, lens": (ops.Translate(), TANGENTIAL),
    "lens, translate": (TANGENTIAL, ops.Translate()),
    "lens that is not there, translate": (ops.BrownConrady(p=0.0), ops.Translate(), ops.Rotate(max_deg=30)),
    "rotate, lens, translate, rotate": (
        ops.Rotate(max_deg=60, step=None),
        ops.LensDistortion(),
        ops.Translate(horizontal=(-0.3, 0.3), vertical=(0.1, 0.2)),
        ops.Rotate(max_deg=60, step=None),
    ),
    "stretch, barrel, stretch": (
        ops.Stretch(horizontal=(0.6, 0.7), vertical=(1.2, 1.3)),
        ops.LensDistortion(kinds=("barrel",)),
        ops.Stretch(horizontal=(1.4, 1.5), vertical=(0.6, 0.7)),
    ),
    "crop, rotate, lens, stretch": (
        ops.CenterCrop(size=(50, 45), scale=88),
        ops.Rotate(max_deg=45, step=None),
        TANGENTIAL,
        ops.Stretch(),
    ),
    "smaller crop, rotate, lens": (ops.CenterCrop(size=(21, 30), scale=34), ops.Rotate(max_deg=90, step=9), TANGENTIAL),
    "deep image": (
        ops.ColorCast(),
        ops.Vignette(),
        ops.LensDistortion(),
        ops.Rotate(),
        ops.Flip(),
        ops.MultiResolutionCrop(size=64, scales=(72, 144)),
        ops.Normalize(),
    ),
    "all the others": (
        ops.Normalize(),
        ops.Vignette(p=0.7),
        ops.RandomResizedCrop(size=(47, 64), scale=(0.2, 0.9), step=None),
        ops.Stretch(p=0.7),
        ops.Rotate(max_deg=30, p=0.7),
        ops.BrownConrady(p=0.7),
        ops.Flip(),
        ops.ColorCast(p=0.7),
    ),
}
"""Recipes by name; each is run with every border, without a crop of its own also on a crop that enlarges."""

_CROP = ops.RandomResizedCrop(size=(48, 40), scale=(0.1, 0.9))
TABLE_CASES: dict[str, tuple[ops.Op, ...]] = {
    "posterize": (_CROP, ops.Brightness(), ops.Posterize(bits=(1, 7)), ops.Normalize()),
    "solarize": (_CROP, ops.Rotate(), ops.LensDistortion(), ops.Solarize(p=1.0)),
    "solarize_add": (_CROP, ops.Saturation(), ops.SolarizeAdd(addition=(20, 110)), ops.Contrast()),
    "gamma": (_CROP, ops.Hue(), ops.Gamma(), ops.Noise(p=1.0)),
    "tone_curve": (_CROP, ops.Sepia(), ops.ToneCurve(scale=0.4, p=1.0), ops.Contrast()),
    "invert": (_CROP, ops.Perspective(), ops.Invert(p=1.0), ops.Vignette()),
    "auto_contrast": (_CROP, ops.Brightness(factor=(0.2, 0.9)), ops.AutoContrast(p=1.0), ops.Normalize()),
    "equalize": (_CROP, ops.Noise(p=1.0), ops.Equalize(p=1.0), ops.Saturation()),
    "contrast about the mean": (_CROP, ops.ColorCast(), ops.Contrast(about="mean", factor=(0.1, 3.0))),
    "color_jitter about the mean": (_CROP, ops.ColorJitter(brightness=0.4, contrast=0.9, hue=0.2, about="mean")),
    "sharpness": (_CROP, ops.Vignette(), ops.Sharpness(factor=(0.0, 3.0)), ops.Erase(p=0.5)),
    "median_blur": (_CROP, ops.Brightness(), ops.MedianBlur(sizes=(3, 5), p=1.0), ops.Saturation()),
    "clahe": (_CROP, ops.Saturation(), ops.CLAHE(tiles=(3, 2), p=1.0), ops.GaussianBlur(p=1.0)),
    "jpeg_compression": (_CROP, ops.Hue(), ops.JpegCompression(quality=(5, 95), p=1.0), ops.Contrast()),
    "several tables": (
        _CROP,
        ops.Rotate(),
        ops.Sharpness(p=0.7),
        ops.AutoContrast(p=0.7),
        ops.Hue(p=0.7),
        ops.Solarize(p=0.7),
        ops.Sharpness(factor=(2.0, 2.0), p=0.7),
        ops.Equalize(p=0.7),
        ops.Contrast(about="mean", p=0.7),
        ops.Brightness(p=0.7),
        ops.Posterize(bits=(2, 5), p=0.7),
        ops.Saturation(p=0.7),
        ops.Normalize(),
    ),
}
"""Recipes whose programs take the nearest of 256 levels: on resampled images CPU and device are compared by
`tests.parity.promise`, and with Pillow by `tests.parity.test_levels`."""


def kinds_alone() -> set[type[ops.Op]]:
    """Ops that have a case of their own: alone, or with a crop behind one that draws a size."""
    return {type(chosen[0]) for chosen in CASES.values() if len(chosen) == 1 or chosen[0].draws_size}


for _kind in ROWS:  # a case of its own for each op that has none above
    if _kind not in kinds_alone():
        _op = _kind(p=1.0)  # type: ignore[call-arg]
        _name = _op.op
        if isinstance(_op, LevelsOp):
            TABLE_CASES[_name] = (_CROP, ops.Saturation(), _op, ops.Normalize())
        else:
            CASES[_name] = (_op,)

OF_THE_OUTPUT = (
    *(ops.Brightness, ops.BrightnessContrast, ops.ChannelDropout, ops.ChannelShuffle, ops.ColorCast, ops.ColorJitter),
    *(ops.CoarseDropout, ops.Contrast, ops.Erase),
    *(
        ops.Downscale,
        ops.Grayscale,
        ops.GridDropout,
        ops.GridShuffle,
        ops.Hue,
        ops.HueSaturationValue,
        ops.Identity,
        ops.Lighting,
        ops.Noise,
        ops.Normalize,
        ops.PixelDropout,
        ops.Saturation,
        ops.Sepia,
        ops.Shadow,
        ops.Vignette,
    ),
)
"""Ops that look at no other pixel than their own: no border shows."""


def with_borders(borders: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each of CASES with each border; with the first one where no border shows, and with its own if it has one."""
    return [(name, border) for name, chosen in CASES.items() for border in _borders(chosen, borders)]


def _borders(chosen: tuple[ops.Op, ...], borders: tuple[str, ...]) -> tuple[str, ...]:
    if any(op.beyond for op in chosen):
        return ("context",)
    return borders[:1] if all(isinstance(op, OF_THE_OUTPUT) for op in chosen) else borders


ENLARGING = ops.CenterCrop(size=(66, 71), scale=110)


def recipes_of(name: str, border: str) -> list[Recipe]:
    """The recipes of one of CASES: as it stands, and on an enlarging crop where it brings none; in one pass."""
    chosen = CASES[name]
    has_crop = any(op.is_crop for op in chosen)
    variants = [chosen] if has_crop else [chosen, (*chosen, ENLARGING)]
    look = {"border": border, "fill": (250.0, 3.0, 99.0)}
    return [Recipe(name=name, ops=in_one_pass(listed), **look) for listed in variants]
