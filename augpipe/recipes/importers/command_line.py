"""Defaults of a script's command line, as `argparse` has them."""

import ast
from dataclasses import dataclass

from augpipe.recipes.importers.names import Names

PARSED = ("args", "opt", "opts", "options", "flags", "FLAGS")
"""What parsed arguments are usually called."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An argument of the command line."""

    name: str
    """As `--img-size`."""
    default: ast.expr


def options_of(body: list[ast.stmt]) -> dict[str, Option]:
    """The arguments with a default, by the name that they are read by; none that has two defaults, or is changed."""
    found: dict[str, Option] = {}
    changed: set[str] = set()
    for node in (one for statement in body for one in ast.walk(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            for name, option in _added(node).items():
                before = found.setdefault(name, option)
                changed |= {name} if ast.unparse(before.default) != ast.unparse(option.default) else set()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set_defaults":
            changed |= {keyword.arg or "" for keyword in node.keywords}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_called_so(node.value):
            changed.add(node.attr)
    return {name: option for name, option in found.items() if name not in changed}


def is_parsed(node: ast.expr, names: Names) -> bool:
    """Whether it is what a command line was parsed into, by how it is made or called."""
    meaning, _ = names.find(ast.unparse(node)) or (None, None)
    return _is_called_so(node) or (isinstance(meaning, ast.expr) and "parse_" in ast.unparse(meaning))


def _is_called_so(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2] in PARSED


def _added(node: ast.Call) -> dict[str, Option]:
    """What a call of `add_argument` adds."""
    options = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    action, dest = given.get("action"), given.get("dest")
    is_switch = isinstance(action, ast.Constant) and action.value == "store_true"
    default = given.get("default", ast.Constant(value=False) if is_switch else None)
    if not options or default is None or (isinstance(default, ast.Constant) and default.value is None):
        return {}
    option = next((one for one in options if one.startswith("--")), options[0])
    name = str(dest.value) if isinstance(dest, ast.Constant) else option.lstrip("-").replace("-", "_")
    return {name: Option(name=option, default=default)}
