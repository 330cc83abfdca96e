"""Careless changes of one line: where a source could be changed, and which of these places are drawn.

Harm that is silent is drawn more often. Texts, tuning and most of what a person looks at are left out.
"""

import ast
import random
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOMS = {"gpu_ops": 20, "augpipe": 28, "datasets": 18, "trainer": 34}
"""Changes of 100 in each room: by its lines of code, and more in gpu_ops, where a wrong number is seen least."""

WEIGHTS = {"off by one": 12, "sign": 10, "bound": 10, "clip": 10, "call": 10, "rank": 8, "dtype": 8, "axes": 8}
WEIGHTS |= {"condition": 8, "word": 6, "raise": 6, "slice": 6, "and/or": 6, "constant": 6, "plus": 5}
"""How often an operator is drawn."""

TUNING = re.compile(
    r"TIMEOUT|PATIENCE|POLL|GRACE|PING|_S$|SECONDS|CHUNK|BUFFER|SEGMENT|CACHE_BYTES|AT_A_TIME|RUN$|TASK|THREADS|WARPS"
    r"|LAUNCH_BOUNDS|PER_JOB|PREFETCH|LOOK_UPS|GRID_ROWS|SHOWN|MOST_|LETTERS|LONGEST|DPI|THUMBNAIL|MARGIN|GAP|COLOU?R"
    r"|INK|GREY|BORDER|ACCENT|RADIUS|STYLE|BAR$|MAX_\w*BYTES|MAX_FILES|MAX_DEPTH|DEMO|ROUNDS|EPOCHS",
    re.IGNORECASE,
)
"""Constants that are only tuning or looks."""
LOOKED_AT = re.compile(r"cli/|report|preview/|plots|page|doctor|measure/|curves|draw\.py|synthetic/|deprecated/")
"""Files whose mistakes a person sees: one of five places drawn there is kept."""
TEXTS = re.compile(r"(__repr__|__str__|caption|_?(explain|hint|told|say|describe|warn|note)\w*|\w*_text|_?text)$")
"""Functions that make texts."""
MESSAGES = re.compile(
    r"(logger|logging|warnings|typer|console)\.|(print|say\w*|note|told|Field|Option|Argument|TypeVar|cast|NewType)$"
)
"""Calls whose arguments are messages, help or types."""
QUIET_CALLS = set(
    "flush fsync close wait join clear copy_ record append add set notify notify_all release barrier zero_ update "
    "extend sync synchronize discard restore seek truncate write put pop cancel wait_stream record_stream".split()
)
"""Calls that are missed later, if ever."""
DRAWS = {"happens", "uniform", "integer", "stepped", "normals"}
PAIRS = ("height width", "x y", "left top", "right bottom", "row column", "rows columns", "h w", "xs ys")
PARTNERS = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}
RANKS = {"rank": "world_size", "local_rank": "rank", "world_size": "rank", "num_ranks": "rank"}
DTYPES = {"float64": "float32", "float32": "float16", "int64": "int32", "int32": "int16", "uint64": "int64"}
DTYPES |= {"uint8": "int8", "uint16": "int16", "uint32": "int32", "int16": "int8"}
SWAPPED = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
SWAPPED |= {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.And: ("and", "or"), ast.Or: ("or", "and")}
NO_NUMBERS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Set, ast.Dict)

Place = tuple[str, int, int, int, str]
"""Operator, line, first and last column in bytes, and the text to put there."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One line of one file, before and after."""

    file: str
    line: int
    operator: str
    function: str
    """The function that the line is in, or the class or constant."""
    old: str
    new: str


