"""The reference: the public names by their docstrings, the commands, and the fields of recipes and configs."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer

from augpipe.cli.app import app
from augpipe.cli.exit_codes import codes_of
from augpipe.datasets.cards.table import card_sections, cards_as_markdown
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.schedule import Schedule, Stage
from augpipe.recipes.view import View
from augpipe.trainer.config import RunConfig
from augpipe.trainer.config.tables import Section
from docs.site.tables import fields_table, prose, table

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "augpipe",
    "augpipe.recipes",
    "augpipe.policies",
    "augpipe.importers",
    "augpipe.sampling",
    "augpipe.sources",
    "augpipe.nn",
    "augpipe.trainer",
    "augpipe.trainer.launch",
)
"""Modules with a page of their own."""
PLACES = {module: f"{module}.md" for module in MODULES} | {"augpipe.ops": "../gallery/index.md"}
"""Module -> its page, from those of the reference."""


def pages() -> dict[str, str | bytes]:
    """Path in the site -> its page."""
    schema = json.dumps(Recipe.json_schema(), indent=1)
    return {
        **{f"reference/{module}.md": module_page(module) for module in MODULES},
        "reference/cli.md": CLI_TEXT + commands_table() + "\n".join(command_sections(COMMAND, "augpipe")),
        "reference/recipe.md": RECIPE_TEXT + "\n".join(map(described, (Recipe, View, Schedule, Stage))),
        "reference/recipe.schema.json": schema.encode(),
        "reference/cards.md": "\n".join([CARDS_TEXT, cards_as_markdown(), card_sections()]),
        "reference/config.md": CONFIG_TEXT + "\n".join(config_sections()),
    }


def public_names(module: str) -> list[str]:
    """What a module lists in `__all__`, or defines under a name without an underscore; nothing is imported."""
    path = ROOT.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [name for name in defined if not name.startswith("_")]


def entries() -> list[str]:
    """Every public name that is described by its docstring."""
    names = [f"{module}.{name}" for module in MODULES for name in public_names(module)]
    return [name for name in names if name not in PLACES]


def module_page(module: str) -> str:
    """A module's own text, and each of its names by its docstring; modules among them are links."""
    names = [f"{module}.{name}" for name in public_names(module)]
    links = [f"- [{name}]({PLACES[name]})" for name in names if name in PLACES]
    described = [f"::: {name}" for name in names if name not in PLACES]
    text = f"# {module}\n\n::: {module}\n    options: {{members: false, show_root_heading: false}}"
    return "\n\n".join([text, "\n".join(links), *described])


COMMAND = typer.main.get_command(app)
CLI_TEXT = """# Commands

A command says on stderr how far it is. On a terminal that is a bar, with the rate and the time that is left. In a log
it is a line every ten seconds at most, and one at the end of what took longer than two seconds. What a command found
goes to stdout.

With `--json`, stdout holds one JSON document and nothing else. It is empty where the command could not do its work,
which a line on stderr explains. Of a result that is a file, as of `augpipe preview`, it is a summary.

Exit codes: 0 done, 1 failed or found something bad, 2 wrong use (an option, a value, a file that does not exist), 130
ended by Ctrl-C. `augpipe preview --serve` is meant to be ended by Ctrl-C, and exits with 0. `augpipe train` finishes
its step and writes a checkpoint first.

"""
RECIPE_TEXT = """# Recipe files

Tables of a recipe's and a schedule's TOML file. The ops of `ops` are those of the [gallery](../gallery/index.md).
[recipe.schema.json](recipe.schema.json) is the JSON Schema of a recipe, for editors; `augpipe schema` prints it.

"""
CARDS_TEXT = """# Dataset cards

How to open them: [cards](../cards.md).
"""
CONFIG_TEXT = """# Run config

Tables of the TOML file that `augpipe train` takes. `augpipe train --example` prints one to begin with.

"""


def described(kind: Any, heading: str = "") -> str:
    """A class of descriptions: its text and its fields."""
    text = vars(kind).get("__doc__") or ""
    return f"## {heading or kind.__name__}\n\n{prose(inspect.cleandoc(text))}\n\n{fields_table(kind)}"


def config_sections() -> Iterator[str]:
    """The config's own fields, and those of each of its tables."""
    yield described(RunConfig, "Top level")
    for name, field in RunConfig.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield described(kind, f"[{name}]")


def commands_table() -> str:
    """Which commands have --json, and what each exit code means of each."""
    rows = []
    for name, command in getattr(COMMAND, "commands", {}).items():
        has_json = any("--json" in param.opts for param in command.params)
        codes = [f"{code} {meaning}" for code, meaning in codes_of(name).items()]
        rows.append((f"[`augpipe {name}`](#augpipe-{name})", "yes" if has_json else "", "; ".join(codes)))
    return table(("command", "`--json`", "exit codes"), *rows) + "\n"


def command_sections(command: Any, name: str) -> Iterator[str]:
    """A command and those below it, with arguments and options as `--help` has them."""
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = []
    for param in command.get_params(context):
        if not getattr(param, "hidden", False) and param.name != "help":
            options = [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else []
            spelled = ", ".join(options) or param.metavar or param.name.upper()
            rows.append((f"`{spelled}`", plain(getattr(param, "help", "") or ""), default_text(param, context)))
    yield f"## {name}\n\n```text\n{usage}\n```\n\n{plain(command.help or '')}\n"
    if rows:
        yield table(("argument or option", "meaning", "default"), *rows)
    for inner in getattr(command, "commands", {}).values():
        yield from command_sections(inner, f"{name} {inner.name}")


def plain(text: str) -> str:
    """Text without rich's markup: what it colours is code."""
    return prose(re.sub(r"\[cyan\](.*?)\[/(?:cyan)?\]", r"`\1`", text))


def default_text(param: Any, context: Any) -> str:
    """The default of an option, as the reference shows it."""
    shown = getattr(param, "show_default", None)
    default = shown if isinstance(shown, str) else param.get_default(context)
    if param.required:
        return "required"
    return "" if default is None or default is False or callable(default) else f"`{default}`"
