"""The passes of a view: a look-up and the steps behind it, and another look-up where the listed order asks for it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeGuard

from augpipe.ops import Blur, Custom, Flip, Identity, Normalize, Op, Rotate
from augpipe.ops.commuting import Place, acts_in_look_up, commutes, is_step, shows_the_same_pixels
from augpipe.ops.groups import AllOf, Group, OneOf
from augpipe.ops.op import Beyond, keyed
from augpipe.ops.resizes import one_size
from augpipe.validation.models import changed

Keyed = tuple[tuple[str, Op], ...]
"""Ops, each under its name in the view."""

MOST_PASSES = 4
"""The most passes of a view: each renders a whole frame."""


def passes_of(acting: Keyed, beyond: Beyond, interpolation: str) -> tuple[Keyed, ...]:
    """The ops of a view, in the order in which they act, pass by pass.

    A look-up begins another pass where a step before it in the same pass does not commute with it. A `Custom` begins
    one in any case, with other ones right behind it: they are called on what it looks at. Groups that hold look-ups and
    steps act as one of each: their look-ups in the pass, their steps behind all look-ups of it. One with an `own_look`
    begins a pass in any case, in which nothing else moves or mixes pixels, and stands in each that it takes. Padding
    behind what moves begins one, too: one look-up would show there what was moved out of the frame.

    Args:
        acting: `View.acting_ops`.
        beyond: the border of the view, and its fill.
        interpolation: of the recipe.
    """
    is_of_papers = any(op.acts_first for _, op in acting)  # all else acts on the cropped frame, in one pass
    passes: list[list[tuple[str, Op]]] = [[]]
    steps: list[Op] = []
    for place, (key, op) in enumerate(acting):
        looks = [inner for inner in op.flat if acts_in_look_up(inner)]
        if is_called(op):
            if len(passes) == 1 or not all(is_called(before) for _, before in passes[-1]):
                passes.append([])
            steps = []
        elif has_own_look(op):
            if passes[-1]:
                passes.append([])
            steps = []
        elif op.beyond and any(map(moves, (before for _, before in passes[-1]))):
            passes.append([])
            steps = []
        elif looks and any(has_own_look(before) for _, before in passes[-1]):
            known = _place(acting[:place], beyond, interpolation)
            if not all(shows_the_same_pixels(look, known) for look in looks) or _waits(steps, looks, known):
                passes.append([])
                steps = []
        elif looks and steps and not is_of_papers:
            known = _place(acting[:place], beyond, interpolation)
            if _waits(steps, looks, known):
                passes.append([])
                steps = []
        passes[-1].append((key, op))
        if has_own_look(op):
            passes += [[(key, op)] for _ in range(op.num_stages - 1)]
            steps += _steps(op)
        elif not looks:
            steps += _steps(op)
    if len(passes) > 1:  # numbers are for the batch, and what a later pass looks up are levels
        passes = [[keyed for keyed in own if not isinstance(keyed[1], Normalize)] for own in passes]
        passes[-1] += [keyed for keyed in acting if isinstance(keyed[1], Normalize)]
    return tuple(map(tuple, passes))


def moves(op: Op) -> bool:
    """Whether it moves what is seen, other than by mirroring, cropping or padding it."""
    return any(inner.is_geometry or inner.is_lens or inner.is_projective for inner in op.flat)


def is_called(op: Op) -> bool:
    """Whether it is a function of the user's that is called on any image."""
    return isinstance(op, Custom) and op.p > 0.0


def has_own_look(op: Op) -> TypeGuard[Group]:
    """Whether it is a group that looks at what all before it have made."""
    return isinstance(op, Group) and op.own_look is not None


def own_look_of(acting: Keyed) -> str | None:
    """How the group that begins a pass looks between pixels, where it says so."""
    return next((op.own_look for _, op in acting if has_own_look(op)), None)


def own_beyond_of(acting: Keyed) -> Beyond | None:
    """The border and fill of the group that begins a pass, where it has its own."""
    return next((op.own_beyond for _, op in acting if has_own_look(op)), None)


def functions_of(passes: Sequence[Keyed]) -> tuple[tuple[tuple[str, Custom], ...], ...]:
    """For each pass the functions that are called on what it looks at, by name."""
    return tuple(tuple((key, op) for key, op in one if isinstance(op, Custom) and is_called(op)) for one in passes)


def reasons(passes: Sequence[Keyed], beyond: Beyond, interpolation: str) -> Iterator[tuple[str, str]]:
    """(step, look-up) for each pass but the first that no function begins: the look-up that does, and the first step
    that it waits for, of padding what moves; or "" and the group with an `own_look` that the pass is for, or that the
    pass before it is."""
    acting = tuple(keyed for one in passes for keyed in one)
    for before, behind in pairwise(passes):
        key, op = behind[0]
        if is_called(op):
            continue
        known = _place(acting[: acting.index((key, op))], beyond, interpolation)
        looks = [] if has_own_look(op) else [inner for inner in op.flat if acts_in_look_up(inner)]
        waits = (
            name
            for name, one in before
            if not any(map(acts_in_look_up, one.flat)) and not has_own_look(one) and _waits(_steps(one), looks, known)
        )
        step = next(waits, "")
        if op.beyond:
            step = next((name for name, one in before if moves(one) and not has_own_look(one)), step)
        yield step, key if step else next(name for name, one in (behind[0], *before) if has_own_look(one))


