"""Descriptions that a user writes in Python or TOML, and what is said of a mistake: field, value, rule, remedy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, WrapValidator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from augpipe.validation.documented import Documented, meanings, summary
from augpipe.validation.suggest import nearest
from augpipe.validation.written import written

if TYPE_CHECKING:
    ListOf = Sequence
else:

    class ListOf:
        """`ListOf[X]`, for fields: type checkers let a list of X be given; it is checked and kept as a tuple."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return tuple[kind, ...]


_RULES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "extra_forbidden": "is not a field",
    "dict_type": "must be a table of fields and values",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "model_type": "must be a {class_name}(...), in TOML a table",
    "string_type": "must be a text, in quotes",
    "too_short": "must hold at least {min_length}",
    "tuple_type": "must be a list, as {{name}}=[{found}]",
}
"""What pydantic calls a mistake -> the rule in our words; of what is not here, pydantic's own are shown."""

_LONGEST_VALUE = 60
"""Letters of a value that a message shows."""


class FieldError(ValueError):
    """A description has mistakes; the message is one line, or a line for each."""

    def __init__(self, what: str, problems: Sequence[tuple[str, str]]) -> None:
        self.what = what
        self.problems = tuple(problems)
        """(place, text) of each, as ("ops[0].flip.p", "=50 must be ..."): together they are its line."""
        lines = self.lines
        named = [line if place == "" else f"{what}: {line}" for line, (place, _) in zip(lines, problems, strict=True)]
        super().__init__(named[0] if len(named) == 1 else "\n".join([f"{what}:", *(f"  {line}" for line in lines)]))

    @property
    def lines(self) -> list[str]:
        """One for each mistake, without the description's kind before it."""
        return [_line(place, text) for place, text in self.problems]

    def __reduce__(self) -> tuple[type["FieldError"], tuple[str, tuple[tuple[str, str], ...]]]:
        return type(self), (self.what, self.problems)


Description = TypeVar("Description", bound=BaseModel)


