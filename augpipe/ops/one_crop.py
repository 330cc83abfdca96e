"""A crop that is chosen for each image among several: each a chain of crops, resizes, paddings and affine maps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import ConfigDict, model_validator

from augpipe.ops.crops import CenterCrop, RandomResizedCrop
from augpipe.ops.frame import Frame
from augpipe.ops.frame_part import cropped_apart, take_back
from augpipe.ops.geometry import Flip, last_swap
from augpipe.ops.groups import Group, Identity, OfSome, Weights
from augpipe.ops.kinds import Ops
from augpipe.ops.op import Beyond, Drawn, Op, keyed
from augpipe.ops.random_words import RandomWords
from augpipe.ops.resizes import UNLIKE_SIZES, one_size
from augpipe.ops.sized_crops import PlacedCrop
from augpipe.validation.models import ListOf, told

__all__ = ["OneCrop"]

Sides = tuple[Any, Any]
Chains = Annotated[ListOf[Ops], told("must be a list of lists of crops: {name}=[[ops.Resize(size=224)], []]")]


class OneCrop(Op):
    """Choose one of several ways to crop for each image: one look-up shows it, whichever it is."""

    model_config = ConfigDict(defer_build=True)  # when the first one is made, all kinds of op are known

    op: Literal["one_crop"] = "one_crop"
    chains: Chains = ((RandomResizedCrop(),), (CenterCrop(scale=256),))
    """What to choose from: lists of crops, resizes, paddings, flips and affine maps that act in turn. An empty list
    keeps all of the image. Where they make images of several sizes, a crop or a resize behind them makes them one."""
    weights: Weights | None = None
    """How often each is chosen, relative to the others; None: all equally often."""

    is_crop = True
    cuts = True
    num_words = 1
    formula = "one of the `chains` by `weights`"

    @model_validator(mode="after")
    def _holds_crops(self) -> Self:
        for op in (op for chain in self.chains for op in chain):
            if why := _not_held(op):
                raise ValueError(f"one_crop holds {op.op}, which {why}. Put it into the recipe's ops.")
        if not any(op.is_crop for chain in self.chains for op in chain):
            raise ValueError("one_crop holds no crops. List them: chains=[[ops.Resize(size=224)], [ops.CenterCrop()]].")
        beyond = {op.beyond: op.op for chain in self.chains for op in chain if op.beyond}
        if len(beyond) > 1:
            names = " and ".join(dict.fromkeys(beyond.values()))
            raise ValueError(f"a view has one border, and one_crop has several: {names}. Give them the same one.")
        for chain in self.chains:
            padding = [place for place, op in enumerate(chain) if op.beyond]
            if padding and any(op.cuts for op in chain[padding[0] : padding[-1]]):
                raise ValueError(
                    f"{chain[padding[-1]].op} of one_crop pads what was cut out of a padded image, and one look-up "
                    "would show the image there. Pad once, before the crop."
                )
            mover = next((op.op for op in chain[: padding[-1]] if _moves(op)), None) if padding else None
            if mover is not None:
                raise ValueError(
                    f"{chain[padding[-1]].op} of one_crop pads what {mover} has moved, and one look-up would show "
                    f"there what was moved out of the frame. Put {chain[padding[-1]].op} before {mover}."
                )
        if self.weights is not None and (len(self.weights) != len(self.chains) or sum(self.weights) <= 0.0):
            raise ValueError(
                f"weights={self.weights} for {len(self.chains)} chains: give as many numbers, not all of them 0, or "
                "none."
            )
        return self

    @property
    def flat(self) -> tuple[Op, ...]:
        """The op itself, and what moves pixels in its chains."""
        held = (inner for chain in self.chains for op in chain for inner in op.flat)
        return (self, *(inner for inner in held if inner.is_geometry))

    @cached_property
    def keyed_chains(self) -> tuple[tuple[tuple[str, Op], ...], ...]:
        """Each op of each chain under a name of its own in it."""
        return tuple(map(keyed, self.chains))

    @cached_property
    def record(self) -> np.dtype[np.void]:
        fields: list[tuple[str, Any]] = [("chosen", np.int32)]
        for name, chain in zip(self._names, self.keyed_chains, strict=True):
            if own := [(key, op.record) for key, op in chain if op.record.names]:
                fields.append((name, np.dtype(own)))
        return np.dtype(fields)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"chain_{nth}" for nth in range(1, len(self.chains) + 1))

    @property
    def num_variants(self) -> int | None:
        return None

    @property
    def draws_text(self) -> str:
        named = Counter(", ".join(op.op for op in chain) or "all of the image" for chain in self.chains)
        texts = (f"({name})" if "," in name else name for name in named.elements())
        return f"one of {', '.join(texts)}"

    @property
    def draws_size(self) -> bool:
        """Whether the chains make images of several sizes, of whatever image."""
        return all(map(self.draws_size_of, UNLIKE_SIZES))

    def draws_size_of(self, sides: tuple[int, int] | None) -> bool:
        if sides is None:
            return self.draws_size
        ends = {tuple(map(int, _ends(chain, *sides))) for chain in self.chains}
        return len(ends) > 1 or any(map(_stays_drawn, self.chains))

    @property
    def beyond(self) -> Beyond | None:
        return next((op.beyond for chain in self.chains for op in chain if op.beyond), None)

    @property
    def centred(self) -> Op:
        """The crops of the chain that is chosen most often."""
        weights = self.weights or (1.0,) * len(self.chains)
        chain = tuple(op.centred for op in self.chains[int(np.argmax(weights))] if op.is_crop)
        return OneCrop(chains=(chain,)) if chain else Identity()

    def sides(self, heights: Any, widths: Any) -> Sides:
        """Where the chains differ the smallest: what is too small for ops behind is found before it is drawn."""
        ends = [_ends(chain, heights, widths) for chain in self.chains]
        high, wide = (np.minimum.reduce(np.broadcast_arrays(*sides)) for sides in zip(*ends, strict=True))
        return high, wide

    def refuses(self, height: int, width: int) -> str | None:
        for chain in self.chains:
            sides: Sides = (height, width)
            for op in chain:
                if reason := op.refuses(*map(int, sides)):
                    return reason
                sides = op.sides(*sides)
        return None

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        """Which chain is chosen, and what its ops draw for those images, each of what the one before it has made."""
        chosen = words.weighted(0, len(self.chains), self.weights)
        drawn: Drawn = {"chosen": chosen.astype(np.int32)}
        for nth, (name, chain) in enumerate(zip(self._names, self.keyed_chains, strict=True)):
            rows = np.flatnonzero(chosen == nth)
            part, own = Frame(frame.out_heights[rows], frame.out_widths[rows]), Drawn()
            for key, op in chain:
                own[key] = op.draw(words.nested(f"{name}/{key}", op.num_words, rows), part) if op.num_words else {}
                op.apply(part, own[key])
            drawn[name] = OfSome(rows, {key: values for key, values in own.items() if values})
        return drawn

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        parts = []
        for name, chain in zip(self._names, self.keyed_chains, strict=True):
            part = cropped_apart(frame, drawn[name].rows)
            for key, op in chain:
                op.apply(part, drawn[name].drawn.get(key, {}))
            parts.append(part)
        take_back(frame, parts, np.argsort(np.concatenate([drawn[name].rows for name in self._names]), kind="stable"))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        nth = int(drawn["chosen"])
        own = drawn[self._names[nth]] if self._names[nth] in (self.record.names or ()) else {}
        texts = [op.caption(own[key] if op.record.names else {}) for key, op in self.keyed_chains[nth]]
        return ", ".join(text for text in texts if text) or f"crop {nth + 1}"


def _not_held(op: Op) -> str:
    """Why a chain does not hold an op; empty where it does."""
    if op.acts_first:
        return "is that of the papers, which acts first"
    if isinstance(op, PlacedCrop) and op.keep is not None:
        return "looks at objects"
    if op.alternates:
        return "alternates from epoch to epoch"
    if isinstance(op, Group) and op.own_look is not None:
        return "begins a pass"
    if last_swap([op]) is not None:
        return "swaps sides"
    is_held = op.is_crop or all(map(is_affine, op.flat))
    return "" if is_held else "is neither a crop, a resize, a padding, a flip nor an affine map"


def is_affine(op: Op) -> bool:
    """Whether it flips an image, moves it by an affine map, or does nothing."""
    return (op.is_geometry and not (op.is_lens or op.is_projective)) or isinstance(op, Flip | Identity)


def _moves(op: Op) -> bool:
    return any(inner.is_geometry for inner in op.flat)


def _stays_drawn(chain: Sequence[Op]) -> bool:
    """Whether a chain draws a size that nothing in it makes one again."""
    place = max((place for place, op in enumerate(chain) if op.draws_size), default=None)
    return place is not None and one_size(chain[place + 1 :]) is None


def _ends(chain: Sequence[Op], heights: Any, widths: Any) -> Sides:
    """Height and width of what a chain makes."""
    for op in chain:
        heights, widths = op.sides(heights, widths)
    return heights, widths
