"""Calls of a library's transforms in the text of a script, read without running any of it."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from augpipe.recipes.importers.lines import written_line
from augpipe.recipes.importers.names import Names

USUAL_NAMES = {
    "A": "albumentations",
    "albu": "albumentations",
    "ToTensorV2": "albumentations.pytorch.ToTensorV2",
    "T": "torchvision.transforms",
    "transforms": "torchvision.transforms",
    "v2": "torchvision.transforms.v2",
    "InterpolationMode": "torchvision.transforms.InterpolationMode",
    "K": "kornia.augmentation",
    "create_transform": "timm.data.create_transform",
    "Image": "PIL.Image",
    "nn": "torch.nn",
    "np": "numpy",
    "PIL": "PIL",
    "tv_tensors": "torchvision.tv_tensors",
}
"""What a name stands for in a text that does not import it."""
HOLDERS = ("Compose", "Sequential", "AugmentationSequential", "create_transform")
"""What holds a whole recipe."""

OPENCV = {
    **{f"INTER_{name}": nth for nth, name in enumerate(("NEAREST", "LINEAR", "CUBIC", "AREA", "LANCZOS4"))},
    **{f"BORDER_{name}": nth for nth, name in enumerate(("CONSTANT", "REPLICATE", "REFLECT", "WRAP", "REFLECT_101"))},
    "BORDER_DEFAULT": 4,
}
PILLOW = {name: nth for nth, name in enumerate(("NEAREST", "LANCZOS", "BILINEAR", "BICUBIC", "BOX", "HAMMING"))}
TIMM = {
    "IMAGENET_DEFAULT_MEAN": (0.485, 0.456, 0.406),
    "IMAGENET_DEFAULT_STD": (0.229, 0.224, 0.225),
    "IMAGENET_INCEPTION_MEAN": (0.5, 0.5, 0.5),
    "IMAGENET_INCEPTION_STD": (0.5, 0.5, 0.5),
    "OPENAI_CLIP_MEAN": (0.48145466, 0.4578275, 0.40821073),
    "OPENAI_CLIP_STD": (0.26862954, 0.26130258, 0.27577711),
}
CONSTANTS: dict[str, Mapping[str, Any]] = {"cv2": OPENCV, "PIL": PILLOW, "timm": TIMM}
"""A library -> the values of its constants."""
ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
PLAIN: dict[str, Callable[..., Any]] = {"int": int, "float": float, "list": list, "tuple": tuple}
"""Python's own functions that may be called."""
WRAPPERS = (
    *("torch.tensor", "torch.Tensor", "torch.nn.ModuleList", "numpy.array", "numpy.asarray"),
    *("torchvision.transforms.AutoAugmentPolicy", "torchvision.transforms.v2.AutoAugmentPolicy"),
)
"""Functions whose result is their first argument."""
MODULES = ("albumentations", "cv2", "kornia", "timm", "torch", "torchvision")
"""Packages that a text may name without importing them."""
MAX_LENGTH = 10_000
"""Items of a list or tuple: `[0] * 10**12` must not take the memory."""


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


