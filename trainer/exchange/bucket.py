"""One bucket's exchange on one rank: its values, its messages, and the arithmetic between them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.mark import Mark
from augpipe.trainer.exchange.message import CodecWire, ControlData, Count, Wire, count_non_finite, on_gpu, padded
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.exchange.schedule import Phase

PHASES: tuple[Phase, Phase] = ("reduce", "gather")


class SliceKey(NamedTuple):
    """Whose residual it is: of what is encoded in a phase of a bucket's slice."""

    phase: Phase
    bucket: int
    owner: int


class BucketExchange:
    """Values (n,) of a bucket, cut into one slice a rank.

    `pack_reduce` and `reduce` turn this rank's values into the mean over ranks in the slice that it owns; `pack_gather`
    and `unpack_gather` bring the other owners' slices in. Every rank, the owner too, ends with the decoded values. None
    of them makes the host wait for a GPU: what they find stays in the values' memory until `take_controls`.
    """

    def __init__(
        self,
        values: Tensor,
        cuts: tuple[int, ...],
        rank: int,
        wire: Wire,
        *,
        number: int,
        label: str,
        payload_classes: tuple[str, str],
        num_flags: int,
        with_norm: bool,
        fed_back: Sequence[Phase],
        meter: Meter,
        totals: "Totals | None" = None,
    ) -> None:
        self._cuts = cuts
        self.values = values
        self.number = number
        """The bucket's, the same on all ranks."""
        self.label = label
        self._rank = rank
        self._world_size = len(cuts) - 1
        self._wire = wire
        self._payload_classes = payload_classes
        self._with_norm = with_norm
        self.fed_back = fed_back
        """The phases whose payloads make up for what earlier ones lacked."""
        self._meter = meter
        self._control = ControlData(num_flags)
        self._on_gpu = on_gpu(values)
        self.told = 0.0
        """A number that each rank tells the others with its gradients."""
        self.their_told: list[float] = []
        """Those of the `others`, once read."""
        self._times = 0
        self.others = [other for other in range(self._world_size) if other != rank]
        """Ranks."""
        # a GPU does all slices by one launch; on a CPU a slice stays in its cache through all that is done to it
        self._at_once = [self.others] if self._on_gpu else [[other] for other in self.others]
        slices = [self._message_bytes(other) for other in range(self._world_size)]
        mine = slices[rank]
        self.theirs_split = [0 if other == rank else slices[other] for other in range(self._world_size)]
        """Bytes of the messages about other ranks' slices: sent to them first, got from them in the end."""
        self.mine_split = [0 if other == rank else mine for other in range(self._world_size)]
        """Bytes of the messages about this rank's own slice: got from each other rank first, sent to each in the
        end."""
        # one buffer is sent first and received into later, the other the other way round
        self.theirs = values.new_zeros(sum(self.theirs_split), dtype=torch.uint8)
        self.mine = values.new_zeros(sum(self.mine_split), dtype=torch.uint8)
        self._their_messages: tuple[Tensor, ...] = torch.split(self.theirs, self.theirs_split)
        self._my_messages = self.mine.view(len(self.others), -1)
        self._their_payloads = {
            other: wire.view(self._their_messages[other][: self._payload_bytes(other)]) for other in self.others
        }
        self._my_payloads = wire.view(self._my_messages[:, : self._payload_bytes(rank)])
        self.controls = values.new_zeros((2, self._world_size, padded(self._control.num_bytes)), dtype=torch.uint8)
        """The control data of each phase: a row from every other rank, and last this rank's own."""
        width = self.controls.shape[2]
        self._rows = {phase: list(rows) for phase, rows in zip(PHASES, self.controls, strict=True)}
        self._their_controls = [self._their_messages[other][-width:] for other in self.others]
        self._my_controls = [message[-width:] for message in self._my_messages]
        self._totals = totals
        self._square: float | Tensor = 0.0
        """Sum of squares of the own slice."""
        self.flags = [False] * num_flags
        """Which of the bucket's parameters have a gradient on this rank; once read, on any rank."""
        self.non_finite = 0
        """Values that were not finite, over all ranks, before averaging; once read, as all that follow."""
        self.gathered_non_finite = 0
        """Values that were not finite in what the owners sent back, over all slices; with totals of means also those of
        the buckets before it."""
        self.square_sums = [0.0] * self._world_size
        """Sum of squares of each owner's slice as it was sent back; with totals as above."""
        self.reduced = Mark()
        """The end of the last reduction that began."""
        self.done = Mark()
        """The end of the last gather that began; passed before there is one."""
        self.done.set()

    @property
    def values(self) -> Tensor:
        """(n,); another tensor of that size may take its place between two exchanges."""
        return self._values

    @values.setter
    def values(self, values: Tensor) -> None:
        self._values = values
        sizes = [stop - start for start, stop in pairwise(self._cuts)]
        self._slices: tuple[Tensor, ...] = torch.split(values, sizes)

    @property
    def is_encoded(self) -> bool:
        """Whether a codec stands between the values and the payloads."""
        return isinstance(self._wire, CodecWire)

    @property
    def owners_totals(self) -> Tensor:
        """(world_size, 2) int64 on the device: what each owner sent back with its slice, in the words of `Totals`."""
        return self.controls[1].view(torch.int64)[:, :2]

    @property
    def own_values(self) -> Tensor:
        """The slice that this rank owns."""
        return self._slices[self._rank]

    @property
    def own_range(self) -> tuple[int, int]:
        """Offsets of that slice in the bucket."""
        return self._cuts[self._rank], self._cuts[self._rank + 1]

    def _payload_bytes(self, owner: int) -> int:
        return self._wire.num_bytes(self._cuts[owner + 1] - self._cuts[owner])

    def _message_bytes(self, owner: int) -> int:
        return self._control.message_bytes(self._payload_bytes(owner))

    def _encode(self, phase: Phase, owners: Sequence[int], payloads: list[Tensor]) -> Count | None:
        """Encode some owners' slices."""
        keys = [SliceKey(phase, self.number, owner) for owner in owners] if phase in self.fed_back else ()
        return self._wire.encode([self._slices[owner] for owner in owners], payloads, keys)

    def _own_control(self, phase: Phase, count: Count, square_sum: float | Tensor, flags: list[bool]) -> Tensor:
        """This rank's control data of a phase, to be sent."""
        own: Tensor = self._rows[phase][-1]
        tag = self._times << 32 | self.number << 1 | PHASES.index(phase)
        self._control.pack(count, square_sum, flags, tag=tag, out=own[: self._control.num_bytes])
        return own

    def _take_their_controls(self, phase: Phase, controls: list[Tensor]) -> None:
        torch._foreach_copy_(self._rows[phase][:-1], controls)
        if not self._on_gpu:  # a GPU's are looked at when the host waits for it anyway
            self._check_order(self.controls[PHASES.index(phase)])

    def _check_order(self, rows: Tensor) -> None:
        """Refuse messages of another collective than the one that this rank is in."""
        *theirs, own = self._control.unpack(rows)[3]
        for rank, tag in zip(self.others, theirs, strict=True):
            if tag != own:
                raise SyncError(
                    f"rank {rank} sent its {_of_tag(tag)} where the {_of_tag(own)} was due: the ranks issue their "
                    "collectives in different orders"
                )

    def _count(self, phase: Phase, owner: int) -> None:
        payload = self._payload_bytes(owner)
        self._meter.add(self._payload_classes[PHASES.index(phase)], payload)
        self._meter.add("control", self._message_bytes(owner) - payload)

    def pack_reduce(self) -> None:
        """Encode every other owner's slice into `theirs`."""
        self._times += 1
        # the own slice is not sent, so nobody counts what is in it unless it is done here
        count: Count = 0
        uncounted = self.own_values
        for owners in self._at_once:
            found = self._encode("reduce", owners, [self._their_payloads[owner] for owner in owners])
            if found is None:
                uncounted = self.values
            else:
                count = count + found
        count = count + count_non_finite(uncounted)
        control = self._own_control("reduce", count, self.told, self.flags)
        torch._foreach_copy_(self._their_controls, [control] * len(self.others))
        for other in self.others:
            self._count("reduce", other)

    def reduce(self) -> None:
        """Mean over ranks of the own slice, in the values' dtype; ranks are added in ascending order after the own."""
        self._take_their_controls("reduce", self._my_controls)
        own = self.own_values
        self._wire.mean(self._my_payloads, own)
        if self._with_norm:
            self._square = square_sum(own)
        if self._totals is not None and self._totals.phase == "reduce":
            self._totals.add(self.number, count_non_finite(own), self._square)

    def pack_gather(self) -> None:
        """Encode the own slice into `mine`, once for each other rank, and decode it in place."""
        own = self.own_values
        payload = self._my_payloads[0]
        count = self._encode("gather", [self._rank], [payload])
        if count is None:
            count = count_non_finite(own)
        if not self._wire.exact:
            self._wire.decode([payload], [own])
            if self._with_norm:  # of what is applied, not of what was meant
                self._square = square_sum(own)
        square: float | Tensor = self._square
        if self._totals is not None and self._totals.phase == "gather":
            count, square = self._totals.add(self.number, count, square)
        self._my_controls[0].copy_(self._own_control("gather", count, square, []))
        self._my_messages[1:].copy_(self._my_messages[0])
        for _ in self.others:
            self._count("gather", self._rank)

    def unpack_gather(self) -> None:
        """Decode the other owners' slices."""
        self._take_their_controls("gather", self._their_controls)
        for owners in self._at_once:
            payloads = [self._their_payloads[owner] for owner in owners]
            self._wire.decode(payloads, [self._slices[owner] for owner in owners])

    def take_controls(self, controls: Tensor) -> None:
        """Set what is known "once read" from a copy of `controls` on the CPU."""
        for rows in controls:
            self._check_order(rows)
        (to_owners, from_owners), squares, flags, _ = self._control.unpack(controls)
        self.flags = [any(of_ranks) for of_ranks in zip(*flags[0], strict=True)]
        self.non_finite, self.gathered_non_finite = sum(to_owners), sum(from_owners)
        self.their_told = squares[0][:-1]
        self.square_sums = squares[1]


