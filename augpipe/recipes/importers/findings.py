"""What an importer finds on its way: ops, what differs, and what cannot be mapped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.crops import seen_beyond
from augpipe.ops.op import Beyond
from augpipe.validation.models import FieldError

POINTWISE = (
    *(
        ops.Brightness,
        ops.BrightnessContrast,
        ops.Saturation,
        ops.Hue,
        ops.HueSaturationValue,
        ops.Grayscale,
        ops.Invert,
        ops.Posterize,
    ),
    *(ops.Solarize, ops.Gamma, ops.ChannelShuffle, ops.ChannelDropout, ops.ColorJitter),
)
"""Ops of pixels alone: the same before a crop as after it."""
IN_PLACE = (ops.Flip, ops.Identity, ops.Blur)
"""Ops that, as all geometry, act where they stand among crops and paddings."""
FILTERS = (ops.BoxBlur, ops.Emboss, ops.GaussianBlur, ops.MedianBlur, ops.MotionBlur, ops.Sharpen)
"""Ops whose sizes are in pixels of what they are given."""
KEEPS_BLACK = (
    *(ops.Brightness, ops.Saturation, ops.Hue, ops.HueSaturationValue, ops.Grayscale, ops.Gamma, ops.ChannelShuffle),
    *(ops.ChannelDropout, ops.Posterize),
)
"""Ops that leave a black border black."""


@dataclass(kw_only=True)
class Findings:
    """What was found so far."""

    source: str
    """The library."""
    name_of: Callable[[Any], str]
    """What a transform is called."""
    read: Callable[[Any, str], Any] = getattr
    """A setting of a transform."""
    ops: list[Op] = field(default_factory=list)
    exact: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    borders: list[Beyond] = field(default_factory=list)
    """What transforms show beyond the image: a recipe's border and fill."""
    channels: int = 3
    """Channels of a finished image."""

    def add(self, name: str, *made: Op, note: str = "") -> None:
        """A transform became ops, exactly unless a note says what differs."""
        self.ops += made
        if note:
            self.note(f"{name}: {note}")
        else:
            self.exact.append(name)

    def note(self, text: str) -> None:
        """Something differs."""
        if text not in self.notes:
            self.notes.append(text)

    def refuse(self, name: str, reason: str) -> None:
        """A transform cannot be mapped."""
        self.problems.append(f"{name}: {reason}")

    def add_by(self, makers: Mapping[str, "Maker"], one: Any) -> None:
        """Have a transform made by the one of `makers` that its name says, or refuse it."""
        name = self.name_of(one)
        if name not in makers:
            self.refuse(name, "is not known here")
            return
        try:
            makers[name](self, one)
        except KeyError as error:
            self.refuse(name, f"has no {error}")
        except (AttributeError, TypeError, ValueError) as error:
            self.refuse(name, in_a_line(error))

    def within(self) -> "Findings":
        """For transforms within another one: the same lists, and ops of their own."""
        inner = Findings(source=self.source, name_of=self.name_of, read=self.read)
        inner.exact, inner.notes, inner.problems, inner.borders = self.exact, self.notes, self.problems, self.borders
        return inner

    def recipe_fields(self) -> dict[str, Any]:
        """The border, fill and ops of the recipe.

        Raises:
            ValueError: something cannot be mapped; lists all of it.
        """
        crops = [op for op in self.ops if op.is_crop]
        for place, op in enumerate(self.ops):
            later = [one for one in self.ops[place:] if one.is_crop]
            alike = () if any(one.beyond for one in later) else POINTWISE
            if (
                later
                and not op.is_crop
                and not all(_acts_in_place(inner) or isinstance(inner, alike) for inner in op.flat)
            ):
                self.note(f"{op.op}: stands before the {later[0].op}, and acts after it here.")
            moved = next((one for one in self.ops[place:] if any(inner.is_geometry for inner in one.flat)), None)
            if moved and moved is not op and any(isinstance(inner, FILTERS) for inner in op.flat):
                self.note(f"{op.op}: stands before {moved.op}, and acts after it here.")
        if any(border == "constant" for border, _ in self.borders):
            fills = set(self.borders)
            unchanged: tuple[type[Op], ...] = KEEPS_BLACK if fills == {("constant", (0.0, 0.0, 0.0))} else ()
            moves = [place for place, op in enumerate(self.ops) if any(one.is_geometry for one in op.flat)]
            for op in self.ops[: moves[-1]] if moves else ():
                is_tone = not op.is_crop and not any(map(_acts_in_place, op.flat))
                if is_tone and not all(isinstance(inner, unchanged) for inner in op.flat):
                    self.note(f"{op.op}: stands before {self.ops[moves[-1]].op}, whose fill it changes, too.")
        for place, op in enumerate(self.ops):
            if op.op == "normalize" and any(later.op not in ("normalize", "erase") for later in self.ops[place + 1 :]):
                self.refuse("Normalize", "stands before other ops, and is always the last step here")
        if self.problems:
            raise ValueError(
                f"{len(self.problems)} of {self.source}'s transforms cannot be imported:\n"
                + "\n".join(f"  {problem}" for problem in self.problems)
                + "\nLeave them out and add ops by hand."
            )
        own = next((op.beyond for op in crops if op.beyond), None)
        borders = [*([own] if own else []), *(seen_beyond(*one) for one in self.borders)]
        if len(set(borders)) > 1:
            self.note(
                f"borders: transforms fill differently beyond the image, and a view has one border: {borders[0]}."
            )
        border, fill = borders[0] if borders else ("context", (0.0, 0.0, 0.0))
        return {"border": border, "fill": fill, "channels": self.channels, "ops": tuple(self.ops)}


