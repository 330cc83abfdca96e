"""Exchanges of features as autograd sees them: begun in one place and ended in another, forward and backward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from augpipe.trainer.parallel.layouts import Hop
from augpipe.trainer.parallel.link import Link, Travelling


class Crossing:
    """One exchange of one piece of a batch: features on the way there, their error deltas on the way back.

    `begin` and `end` may be far apart: what is computed between them hides the exchange. Backward it is the same the
    other way round, and autograd reaches what was computed between them before it waits for the deltas. Deltas are
    those of the decoded features, straight through the codec.
    """

    def __init__(self, link: Link, hop: Hop, rows: tuple[int, ...]) -> None:
        self._link = link
        self._hop = hop
        self._rows = rows
        self._travelling: Travelling | None = None
        self._token: Tensor | None = None

    def begin(self, x: Tensor) -> "Crossing":
        """Begin with features in the hop's source layout."""
        self._token = _begin(x, self)
        return self

    def end(self) -> Tensor:
        """The features in the hop's target layout."""
        assert self._token is not None
        token, self._token = self._token, None
        return _end(token, self)

    def send(self, x: Tensor, *, back: bool) -> None:
        """Hand features, or deltas, to the link."""
        assert self._travelling is None
        hop, payload_class = (self._hop.adjoint, "deltas") if back else (self._hop, "activations")
        self._travelling = self._link.begin(hop, x, self._rows, payload_class)

    def receive(self) -> Tensor:
        """Wait for what `send` began."""
        assert self._travelling is not None
        travelling, self._travelling = self._travelling, None
        return self._link.end(travelling)


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, crossing: Crossing) -> Tensor:
        ctx.crossing = crossing
        crossing.send(x, back=False)
        return x.new_empty(0)

    @staticmethod
    def backward(ctx: Any, _token: Tensor) -> tuple[Tensor, None]:
        return ctx.crossing.receive(), None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, crossing: Crossing) -> Tensor:
        ctx.crossing = crossing
        return crossing.receive()

    @staticmethod
    def backward(ctx: Any, deltas: Tensor) -> tuple[Tensor, None]:
        ctx.crossing.send(deltas, back=True)
        return deltas.new_empty(0), None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


_begin: Callable[..., Tensor] = _Begin.apply
_end: Callable[..., Tensor] = _End.apply
_scaled: Callable[..., Tensor] = _Scaled.apply


def with_mean_gradient(parameter: Tensor, size: int) -> Tensor:
    """The parameter, whose gradient becomes the mean over the `size` ranks whose images it has seen.

    Elsewhere a gradient is that of one rank's loss, and the strategy takes the mean over ranks; a shard has seen the
    losses of all ranks of its model axis.
    """
    return parameter if size == 1 else _scaled(parameter, 1.0 / size)
