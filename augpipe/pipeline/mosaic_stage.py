"""How the images of a mosaic come into a batch, and the stage that puts them together once all are rendered.

A mosaic shows its sample and others, its guests: items behind the batch's own ones, which are read, decoded, replaced
if need be and rendered like any other. All are planned by the draws of the first, each at its place of the canvas, so
that an output pixel shows the one image in whose place it lies, or the fill.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.pipeline.blocks import BlockMosaic, BlockSamples, Ints
from augpipe.pipeline.items import BatchInProgress, Item
from augpipe.pipeline.mixing_stage import seen_windows
from augpipe.pipeline.planner import Planner
from augpipe.planning.fields import bent_points
from augpipe.planning.mosaic_draws import draw_mosaic
from augpipe.recipes.recipe import Recipe
from augpipe.sampling import epoch_order

Rows = npt.NDArray[np.void]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

Part = tuple[slice, slice]
"""Rows and columns of an output."""

SLACK_PX = 1e-3
"""How near an edge a pixel's centre counts as within it, for what is left out."""


def check_mosaics(recipes: Sequence[Recipe], *, is_native: bool, has_targets: bool) -> None:
    """Refuse recipes with a mosaic where a loader does not make them.

    Raises:
        ValueError: batches are not made by the native backend, or have labels only.
    """
    for recipe in recipes:
        if recipe.mosaic is not None and not is_native:
            raise ValueError(
                f"{recipe.called} has a mosaic, which the native backend makes and DALI does not. Choose "
                'backend="native", or leave the mosaic out.'
            )
        if recipe.mosaic is not None and not has_targets:
            raise ValueError(
                f"{recipe.called} has a mosaic, whose images have no one label, and these batches have no "
                "targets. Give a source with annotations, or leave the mosaic out."
            )


def with_guests(
    recipe: Recipe,
    seed: int,
    epoch: int,
    samples: BlockSamples,
    *,
    num_positions: int,
    ids_at: Callable[[Ints], Ints],
    is_sampled: bool,
) -> tuple[BlockSamples, BlockMosaic, Ints]:
    """The samples of a block with the guests of their mosaics, how these stand together, and (N,) which of all samples,
    the guests last, stands where; arguments as of `mixing_stage.with_partners`.
    """
    assert recipe.mosaic is not None
    num, num_guests = len(samples.ids), recipe.mosaic.num_images - 1
    drawn_by = samples.positions if is_sampled else samples.ids
    drawn = draw_mosaic(recipe.mosaic, seed, epoch, drawn_by, is_sampled=is_sampled)
    brings = np.flatnonzero(drawn["applied"])
    guests = epoch_order.mosaic_partners(samples.positions[brings], num_positions, recipe.mosaic.num_images)
    owners = np.concatenate([np.arange(num), np.repeat(brings, num_guests)])
    arranged, order = samples.with_guests(
        ids_at(guests.reshape(-1)), samples.positions[owners[num:]], samples.batches[owners[num:]]
    )
    cells = np.concatenate([np.zeros(num, np.int64), np.tile(np.arange(1, num_guests + 1), len(brings))])
    owners = owners[order]
    placed: Rows = drawn[owners]
    placed["cell"] = cells[order]
    outputs = owners - samples.starts[samples.batches[owners]]
    mosaic = BlockMosaic(placed=placed, drawn_by=samples.ids[owners], owners=owners, outputs=outputs)
    return arranged, mosaic, order


def name_partners(batch: BatchInProgress, items: Sequence[Item]) -> None:
    """Write into the plan of a batch, whose items stay what they are from now on, which samples stand together."""
    assert batch.plan is not None
    outputs = batch.request.outputs
    for rows in batch.plan.views:
        rows["mosaic"]["partners"] = -1
        guests = np.flatnonzero(rows["mosaic"]["cell"] > 0)
        rows["mosaic"]["partners"][outputs[guests], rows["mosaic"]["cell"][guests] - 1] = rows["sample_id"][guests]


def settle(
    batch: BatchInProgress,
    items: Sequence[Item],
    *,
    planner: Planner,
    again: Sequence[Callable[[BatchInProgress, Sequence[Item]], None]],
    replace: Callable[[BatchInProgress, Sequence[Item]], None],
) -> None:
    """Make again the images that lie elsewhere since another one of their mosaic was replaced: one of another shape.

    Args:
        batch: a batch whose items were all made.
        items: of the batch.
        planner: says which.
        again: the stages that make an item whose size is known, from its plan on.
        replace: puts other samples in the place of those that prove damaged then.
    """
    while moved := planner.moved(batch):
        if batch.hidden is not None:
            batch.hidden[[item.position for item in moved]] = False
        for stage in again:
            stage(batch, [item for item in moved if item.error is None])
        replace(batch, [item for item in moved if item.error is not None])


