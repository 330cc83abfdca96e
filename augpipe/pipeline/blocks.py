"""Batches are asked for in blocks: what is known of a block's samples beforehand is looked up and planned at once."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.cache import Sizes
from augpipe.gpu_ops.image.program_rows import copied
from augpipe.planning.plan import Plan

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

BLOCK_SIZE = 1_024
"""Samples that a block holds at least, unless the epoch ends: what numpy takes for each call weighs little then."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedSamples:
    """What is done to samples."""

    plan: Plan
    factors: Ints
    """(N,): the DCT factor that each image is decoded at."""
    tables: tuple[Rows, ...]
    """For each view, (N,) `gpu_ops.image.rows.KERNEL_ROW`."""

    def copy_of(self, cut: slice) -> "PlannedSamples":
        """The same of a part of them, in memory of its own."""
        views = tuple(copied(rows[cut]) for rows in self.plan.views)
        tables = tuple(copied(table[cut]) for table in self.tables)
        plan = Plan(recipe=self.plan.recipe, seed=self.plan.seed, views=views)
        return PlannedSamples(plan=plan, factors=self.factors[cut], tables=tables)


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockSamples:
    """The samples of some batches, those of each behind those of the one before, and its guests behind its own ones."""

    ids: Ints
    """(N,)."""
    positions: Ints
    """(N,) by which is drawn what is done to each, where that is drawn by position."""
    starts: Ints
    """(number of batches + 1,): where each batch begins in the block, and the last one ends."""
    num_own: Ints
    """(number of batches,): samples of each batch without its guests."""

    @classmethod
    def of(cls, ids: Ints, positions: Ints, batch_size: int, num_batches: int) -> "BlockSamples":
        """Batches without guests, of which the last ones may be cut short or empty."""
        starts = np.minimum(np.arange(num_batches + 1) * batch_size, len(ids))
        return cls(ids=ids, positions=positions, starts=starts, num_own=np.diff(starts))

    @property
    def batches(self) -> Ints:
        """(N,) the batch that each is of."""
        return np.repeat(np.arange(len(self.num_own)), np.diff(self.starts))

    def with_guests(self, ids: Ints, positions: Ints, batches: Ints) -> tuple["BlockSamples", Ints]:
        """The same with (G,) more guests, and (N + G,) which of all samples, the new ones last, now stands where."""
        of_batch = np.concatenate([self.batches, batches])
        order = np.argsort(of_batch, kind="stable")
        samples = BlockSamples(
            ids=np.concatenate([self.ids, ids])[order],
            positions=np.concatenate([self.positions, positions])[order],
            starts=np.searchsorted(of_batch[order], np.arange(len(self.starts))),
            num_own=self.num_own,
        )
        return samples, order


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockMixing:
    """How the samples of a block are mixed: each batch's own with others of its own, or with guests."""

    drawn: Rows
    """(N,) `planning.mixing.MIX_DRAW`; nothing is drawn for guests."""
    partner_places: Ints
    """(N,) where in its batch each sample's partner lies; -1 where it does not, as nothing is mixed then."""

    def arranged(self, order: Ints) -> "BlockMixing":
        """The same with guests that nothing is drawn for; (N + G,) as `BlockSamples.with_guests` found it."""
        drawn: Rows = np.zeros(len(order), self.drawn.dtype)
        places = np.full(len(order), -1)
        drawn[: len(self.drawn)], places[: len(self.drawn)] = self.drawn, self.partner_places
        return BlockMixing(drawn=drawn[order], partner_places=places[order])


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockMosaic:
    """Which images of a block stand in one mosaic: a batch's own one, or one that it is mixed with, and its guests."""

    placed: Rows
    """(N,) `planning.mosaic_draws.placed_dtype`, without places."""
    drawn_by: Ints
    """(N,) the sample whose draws each has: that of cell 0."""
    owners: Ints
    """(N,) numbers, the same for all of a mosaic."""
    outputs: Ints
    """(N,) the place in its batch of the image that shows it."""


class Block:
    """The samples of some batches that follow each other in an epoch; it lives as long as one of them is made.

    The first batch that asks for something has it found for the whole block, while the `lock` is held.
    """

    def __init__(
        self,
        epoch: int,
        sample_ids: Ints,
        positions: Ints | None = None,
        mixing: BlockMixing | None = None,
        mosaic: BlockMosaic | None = None,
        with_guests: BlockSamples | None = None,
    ) -> None:
        self.epoch = epoch
        self.sample_ids = sample_ids
        self.positions = positions
        """(N,) where they stand in the epoch, by which is drawn what is done to them; None: that is drawn by sample."""
        self.mixing = mixing
        """None where nothing is mixed."""
        self.mosaic = mosaic
        """None where no image is a mosaic."""
        self.with_guests = with_guests
        """How its samples are shared out; None: in batches of one size, without guests."""
        self.lock = threading.Lock()
        self.sizes: Sizes | None = None
        """(N,) as far as they are known before the samples are read; None where nobody has looked yet."""
        self.planned: PlannedSamples | None = None
        """None where nobody has planned it yet; arbitrary for samples whose size is not known."""
        self.regions: npt.NDArray[np.int32] | None = None
        """(N, 4), see `planning.regions.source_regions`; None where nobody has asked yet."""

    def requests(self, first_number: int, num_batches: int, batch_size: int) -> Iterator["Request"]:
        """Its batches, of which the last ones may be cut short or empty."""
        for place in range(num_batches):
            cut, num_own = slice(place * batch_size, (place + 1) * batch_size), None
            if (samples := self.with_guests) is not None:
                cut, num_own = slice(*samples.starts[place : place + 2].tolist()), int(samples.num_own[place])
            yield Request(number=first_number + place, block=self, cut=cut, num_own=num_own)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One batch to make."""

    number: int
    """Its place in the epoch: lower ones are made first."""
    block: Block
    cut: slice
    """Which of the block's samples these are."""
    num_own: int | None = None
    """How many of them are the batch's; those behind them are guests. None: all."""

    @property
    def epoch(self) -> int:
        return self.block.epoch

    @property
    def sample_ids(self) -> Ints:
        """(B,)."""
        return self.block.sample_ids[self.cut]

    @property
    def positions(self) -> Ints | None:
        """(B,), see `Block`."""
        return None if self.block.positions is None else self.block.positions[self.cut]

    @property
    def outputs(self) -> Ints:
        """(B,) the place in the batch of the image that shows each: its own place, but for guests of mosaics."""
        mosaic = self.block.mosaic
        return np.arange(len(self.sample_ids)) if mosaic is None else mosaic.outputs[self.cut]
