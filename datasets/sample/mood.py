"""Time of day and season: the colours that the parts of one picture share."""

from dataclasses import dataclass

import numpy as np

Colour = tuple[float, float, float]
Ramp = tuple[Colour, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mood:
    """What light there is in a scene; colours are RGB in 0..255."""

    sky_high: Colour
    """Overhead."""
    sky_low: Colour
    """At the horizon; distant things fade to it."""
    cloud: Colour
    """A cloud's lit side."""
    light: Colour
    """What the ground's colours are multiplied with, about 1."""
    plants: Ramp
    """Grass and leaves, dark to bright."""
    soil: Ramp
    """Bare ground, dark to bright."""
    sun_x: float
    """Where the light comes from: -1 left, 1 right; always from above."""


_SKIES: tuple[tuple[Colour, Colour, Colour, Colour], ...] = (
    ((62, 122, 196), (186, 212, 232), (252, 252, 250), (1.02, 1.02, 1.0)),  # noon
    ((88, 142, 200), (214, 224, 224), (250, 246, 238), (1.04, 1.01, 0.96)),  # morning
    ((86, 112, 164), (248, 206, 150), (255, 226, 190), (1.1, 0.96, 0.8)),  # golden
    ((148, 160, 172), (206, 210, 212), (226, 228, 230), (0.92, 0.95, 0.98)),  # overcast
    ((58, 64, 118), (234, 154, 124), (240, 176, 150), (0.86, 0.78, 0.84)),  # dusk
    ((36, 96, 160), (150, 196, 222), (244, 248, 252), (1.06, 1.04, 0.98)),  # clear
)
_PLANTS: tuple[Ramp, ...] = (
    ((30, 52, 20), (62, 96, 34), (98, 134, 52), (150, 174, 84)),  # summer
    ((36, 66, 28), (84, 126, 44), (130, 166, 62), (182, 204, 104)),  # spring
    ((62, 44, 18), (124, 86, 30), (176, 122, 44), (206, 166, 84)),  # autumn
    ((78, 70, 40), (136, 124, 70), (176, 162, 100), (212, 198, 142)),  # dry
    ((24, 50, 38), (48, 84, 60), (80, 116, 78), (120, 148, 104)),  # northern
)
_SOILS: tuple[Ramp, ...] = (
    ((74, 56, 40), (112, 88, 64), (146, 120, 92), (180, 156, 126)),
    ((96, 84, 66), (140, 124, 100), (176, 160, 134), (208, 194, 168)),
    ((88, 58, 42), (140, 94, 66), (178, 128, 92), (206, 164, 126)),
    ((66, 66, 66), (104, 102, 100), (140, 138, 134), (176, 174, 168)),
)


def draw_mood(rng: np.random.Generator) -> Mood:
    """A time of day and a season, each at random and then varied a little."""
    high, low, cloud, light = _SKIES[int(rng.integers(len(_SKIES)))]
    tint = rng.normal(0.0, 6.0, 3)
    return Mood(
        sky_high=_shifted(high, tint),
        sky_low=_shifted(low, 0.5 * tint),
        cloud=cloud,
        light=light,
        plants=_varied(rng, _PLANTS[int(rng.integers(len(_PLANTS)))]),
        soil=_varied(rng, _SOILS[int(rng.integers(len(_SOILS)))]),
        sun_x=float(rng.choice([-1.0, 1.0]) * rng.uniform(0.3, 1.0)),
    )


def mixed(a: Colour, b: Colour, part: float) -> Colour:
    """`a` where `part` is 0, `b` where it is 1."""
    return a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part, a[2] + (b[2] - a[2]) * part


def mixed_ramp(ramp: Ramp, colour: Colour, part: float) -> Ramp:
    """Each colour of a ramp mixed with one colour, as by haze."""
    return tuple(mixed(stop, colour, part) for stop in ramp)


def lit(ramp: Ramp, mood: Mood) -> Ramp:
    """A ramp under the mood's light."""
    red, green, blue = mood.light
    return tuple((r * red, g * green, b * blue) for r, g, b in ramp)


def _shifted(colour: Colour, by: np.ndarray) -> Colour:
    red, green, blue = (float(min(max(c + b, 0.0), 255.0)) for c, b in zip(colour, by, strict=True))
    return red, green, blue


def _varied(rng: np.random.Generator, ramp: Ramp) -> Ramp:
    by = rng.normal(0.0, 7.0, 3)
    return tuple(_shifted(stop, by) for stop in ramp)
