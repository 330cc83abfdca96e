"""The pixel of a haze of discs, and of a camera's grain, by the leaves of `gpu_ops.image.weather`."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import kept, load_f32, load_u32
from augpipe.gpu_ops.image import tone, weather
from augpipe.gpu_ops.random import philox

hue_of, of_hue, kept_within = shared(tone.hue_of), shared(tone.of_hue), shared(tone.kept_within)
philox_block, disc_place, half_chord = (
    shared(philox.philox_block),
    shared(weather.disc_place),
    shared(weather.half_chord),
)
ring_start, ring_room = shared(weather.ring_start), shared(weather.ring_room)
saturation_in_hls, chroma_in_hls = shared(weather.saturation_in_hls), shared(weather.chroma_in_hls)
lighter, turned_hue = shared(weather.lighter), shared(weather.turned_hue)


@function("float32")
def seen_through(numbers, at_key, pixel, height, width):
    """The part of a pixel that the discs of a `HAZE` step leave."""
    zero, x, y = np.uint64(0), np.int32(pixel % width), np.int32(pixel // width)
    num_rings = np.int32(load_f32(numbers + 16))
    ring, nth, first_of_next, seen = np.int32(0), np.int32(0), np.int32(load_f32(numbers + 20)), np.float32(1.0)
    while ring < num_rings and nth < first_of_next:  # a small view has rings without discs
        here = np.int64(kept(nth) - nth)  # 0, of which the compiler knows nothing: few numbers stay in registers
        at, key = numbers + here, at_key + here
        left = ring_start(load_f32(at), load_f32(at + 8), ring)
        top = ring_start(load_f32(at + 4), load_f32(at + 12), ring)
        side, radius = load_f32(at + 24), np.int32(load_f32(at + 28))
        word_x, word_y, _, _ = philox_block(
            np.uint64(nth), zero, zero, zero, np.uint64(load_u32(key)), np.uint64(load_u32(key + 4))
        )
        across = x - disc_place(word_x, left, ring_room(width, left, side)) - radius
        down = y - disc_place(word_y, top, ring_room(height, top, side)) - radius
        if across * across <= half_chord(down, radius):
            seen *= load_f32(at + 32)
        nth += np.int32(1)
        if nth == first_of_next:
            ring += np.int32(1)
            first_of_next += np.int32(load_f32(at + 20)) * (ring + np.int32(1))
    return seen


@function("float32", "float32", "float32")
def grainy(red, green, blue, numbers, normal_of_hue, normal_of_lightness):
    """A pixel with the grain of a `GRAIN` step, from two normal numbers."""
    value = max(red, max(green, blue))
    chroma = value - min(red, min(green, blue))
    hue = np.float32(turned_hue(hue_of(red, green, blue, value, chroma), normal_of_hue, load_f32(numbers)))
    twice = value + value - chroma
    saturation = np.float32(saturation_in_hls(twice, chroma))
    twice = np.float32(lighter(twice, normal_of_lightness, load_f32(numbers + 4), load_f32(numbers + 8)))
    chroma = np.float32(chroma_in_hls(twice, saturation))
    value = np.float32(tone.HALF) * (twice + chroma)
    red = np.float32(kept_within(of_hue(tone.RED_AT, hue, value, chroma)))
    green = np.float32(kept_within(of_hue(tone.GREEN_AT, hue, value, chroma)))
    blue = np.float32(kept_within(of_hue(tone.BLUE_AT, hue, value, chroma)))
    return red, green, blue
