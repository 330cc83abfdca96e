"""Closed outlines of objects, many at once: cut, measured, and divided where a map bends them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import rings as loops

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

EVERYWHERE = (-1e30, -1e30, 1e30, 1e30)
"""A rectangle that all lies in."""


@dataclass(frozen=True, kw_only=True)
class Rings:
    """R closed outlines, their corners one behind the other."""

    points: Float
    """(N, 2) corners x, y."""
    starts: Int
    """(R + 1,) where each ring begins in `points`, and the last one ends."""
    item: Int
    """(R,) whose plan record each belongs to."""

    @cached_property
    def item_of_points(self) -> Int:
        """(N,)."""
        return self.each(self.item)

    def each(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(N, ..) for each corner, of (R, ..) for each ring."""
        return np.repeat(values, self.starts[1:] - self.starts[:-1], axis=0)

    def at(self, points: Float) -> "Rings":
        """The same rings with other places of their corners."""
        return replace(self, points=np.ascontiguousarray(points))

    def areas(self) -> Float:
        """(R,)."""
        areas = np.empty(len(self.item))
        loops.measure(self.points, self.starts, areas)
        return areas

    def bounds(self) -> Float:
        """(R, 4) left, top, right, bottom; zeros of a ring without corners."""
        return self.bounds_within(np.full((len(self.item), 4), EVERYWHERE))

    def bounds_within(self, frames: Float) -> Float:
        """(R, 4) left, top, right, bottom of what lies within (R, 4) rectangles; zeros where nothing does."""
        bounds = np.empty((len(self.item), 4))
        loops.bound(self.points, self.starts, frames, bounds)
        some = bounds.any(axis=1)
        bounds[some] = _limited(bounds[some].reshape(-1, 2), np.repeat(frames[some], 2, axis=0)).reshape(-1, 4)
        return bounds


def clipped(rings: Rings, lines: Float) -> Rings:
    """What lies of each ring on the side of its own line, (R, 3), where a x + b y + c is at least 0."""
    points, starts = np.empty((2 * len(rings.points), 2)), np.empty_like(rings.starts)
    loops.clip(rings.points, rings.starts, np.ascontiguousarray(lines), points, starts)
    return Rings(points=points[: starts[-1]], starts=starts, item=rings.item)


def within(rings: Rings, limits: Float) -> Rings:
    """What lies of each ring within its own rectangle, (R, 4) left, top, right, bottom."""
    of_points, whole = rings.each(limits), rings
    for edge in range(4):
        axis, sign = edge % 2, 1.0 if edge < 2 else -1.0
        if not (sign * (rings.points[:, axis] - of_points[:, edge]) < 0.0).any():
            continue
        lines = np.zeros((len(limits), 3))
        lines[:, axis], lines[:, 2] = sign, -sign * limits[:, edge]
        rings = clipped(rings, lines)
        of_points = rings.each(limits)
    return rings if rings is whole else rings.at(_limited(rings.points, of_points))


def _limited(points: Float, limits: Float) -> Float:
    """(N, 2) points cut at lines, exactly on these: rounding leaves some at -1e-16, which other packages refuse."""
    limited: Float = np.minimum(np.maximum(points, limits[:, :2]), limits[:, 2:])
    return limited


def bounds_of_all(bounds: Sequence[Float]) -> Float:
    """(R, 4) around several (R, 4) bounds, of which those without an area do not count; zeros where none counts."""
    if len(bounds) == 1:
        return bounds[0]
    stacked = np.stack(bounds)
    counts = np.all(stacked[:, :, 2:] > stacked[:, :, :2], axis=2, keepdims=True)
    least = np.where(counts, stacked[:, :, :2], np.inf).min(axis=0)
    most = np.where(counts, stacked[:, :, 2:], -np.inf).max(axis=0)
    around: Float = np.where(counts.any(axis=0), np.concatenate([least, most], axis=1), 0.0)
    return around


def all_of(parts: Sequence[Rings]) -> Rings:
    """The rings of several, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    firsts = np.cumsum([0, *(len(part.points) for part in parts)])
    starts = [part.starts[:-1] + first for part, first in zip(parts, firsts, strict=False)]
    return Rings(
        points=np.concatenate([part.points for part in parts]),
        starts=np.concatenate([*starts, firsts[-1:]]),
        item=np.concatenate([part.item for part in parts]),
    )


def boxes_as_rings(boxes: Float, item: Int, num_points: int) -> Rings:
    """(R, 4) boxes as outlines of 4 n evenly spaced points, from the upper left corner clockwise."""
    along = np.arange(num_points // 4) / (num_points // 4)
    zeros, ones = np.zeros_like(along), np.ones_like(along)
    x, y = np.concatenate([along, ones, 1.0 - along, zeros]), np.concatenate([zeros, along, ones, 1.0 - along])
    return _of_boxes(boxes, item, np.stack([x, y], axis=1))


def ellipses_as_rings(boxes: Float, item: Int, num_points: int) -> Rings:
    """The ellipses within (R, 4) boxes as outlines of n points, from the uppermost one clockwise."""
    turns = np.arange(num_points) / num_points * 2.0 * np.pi
    return _of_boxes(boxes, item, 0.5 + 0.5 * np.stack([np.sin(turns), -np.cos(turns)], axis=1))


def _of_boxes(boxes: Float, item: Int, shares: Float) -> Rings:
    """(R, 4) boxes as outlines whose (n, 2) points lie at the same parts of each one's width and height."""
    points = boxes[:, None, :2] + shares * (boxes[:, 2:] - boxes[:, :2])[:, None]
    return Rings(points=points.reshape(-1, 2), starts=np.arange(len(boxes) + 1) * len(shares), item=item)
