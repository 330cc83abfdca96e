"""What a rank does in a step: its layers, its buckets and their collectives, and what each of them costs it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from torch import nn

from augpipe.trainer.codecs.registry import codec as codec_by_name
from augpipe.trainer.exchange.layout import Bucket, Piece
from augpipe.trainer.exchange.message import ControlData
from augpipe.trainer.exchange.schedule import Collective, Exchange
from augpipe.trainer.simulate.cluster_card import Card, WireRates
from augpipe.trainer.simulate.layers import VALUE_BYTES, Layer
from augpipe.trainer.simulate.splitting import Splitting
from augpipe.trainer.strategies.build_strategy import BUCKET_BYTES, TORCHS_BUCKET_BYTES
from augpipe.trainer.strategies.flat_buffers import make_plan


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How ranks agree, as a run's config has it."""

    strategy: str = "butterfly"
    codec: str = "fp32"
    bucket_bytes: int | None = None
    exempt_1d: bool = True
    clips: bool = False
    """Whether the gradient's norm is wanted, for which lazy has an exchange of its own."""
    state_slots: int = 1
    """Values that the optimizer keeps for each weight."""
    passes: int = 1
    """Batches whose gradients are added up before an update."""

    @property
    def is_ring(self) -> bool:
        """Whether torch's own all-reduce is used, and not a schedule of ours."""
        return self.strategy == "ddp" and self.codec == "fp32"


