"""The object kinds that decide an image's class, and the distractors, as flat polygons."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Role = Literal["body", "accent", "detail", "hole"]


class Polygon(NamedTuple):
    """A polygon, float64 of shape (N, 2), x to the right and y down, about -1..1; later ones cover earlier ones."""

    points: Points
    role: Role


Shape = list[Polygon]
Random = np.random.Generator


def ellipse(x: float, y: float, rx: float, ry: float | None = None, *, tilt_deg: float = 0.0) -> Points:
    """A full ellipse."""
    t = np.linspace(0.0, 2 * np.pi, 40, endpoint=False)
    around = np.stack([rx * np.cos(t), (rx if ry is None else ry) * np.sin(t)], axis=1)
    return np.add(_turned(around, tilt_deg), (x, y))


def arc(x: float, y: float, radius: float, start_deg: float, end_deg: float, num: int = 24) -> Points:
    """Points along a circle, clockwise as seen for rising angles; 0 points right."""
    t = np.radians(np.linspace(start_deg, end_deg, num))
    return np.stack([x + radius * np.cos(t), y + radius * np.sin(t)], axis=1)


def stroke(path: Points, width: float | Points) -> Points:
    """The outline of a line of some width drawn along `path`."""
    along = np.gradient(path, axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-9)
    half = np.broadcast_to(np.asarray(width) / 2, (len(path),))[:, None]
    return np.concatenate([path + across * half, (path - across * half)[::-1]])


def smooth(*corners: tuple[float, float]) -> Points:
    """A closed curve through `corners` (Catmull-Rom)."""
    p = np.array(corners)
    t = np.linspace(0.0, 1.0, 8, endpoint=False)[:, None, None]
    before, after, beyond = np.roll(p, 1, 0), np.roll(p, -1, 0), np.roll(p, -2, 0)
    curve: Points = 0.5 * (
        2 * p
        + (after - before) * t
        + (2 * before - 5 * p + 4 * after - beyond) * t**2
        + (3 * p - before - 3 * after + beyond) * t**3
    )
    return curve.transpose(1, 0, 2).reshape(-1, 2)


def _polygon(*corners: tuple[float, float]) -> Points:
    return np.array(corners, dtype=np.float64)


def _turned(points: Points, angle_deg: float) -> Points:
    c, s = np.cos(np.radians(angle_deg)), np.sin(np.radians(angle_deg))
    turned: Points = points @ np.array([[c, s], [-s, c]])
    return turned


def _line(*corners: tuple[float, float], width: float) -> Points:
    return stroke(_polygon(*corners), width)


def bird(rng: Random) -> Shape:
    """Seen from its side, standing."""
    wing = rng.uniform(-0.9, 0.2)
    return [
        Polygon(smooth((-0.55, -0.05), (-1.0, -0.22), (-1.0, 0.02), (-0.6, 0.2)), "accent"),
        Polygon(smooth((-0.65, 0.0), (-0.1, -0.28), (0.35, -0.3), (0.62, 0.0), (0.3, 0.36), (-0.2, 0.36)), "body"),
        Polygon(ellipse(0.55, -0.32, 0.27), "body"),
        Polygon(_polygon((0.76, -0.42), (1.05, -0.28), (0.77, -0.2)), "detail"),
        Polygon(smooth((0.2, -0.1), (-0.15, wing * 0.6 - 0.1), (-0.62, wing), (-0.45, 0.12), (0.0, 0.2)), "accent"),
        Polygon(ellipse(0.61, -0.38, 0.06), "detail"),
        Polygon(_line((0.05, 0.3), (0.0, 0.68), width=0.06), "detail"),
        Polygon(_line((0.22, 0.3), (0.24, 0.68), width=0.06), "detail"),
    ]


def fish(rng: Random) -> Shape:
    """With fins and one to three stripes."""
    fat = rng.uniform(0.36, 0.55)
    stripes = [
        Polygon(_line((x, -fat * (0.8 - abs(x))), (x - 0.04, fat * (0.8 - abs(x))), width=0.1), "accent")
        for x in np.linspace(-0.25, 0.3, int(rng.integers(1, 4)))
    ]
    return [
        Polygon(smooth((-0.5, 0.0), (-1.0, -0.45), (-0.86, 0.0), (-1.0, 0.45)), "accent"),
        Polygon(smooth((-0.2, -fat * 0.7), (0.1, -fat * 1.5), (0.35, -fat * 0.7), (0.0, -fat * 0.4)), "accent"),
        Polygon(
            smooth((-0.62, 0.0), (-0.1, -fat), (0.5, -fat * 0.85), (0.95, 0.0), (0.5, fat * 0.85), (-0.1, fat)), "body"
        ),
        *stripes,
        Polygon(ellipse(0.64, -0.1, 0.1), "detail"),
        Polygon(ellipse(0.66, -0.12, 0.04), "accent"),
    ]


def butterfly(rng: Random) -> Shape:
    """From above, wings open, spotted."""
    upper, lower = rng.uniform(0.85, 1.0), rng.uniform(0.5, 0.7)
    shape: Shape = []
    for side in (-1, 1):
        big = smooth((0.06 * side, 0.0), (0.3 * side, -0.8), (upper * side, -0.85), (0.85 * side, -0.15))
        small = smooth((0.06 * side, 0.0), (0.7 * side, 0.05), (lower * side, 0.8), (0.25 * side, 0.55))
        shape += [Polygon(big, "body"), Polygon(small, "body")]
        shape += [
            Polygon(ellipse(0.58 * side, -0.5, 0.2), "accent"),
            Polygon(ellipse(0.42 * side, 0.4, 0.14), "accent"),
        ]
        shape += [Polygon(stroke(arc(0.3 * side, -0.75, 0.3, 90 + 60 * side, 90 + 150 * side), 0.04), "detail")]
    return [*shape, Polygon(ellipse(0.0, -0.02, 0.09, 0.58), "detail")]


def leaf(rng: Random) -> Shape:
    """Toothed, with a midrib and some veins."""
    width, teeth = rng.uniform(0.4, 0.62), int(rng.integers(5, 9))
    t = np.linspace(0.0, 1.0, 12 * teeth)
    edge = width * np.sin(np.pi * t**0.8) ** 0.9 * (1 + 0.16 * ((t * teeth) % 1.0 - 0.5))
    y = 0.7 - 1.6 * t
    outline = np.concatenate([np.stack([edge, y], axis=1), np.stack([-edge, y], axis=1)[::-1]])
    veins = [
        Polygon(_line((0.0, 0.45 - 0.28 * i), (side * width * (0.72 - 0.13 * i), 0.2 - 0.28 * i), width=0.04), "accent")
        for i in range(4)
        for side in (-1, 1)
    ]
    return [
        Polygon(outline, "body"),
        *(vein for vein in veins[: int(rng.integers(4, 9))]),
        Polygon(_line((0.0, 1.05), (0.02, 0.4), (0.0, -0.75), width=0.07), "detail"),
    ]


def star(rng: Random) -> Shape:
    """Five to seven points, a smaller star in it."""
    points, depth = int(rng.integers(5, 8)), rng.uniform(0.4, 0.55)
    angles = np.linspace(-90, 270, 2 * points, endpoint=False)
    radii = np.where(np.arange(2 * points) % 2, depth, 1.0)
    outline = np.concatenate([arc(0, 0, r, a, a, 1) for r, a in zip(radii, angles, strict=True)])
    return [Polygon(outline, "body"), Polygon(outline * 0.5, "accent")]


def ring(rng: Random) -> Shape:
    """A lifebuoy, with two to five bands."""
    inner = rng.uniform(0.5, 0.72)
    bands = [
        Polygon(stroke(arc(0, 0, (1 + inner) / 2, a, a + 24), (1 - inner)), "accent")
        for a in np.linspace(0, 360, int(rng.integers(2, 6)), endpoint=False)
    ]
    return [Polygon(ellipse(0, 0, 1.0), "body"), Polygon(ellipse(0, 0, inner), "hole"), *bands]


def spiral(rng: Random) -> Shape:
    """A disc with a spiral on it."""
    turns, side = rng.uniform(2.2, 3.2), rng.choice([-1.0, 1.0])
    t = np.linspace(0.04, 1.0, 90)
    path = np.stack([side * t * np.cos(2 * np.pi * turns * t), t * np.sin(2 * np.pi * turns * t)], axis=1) * 0.9
    return [Polygon(ellipse(0, 0, 1.0), "body"), Polygon(stroke(path, 0.42 / turns), "detail")]


def dartboard(rng: Random) -> Shape:
    """A disc of sectors and rings in two colours."""
    sectors, rings = 2 * int(rng.integers(4, 7)), int(rng.integers(2, 4))
    edges = np.linspace(0.0, 1.0, rings + 1)
    shape = [Polygon(ellipse(0, 0, 1.0), "body")]
    for i in range(rings):
        for k in range(i % 2, sectors, 2):
            start, end = 360 * k / sectors, 360 * (k + 1) / sectors
            cell = np.concatenate([arc(0, 0, edges[i + 1], start, end, 8), arc(0, 0, edges[i], end, start, 8)])
            shape.append(Polygon(cell, "accent"))
    return shape


def key(rng: Random) -> Shape:
    """A bow with a hole, a shaft, two or three teeth."""
    bow = rng.uniform(0.34, 0.42)
    teeth = [
        Polygon(_polygon((x, 0.0), (x + 0.13, 0.0), (x + 0.13, depth), (x, depth)), "body")
        for x, depth in zip((0.4, 0.62, 0.84), rng.uniform(0.22, 0.4, 3), strict=True)
    ]
    return [
        Polygon(_line((-0.4, 0.0), (1.0, 0.0), width=0.17), "body"),
        *teeth[int(rng.integers(0, 2)) :],
        Polygon(ellipse(-0.6, 0.0, bow), "body"),
        Polygon(ellipse(-0.6, 0.0, bow * 0.55), "hole"),
        Polygon(_line((-0.16, -0.14), (-0.16, 0.14), width=0.08), "accent"),
    ]


def cross(rng: Random) -> Shape:
    """Four equal arms, more or less flared."""
    arm, flare = rng.uniform(0.2, 0.3), rng.uniform(0.0, 0.14)
    tip = arm + flare
    quarter = _polygon((arm, -arm), (tip, -1.0), (0.0, -1.0 + flare * 0.5), (-tip, -1.0), (-arm, -arm))
    outline = np.concatenate([_turned(quarter, -90 * i) for i in range(4)])
    return [Polygon(outline, "body"), Polygon(ellipse(0, 0, arm * rng.uniform(0.5, 0.9)), "accent")]


KINDS: dict[str, Callable[[Random], Shape]] = {
    shape.__name__: shape for shape in (bird, fish, butterfly, leaf, star, ring, spiral, dartboard, key, cross)
}
"""The classes in the order in which they are used: 5 classes are the first five."""


def _ball(rng: Random) -> Shape:
    return [Polygon(ellipse(0, 0, 1.0), "body"), Polygon(ellipse(-0.3, -0.3, 0.2), "accent")]


def _box(rng: Random) -> Shape:
    tall = rng.uniform(0.5, 1.0)
    lid = Polygon(_line((-1.0, -tall * 0.5), (1.0, -tall * 0.5), width=0.12), "detail")
    return [Polygon(_polygon((-1, -tall), (1, -tall), (1, tall), (-1, tall)), "body"), lid]


def _triangle(rng: Random) -> Shape:
    outline = _polygon((0, -0.9), (1, 0.7), (-1, 0.7))
    return [Polygon(outline, "body"), Polygon(outline * 0.4 + (0, 0.15), "accent")]


DISTRACTORS: Sequence[Callable[[Random], Shape]] = (_ball, _box, _triangle)
"""Things that lie about in images of every class."""
