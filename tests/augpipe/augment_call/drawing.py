"""What a process that was spawned draws; it imports augpipe for that, and not torch."""

import numpy as np

from augpipe import Augment, Recipe, ops

IMAGE = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
RECIPE = Recipe(ops=[ops.CenterCrop(size=8), ops.ColorCast(max_shift=100, channel_p=1)])


def draw(augment: Augment) -> bytes:
    pixels: bytes = augment(IMAGE).tobytes()
    return pixels