class Workload:
    """A network's layers and the exchange of its gradients, among so many ranks of a card.

    `ddp` without a codec all-reduces buckets of whole parameters by a ring; with one it is taken for the butterfly.
    Shards of split layers have an exchange of their own.
    """

    def __init__(
        self,
        parameters: Mapping[nn.Parameter, str],
        layers: tuple[Layer, ...],
        settings: Settings,
        card: Card,
        ranks: int,
        *,
        layers_sleep: bool = False,
        splitting: Splitting | None = None,
    ) -> None:
        self.layers = layers
        self.settings = settings
        self.card = card
        self.ranks = ranks
        self.layers_sleep = layers_sleep
        """Whether layers take time and no core, as where computing is played by sleeping."""
        self.num_weights = sum(parameter.numel() for parameter in parameters)
        self.sizes = tuple(parameter.numel() for parameter in parameters)
        self._codec = codec_by_name(settings.codec)
        if settings.is_ring:
            self.exchange = ring(self.sizes, settings.bucket_bytes or TORCHS_BUCKET_BYTES, ranks)
            self._exempt: tuple[bool, ...] = (False,)
        else:
            plan = make_plan(
                "butterfly" if settings.strategy == "ddp" else settings.strategy,
                parameters,
                world_size=ranks,
                codec=self._codec,
                bucket_bytes=settings.bucket_bytes or BUCKET_BYTES,
                exempt_1d=settings.exempt_1d,
            )
            self.exchange = plan.exchange
            self._exempt = tuple(kind.exempt for kind in plan.kinds)
        self.collectives = tuple(one for one in self.exchange.collectives if one.phase != "agree" or settings.clips)
        """What a step issues, in its order."""
        self.splitting = splitting
        """How layers are split, if any are; the plan above is the others'."""
        self.shards: Workload | None = None
        """What the shards exchange over the data axis, where that has more than one rank."""
        self.num_sharded = 0 if splitting is None else sum(one.numel() for one in splitting.shards)
        """Weights of split layers that a rank holds."""
        if splitting is not None and ranks > splitting.size:
            # DistributedDataParallel has the rest alone
            own = replace(settings, strategy="butterfly") if settings.strategy == "ddp" else settings
            self.shards = Workload(splitting.shards, (), own, card, ranks // splitting.size)
        for name in (settings.codec, *(() if splitting is None else (splitting.activations, splitting.deltas))):
            card.wire(name)

    def is_encoded(self, bucket: int) -> bool:
        """Whether a codec stands between a bucket's values and its payloads."""
        return self.settings.codec != "fp32" and not self._exempt[self.exchange.buckets[bucket].kind]

    @cached_property
    def _cuts(self) -> list[tuple[int, ...]]:
        return [self.exchange.slices(bucket) for bucket in range(len(self.exchange.buckets))]

    def slice_num(self, bucket: int, owner: int) -> int:
        """Values that a rank owns of a bucket."""
        return self._cuts[bucket][owner + 1] - self._cuts[bucket][owner]

    def message_bytes(self, bucket: int, owner: int) -> int:
        """Bytes of a message about an owner's slice, control data included, as `BucketExchange` lays it out."""
        num = self.slice_num(bucket, owner)
        payload = VALUE_BYTES * num
        if self.is_encoded(bucket):
            payload = self._codec.num_bytes(num) if num else 0
        return ControlData(len(self.exchange.buckets[bucket].parameters)).message_bytes(payload)

    def sent(self, collective: Collective, rank: int) -> list[int]:
        """Bytes that a rank sends to each rank in an all-to-all."""
        others = range(self.ranks)
        if collective.phase == "agree":
            return [0 if other == rank else 16 for other in others]
        if collective.phase == "reduce":
            return [0 if other == rank else self.message_bytes(collective.bucket, other) for other in others]
        own = self.message_bytes(collective.bucket, rank)
        return [0 if other == rank else own for other in others]

    def pack_s(self, collective: Collective, rank: int) -> float:
        """Seconds until a rank's messages are ready to be sent."""
        if self.settings.is_ring:
            return 0.0  # torch reduces in the buckets themselves
        own = VALUE_BYTES * self.slice_num(collective.bucket, rank)
        others = VALUE_BYTES * self.exchange.buckets[collective.bucket].num - own
        wire, copy = self._wire(collective.bucket), self.card.copy_bytes_per_s
        if collective.phase == "reduce":
            return others / wire.encode
        seconds = own / wire.encode
        if self.is_encoded(collective.bucket):
            seconds += own / wire.decode  # the owner, too, goes on with what it encoded
        if self.exchange.gathers == "weights":
            seconds += own / copy  # the new slice, or what is new of it
        return seconds + max(self.ranks - 2, 0) * self.message_bytes(collective.bucket, rank) / copy

    def unpack_s(self, collective: Collective, rank: int) -> float:
        """Seconds from a bucket's messages having come to its values being there."""
        own = VALUE_BYTES * self.slice_num(collective.bucket, rank)
        whole = VALUE_BYTES * self.exchange.buckets[collective.bucket].num
        wire, copy = self._wire(collective.bucket), self.card.copy_bytes_per_s
        if self.settings.is_ring:
            return whole / copy  # back into the gradients
        if collective.phase == "reduce":
            return (self.ranks - 1) * own / wire.add + own / copy  # the last is the division by the number of ranks
        seconds = (whole - own) / wire.decode
        return seconds + whole / copy if self.exchange.gathers == "weights" else seconds

    def _wire(self, bucket: int) -> WireRates:
        return self.card.wire(self.settings.codec if self.is_encoded(bucket) else "fp32")

    def take_s(self, layer: Layer) -> float:
        """Seconds that copying a layer's gradients into buckets takes."""
        num = sum(self.sizes[number] for number in layer.parameters)
        if self.shards is not None:
            num += sum(self.shards.sizes[number] for number in layer.shards)
        return VALUE_BYTES * num / self.card.copy_bytes_per_s

    @property
    def alone_s(self) -> float:
        """Seconds of a step of one rank that exchanges nothing."""
        passes = sum(layer.forward_s + layer.backward_s for layer in self.layers)
        whole = self.num_weights + self.num_sharded * (1 if self.splitting is None else self.splitting.size)
        return self.settings.passes * passes + VALUE_BYTES * whole / self.card.optimizer_bytes_per_s

    @property
    def update_s(self) -> float:
        """Seconds of a rank's optimizer; under lazy it has its own slices alone, rounded up."""
        num = self.num_weights / self._optimizer_share
        if self.shards is not None:
            num += self.num_sharded / self.shards._optimizer_share
        else:
            num += self.num_sharded
        return VALUE_BYTES * num / self.card.optimizer_bytes_per_s

    @property
    def _optimizer_share(self) -> int:
        """Ranks among which the optimizer's work and state are shared out."""
        return self.ranks if self.exchange.gathers == "weights" else 1

    @property
    def memory_bytes(self) -> int:
        """What a rank holds: weights, gradients, their buckets, optimizer state, messages, layers' outputs."""
        values = VALUE_BYTES * self.num_weights
        state = values * self.settings.state_slots // self._optimizer_share
        outputs = sum(layer.output_bytes for layer in self.layers)
        if self.shards is not None:
            outputs += self.shards.memory_bytes
        else:
            outputs += VALUE_BYTES * self.num_sharded * (2 + self.settings.state_slots)
        if self.ranks == 1:
            return 2 * values + values * self.settings.state_slots + outputs
        messages = 0
        if not self.settings.is_ring:
            for bucket in range(len(self.exchange.buckets)):
                for phase in ("reduce", "gather"):
                    messages += sum(self.sent(Collective(phase=phase, bucket=bucket), 0))
        return 3 * values + state + messages + outputs


def ring(sizes: tuple[int, ...], bucket_bytes: int, ranks: int) -> Exchange:
    """The buckets of torch's DistributedDataParallel, in the order in which backward completes them: whole parameters,
    until a bucket holds `bucket_bytes` or more; each is all-reduced once it is complete."""
    buckets: list[Bucket] = []
    pieces: list[Piece] = []
    start = num = 0
    for parameter in reversed(range(len(sizes))):
        pieces.append(Piece(parameter=parameter, start=0, stop=sizes[parameter], offset=num))
        num += sizes[parameter]
        if VALUE_BYTES * num >= bucket_bytes or parameter == 0:
            buckets.append(Bucket(kind=0, start=start, pieces=tuple(pieces)))
            start, num, pieces = start + num, 0, []
    return Exchange(
        mode="ddp",
        world_size=ranks,
        buckets=tuple(buckets),
        collectives=tuple(Collective(phase="reduce", bucket=number) for number in range(len(buckets))),
        gathers="gradients",
        awaited="step",
    )
