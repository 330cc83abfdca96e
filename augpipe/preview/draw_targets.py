"""Targets drawn over an image: label maps as a tint, outlines, boxes with the names of their classes, key points."""

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from augpipe.preview import text
from augpipe.preview.shown_targets import ShownTargets

Colour = tuple[int, int, int]

NAME_PX = 11
LEAST_NAME_PX = 40
"""The room in which the ends of a long name are still read."""
SMOOTH = 4
"""Lines are drawn this much larger and scaled down: Pillow's own have jagged edges."""
TINT, FILL, LINE = 0.5, 0.22, 0.95
"""How much of a label map, of an object's inside and of a line covers the image."""
POINT_PX = 3.0
UNLABELLED: Colour = (244, 244, 242)
"""The tint of labels that training ignores."""
IGNORED = 255
GOLDEN = 0.61803398875
"""The step from one class to the next on the circle of hues: neighbours differ, and many classes stay distinct."""


def colour_of(number: int) -> Colour:
    """The colour of a class."""
    hue = (0.04 + GOLDEN * number) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.78 if number % 2 == 0 else 0.62, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def with_targets(image: Image.Image, targets: ShownTargets, size: tuple[int, int]) -> Image.Image:
    """The RGB image with its targets, whose coordinates count in an image of (height, width) `size`."""
    if targets.label_map is not None:
        image = tinted(image, targets.label_map)
    scale = np.array([image.width / size[1], image.height / size[0]])
    large = (SMOOTH * image.width, SMOOTH * image.height)
    inside, lines = Image.new("L", large, 0), Image.new("L", large, 0)
    colours = [colour_of(max(number, 0)) for number in targets.classes]
    of_class = Image.new("RGB", image.size)
    # one class after the other: each has one colour, and its shapes one plane
    for colour in dict.fromkeys(colours):
        chosen = [number for number, own in enumerate(colours) if own == colour]
        _draw_shapes(ImageDraw.Draw(inside), ImageDraw.Draw(lines), targets, chosen, scale * SMOOTH)
        of_class.paste(colour, (0, 0, *image.size))
        for plane, weight in ((inside, FILL), (lines, LINE)):
            image = Image.composite(of_class, image, _weighted(plane, image.size, weight))
            plane.paste(0, (0, 0, *large))
    _draw_names(image, targets, colours, scale)
    return image


def _weighted(plane: Image.Image, size: tuple[int, int], weight: float) -> Image.Image:
    return plane.resize(size, Image.Resampling.BOX).point(lambda level: round(weight * level))


def _draw_shapes(
    inside: ImageDraw.ImageDraw,
    lines: ImageDraw.ImageDraw,
    targets: ShownTargets,
    chosen: Sequence[int],
    scale: npt.NDArray[np.float64],
) -> None:
    for number in chosen:
        rings = targets.polygons[number]
        for ring in rings:
            corners = [(float(x), float(y)) for x, y in np.asarray(ring) * scale]
            inside.polygon(corners, fill=255)
            lines.line([*corners, corners[0]], fill=255, width=round(1.5 * SMOOTH), joint="curve")
        if targets.boxes is not None and not targets.are_rotated:
            left, top, right, bottom = (np.asarray(targets.boxes[number]) * np.tile(scale, 2)).tolist()
            lines.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=255, width=_width(rings))
        if targets.keypoints is not None:
            for x, y, visibility in np.asarray(targets.keypoints[number]).tolist():
                if visibility > 0:
                    _draw_point(lines, x * scale[0], y * scale[1], is_hidden=visibility < 2)


def _width(rings: Sequence[Any]) -> int:
    """A box is drawn thin around an outline, and bold where it is all there is."""
    return SMOOTH if len(rings) else 2 * SMOOTH


def _draw_point(lines: ImageDraw.ImageDraw, x: float, y: float, *, is_hidden: bool) -> None:
    radius = POINT_PX * SMOOTH
    around = (x - radius, y - radius, x + radius, y + radius)
    if is_hidden:
        lines.ellipse(around, outline=255, width=SMOOTH)
    else:
        lines.ellipse(around, fill=255)


def _draw_names(
    image: Image.Image, targets: ShownTargets, colours: Sequence[Colour], scale: npt.NDArray[np.float64]
) -> None:
    """The class of each box in its upper left corner, on a plate of its colour; not where the box is smaller."""
    if targets.boxes is None:
        return
    pen, height = ImageDraw.Draw(image), text.line_height_px(NAME_PX)
    for name, colour, box in zip(targets.names, colours, np.asarray(targets.boxes), strict=True):
        left, top, right, bottom = (box * np.tile(scale, 2)).tolist()
        name, room = text.legible(name), right - left - 4
        if not name or bottom - top < height or room < min(text.width_px(name, NAME_PX), LEAST_NAME_PX):
            continue
        shown = text.shorten(name, NAME_PX, room)
        width = round(text.width_px(shown, NAME_PX)) + 5
        x = min(max(round(left), 0), max(image.width - width, 0))
        y = min(max(round(top), 0), max(image.height - height, 0))
        pen.rectangle((x, y, x + width - 1, y + height - 1), fill=colour)
        text.draw(pen, (x + 2, y), shown, _ink_on(colour), NAME_PX)


def _ink_on(colour: Colour) -> Colour:
    red, green, blue = colour
    return (20, 20, 20) if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else (255, 255, 255)


def tinted(image: Image.Image, labels: npt.NDArray[Any]) -> Image.Image:
    """The image with the colour of each pixel's label over it; the label 0 has none."""
    if labels.ndim == 3 and labels.shape[2] >= 3:
        colours = np.clip(labels[:, :, :3], 0, 255).astype(np.uint8)
        weights = np.where(colours.any(axis=2), TINT, 0.0)
    elif labels.dtype.kind == "f":
        spread = labels.reshape(labels.shape[:2]) if labels.ndim == 2 else labels[:, :, 0]
        low, high = float(np.nanmin(spread)), float(np.nanmax(spread))
        levels = np.nan_to_num((spread - low) / max(high - low, 1e-12)) * 255.0
        colours, weights = np.repeat(levels.astype(np.uint8)[:, :, None], 3, axis=2), np.full(spread.shape, TINT)
    else:
        flat = labels if labels.ndim == 2 else labels[:, :, 0]
        found, which = np.unique(flat, return_inverse=True)
        table = [UNLABELLED if number == IGNORED else colour_of(number) for number in found.tolist()]
        colours = np.array(table, np.uint8)[which].reshape(*flat.shape, 3)
        weights = np.where(flat == 0, 0.0, TINT)
    tint = Image.fromarray(colours).resize(image.size, Image.Resampling.NEAREST)
    mask = Image.fromarray((255 * weights).astype(np.uint8)).resize(image.size, Image.Resampling.NEAREST)
    return Image.composite(tint, image, mask)
