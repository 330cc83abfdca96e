"""Ops that choose among others: one of them, some of them, or all or none."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, model_validator

from augpipe.ops.colour_program import ColourStep, in_fewer_places
from augpipe.ops.crops import seen_beyond
from augpipe.ops.frame import Frame
from augpipe.ops.frame_part import PartOfFrame
from augpipe.ops.kinds import Ops
from augpipe.ops.op import NO_BENDS, Beyond, Border, Drawn, Fill, Op, Probability, bends_in_turn, keyed, product
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import ListOf, changed, told

__all__ = ["AllOf", "Identity", "OneOf", "SomeOf"]

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.int64]
Weights = Annotated[
    ListOf[Annotated[float, Field(ge=0.0)]],
    told("must be a list of finite numbers of at least 0, one for each of ops: {name}=[1.0, 2.0]"),
]

NOBODY = np.zeros(0, np.int64)


class Identity(Op):
    """Change nothing: a choice of `OneOf`."""

    op: Literal["identity"] = "identity"

    formula = "v"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        pass


class OfSome(NamedTuple):
    """What an op drew for some of n images."""

    rows: Int
    """Which ones, in order."""
    drawn: Drawn


class ForNobody:
    """What the ops of a group draw and do where they change no image of a batch.

    Of one image most ops are such; what they draw is always the same then, and so are steps that depend on that alone.
    """

    def __init__(self) -> None:
        self.drawn: dict[str, Drawn] = {}
        self._steps: dict[tuple[str, int | None], list[ColourStep] | None] = {}

    def steps_of(self, key: str, op: Op, drawn: Drawn, stage: int | None) -> list[ColourStep] | None:
        """The steps of colour that the op under that name adds to a frame; None where it does anything else to it."""
        name = key, stage
        if name not in self._steps:
            frame = Frame(NOBODY, NOBODY)
            before = vars(frame).copy()
            _apply(op, frame, drawn, stage)
            does_more = any(before[name] is not value for name, value in vars(frame).items() if name != "steps")
            self._steps[name] = None if does_more else frame.steps
        return self._steps[name]


class Group(Op):
    """What groups have in common: each says which of its ops are applied to which image."""

    model_config = ConfigDict(defer_build=True)  # when the first one is made, all kinds of op are known

    ops: Ops = ()
    """The ops to choose from; no crop or normalize."""
    p: Probability = 1.0
    """How often any of them is applied."""
    own_look: Literal["bilinear", "bicubic", "nearest", "random"] | None = None
    """None: what moves pixels among its ops is part of the look-up before the group, and its other ops act behind all
    look-ups of that pass. Otherwise the group begins a pass, as in libraries that finish each step: it looks at the
    levels that all ops before it have made, by this interpolation instead of the recipe's. Shrinking does not average,
    and the image's edge does not mix with a constant border."""
    own_border: Border | None = None
    """What a group with an `own_look` shows beyond the image, instead of the recipe's border; None: that."""
    own_fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of a constant `own_border`, in 0..255, or one number for all."""

    @model_validator(mode="after")
    def _holds_augmentations(self) -> Self:
        if not self.ops:
            raise ValueError(f"{self.op} holds no ops. List those to choose from: ops=[ops.Flip(), ops.Rotate()].")
        for op in self.ops:
            if not op.in_files:
                raise ValueError(
                    f"{self.op} holds {op.key}, a function of yours, and it begins a pass of the view. Put it into the "
                    "recipe's ops, with a p of its own; or choose within the function, by its draws."
                )
            if isinstance(op, Group) and op.own_look is not None:
                raise ValueError(
                    f"{self.op} holds {op.op} with own_look={op.own_look!r}, and only a group in the recipe's ops "
                    f"begins a pass. Leave own_look out of it, or give it to {self.op}."
                )
            if op.is_crop or op.op == "normalize" or op.alternates:
                which = f"{op.op} with alternate" if op.alternates else op.op
                raise ValueError(
                    f"{self.op} holds {which}, which does not act on one image. Put it into the recipe's ops."
                )
        if self.own_border is not None and self.own_look is None:
            raise ValueError(
                f"{self.op} has own_border={self.own_border!r} and no own_look: only a group that begins a pass has a "
                "border of its own. Give it own_look='bilinear', or leave own_border out."
            )
        if self.own_border != "constant" and self.own_fill != (0.0, 0.0, 0.0):
            raise ValueError(
                f"{self.op} has own_fill={self.own_fill!r}, which only own_border='constant' shows. Give it that, or "
                "leave own_fill out."
            )
        if self.own_look not in (None, "bilinear") and any(inner.op == "blur" for inner in self.flat):
            raise ValueError(
                f"blur widens the bilinear look-up, and own_look={self.own_look!r} has none. Write GaussianBlur "
                "instead of Blur, or own_look='bilinear'."
            )
        return self

    @property
    def own_beyond(self) -> Beyond | None:
        """Its own border, and the fill of a constant one; None where the recipe's is shown."""
        if self.own_border is None:
            return None
        return seen_beyond(self.own_border, self.own_fill)

    @property
    def flat(self) -> tuple[Op, ...]:
        return tuple(inner for op in self.ops for inner in op.flat)

    @property
    def bends(self) -> frozenset[tuple[Op, ...]]:
        return bends_in_turn(self.ops)

    @cached_property
    def record(self) -> np.dtype[np.void]:
        members = [(key, op.record) for key, op in self.keyed if op.record.names]
        return np.dtype([("applied", np.bool_, (len(self.ops),)), *members])

    @cached_property
    def keyed(self) -> tuple[tuple[str, Op], ...]:
        """Each op under a name of its own."""
        return keyed(self.ops)

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        """Which ops are applied, and what each of them draws for those images that it is applied to."""
        applied = self.choose(words)
        rows = _rows_of_each(applied)
        drawn: Drawn = {"applied": applied}
        for (key, op), own, own_words in zip(self.keyed, rows, self.words_of_each(words, rows), strict=True):
            known = None if len(own) else self.for_nobody.drawn.get(key)
            drawn[key] = OfSome(own, known or op.draw(own_words, PartOfFrame(frame, own)))
            if not len(own):
                self.for_nobody.drawn[key] = drawn[key].drawn
        return drawn

    @cached_property
    def for_nobody(self) -> "ForNobody":
        """What is known of ops that change no image."""
        return ForNobody()

    def words_of_each(self, words: RandomWords, rows: list[Int]) -> list[RandomWords]:
        """The random words of each op, for the `rows` that it is applied to."""
        return [words.nested(key, op.num_words, own) for (key, op), own in zip(self.keyed, rows, strict=True)]

    def choose(self, words: RandomWords) -> Bool:
        """(n, number of ops): which are applied to each image."""
        raise AssertionError(f"{type(self).__name__} does not say what it chooses")

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        for key, op in self.keyed:
            frame.steps = self.applied_to_some(key, op, frame, drawn[key], at=len(frame.steps))

    @property
    def num_stages(self) -> int:
        """How many passes it takes where it has an `own_look`."""
        return 1

    def apply_stage(self, frame: Frame, drawn: Drawn, stage: int) -> None:
        """Change the frame of one of its passes."""
        if stage == 0:
            self.apply(frame, drawn)

    def applied_to_some(
        self, key: str, op: Op, frame: Frame, own: "OfSome", at: int, stage: int | None = None
    ) -> list[ColourStep]:
        """The frame's steps of colour after an op, or one stage of it, was applied to some images, with its own from
        place `at` on."""
        added = None if len(own.rows) else self.for_nobody.steps_of(key, op, own.drawn, stage)
        if added is None:
            part = PartOfFrame(frame, own.rows)
            part.steps = frame.steps[:at]
            _apply(op, part, own.drawn, stage)
            added = part.steps[at:]
        steps = list(frame.steps)
        for place, step in enumerate(added, start=at):
            if place == len(steps):
                steps.append(ColourStep.none(frame.num))
            steps[place].put(own.rows, step)
        return steps

    def caption(self, drawn: Mapping[str, Any]) -> str:
        texts = [
            op.caption(drawn[key] if op.record.names else {})
            for (key, op), is_applied in zip(self.keyed, drawn["applied"], strict=True)
            if is_applied
        ]
        return ", ".join(text for text in texts if text)


