"""Calls of a library's transforms in the text of a script, read without running any of it."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from augpipe.recipes.importers.command_line import is_parsed, options_of
from augpipe.recipes.importers.constants import LIBRARIES, MODULES, USUAL_NAMES, WRAPPERS, constant
from augpipe.recipes.importers.functions import OF_SCRIPT
from augpipe.recipes.importers.lines import written_line
from augpipe.recipes.importers.names import Default, Known, Meaning, Names

TORCHVISION = "torchvision.transforms"

ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, several: one in several,
    ast.NotIn: lambda one, several: one not in several,
}
PLAIN: dict[str, Callable[..., Any]] = {"int": int, "float": float, "list": list, "tuple": tuple, "dict": dict}
"""Python's own functions that may be called."""
MAX_LENGTH = 10_000
"""Items of a list or tuple: `[0] * 10**12` must not take the memory."""
MAX_EACH = 100
"""Items that a list is made for each of."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A transform as it is written."""

    path: str
    """Its full name, as torchvision.transforms.Resize."""
    line: int
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def library(self) -> str:
        """The package that it is of; empty where its name stands alone and the text imports it from nowhere."""
        return self.path.rpartition(".")[0].partition(".")[0]

    @property
    def name(self) -> str:
        """Its last name."""
        return self.path.rpartition(".")[2]


def with_calls(value: Any, make: Callable[[Call], Any]) -> Any:
    """A value with what `make` gives in the place of each call that it is, or that its lists hold."""
    if isinstance(value, list | tuple):
        return type(value)(with_calls(one, make) for one in value)
    return make(value) if isinstance(value, Call) else value


