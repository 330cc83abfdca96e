"""How transforms look between pixels, where one recipe looks once: whose pixels can stay whole."""

from dataclasses import replace
from typing import TYPE_CHECKING

from augpipe import ops
from augpipe.ops import Op
from augpipe.recipes.importers.sides import sides_of

if TYPE_CHECKING:
    from augpipe.recipes.importers.findings import Row


def keep_pixels_whole(made: list[Op], rows: list["Row"]) -> None:
    """Have a transform that looks up the nearest pixel of what was resized before do so, by an op before it.

    Nothing behind it may look up anything, and nothing else may bend or project.
    """
    at = next((at for at, row in enumerate(rows) if row.look and row.look.interpolation == "nearest"), None)
    if at is None or any(inner.is_lens or inner.is_projective for op in made for inner in op.flat):
        return
    first = _place_of(made, rows[at])
    if first is None or not any(op.is_crop for op in made[:first]):
        return
    for later in rows[at + 1 :]:
        place = _place_of(made, later) if later.look else None
        if place is not None and not (isinstance(made[place], ops.Resize) and _keeps_sides(made, place)):
            return
    whole = ops.WholePixels()
    made.insert(first, whole)
    rows[at] = replace(rows[at], ops=(whole, *rows[at].ops))


def _place_of(made: list[Op], row: "Row") -> int | None:
    """Where the op stands that a row names, or the group that holds it."""
    own = {id(inner) for op in row.ops for inner in op.flat}
    return next((place for place, op in enumerate(made) if any(id(inner) in own for inner in op.flat)), None)


def _keeps_sides(made: list[Op], place: int) -> bool:
    return sides_of(made[: place + 1]) == sides_of(made[:place])
