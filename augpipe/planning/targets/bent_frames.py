"""Frames that grids and elastic fields bend: their inverse, and a look at what an output shows of an outline."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import frame_look
from augpipe.gpu_ops.image.field_inverse import unbend_spline
from augpipe.gpu_ops.image.program_rows import first_parts
from augpipe.planning.kernel_rows import Rows
from augpipe.planning.targets.rings import Bool, Float, Int, Rings


class BentFrame:
    """One output of a pass; where its pixels come from is looked up when that is needed first.

    Args:
        table: (B,) kernel rows of the pass, at full scale.
        item: the one of them.
        size: height and width of the output.
        back: (3, 3) from source points to output points, both counted from the upper left corner, as if nothing bent
            them.
        is_mirrored: whether the pass swaps left and right.
    """

    def __init__(self, table: Rows, item: int, size: tuple[int, int], back: Float, *, is_mirrored: bool) -> None:
        self._row = first_parts(table[item : item + 1])
        self._size = size
        self._origin = np.array([self._row["origin_x"][0], self._row["origin_y"][0]], np.float64)
        to_source, to_centre = np.eye(3), np.eye(3)
        to_source[:2, 2], to_centre[:2, 2] = self._origin, (-0.5 * size[1], -0.5 * size[0])
        self._back = np.ascontiguousarray(to_centre @ back @ to_source)
        self._turn = -1.0 if is_mirrored else 1.0

    def _look(self, height: int, width: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """(height, width, 2) source points of places that lie a pixel apart, about the centre, and bounds of tiles."""
        sources = np.empty((height, width, 2), np.float32)
        frame_look.look_up_places(self._row, 0, sources)
        tiles = np.empty((-(-height // frame_look.TILE), -(-width // frame_look.TILE), 5), np.float32)
        frame_look.bound_tiles(sources, tiles)
        return sources, tiles

    @cached_property
    def _centres(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        return self._look(*self._size)

    @cached_property
    def _corners(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], Bool]:
        """Those of the pixels' corners, and (H, W) where there are folds."""
        height, width = self._size
        sources, tiles = self._look(height + 1, width + 1)
        folds = np.empty((height, width), np.bool_)
        frame_look.find_folds(sources, self._turn, folds)
        return sources, tiles, folds

    def unbend(self, points: Float, *, finds_one: bool) -> tuple[Float, Bool, Bool]:
        """(N, 2) by how much an elastic field moves what shows source points, (N,) whether the frame shows them, and
        whether it does once, where that is asked for."""
        moved, num = np.empty_like(points), len(points)
        is_found, is_single = np.empty(num, np.bool_), np.empty(num, np.bool_)
        from_origin = np.ascontiguousarray(points - self._origin)
        unbend_spline(
            from_origin, self._row, 0, self._back, self._turn, *self._corners, finds_one, moved, is_found, is_single
        )
        return moved, is_found, is_single

    @property
    def folds(self) -> bool:
        """Whether the frame may show a place more than once."""
        return bool(self._corners[2].any())

    def outermost(self, ring: Float, seen: Float, bounds: Float) -> Float:
        """(K, 2) points around the centres of the output's pixels that show the inside of a source ring.

        Args:
            ring: (C, 2) its corners.
            seen: (4,) left, top, right and bottom of what may be shown of the image, in source pixels.
            bounds: (4,) of what is shown of the ring, in output pixels.
        """
        sources, _ = self._centres
        left, top = np.maximum(np.floor(bounds[:2]), 0).astype(np.int64)
        right, bottom = np.ceil(bounds[2:]).astype(np.int64)
        x, y = np.moveaxis(sources[top:bottom, left:right] + self._origin, 2, 0)
        is_inside = np.zeros(x.shape, np.bool_)
        for (from_x, from_y), (to_x, to_y) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if from_y != to_y:
                is_between = (from_y <= y) != (to_y <= y)
                is_inside ^= is_between & (x < from_x + (y - from_y) / (to_y - from_y) * (to_x - from_x))
        is_inside &= (x >= seen[0]) & (y >= seen[1]) & (x <= seen[2]) & (y <= seen[3])
        lines = np.flatnonzero(is_inside.any(axis=1))
        first = left + 0.5 - frame_look.REACH_PX + is_inside[lines].argmax(axis=1)
        last = right - 0.5 + frame_look.REACH_PX - is_inside[lines, ::-1].argmax(axis=1)
        at = top + 0.5 + lines
        above, below = at - frame_look.REACH_PX, at + frame_look.REACH_PX
        return np.concatenate([np.stack([end, line], axis=1) for end in (first, last) for line in (above, below)])

    def fit(self, rings: Rings, which: Int, limits: Float, bounds: Float) -> None:
        """Fit the (R, 4) bounds of some of R source rings to the pixels in (R, 4) parts of an output that show them."""
        sources, tiles = self._centres
        points, limits = np.ascontiguousarray(rings.points), np.ascontiguousarray(limits)
        frame_look.fit_bounds(points, rings.starts, which, self._row, 0, sources, tiles, limits, bounds)
