"""What an epoch holds for a rank: which samples stand where, and how they are cut into batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from augpipe import order
from augpipe.checks.plural import count
from augpipe.pipeline.blocks import BLOCK_SIZE, Block, Ints, Request
from augpipe.pipeline.mixing import mixed_block
from augpipe.recipe import Recipe
from augpipe.sampling import Sampling


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
        return order.num_batches(self.num_samples - consumed, self.batch_size, self.world_size, self.drop_last)

    def is_over(self, consumed: int) -> bool:
        """Whether an epoch of which so many samples were taken has no more batch."""
        rest = self.num_samples - consumed
        return rest == 0 or (self.drop_last and rest < self.per_batch and consumed > 0)

    def requests(self, recipe: Recipe, seed: int, epoch: int, consumed: int) -> Iterator[Request]:
        """The rank's batches of an epoch of which `consumed` samples were taken by all ranks."""
        num = self.num_batches(consumed)
        per_block = -(-BLOCK_SIZE // self.batch_size)
        ids_at, is_sampled = partial(self._sample_ids, seed, epoch), self.sampling is not None
        for number in range(0, num, per_block):
            first, num_together = consumed + number * self.per_batch, min(per_block, num - number)
            positions = order.rank_positions(
                first, self.num_samples, num_together * self.batch_size, self.rank, self.world_size
            )
            if recipe.mixing:
                block = mixed_block(
                    recipe,
                    seed,
                    epoch,
                    positions,
                    num_positions=self.num_samples,
                    num_batches=num_together,
                    batch_size=self.batch_size,
                    world_size=self.world_size,
                    ids_at=ids_at,
                    is_sampled=is_sampled,
                )
            else:
                block = Block(epoch, ids_at(positions), positions if is_sampled else None)
            yield from block.requests(number, num_together, self.batch_size)

    def _sample_ids(self, seed: int, epoch: int, positions: Ints) -> Ints:
        """Which samples stand at positions of an epoch, of this rank or another one."""
        if self.sampling is not None:
            return self.sampling.sample_ids(positions, seed, epoch)
        if self.shuffle != "sticky":
            return order.sample_ids(positions, self.num_samples, seed, epoch, self.shuffle)
        ids, ranks = np.empty_like(positions), positions % self.world_size
        for rank in np.unique(ranks).tolist():
            own = positions[ranks == rank]
            ids[ranks == rank] = order.sticky_sample_ids(own, self.num_samples, seed, epoch, rank, self.world_size)
        return ids
