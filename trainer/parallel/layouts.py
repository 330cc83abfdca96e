"""How features lie on the ranks of a model axis, which exchange leads from one layout to the next, and its cost.

Integers only. Of `rows` images of a group of M ranks and `width` features of each, a rank holds:

- own: all features of its own images;
- gathered: all features of all images;
- columns: its share of the features of all images;
- partial: a summand of all features of all images, the sum over ranks being meant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Layout = Literal["own", "gathered", "columns", "partial"]
Kind = Literal["column", "row"]
"""How a layer's weights are split: by outputs (it takes gathered features and gives columns), or by inputs (it takes
columns and gives a partial sum)."""

ADJOINT: dict[tuple[Layout, Layout], tuple[Layout, Layout]] = {
    ("own", "gathered"): ("partial", "own"),
    ("columns", "gathered"): ("partial", "columns"),
    ("own", "columns"): ("columns", "own"),
    ("columns", "own"): ("own", "columns"),
    ("partial", "own"): ("own", "gathered"),
    ("partial", "columns"): ("columns", "gathered"),
}
"""Every exchange there is, and the one by which the error deltas come back."""

TAKES: dict[Kind, Layout] = {"column": "gathered", "row": "columns"}
GIVES: dict[Kind, Layout] = {"column": "columns", "row": "partial"}


def even_cuts(num: int, parts: int) -> tuple[int, ...]:
    """`parts` + 1 offsets that cut `num` into shares which differ by at most one; some may be empty."""
    return tuple(k * num // parts for k in range(parts + 1))


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One exchange of features among the ranks of a model axis."""

    source: Layout
    target: Layout
    cuts: tuple[int, ...]
    """Where the features are cut into the ranks' columns, M + 1 offsets."""
    depth: int = 1
    """Numbers that a feature has: the channels of a place, for layers that are split by places."""

    @property
    def adjoint(self) -> "Hop":
        """By which the error deltas come back."""
        source, target = ADJOINT[self.source, self.target]
        return Hop(source=source, target=target, cuts=self.cuts, depth=self.depth)

    @property
    def is_sum(self) -> bool:
        """Whether what arrives is added up, and not laid side by side."""
        return self.source == "partial"

    def num_values(self, sender: int, receiver: int, rows: Sequence[int]) -> int:
        """Numbers that one rank sends to another; `rows` is how many images each rank has."""
        height, width = self.message(sender, receiver, rows)
        return height * width * self.depth

    def largest(self, rows: Sequence[int]) -> int:
        """Numbers of the largest message, one to itself among them."""
        sender, receiver = rows.index(max(rows)), self._widest
        if self.source == "columns" or self.target == "own":
            sender, receiver = receiver, sender
        return self.num_values(sender, receiver, rows)

    @property
    def _widest(self) -> int:
        """The rank with the most columns."""
        widths = [stop - start for start, stop in pairwise(self.cuts)]
        return widths.index(max(widths))

    def message(self, sender: int, receiver: int, rows: Sequence[int]) -> tuple[int, int]:
        """(rows, features) of what one rank sends to another."""
        widths = [stop - start for start, stop in pairwise(self.cuts)]
        whole, total = self.cuts[-1], sum(rows)
        match self.source, self.target:
            case "own", "gathered":
                return rows[sender], whole
            case "columns", "gathered":
                return total, widths[sender]
            case "own", "columns":
                return rows[sender], widths[receiver]
            case "columns", "own":
                return rows[receiver], widths[sender]
            case "partial", "own":
                return rows[receiver], whole
            case "partial", "columns":
                return total, widths[receiver]
        raise AssertionError(f"no exchange leads from {self.source} to {self.target}")

    def bytes_sent(self, rank: int, rows: Sequence[int], num_bytes: Callable[[int], int]) -> int:
        """What a rank sends; `num_bytes(num)` is the encoded size of num values. A message of no values is not sent."""
        others = (other for other in range(len(rows)) if other != rank)
        return sum(num_bytes(num) for other in others if (num := self.num_values(rank, other, rows)))

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}, {self.cuts[-1]:,} features" + (
            f" of {self.depth} numbers" if self.depth > 1 else ""
        )


@dataclass(frozen=True, kw_only=True)
class Widths:
    """A layer's features on both sides."""

    inputs: int
    outputs: int
    kinds: tuple[Kind, ...] = ("column", "row")
    """The ways in which it can be split."""


def volume(layers: Sequence[Widths], kinds: Sequence[Kind], size: int, last: Layout) -> int:
    """Numbers that a rank of `size` sends forward for each of its images, times `size`; backward, it is as many.

    `last` is the layout that the outputs of the last layer are to have, own or columns.
    """
    sent, layout = 0, "own"
    for layer, kind in zip(layers, kinds, strict=True):
        sent += _to(layout, TAKES[kind], layer.inputs, size)
        layout = GIVES[kind]
    return sent + _to(layout, last, layers[-1].outputs, size)


def _to(source: str, target: Layout, width: int, size: int) -> int:
    """Numbers of one exchange, or of two: from a partial sum to gathered features it takes both."""
    if source == target:
        return 0
    if (source, target) == ("partial", "gathered"):
        return 2 * size * width * (size - 1)
    is_transposed = {source, target} == {"own", "columns"}
    return (1 if is_transposed else size) * width * (size - 1)


def choose_kinds(layers: Sequence[Widths], size: int, last: Layout) -> tuple[Kind, ...]:
    """The split of each layer of a chain for which the ranks send least; among equals the one by columns.

    A chain is short, but not always: the best way to each layout is carried from layer to layer.
    """
    best: dict[str, tuple[int, int, tuple[Kind, ...]]] = {"own": (0, 0, ())}
    for layer in layers:
        found: dict[str, tuple[int, int, tuple[Kind, ...]]] = {}
        for kind in layer.kinds:
            found[GIVES[kind]] = min(
                (sent + _to(layout, TAKES[kind], layer.inputs, size), num_rows + (kind == "row"), (*kinds, kind))
                for layout, (sent, num_rows, kinds) in best.items()
            )
        best = found
    return min(
        (sent + _to(layout, last, layers[-1].outputs, size), num_rows, kinds)
        for layout, (sent, num_rows, kinds) in best.items()
    )[2]
