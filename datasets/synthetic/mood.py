"""Time of day and season: the colours that the parts of one image share."""

from dataclasses import dataclass

import numpy as np

Colour = tuple[float, float, float]
Ramp = tuple[Colour, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mood:
    """What light there is in a scene; colours are RGB in 0..255, ramps go from dark to bright."""

    sky_high: Colour
    """Overhead."""
    sky_low: Colour
    """At the horizon; distant things fade to it."""
    plants: Ramp
    """Grass and leaves."""
    soil: Ramp
    """Bare ground."""
    sun_x: float
    """Where the light comes from: -1 left, 1 right; always from above."""


_SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((62, 122, 196), (186, 212, 232)),  # noon
    ((86, 112, 164), (248, 206, 150)),  # golden
    ((148, 160, 172), (206, 210, 212)),  # overcast
    ((58, 64, 118), (234, 154, 124)),  # dusk
)
_PLANTS: tuple[Ramp, ...] = (
    ((30, 52, 20), (62, 96, 34), (98, 134, 52), (150, 174, 84)),  # summer
    ((62, 44, 18), (124, 86, 30), (176, 122, 44), (206, 166, 84)),  # autumn
    ((78, 70, 40), (136, 124, 70), (176, 162, 100), (212, 198, 142)),  # dry
    ((24, 50, 38), (48, 84, 60), (80, 116, 78), (120, 148, 104)),  # northern
)
_SOILS: tuple[Ramp, ...] = (
    ((74, 56, 40), (112, 88, 64), (146, 120, 92), (180, 156, 126)),
    ((132, 104, 72), (190, 158, 112), (220, 194, 150), (240, 222, 186)),  # sand
    ((88, 58, 42), (140, 94, 66), (178, 128, 92), (206, 164, 126)),
    ((66, 66, 66), (104, 102, 100), (140, 138, 134), (176, 174, 168)),
)


def draw_mood(rng: np.random.Generator) -> Mood:
    """A time of day and a season, each at random and then varied a little."""
    high, low = varied(rng, _SKIES[int(rng.integers(len(_SKIES)))])
    return Mood(
        sky_high=high,
        sky_low=low,
        plants=varied(rng, _PLANTS[int(rng.integers(len(_PLANTS)))]),
        soil=varied(rng, _SOILS[int(rng.integers(len(_SOILS)))]),
        sun_x=float(rng.choice([-1.0, 1.0]) * rng.uniform(0.3, 1.0)),
    )


def mixed(a: Colour, b: Colour, share: float) -> Colour:
    """`a` where `share` is 0, `b` where it is 1."""
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share, a[2] + (b[2] - a[2]) * share


def scaled(colour: Colour, gain: float) -> Colour:
    """A colour made brighter or darker."""
    return colour[0] * gain, colour[1] * gain, colour[2] * gain


def varied(rng: np.random.Generator, ramp: Ramp) -> Ramp:
    """A ramp whose colours are all shifted alike, by a little."""
    red, green, blue = rng.normal(0.0, 7.0, 3).tolist()
    return tuple((r + red, g + green, b + blue) for r, g, b in ramp)