def is_mosaic(batch: BatchInProgress) -> list[Item]:
    """The items whose images are put together of several: the batch's own ones, and those that they are mixed with."""
    assert batch.plan is not None
    placed = batch.plan.rows["mosaic"]
    return [batch.items[position] for position in np.flatnonzero(placed["applied"] & (placed["cell"] == 0)).tolist()]


def are_hidden(batch: BatchInProgress) -> Bools:
    """(B,) which images of a planned batch are guests of which no view shows a pixel, as far as that is known: those of
    which nothing is pasted, and those of mosaics wherever lines stay straight."""
    plan, owners, windows_of_views = batch.plan, batch.request.outputs, seen_windows(batch)
    assert plan is not None
    is_empty = [(windows[:, 2:] <= windows[:, :2]).any(axis=1) for windows in windows_of_views]
    nothing_pasted: Bools = np.all(is_empty, axis=0)
    if batch.request.block.mosaic is None:
        return nothing_pasted
    found: Bools = owners != np.arange(len(owners))
    guests = np.flatnonzero(found)
    for rows, windows in zip(plan.views, windows_of_views, strict=True):
        straight = guests[~_bend(rows[owners[guests]])]
        beyond = np.zeros(len(found), np.bool_)
        places = rows["mosaic"]["place"][straight].astype(np.float64)
        beyond[straight] = _are_beyond(rows[owners[straight]], places, windows[straight].astype(np.float64))
        found &= beyond
    return found | nothing_pasted


def seen(batch: BatchInProgress, items: Sequence[Item]) -> Sequence[Item]:
    """Those of a batch's items that need to be read and rendered."""
    if batch.hidden is None:
        return items
    return [item for item in items if not batch.hidden[item.position]]


def _are_beyond(rows: Rows, places: Floats, windows: Floats) -> Bools:
    """(n,) whether parts of the canvas lie outside all pixels that windows of outputs show, by the plan records of the
    outputs, which do not bend.

    Two parallelograms have no point in common where a line along a side of one of them divides them.
    """
    each = np.arange(len(rows))
    corner, right, below = (
        _on_canvas(rows, windows[:, :2] + point, each) for point in ([0.5, 0.5], [1.5, 0.5], [0.5, 1.5])
    )
    steps = np.stack([right - corner, below - corner], axis=1)
    sides = windows[:, 2:] - windows[:, :2] - 1.0
    of_place = places[:, [[0, 1], [2, 1], [0, 3], [2, 3]]] - corner[:, None]
    of_output = np.array([[0, 0], [1, 0], [0, 1], [1, 1]]) * sides[:, None] @ steps
    of_pixels = of_place @ np.linalg.inv(steps)
    beyond: Bools = np.any(sides < 0.0, axis=1)
    for found, first, last in (
        (of_output, places[:, :2] - corner, places[:, 2:] - corner),
        (of_pixels, 0.0 * sides, sides),
    ):
        beyond |= ((found.max(axis=1) < first - SLACK_PX) | (found.min(axis=1) > last + SLACK_PX)).any(axis=1)
    return beyond


def _bend(rows: Rows) -> Bools:
    """(n,) whether lines that are straight on the canvas may be none in the output, or parallel ones meet."""
    bent: Bools = (rows["lens"] != 0.0).any(axis=1) | (rows["before_divisor"][:, :2] != 0.0).any(axis=1)
    return bent


