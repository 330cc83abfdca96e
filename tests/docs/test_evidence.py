"""docs/evidence/ says what benchmarks/results/ says: pages are made anew, and no figure of ours is typed in them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import evidence
from tests.docs.blocks import ROOT

PAGES = ROOT / "docs" / "evidence"
MACHINE = {"cpu": "Some CPU", "llvm_cpu": "znver9", "cores": 2}
RESULT: dict[str, Any] = {
    "date": "2026-11-20",
    "machine": MACHINE,
    "command": "python benchmarks/one.py",
    "types": {"mean, %": 1.826, "each": [1.5, 2.25], "bytes/step": 1_460_256, "none": None, "F": "F(4, 20) = 0.10"},
    "grid": [{"workers": 4, "shared": True, "rate": 421.84}, {"workers": 4, "shared": False, "rate": 411.0}],
}
NUM_TABLES_AND_FIGURES = {
    "deep-image": (4, 9),
    "deep-image-fine-grained": (6, 9),
    "8bit-approximations": (1, 3),
    "bsc-distributed-training": (3, 3),
    "distributed-dnn-mullapudi": (2, 16),
}
"""How many tables and figures each paper has."""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of two results, of which the second does not hold its command."""
    (tmp_path / "one.json").write_text(json.dumps(RESULT))
    without = {key: value for key, value in RESULT.items() if key != "command"} | {"machine": MACHINE | {"cores": 1}}
    (tmp_path / "two.json").write_text(json.dumps(without))
    return tmp_path


def test_the_pages_are_what_their_results_say() -> None:
    made = evidence.all_pages()
    assert sorted(made) == sorted(path.stem for path in PAGES.glob("*.md"))
    for name, text in made.items():
        assert (PAGES / f"{name}.md").read_text() == text, f"{name}.md: run `python -m benchmarks.papers.evidence`"


def test_a_page_changes_with_its_result(results: Path) -> None:
    template = "| | ours |\n|---|---|\n| mean | {{ one : types / mean, % -> .2f }} |\n\n{{ one = one.json }}\n"
    before = evidence.fill("page", template, results)
    (results / "one.json").write_text(json.dumps(RESULT).replace("1.826", "1.834"))
    after = evidence.fill("page", template, results)
    assert "| mean | 1.83 |" in before and before == after  # as far as it is shown
    (results / "one.json").write_text(json.dumps(RESULT).replace("1.826", "1.836"))
    assert evidence.fill("page", template, results) == before.replace("1.83", "1.84")


@pytest.mark.parametrize(
    ("placeholder", "becomes"),
    [
        ("types / mean, % -> .2f", "1.83"),
        ("types / mean, %", "1.826"),
        ("types / each -> .1f", "1.5, 2.2"),
        ("types / bytes/step -> ,", "1,460,256"),
        ("types / F", "F(4, 20) = 0.10"),
        ("grid / 1 / rate -> .1f", "411.0"),
        ("grid / [workers=4; shared=true] / rate -> .1f", "421.8"),
        ("min types / each -> .2f", "1.50"),
        ("types / bytes/step ÷ 1e6 -> .2f", "1.46"),
        ("min types / each ÷ types / mean, % -> .3f", "0.821"),
    ],
)
def test_what_a_placeholder_becomes(placeholder: str, becomes: str, results: Path) -> None:
    template = f"{{{{ one = one.json }}}}\n\nIs {{{{ one : {placeholder} }}}} so?"
    assert evidence.fill("page", template, results).endswith(f"Is {becomes} so?")


def test_a_command_is_told_as_it_is_called_today() -> None:
    """Results keep the commands that made them; scripts may have moved since."""
    told = evidence.as_called_today("AUGPIPE_DATA=FOLDER python benchmarks/dettmers.py mnist")
    assert told == "AUGPIPE_DATA=FOLDER python -m benchmarks.papers.dettmers mnist"
    assert evidence.as_called_today("python benchmarks/one.py") == "python benchmarks/one.py"  # of which there is none


