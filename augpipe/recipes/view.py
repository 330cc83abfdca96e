"""A view of an image: which ops act on it, in which order, and what one look-up can show of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from augpipe.ops import Grayscale, KeepObjects, Op
from augpipe.ops.geometry import last_swap, within_swapped
from augpipe.ops.groups import Group, ignores_turn
from augpipe.ops.kinds import Ops
from augpipe.ops.op import Beyond, bends_in_turn, keyed, product
from augpipe.ops.resizes import left_unlike, one_size
from augpipe.ops.sized_crops import PlacedCrop
from augpipe.ops.view_passes import has_own_look, moves
from augpipe.validation.models import Checked

OF_ALL_VIEWS = ("border", "fill", "interpolation", "antialias", "channels", "mixing", "mosaic")
"""What a recipe says once, for all of its views."""


def joined(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recipe's fields where recipes stand among its views: their views, and what they say of all views alike.

    Raises:
        ValueError: they say it differently, and `fields` do not say it.
    """
    given = fields.get("views")
    if not isinstance(given, list | tuple):
        return fields
    recipes = [one for one in given if hasattr(one, "all_views")]
    if not recipes:
        return fields
    said = {name: getattr(recipes[0], name) for name in OF_ALL_VIEWS} | dict(fields)
    for name in OF_ALL_VIEWS:
        other = next((one for one in recipes if getattr(one, name) != getattr(recipes[0], name)), None)
        if other is not None and name not in fields:
            raise ValueError(
                f"views are recipes with {name}={getattr(recipes[0], name)!r} and {name}={getattr(other, name)!r}, and "
                f"all views of a recipe have one. Say which: Recipe({name}=..., views=[...])."
            )
    views = [(one.views or (View(ops=one.ops),)) if hasattr(one, "all_views") else (one,) for one in given]
    return said | {"views": [view for some in views for view in some]}


