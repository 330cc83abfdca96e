"""The corpus of published recipes: what is in its files, and which of them a recipe belongs to."""

import ast
import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
SEEN, HELD_OUT, FRESH = CORPUS / "seen.toml", CORPUS / "held_out.toml", CORPUS / "fresh.toml"
HELD_OUT_BELOW = 85
"""The first byte of a recipe's SHA-256 is less in the file that is held out: a third of them."""

NODES = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Constant, ast.List, ast.Tuple, ast.Dict),
    *(ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Load),
)
"""What a recipe is written of."""

ORDINALS = ("1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th", "9th")
"""How arguments without a keyword are called in the table."""
NOT_OPS = {"int", "tensor"}
"""What makes an argument: no op."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A recipe, and where it was seen."""

    library: str
    seen: str
    what: str
    recipe: str
    version: str = ""
    assumed: str = ""
    left_out: str = ""

    @property
    def file(self) -> Path:
        """The file that it belongs to, by the digest of its text."""
        digest = hashlib.sha256(" ".join(self.recipe.split()).encode()).digest()
        return HELD_OUT if digest[0] < HELD_OUT_BELOW else SEEN

    @property
    def tree(self) -> ast.expr:
        """Its one expression; ValueError for what is more than calls, names, literals and simple arithmetic."""
        tree = ast.parse(self.recipe, mode="eval")
        for node in ast.walk(tree):
            if not isinstance(node, NODES) or (isinstance(node, ast.keyword) and node.arg is None):
                raise ValueError(f"{self.seen}: {ast.unparse(node)}")
        return tree.body


def published(path: Path) -> list[Published]:
    return [Published(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["entry"]]


def calls(tree: ast.expr) -> Iterator[tuple[str, ast.Call]]:
    """Every call in it with the last of the names that it is made by, outermost first: `A.Compose` is Compose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2], node


def counted(entries: list[Published]) -> list[str]:
    """Rows of a table: each op by library, in how many recipes it is, how often called, with which arguments."""
    recipes, times = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    arguments: dict[tuple[str, str], Counter[str]] = {}
    for entry in entries:
        found = [((name, entry.library), call) for name, call in calls(entry.tree) if name not in NOT_OPS]
        recipes.update({op for op, _ in found})
        for op, call in found:
            times[op] += 1
            given = [ORDINALS[i] for i in range(len(call.args))] + [str(keyword.arg) for keyword in call.keywords]
            arguments.setdefault(op, Counter()).update(given)
    rows = []
    for (name, library), n in sorted(recipes.items(), key=lambda item: (-item[1], item[0])):
        op = (name, library)
        given = sorted(arguments[op].items(), key=lambda item: (item[0] not in ORDINALS, -item[1], item[0]))
        told = ", ".join(f"{argument} {k}" for argument, k in given)
        rows.append(f"| {name} | {library} | {n} | {times[op]} |{f' {told}' if told else ''} |")
    return rows