class Script:
    """The assignments, functions and imports of a text of Python.

    Raises:
        ValueError: it is not Python.
    """

    def __init__(self, text: str) -> None:
        try:
            self.body = ast.parse(text.strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(
                f"the text is not Python ({error}). Give calls, as A.Compose([A.HorizontalFlip()])."
            ) from None
        self.paths = dict(USUAL_NAMES)
        for node in (one for statement in self.body for one in ast.walk(statement)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self.paths[alias.asname or first] = alias.name if alias.asname else first
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

    def find(self, name: str | None = None) -> Call:
        """The recipe that is assigned to `name`, or returned by the function of that name; without one, the only one.

        Raises:
            ValueError: it is not there, there are several, or it is more than calls and literals.
        """
        if name is None and len(self.body) == 1 and isinstance(self.body[0], ast.Expr):
            return self._call(self.body[0].value)
        held = {label: node for label, node in self._labelled() if self._holds(node)}
        if name is None and len(held) != 1:
            told = f"Name one of them: {', '.join(held)}." if held else "Give one, as NAME = A.Compose([...])."
            raise ValueError(f"the text holds {len(held)} recipes under a name. {told}")
        name = name or next(iter(held))
        found = self.names.values.get(name)
        for label, node in held.items():
            if isinstance(node, ast.Call) and label not in self.names.values and _unquoted(label) == _unquoted(name):
                return self._call(node)
        if isinstance(found, ast.Dict):
            raise ValueError(f"{name} holds several. Name one of them: {', '.join(held)}.")
        if name not in self.names.values:
            raise ValueError(f"the text assigns no {name}. It assigns {', '.join(held) or 'no recipe'}.")
        named = ast.Name(id=name, ctx=ast.Load(), lineno=1)
        return self._call(
            ast.Call(func=named, args=[], keywords=[], lineno=1) if isinstance(found, ast.FunctionDef) else named
        )

    def _labelled(self) -> Iterator[tuple[str, ast.AST | None]]:
        """The values assigned to names, and each value of a dict by its key, as `transforms['train']`."""
        for name, node in self.names.values.items():
            yield name, node
            if isinstance(node, ast.Dict):
                for key, item in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield f"{name}[{key.value!r}]", item

    def _holds(self, node: ast.AST | None) -> bool:
        if isinstance(node, ast.FunctionDef):
            return any(self._holds(one.value) for one in ast.walk(node) if isinstance(one, ast.Return | ast.Assign))
        return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in HOLDERS

    def _call(self, node: ast.expr) -> Call:
        made = self.value(node, self.names)
        first = next((one for one in made if isinstance(one, Call)), None) if isinstance(made, list | tuple) else None
        if first:  # transforms without a Compose around them
            return Call(path=f"{first.library}.Compose", line=first.line, args=(list(made),))
        if not isinstance(made, Call):
            raise ValueError(f"line {node.lineno}: {_shown(node)} is not a call of a library's transform.")
        return made

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
                    items += (
                        self.value(item.value, names) if isinstance(item, ast.Starred) else [self.value(item, names)]
                    )
                return items if isinstance(node, ast.List) else tuple(items)
            case ast.Dict() if None not in node.keys:
                keys = [self.value(key, names) for key in node.keys if key is not None]
                return dict(zip(keys, (self.value(one, names) for one in node.values), strict=True))
            case ast.UnaryOp(op=kind, operand=operand) if type(kind) in ARITHMETIC:
                return self._computed(node, kind, self.value(operand, names))
            case ast.BinOp(op=kind, left=left, right=right) if type(kind) in ARITHMETIC:
                return self._computed(node, kind, self.value(left, names), self.value(right, names))
            case ast.Name(id=name) if found := names.find(name):
                value, around = found
                if isinstance(value, ast.expr):
                    return self._once(node, value, around)
            case ast.Attribute(value=ast.Name(id=name)) if (found := names.find(name)) and isinstance(
                found[0], ast.ClassDef
            ):
                value, _ = Names(found[0].body).find(node.attr) or (None, None)
                if isinstance(value, ast.expr):
                    return self._once(node, value, found[1])
            case ast.Subscript(value=holder, slice=place) if not isinstance(place, ast.Slice):
                return self._item(node, self.value(holder, names), self.value(place, names))
            case ast.Name() | ast.Attribute():
                if path := self._path(node, names):
                    return constant(path)
            case ast.Call():
                return self._called(node, names)
        raise ValueError(
            f"line {node.lineno}: {_shown(node)} is known only when the script runs. Write its value there, or "
            "give the object itself instead of the text."
        )

    def _once(self, node: ast.expr, value: ast.expr, names: Names) -> Any:
        if value in self._under_way:
            raise ValueError(f"line {node.lineno}: {_shown(node)} is made of itself. Write its value.")
        self._under_way.append(value)
        try:
            return self.value(value, names)
        finally:
            self._under_way.pop()

    def _returned(self, function: ast.FunctionDef) -> Any:
        """What a function returns, its arguments at their defaults."""
        returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
        if len(returns) != 1 or returns[0].value is None or returns[0] not in function.body:
            raise ValueError(
                f"{function.name} returns in {len(returns)} places, or in a branch. Give the calls of the one that you "
                "mean."
            )
        names = Names(function.body, self.names)
        arguments = function.args
        positional = (*arguments.posonlyargs, *arguments.args)
        given: dict[ast.arg, ast.expr | None] = dict(
            zip(reversed(positional), reversed(arguments.defaults), strict=False)
        )
        given |= dict(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
        for argument in (*positional, *arguments.kwonlyargs):
            value = given.get(argument)
            names.values[argument.arg] = None if argument.arg in names.values else value
            if value is not None:
                self.assumed.append(f"{argument.arg}={ast.unparse(value)}, as {function.name} has it by default.")
        return self._once(returns[0].value, returns[0].value, names)

    def _computed(self, node: ast.expr, kind: ast.AST, *values: Any) -> Any:
        lengths = [len(value) for value in values if isinstance(value, list | tuple | str)]
        if lengths and isinstance(kind, ast.Mult):
            lengths = [lengths[0] * next((value for value in values if isinstance(value, int)), 1)]
        try:
            if sum(lengths) > MAX_LENGTH:
                raise ValueError(f"more than {MAX_LENGTH} items")
            return ARITHMETIC[type(kind)](*values)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"line {node.lineno}: {_shown(node)} cannot be computed: {error}.") from None

    def _item(self, node: ast.Subscript, held: Any, place: Any) -> Any:
        try:
            if not isinstance(held, list | tuple | dict):
                raise TypeError("it has no items")
            return held[place]
        except (TypeError, LookupError) as error:
            raise ValueError(f"line {node.lineno}: {_shown(node)} is not there: {error}.") from None

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
            line = written_line(node.args[0]) if len(node.args) == 1 else None  # others would have to be run
            return Call(path=path, line=node.lineno, kwargs={} if line is None else {"lambd": line})
        args = tuple(self.value(ast.Tuple(elts=node.args, ctx=ast.Load(), lineno=node.lineno), names))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, names)
            kwargs.update({keyword.arg: value} if keyword.arg else value)
        if isinstance(node.func, ast.Name):
            function, _ = names.find(node.func.id) or (None, None)
            if isinstance(function, ast.FunctionDef) and not args and not kwargs:
                return self._returned(function)
            if node.func.id in PLAIN and function is None and not kwargs:
                return PLAIN[node.func.id](*args)
        if not path and isinstance(node.func, ast.Name) and names.find(node.func.id) is None:
            path = node.func.id  # as in a part of a script, without its imports
        if not path:
            raise ValueError(f"line {node.lineno}: {_shown(node.func)} is not a transform of a library.")
        if path in WRAPPERS and args:
            return args[0]
        return Call(path=path, line=node.lineno, args=args, kwargs=kwargs)


def constant(path: str) -> Any:
    """The value of a library's constant; of an enumeration's its name in lower case."""
    library, _, name = path.partition(".")
    last = name.rpartition(".")[2]
    return CONSTANTS.get(library, {}).get(last, last.lower())


def _unquoted(name: str) -> str:
    return name.replace("'", "").replace('"', "")


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