class View(Checked):
    """One crop of an image, or several alike, with ops of its own."""

    ops: Ops = ()
    """In the order in which they act; `Recipe.passes` says in how many passes. With a MultiResolutionCrop among them,
    crops act before all else, as in the papers."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many such crops, each with draws of its own."""

    noun: ClassVar[str] = "a view"

    @model_validator(mode="after")
    def _is_one_pass(self) -> Self:
        self._check_bends()
        self._check_turns()
        borders = {key: op.beyond for key, op in keyed(self.ops) if op.beyond}
        if len(set(borders.values())) > 1:
            texts = (f"{name} shows {border_text(beyond)}" for name, beyond in borders.items())
            raise ValueError(f"a view has one border, and {', '.join(texts)}. Give them the same border and fill.")
        acting = [op for _, op in self.acting_ops]
        moving = [place for place, op in enumerate(acting) if moves(op)]
        for op in acting[moving[0] :] if moving else ():
            if isinstance(op, PlacedCrop) and op.keep is not None:
                mover = acting[moving[0]].op
                raise ValueError(
                    f"{op.op} keeps objects and stands behind {mover}, which moves them: boxes do not fit them there. "
                    f"Put {op.op} before {mover}, or leave keep_objects out."
                )
        padding = [place for place, op in enumerate(acting) if op.beyond]
        between = acting[padding[0] : padding[-1]] if padding else []
        if cut := next((op.op for op in between if op.cuts), None):
            raise ValueError(
                f"{acting[padding[-1]].op} pads what {cut} has cut out of a padded image, and one look-up would show "
                "the image there. Pad once, before the crop."
            )
        if (unlike := left_unlike([op for op in acting if op.is_crop])) is not None:
            raise ValueError(
                f"{unlike.op} draws a size for each image, and no op behind it makes them one again. Put "
                "RandomCrop(size=..., pad_if_needed=True) behind it, or another crop or Resize."
            )
        self._check_swaps()
        kinds = Counter(op.op for op in self.ops)
        for kind in ("color_cast", "vignette", "normalize"):
            if kinds[kind] > 1:
                raise ValueError(f"a view takes one {kind} and this one holds {kinds[kind]}. Keep one.")
        return self

    def _check_swaps(self) -> None:
        """Sides are known where something is drawn within them, and those of a batch are alike."""
        swap = last_swap(self.ops)
        if swap is None:
            return
        if self.crops:
            raise ValueError(
                f"{swap.op} swaps sides, and {self.crops[0].op} makes images of one size: with swaps_sides=True an "
                f"image keeps its own. Leave out swaps_sides, or {self.crops[0].op}."
            )
        if drawn := within_swapped(self.ops):
            raise ValueError(
                f"{drawn} is drawn within the output, whose sides {swap.op} swaps behind it. Put {swap.op} before "
                f"{drawn}, or leave out swaps_sides."
            )

    def _check_turns(self) -> None:
        for key, op in keyed(self.ops):
            if isinstance(op, Group) and ignores_turn(op, takes_passes=op.own_look is not None):
                raise ValueError(
                    f"in_turn=True has no effect in {key}: an all_of needs an own_look for it, or has to be a choice "
                    "of a one_of with an own_look. Write it so, or leave in_turn out."
                )

    def _check_bends(self) -> None:
        together = frozenset().union(*map(bends_in_turn, _looked_up_together(self.ops)))
        for acting in sorted(together, key=lambda acting: [op.op for op in acting]):
            lenses, projections = [op.op for op in acting if op.is_lens], [op.op for op in acting if op.is_projective]
            for what, found in (("what bends", lenses), ("a perspective", projections)):
                if len(found) > 1:
                    in_another = f"{found[1]} is in AllOf(ops=[...], own_look='bilinear'), a pass of its own on the CPU"
                    raise ValueError(
                        f"an image takes {what} once a pass, and {' and '.join(found)} may both act on one. Keep one, "
                        f"or choose among them with OneOf. Both act where {in_another}."
                    )
            if lenses and not acting[0].is_lens:
                raise ValueError(
                    f"{acting[0].op} comes before {lenses[0]}, and the one look-up of a view projects before it bends. "
                    f"Put {lenses[0]} first."
                )

    @cached_property
    def crops(self) -> tuple[Op, ...]:
        """The crops, resizes and paddings, in order; none where the whole image is kept."""
        return tuple(op for op in self.ops if op.is_crop)

    @cached_property
    def keeping(self) -> tuple[tuple[str, KeepObjects], ...]:
        """The crops that look at the image's objects: the kind of each, and what it keeps."""
        return tuple((op.op, op.keep) for op in self.crops if isinstance(op, PlacedCrop) and op.keep is not None)

    @cached_property
    def out_size(self) -> tuple[int, int] | None:
        """(height, width) of the output in pixels; None where it depends on the image."""
        return one_size(self.crops)

    @cached_property
    def ends_gray(self) -> bool:
        """Whether its last op that changes levels is a Grayscale of every image."""
        levels = [op for op in self.ops if not (op.is_crop or op.is_geometry or op.op in ("flip", "normalize", "blur"))]
        return bool(levels) and isinstance(levels[-1], Grayscale) and levels[-1].p == 1.0

    @cached_property
    def beyond(self) -> Beyond | None:
        """The border and the fill that its ops ask for; None leaves them to the recipe."""
        return next((op.beyond for op in self.ops if op.beyond), None)

    @property
    def num_variants(self) -> int | None:
        """The product of its ops' variants; None where one of them is continuous."""
        return product(op.num_variants for op in self.ops)

    @cached_property
    def keyed_ops(self) -> tuple[tuple[str, Op], ...]:
        """Each op under a name that is unique in the view: its kind, and from the second of a kind on its place."""
        return keyed(self.ops)

    @cached_property
    def acting_ops(self) -> tuple[tuple[str, Op], ...]:
        """`keyed_ops` in the order in which they act: as they are listed, or with the crops first."""
        if any(op.acts_first for op in self.crops):
            return tuple(sorted(self.keyed_ops, key=lambda keyed: not keyed[1].is_crop))
        return self.keyed_ops

    @cached_property
    def drawn_dtype(self) -> np.dtype[np.void]:
        """The record of what its ops draw, one field for each op that draws anything."""
        return np.dtype([(key, op.record) for key, op in self.keyed_ops if op.record.names])


def _looked_up_together(listed: Iterable[Op]) -> list[list[Op]]:
    """Ops of which a look-up may hold several: a group with an `own_look` has one of its own."""
    parts: list[list[Op]] = [[]]
    for op in listed:
        if has_own_look(op):
            parts += [[op], []]
        else:
            parts[-1].append(op)
    return parts


def border_text(beyond: Beyond) -> str:
    """A border as messages show it."""
    border, fill = beyond
    return f"{border} {[round(level, 3) for level in fill]}" if border == "constant" else border
