"""Functions among transforms of torchvision: of PIL images, arrays or tensors, by where they stand."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from augpipe import ops
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.functions import NOT_HELD, NOTE, ON_TENSORS, OfPillow, custom
from augpipe.recipes.importers.lines import Line, line_of


def _function(one: Any) -> Any:
    """The function of a Lambda, or that stands there itself; None where it is not held."""
    return one if isinstance(one, FunctionType) else getattr(one, "lambd", None)


def of_pillow(found: Findings, one: Any) -> None:
    """A function of a PIL image."""
    of_arrays(found, one, OfPillow)


def of_tensors(found: Findings, one: Any) -> None:
    """A function of numbers in 0..1, which is a `Normalize` where it multiplies and adds."""
    if (fn := _function(one)) is None:
        raise ValueError(NOT_HELD)
    line = line_of(fn)
    if line is None:
        raise ValueError(ON_TENSORS)
    if not _keeps(found, line):
        mean, std = 0.0 - line.shift / line.slope, 1.0 / line.slope
        found.add("Lambda", ops.Normalize(mean=(mean,) * 3, std=(std,) * 3))


def of_levels(found: Findings, one: Any) -> None:
    """A function of a tensor of levels in 0..255."""
    if not _keeps(found, line_of(_function(one))):
        raise ValueError(ON_TENSORS)


def of_arrays(found: Findings, one: Any, wrap: Callable[[Any], Any] | None = None) -> None:
    """A function of an (H, W, 3) uint8 array, or of what `wrap` makes it one of."""
    fn = _function(one)
    if _keeps(found, line_of(fn)):
        return
    if fn is None or isinstance(fn, Line):
        raise ValueError(NOT_HELD)
    found.add("Lambda", custom(fn if wrap is None else wrap(fn)), note=NOTE)


def _keeps(found: Findings, line: Line | None) -> bool:
    """Whether a function leaves images as they are, which are RGB here."""
    if line is None or not line.is_same:
        return False
    found.channels = 3 if line.repeats else found.channels
    return True