def put_together(
    batch: BatchInProgress,
    images: npt.NDArray[Any],
    position: int,
    view: int,
    *,
    planar: bool,
    windows: Sequence[tuple[int, int, int, int] | None] | None = None,
) -> None:
    """Copy into an image of a batch what its guests show of it.

    Args:
        batch: the batch.
        images: of a view, guests too: (B, C, H, W) if `planar`, else (B, H, W, ..).
        position: of the image.
        view: of the recipe's views.
        planar: whether channels come first.
        windows: where of the outputs the images lie, see `BatchInProgress.windows`; None: all are whole.
    """
    own = np.moveaxis(images[position], 0, 2) if planar else images[position]
    for guest, (down, across), is_shown in pieces(batch, position, view):
        of_guest, left, top = images[guest], 0, 0
        if windows is not None and (window := windows[guest]) is not None:
            left, top, right, bottom = window
            shape = (3, bottom - top, right - left) if planar else (bottom - top, right - left, 3)
            of_guest = of_guest.reshape(-1)[: np.prod(shape)].reshape(shape)
        of_guest = np.moveaxis(of_guest, 0, 2) if planar else of_guest
        shown = of_guest[down.start - top : down.stop - top, across.start - left : across.stop - left]
        where = True if is_shown is None else is_shown.reshape(*is_shown.shape, *(1,) * (own.ndim - 2))
        np.copyto(own[down, across], shown, where=where)


def pieces(batch: BatchInProgress, position: int, view: int) -> Iterator[tuple[int, Part, Bools | None]]:
    """The places of the guests of which an output shows something, the part of it that does, and which pixels of that;
    None: all.

    Args:
        batch: the batch.
        position: of the image.
        view: of the recipe's views.
    """
    assert batch.plan is not None
    rows = batch.plan.views[view]
    _, *guests = np.flatnonzero(batch.request.outputs == position).tolist()  # cell by cell, the image's own one first
    for guest, (part, is_shown) in zip(guests, _shown(rows[[position]], rows[guests]), strict=True):
        down, across = part
        if down.start < down.stop and across.start < across.stop:
            yield guest, part, is_shown


def _shown(row: Rows, guests: Rows) -> Iterator[tuple[Part, Bools | None]]:
    """For each guest the part of the output that holds its place of the canvas, and which of its pixels lie in that;
    None: all. By the (1,) plan record of cell 0 and those of the guests.

    All pixels are placed in the canvas once: so each lies in one image's place, however a seam is rounded.
    """
    height, width = int(row["out_height"][0]), int(row["out_width"][0])
    if _bend(row)[0]:
        y, x = np.mgrid[:height, :width] + 0.5
        points = np.stack([x.reshape(-1), y.reshape(-1)], axis=1)
        points = _on_canvas(row, points, np.zeros(len(points), np.int64)).reshape(height, width, 2)
        for place in guests["mosaic"]["place"]:
            yield np.s_[0:height, 0:width], ((points >= place[:2]) & (points < place[2:])).all(axis=2)
        return
    corner, right, below = _on_canvas(row, np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 1.5]]), np.zeros(3, np.int64))
    along_x, along_y = right - corner, below - corner
    x, y = np.arange(width), np.arange(height)
    for left, top, right_end, bottom in guests["mosaic"]["place"].astype(np.float64):
        if along_x[1] == 0.0 and along_y[0] == 0.0:
            at_x, at_y = along_x[0] * x + corner[0], along_y[1] * y + corner[1]
            yield (_range((at_y >= top) & (at_y < bottom)), _range((at_x >= left) & (at_x < right_end))), None
            continue
        ends = np.array([[left, top], [right_end, top], [left, bottom], [right_end, bottom]]) - corner
        seen = np.linalg.solve(np.stack([along_x, along_y], axis=1), ends.T)
        (first_x, first_y), (last_x, last_y) = np.floor(seen.min(axis=1)), np.ceil(seen.max(axis=1)) + 1.0
        part = (
            slice(*np.clip([first_y, last_y], 0, height).astype(int)),
            slice(*np.clip([first_x, last_x], 0, width).astype(int)),
        )
        some_x, some_y = x[part[1]], y[part[0], None]
        at_x = along_y[0] * some_y + (along_x[0] * some_x + corner[0])
        at_y = along_y[1] * some_y + (along_x[1] * some_x + corner[1])
        yield part, (at_x >= left) & (at_x < right_end) & (at_y >= top) & (at_y < bottom)


def _on_canvas(rows: Rows, points: Floats, item: Ints) -> Floats:
    """(n, 2) points of the canvas of (n, 2) output points, each by one of the plan records."""
    places = rows["mosaic"]["place"].astype(np.float64)
    scale = (places[:, 2:] - places[:, :2]) / np.stack([rows["width"], rows["height"]], axis=1)
    found: Floats = bent_points(rows, points, item) * scale[item] + places[item, :2]
    return found


def _range(are_in: Bools) -> slice:
    """The range of True, all of which follow each other."""
    found = np.flatnonzero(are_in)
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(0, 0)