def _apply(op: Op, frame: Frame, drawn: Drawn, stage: int | None) -> None:
    """Apply an op, or of one in a group of several passes what acts in one of them."""
    if stage is None:
        op.apply(frame, drawn)
    elif isinstance(op, Group):
        op.apply_stage(frame, drawn, stage)
    elif stage == 0:
        op.apply(frame, drawn)


class OneOf(Group):
    """Apply one of several ops, with that op's own draws."""

    op: Literal["one_of"] = "one_of"
    weights: Weights | None = None
    """How often each is chosen, relative to the others; None: all equally often."""

    num_words = 2
    formula = "one of them by `weights`"

    @model_validator(mode="after")
    def _has_a_weight_each(self) -> Self:
        if self.weights is not None and (len(self.weights) != len(self.ops) or sum(self.weights) <= 0.0):
            raise ValueError(
                f"weights={self.weights} for {len(self.ops)} ops: give as many numbers, not all of them 0, or none."
            )
        return self

    @property
    def num_variants(self) -> int | None:
        counts = [op.num_variants for op in self.ops]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def draws_text(self) -> str:
        return f"one of {_names(self.ops)}"

    @property
    def bends(self) -> frozenset[tuple[Op, ...]]:
        return NO_BENDS.union(*(op.bends for op in self.ops))

    def choose(self, words: RandomWords) -> Bool:
        chosen = words.weighted(1, len(self.ops), self.weights)
        applied: Bool = words.happens(0, self.p)[:, None] & (chosen[:, None] == np.arange(len(self.ops)))
        return applied

    def words_of_each(self, words: RandomWords, rows: list[Int]) -> list[RandomWords]:
        return words.nested_apart([(key, op.num_words) for key, op in self.keyed], rows)

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        """Ops that never meet in one image share their places in its program of colours."""
        self._apply_one(frame, drawn, None)

    @property
    def num_stages(self) -> int:
        return max(op.num_stages if isinstance(op, Group) else 1 for op in self.ops)

    def apply_stage(self, frame: Frame, drawn: Drawn, stage: int) -> None:
        self._apply_one(frame, drawn, stage)

    def _apply_one(self, frame: Frame, drawn: Drawn, stage: int | None) -> None:
        first = len(frame.steps)
        for key, op in self.keyed:
            frame.steps = self.applied_to_some(key, op, frame, drawn[key], first, stage)


