"""How transforms look between pixels: those that share the one look-up of a recipe, and those that look alone."""

from collections.abc import Iterable, Iterator, Sequence

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.commuting import acts_in_look_up, is_step, keeps_pixels
from augpipe.ops.view_passes import MOST_PASSES, has_own_look
from augpipe.recipes.importers.rows import Row
from augpipe.validation.models import changed

INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "random")
"""How recipes and groups can look."""
NEAREST_LOOKS = {"lanczos": "bicubic", "hamming": "bicubic"}
"""How they look instead where they cannot, if not bilinear: on photographs, 1 level off Pillow's Lanczos in the
mean, where bilinear is 2 off."""
OF_SINGLE_PIXELS = ("edge", "reflect_101")
"""Borders that go on from the centre of a pixel: a resize changes them."""
WITH_CORNERS = ("reflect", "wrap")
"""Those that go on from where a pixel ends: a resize that keeps the centres of corner pixels changes them instead."""
FIRST = "geometry acts before tone."
"""What differs in a policy that is one look-up."""


def look_alone(made: list[Op], row: Row) -> list[Op] | None:
    """The ops with those of a row in a group that has a look of its own, or with the group that holds them alone having
    it; None where they are not maps by themselves."""
    is_map = all(inner.is_geometry and not inner.is_crop for op in row.ops for inner in op.flat)
    if not row.ops or not is_map or row.look is None or row.look.interpolation not in INTERPOLATIONS:
        return None
    for at, op in enumerate(made):
        if isinstance(op, ops.AllOf) and len(row.ops) == 1 and op is row.ops[0]:
            return [*made[:at], changed(op, own_look=row.look.interpolation), *made[at + 1 :]]
        if op is row.ops[0]:
            group = ops.AllOf.model_validate({"ops": row.ops, "own_look": row.look.interpolation})
            return [*made[:at], group, *made[at + len(row.ops) :]]
        if isinstance(op, ops.AllOf) and [*map(id, op.ops)] == [*map(id, row.ops)]:
            return [*made[:at], changed(op, own_look=row.look.interpolation), *made[at + 1 :]]
    return None


def finished_in_turn(made: Iterable[Op], interpolation: str) -> tuple[Op, ...]:
    """The groups of a policy, each of which looks at what the one before it has finished, as in its library.

    They stay as they are where nothing moves, where a view would take too many passes, or cannot look like that.
    """
    groups = tuple(made)
    held = [inner for op in groups for inner in op.flat]
    looks = ("bilinear",) if any(inner.op == "blur" for inner in held) else INTERPOLATIONS
    if interpolation not in looks or not any(inner.is_geometry for inner in held):
        return groups
    found = [
        changed(op, ops=tuple(map(_in_turn, op.ops)), own_look=interpolation)
        for op in groups
        if isinstance(op, ops.OneOf)
    ]
    return groups if sum(op.num_stages for op in found) >= MOST_PASSES else tuple(found)


def _in_turn(op: Op) -> Op:
    return changed(op, in_turn=True) if isinstance(op, ops.AllOf) else op


def in_turn(op: Op, interpolation: str, maps: Sequence[Op] = ()) -> Op:
    """A group of which each look-up, and so each group that is chosen, looks at what the steps before it have made; any
    other op, and a group that cannot look like that, as it is.

    Args:
        op: the group.
        interpolation: how it looks between pixels.
        maps: those which wait for one another, too.
    """
    looks = ("bilinear",) if any(inner.op == "blur" for inner in op.flat) else INTERPOLATIONS
    if interpolation not in looks or not isinstance(op, ops.AllOf | ops.OneOf) or op.own_look is not None:
        return op
    if isinstance(op, ops.AllOf):
        return changed(_parted(op, maps), own_look=interpolation)
    held = (_parted(one, maps) if isinstance(one, ops.AllOf) else one for one in op.ops)
    return changed(op, ops=tuple(held), own_look=interpolation)


def _parted(op: ops.AllOf, maps: Sequence[Op]) -> ops.AllOf:
    """Its ops in as few groups as begin with a look-up where a step is before one, and hold one of the maps at most."""
    runs: list[list[Op]] = [[]]
    for one in op.ops:
        waits = any(map(acts_in_look_up, one.flat)) and any(is_step(inner) for own in runs[-1] for inner in own.flat)
        if waits or (_hold([one], maps) and _hold(runs[-1], maps)):
            runs.append([])
        runs[-1].append(one)
    if len(runs) == 1:
        return op
    return changed(op, in_turn=True, ops=tuple(run[0] if len(run) == 1 else ops.AllOf(ops=tuple(run)) for run in runs))


