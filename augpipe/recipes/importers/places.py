"""Where the recipes of a script stand, and what each can be asked for by."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

HOLDERS = ("Compose", "ReplayCompose", "Sequential", "AugmentationSequential", "create_transform")
"""What holds a whole recipe."""


BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A call that holds a whole recipe."""

    node: ast.Call
    label: str
    """The name that it is assigned to, or the function that makes it; else its line."""
    told: str
    """The label, and what is known of a line."""
    target: str
    """The name or the attribute that it is assigned to, if it is."""
    way: tuple[ast.stmt, ...] = field(repr=False)
    """The statements that it is in, the outermost first."""

    @property
    def function(self) -> ast.FunctionDef | None:
        """The outermost function that it is in."""
        return _function(self.way)

    def steps(self) -> Iterator[tuple[ast.stmt, list[ast.stmt], list[ast.stmt]]]:
        """Each statement with a block that it is in, and the block's statements before and behind it."""
        for outer, node in pairwise(self.way):
            block = next(one for name in BLOCKS if node in (one := getattr(outer, name, [])))
            yield outer, block[: block.index(node)], block[block.index(node) + 1 :]


def places_of(body: list[ast.stmt]) -> list[Place]:
    """The recipes of a script, in their order: those that are not within others."""
    found = list(_in_statements(body, ()))
    in_function = Counter(_function(way) for _, _, way in found)
    made = []
    for node, name, way in found:
        function = _function(way)
        label = str(node.lineno)
        if len(way) == 1 and name:
            label = name
        elif function is not None and function in body and in_function[function] == 1:
            label = function.name
        told = label if label != str(node.lineno) else f"{label} ({_context(name, way)})"
        made.append(Place(node=node, label=label, told=told.replace(" ()", ""), target=name, way=way))
    return made


def is_holder(node: ast.AST | None) -> bool:
    """Whether it is a call that holds a whole recipe."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in HOLDERS


def _in_statements(
    body: list[ast.stmt], way: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.Call, str, tuple[ast.stmt, ...]]]:
    for node in body:
        inner = (*way, node)
        blocks = [one for name in BLOCKS for one in getattr(node, name, ())]
        if blocks:
            yield from _in_statements(blocks, inner)
        else:
            yield from ((call, name, inner) for call, name in _in_expressions(node, _target(node)))


def _in_expressions(node: ast.AST, name: str) -> Iterator[tuple[ast.Call, str]]:
    if isinstance(node, ast.Call) and is_holder(node):
        yield node, name
    elif isinstance(node, ast.Dict):
        for key, item in zip(node.keys, node.values, strict=True):
            keyed = f"{name}[{key.value!r}]" if isinstance(key, ast.Constant) and name else ""
            yield from _in_expressions(item, keyed)
    else:
        for inner in ast.iter_child_nodes(node):
            is_value = isinstance(node, ast.Assign | ast.AnnAssign) and (
                is_holder(inner) or isinstance(inner, ast.Dict)
            )
            yield from _in_expressions(inner, name if is_value else "")


def _target(node: ast.stmt) -> str:
    """What a statement assigns, where that is one name or attribute."""
    match node:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
            return ast.unparse(target)
        case ast.AnnAssign(target=target):
            return ast.unparse(target)
    return ""


def _function(way: tuple[ast.stmt, ...]) -> ast.FunctionDef | None:
    return next((node for node in way if isinstance(node, ast.FunctionDef)), None)


def _context(name: str, way: tuple[ast.stmt, ...]) -> str:
    """The class and function, the name that is assigned, and the condition."""
    holders = ".".join(node.name for node in way if isinstance(node, ast.ClassDef | ast.FunctionDef))
    parts = [f"in {holders}" if holders else "", name or _target(way[-1])]
    for node, inner in pairwise(way):
        if isinstance(node, ast.If):
            parts.append(f"if {ast.unparse(node.test)}" if inner in node.body else f"unless {ast.unparse(node.test)}")
    return ", ".join(filter(None, parts))