class SomeOf(Group):
    """Apply some of several ops, each at most once, in the order of the list."""

    op: Literal["some_of"] = "some_of"
    num: Annotated[
        tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]],
        told("must be two numbers of ops: {name}=[fewest, most]"),
    ] = (1, 1)
    """Fewest and most ops that are applied; each number between is as likely."""

    num_words = 2
    formula = "each at most once, in the order of the list"

    @model_validator(mode="after")
    def _holds_as_many(self) -> Self:
        if not self.num[0] <= self.num[1] <= len(self.ops):
            raise ValueError(f"num={self.num} is not a range within 0..{len(self.ops)}, the number of its ops.")
        return self

    @property
    def num_variants(self) -> int | None:
        return None

    @property
    def draws_text(self) -> str:
        few, most = self.num
        return f"{few if few == most else f'{few} to {most}'} of {_names(self.ops)}"

    @property
    def bends(self) -> frozenset[tuple[Op, ...]]:
        return bends_in_turn(self.ops, most=self.num[1])

    def choose(self, words: RandomWords) -> Bool:
        keys = words.nested("order", len(self.ops), slice(None)).words
        ranks = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable")
        num = self.num[0] + words.integer(1, self.num[1] - self.num[0] + 1)
        applied: Bool = words.happens(0, self.p)[:, None] & (ranks < num[:, None])
        return applied

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        """The program of colours has room for the steps of as many ops as act on one image."""
        first = len(frame.steps)
        nums: list[int] = []
        for key, op in self.keyed:
            before = len(frame.steps)
            frame.steps = self.applied_to_some(key, op, frame, drawn[key], at=before)
            nums.append(len(frame.steps) - before)
        most = sum(sorted(nums)[len(nums) - self.num[1] :])
        frame.steps = frame.steps[:first] + in_fewer_places(frame.steps[first:], most)


