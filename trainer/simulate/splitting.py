"""Split layers as a cluster sees them: which shards a rank holds, and what travels before and after each layer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.codecs.registry import codec
from augpipe.trainer.config.tables import ParallelConfig
from augpipe.trainer.parallel.chain import Piece, Scheme, cut_pieces
from augpipe.trainer.parallel.layers import SplitLayer
from augpipe.trainer.parallel.layouts import Hop, Layout
from augpipe.trainer.parallel.link import SMALL, message_bytes
from augpipe.trainer.parallel.split_choice import choose_layers, find_chains, replace_chains
from augpipe.trainer.simulate.cluster_card import Card, WireRates
from augpipe.trainer.simulate.layers import VALUE_BYTES, Layer


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """What an exchange of features, or of their error deltas, costs a rank of the model axis."""

    encode_s: float
    bytes_to: list[int]
    """To each rank of the model axis."""
    decode_s: float


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """How layers are split among the ranks of a model axis, each of which has as many images."""

    size: int
    """Ranks of the model axis."""
    shards: Mapping[nn.Parameter, str]
    """Those of rank 0, on "meta"; the others' differ by a line at most."""
    activations: str
    deltas: str
    batch_size: int
    """Images of a rank in a pass."""
    scheme: Scheme = "gather"

    @cached_property
    def pieces(self) -> list[Piece]:
        """In which a batch goes through the layers."""
        return cut_pieces([self.batch_size] * self.size, self.size if self.scheme == "rotate" else 1)

    def crossing(self, hop: Hop, rank: int, card: Card, *, back: bool, piece: int = 0) -> Crossing:
        """The costs of a hop, or of its way back, for a piece of the batch.

        Raises:
            ValueError: the card has no rates of the codec.
        """
        hop = hop.adjoint if back else hop
        rows = self.pieces[piece].rows
        coded = self._codec(self.deltas if back else self.activations, hop.largest(rows))
        wire: WireRates = card.wire("fp32" if coded is None else coded.name)
        others = [other for other in range(self.size) if other != rank]
        sent = {other: hop.num_values(rank, other, rows) for other in others}
        made = max(sent.values()) if hop.target == "gathered" else sum(sent.values())  # the same to all, once
        received = VALUE_BYTES * sum(hop.num_values(other, rank, rows) for other in others)
        return Crossing(
            encode_s=VALUE_BYTES * made / wire.encode,
            bytes_to=[message_bytes(sent.get(other, 0), coded, torch.float32) for other in range(self.size)],
            decode_s=received / (wire.add if hop.is_sum else wire.decode),
        )

    def _codec(self, name: str, largest: int) -> Codec | None:
        return None if name == "fp32" or largest < SMALL else codec(name)


def split_layers(
    model: nn.Module,
    layers: tuple[Layer, ...],
    parameters: Mapping[nn.Parameter, str],
    config: ParallelConfig,
    batch: int,
) -> tuple[Splitting, dict[nn.Parameter, str], tuple[Layer, ...]]:
    """Split a network on "meta", by the code that splits real ones: shards, the rest of its parameters, its layers.

    A split layer takes each rank as long as the whole one for its own batch: it computes a share of it for all batches.

    Raises:
        ValueError: as `augpipe.trainer.parallel.split`.
    """
    names = choose_layers(model, list(config.layers) or "auto", config.model)
    chains = find_chains(model, names)
    last: list[Layout] = ["own"] * len(chains)
    if config.logits == "split":
        last[-1] = "columns"
    nobody: Any = SimpleNamespace(link=SimpleNamespace(rank=0, size=config.model))
    model = replace_chains(model, chains, nobody, last=last, scheme=config.scheme, seed=0)
    split = {name: one for name, one in model.named_modules() if isinstance(one, SplitLayer)}
    of_shards = {f"{name}.{parameter}" for name, one in split.items() for parameter in one.parts}
    trainable = {name: one for name, one in model.named_parameters() if one.requires_grad}
    shards = {one: name for name, one in trainable.items() if name in of_shards}
    rest = {one: name for name, one in trainable.items() if name not in of_shards}
    shard_numbers = {name: number for number, name in enumerate(shards.values())}
    rest_numbers = {name: number for number, name in enumerate(rest.values())}
    known = list(parameters.values())
    hops = _hops(split)
    placed = []
    for layer in layers:
        before, after = hops.get(layer.name, ((), ()))
        mine = [known[number] for number in layer.parameters]
        placed.append(
            replace(
                layer,
                parameters=tuple(rest_numbers[name] for name in mine if name in rest_numbers),
                shards=tuple(shard_numbers[name] for name in mine if name in shard_numbers),
                before=before,
                after=after,
            )
        )
    splitting = Splitting(
        size=config.model,
        shards=shards,
        activations=config.activations,
        deltas=config.deltas,
        batch_size=batch,
        scheme=config.scheme,
    )
    return splitting, rest, tuple(placed)


def _hops(split: Mapping[str, nn.Module]) -> dict[str, tuple[tuple[Hop, ...], tuple[Hop, ...]]]:
    """By layer: the exchanges before it, and those after it, which no other split layer follows."""
    names = {id(module): name for name, module in split.items()}
    found: dict[str, tuple[tuple[Hop, ...], tuple[Hop, ...]]] = {}
    for module in split.values():
        chain: Any = module.chain
        if chain is None:
            continue
        waiting: tuple[Hop, ...] = ()
        name = ""
        for run in chain.runs:
            waiting = (*waiting, run.hop)
            for placed in run.modules:
                if id(placed.module) in names:
                    name = names[id(placed.module)]
                    found[name] = (waiting, ())
                    waiting = ()
        found[name] = (found[name][0], waiting)
    return found