class Checked(BaseModel, metaclass=Documented):
    """A frozen description whose fields are checked when it is made.

    Raises:
        FieldError: a value is wrong; a ValueError.
        TypeError: a value is given without its field's name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    noun: ClassVar[str] = ""
    """What a message calls it that names a field it does not have, as "a recipe"; without one, the class's name."""

    def __init__(self, /, *nameless: Any, **fields: Any) -> None:
        kind = type(self)
        if nameless:
            raise TypeError(_named(kind, nameless, fields))
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise FieldError(kind.__name__, _problems(error, kind)) from None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Fields are described by the texts under them."""
        schema = handler(core_schema)
        made = handler.resolve_ref_schema(schema)
        if "description" in made:
            made["description"] = summary(made["description"])
        for name, field in made.get("properties", {}).items():
            if name in meanings(cls):
                field.setdefault("description", meanings(cls)[name])
        return schema

    # as on pydantic's own: a table within a table is then checked with the outer one, so its place is known
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __copy__(self) -> Self:
        """Without what was worked out of the fields and kept: `model_copy` gives some of them other values."""
        made = super().__copy__()
        for name in made.__dict__.keys() - type(self).model_fields.keys():
            del made.__dict__[name]
        return made

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """What differs from its default: an imported recipe can be read then, and pasted into code."""
        fields = type(self).model_fields
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        return [(name, value) for name, value in super().__repr_args__() if value != defaults.get(str(name))]

    def __repr__(self) -> str:
        return written(self)

    def __str__(self) -> str:
        return repr(self)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except ValidationError:
            kind = type(self).__name__
            raise FieldError(
                kind, [(name, f" is frozen. Make another one, as {kind}({name}={_shown(value)}).")]
            ) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """The description that a mapping holds, such as a TOML file's.

        Raises:
            FieldError: a value is wrong.
        """
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise FieldError(cls.__name__, _problems(error, cls)) from None

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if cls.noun and isinstance(data, Mapping):
            refuse_unknown(cls.noun, data, cls.field_names())
        return data

    @classmethod
    def field_names(cls) -> list[str]:
        """The fields that a user gives."""
        return list(cls.model_fields)


def changed(model: Description, **fields: Any) -> Description:
    """A description with other values in some fields, checked as a new one."""
    return type(model).model_validate({name: getattr(model, name) for name in type(model).model_fields} | fields)


def _named(kind: type[Checked], nameless: Sequence[Any], fields: Mapping[str, Any]) -> str:
    """What to write instead of values without names: each under the first field that takes it, or all in one list."""
    names = kind.field_names()
    free = [name for name in names if name not in fields]
    written: list[str] = []
    for value in nameless:
        taking = next((name for name in free if _takes(kind, name, value)), None)
        if taking is not None:
            free.remove(taking)
            written.append(f"{taking}={_shown(value)}")
    if len(written) < len(nameless):
        written = [f"{name}=[{', '.join(map(_shown, nameless))}]" for name in free if _takes(kind, name, nameless)][:1]
    hint = f" Write {kind.__name__}({', '.join(written)})." if written else ""
    return f"{kind.__name__} takes each value by its field's name.{hint} Its fields: {', '.join(names)}."


def _takes(kind: type[Checked], name: str, value: Any) -> bool:
    try:
        kind(**{name: value})
    except ValueError:
        return False
    return True


def told(rule: str) -> WrapValidator:
    """For `Annotated`: one rule in words for all that a type refuses, as "must be ...: {name}=0.5"."""

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise broken(rule) from None

    return WrapValidator(check)


def broken(rule: str) -> PydanticCustomError:
    """What a validator raises for a value, which the message names before the rule, as in "must be ...: {name}=0.5"."""
    return PydanticCustomError("told", "{rule}", {"rule": rule})


def refuse_unknown(what: str, data: Mapping[str, Any], fields: Sequence[str], tacit: tuple[str, ...] = ()) -> None:
    """Raise ValueError for a key that is neither among `fields` nor `tacit`, with the nearest field and all of them."""
    for name in data:
        if name not in fields and name not in tacit:
            raise ValueError(_unknown(str(name), what, fields))


def _unknown(name: str, what: str, fields: Sequence[str]) -> str:
    near = nearest(name, fields)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"{name!r} is not a field of {what}.{hint} Its fields: {', '.join(fields)}."


def explain(error: ValidationError) -> list[str]:
    """One line for each mistake: where it is, what was found, the rule, the remedy."""
    return [_line(place, text) for place, text in _problems(error)]


def _problems(error: ValidationError, kind: type[Checked] | None = None) -> list[tuple[str, str]]:
    """(place, text) of each mistake; `kind` is what was to be made."""
    found = []
    for problem in error.errors(include_url=False):
        place = ""
        for part in problem["loc"]:
            place = f"{place}[{part}]" if isinstance(part, int) else _joined(place, str(part))
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, FieldError):  # of a description that was made while this one was checked
            found += [(_joined(place, inner), text) for inner, text in cause.problems]
        elif problem["type"] == "extra_forbidden" and kind is not None and len(problem["loc"]) == 1:
            found.append(("", f": {_unknown(place, kind.__name__, kind.field_names())}"))
        else:
            found.append((place, _text(place, problem)))
    return found


def _text(place: str, problem: ErrorDetails) -> str:
    kind, found = problem["type"], _shown(problem["input"])
    limits = problem.get("ctx", {}).items()
    context = {name: f"{limit:.6g}" if isinstance(limit, float) else limit for name, limit in limits}
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind == "value_error":
        return f": {message}"
    if kind == "missing":
        return " is missing, and has no default. Add it."
    rule = _RULES[kind].format(found=found, **context) if kind in _RULES else message
    rule = rule.replace("{name}", place.rpartition(".")[2])
    near = nearest(str(problem["input"]), context.get("expected", "").split("'")[1::2])
    hint = f" Did you mean {near!r}?" if near else ""
    return f"={found} {rule}{'' if rule.endswith('.') else '.'}{hint}"


def _line(place: str, text: str) -> str:
    return f"{place}{text}" if place else text.lstrip(":= ")


def _joined(above: str, place: str) -> str:
    return f"{above}.{place}" if above and place and not place.startswith("[") else above + place


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, list | tuple) and any(isinstance(item, BaseModel) for item in value):
        return f"[{', '.join(map(_shown, value))}]"
    text = f"{type(value).__name__}(...)" if isinstance(value, BaseModel) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
