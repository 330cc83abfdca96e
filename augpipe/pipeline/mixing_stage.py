"""How samples of a batch find those that they are mixed with, and the stages that mix them once all are rendered.

The partner is a function of the position in the epoch (`partners`). Where it is not an item of the same batch it
becomes a guest of the batch: an item behind its own ones, which is read, decoded, replaced if need be and rendered like
any other, and not handed out.
"""

from collections.abc import Callable, Sequence

import numpy as np

from augpipe.mixed_labels import mix_labels
from augpipe.pipeline.blocks import Block, BlockMixing, Ints
from augpipe.pipeline.items import BatchInProgress, Item
from augpipe.planning.mixing_draws import MIX_DRAW, draw_mixing, mix_jobs, write_mixing
from augpipe.recipes.recipe import Recipe
from augpipe.sampling import epoch_order
from augpipe.sources.protocol import Source, columns_of, labels_of


def mixed_block(
    recipe: Recipe,
    seed: int,
    epoch: int,
    positions: Ints,
    *,
    num_positions: int,
    num_batches: int,
    batch_size: int,
    world_size: int,
    ids_at: Callable[[Ints], Ints],
    is_sampled: bool,
) -> Block:
    """A block of batches with their guests.

    What is drawn is that of the sample that was asked for, also where another one stands in its place: so which guests
    there are is known before anything is read.

    Args:
        recipe: one that mixes.
        seed, epoch: the loader's.
        positions: (N,) in the epoch, `world_size` apart.
        num_positions: in the whole epoch.
        num_batches: of the block; the last ones may be cut short or empty.
        batch_size: samples of a batch, without guests.
        world_size: ranks.
        ids_at: (n,) positions, of any rank -> (n,) sample ids.
        is_sampled: whether draws are by position.
    """
    num, ids = len(positions), ids_at(positions)
    partners = epoch_order.partners(positions, num_positions)
    drawn = draw_mixing(recipe.mixing, seed, epoch, positions if is_sampled else ids, is_sampled=is_sampled)
    drawn["kind"][partners == positions] = 0
    batches = np.arange(num) // batch_size
    numbers, off = np.divmod(partners - positions[:1], world_size) if num else (partners, partners)
    is_beside = (off == 0) & (numbers >= 0) & (numbers < num) & (numbers // batch_size == batches)
    # a partner that is mixed with a third one is changed meanwhile: it comes once more, as a guest
    is_beside &= epoch_order.partners(partners, num_positions) == positions
    brings = (drawn["kind"] > 0) & ~is_beside
    guests = partners[brings]
    of_batch = np.concatenate([batches, batches[brings]])
    arranged = np.argsort(of_batch, kind="stable")
    starts = np.searchsorted(of_batch[arranged], np.arange(num_batches + 1))
    places = np.empty(len(arranged), np.int64)
    places[arranged] = np.arange(len(arranged)) - starts[of_batch[arranged]]
    partner_places = np.full(len(arranged), -1, np.int64)
    partner_places[:num][is_beside] = places[numbers[is_beside]]
    partner_places[:num][brings] = places[num:]
    all_drawn = np.zeros(len(arranged), MIX_DRAW)
    all_drawn[:num] = drawn
    all_positions = np.concatenate([positions, guests])[arranged]
    mixing = BlockMixing(
        drawn=all_drawn[arranged],
        partner_places=partner_places[arranged],
        starts=starts,
        num_own=np.bincount(batches, minlength=num_batches),
    )
    all_ids = np.concatenate([ids, ids_at(guests)])[arranged]
    return Block(epoch, all_ids, all_positions if is_sampled else None, mixing)


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
