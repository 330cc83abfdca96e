"""`augpipe recipe` and `augpipe schema`: somewhere to start from when writing one's own recipe."""

from typing import Annotated

import typer

from augpipe.cli.common import RECIPE_HELP, ScaleOption, SizeOption, print_json
from augpipe.recipes.names import load_recipe


def recipe(
    recipe: Annotated[str, typer.Argument(metavar="NAME|FILE", help=RECIPE_HELP, show_default=False)],
    size: SizeOption = None,
    scale: ScaleOption = None,
) -> None:
    """Print a recipe as TOML with every field written out, to start your own from.

    augpipe recipe deep_image > my.toml
    """
    print(load_recipe(recipe, size, scale).to_toml().rstrip("\n"))


def schema() -> None:
    """Print the JSON Schema of recipe files, for editors that complete and check while one types.

    augpipe schema > recipe.schema.json
    """
    from augpipe.recipes.recipe import Recipe

    print_json(Recipe.json_schema())
