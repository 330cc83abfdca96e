"""`augpipe inspect`: what a recipe does, and how many variants of an image it can make."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augpipe.cli.common import (
    RECIPE_HELP,
    JsonOption,
    ScaleOption,
    SizeOption,
    console,
    print_json,
)
from augpipe.recipes.names import load_recipe
from augpipe.reports.tables import terminal_table

if TYPE_CHECKING:
    from rich.table import Table

    from augpipe.ops import Op
    from augpipe.recipes.recipe import Recipe
    from augpipe.recipes.view import View

CONTINUOUS = "any number"


def inspect(
    recipe: Annotated[str, typer.Argument(metavar="NAME|FILE", help=RECIPE_HELP, show_default=False)],
    json: JsonOption = False,
    size: SizeOption = None,
    scale: ScaleOption = None,
    fields: Annotated[
        bool, typer.Option("--fields", help="Also list each op's fields, with value and meaning.")
    ] = False,
) -> None:
    """List a recipe's ops, what each draws, the variants of each and their product.

    Table 1 of the Deep Image papers: augpipe inspect deep_image --scale 512
    """
    chosen = load_recipe(recipe, size, scale)
    if json:
        print_json(as_json(chosen))
        return
    screen = console()
    for number, view in enumerate(_views(chosen), start=1):
        title = chosen.name
        if chosen.views:
            title += f", view {number}" + (f", {view.count} crops of it" if view.count > 1 else "")
        screen.print(_table(title, view))
        waits = chosen.reasons(view)
        if waits:
            passes = next(own for one, own in zip(chosen.all_views, chosen.passes, strict=True) if one is view)
            screen.print(f"{len(passes)} passes: {', '.join(waits)}")
        for op in view.ops if fields else ():
            screen.print(_fields(op))
    if chosen.mosaic is not None:
        mosaic = chosen.mosaic
        num = {4: "four", 9: "nine"}[mosaic.num_images]
        screen.print(f"first a mosaic of {num} samples, each of {mosaic.size} px at most: {mosaic.p:.0%}")
    for mix in chosen.mixing:
        screen.print(f"then {mix.op} with another sample, {mix.text}: {mix.p:.0%}")
    if chosen.views:
        screen.print(f"variants of one photograph: {_number(chosen.num_variants)}")


def as_json(recipe: "Recipe") -> dict[str, Any]:
    """`ops` are those that draw anything, with their variants (null: any number), `fixed` the others; with `passes`
    where there are several, and `mixing` and `mosaic` where the recipe has them."""
    made = _ops_json(recipe) | ({"passes": recipe.num_passes} if recipe.num_passes > 1 else {})
    if recipe.mosaic is not None:
        made["mosaic"] = recipe.mosaic.model_dump()
    return {**made, "mixing": [mix.model_dump() for mix in recipe.mixing]} if recipe.mixing else made


def _ops_json(recipe: "Recipe") -> dict[str, Any]:
    if not recipe.views:
        (view,) = _views(recipe)
        return {**_view_json(view), "variants": recipe.num_variants}
    views = [{**_view_json(view), "count": view.count, "variants": view.num_variants} for view in recipe.views]
    return {"views": views, "variants": recipe.num_variants}


def _views(recipe: "Recipe") -> "Sequence[View]":
    return recipe.views or recipe.all_views


def _view_json(view: "View") -> dict[str, Any]:
    return {
        "ops": [{"op": op.key, "variants": op.num_variants} for op in view.ops if op.num_words],
        "fixed": [op.key for op in view.ops if not op.num_words],
    }


def _table(title: str, view: "View") -> "Table":
    made = terminal_table(title, "op", "draws", "how often", "variants", left=("op", "draws"))
    for op in view.ops:
        often = f"{getattr(op, 'p', 1.0):.0%}" if op.num_words else "always"
        made.add_row(op.key, op.draws_text, often, _number(op.num_variants))
    if not view.ops:
        made.add_row("(none)", "nothing: photographs stay as they are", "always", "1")
    made.add_section()
    made.add_row("product", "", "", _number(view.num_variants))
    return made


def _fields(op: "Op") -> "Table":
    from augpipe.validation.documented import given_fields, meanings, value_text

    made = terminal_table(op.op, "field", "value", "meaning", left=("field", "value", "meaning"))
    for name in given_fields(type(op)):
        made.add_row(name, value_text(getattr(op, name)), meanings(type(op)).get(name, ""))
    return made


def _number(variants: int | None) -> str:
    if variants is None:
        return CONTINUOUS
    return f"{variants:,}" if variants < 10**12 else f"{float(variants):.3g}"
