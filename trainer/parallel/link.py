"""The ranks of one model axis and what they send each other: features, error deltas, and a few numbers besides."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.exchange.exchange_errors import SyncError, not_answered
from augpipe.trainer.exchange.issuer import Issuer, Pending
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.parallel.layouts import Hop
from augpipe.trainer.parallel.pieces import AllToAll, Works, cut, join, num_pieces

SMALL = 4096
"""Messages of fewer numbers are not encoded: they cost a round trip, whatever their size."""


@dataclass(eq=False)
class Travelling:
    """An exchange under way."""

    hop: Hop
    rows: tuple[int, ...]
    own: Tensor
    """This rank's message to itself, which is not sent."""
    encoded: Codec | None
    pieces: list[AllToAll]
    pending: Pending | None


class Link:
    """Exchanges among the ranks of a model axis, all issued by one thread in the order in which they begin.

    Only `agree` is not: what it sends lies in the hosts' memory, and goes through a group of its own, `host_group`.
    What a rank keeps for itself is not encoded. With one rank nothing is sent.
    """

    def __init__(
        self,
        group: ProcessGroup,
        issuer: Issuer,
        *,
        host_group: ProcessGroup,
        activations: Codec,
        deltas: Codec,
        timeout_s: float,
        small: int = SMALL,
    ) -> None:
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.ranks = tuple(dist.get_process_group_ranks(group))
        """Their numbers among all ranks."""
        self.meter = Meter()
        self._group = group
        self._host_group = host_group
        self._issuer = issuer
        self._codecs = {"activations": activations, "deltas": deltas}
        self._timeout_s = timeout_s
        self._small = small

    def __deepcopy__(self, _memo: Any) -> "Link":
        return self

    def codec_for(self, payload_class: str, num: int, dtype: torch.dtype) -> Codec | None:
        """What a message of `num` numbers is encoded by; None where it goes as it is."""
        codec = self._codecs.get(payload_class)
        return None if codec is None or codec.name == "fp32" or num < self._small or dtype == torch.float64 else codec

    def begin(self, hop: Hop, x: Tensor, rows: tuple[int, ...], payload_class: str) -> Travelling:
        """Begin an exchange of `x`, (rows, features) or (rows, depth, features) in the hop's source layout."""
        parts = self._parts(hop, x, rows)
        codec = self.codec_for(payload_class, hop.largest(rows), x.dtype)
        is_same = hop.target == "gathered"
        messages: list[Tensor] = []
        for other in range(self.size):
            if other == self.rank or not parts[other].numel():
                messages.append(x.new_empty(0, dtype=torch.uint8))
            elif is_same and any(len(message) for message in messages):
                messages.append(next(message for message in messages if len(message)))
            else:
                messages.append(_encoded(parts[other], codec))
        received_bytes = [
            0 if other == self.rank else message_bytes(hop.num_values(other, self.rank, rows), codec, x.dtype)
            for other in range(self.size)
        ]
        pieces = cut(messages, received_bytes, num_pieces(message_bytes(hop.largest(rows), codec, x.dtype), x.device))
        pending = None
        if self.size > 1:
            self.meter.add(payload_class, sum(map(len, messages)))
            pending = self._submit(f"{payload_class} ({hop})", pieces)
        return Travelling(hop, rows, parts[self.rank], codec, pieces, pending)

    def _parts(self, hop: Hop, x: Tensor, rows: tuple[int, ...]) -> list[Tensor]:
        """What of `x` goes to each rank."""
        if hop.target == "gathered":
            return [x] * self.size
        if hop.target == "own":
            return list(torch.split(x, list(rows)))
        widths = [stop - start for start, stop in pairwise(hop.cuts)]
        return list(torch.split(x, widths, -1))

    def end(self, travelling: Travelling) -> Tensor:
        """Wait for an exchange, and put together what has come, in the hop's target layout."""
        if travelling.pending is not None:
            travelling.pending.wait()
        hop, own = travelling.hop, travelling.own
        parts = []
        for other, message in enumerate(join(travelling.pieces)):
            if other == self.rank:
                parts.append(own)
                continue
            height, width = hop.message(other, self.rank, travelling.rows)
            shape = (height, *own.shape[1:-1], width)
            parts.append(_decoded(message, travelling.encoded, own.dtype, shape))
        if hop.is_sum:  # the order of ranks, whichever this one is
            total = parts[0].clone() if parts[0] is own else parts[0]
            for part in parts[1:]:
                total += part
            return total
        return torch.cat(parts, 0 if hop.source == "own" else -1)

    def gather(self, what: str, mine: Tensor) -> Tensor:
        """(M, ...) every rank's tensor of the same shape and dtype, as it is; counts as control data."""
        if self.size == 1:
            return mine[None]
        sent = mine.detach().contiguous().reshape(-1).view(torch.uint8)
        empty = sent.new_empty(0)
        messages = [empty if other == self.rank else sent for other in range(self.size)]
        (piece,) = cut(messages, [len(one) for one in messages], 1)
        self.meter.add("control", len(piece.sent))
        self._submit(what, [piece]).wait()
        parts = [sent if other == self.rank else one for other, one in enumerate(join([piece]))]
        return torch.stack([part.clone().view(mine.dtype).view(mine.shape) for part in parts])

    def agree(self, numbers: Sequence[int]) -> list[list[int]]:
        """Every rank's whole numbers; the hosts wait for each other, and for no GPU."""
        mine = torch.tensor(numbers)
        if self.size == 1:
            return [mine.tolist()]
        everyones = [torch.empty_like(mine) for _ in range(self.size)]
        self.meter.add("control", (self.size - 1) * mine.nbytes)
        start = time.perf_counter()
        try:
            dist.all_gather(everyones, mine, group=self._host_group)  # which has the timeout
        except RuntimeError as error:
            what = "other ranks' part of a forward pass"
            raise not_answered(self._issuer.name, what, self._timeout_s, error) from error
        self._issuer.waited(time.perf_counter() - start)
        return [one.tolist() for one in everyones]

    def _submit(self, what: str, pieces: Sequence[AllToAll]) -> Pending:
        return self._issuer.submit(
            what, lambda: Works([one.issue(self._group) for one in pieces]), self._group, self._timeout_s
        )

    def fail(self, why: str) -> SyncError:
        """What to raise where ranks turn out to be doing different things."""
        return SyncError(f"the ranks of a model axis differ: {why}. Call the network on all of them alike.")


def message_bytes(num: int, codec: Codec | None, dtype: torch.dtype) -> int:
    """The size of a message of `num` numbers."""
    return 0 if num == 0 else num * dtype.itemsize if codec is None else codec.num_bytes(num)


def _encoded(x: Tensor, codec: Codec | None) -> Tensor:
    """A payload, (num_bytes,) uint8."""
    x = x.detach().contiguous()
    if codec is None:
        return x.reshape(-1).view(torch.uint8)
    payload: Tensor = codec.encode(x.float())
    return payload


def _decoded(message: Tensor, codec: Codec | None, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if codec is None or not len(message):
        raw = message.new_empty(shape, dtype=dtype)
        raw.view(-1).view(torch.uint8).copy_(message)  # a message may begin at any byte
        return raw
    values = message.new_empty(shape, dtype=torch.float32)
    codec.decode_into(message, values)
    return values.to(dtype)
