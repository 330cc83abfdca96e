"""Write docs/evidence/: what five papers claim, and our figures beside it, taken from benchmarks/results/.

    python -m benchmarks.papers.evidence

A page is its template in benchmarks/papers/evidence/ with the placeholders filled in:

    {{ mlp = 2026-11-21-dettmers_mnist.json }}     names a result file, and becomes its command, date, machine and link;
    {{ mlp = FILE by COMMAND }}                    for files that do not hold their command
    {{ mlp : types / linear / mean, % -> .2f }}    a value in it: keys, and a format
    {{ bsc : grid / [workers=4; servers=3] / nodes }}                  in a list: the one item that has these values
    {{ sizes : min results / 32 bits ÷ min results / 8 bits -> .1f }}  the least of a list; a quotient, also by a number
    {{ counts }}                                   how many of the page's results have which standing

Figures of ours are never typed. Digits may stand in headings, in a table's first column and in those headed "theirs",
in paragraphs that begin with **Theirs.**, in `code`, links, and names as "Table 2" or "CIFAR-10"; anywhere else, as in
columns headed "ours", a template is refused that has any. So a page says what its results say, or is not written.

Below each heading "## ..." stands the result's standing in italics, one of STANDINGS, and the reason.
"""

import difflib
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1]
RESULTS = FOLDER / "results"
TEMPLATES = FOLDER / "papers" / "evidence"
PAGES = FOLDER.parent / "docs" / "evidence"

PAPERS = (
    "deep-image",
    "deep-image-fine-grained",
    "8bit-approximations",
    "bsc-distributed-training",
    "distributed-dnn-mullapudi",
)
"""Templates and pages, in the index's order."""
INDEX = "README"
STANDINGS = ("repeated", "repeated small", "simulated", "not repeated", "nothing to repeat")
NO_RESULT = ("Errors in the paper", "Beyond the paper")
"""Beginnings of headings that have no standing."""
THEIRS = ("**Source.**", "**Theirs.**")
"""Beginnings of paragraphs that may hold figures."""
WIDTH = 145

PLACEHOLDER = re.compile(r"\{\{ (.+?) \}\}")
NAMED = re.compile(r"(\w+) = (\S+\.json)(?: by (.+))?")
DIGITS_ALLOWED = re.compile(
    r"\{\{.*?\}\}|`[^`]*`|\]\([^)]*\)|[A-Z][A-Za-z]+-\d+"
    r"|\b(Tables?|Figures?|[Ss]ections?) \d[\d.]*((, | and | to )\d[\d.]*)*"
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One result of a paper."""

    title: str
    standing: str


def write_pages() -> None:
    """Write every page, and the index."""
    PAGES.mkdir(exist_ok=True)
    for name, text in all_pages().items():
        (PAGES / f"{name}.md").write_text(text)


def all_pages(templates: Path = TEMPLATES, results: Path = RESULTS) -> dict[str, str]:
    """Each page's text by its name; the index is made from the pages."""
    pages = {name: fill(name, (templates / f"{name}.md").read_text(), results) for name in PAPERS}
    index = (templates / f"{INDEX}.md").read_text()
    refuse_typed_figures(INDEX, index)
    made = index.replace("{{ counts }}", counts_table(pages))
    return {INDEX: wrap(made), **pages}


def fill(name: str, template: str, results: Path = RESULTS) -> str:
    """The page of a template; ValueError names the page and the placeholder that cannot be filled."""
    refuse_typed_figures(name, template)
    files = {named[1]: named[2] for text in PLACEHOLDER.findall(template) if (named := NAMED.fullmatch(text))}

    @cache
    def read(file: str) -> Any:
        return json.loads((results / file).read_text())

    def value_of(placeholder: re.Match[str]) -> str:
        try:
            if placeholder[1] == "counts":
                return counts_sentence(entries_of(name, template))
            if named := NAMED.fullmatch(placeholder[1]):
                return source(read(named[2]), named[2], named[3])
            alias, _, rest = placeholder[1].partition(" : ")
            if alias not in files:
                raise LookupError(f"no result is named {alias!r} on this page; named are {', '.join(files) or 'none'}")
            return one_value(read(files[alias]), rest)
        except (LookupError, OSError, TypeError, ValueError) as error:
            raise ValueError(f"{name}.md: {placeholder[0]}: {error}") from error

    made = PLACEHOLDER.sub(value_of, template)
    if "{{" in made or "}}" in made:
        raise ValueError(f"{name}.md: a placeholder is not whole, write {{{{ NAME : PATH -> FORMAT }}}} in one line")
    return wrap(made)


def one_value(result: Any, text: str) -> str:
    """What `PATH -> FORMAT` of a result reads."""
    operands, _, spec = text.partition(" -> ")
    values = [operand(result, each) for each in operands.split(" ÷ ")]
    if len(values) > 1:
        return format(values[0] / values[1], spec)
    (value,) = values
    if isinstance(value, list):
        return ", ".join(format(item, spec) for item in value)
    if value is None or isinstance(value, dict):
        raise TypeError(f"that is {value!r:.60}, not a value")
    return format(value, spec)


def source(result: dict[str, Any], file: str, command: str | None) -> str:
    """The command that made a result, its date, its machine, and a link to it."""
    if ("command" in result) == (command is not None):
        raise ValueError("name the command, by COMMAND, where the file does not hold it, and only there")
    machine = result["machine"]
    cores = "one core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    return (
        f"`{as_called_today(command or result['command'])}`, {result['date']}, "
        f"{machine['cpu']} ({machine['llvm_cpu']}), {cores}: "
        f"[{file}](../../benchmarks/results/{file})"
    )


