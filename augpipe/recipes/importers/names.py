"""What the names of a script stand for, as far as it is known without running it."""

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Known:
    """The value of an argument that is given."""

    value: Any


@dataclass(frozen=True)
class Default:
    """The default of an argument that is not given."""

    value: ast.expr
    told: str


Meaning = ast.expr | ast.FunctionDef | ast.ClassDef | Known | Default | None
"""An expression, a function, a class whose attributes are asked for, or a value; None where only a run tells."""


class Names:
    """What the names of a module or of a function stand for.

    A name of a module counts only where it is assigned once, at the top of its body, and its value is not changed in
    place: else what it holds is known only when the script runs. Within a function, one counts from a statement on.
    """

    def __init__(self, body: list[ast.stmt], outer: "Names | None" = None) -> None:
        self.outer = outer
        self.values: dict[str, Meaning] = {}
        self.is_of_statement = False
        for node in body:
            name, value = _assigned(node)
            if name:
                self.values[name] = None if name in self.values else value
            else:
                self.values.update(dict.fromkeys(_changed(node)))
        for node in body:
            changed = self.values.keys() & _changed_in_place(node)
            self.values.update(dict.fromkeys(name for name in changed if not _adds_to(self.values[name], node)))

    def find(self, name: str) -> "tuple[Meaning, Names] | None":
        """What a name stands for, or None where that is not known, and the names that it is made of."""
        whole = name.partition(".")[0]  # what an attribute is of may have changed since
        if name in self.values or (self.is_of_statement and whole in self.values):
            return self.values.get(name), (self.outer if self.is_of_statement and self.outer else self)
        return self.outer.find(name) if self.outer else None

    def bound(self, values: dict[str, Meaning]) -> "Names":
        """These names from here on, made of those before."""
        later = Names([], self)
        later.values, later.is_of_statement = values, True
        return later

    def after(self, node: ast.stmt) -> "Names":
        """The names behind a statement of a function; those that it may change in a way of its own are not known."""
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name()) as target], value=value):
                return self.bound({ast.unparse(target): value})  # as self.size = size
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="append"), args=[one])):
                return self._added(held, ast.List(elts=[one], ctx=ast.Load()), node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="extend"), args=[more])):
                return self._added(held, more, node)
            case ast.AugAssign(target=ast.Name() as held, op=ast.Add(), value=more):
                return self._added(held, more, node)
        name, meaning = _assigned(node)
        if name:
            return self.bound({name: meaning})
        lost = [*_changed(node), *(one for one in _changed_in_place(node) if self.find(one))]
        return self.bound(dict.fromkeys(lost)) if lost else self

    def _added(self, held: ast.Name, more: ast.expr, node: ast.stmt) -> "Names":
        """A list with more items; one that has two names is not known from here on."""
        if self.find(held.id) is None:
            return self
        if alike := self._alike(held.id):
            return self.bound(dict.fromkeys([held.id, *alike]))
        before = ast.Name(id=held.id, ctx=ast.Load())
        added = ast.copy_location(ast.BinOp(left=before, op=ast.Add(), right=more), node)
        return self.bound({held.id: ast.fix_missing_locations(added)})

    def _alike(self, name: str) -> list[str]:
        """The names that may stand for the same list as this one."""
        pairs = [(one, value.id) for one, value in self.values.items() if isinstance(value, ast.Name)]
        own = [other for pair in pairs if name in pair for other in pair if other != name]
        return own + (self.outer._alike(name) if self.outer else [])


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
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):  # as train.transforms.insert(...)
                found.append(ast.unparse(method).partition(".")[0])
            case ast.AugAssign(target=ast.Name(id=name)):
                found.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found += names
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.append(name)
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found += [name, ast.unparse(one)]
    return found


def _adds_to(meaning: Meaning, node: ast.stmt) -> bool:
    """Whether a statement gives a class one more attribute, as `CFG.steps = A.Compose(...)`, and changes none."""
    match node:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=attribute)]):
            is_all = _changed_in_place(node) == [name, f"{name}.{attribute}"]
            return is_all and isinstance(meaning, ast.ClassDef) and attribute not in Names(meaning.body).values
    return False


def changes(name: str, node: ast.stmt) -> bool:
    """Whether a statement may change what a name stands for."""
    return bool({name, name.partition(".")[0]} & {*_changed(node), *_changed_in_place(node)})


def names_within(node: ast.stmt) -> list[str]:
    """Names that stand for something else in a part of a statement: those of comprehensions and of `lambda`."""
    found: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.comprehension):
            found += [inner.id for inner in ast.walk(one.target) if isinstance(inner, ast.Name)]
        elif isinstance(one, ast.Lambda):
            found += [argument.arg for argument in ast.walk(one.args) if isinstance(argument, ast.arg)]
    return found
