"""Functions of numbers that multiply and add, as `2 * x - 1`, by their text: none is run."""

import ast
import inspect
from dataclasses import dataclass
from types import CodeType
from typing import Any


@dataclass(frozen=True)
class Line:
    """A function of numbers that multiplies and adds."""

    slope: float
    shift: float
    repeats: bool = False
    """Whether one channel becomes three."""

    @property
    def is_same(self) -> bool:
        """Whether numbers stay as they are."""
        return (self.slope, self.shift) == (1.0, 0.0)

    def __call__(self, image: Any) -> Any:
        if self.repeats:
            return image.convert("RGB") if hasattr(image, "convert") else image.expand(3, -1, -1)
        return image if self.is_same else self.slope * image + self.shift


METHODS: dict[str, type[ast.operator]] = {"add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div}
"""Of tensors, with or without a _ behind."""


SAME = (
    "{0}",
    "{0}.copy()",
    "{0}.contiguous()",
    *(f"{of}.{name}({{0}})" for of in ("np", "numpy") for name in ("array", "asarray")),
)
"""What gives an image as it is, or in another container."""
REPEATED = (
    *("{0}.convert('RGB')", "{0}.convert(mode='RGB')"),
    *("{0}.repeat(3, 1, 1)", "{0}.repeat((3, 1, 1))", "{0}.expand(3, -1, -1)"),
    *(f"torch.cat({given}{dim})" for given in ("[{0}, {0}, {0}]", "({0}, {0}, {0})") for dim in ("", ", 0", ", dim=0")),
)
"""What makes three channels of one."""


def _plain(node: ast.expr, name: str) -> Line | None:
    """What keeps an image: the line that changes nothing, where channels may be repeated; None of all else."""
    if isinstance(node, ast.IfExp):  # whatever its condition is
        ways = _plain(node.body, name), _plain(node.orelse, name)
        return next((way for way in ways if way and way.repeats), ways[0]) if all(ways) else None
    text = ast.unparse(node)
    repeats = text in [form.format(name) for form in REPEATED]
    return Line(1.0, 0.0, repeats) if repeats or text in [form.format(name) for form in SAME] else None


def _plain_function(node: ast.FunctionDef) -> Line | None:
    """That of a function that may convert its image on a condition, and returns it."""
    names = [one.arg for one in node.args.args]
    if not names or len(node.args.defaults) < len(names) - 1 or not isinstance(node.body[-1], ast.Return):
        return None
    made = [node.body[-1].value]
    for one in node.body[:-1]:
        match one:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.If(body=[ast.Assign(targets=[ast.Name(id=name)], value=value)], orelse=[]) if name == names[0]:
                made.append(value)
            case _:
                return None
    lines = [_plain(value, names[0]) if value else None for value in made]
    return next((line for line in lines if line and line.repeats), lines[0]) if all(lines) else None


def written_line(node: ast.AST | None) -> Line | None:
    """What a `lambda` or a function in a script does, where that is a line; it is read, not run.

    Of a function with a name, one that keeps an RGB image as it is.
    """
    if isinstance(node, ast.FunctionDef):
        return _plain_function(node)
    if isinstance(node, ast.Lambda) and len(node.args.args) == 1 and (line := _plain(node.body, node.args.args[0].arg)):
        return line
    if not isinstance(node, ast.Lambda) or ast.unparse(node.args) != (
        name := node.args.args[0].arg if node.args.args else ""
    ):
        return None
    changes = any(isinstance(one, ast.Attribute) and one.attr.endswith("_") for one in ast.walk(node.body))
    if changes and sum(isinstance(one, ast.Name) for one in ast.walk(node.body)) > 1:
        return None  # what is looked at after it was changed
    try:
        line = _line_of(node.body, name)
        return line if line.slope > 0.0 else None
    except (ValueError, ArithmeticError):
        return None


def _line_of(node: ast.expr, name: str) -> Line:
    match node:
        case ast.Name(id=found) if found == name:
            return Line(1.0, 0.0)
        case ast.Constant(value=int() | float() as value):
            return Line(0.0, float(value))
        case ast.UnaryOp(op=ast.USub(), operand=of):
            line = _line_of(of, name)
            return Line(-line.slope, -line.shift)
        case ast.BinOp(left=left, op=op, right=right):
            return _joined(_line_of(left, name), type(op), _line_of(right, name))
        case ast.Call(func=ast.Attribute(value=left, attr=method), args=[right], keywords=[]):
            kind = METHODS.get(method.removesuffix("_"), ast.Pow)
            return _joined(_line_of(left, name), kind, _line_of(right, name))
    raise ValueError("no line")


def _joined(left: Line, op: type[ast.operator], right: Line) -> Line:
    if op is ast.Add:
        return Line(left.slope + right.slope, left.shift + right.shift)
    if op is ast.Sub:
        return Line(left.slope - right.slope, left.shift - right.shift)
    if op is ast.Mult and 0.0 in (left.slope, right.slope):
        return Line(left.slope * right.shift + right.slope * left.shift, left.shift * right.shift)
    if op is ast.Div and right.slope == 0.0:
        return Line(left.slope / right.shift, left.shift / right.shift)
    raise ValueError("no line")


def line_of(fn: Any) -> Line | None:
    """What a function does, where that is a line: by its source, which is read, not run."""
    if isinstance(fn, Line):
        return fn
    try:
        lines, _ = inspect.findsource(fn)
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError):  # none is kept, as of what was typed in
        return None
    of_line = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda | ast.FunctionDef) and node.lineno == fn.__code__.co_firstlineno
    )
    own = [node for node in of_line if _is_code_of(node, fn)]
    return written_line(own[0]) if own else None


def _is_code_of(node: ast.Lambda | ast.FunctionDef, fn: Any) -> bool:
    """Whether it is this one of several in a line, and the source is that which runs."""
    if isinstance(node, ast.Lambda):
        code = compile(ast.Expression(node), "", "eval")
    else:
        code = compile(ast.Module([node], []), "", "exec")
    made = next(one for one in code.co_consts if isinstance(one, CodeType))
    return all(getattr(made, name) == getattr(fn.__code__, name) for name in ("co_code", "co_consts", "co_names"))
