"""Steps that look at a whole rendered image, on the CPU: tables made of its histograms, and sharpening in place.

They take the nearest of 256 levels of each channel, and give such levels, as Pillow and torchvision do to 8-bit images.
"""

import numpy as np

from augpipe.gpu_ops.image.colour import away_from, gray, kept_within, nearest_level
from augpipe.gpu_ops.image.finish_rows import AUTO_CONTRAST, EQUALIZE
from augpipe.gpu_ops.jit import leaf, subroutine

WHITE = np.float32(255.0)
NINTH_OF_THIRTEEN = np.float32(1.0 / 13.0)
CENTRE = np.float32(5.0)


@subroutine
def look_up_tables(kind, factor, levels, start, num_pixels, planar, tables):
    """Fill (3, 256) uint8 `tables` with what a step makes of each level of each channel."""
    counts = np.zeros((3, 256), np.int64)
    channel_step, pixel_step = (num_pixels, 1) if planar else (1, 3)
    mean = np.float32(0.0)
    if kind == AUTO_CONTRAST or kind == EQUALIZE:
        for channel in range(3):
            first = start + channel * channel_step
            for i in range(num_pixels):
                counts[channel, nearest_level(levels[first + i * pixel_step])] += 1
    else:
        mean = mean_gray(levels, start, num_pixels, channel_step, pixel_step)
    for channel in range(3):
        if kind == AUTO_CONTRAST:
            stretch_levels(counts[channel], tables[channel])
        elif kind == EQUALIZE:
            equalize_levels(counts[channel], num_pixels, tables[channel])
        else:
            for level in range(256):
                tables[channel, level] = np.uint8(kept_within(mean + factor * (np.float32(level) - mean)))


@subroutine
def mean_gray(levels, start, num_pixels, channel_step, pixel_step):
    """The mean brightness, of whole levels rounded down, as torchvision has it."""
    total = np.int64(0)
    for i in range(num_pixels):
        at = start + i * pixel_step
        red = np.float32(nearest_level(levels[at]))
        green = np.float32(nearest_level(levels[at + channel_step]))
        blue = np.float32(nearest_level(levels[at + 2 * channel_step]))
        total += np.int64(gray(red, green, blue))
    return np.float32(total / num_pixels)


@subroutine
def stretch_levels(counts, table):
    """Stretch the levels that occur to 0..255; a channel of one level stays as it is."""
    low, high = 0, 255
    while low < 255 and counts[low] == 0:
        low += 1
    while high > 0 and counts[high] == 0:
        high -= 1
    for level in range(256):
        if high <= low:
            table[level] = np.uint8(level)
        else:
            scale = WHITE / np.float32(high - low)
            table[level] = np.uint8(kept_within(np.float32(level - low) * scale))


@subroutine
def equalize_levels(counts, num_pixels, table):
    """Spread the levels so that each occurs about as often: Pillow's `ImageOps.equalize`."""
    last = 255
    while last > 0 and counts[last] == 0:
        last -= 1
    step = (num_pixels - counts[last]) // 255
    seen = step // 2
    for level in range(256):
        if step == 0:
            table[level] = np.uint8(level)
        else:
            table[level] = np.uint8(min(seen // step, 255))
            seen += counts[level]


@leaf
def smoothed(above, beside, below, centre):
    """The mean of nine levels, the centre counted five times, to the nearest level: three sums of a row and one."""
    return np.float32(nearest_level((above + beside + below + CENTRE * centre) * NINTH_OF_THIRTEEN))


@subroutine
def sharpen(factor, levels, start, height, width, planar):
    """Move each pixel but the outermost away from its neighbourhood's mean: Pillow's `ImageEnhance.Sharpness`."""
    pixel_step = 1 if planar else 3
    row_step = width * pixel_step
    above, here, below = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    for channel in range(3):
        first = start + channel * (height * width if planar else 1)
        for y in range(height):
            if y > 0:
                above, here, below = here, below, above
            for x in range(width):
                if y == 0:
                    here[x] = np.float32(nearest_level(levels[first + x * pixel_step]))
                if y + 1 < height:
                    level = levels[first + (y + 1) * row_step + x * pixel_step]
                    below[x] = np.float32(nearest_level(level))
            is_inner = 0 < y < height - 1
            for x in range(width):
                level = here[x]
                if is_inner and 0 < x < width - 1:
                    beside = here[x - 1] + here[x + 1]
                    blurred = smoothed(
                        above[x - 1] + above[x] + above[x + 1], beside, below[x - 1] + below[x] + below[x + 1], level
                    )
                    level = np.float32(np.int32(away_from(blurred, level, factor)))
                levels[first + y * row_step + x * pixel_step] = level
