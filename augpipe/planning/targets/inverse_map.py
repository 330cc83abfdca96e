"""From points of the image to points of the output: the inverse of the look-up that plan records hold.

The look-up leads from an output pixel through `before` (affine or projective), the lens and `after` to a source pixel.
Its inverse goes back stage by stage; only lenses, grids and elastic fields need more than a matrix. Points count in
pixels from the upper left corner of the upright image, or of the output, with pixel centres at +0.5.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from augpipe.gpu_ops.image.field_inverse import unbend_grid
from augpipe.gpu_ops.image.inverse import unbend
from augpipe.gpu_ops.image.program_rows import first_parts
from augpipe.gpu_ops.image.rows import GRID, SHARP, SPLINE
from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR
from augpipe.planning.fields import drawn_by
from augpipe.planning.kernel_rows import Rows, kernel_rows
from augpipe.planning.look_up import look_up_matrices, mapped_points
from augpipe.planning.record_passes import passes_of
from augpipe.planning.targets.bent_frames import BentFrame
from augpipe.planning.targets.rings import Bool, Float, Int, Rings, clipped

RADII = np.linspace(1.0 / 256.0, 1.0, 256)
"""Parts of the frame's largest radius where it is looked for the first one at which the lens folds the image over."""
ROUNDING_PX = 1e-6
"""How far outside the frame a point counts as on its edge."""
LOW, HIGH = [0, 1, 0, 1], [2, 3, 2, 3]
"""The edges of a rectangle that bound a box's left, top, right and bottom from below and from above."""
NOWHERE = 1e30
"""Where a rectangle begins and ends that nothing lies in."""
PIECES_PER_NODE = 2.0
"""Into how many an edge is divided from node to node of an elastic field, before it is seen how far it is bent."""
MOST_PIECES = 1024
"""Of an edge at first."""
FURTHER = 2.0
"""How far beyond the frame's own depths outlines are kept under a perspective, before what nears the horizon goes."""


