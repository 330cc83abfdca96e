"""Ops and recipes explain themselves: help, signatures, the JSON schema, and what is said of values without a name."""

import inspect
import pydoc
import re
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from augpipe import Recipe, Schedule, View, ops
from augpipe.cli.app import app
from augpipe.recipes.schedule import Stage
from augpipe.validation.documented import meanings

KINDS = [getattr(ops, name) for name in ops.__all__ if name != "Op"] + [Recipe, View, Schedule, Stage]


def test_help_says_what_each_field_means() -> None:
    text = pydoc.plain(pydoc.render_doc(ops.RandomResizedCrop)).partition("Method resolution order")[0]
    assert "FieldInfo" not in text and "WrapValidator" not in text
    for line in (
        "(*, size: int | tuple[int, int] = 224, scale: tuple[float, float] = (0.08, 1.0)",
        "size (int or (int, int), default 224): Output height and width, in pixels",
        "ratio ((float, float), default (0.75, 1.333)): Smallest and largest width over height",
        "p (float in 0..1, default 1): How often the crop's area, ratio and place are drawn; otherwise",
    ):
        assert line in text, line


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_explained_everywhere(kind: type[Any]) -> None:
    fields = kind.field_names()
    assert list(inspect.signature(kind).parameters) == fields
    described = kind.model_json_schema(ref_template="{model}")
    properties = described.get("$defs", {}).get(kind.__name__, described)["properties"]
    text = " ".join((inspect.getdoc(kind) or "").split())
    for field in fields:
        meaning = meanings(kind)[field]
        assert meaning.endswith(".") and not meaning.startswith("Likewise")
        assert properties[field]["description"] == meaning
        assert f" {field} (" in text and meaning in text
    assert "Args:" not in described.get("description", "")
    assert f"default {None}" not in str(properties)


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_hold_plain_types_and_the_defaults(kind: type[Any]) -> None:
    signature = inspect.signature(kind)
    assert "Annotated" not in str(signature) and "Validator" not in str(signature)
    assert len(re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(signature))) < 475  # classes without their modules
    for name, parameter in signature.parameters.items():
        assert parameter.kind is parameter.KEYWORD_ONLY
        field = kind.model_fields[name]
        assert field.is_required() or parameter.default == field.default


def test_a_group_of_ops_says_op_and_not_all_of_them() -> None:
    assert "ops (list of Op, default ()): The ops to choose from" in (ops.OneOf.__doc__ or "")
    assert str(inspect.signature(ops.OneOf).parameters["ops"]) == "ops: tuple[augpipe.ops.op.Op, ...] = ()"


def test_own_classes_are_explained_too_and_need_no_source() -> None:
    class Tint(ops.Op):
        """A tint of one's own."""

        op: str = "tint"
        amount: float = 0.5

    assert Tint.__doc__ == "A tint of one's own.\n\nArgs:\n    amount (float, default 0.5):"

    class Untold(Tint):
        pass

    assert Untold.__doc__ is None and (inspect.getdoc(Untold) or "").startswith("A tint of one's own.")


def test_a_description_that_is_called_has_the_signature_of_the_call() -> None:
    class Called(ops.Flip):
        def __call__(self, x: int) -> int:
            return x

    assert str(inspect.signature(Called())) == "(x: int) -> int"


@pytest.mark.slow
def test_no_source_is_read_before_somebody_asks() -> None:
    code = (
        "from augpipe import ops; from augpipe.validation import documented; print(documented._in_module.cache_info())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "misses=0" in ended.stdout


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (lambda: ops.RandomResizedCrop(224), "Write RandomResizedCrop(size=224)."),
        (lambda: ops.RandomResizedCrop(96, (0.5, 1)), "Write RandomResizedCrop(size=96, scale=(0.5, 1))."),
        (lambda: ops.Flip(0.3), "Write Flip(p=0.3)."),
        (lambda: ops.Flip("vertical"), "Write Flip(direction='vertical')."),
        (lambda: ops.Rotate(15, p=0.5), "Write Rotate(max_deg=15)."),
        (lambda: ops.Normalize(0.5, 0.5), "Write Normalize(mean=0.5, std=0.5)."),
        (lambda: Recipe([ops.Flip(), ops.Rotate()]), "Write Recipe(ops=[Flip(...), Rotate(...)])."),
        (lambda: Recipe(ops.Flip(), ops.Rotate()), "Write Recipe(ops=[Flip(...), Rotate(...)])."),
        (lambda: ops.CenterCrop("large"), "takes each value by its field's name. Its fields: size, scale."),
    ],
)
def test_a_value_without_a_name_is_answered_with_what_to_write(make: Any, written: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert written in str(caught.value)


def test_inspect_says_what_the_fields_of_a_recipe_mean() -> None:
    said = CliRunner().invoke(app, ["inspect", "evaluation", "--fields"]).stdout
    assert re.search(r"field +value +meaning", said)
    assert re.search(r"scale +256 +The short side that the image is resized to, in pixels", said)
    assert re.search(r"std +\(0.229, 0.224, 0.225\) +Per channel, or one number for all", said)
    assert "meaning" not in CliRunner().invoke(app, ["inspect", "evaluation"]).stdout


def test_pydantics_own_classes_are_left_alone() -> None:
    assert BaseModel.__doc__ is not None and "Args:" not in BaseModel.__doc__
