"""What the ranks of a model axis agree on before each forward pass: how many images each has, and which pass it is."""

from typing import Any

import torch
from torch import Tensor, nn

from augpipe.trainer.parallel.dropout import SplitDropout
from augpipe.trainer.parallel.link import Link

_ROOM = 2**20
"""Images of a rank's batch, at most: an image's number is its rank's times this, and its place in the batch."""


class ForwardPass:
    """The forward pass under way, for all chains of a network."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.number = 0
        """Forward passes in training so far, by which dropout draws; it wraps around at 2^32."""
        self._rows: tuple[int, ...] = ()

    def __deepcopy__(self, _memo: Any) -> "ForwardPass":
        return self

    def begin(self, network: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any]) -> None:
        """A forward pre-hook of the network: compare notes, so that ranks that do different things are noticed.

        Raises:
            ValueError: no tensor is among the inputs.
            SyncError: one rank trains while another evaluates, or has taken another number of steps.
        """
        self.number = (self.number + network.training) % 2**32
        num_images = _num_images(network, inputs, named_inputs)
        mine = [num_images, int(network.training), self.number, int(torch.is_grad_enabled())]
        everyones = self.link.agree(mine)
        for other, theirs in enumerate(everyones):
            if theirs[1:] != mine[1:]:
                what = [
                    f"rank {rank} is in forward pass {number} of {'training' if trains else 'evaluation'}"
                    f"{'' if graded else ' without gradients'}"
                    for rank, (_, trains, number, graded) in zip(
                        (self.link.ranks[self.link.rank], self.link.ranks[other]), (mine, theirs), strict=True
                    )
                ]
                raise self.link.fail(" and ".join(what))
        self._rows = tuple(theirs[0] for theirs in everyones)

    def rows_of(self, x: Tensor) -> tuple[int, ...]:
        """How many images each rank of the model axis has; `x` is what this rank has of them.

        Raises:
            ValueError: that is not one row an image, or no pass has begun.
        """
        if not self._rows:
            raise ValueError("split layers were called outside of their network: call the network that split returned.")
        if len(x) != self._rows[self.link.rank]:
            raise ValueError(
                f"split layers got {len(x)} rows, and the network {self._rows[self.link.rank]} images: only layers "
                "that see one row an image can be split. Leave this one out of layers."
            )
        return self._rows

    def drop(
        self,
        dropout: SplitDropout,
        x: Tensor,
        *,
        rows: tuple[int, ...] | None = None,
        firsts: tuple[int, ...] | None = None,
        cuts: tuple[int, ...] | None = None,
    ) -> Tensor:
        """Apply a dropout layer to features of this rank's images, or to its columns of those of the model axis.

        Args:
            dropout: the layer.
            x: (rows, features) or (rows, depth, features).
            rows: how many images of each rank; None for whole batches.
            firsts: the place of the first one in each rank's batch.
            cuts: where the features are cut into columns; None where `x` has all of them, of this rank's images.
        """
        rows = rows or self.rows_of(x)
        firsts = firsts or (0,) * self.link.size
        ranks = range(self.link.size) if cuts else [self.link.rank]
        images = torch.cat(
            [
                torch.arange(firsts[rank], firsts[rank] + rows[rank], device=x.device) + self.link.ranks[rank] * _ROOM
                for rank in ranks
            ]
        )
        return dropout.drop(x, images, cuts[self.link.rank] if cuts else 0, self.number)


def _num_images(network: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any]) -> int:
    """The length of the first tensor that the network is called with, which counts its images."""
    for value in (*inputs, *named_inputs.values()):
        if isinstance(value, Tensor) and value.ndim:
            return len(value)
    raise ValueError(
        f"a {type(network).__name__} with split layers was called without a tensor of images. Give it one, with an "
        "image a row, as the first argument or by its name."
    )
