"""What the names of a script stand for, as far as it is known without running it."""

import ast

Meaning = ast.expr | ast.FunctionDef | ast.ClassDef | None
"""An expression, a function, a class whose attributes are asked for, or None: known only when the script runs."""


class Names:
    """What the names of a module or of a function stand for.

    A name counts only where it is assigned once, at the top of its body, and its value is not changed in place: else
    what it holds is known only when the script runs.
    """

    def __init__(self, body: list[ast.stmt], outer: "Names | None" = None) -> None:
        self.outer = outer
        self.values: dict[str, Meaning] = {}
        for node in body:
            name, value = _assigned(node)
            if name:
                self.values[name] = None if name in self.values else value
            else:
                self.values.update(dict.fromkeys(_changed(node)))
        for node in body:
            self.values.update(dict.fromkeys(self.values.keys() & _changed_in_place(node)))

    def find(self, name: str) -> "tuple[Meaning, Names] | None":
        """What a name stands for, or None where that is not known, and the names that it is made of."""
        if name in self.values:
            return self.values[name], self
        return self.outer.find(name) if self.outer else None


def _assigned(node: ast.stmt) -> tuple[str, Meaning]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.FunctionDef() | ast.ClassDef():
            return node.name, node
    return "", None


def _changed(node: ast.stmt) -> list[str]:
    """Names that a statement may assign."""
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)]


def _changed_in_place(node: ast.stmt) -> list[str]:
    """Names whose value a statement may change, as by `steps.append(...)`, `steps += ...` and `steps[0] = ...`."""
    found = []
    for one in ast.walk(node):
        match one:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                found.append(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                found.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found += names
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.append(name)
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.append(name)
    return found