def _of_tag(tag: int) -> str:
    return f"{PHASES[tag & 1]} {tag >> 32} of bucket {(tag & 0xFFFFFFFF) >> 1}"


class Totals:
    """What a rank's own slices hold, added up over the buckets of a step in the order of their numbers, on the device.

    Only the owner adds: others who would add the same numbers on another processor could get other last bits.
    """

    def __init__(self, device: torch.device, phase: Phase) -> None:
        self.phase = phase
        """When a bucket's own slice is added: reduced, or as it is sent back."""
        self.words = torch.zeros(2, dtype=torch.int64, device=device)
        """(2,) how many values are not finite, and the bits of the float64 sum of squares."""
        self._count, self._square = self.words[0], self.words[1:].view(torch.float64)[0]

    def add(self, number: int, count: Count, square: float | Tensor) -> tuple[Tensor, Tensor]:
        """Add the own slice of a bucket; returns what there is up to it."""
        if number == 0:
            self.words.zero_()
        self._count.add_(count)
        self._square.add_(square)
        return self._count, self._square


def controls_of(buckets: Sequence[BucketExchange], *more: Tensor) -> Tensor:
    """(n,) uint8 on the device: what exchanges have found, for `take_controls`, and the bytes of `more` after it."""
    of_buckets = [bucket.controls.view(-1) for bucket in buckets]
    return torch.cat([*of_buckets, *(one.reshape(-1).view(torch.uint8) for one in more)])


def take_controls(buckets: Sequence[BucketExchange], copied: Tensor) -> Tensor:
    """Set what is known "once read" of all buckets, from a copy of `controls_of` on the CPU; returns what is left."""
    for bucket in buckets:
        num = bucket.controls.numel()
        bucket.take_controls(copied[:num].view(bucket.controls.shape))
        copied = copied[num:]
    return copied


def square_sum(values: Tensor) -> Tensor:
    """Sum of squares, accumulated in float64."""
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square()