def late_steps(passes: Sequence[Keyed], beyond: Beyond, interpolation: str) -> Iterator[tuple[Op, Op]]:
    """(op, look-up) for each op whose steps act behind a later look-up of their pass, and do not commute with it: the
    groups of both, and in passes that are not those of `passes_of` other steps. Look-ups of such groups do not count.
    """
    acting = tuple(keyed for one in passes for keyed in one)
    for own in passes:
        for place, (_, op) in enumerate(own):
            for key, later in own[place + 1 :]:
                known = _place(acting[: acting.index((key, later))], beyond, interpolation)
                looks = [] if any(map(is_step, later.flat)) else list(filter(acts_in_look_up, later.flat))
                if _waits(_steps(op), looks, known):
                    yield op, later
                    break


def late_within(op: Op, before: Sequence[Op], beyond: Beyond, interpolation: str) -> Iterator[tuple[Op, Op]]:
    """(step, look-up) for each step of a group that stands before a look-up in it, acts behind it, and does not commute
    with it.

    Args:
        op: the group; any other op has none.
        before: the ops before it in the view.
        beyond: the border of the view, and its fill.
        interpolation: of the recipe.
    """
    own = op.own_beyond if isinstance(op, Group) else None
    yield from _late_within(op, _place(keyed(before), own or beyond, interpolation))


def _late_within(op: Op, known: Place) -> Iterator[tuple[Op, Op]]:
    if not isinstance(op, Group):
        return
    for inner in op.ops:
        yield from _late_within(inner, known)
    if isinstance(op, OneOf) or (isinstance(op, AllOf) and op.in_turn):
        return
    for place, first in enumerate(op.ops):
        looks = [look for later in op.ops[place + 1 :] for look in later.flat if acts_in_look_up(look)]
        for step in _steps(first):
            late = next((look for look in looks if not commutes(step, look, known)), None)
            if late is not None:
                yield step, late


def sized_ops(passes: Sequence[Keyed]) -> Keyed | None:
    """The ops of a view's first pass that choose which rectangle of the image is seen, in how many pixels.

    All others do the same to an image of any size. None where they do not: where a size of the output depends on that
    of the image, and ops behind the crops may look at it.
    """
    first = passes[0]
    moving = next((nth for nth, (_, op) in enumerate(first) if any(one.is_geometry for one in op.flat)), len(first))
    num = max((nth + 1 for nth, (_, op) in enumerate(first[:moving]) if op.is_crop), default=0)
    sized = tuple((key, op) for key, op in first[:num] if op.is_crop or isinstance(op, Flip))
    others = [keyed for keyed in first if keyed not in sized]
    before = [one for keyed in first[:num] if keyed not in sized for one in keyed[1].flat]
    if any(has_own_look(op) for _, op in first):
        return None
    if moving < len(first) and first[moving][1].is_crop:
        return None  # of those that choose what moves, some crop the image itself
    if any(isinstance(one, Blur | Flip) for one in before):
        return None  # crops change how far a blur reaches, and a group that flips shows them something else
    if one_size([op for _, op in sized if op.is_crop]) is not None:
        are_cropped_again = any(op.is_crop for _, op in others)
        return None if are_cropped_again and any(op.beyond for _, op in sized) else sized
    looks_at_no_size = all(_looks_at_no_size(one) for _, op in others for one in op.flat)
    return sized if len(passes) == 1 and looks_at_no_size else None


def _looks_at_no_size(op: Op) -> bool:
    if isinstance(op, Rotate):
        return op.fit_frame == "no"
    return isinstance(op, Blur | Flip | Identity | Normalize) or (is_step(op) and not op.is_within_output)


def in_one_pass(listed: Sequence[Op]) -> tuple[Op, ...]:
    """The ops of a view with all look-ups before all steps, each in their order, and no group with an `own_look`."""
    return tuple(map(without_own_look, _look_ups_first(listed)))


def without_own_look(op: Op) -> Op:
    """A group as part of the look-up before it, which nothing in it finishes in turn; any other op as it is."""
    return changed(_at_once(op), own_look=None, own_border=None, own_fill=0.0) if has_own_look(op) else op


def _at_once(op: Op) -> Op:
    if not isinstance(op, Group):
        return op
    return changed(op, ops=tuple(map(_at_once, op.ops)), **({"in_turn": False} if isinstance(op, AllOf) else {}))


def _look_ups_first(listed: Sequence[Op]) -> list[Op]:
    return sorted(listed, key=lambda op: not any(map(acts_in_look_up, op.flat)))


def changes_places(listed: Sequence[Op]) -> str:
    """The first kind of group of which `in_one_pass` changes the order; empty where it changes none."""
    fused = _look_ups_first(listed)
    kinds = {op.op for op in listed}
    return next(
        (
            kind
            for kind in sorted(kinds)
            if [id(op) for op in listed if op.op == kind] != [id(op) for op in fused if op.op == kind]
        ),
        "",
    )


def _waits(steps: Sequence[Op], looks: Sequence[Op], known: Place) -> bool:
    """Whether look-ups behind steps do not commute with all of them."""
    return not all(commutes(step, look, known) for step in steps for look in looks)


def _steps(op: Op) -> list[Op]:
    return [] if getattr(op, "p", 1.0) == 0.0 else [inner for inner in op.flat if is_step(inner)]


def _place(before: Keyed, beyond: Beyond, interpolation: str) -> Place:
    return Place(
        beyond=beyond,
        is_nearest=interpolation == "nearest",
        sides=one_size([op for _, op in before if op.is_crop]),
    )