def as_called_today(command: str) -> str:
    """A command of a result, whose script may have lain in benchmarks/ itself and now lies in one of its folders."""

    def module(found: re.Match[str]) -> str:
        path = next(FOLDER.glob(f"*/{found[1]}.py"), None)
        return f"python -m benchmarks.{path.parent.name}.{path.stem}" if path else found[0]

    return re.sub(r"python benchmarks/(\w+)\.py", module, command)


def operand(result: Any, text: str) -> Any:
    """A number, the value at a path, or the least of the values there."""
    if re.fullmatch(r"\d[\d.e-]*", text):
        return float(text)
    path = text.removeprefix("min ")
    value = look_up(result, path)
    return value if path == text else min(value)


def look_up(result: Any, path: str) -> Any:
    """The value at a path of keys; LookupError names the nearest keys."""
    value = result
    for part in path.split(" / "):
        if isinstance(value, list):
            value = the_item(value, part)
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            keys = list(value) if isinstance(value, dict) else []
            nearest = difflib.get_close_matches(part, keys, n=3, cutoff=0)
            raise LookupError(f"there is no {part!r}; the nearest are {', '.join(map(repr, nearest)) or 'none'}")
    return value


def the_item(items: list[Any], part: str) -> Any:
    """The item of a number, or the only one with the values that `[key=value; key=value]` asks for."""
    if part.isdigit():
        return items[int(part)]
    asked = [each.partition("=")[::2] for each in part.removeprefix("[").removesuffix("]").split("; ")]
    rows = [item for item in items if isinstance(item, dict)]
    fitting = [row for row in rows if all(as_text(row.get(key)) == value for key, value in asked)]
    if len(fitting) != 1:
        raise LookupError(f"{len(fitting)} of {len(items)} items are {part}, where one must be")
    return fitting[0]


def as_text(value: Any) -> str:
    """A value as a placeholder asks for it."""
    return value if isinstance(value, str) else json.dumps(value)


def refuse_typed_figures(name: str, template: str) -> None:
    """ValueError where a template has digits that may be a figure of ours."""
    for block in template.split("\n\n"):
        lines = block.strip("\n").split("\n")
        if lines[0].startswith(THEIRS):
            texts = [line for line in lines[1:] if line.startswith("|")]
        elif lines[0].startswith("|"):
            texts = list(of_ours(name, lines))
        else:
            texts = [line for line in lines if not line.startswith("#")]
        for text in texts:
            if re.search(r"\d", DIGITS_ALLOWED.sub("", text)):
                raise ValueError(
                    f"{name}.md: a figure is typed in {text.strip()!r}: take it from a result, "
                    "by {{ NAME : PATH }}, or write it in a word"
                )


def of_ours(name: str, table: list[str]) -> Iterator[str]:
    """The cells of a table's columns that are ours."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table]
    for column, head in enumerate(rows[0][1:], 1):
        if not head.startswith(("theirs", "ours")):
            raise ValueError(
                f"{name}.md: the column {head!r} is neither theirs nor ours: begin its head with one of them"
            )
        if head.startswith("ours"):
            yield from (row[column] for row in rows[2:])


def entries_of(name: str, page: str) -> list[Entry]:
    """The results of a page, or of its template, in their order."""
    entries = []
    for section in page.split("\n## ")[1:]:
        title, *blocks = section.split("\n\n")
        if title.startswith(NO_RESULT):
            continue
        standing = re.match(r"\*([a-z ]+)\*(?:: )?", blocks[0])
        if not standing or standing[1] not in STANDINGS:
            raise ValueError(f"{name}.md: below {title!r} stands none of: *{'*, *'.join(STANDINGS)}*")
        entries.append(Entry(title=title, standing=standing[1]))
    return entries


def counts_of(entries: list[Entry]) -> dict[str, int]:
    """How many results have each standing."""
    return {standing: sum(entry.standing == standing for entry in entries) for standing in STANDINGS}


def counts_sentence(entries: list[Entry]) -> str:
    """As "Of its 9 results: 3 repeated, 6 not repeated."."""
    counts = counts_of(entries)
    nothing = counts.pop("nothing to repeat")
    told = ", ".join(f"{count} {standing}" for standing, count in counts.items() if count)
    return f"Of its {len(entries) - nothing} results: {told}."


def counts_table(pages: dict[str, str]) -> str:
    """A row for each paper, and one for all."""
    rows = [f"| paper | {' | '.join(STANDINGS)} |", f"|---|{'---|' * len(STANDINGS)}"]
    total = dict.fromkeys(STANDINGS, 0)
    for name, page in pages.items():
        counts = counts_of(entries_of(name, page))
        total = {standing: total[standing] + count for standing, count in counts.items()}
        rows.append(f"| [{title_of(page)}]({name}.md) | {' | '.join(str(count or '') for count in counts.values())} |")
    rows.append(f"| **all** | {' | '.join(f'**{count}**' for count in total.values())} |")
    return "\n".join(rows)


def anchor_of(heading: str) -> str:
    """What a link to a heading ends with, on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def title_of(page: str) -> str:
    """The text of a page's first heading."""
    return page.partition("\n")[0].removeprefix("# ")


def wrap(page: str) -> str:
    """The page with its prose in lines of at most WIDTH; tables and headings stay."""
    return "\n\n".join(block if block.startswith(("|", "#")) else wrap_block(block) for block in page.split("\n\n"))


def wrap_block(block: str) -> str:
    """A paragraph, or the items of a list."""
    lines = []
    for item in re.split(r"\n(?=- )", block.strip("\n")):
        indent = "  " if item.startswith("- ") else ""
        words = " ".join(item.split())
        lines += textwrap.wrap(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + block[len(block.rstrip("\n")) :]


if __name__ == "__main__":
    write_pages()
