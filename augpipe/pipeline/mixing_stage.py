"""How samples of a batch find those that they are mixed with, and the stages that mix them once all are rendered.

The partner is a function of the position in the epoch (`partners`). Where it is not an item of the same batch it
becomes a guest of the batch: an item behind its own ones, which is read, decoded, replaced if need be and rendered like
any other, and not handed out.
"""

from collections.abc import Callable, Sequence

import numpy as np

from augpipe.gpu_ops.image.program_rows import as_bytes, copied
from augpipe.mixed_labels import mix_labels
from augpipe.pipeline.blocks import BlockMixing, BlockSamples, Ints
from augpipe.pipeline.items import BatchInProgress, Item
from augpipe.planning.mixing_draws import draw_mixing, mix_jobs, pastes, rectangles, write_mixing
from augpipe.planning.regions import narrow_to_windows
from augpipe.recipes.recipe import Recipe
from augpipe.sampling import epoch_order
from augpipe.sources.protocol import Source, columns_of, labels_of


def with_partners(
    recipe: Recipe,
    seed: int,
    epoch: int,
    samples: BlockSamples,
    *,
    num_positions: int,
    batch_size: int,
    world_size: int,
    ids_at: Callable[[Ints], Ints],
    is_sampled: bool,
) -> tuple[BlockSamples, BlockMixing]:
    """The samples of a block with those that its own are mixed with, and how.

    What is drawn is that of the sample that was asked for, also where another one stands in its place: so which guests
    there are is known before anything is read.

    Args:
        recipe: one that mixes.
        seed, epoch: the loader's.
        samples: without guests, `world_size` apart in the epoch.
        num_positions: in the whole epoch.
        batch_size: samples of a batch, without guests.
        world_size: ranks.
        ids_at: (n,) positions, of any rank -> (n,) sample ids.
        is_sampled: whether draws are by position.
    """
    positions, batches, num = samples.positions, samples.batches, len(samples.positions)
    shows = 1 if recipe.mosaic is None else recipe.mosaic.num_images
    partners = epoch_order.partners(positions, num_positions, shows)
    drawn = draw_mixing(recipe.mixing, seed, epoch, positions if is_sampled else samples.ids, is_sampled=is_sampled)
    drawn["kind"][partners == positions] = 0
    numbers, off = np.divmod(partners - positions[:1], world_size) if num else (partners, partners)
    is_beside = (off == 0) & (numbers >= 0) & (numbers < num) & (numbers // batch_size == batches)
    # a partner that is mixed with a third one is changed meanwhile: it comes once more, as a guest
    is_beside &= epoch_order.partners(partners, num_positions, shows) == positions
    brings = (drawn["kind"] > 0) & ~is_beside
    guests = partners[brings]
    samples, order = samples.with_guests(ids_at(guests), guests, batches[brings])
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - samples.starts[samples.batches]
    partner_places = np.full(num, -1, np.int64)
    partner_places[is_beside] = places[numbers[is_beside]]
    partner_places[brings] = places[num:]
    return samples, BlockMixing(drawn=drawn, partner_places=partner_places).arranged(order)


def plan_mixing(batch: BatchInProgress, items: Sequence[Item]) -> None:
    """Write into the plan of a batch, whose items stay what they are from now on, what is mixed, and list the jobs."""
    mixing, plan = batch.request.block.mixing, batch.plan
    if mixing is None:
        return
    assert plan is not None
    drawn, places = mixing.drawn[batch.request.cut], mixing.partner_places[batch.request.cut]
    partners = np.where(places >= 0, plan.sample_ids[places], -1)
    write_mixing(plan.views, plan.recipe.mixing, drawn, partners)
    batch.mix_jobs = tuple(mix_jobs(rows, plan.recipe.mixing, places) for rows in plan.views)


def seen_windows(batch: BatchInProgress) -> list[Ints]:
    """For each view of a planned batch, (B, 4) left, top, right and bottom of the part of the outputs in which images
    may be seen: anywhere in the batch's own ones, and where something is pasted from those that it is mixed with."""
    mixing, plan, num, outputs = batch.request.block.mixing, batch.plan, len(batch.items), batch.request.outputs
    assert plan is not None
    windows = [np.tile(np.array([0, 0, width, height]), (num, 1)) for height, width in batch.sizes]
    if mixing is not None:
        drawn, places = mixing.drawn[batch.request.cut], mixing.partner_places[batch.request.cut]
        own = np.flatnonzero(pastes(plan.recipe.mixing, drawn["kind"]) & (places >= batch.num_own))
        for view, of_view in enumerate(windows):
            width, height = of_view[own, 2:].T
            of_view[places[own]] = rectangles(drawn[own], width, height)
            of_view[:] = of_view[outputs]
            for place, found in batch.pasted[view].items() if batch.pasted else ():
                if places[place] >= batch.num_own:
                    of_view[[*found.windows]] = [*found.windows.values()]
    return windows


def narrow_guests(batch: BatchInProgress) -> None:
    """Have only that decoded of a planned batch's guests which is pasted on the batch's own images."""
    if batch.request.block.mixing is None or batch.num_own == len(batch.items):
        return
    windows = seen_windows(batch)
    is_cut = np.any(
        [of_view != (0, 0, width, height) for of_view, (height, width) in zip(windows, batch.sizes, strict=True)],
        axis=(0, 2),
    )
    guests = np.flatnonzero(is_cut)
    guests = guests[[batch.items[guest].region is not None for guest in guests]]
    if not len(guests):
        return
    batch.tables = tuple(copied(rows) for rows in batch.tables)
    tables = [rows[guests] for rows in batch.tables]
    regions = narrow_to_windows(tables, batch.sizes, [of_view[guests] for of_view in windows])
    for rows, narrowed in zip(batch.tables, tables, strict=True):
        as_bytes(rows)[guests] = as_bytes(narrowed)
    for guest, region in zip(guests.tolist(), regions.tolist(), strict=True):
        if region[2] > region[0]:
            batch.items[guest].region = region


def is_mixed_first(batch: BatchInProgress) -> list[Item]:
    """The items whose images are the first ones of a job, in their order."""
    return [batch.items[place] for place in batch.mix_jobs[0]["places"][:, 0].tolist()] if batch.mix_jobs else []


def label(source: Source, batch: BatchInProgress, items: Sequence[Item]) -> None:
    """Look up labels and columns of a planned batch, and mix the labels as the images of its first view are."""
    assert batch.plan is not None
    batch.columns = columns_of(source, batch.plan.sample_ids[: batch.num_own])
    labels, mixing = labels_of(source, batch.plan.sample_ids), batch.request.block.mixing
    if mixing is None:
        batch.labels = labels[: batch.num_own]
        return
    mixed, places = batch.plan.rows["mixing"], mixing.partner_places[batch.request.cut]
    others = np.where(mixed["kind"] > 0, places, np.arange(len(places)))
    batch.labels = mix_labels(labels, mixed["weight"], others, batch.num_own)