class Script:
    """The assignments, functions and imports of a text of Python.

    Raises:
        ValueError: it is not Python.
    """

    def __init__(self, text: str) -> None:
        try:
            before = text[: len(text) - len(text.lstrip())].count("\n")
            self.body = ast.parse("\n" * before + text.strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(
                f"the text is not Python ({error}). Give calls, as A.Compose([A.HorizontalFlip()])."
            ) from None
        self.paths = dict(USUAL_NAMES)
        self.star = ""
        """What `from ... import *` puts before names that nothing else says."""
        self.options = options_of(self.body)
        self.arguments: dict[str, ast.FunctionDef] = {}
        """Arguments without a value, and their functions."""
        for node in (one for statement in self.body for one in ast.walk(statement)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self.paths[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*":
                self.star = f"{node.module}." if node.module.partition(".")[0] in MODULES else self.star
            elif isinstance(node, ast.ImportFrom) and node.module:
                self.paths.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        self.names = Names(self.body)
        self.assumed: list[str] = []
        """Arguments of functions that were taken at their defaults."""
        self._under_way: list[ast.AST] = []

    def read(self) -> Any:
        """What the one expression of the text says."""
        (node,) = self.body
        assert isinstance(node, ast.Expr)
        return self.value(node.value, self.names)

    def behind(self, node: ast.stmt, names: Names) -> Names:
        """The names behind a statement that gives nothing back; those of a branch that may be taken are not known."""
        if isinstance(node, ast.If) and (is_true := self._is_true(node.test, names)) is not None:
            for one in node.body if is_true else node.orelse:
                names = self.behind(one, names)
            return names
        return names.after(node)

    def _is_true(self, node: ast.expr, names: Names) -> bool | None:
        """Whether a condition is met; None where it is known only when the script runs."""
        if any(self._path(one, names) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)):
            return None  # of another file
        assumed = list(self.assumed)
        try:
            match node:
                case ast.UnaryOp(op=ast.Not(), operand=one):
                    known = self._is_true(one, names)
                    return None if known is None else not known
                case ast.Compare(left=left, ops=[kind], comparators=[right]) if type(kind) in COMPARISONS:
                    return bool(COMPARISONS[type(kind)](self.value(left, names), self.value(right, names)))
                case ast.Name() | ast.Attribute() | ast.Constant() | ast.Subscript():
                    value = self.value(node, names)
                    return None if isinstance(value, Call) else bool(value)
        except (ValueError, TypeError):
            self.assumed[:] = assumed
        return None

    def value(self, node: ast.expr, names: Names) -> Any:
        """What an expression says: a literal, a `Call`, a list of them, or a constant of a library by its name.

        Raises:
            ValueError: it would have to be run to know.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                items: list[Any] = []
                for item in node.elts:
                    held = item.value if isinstance(item, ast.Starred) else item
                    value = self.value(held, names)
                    if held is not item and not isinstance(value, list | tuple | str | Mapping):
                        raise self._unknown(held)
                    items += [value] if held is item else value
                return items if isinstance(node, ast.List) else tuple(items)
            case ast.Dict() if None not in node.keys:
                keys = [self.value(key, names) for key in node.keys if key is not None]
                return dict(zip(keys, (self.value(one, names) for one in node.values), strict=True))
            case ast.UnaryOp(op=kind, operand=operand) if type(kind) in ARITHMETIC:
                return self._computed(node, kind, self.value(operand, names))
            case ast.BinOp(op=kind, left=left, right=right) if type(kind) in ARITHMETIC:
                return self._computed(node, kind, self.value(left, names), self.value(right, names))
            case ast.Name() | ast.Attribute() if (found := names.find(ast.unparse(node))) and found[0]:
                value, around = found
                if isinstance(value, Known):
                    return value.value
                if isinstance(value, Default):
                    self.assume(value.told)
                    return self._once(node, value.value, around)
                if isinstance(value, ast.FunctionDef):
                    return _lambda(TORCHVISION, node, value)
                if isinstance(value, ast.expr):
                    return self._once(node, value, around)
            case ast.Lambda():
                return _lambda(TORCHVISION, node, node)
            case ast.ListComp(generators=[of]) | ast.GeneratorExp(generators=[of]) if (
                isinstance(of.target, ast.Name)
                and not of.ifs
                and isinstance(each := self.value(of.iter, names), list | tuple)
                and len(each) <= MAX_EACH
            ):
                return [self.value(node.elt, names.bound({of.target.id: Known(one)})) for one in each]
            case ast.Attribute(value=ast.Name(id=name)) if (found := names.find(name)) and isinstance(
                found[0], ast.ClassDef
            ):
                value, _ = Names(found[0].body).find(node.attr) or (None, None)
                if isinstance(value, ast.expr):
                    return self._once(node, value, found[1])
            case ast.Subscript(value=holder, slice=place) if not isinstance(place, ast.Slice):
                return self._item(node, self.value(holder, names), self.value(place, names))
            case ast.Name() | ast.Attribute():
                if isinstance(node, ast.Attribute) and node.attr in self.options and is_parsed(node.value, names):
                    return self._option(node)
                if (path := self._path(node, names)) and path.partition(".")[0] in LIBRARIES:
                    return constant(path)
            case ast.Call():
                return self._called(node, names)
        raise self._unknown(node)

    def _unknown(self, node: ast.expr) -> ValueError:
        """What is said of an expression that would have to be run."""
        callable_by = [function for function in dict.fromkeys(self.arguments.values()) if function in self.body]
        if isinstance(node, ast.Name) and (function := self.arguments.get(node.id)) in callable_by:
            return ValueError(
                f"line {node.lineno}: {node.id} is known only when {function.name} is called. Give it, as "
                f"{_example(function, node.id)}."
            )
        call = f"call {' or '.join(map(_example, callable_by))}, or " if callable_by else ""
        return ValueError(
            f"line {node.lineno}: {shown(node)} is known only when the script runs. Write its value there, or {call}"
            "give the object itself instead of the text."
        )

    def _option(self, node: ast.Attribute) -> Any:
        """An argument of the command line, at its default."""
        option = self.options[node.attr]
        self.assume(f"{ast.unparse(node)}={ast.unparse(option.default)}, as {option.name} has it by default.")
        return self.value(option.default, self.names)

    def assume(self, told: str) -> None:
        """Something was taken as it may not be when the script runs."""
        if told not in self.assumed:
            self.assumed.append(told)

    def _once(self, node: ast.expr, value: ast.expr, names: Names) -> Any:
        if value in self._under_way:
            raise ValueError(f"line {node.lineno}: {shown(node)} is made of itself. Write its value.")
        self._under_way.append(value)
        try:
            return self.value(value, names)
        finally:
            self._under_way.pop()

    def with_arguments(
        self, function: ast.FunctionDef, names: Names, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Names:
        """The names within a function that is called so; arguments that are not given are at their defaults.

        Raises:
            ValueError: it takes none of that name.
        """
        every = _parameters(function)
        given = {**dict(zip(every, args, strict=False)), **kwargs}
        if not given.keys() <= every.keys() or len(args) > len(every) - len(function.args.kwonlyargs):
            raise ValueError(f"{function.name} takes {', '.join(every) or 'nothing'}, and is given another argument.")
        values: dict[str, Meaning] = {}
        for name, default in every.items():
            told = "" if default is None else f"{name}={ast.unparse(default)}, as {function.name} has it by default."
            unsaid = None if default is None else Default(default, told)
            values[name] = Known(given[name]) if name in given else unsaid
        self.arguments |= {name: function for name, value in values.items() if value is None}
        return names.bound(values)

    def _returned(
        self, function: ast.FunctionDef, around: Names, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """What a function returns that is called so.

        Raises:
            ValueError: what it does is known only when the script runs.
        """
        if function in self._under_way:
            raise ValueError(f"{function.name} calls itself. Write the calls that it makes.")
        self._under_way.append(function)
        try:
            names = self.with_arguments(function, around, args, kwargs)
            return self._given_back(function, function.body, names)[0]
        finally:
            self._under_way.pop()

    def _given_back(self, function: ast.FunctionDef, body: list[ast.stmt], names: Names) -> tuple[Any, Names]:
        """What statements return, and the names behind them."""
        for node in body:
            if isinstance(node, ast.Return) and node.value is not None:
                return self.value(node.value, names), names
            if not any(isinstance(one, ast.Return) for one in ast.walk(node)) or isinstance(node, ast.FunctionDef):
                names = self.behind(node, names)
                continue
            is_true = self._is_true(node.test, names) if isinstance(node, ast.If) else None
            if is_true is None or not isinstance(node, ast.If):
                told = f"if {ast.unparse(node.test)}" if isinstance(node, ast.If) else "a loop or a block"
                raise ValueError(
                    f"line {node.lineno}: {function.name} returns by {told}, and what it does is known only when the "
                    f"script runs. Call it with its arguments, as {_example(function)}, or name the line of a recipe."
                )
            made, names = self._given_back(function, node.body if is_true else node.orelse, names)
            if made is not None:
                return made, names
        return None, names

    def _computed(self, node: ast.expr, kind: ast.AST, *values: Any) -> Any:
        lengths = [len(value) for value in values if isinstance(value, list | tuple | str)]
        if lengths and isinstance(kind, ast.Mult):
            lengths = [lengths[0] * next((value for value in values if isinstance(value, int)), 1)]
        try:
            if sum(lengths) > MAX_LENGTH:
                raise ValueError(f"more than {MAX_LENGTH} items")
            return ARITHMETIC[type(kind)](*values)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"line {node.lineno}: {shown(node)} cannot be computed: {error}.") from None

    def _item(self, node: ast.Subscript, held: Any, place: Any) -> Any:
        try:
            if not isinstance(held, list | tuple | dict):
                raise TypeError("it has no items")
            return held[place]
        except (TypeError, LookupError) as error:
            raise ValueError(f"line {node.lineno}: {shown(node)} is not there: {error}.") from None

    def _path(self, node: ast.expr, names: Names) -> str:
        """The full name of something of a library; empty for anything else."""
        if isinstance(node, ast.Attribute):
            base = self._path(node.value, names)
            return base and f"{base}.{node.attr}"
        if isinstance(node, ast.Name) and names.find(node.id) is None:
            return self.paths.get(node.id, node.id if node.id in MODULES else "")
        return ""

    def _called(self, node: ast.Call, names: Names) -> Any:
        if (path := self._path(node.func, names)).endswith(".Lambda"):
            fn: Any = node.args[0] if len(node.args) == 1 else None
            if isinstance(fn, ast.Name) and (meant := names.find(fn.id)):
                fn = meant[0]
            return _lambda(path, node, fn)
        if isinstance(node.func, ast.Name) and (own := names.find(node.func.id)) and isinstance(own[0], ast.ClassDef):
            return Call(path=f"{node.func.id}{OF_SCRIPT}", line=node.lineno)  # refused by its name
        args = tuple(self.value(ast.Tuple(elts=node.args, ctx=ast.Load(), lineno=node.lineno), names))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, names)
            if not keyword.arg and not isinstance(value, Mapping):
                raise self._unknown(keyword.value)
            kwargs.update({keyword.arg: value} if keyword.arg else value)
        if isinstance(node.func, ast.Name):
            function, around = names.find(node.func.id) or (None, names)
            if isinstance(function, ast.FunctionDef):
                return self._returned(function, around, args, kwargs)
            if node.func.id in PLAIN and function is None:
                try:
                    return PLAIN[node.func.id](*args, **kwargs)
                except (TypeError, ValueError):
                    raise self._unknown(node) from None
        if not path and isinstance(node.func, ast.Name) and names.find(node.func.id) is None:
            path = f"{self.star}{node.func.id}"  # as in a part of a script, without its imports
        if not path:
            raise ValueError(f"line {node.lineno}: {shown(node.func)} is not a transform of a library.")
        if path in WRAPPERS and args:
            return args[0]
        return Call(path=path, line=node.lineno, args=args, kwargs=kwargs)


def _lambda(path: str, node: ast.expr, fn: ast.AST | None) -> Call:
    """A function among transforms; what it does is read where that is plain, and else not known."""
    line = written_line(fn)
    name = path if path.endswith(".Lambda") else f"{path}.Lambda"
    return Call(path=name, line=node.lineno, kwargs={} if line is None else {"lambd": line})


def _parameters(function: ast.FunctionDef) -> dict[str, ast.expr | None]:
    """The arguments of a function and their defaults, those that are given by name alone last."""
    positional = (*function.args.posonlyargs, *function.args.args)
    defaults = [None] * (len(positional) - len(function.args.defaults)) + function.args.defaults
    names = [one.arg for one in (*positional, *function.args.kwonlyargs)]
    return dict(zip(names, (*defaults, *function.args.kw_defaults), strict=True))


def _example(function: ast.FunctionDef, name: str = "") -> str:
    """A call of a function with values for what has none."""
    every = _parameters(function)
    needed = [one for one, default in every.items() if default is None and one != "self"]
    named = needed or [*every][:1] or ([name] if name else [])
    return f"{function.name}({', '.join(f'{one}=...' for one in named)})"


def shown(node: ast.expr) -> str:
    """An expression for a message."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