class AllOf(Group):
    """Apply several ops together or none of them: for a choice of `OneOf`, or under one probability."""

    op: Literal["all_of"] = "all_of"
    in_turn: bool = False
    """Whether each of its ops takes a pass of its own, and finishes before the next one begins. It needs an `own_look`,
    its own or that of the `one_of` that it is a choice of."""

    num_words = 1
    formula = "all of them or none"

    @property
    def num_variants(self) -> int | None:
        return product(op.num_variants for op in self.ops)

    @property
    def draws_text(self) -> str:
        return f"all of {_names(self.ops)}"

    def choose(self, words: RandomWords) -> Bool:
        return np.repeat(words.happens(0, self.p)[:, None], len(self.ops), axis=1)

    @property
    def num_stages(self) -> int:
        return len(self.ops) if self.in_turn else 1

    def apply_stage(self, frame: Frame, drawn: Drawn, stage: int) -> None:
        if not self.in_turn:
            super().apply_stage(frame, drawn, stage)
        for key, op in self.keyed[stage : stage + 1] if self.in_turn else ():
            frame.steps = self.applied_to_some(key, op, frame, drawn[key], at=len(frame.steps))


def each_within(by: Callable[[Op], Op]) -> Callable[[Op], Op]:
    """`by` of an op, or of each op that a group holds; asked for the same op again, it gives the same new one."""
    made: dict[int, tuple[Op, Op]] = {}  # with the old one, whose id is its own for as long as it lives

    def remade(op: Op) -> Op:
        if id(op) in made:
            return made[id(op)][1]
        if isinstance(op, Group):
            held = tuple(map(remade, op.ops))
            is_same = all(new is old for new, old in zip(held, op.ops, strict=True))
            made[id(op)] = op, op if is_same else changed(op, ops=held)
        else:
            made[id(op)] = op, by(op)
        return made[id(op)][1]

    return remade


def ignores_turn(group: Group, *, takes_passes: bool) -> bool:
    """Whether the group, or one in it, has `in_turn` without effect: it neither has an `own_look` nor is a choice of a
    `OneOf` that does."""
    if isinstance(group, AllOf) and group.in_turn and not takes_passes:
        return True
    reaches = takes_passes and isinstance(group, OneOf)
    return any(ignores_turn(op, takes_passes=reaches) for op in group.ops if isinstance(op, Group))


def _rows_of_each(applied: Bool) -> list[Int]:
    """For each of k ops the images that it is applied to, of (n, k)."""
    _, images = np.nonzero(applied.T)
    ends = np.cumsum(applied.sum(axis=0)).tolist()
    return [images[first:end] for first, end in zip([0, *ends], ends, strict=False)]


def _names(ops: Sequence[Op]) -> str:
    """The ops by name, those within a group in brackets, and each once: `flip, 2 rotate, (posterize, blur)`."""
    named = Counter(f"({_names(op.ops)})" if isinstance(op, Group) else op.op for op in ops)
    return ", ".join(name if num == 1 else f"{num} {name}" for name, num in named.items())
