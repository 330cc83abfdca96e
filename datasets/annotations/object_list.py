"""Objects as a reader finds them one by one, and the check of all of them at once."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.annotations.faults import CUT_AT_EDGE, Faults
from augpipe.datasets.annotations.object_table import Floats, Floats32, Ints, ObjectTable
from augpipe.sources.targets import cross_themselves, ranges

BEYOND_PX = 0.5
"""How far a box or a corner may reach outside its image without being counted: files round."""
LEAST_PART = 1e-6
"""The least share that a rotated box covers of the box around it; with less it is a line, without an area."""
MAX_COORDINATE = 1e7
Bools = npt.NDArray[np.bool_]


class ObjectList:
    """Collects the objects of N images, in any order of the images.

    Args:
        faults: where wrong ones are counted.
        where: what an object is called in messages, by the number that `add` was given.
        num_keypoints: K; 0 for none.
        fields: name -> dtype of what further is said of each object.
    """

    def __init__(
        self,
        faults: Faults,
        where: Callable[[int], str],
        *,
        num_keypoints: int = 0,
        fields: Mapping[str, type] | None = None,
    ) -> None:
        self._faults, self._where = faults, where
        self._num_keypoints = num_keypoints
        self._samples, self._numbers, self._labels = array("q"), array("q"), array("i")
        self._boxes, self._keypoints = array("d"), array("f")
        self._rings, self._corners, self._points = array("q", [0]), array("q", [0]), array("f")
        self._dtypes = dict(fields or {})
        self._fields: list[list[Any]] = [[] for _ in self._dtypes]

    def add(
        self,
        sample: int,
        number: int,
        label: int,
        box: Sequence[float] | None,
        rings: Iterable[Sequence[float] | Floats] = (),
        keypoints: Sequence[float] | None = None,
        fields: Sequence[Any] = (),
    ) -> None:
        """Append an object.

        Args:
            sample: its image.
            number: its own, for messages.
            label: its class.
            box: left, top, right, bottom; None for the bounds of its rings.
            rings: x and y of each one's corners in turn, three corners at least.
            keypoints: 3 K numbers: x, y and visibility; None where it has none.
            fields: one value of each.

        Raises:
            TypeError, OverflowError: something is not a number.
        """
        points, corners = array("f"), []
        for ring in rings:
            points.extend(ring.ravel().tolist() if isinstance(ring, np.ndarray) else ring)
            corners.append(len(points) // 2)
        if box is None:
            box = min(points[0::2]), min(points[1::2]), max(points[0::2]), max(points[1::2])
        edges = array("d", box)
        flat = array("f", keypoints if keypoints is not None else bytes(12 * self._num_keypoints))
        begin = self._corners[-1]
        self._corners.extend(begin + corner for corner in corners)
        self._points.extend(points)
        self._rings.append(len(self._corners) - 1)
        self._boxes.extend(edges)
        self._keypoints.extend(flat)
        self._samples.append(sample)
        self._numbers.append(number)
        self._labels.append(label)
        for values, value in zip(self._fields, fields, strict=True):
            values.append(value)

    def table(
        self, num_samples: int, limits: Floats, tolerance: float = BEYOND_PX, *, rotated: bool = False
    ) -> ObjectTable:
        """Check all objects, and order them by their images.

        Boxes and rings that reach outside their image are cut at its edge. Objects without a size, or that lie outside
        it, are left out.

        Args:
            num_samples: N.
            limits: (N, 2) width and height of the images; inf where they are not known.
            tolerance: how far something may reach outside without being counted, in the unit of `limits`.
            rotated: whether each object has one ring of four corners, which is a rotated box. These are not cut, and
                corners outside are not wrong. Where limits are not known, boxes are not cut either.

        Raises:
            ValueError: an object is refused, and the faults are not counted; names it.
        """
        samples, labels = np.array(self._samples, np.int64), np.array(self._labels, np.int32)
        boxes = np.array(self._boxes, np.float64).reshape(-1, 4)
        points = np.array(self._points, np.float32).reshape(-1, 2)
        corners, rings = np.array(self._corners, np.int64), np.array(self._rings, np.int64)
        keypoints = None
        if self._num_keypoints:
            keypoints = np.array(self._keypoints, np.float32).reshape(len(samples), self._num_keypoints, 3)
        kept = self._finite(boxes, points, corners, rings, keypoints)
        boxes[~kept] = 0.0
        kept &= self._fits(boxes, limits[samples], tolerance, kept, rotated=rotated)
        if rotated:
            kept &= self._are_rotated_boxes(points.reshape(-1, 4, 2), kept)
        order = np.flatnonzero(kept)
        order = order[np.argsort(samples[order], kind="stable")]
        rotated_boxes = points.reshape(-1, 4, 2)[order] if rotated else None
        if rotated:
            corners = np.zeros(1, np.int64)
        else:
            rings, corners, points = self._cut(order, limits[samples], tolerance, rings, corners, points)
        starts = np.concatenate([[0], np.cumsum(np.bincount(samples[order], minlength=num_samples))])
        return ObjectTable(
            starts=starts,
            labels=labels[order],
            boxes=boxes[order],
            rings=rings if len(corners) > 1 else None,
            corners=corners,
            points=points,
            rotated_boxes=rotated_boxes,
            keypoints=None if keypoints is None else keypoints[order],
            fields={
                name: np.array(values, dtype)[order]
                for (name, dtype), values in zip(self._dtypes.items(), self._fields, strict=True)
            },
        )

    def _say(self, which: Bools, act: Callable[[str, str], None], reason: str) -> Bools:
        """Report the objects that are marked; returns which are not."""
        for number in np.flatnonzero(which).tolist():
            act(self._where(self._numbers[number]), reason)
        return ~which

    def _finite(self, boxes: Floats, points: Floats32, corners: Ints, rings: Ints, keypoints: Floats32 | None) -> Bools:
        """Refuse what is not a number or not a place: which objects stay."""
        refuse = self._faults.refuse
        kept = self._say(~np.all(np.abs(boxes) < MAX_COORDINATE, axis=1), refuse, "its box is not finite, or is huge")
        wrong = np.flatnonzero(~np.all(np.abs(points) < MAX_COORDINATE, axis=1))
        of_ring = np.searchsorted(corners, wrong, side="right") - 1
        has_wrong = np.zeros(len(boxes), np.bool_)
        has_wrong[np.searchsorted(rings, of_ring, side="right") - 1] = True
        kept &= self._say(has_wrong & kept, refuse, "a corner of its outline is not finite, or is huge")
        if keypoints is not None:
            wrong_place = ~np.all(np.abs(keypoints) < MAX_COORDINATE, axis=(1, 2))
            kept &= self._say(wrong_place & kept, refuse, "a key point is not finite, or is huge")
            wrong_kind = ~np.all(np.isin(keypoints[:, :, 2], (0, 1, 2)), axis=1)
            reason = "the visibility of a key point is not 0 (not labelled), 1 (hidden) or 2 (visible)"
            kept &= self._say(wrong_kind & kept, refuse, reason)
        return kept

    def _are_rotated_boxes(self, corners: Floats32, kept: Bools) -> Bools:
        """Which objects' (M, 4, 2) corners go around an area."""
        wide = np.where(kept[:, None, None], corners, 0.0).astype(np.float64)
        stays = self._say(cross_themselves(wide) & kept, self._faults.refuse, "sides of its rotated box cross")
        across, along = wide[:, 2] - wide[:, 0], wide[:, 3] - wide[:, 1]
        areas = np.abs(across[:, 0] * along[:, 1] - across[:, 1] * along[:, 0])
        is_line: Bools = areas <= LEAST_PART * np.ptp(wide, axis=1).prod(axis=1)
        stays &= self._say(is_line & stays & kept, self._faults.leave_out, "without a size")
        return stays

    def _fits(self, boxes: Floats, limits: Floats, tolerance: float, kept: Bools, *, rotated: bool) -> Bools:
        """Cut the boxes at their images' edges, in place: which objects have a size there."""
        faults = self._faults
        sizes = boxes[:, 2:] - boxes[:, :2]
        stays = self._say((sizes < 0).any(axis=1) & kept, faults.refuse, "its box has a negative size")
        is_flat = (sizes <= 0).any(axis=1) & stays & kept
        stays &= self._say(is_flat, faults.leave_out, "without a size")
        is_open = rotated & ~np.isfinite(limits).all(axis=1)  # what lies outside is seen once the size is known
        least = np.where(is_open, -np.inf, 0.0)[:, None]
        beyond = np.maximum(least - boxes[:, :2], boxes[:, 2:] - limits).max(axis=1, initial=0.0)
        boxes[:, 0::2] = np.clip(boxes[:, 0::2], least, limits[:, :1])
        boxes[:, 1::2] = np.clip(boxes[:, 1::2], least, limits[:, 1:])
        is_out = (boxes[:, 2:] <= boxes[:, :2]).any(axis=1) & stays & kept
        stays &= self._say(is_out, faults.leave_out, "outside the image")
        reaches_out = (beyond > tolerance) & stays & kept
        if rotated:
            self._say(reaches_out, faults.note, "reaching outside the image, staying there")
        else:
            self._say(reaches_out, faults.mend, CUT_AT_EDGE)
        return stays

    def _cut(
        self, order: Ints, limits: Floats, tolerance: float, rings: Ints, corners: Ints, points: Floats32
    ) -> tuple[Ints, Ints, Floats32]:
        """The rings of the objects in their new order, those cut that reach outside their images."""
        num_rings = np.diff(rings)[order]
        which = ranges(rings[:-1][order], num_rings)
        lengths = np.diff(corners)[which]
        points = points[ranges(corners[:-1][which], lengths)]
        limits = np.repeat(limits[order], num_rings, axis=0)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        if len(which):
            least, most = (extreme.reduceat(points, starts[:-1]) for extreme in (np.minimum, np.maximum))
            reach_out: Bools = np.any((least < -tolerance) | (most > limits + tolerance), axis=1)
            if reach_out.any():
                points, lengths = _cut_rings(points, starts, limits, reach_out)
                starts = np.concatenate([[0], np.cumsum(lengths)])
        has_corners = lengths > 0
        owners = np.repeat(np.arange(len(order)), num_rings)[has_corners]
        num_rings = np.bincount(owners, minlength=len(order))
        return (
            np.concatenate([[0], np.cumsum(num_rings)]),
            np.concatenate([[0], np.cumsum(lengths[has_corners])]),
            points,
        )


def _cut_rings(points: Floats32, starts: Ints, limits: Floats, reach_out: Bools) -> tuple[Floats32, Ints]:
    """Points and lengths of all rings, once those that are marked are cut at their images' edges."""
    from augpipe.planning.targets.rings import Rings, within  # numba comes with it: not for opening a source

    cut = []
    for number in range(len(starts) - 1):
        ring = points[starts[number] : starts[number + 1]]
        if reach_out[number]:
            whole = Rings(points=ring.astype(np.float64), starts=np.array([0, len(ring)]), item=np.zeros(1, np.int64))
            limit = np.minimum(limits[number], MAX_COORDINATE)
            ring = within(whole, np.array([[0.0, 0.0, *limit]])).points.astype(np.float32)
        cut.append(ring)
    return np.concatenate(cut), np.array([len(ring) for ring in cut], np.int64)