class _Places:
    """The places in one file."""

    def __init__(self, source: str) -> None:
        self.lines = source.encode().splitlines()

    def text(self, node: ast.expr) -> str:
        if node.lineno != node.end_lineno:
            return ast.unparse(node)
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def whole(self, node: ast.expr) -> str:
        """An operand, in parentheses where another operator could tear it apart."""
        is_whole = isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript | ast.Tuple)
        return self.text(node) if is_whole else f"({self.text(node)})"

    def moved(self, node: ast.expr, by: int) -> str:
        """An operand, one more or one less."""
        text = self.text(node)
        return str(int(text) + by) if text.isdigit() else f"{self.whole(node)} {'+' if by > 0 else '-'} 1"

    def kept(self, operands: list[ast.expr]) -> str:
        """The operand that is left of a minimum or maximum: the first that is not a number."""
        return self.whole(next((one for one in operands if not isinstance(one, ast.Constant)), operands[0]))

    def instead(self, operator: str, node: ast.AST, new: str) -> Iterator[Place]:
        """Something else in a node's place."""
        if node.lineno == node.end_lineno:
            yield operator, node.lineno, node.col_offset, node.end_col_offset, new

    def between(self, operator: str, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Place]:
        """Another operator between two operands."""
        if left.end_lineno == right.lineno:
            text = self.lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
            if text.count(old) == 1:
                yield operator, right.lineno, left.end_col_offset, right.col_offset, text.replace(old, new)

    def of(self, node: ast.AST, names: set[str]) -> Iterator[Place]:
        """The places of one node; `names` are those that its function knows, attributes with a dot before them."""
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
                yield from self.instead("off by one", node, self.whole(left))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right) if _may_be_numbers(left, right):
                yield from self.between("sign", left, right, *SWAPPED[type(op)])
            case ast.UnaryOp(op=ast.USub(), operand=operand) if self.text(operand) != "1":  # a last item or axis
                yield from self.instead("sign", node, self.whole(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self.instead("condition", node, self.whole(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPPED:
                yield from self.between("bound", left, right, *SWAPPED[type(op)])
            case ast.BoolOp(op=op, values=[*values]):
                for one, other in pairwise(values):
                    yield from self.between("and/or", one, other, *SWAPPED[type(op)])
            case ast.If(test=test, body=[ast.Raise()]):
                yield from self.instead("raise", test, "False")
            case ast.Raise(exc=None):
                yield from self.instead("raise", node, "pass")
            case ast.If(test=test) | ast.IfExp(test=test):
                yield from self.instead("condition", test, str(zlib.crc32(self.text(test).encode()) % 2 == 0))
            case ast.Call(func=ast.Name(id="range"), args=[*_, last]):
                yield from self.instead("off by one", last, self.moved(last, -1))
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as operands, keywords=[]):
                yield from self.instead("clip", node, self.kept(operands))
            case ast.Call(func=ast.Attribute(attr="minimum" | "maximum" | "clip", value=ast.Name(id="np"))):
                yield from self.instead("clip", node, self.kept(node.args))
            case ast.Call(func=ast.Attribute(attr="clip" | "clamp" | "clamp_", value=value)):
                yield from self.instead("clip", node, self.text(value))
            case ast.Call(func=ast.Attribute(attr=attr), args=[word, *_]) if attr in DRAWS:
                if self.text(node.func.value).endswith("words"):
                    yield from self.instead("word", word, self.moved(word, 1 if self.text(word) in "01" else -1))
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if keyword.arg in ("axis", "dim") and self.text(keyword.value) in ("0", "1"):
                        yield from self.instead("axes", keyword.value, str(1 - int(self.text(keyword.value))))
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr))) if attr in QUIET_CALLS:
                yield from self.instead("call", node, "pass")
            case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0 | 1) as axis):
                yield from self.instead("axes", axis, str(1 - axis.value))
            case ast.Slice(lower=lower, upper=upper) if lower or upper:
                yield from self.instead("slice", upper or lower, self.moved(upper or lower, -1 if upper else 1))
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
                yield from self.between("plus", target, value, SWAPPED[type(op)][0], "")
            case ast.Constant(value=bool()) | ast.Constant(value=0 | 1):
                return
            case ast.Constant(value=int() | float() as value):
                as_before = hex if self.text(node).startswith("0x") else repr
                yield from self.instead("constant", node, as_before(value + 1 if isinstance(value, int) else value * 2))
            case ast.Name(id=name) | ast.Attribute(attr=name) if isinstance(node.ctx, ast.Load):
                yield from self.of_name(node, name, names)

    def of_name(self, node: ast.expr, name: str, names: set[str]) -> Iterator[Place]:
        """Another dtype, rank or axis in a name's place."""
        dot = "." if isinstance(node, ast.Attribute) else ""
        last, line = node.end_col_offset, node.end_lineno
        at = ast.Name(lineno=line, end_lineno=line, col_offset=last - len(name), end_col_offset=last)
        if name in DTYPES and dot:
            yield from self.instead("dtype", at, DTYPES[name])
        if name in RANKS and dot + RANKS[name] in names:
            yield from self.instead("rank", at, RANKS[name])
        elif name in RANKS:
            yield from self.instead("rank", node, f"({self.text(node)} + 1)")
        for nth, part in enumerate(parts := name.split("_")):
            partner = "_".join([*parts[:nth], PARTNERS.get(part, ""), *parts[nth + 1 :]])
            if part in PARTNERS and dot + partner in names:
                yield from self.instead("axes", at, partner)

    def below(self, node: ast.AST, function: str, names: set[str]) -> Iterator[tuple[str, Place]]:
        """All places in a node that count, with the names of their functions."""
        children = list(ast.iter_child_nodes(node))
        match node:
            case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                if TEXTS.match(name):
                    return
                function, children = f"{function}.{name}".lstrip("."), body  # not its decorators and defaults
                names = {getattr(one, "id", getattr(one, "arg", "")) for one in ast.walk(node)}
                names |= {f".{one.attr}" for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            case ast.ClassDef(name=name, body=body, bases=bases):
                if {"Protocol", "TypedDict"} & set(map(ast.unparse, bases)):
                    return
                function, children = f"{function}.{name}".lstrip("."), body
            case ast.Assign(value=value, targets=[target, *_]) | ast.AnnAssign(value=value, target=target):
                target = ast.unparse(target)
                is_type = not function and not target.isupper() and target.lstrip("_")[:1].isupper()
                if is_type or (not names and TUNING.search(target)) or target.startswith("__") or value is None:
                    return
                function, children = function or target, [value]
            case ast.JoinedStr() | ast.Assert() | ast.Expr(value=ast.Constant()):
                return
            case ast.Raise(exc=exc) if exc is not None:
                return
            case ast.Call(func=func) if MESSAGES.match(ast.unparse(func)):
                return
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                return
        yield from ((function, place) for place in self.of(node, names))
        for child in children:
            yield from self.below(child, function, names)


def _may_be_numbers(*operands: ast.expr) -> bool:
    """Whether operands may be numbers: texts, lists and sets say that they are not."""
    looked_into = [one for one in operands if not isinstance(one, ast.Call | ast.Subscript)]
    inside = [node for one in looked_into for node in ast.walk(one)]
    texts = [one for one in inside if isinstance(one, ast.Constant) and isinstance(one.value, str | bytes)]
    return not texts and not any(isinstance(one, NO_NUMBERS) for one in inside)


def places(root: Path, room: str) -> Iterator[Change]:
    """Every place in a room's files, but those that only hand names on."""
    for path in sorted((root / room).rglob("*.py")):
        if path.name in ("__init__.py", "__main__.py"):
            continue
        source = path.read_text()
        found = _Places(source)
        for function, (operator, line, first, last, new) in found.below(ast.parse(source), "", set()):
            old = found.lines[line - 1]
            text = (old[:first] + new.encode() + old[last:]).decode()
            at = {"file": str(path.relative_to(root)), "line": line, "operator": operator, "function": function}
            yield Change(**at, old=old.decode(), new=text)


def is_another_program(root: Path, change: Change) -> bool:
    """Whether the changed file is still Python, and not the same."""
    lines = (root / change.file).read_text().splitlines()
    before = ast.dump(ast.parse("\n".join(lines)))
    lines[change.line - 1] = change.new
    try:
        return ast.dump(ast.parse("\n".join(lines))) != before
    except SyntaxError:
        return False


def chosen(root: Path, seed: int) -> list[Change]:
    """The drawn changes, room by room: at most one a function and two a file."""
    drawn = []
    for room, share in ROOMS.items():
        rng = random.Random(f"{seed} {room}")
        pools: dict[str, list[Change]] = defaultdict(list)
        for change in places(root, room):
            pools[change.operator].append(change)
        functions: set[tuple[str, str]] = set()
        files: Counter[str] = Counter()
        while files.total() < share:
            operator = rng.choices(list(pools), [WEIGHTS[name] for name in pools])[0]
            change = rng.choice(pools[operator])
            is_kept = not LOOKED_AT.search(change.file) or rng.random() < 0.2
            is_new = (change.file, change.function) not in functions and files[change.file] < 2
            if is_kept and is_new and is_another_program(root, change):
                functions.add((change.file, change.function))
                files[change.file] += 1
                drawn.append(change)
    return drawn
