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
    def forward(ctx: Any, x: Tensor, factor: float, is_own: bool) -> Tensor:
        ctx.factor = factor
        if not is_own:
            return x.view_as(x)
        ctx.mark_dirty(x)  # the very tensor, which whoever gets it may change in place
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient * ctx.factor, None, None


_begin: Callable[..., Tensor] = _Begin.apply
_end: Callable[..., Tensor] = _End.apply
_scaled: Callable[..., Tensor] = _Scaled.apply


def with_scaled_gradient(x: Tensor, factor: float, *, is_own: bool = False) -> Tensor:
    """`x`, whose gradient is multiplied by `factor` on its way back.

    The caller's own new tensor may be changed in place afterwards, anybody else's may not.
    """
    return x if factor == 1.0 else _scaled(x, factor, is_own)
