"""What transforms that hold others become: groups of ops, or one crop of several."""

from collections.abc import Sequence

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.one_crop import is_affine
from augpipe.ops.sized_crops import PlacedCrop
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.reasons import in_their_words
from augpipe.validation.models import FieldError

IN_ORDER = "the order is that of the list, always."
"""What differs in a group whose order is drawn."""
Members = Sequence[tuple[Op, ...]]
"""The ops of each transform that is held."""


def one_of(found: Findings, members: Members, weights: Sequence[float] | None, p: float = 1.0) -> Op:
    """One of several by weight, each of which is applied whole.

    Raises:
        ValueError: some of them make images of another size, and some change more than where pixels are.
    """
    if _are_crops(found, members):
        shares = list(weights) if weights is not None else [1.0] * len(members)
        return _one_crop(found, members, [p * share / sum(shares) for share in shares], 1.0 - p)
    return ops.OneOf.model_validate({"ops": in_groups(members), "weights": weights, "p": p})


def all_of(found: Findings, members: Members, p: float = 1.0) -> Op:
    """All of them or none.

    Raises:
        ValueError: some of them make images of another size, and some change more than where pixels are.
    """
    if _are_crops(found, members):
        return _one_crop(found, [tuple(op for own in members for op in own)], [p], 1.0 - p)
    return ops.AllOf.model_validate({"ops": in_groups(members), "p": p})


def some_of(found: Findings, members: Members, num: int, p: float) -> Op:
    """As many of them.

    Raises:
        ValueError: some of them make images of another size.
    """
    if _are_crops(found, members):
        raise ValueError("chooses several crops, resizes or paddings, which is not mapped; write OneOf")
    return ops.SomeOf.model_validate({"ops": in_groups(members), "num": (num, num), "p": p})


def at_times(crop: Op, p: float) -> Op:
    """A crop that has a chance.

    Raises:
        ValueError: it has none, one that is not a probability, or it looks at objects.
    """
    if p == 1.0:
        return crop
    if not 0.0 < p < 1.0:
        raise ValueError("p=0: it never happens" if p == 0.0 else f"p={p:g} is not a probability; give one in 0..1")
    if isinstance(crop, PlacedCrop) and crop.keep is not None:
        raise ValueError(f"p={p:g}: a crop that looks at boxes is always applied; set p=1")
    return ops.OneCrop(chains=((crop,), ()), weights=None if p == 0.5 else (p, 1.0 - p))


def in_groups(members: Members) -> tuple[Op, ...]:
    """Each as one op.

    Raises:
        ValueError: there are none, or one of them normalises.
    """
    if not members:
        raise ValueError("holds no transforms; list those to choose from")
    if any(isinstance(op, ops.Normalize) for own in members for op in own):
        raise ValueError("holds what normalises, which all images of a batch are or none; put it behind the group")
    held = [own or (ops.Identity(),) for own in members]
    return tuple(own[0] if len(own) == 1 else ops.AllOf.model_validate({"ops": own}) for own in held)


def _are_crops(found: Findings, members: Members) -> bool:
    """Whether they make images of another size, some of them, and one look-up chooses among them."""
    flat = [op for own in members for op in own]
    crop = next((op for op in flat if op.is_crop), None)
    if crop is None:
        return False
    names = {id(op): row.name for row in found.rows for op in row.ops}
    for op in flat:
        if not (op.is_crop or all(map(is_affine, op.flat))):
            held, other = (names.get(id(one), one.op) for one in (crop, op))
            raise ValueError(
                f"holds {held}, which makes images of another size, and {other}: one look-up chooses among crops, "
                f"resizes, paddings, flips and affine maps; put {held} before the group, for all images"
            )
        if isinstance(op, PlacedCrop) and op.keep is not None:
            raise ValueError(f"holds {names.get(id(op), op.op)}, which looks at boxes; put it before the group")
    return True


def _one_crop(found: Findings, members: Members, weights: list[float], rest: float) -> Op:
    """One of several chains of crops, or with the weight `rest` all of the image."""
    chains = [tuple(op for op in own if not isinstance(op, ops.Identity)) for own in members]
    if rest > 0.0:
        chains, weights = [*chains, ()], [*weights, rest]
    even = len(set(weights)) == 1
    try:
        return ops.OneCrop.model_validate({"chains": chains, "weights": None if even else weights})
    except FieldError as error:
        told = in_their_words(" ".join(error.lines), found.rows)
        raise ValueError(told.replace(" of one_crop", "").replace("one_crop", "the group")) from error
