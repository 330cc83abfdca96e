"""What an epoch holds for a rank: which samples stand where, and how they are cut into batches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from augpipe.pipeline.blocks import BLOCK_SIZE, Block, BlockSamples, Ints, Request
from augpipe.pipeline.mixing_stage import with_partners
from augpipe.pipeline.mosaic_stage import with_guests
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.schedule import Schedule
from augpipe.sampling import Sampling, epoch_order
from augpipe.sampling.epoch_order import Place
from augpipe.validation.plural import count

_LOOKED_AT_TOGETHER = 2**20
"""Positions of an epoch among which a sample is looked for at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Epochs:
    """The epochs of a rank's loader.

    Raises:
        ValueError: `drop_last` leaves none of an epoch.
    """

    num_samples: int
    """Samples in an epoch, of all ranks."""
    batch_size: int
    """Images in a batch of one rank."""
    rank: int
    world_size: int
    drop_last: bool
    shuffle: bool | Literal["sticky"]
    sampling: Sampling | None
    """What draws the samples; None where an epoch is each of the source's samples once."""

    def __post_init__(self) -> None:
        if self.num_batches() == 0:
            what = "the source holds" if self.sampling is None else "the sampler draws"
            raise ValueError(
                f"drop_last=True leaves no batch: {what} {count(self.num_samples, 'photograph')} and a "
                f"global batch {self.per_batch}. Lower batch_size, or leave drop_last out."
            )

    @property
    def per_batch(self) -> int:
        """Samples in a global batch."""
        return self.batch_size * self.world_size

    def num_batches(self, consumed: int = 0) -> int:
        """Batches in what is left of an epoch, the same for every rank."""
        return epoch_order.num_batches(self.num_samples - consumed, self.batch_size, self.world_size, self.drop_last)

    def is_over(self, consumed: int) -> bool:
        """Whether an epoch of which so many samples were taken has no more batch."""
        rest = self.num_samples - consumed
        return rest == 0 or (self.drop_last and rest < self.per_batch and consumed > 0)

    def requests(self, recipe: Recipe, seed: int, epoch: int, consumed: int) -> Iterator[Request]:
        """The rank's batches of an epoch of which `consumed` samples were taken by all ranks."""
        num = self.num_batches(consumed)
        per_block = -(-BLOCK_SIZE // self.batch_size)
        for number in range(0, num, per_block):
            first, num_together = consumed + number * self.per_batch, min(per_block, num - number)
            block = self._block(recipe, seed, epoch, first, num_together)
            yield from block.requests(number, num_together, self.batch_size)

    def requests_at(self, places: Iterator[Place], schedule: Schedule, seed: int) -> Iterator[Request]:
        """The batches at places of any epoch, rank and world size, in their order.

        Raises:
            ValueError: these epochs have no batch there.
        """
        for number, place in enumerate(places):
            self._check_place(place)
            ranked = replace(self, rank=place.rank, world_size=place.world_size)
            block = ranked._block(schedule.at(place.epoch), seed, place.epoch, place.first, num_batches=1)
            yield from block.requests(number, 1, self.batch_size)

    def request_of(
        self, recipe: Recipe, seed: int, epoch: int, sample_id: int, number: int = 0, position: int | None = None
    ) -> Request:
        """A batch of this sample only, as it is in the batch that holds it.

        A sampler may hold it several times: `position` says which of them, in the epoch's order. None: the first one.

        Raises:
            ValueError: the epoch does not hold the sample, or has no such position.
        """
        if position is not None and self.sampling is None:
            raise ValueError(f"position {position} is for epochs of a sampler, and there is none. Leave it out.")
        if position is not None and not 0 <= position < self.num_samples:
            raise ValueError(
                f"position={position} is out of range: epoch {epoch} has the positions 0..{self.num_samples - 1}."
            )
        if self.sampling is None and not recipe.mixes_samples:
            block = Block(epoch, np.array([sample_id], np.int64))
        else:
            position = self._position_of(seed, epoch, sample_id) if position is None else position
            rank = position % self.world_size
            alone = replace(self, batch_size=1, rank=rank, drop_last=False)
            block = alone._block(recipe, seed, epoch, position - rank, num_batches=1)
        (request,) = block.requests(number, 1, batch_size=1)
        return request

    def _position_of(self, seed: int, epoch: int, sample_id: int) -> int:
        for first in range(0, self.num_samples, _LOOKED_AT_TOGETHER):
            positions = np.arange(first, min(first + _LOOKED_AT_TOGETHER, self.num_samples), dtype=np.int64)
            found = np.flatnonzero(self.sample_ids(seed, epoch, positions) == sample_id)
            if len(found):
                return first + int(found[0])
        raise ValueError(
            f"epoch {epoch} does not hold sample {sample_id}, as its sampler did not draw it. Name another epoch or "
            "sample."
        )

    def _check_place(self, place: Place) -> None:
        if not isinstance(place, Place):
            raise ValueError(f"places holds {place!r}, which is not a place. Write augpipe.Place(epoch=0, first=0).")
        if place.first >= self.num_samples:
            raise ValueError(
                f"{place} begins behind the epoch, which has {count(self.num_samples, 'sample')}: first must lie in "
                f"0..{self.num_samples - 1}. Go on with first=0 of the next epoch."
            )
        per_batch = self.batch_size * place.world_size
        if self.drop_last and place.first + per_batch > self.num_samples:
            raise ValueError(
                f"{place} is cut short by the epoch's end, and drop_last=True: first must be at most "
                f"{self.num_samples - per_batch}, as the epoch has {count(self.num_samples, 'sample')} and a global "
                f"batch {per_batch}. Leave the place out, or drop_last."
            )
        if self.shuffle == "sticky" and place.first % place.world_size:
            raise ValueError(
                f'{place} lies between the samples of its rank, and shuffle="sticky": first must be a multiple of '
                f"world_size={place.world_size}. Cut an epoch by one world size, or choose shuffle=True."
            )

    def _block(self, recipe: Recipe, seed: int, epoch: int, first: int, num_batches: int) -> Block:
        """The rank's samples of so many global batches, of which the first one begins at position `first`."""
        ids_at, is_sampled = partial(self.sample_ids, seed, epoch), self.sampling is not None
        num_positions = num_batches * self.batch_size
        positions = epoch_order.rank_positions(first, self.num_samples, num_positions, self.rank, self.world_size)
        if not recipe.mixes_samples:
            return Block(epoch, ids_at(positions), positions if is_sampled else None)
        samples = BlockSamples.of(ids_at(positions), positions, self.batch_size, num_batches)
        known: dict[str, Any] = {"num_positions": self.num_samples, "ids_at": ids_at, "is_sampled": is_sampled}
        mixing = mosaic = None
        if recipe.mixing:
            known_of_ranks = {"batch_size": self.batch_size, "world_size": self.world_size, **known}
            samples, mixing = with_partners(recipe, seed, epoch, samples, **known_of_ranks)
        if recipe.mosaic is not None:
            samples, mosaic, order = with_guests(recipe, seed, epoch, samples, **known)
            mixing = mixing and mixing.arranged(order)
        return Block(epoch, samples.ids, samples.positions if is_sampled else None, mixing, mosaic, samples)

    def sample_ids(self, seed: int, epoch: int, positions: Ints) -> Ints:
        """Which samples stand at positions of an epoch, of this rank or another one."""
        if self.sampling is not None:
            return self.sampling.sample_ids(positions, seed, epoch)
        if self.shuffle != "sticky":
            return epoch_order.sample_ids(positions, self.num_samples, seed, epoch, self.shuffle)
        ids, ranks = np.empty_like(positions), positions % self.world_size
        for rank in np.unique(ranks).tolist():
            own = positions[ranks == rank]
            ids[ranks == rank] = epoch_order.sticky_sample_ids(
                own, self.num_samples, seed, epoch, rank, self.world_size
            )
        return ids
