"""How the images of a mosaic come into a batch, and the stage that puts them together once all are rendered.

A mosaic shows its sample and three others, its guests: items behind the batch's own ones, which are read, decoded,
replaced if need be and rendered like any other. All four are planned by the draws of the first, each at its place of
the canvas, so that an output pixel shows the one image in whose quarter of the canvas it lies.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.ops.mosaic import NUM_CELLS
from augpipe.pipeline.blocks import Block, BlockMosaic, Ints
from augpipe.pipeline.items import BatchInProgress, Item
from augpipe.planning.look_up import source_points
from augpipe.planning.mosaic_draws import draw_mosaic
from augpipe.recipes.recipe import Recipe
from augpipe.sampling import epoch_order

Rows = npt.NDArray[np.void]
Bools = npt.NDArray[np.bool_]


def check_mosaics(recipes: Sequence[Recipe], *, is_native: bool, has_targets: bool) -> None:
    """Refuse recipes with a mosaic where a loader does not make them.

    Raises:
        ValueError: batches are not made on the CPU by the native backend, or have labels only.
    """
    for recipe in recipes:
        if recipe.mosaic is not None and not is_native:
            raise ValueError(
                f"{recipe.called} has a mosaic, which is made on the CPU by the native backend only. Choose "
                'device="cpu" and backend="native", or leave the mosaic out.'
            )
        if recipe.mosaic is not None and not has_targets:
            raise ValueError(
                f"{recipe.called} has a mosaic, whose four images have no one label, and these batches have no "
                "targets. Give a source with annotations, or leave the mosaic out."
            )


def mosaic_block(
    recipe: Recipe,
    seed: int,
    epoch: int,
    positions: Ints,
    *,
    num_positions: int,
    num_batches: int,
    batch_size: int,
    ids_at: Callable[[Ints], Ints],
    is_sampled: bool,
) -> Block:
    """A block of batches with the guests of their mosaics; arguments as of `mixing_stage.mixed_block`."""
    assert recipe.mosaic is not None
    num, ids = len(positions), ids_at(positions)
    drawn = draw_mosaic(recipe.mosaic, seed, epoch, positions if is_sampled else ids, is_sampled=is_sampled)
    with_guests = np.flatnonzero(drawn["applied"])
    guests = epoch_order.mosaic_partners(positions[with_guests], num_positions)
    owners = np.concatenate([np.arange(num), np.repeat(with_guests, NUM_CELLS - 1)])
    batches = owners // batch_size
    arranged = np.argsort(batches, kind="stable")
    owners, of_batch = owners[arranged], batches[arranged]
    all_ids = np.concatenate([ids, ids_at(guests.reshape(-1))])[arranged]
    cells = np.concatenate([np.zeros(num, np.int64), np.tile(np.arange(1, NUM_CELLS), len(with_guests))])
    placed: Rows = drawn[owners]
    placed["cell"] = cells[arranged]
    mosaic = BlockMosaic(
        placed=placed,
        drawn_by=ids[owners],
        outputs=owners - of_batch * batch_size,
        starts=np.searchsorted(of_batch, np.arange(num_batches + 1)),
        num_own=np.bincount(np.arange(num) // batch_size, minlength=num_batches),
    )
    return Block(epoch, all_ids, positions[owners] if is_sampled else None, mosaic=mosaic)


def name_partners(batch: BatchInProgress, items: Sequence[Item]) -> None:
    """Write into the plan of a batch, whose items stay what they are from now on, which samples stand together."""
    mosaic, plan = batch.request.block.mosaic, batch.plan
    assert mosaic is not None and plan is not None
    outputs = mosaic.outputs[batch.request.cut]
    for rows in plan.views:
        rows["mosaic"]["partners"] = -1
        guests = np.flatnonzero(rows["mosaic"]["cell"] > 0)
        rows["mosaic"]["partners"][outputs[guests], rows["mosaic"]["cell"][guests] - 1] = rows["sample_id"][guests]


def is_mosaic(batch: BatchInProgress) -> list[Item]:
    """The items whose images are put together of several."""
    assert batch.plan is not None
    return [item for item in batch.items[: batch.num_own] if batch.plan.rows["mosaic"]["applied"][item.position]]


def guests_of(batch: BatchInProgress, position: int) -> Ints:
    """(3,) the places in the batch of the other images of a mosaic, in the order of their cells."""
    mosaic = batch.request.block.mosaic
    assert mosaic is not None
    outputs = mosaic.outputs[batch.request.cut]
    return batch.num_own + np.flatnonzero(outputs[batch.num_own :] == position)


def quarters(row: Rows) -> list[Bools]:
    """Which (H, W) pixels of a mosaic show the images in cells 1, 2 and 3, by the (1,) plan record of cell 0.

    Where the four images meet, cell 0's ends: to the right of its last column and below its last row lie the others.
    """
    height, width = int(row["out_height"][0]), int(row["out_width"][0])
    is_straight = not row["lens"].any() and not row["before_divisor"][:, :2].any()
    x, y = np.arange(width) + 0.5, np.arange(height) + 0.5
    if is_straight:
        (x0, y0), (x_right, y_right), (x_down, y_down) = source_points(
            row, np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 1.5]]), np.zeros(3, np.int64)
        )
        seen_x = (x_down - x0) * (y - 0.5)[:, None] + ((x_right - x0) * (x - 0.5) + x0)
        seen_y = (y_down - y0) * (y - 0.5)[:, None] + ((y_right - y0) * (x - 0.5) + y0)
    else:
        points = np.stack(np.broadcast_arrays(x, y[:, None]), axis=2).reshape(-1, 2)
        found = source_points(row, points, np.zeros(len(points), np.int64)).reshape(height, width, 2)
        seen_x, seen_y = found[:, :, 0], found[:, :, 1]
    is_right, is_below = seen_x >= row["width"][0], seen_y >= row["height"][0]
    return [is_right & ~is_below, ~is_right & is_below, is_right & is_below]


def put_together(batch: BatchInProgress, images: npt.NDArray[Any], position: int, view: int, *, planar: bool) -> None:
    """Copy into an image of a batch what its guests show of their quarters.

    Args:
        batch: the batch.
        images: of a view, guests too: (B, C, H, W) if `planar`, else (B, H, W, ..).
        position: of the image.
        view: of the recipe's views.
        planar: whether channels come first.
    """
    assert batch.plan is not None
    row = batch.plan.views[view][position : position + 1]
    for guest, quarter in zip(guests_of(batch, position).tolist(), quarters(row), strict=True):
        own = images[position]
        shown = quarter if planar else quarter.reshape(*quarter.shape, *(1,) * (own.ndim - 2))
        np.copyto(own, images[guest], where=shown)
