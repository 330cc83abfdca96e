"""The images that both sides augment, and what is read off an augmented one; numpy alone, for every environment."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.float32]
"""Levels in 0..255."""
Numbers = npt.NDArray[np.float32]
PROBE_PX = 64
BEYOND = np.float32(-1000.0)
"""What fills up a smaller image to the size of a larger one: no level is near it."""
POINTS = ((0.5, 0.5), (0.25, 0.25), (0.25, 0.7), (0.7, 0.25), (0.75, 0.75), (0.05, 0.95))
"""Where single pixels are read, as parts of height and width."""


SMALL_PX = 96


def shown_in(how: str, images: Sequence[npt.NDArray[np.uint8]]) -> list[npt.NDArray[np.uint8]]:
    """The images that a case is compared on: "small" ones are their middles, which a crop of that size leaves alone."""
    if "small" not in how:
        return list(images)
    corners = [((image.shape[0] - SMALL_PX) // 2, (image.shape[1] - SMALL_PX) // 2) for image in images]
    return [
        image[top : top + SMALL_PX, left : left + SMALL_PX].copy()
        for image, (top, left) in zip(images, corners, strict=True)
    ]


def checkerboard(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Squares of eight pixels, of two colours."""
    down, across = np.indices((height, width)) // 8
    colours = np.array([[30, 60, 90], [220, 190, 160]], np.uint8)
    return colours[(down + across) % 2]


def probes() -> list[npt.NDArray[np.uint8]]:
    """A ramp whose pixels say where they are from, and patches of colours with fine texture in a corner."""
    down, across = np.indices((PROBE_PX, PROBE_PX)) * (235.0 / (PROBE_PX - 1)) + 10.0
    ramp = np.stack([across, down, 255.0 - (across + down) / 2.0], axis=-1)
    colours = np.random.default_rng(7).integers(20, 236, (4, 4, 3))
    colours[0] = [[60, 60, 60], [128, 128, 128], [190, 190, 190], [200, 140, 110]]
    patches = np.repeat(np.repeat(colours, PROBE_PX // 4, 0), PROBE_PX // 4, 1)
    fine = PROBE_PX // 2
    patches[fine:, fine:] = 90 + 80 * (np.indices((fine, fine)).sum(0) // 2 % 2)[..., None]
    return [np.rint(one).astype(np.uint8) for one in (ramp, patches)]


def stacked(images: Sequence[Pixels]) -> Pixels:
    """(n, H, W, channels) images; of several sizes, each in the upper left corner of a square that holds all."""
    if len({image.shape for image in images}) > 1:
        side = max(max(image.shape[:2]) for image in images)
        ends = [(side - image.shape[0], side - image.shape[1]) for image in images]
        padding = [((0, down), (0, across), (0, 0)) for down, across in ends]
        images = [np.pad(one, pad, constant_values=BEYOND) for one, pad in zip(images, padding, strict=True)]
    return np.stack(images)


def names() -> list[str]:
    """What `read` reads, in its order."""
    numbers = ["height", "width"]
    for channel in "RGB":
        numbers += [f"{channel} mean", f"{channel} deviation", f"{channel} left - right", f"{channel} top - bottom"]
        numbers += [f"{channel} at {down:g}, {across:g}" for down, across in POINTS]
    numbers += [f"{pair} at {down:g}, {across:g}" for pair in ("R - G", "G - B") for down, across in POINTS]
    return [*numbers, "steps across", "steps down", "R - G", "G - B"]


def slacks() -> list[float]:
    """Half the levels by which each number may be off for rounding: one for a level, two where two are subtracted.

    Numbers that many pixels share have less.
    """
    return [1.25 if " - " in name and " at " in name else 0.75 if _is_level(name) else 0.15 for name in names()]


def _is_level(name: str) -> bool:
    return " at " in name or name.endswith("mean")


def read(images: Pixels) -> Numbers:
    """(N, numbers) of (N, H, W, 3) images that follow from what was drawn, all in levels."""
    height, width = images.shape[1:3]
    full = np.full(len(images), 1.0)
    numbers = [full * height, full * width]
    for channel in range(3):
        one = np.ascontiguousarray(images[..., channel])
        left, right = one[..., : width // 2].mean((1, 2)), one[..., width // 2 :].mean((1, 2))
        top, bottom = one[:, : height // 2].mean((1, 2)), one[:, height // 2 :].mean((1, 2))
        numbers += [one.mean((1, 2)), one.std((1, 2)), left - right, top - bottom]
        numbers += [one[:, int(down * height), int(across * width)] for down, across in POINTS]
    differences = [images[..., i] - images[..., i + 1] for i in range(2)]
    numbers += [one[:, int(down * height), int(across * width)] for one in differences for down, across in POINTS]
    grey = images.mean(-1)
    numbers += [np.abs(np.diff(grey, axis=axis)).mean((1, 2)) for axis in (2, 1)]
    numbers += [np.abs(one).mean((1, 2)) for one in differences]
    return np.stack(numbers, axis=-1).astype(np.float32)
