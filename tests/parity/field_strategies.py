"""Hypothesis strategies for ops, made of the types, limits and steps of their fields."""

from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hypothesis import reject
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from augpipe import ops
from augpipe.ops.draws import Number, Within
from augpipe.validation.documented import given_fields
from augpipe.validation.models import FieldError

PROBABILITIES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))


def ranges(low: float, high: float) -> st.SearchStrategy[tuple[float, float]]:
    """(smaller, larger) within low..high."""
    numbers = st.floats(low, high).map(lambda value: round(value, 9))  # no widths that a few steps round to 0
    return st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))


@st.composite
def of_kind(draw: st.DrawFn, kind: type[ops.Op]) -> ops.Op:
    """An op with any of its fields given; steps divide their range where there are any."""
    steps = {one.step: one.field for one in kind.draws if isinstance(one, Number) and isinstance(one.step, str)}
    fields = {name: field for name, field in given_fields(kind).items() if name not in steps}
    values = draw(st.fixed_dictionaries({}, optional={name: of_field(*item) for name, *item in _parts(fields)}))
    for name, of in steps.items():
        low, high = values.get(of, kind.model_fields[of].default)
        if high > low and not isinstance(high, int) and draw(st.booleans()):
            values[name] = (high - low) / draw(st.integers(1, 9))
    try:
        return kind(**values)
    except FieldError:
        reject()


def _parts(fields: dict[str, FieldInfo]) -> Iterator[tuple[str, Any, list[Any], Any]]:
    for name, field in fields.items():
        yield name, field.annotation, list(field.metadata), field.default


def of_field(annotation: Any, limits: list[Any], default: Any) -> st.SearchStrategy[Any]:
    """Values of a type within its limits; ranges and numbers without both of them stay near their default."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return of_field(inner[0], [*limits, *_flat(inner[1:])], default)
    if origin in (Union, UnionType):
        return st.one_of(*(st.none() if one is NoneType else of_field(one, limits, default) for one in inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if annotation is bool:
        return st.booleans()
    if origin is tuple and (get_origin(inner[0]) is tuple or (len(inner) == 3 and default is None)):
        return st.tuples(*(of_field(one, limits, default) for one in inner))
    if origin is tuple and len(inner) == 2:
        number = inner[0]
        if get_origin(number) is Annotated:
            number, limits = get_args(number)[0], [*limits, *_flat(get_args(number)[1:])]
        low, high = _ends(limits, _near(default))
        if number is int:
            whole = st.integers(int(low), int(high))
            return st.tuples(whole, whole).map(lambda pair: (min(pair), max(pair)))
        return ranges(low, high)
    if annotation in (int, float):
        ends = _ends(limits, _near(default))
        if annotation is int:
            return st.integers(int(ends[0]), int(ends[1]))
        is_open = any(isinstance(one, Gt) for one in limits), any(isinstance(one, Lt) for one in limits)
        return st.floats(*ends, exclude_min=is_open[0], exclude_max=is_open[1])
    return st.just(default)


def _near(default: Any) -> tuple[float, float]:
    if isinstance(default, tuple):
        return default
    return (default, default) if isinstance(default, int | float) else (1, 1)


def _flat(metadata: Iterable[Any]) -> list[Any]:
    return [part for one in metadata for part in (one.metadata if isinstance(one, FieldInfo) else [one])]


def _ends(limits: list[Any], default: tuple[float, float]) -> tuple[float, float]:
    """The least and largest number: the limits, or those of the default range and its width on each side."""
    width = default[1] - default[0] or max(abs(default[1]), 1.0)
    low, high = default[0] - width, default[1] + width
    is_limited = any(isinstance(one, Ge | Gt) for one in limits) and any(isinstance(one, Le | Lt) for one in limits)
    if is_limited or all(isinstance(end, int) for end in default):
        low, high = float("-inf"), float("inf")
    for one in limits:
        if isinstance(one, Within):
            low, high = max(low, one.low), min(high, one.high)
        for kind, name in ((Ge, "ge"), (Gt, "gt")):
            low = max(low, getattr(one, name)) if isinstance(one, kind) else low
        for kind, name in ((Le, "le"), (Lt, "lt")):
            high = min(high, getattr(one, name)) if isinstance(one, kind) else high
    return max(low, default[0] - 1000), min(high, default[1] + 1000)