def _hold(listed: Iterable[Op], maps: Sequence[Op]) -> bool:
    return any(held is one for op in listed for held in with_held(op) for one in maps)


def looked_at_once(rows: Sequence[Row], acting: Iterable[tuple[str, Op]]) -> list[int]:
    """The places of the transforms that are one look-up of a pass, and would each be one in their library: of those of
    most, where one of several is chosen."""
    looks = [row for row in rows if row.look is not None and row.look.interpolation != "nearest"]
    seen = [id(row) for _, op in acting if not has_own_look(op) for row in _most_looks(op, looks)]
    return [place for place, row in enumerate(rows) if id(row) in seen]


def _most_looks(op: Op, looks: Sequence[Row]) -> list[Row]:
    """The rows, of those that look, which may act on one image in an op."""
    own = [row for row in looks if row.has(op)]
    if own:
        return own
    if isinstance(op, ops.OneCrop | ops.OneOf):
        chains = op.chains if isinstance(op, ops.OneCrop) else [(one,) for one in op.ops]
        return max(([row for one in chain for row in _most_looks(one, looks)] for chain in chains), key=len)
    return [row for one in op.ops for row in _most_looks(one, looks)] if isinstance(op, ops.AllOf | ops.SomeOf) else []


def bordered_behind_resizes(rows: Iterable[Row], acting: Iterable[tuple[str, Op]]) -> list[Op]:
    """The ops of a pass that show another border than theirs, as one look-up takes the pixels before a resize."""
    borders = {id(op): row.beyond[0] for row in rows if row.beyond for op in row.ops}
    found: list[Op] = []
    changing: set[str] = set()
    for _, op in acting:
        ends = []
        for chain in op.chains if isinstance(op, ops.OneCrop) else ((op,),):
            behind = set(changing)
            for one in chain:
                for own in with_held(one):
                    border = own.beyond[0] if own.beyond else borders.get(id(own))
                    if border in behind and not isinstance(own, ops.ElasticTransform):  # whose field differs by more
                        found.append(own)
                if one.is_crop and not keeps_pixels(one):
                    behind.update(WITH_CORNERS if getattr(one, "align_corners", False) else OF_SINGLE_PIXELS)
            ends.append(behind)
        changing = set().union(*ends)
    return found


def with_held(op: Op) -> Iterator[Op]:
    """An op, and those that groups and chains hold, however deep."""
    yield op
    for inner in op.ops if isinstance(op, ops.AllOf | ops.OneOf | ops.SomeOf) else ():
        yield from with_held(inner)
    for inner in (one for chain in op.chains for one in chain) if isinstance(op, ops.OneCrop) else ():
        yield from with_held(inner)


def acts_before(made: Sequence[Op], row: Row) -> list[Op]:
    """The ops of one look-up that act before those of a row: none where it looks alone, or has no ops there."""
    for at, op in enumerate(made):
        if row.ops and _hold([op], row.ops[:1]):
            first = max((nth + 1 for nth, other in enumerate(made[:at]) if has_own_look(other)), default=0)
            before = [] if has_own_look(op) else made[first:at]
            parts: Iterable[Sequence[Op]] = ()
            if isinstance(op, ops.OneCrop):
                parts = op.chains
            elif isinstance(op, ops.AllOf | ops.OneOf | ops.SomeOf) and op is not row.ops[0]:
                is_parted = isinstance(op, ops.OneOf) or (isinstance(op, ops.AllOf) and op.in_turn)
                parts = [[one] for one in op.ops] if is_parted else [op.ops]
            return [*before, *(held for part in parts for held in acts_before(part, row))]
    return []


def steps_before(made: Iterable[Op], op: Op) -> list[Op]:
    """The ops that may act on an image before an op of them, or of a group or chain of theirs, does."""
    before: list[Op] = []
    for one in made:
        if one is op:
            return before
        if any(held is op for held in with_held(one)):
            if isinstance(one, ops.AllOf | ops.SomeOf):
                return [*before, *steps_before(one.ops, op)]
            chains = one.chains if isinstance(one, ops.OneCrop) else [(held,) for held in getattr(one, "ops", ())]
            return [*before, *next(steps_before(of, op) for of in chains if _hold(of, [op]))]
        before += with_held(one)
    return before


def note_of(made: Iterable[Op]) -> str:
    """What is to be said of a policy that moves pixels and whose groups have no look of their own."""
    groups = tuple(made)
    moves = any(inner.is_geometry for op in groups for inner in op.flat)
    return FIRST if moves and not any(map(has_own_look, groups)) else ""