def test_a_result_names_its_command_date_and_machine(results: Path) -> None:
    made = evidence.fill(
        "page", "{{ one = one.json }}\n\n{{ two = two.json by sudo python two.py --rounds 3 }}", results
    )
    assert "`python benchmarks/one.py`, 2026-11-20, Some CPU (znver9), 2 cores: [one.json](" in made
    assert "`sudo python two.py --rounds 3`, 2026-11-20, Some CPU (znver9), one core: [two.json](" in made


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "{{ one : types / mean }}",
            "page.md: {{ one : types / mean }}: there is no 'mean'; the nearest are 'mean, %'",
        ),
        ("{{ one : typos / each }}", "there is no 'typos'; the nearest are 'types'"),
        ("{{ one : types / each / more }}", "0 of 2 items are more, where one must be"),
        ("{{ other : types / each }}", "no result is named 'other' on this page; named are one"),
        ("{{ two = no.json by python no.py }}", "No such file"),
        ("{{ two = two.json }}", "name the command"),
        ("{{ two = one.json by python one.py }}", "name the command"),
        ("{{ one : grid / [workers=4] / rate }}", "2 of 2 items are [workers=4], where one must be"),
        ("{{ one : grid / [workers=5] / rate }}", "0 of 2 items"),
        ("{{ one : types / none -> .1f }}", "that is None, not a value"),
        ("{{ one : types }}", "not a value"),
        ("{{ one : types / F -> .1f }}", "{{ one : types / F -> .1f }}"),
        ("one}} and {{ one", "a placeholder is not whole"),
    ],
)
def test_a_placeholder_that_cannot_be_filled(text: str, told: str, results: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        evidence.fill("page", f"{{{{ one = one.json }}}}\n\n{text}", results)


@pytest.mark.parametrize(
    "text",
    [
        "| | theirs | ours |\n|---|---|---|\n| mean | 1.8 | 1.83 |",
        "| | ours, again |\n|---|---|\n| mean | {{ one : types / each }} and 2 |",
        "It took 51 minutes.",
        "- It was {{ one : types / each }}, of 5 seeds.",
        "Below Table 2 stands a mean of 3.",
        "With *repeated*: 2 epochs.",
        "## Table 1: errors\n| | ours |\n|---|---|\n| mean | 1.83 |",
        "**Theirs.** 1.8 in all.\n| | ours |\n|---|---|\n| mean | 1.83 |",
    ],
)
def test_a_typed_figure_is_refused(text: str, results: Path) -> None:
    with pytest.raises(ValueError, match="page.md: a figure is typed in"):
        evidence.fill("page", f"{{{{ one = one.json }}}}\n\n{text}", results)


def test_a_column_is_ours_or_theirs(results: Path) -> None:
    with pytest.raises(ValueError, match="the column 'here' is neither theirs nor ours"):
        evidence.fill("page", "| | theirs | here |\n|---|---|---|\n| mean | 1.8 | 1.83 |", results)


def test_where_figures_may_be_typed(results: Path) -> None:
    text = """## Table 1: of 5

*repeated*: as in Figures 2 and 3, and section 3.1.

**Theirs.** 47 times as fast.

| 8 workers | theirs, 2017 | ours, 56 Gb/s |
|---|---|---|
| 4 + 3 | 374.73 | none |

ResNet-50 by `one.py --rounds 3` is [there](one-2.md#table-1)."""
    assert evidence.fill("page", text, results) == text


@pytest.mark.parametrize("standing", ["", "*almost repeated*: ours", "**repeated**: ours", "Repeated."])
def test_a_result_without_a_standing_is_refused(standing: str) -> None:
    with pytest.raises(ValueError, match=r"page.md: below 'Table 1: errors' stands none of: \*repeated\*"):
        evidence.entries_of("page", f"# Title\n\n## Table 1: errors\n\n{standing}\n\nMore.\n")


@pytest.mark.parametrize("name", evidence.PAPERS)
def test_every_table_and_figure_of_a_paper_has_its_place(name: str) -> None:
    found: dict[str, set[int]] = {"Table": set(), "Figure": set()}
    for entry in evidence.entries_of(name, (PAGES / f"{name}.md").read_text()):
        kind = re.match(r"(Table|Figure)s? ([^:]*)", entry.title)
        if kind:
            numbers = [int(number) for number in re.findall(r"\d+", kind[2])]
            found[kind[1]] |= set(range(numbers[0], numbers[1] + 1)) if " to " in kind[2] else set(numbers)
    tables, figures = NUM_TABLES_AND_FIGURES[name]
    assert found == {"Table": set(range(1, tables + 1)), "Figure": set(range(1, figures + 1))}


def test_the_index_counts_the_pages() -> None:
    index = (PAGES / "README.md").read_text()
    for name in evidence.PAPERS:
        lines = (PAGES / f"{name}.md").read_text().split("\n")
        counts = [sum(line.startswith(f"*{standing}*") for line in lines) for standing in evidence.STANDINGS]
        assert f"]({name}.md) | {' | '.join(str(count or '') for count in counts)} |\n" in index


@pytest.mark.parametrize("name", [evidence.INDEX, *evidence.PAPERS])
def test_a_page_is_readable_and_its_links_lead_somewhere(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    assert "{{" not in page
    assert all(len(line) <= 150 for line in page.split("\n") if not line.startswith("|"))
    for table in re.findall(r"(?:^\|.*\n)+", page, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table
    for target in re.findall(r"\]\(([^)]+)\)", page):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            path = PAGES / file
            assert path.is_file(), target
            headings = re.findall(r"^#+ (.*)", path.read_text(), re.M) if anchor else []
            assert not anchor or anchor in map(evidence.anchor_of, headings), target
