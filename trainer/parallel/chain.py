"""A chain of split layers with what lies between them, as runs of modules with an exchange before each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from augpipe.trainer.parallel.dropout import SplitDropout
from augpipe.trainer.parallel.exchange import Crossing
from augpipe.trainer.parallel.forward import ForwardPass
from augpipe.trainer.parallel.layers import SplitLayer
from augpipe.trainer.parallel.layouts import GIVES, TAKES, Hop, Layout, even_cuts
from augpipe.trainer.parallel.logits import SplitLogits

Scheme = Literal["gather", "rotate"]


@dataclass(frozen=True)
class Placed:
    """A module in a chain, and how the features lie that it gets."""

    module: nn.Module
    layout: Layout
    cuts: tuple[int, ...]


@dataclass
class Run:
    """An exchange, and the modules that are applied to what it brings."""

    hop: Hop
    modules: list["Placed"] = field(default_factory=list)
    name: str = ""
    """The split layer behind it or, for the last exchange, before it."""


@dataclass(frozen=True)
class Piece:
    """A part of the batch on its way through a chain."""

    rows: tuple[int, ...]
    """How many images of each rank are in it."""
    firsts: tuple[int, ...]
    """The place of its first image in each rank's batch."""


def plan_runs(modules: Sequence[tuple[str, nn.Module]], last: Layout) -> list[Run]:
    """The exchanges of a chain: each as late as it can be, but that of partial sums, which is the next thing done.

    `modules` begin with a split layer; `last` is the layout in which the outputs are to be, own or columns.
    """
    layers = [module for _, module in modules if isinstance(module, SplitLayer)]
    runs: list[Run] = []
    layout: Layout = "own"
    cuts, depth = layers[0].input_cuts, layers[0].input_depth

    def hop_to(target: Layout, name: str) -> None:
        nonlocal layout
        if layout != target:
            runs.append(Run(Hop(source=layout, target=target, cuts=cuts, depth=depth), name=name))
            layout = target

    for name, module in modules:
        if not isinstance(module, SplitLayer):
            runs[-1].modules.append(Placed(module, layout, cuts))
            continue
        hop_to(TAKES[module.kind], name)
        runs[-1].modules.append(Placed(module, layout, cuts))
        layout, cuts, depth = GIVES[module.kind], module.output_cuts, module.output_depth
        if layout == "partial":
            following = layers[layers.index(module) + 1 :]
            wanted = TAKES[following[0].kind] if following else last
            hop_to("columns" if wanted == "columns" else "own", name)
    hop_to(last, modules[-1][0])
    return runs


def cut_pieces(rows: Sequence[int], num: int) -> list[Piece]:
    """A batch in `num` pieces, each with an even share of every rank's images."""
    cuts = [even_cuts(of_rank, num) for of_rank in rows]
    return [
        Piece(rows=tuple(cut[i + 1] - cut[i] for cut in cuts), firsts=tuple(cut[i] for cut in cuts)) for i in range(num)
    ]


class Chain:
    """Split layers and what stands between them.

    Under "gather" the whole batch goes at once; under "rotate" each rank's batch is cut in as many pieces as there are
    ranks, and while one is computed the exchange of another is under way (Krizhevsky, "One weird trick for
    parallelizing convolutional neural networks", 2014, scheme (c); Dettmers, 2015, section 2.4).
    """

    def __init__(
        self, modules: Sequence[tuple[str, nn.Module]], passes: ForwardPass, *, last: Layout, scheme: Scheme
    ) -> None:
        self.runs = plan_runs(modules, last)
        self._passes = passes
        self._num_pieces = passes.link.size if scheme == "rotate" else 1
        self._last = last
        self._cuts = next(one for _, one in reversed(modules) if isinstance(one, SplitLayer)).output_cuts
        self.names = frozenset(name for name, _ in modules)
        """The modules' names in their parent."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, x: Tensor) -> Tensor | SplitLogits:
        """This rank's features (B, features), or images (B, C, H, W), to the last layer's outputs of the same images.

        As `SplitLogits` where the outputs are to stay in columns.
        """
        link = self._passes.link
        rows = self._passes.rows_of(x)
        pieces = cut_pieces(rows, self._num_pieces)
        sizes = x.shape[2:]
        features: Iterable[Tensor] = torch.split(x.flatten(2) if sizes else x, [one.rows[link.rank] for one in pieces])
        for run in self.runs:
            # features are computed one by one: the next piece while this one travels
            crossings = [
                Crossing(link, run.hop, piece.rows).begin(x) for piece, x in zip(pieces, features, strict=True)
            ]
            features = self._computed(run, pieces, crossings)
        result = torch.cat(list(features))
        if self._last == "columns":
            ordered = result if len(pieces) == 1 else result[_by_rank(pieces, result.device)]
            return SplitLogits(values=ordered, cuts=self._cuts, rows=rows, link=link)
        return result.view(*result.shape[:2], *sizes) if sizes else result

    def bytes_sent(self, rows: Sequence[int], rank: int, num_bytes: Callable[[str, int, int], int]) -> dict[str, int]:
        """What a rank sends in a forward and a backward pass over `rows` images of each rank, by class.

        `num_bytes(class, largest, num)` is the size of a message of num values, of an exchange whose largest message
        has so many.
        """
        found = {"activations": 0, "deltas": 0}
        for run in self.runs:
            for piece in cut_pieces(rows, self._num_pieces):
                for payload_class, hop in (("activations", run.hop), ("deltas", run.hop.adjoint)):
                    size_of = partial(num_bytes, payload_class, hop.largest(piece.rows))
                    found[payload_class] += hop.bytes_sent(rank, piece.rows, size_of)
        return found

    def _computed(self, run: Run, pieces: Sequence[Piece], crossings: Sequence[Crossing]) -> Iterator[Tensor]:
        for piece, crossing in zip(pieces, crossings, strict=True):
            x = crossing.end()
            for placed in run.modules:
                module = placed.module
                if isinstance(module, SplitLayer):
                    x = module.compute(x)
                elif isinstance(module, SplitDropout):
                    cuts = placed.cuts if placed.layout == "columns" else None
                    x = self._passes.drop(module, x, rows=piece.rows, firsts=piece.firsts, cuts=cuts)
                else:
                    x = module(x)
            yield x


def _by_rank(pieces: Sequence[Piece], device: torch.device) -> Tensor:
    """Where each image is among pieces one behind the other, in the order of ranks and of their batches."""
    places: dict[tuple[int, int], int] = {}
    for piece in pieces:
        for rank, (first, num) in enumerate(zip(piece.firsts, piece.rows, strict=True)):
            places |= {(rank, first + i): len(places) + i for i in range(num)}
    return torch.tensor([places[key] for key in sorted(places)], device=device)
