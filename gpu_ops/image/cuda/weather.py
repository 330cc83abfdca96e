"""The pixel of a haze of discs, and of a camera's grain, by the leaves of `gpu_ops.image.weather`."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_f32, load_u32
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
    zero, key0, key1 = np.uint64(0), np.uint64(load_u32(at_key)), np.uint64(load_u32(at_key + 4))
    x, y = np.int32(pixel % width), np.int32(pixel // width)
    num_rings, num_discs = np.int32(load_f32(numbers + 16)), np.int32(load_f32(numbers + 20))
    side, radius, clear = load_f32(numbers + 24), np.int32(load_f32(numbers + 28)), load_f32(numbers + 32)
    nth, seen = np.uint64(0), np.float32(1.0)
    for ring in range(num_rings):
        left = ring_start(load_f32(numbers), load_f32(numbers + 8), ring)
        top = ring_start(load_f32(numbers + 4), load_f32(numbers + 12), ring)
        room_x, room_y = ring_room(width, left, side), ring_room(height, top, side)
        for _ in range(num_discs * (ring + 1)):
            word_x, word_y, _, _ = philox_block(nth, zero, zero, zero, key0, key1)
            nth += np.uint64(1)
            across = x - disc_place(word_x, left, room_x) - radius
            if across * across <= half_chord(y - disc_place(word_y, top, room_y) - radius, radius):
                seen *= clear
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