class InverseMap:
    """The inverse look-up of (B,) plan records of one view; `item` says for each point whose record is meant.

    Args:
        rows: the records; boxes and polygons go from pass to pass, points through all of them.
        windows: (B, 4) left, top, right and bottom of the part of each output that shows its image. None: all of it.
        holes: (B, 4) the part of that which another image covers, without an area where none does. None: nothing.
        has_optical: whether a lens may be OpticalDistortion's, which may fold the image. None: as the records say.
    """

    def __init__(
        self,
        rows: Rows,
        windows: Float | None = None,
        holes: Float | None = None,
        *,
        has_optical: bool | None = None,
    ) -> None:
        if has_optical is None:
            has_optical = "optical_distortion" in drawn_by(rows)
        *before, rows = passes_of(rows)
        self.before = [InverseMap(own, has_optical=has_optical) for own in before]
        """Those of the passes before the last, which all else is of, save `to_output` and `is_mirrored`."""
        self.rows = rows
        self.sizes: Float = np.stack([rows["out_width"], rows["out_height"]], axis=1).astype(np.float64)
        """(B, 2): width and height of the outputs, in pixels."""
        self.windows: Float = np.concatenate([np.zeros_like(self.sizes), self.sizes], axis=1)
        """(B, 4)."""
        if windows is not None:
            self.windows = windows
        self._holes = holes
        self._before, self._after = look_up_matrices(rows)
        self._to_lens, self._to_output = np.linalg.inv(np.stack([self._after, self._before])).astype(np.float64)
        self._is_projective: Bool = (rows["before_divisor"][:, :2] != 0.0).any(axis=1)
        self._has_lens: Bool = (rows["lens"] != 0.0).any(axis=1)
        has_field = "field" in (rows.dtype.names or ())
        self._kind = rows["field"]["kind"] if has_field else np.zeros(len(rows), np.int8)
        is_bent = (self._kind == GRID) | (self._kind == SPLINE)
        self.bends: Bool = self._has_lens | is_bent
        """(B,): whether straight lines become curves."""
        self.is_looked_at: Bool = is_bent | (self._has_lens & has_optical)
        """(B,): whether bounds of outlines are fitted by a look at the output, which may show places more than once.
        The lenses of other ops do not fold within the frame."""
        self._least_reach = 0.0 if has_optical else 1.0
        self._frames: dict[int, BentFrame] = {}

    @cached_property
    def _table(self) -> Rows:
        return kernel_rows(self.rows)

    @cached_property
    def seen(self) -> Float:
        """(B, 4): left, top, right and bottom of what the outputs may show of the images, in source pixels."""
        table = self._table
        edges = []
        for pixel, edge, further in (("low", "begin", 0.0), ("high", "end", 1.0)):
            for axis in "xy":
                within = table[f"{edge}_{axis}"].astype(np.float64) + 0.5  # where it need not end in whole pixels
                at = np.where(table["is_constant"] == SHARP, within, table[f"{pixel}_{axis}"] + further)
                edges.append(at + table[f"origin_{axis}"])
        return np.stack(edges, axis=1)

    @cached_property
    def is_mirrored(self) -> Bool:
        """(B,): whether left and right are swapped, however the output is turned."""
        signs = self._is_turned
        for earlier in self.before:
            signs = signs ^ earlier.is_mirrored
        return signs

    @cached_property
    def _is_turned(self) -> Bool:
        """(B,): whether this pass swaps left and right."""
        # the lens keeps the sign, and a perspective has that of its matrix where its divisor is positive
        signs: Bool = np.linalg.det(self._after) * np.linalg.det(self._before) < 0.0
        return signs

    @cached_property
    def _per_px(self) -> Float:
        """(B, 2): how long, in lens coordinates, is what a grid moves points by."""
        per_px = np.linalg.solve(self._after[:, :2, :2], self.rows["field"]["matrix"])
        lengths: Float = np.ascontiguousarray(per_px[:, [0, 1], [0, 1]])
        return lengths

    @cached_property
    def _divisors(self) -> tuple[Float, Float]:
        """(B, 4) divisors at the frame's corners, and the (B, 4) radii there in lens coordinates."""
        corners: Float = self.sizes[:, None, :] * np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        points = np.einsum(
            "bij,bcj->bci", self._before, np.concatenate([corners, np.ones((len(corners), 4, 1))], axis=2)
        )
        divisors = np.maximum(points[:, :, 2], LEAST_DIVISOR)
        return divisors, np.hypot(points[:, :, 0], points[:, :, 1]) / divisors

    @cached_property
    def _lenses(self) -> Float:
        """(B, 6) `gpu_ops.image.inverse.LENS_COLUMNS`: the reach is the frame's largest radius, 1 at least save of
        OpticalDistortion, or where the lens folds the image over."""
        k1, k2, k3, p1, p2 = (self.rows["lens"][:, column, None] for column in range(5))
        largest = np.maximum(self._divisors[1].max(axis=1, keepdims=True), self._least_reach)
        radii = largest * RADII
        r2 = radii**2
        slopes = 1.0 + r2 * (3.0 * k1 + r2 * (5.0 * k2 + r2 * 7.0 * k3)) - 6.0 * np.hypot(p1, p2) * radii
        folds = slopes <= 0.0
        first = np.where(folds.any(axis=1), folds.argmax(axis=1), len(RADII))
        reach = np.maximum(radii[np.arange(len(radii)), np.maximum(first - 1, 0)], self._least_reach)
        return np.concatenate([self.rows["lens"], reach[:, None]], axis=1)

    def _frame(self, row: int) -> BentFrame:
        if row not in self._frames:
            width, height = self.sizes[row].astype(np.int64).tolist()
            back = self._to_output[row] @ self._to_lens[row]
            is_mirrored = bool(self._is_turned[row])
            self._frames[row] = BentFrame(self._table, row, (height, width), back, is_mirrored=is_mirrored)
        return self._frames[row]

    @cached_property
    def _folds_within(self) -> Bool:
        """(B,): whether the lens folds the image over within the frame."""
        folds: Bool = self._lenses[:, 5] < self._divisors[1].max(axis=1) * (1.0 - 1e-9)
        return folds

    def hides_outlines(self, row: int) -> bool:
        """Whether the lens folds the image over, so that a look alone knows of what lies behind the fold."""
        return bool(self._has_lens[row] and self._folds_within[row])

    def outermost_shown(self, rings: Sequence[Float], row: int, bounds: Float) -> Float:
        """(K, 2) points around the output pixels within (4,) `bounds` that show the inside of source rings; none where
        the frame shows no place twice, as outlines tell all there."""
        found = np.empty((0, 2))
        if self.is_looked_at[row] and bounds.any() and self._frame(row).folds:
            frame, seen = self._frame(row), self.seen[row]
            found = np.concatenate([found, *(frame.outermost(ring, seen, bounds) for ring in rings)])
        if self._holes is not None:
            found = found[~self._is_within(self._holes[[row]], found, 0.0)]
        return found

    def to_lens(self, points: Float, item: Int, *, is_outline: bool = False) -> tuple[Float, Bool, Bool]:
        """(N, 2) points of the frame in lens coordinates, of source points, whether the lens shows them, and whether
        that is not at a fold of a grid or an elastic field; of outlines that is not asked for, which takes less."""
        is_seen, is_single = np.ones(len(points), np.bool_), np.ones(len(points), np.bool_)
        if not self.bends.any():
            return mapped_points(self._to_lens, points, item)[:, :2], is_seen, is_single
        kinds = self._kind[item]
        for row in np.unique(item[kinds == SPLINE]):
            own = np.flatnonzero(item == row)
            moved, is_seen[own], is_single[own] = self._frame(row).unbend(points[own], finds_one=is_outline)
            points = points.copy()
            points[own] -= moved
        looked_up: Float = mapped_points(self._to_lens, points, item)[:, :2]
        gridded = np.flatnonzero(kinds == GRID)
        if len(gridded):
            found, is_alone = np.empty((len(gridded), 2)), np.empty(len(gridded), np.bool_)
            rows = first_parts(self._table)
            unbend_grid(np.ascontiguousarray(looked_up[gridded]), rows, item[gridded], self._per_px, found, is_alone)
            looked_up[gridded], is_single[gridded] = found, is_alone
        bent = np.flatnonzero(self._has_lens[item])
        if len(bent):
            found, is_found = np.empty((len(bent), 2)), np.empty(len(bent), np.bool_)
            lenses = self._lenses
            unbend(np.ascontiguousarray(looked_up[bent]), item[bent], lenses, found, is_found)
            looked_up[bent] = found
            is_seen[bent] = is_found & (np.hypot(found[:, 0], found[:, 1]) <= lenses[item[bent], 5] * (1.0 + 1e-9))
        return looked_up, is_seen, is_single

    def to_output(self, points: Float, item: Int, *, counts_folds: bool = False) -> tuple[Float, Bool]:
        """(N, 2) output points of source points, and (N,) whether the output shows them, through all passes.

        A point that is not shown has the place where it would be if the lens went straight on beyond the frame; behind
        the horizon of a perspective that is NaN.

        Args:
            points: in source pixels.
            item: whose record each belongs to.
            counts_folds: whether places count that a grid or an elastic field shows more than once.
        """
        is_kept = np.ones(len(points), np.bool_)
        for earlier in self.before:
            points, is_shown = earlier.to_output(points, item, counts_folds=counts_folds)
            is_kept &= is_shown
        in_lens, is_seen, is_single = self.to_lens(points, item)
        is_seen &= is_kept & (is_single | counts_folds)
        homogeneous = mapped_points(self._to_output, in_lens, item)
        inverse_divisor = homogeneous[:, 2:]
        is_in_front = inverse_divisor[:, 0] > 0.0
        found: Float = homogeneous[:, :2] / np.where(is_in_front[:, None], inverse_divisor, np.nan)
        seen = self.seen[item]
        with np.errstate(invalid="ignore"):
            is_in_frame: Bool = self._is_within(self.windows[item], found, ROUNDING_PX)
            if self._holes is not None:
                is_in_frame &= ~self._is_within(self._holes[item], found, -ROUNDING_PX)
        is_in_image = ((points >= seen[:, :2]) & (points <= seen[:, 2:])).all(axis=1)
        is_near = inverse_divisor[:, 0] <= 1.0 / LEAST_DIVISOR
        return found, is_seen & is_in_front & is_near & is_in_frame & is_in_image

    @staticmethod
    def _is_within(edges: Float, points: Float, margin_px: float) -> Bool:
        within: Bool = np.all((points >= edges[:, :2] - margin_px) & (points <= edges[:, 2:] + margin_px), axis=1)
        return within

    def parts_shown(self, rings: Rings) -> list[Float]:
        """The rectangles in which the outputs show the images of R mapped outlines, as (R, 4) arrays: one, or four of
        which most are empty, where an outline reaches under a hole."""
        windows = self.windows[rings.item]
        if self._holes is None:
            return [windows]
        holes, bounds = self._holes[rings.item], rings.bounds()
        is_apart: Bool = np.any(bounds[:, 2:] <= holes[:, :2], axis=1) | np.any(bounds[:, :2] >= holes[:, 2:], axis=1)
        is_apart |= np.any(holes[:, 2:] <= holes[:, :2], axis=1)
        if is_apart.all():
            return [windows]
        holes = np.where(is_apart[:, None], windows[:, LOW], holes)
        left, top, right, bottom = windows.T
        hole_left, hole_top, hole_right, hole_bottom = holes.T
        parts = (
            (hole_right, top, right, bottom),  # all of the window where the hole is none
            (left, top, hole_left, bottom),
            (hole_left, top, hole_right, hole_top),
            (hole_left, hole_bottom, hole_right, bottom),
        )
        shown = [np.stack(edges, axis=1) for edges in parts]
        for edges in shown:  # of rings that only touch one without an area, rounding might leave a sliver there
            is_empty: Bool = np.any(edges[:, 2:] <= edges[:, :2], axis=1)
            edges[is_empty] = NOWHERE
        return shown

    def project(self, rings: Rings) -> Rings:
        """The rings, given in lens coordinates, in output pixels; what nears a perspective's horizon is cut off."""
        if self._is_projective[rings.item].any():
            divisors = self._divisors[0]
            least, most = 1.0 / (FURTHER * divisors.max(axis=1)), 1.0 / LEAST_DIVISOR
            for sign, limit in ((1.0, -least), (-1.0, np.full(len(least), most))):
                lines = sign * self._to_output[:, 2]
                lines[:, 2] += limit
                rings = clipped(rings, lines[rings.item])
        homogeneous = mapped_points(self._to_output, rings.points, rings.item_of_points)
        return rings.at(homogeneous[:, :2] / homogeneous[:, 2:])

    def fitted(self, rings: Rings, limits: Float, bounds: Float) -> Float:
        """(R, 4) bounds of R source rings within (R, 4) parts of the output, fitted to the pixels that show them."""
        for row in np.unique(rings.item[self.is_looked_at[rings.item]]):
            own = np.flatnonzero(rings.item == row)
            if self.hides_outlines(row):
                bounds[own] = 0.0
            self._frame(row).fit(rings, own, limits, bounds)
        return bounds

    def pieces(self, rings: Rings, ends: Float, least: int) -> Int:
        """(N,): into how many pieces the edges from N corners to (N, 2) ends are divided before it is seen how far they
        are bent: `least`, and in a frame with nodes so many that no piece passes two of them."""
        item = rings.item_of_points
        counts = np.full(len(item), least)
        has_nodes = np.flatnonzero(np.isin(self._kind[item], (GRID, SPLINE)))
        if len(has_nodes):
            chosen, field = item[has_nodes], self.rows["field"][item[has_nodes]]
            first, last = (
                mapped_points(self._to_lens, points[has_nodes], chosen)[:, :2] for points in (rings.points, ends)
            )
            px = np.where(field["kind"] == SPLINE, self.px_per_unit()[chosen] * PIECES_PER_NODE, 1.0)
            nodes = np.linalg.norm((last - first) * field["scale"], axis=1) * px
            counts[has_nodes] = np.clip(np.ceil(nodes), least, MOST_PIECES)
        return counts

    def px_per_unit(self) -> Float:
        """(B,): the most output pixels that a unit of lens coordinates is long within the frame."""
        length = np.linalg.norm(self._to_output[:, :2, :2], axis=(1, 2))
        scaled: Float = np.where(self._is_projective, 2.0 * length * self._divisors[0].max(axis=1), length)
        return scaled
