"""The table of ops in docs/ops.md is what their classes say; `pytest tests/docs/test_op_table.py --rewrite-tables`
writes it."""

import pytest

from augpipe import ops
from augpipe.ops.op import KINDS
from docs.site.gallery import EXAMPLES
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/ops.md"
HEADER = "| op | draws by default | formula |\n|---|---|---|\n"


def table() -> str:
    """A row an op, by file and in the order in which it stands there."""
    rows = []
    for kind in sorted((*KINDS.values(), ops.Custom), key=lambda kind: kind.__module__):
        op = EXAMPLES[kind] if kind in EXAMPLES else kind()  # type: ignore[call-arg]
        p = kind.model_fields["p"].default if "p" in kind.model_fields else 1
        often = "" if p == 1 else f"; `p` is {p:g}"
        rows.append(f"| `{op.op}` | {op.draws_text}{often} | {kind.formula} |\n")
    return HEADER + "".join(rows)


def test_the_table_says_what_the_classes_do(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, header, rest = text.partition(HEADER)
    assert header, "docs/ops.md has lost the header of its table of ops"
    rows, blank, after = rest.partition("\n\n")
    if request.config.getoption("--rewrite-tables"):
        PAGE.write_text(before + table().rstrip("\n") + blank + after, encoding="utf-8")
    else:
        assert header + rows + "\n" == table(), "run this test with --rewrite-tables, and read the change as a diff"


def test_every_op_has_a_formula_and_is_handed_on() -> None:
    assert [name for name, kind in KINDS.items() if not kind.formula] == []
    assert {kind.__name__ for kind in KINDS.values()} <= set(ops.__all__), "name it in `__all__` of its file"