def erase(p: float, scale: Any, ratio: Any, fill: Any, normalised: Op | None) -> ops.Erase:
    """An Erase, in terms of what normalisation makes of it."""
    erased = ops.Erase(p=p, scale=tuple(scale), ratio=tuple(ratio), fill=fill)
    if not isinstance(normalised, ops.Normalize):
        return erased
    return erased.model_copy(update={"mean": normalised.mean, "std": normalised.std})


def _acts_in_place(op: Op) -> bool:
    return op.is_geometry or isinstance(op, IN_PLACE)


def floored_centre(size: Any) -> Op:
    """The centre where half a pixel is cut off: `CenterCrop` rounds it, as torchvision does."""
    return ops.RandomCrop(size=tuple(size), p=0.0)


def levels(value: Any) -> tuple[float, float, float]:
    """R, G, B of a fill that is given as a number, a sequence or None."""
    if value is None:
        return (0.0, 0.0, 0.0)
    if isinstance(value, Sequence):
        red, green, blue = value if len(value) == 3 else (value[0],) * 3
        return float(red), float(green), float(blue)
    return (float(value),) * 3


def channels(value: Any) -> Any:
    """A mean or std for `ops.Normalize`: the numbers of a sequence, an array or a tensor; what holds none as it is."""
    try:
        return tuple(np.asarray(value, np.float64).reshape(-1).tolist())
    except (TypeError, ValueError):
        return value


def in_a_line(error: Exception) -> str:
    """What is wrong with the fields of an op, or an error's first line."""
    return " ".join(error.lines) if isinstance(error, FieldError) else str(error).splitlines()[0]


Maker = Callable[[Findings, Any], None]
"""What makes ops of a transform, and adds them with what differs."""


def same(kind: type[Op], *, note: str = "", **fields: Any) -> Maker:
    """A row of a library's table: one op, as often as the transform.

    Args:
        kind: the op.
        note: what differs.
        fields: those of the op, each a value or made of the transform; `p` is the transform's own unless it is one.
    """

    def add(found: Findings, one: Any) -> None:
        made = {name: value(one) if callable(value) else value for name, value in fields.items()}
        if "p" in kind.model_fields and "p" not in made:
            made["p"] = found.read(one, "p")
        found.add(found.name_of(one), kind.model_validate(made), note=note)

    return add
