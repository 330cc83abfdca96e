"""The notebooks: scripts of docs/notebooks in jupytext's percent format, as pages and as files for Jupyter."""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = ("fine_tune", "from_torchvision", "eight_bit_gradients")
MARK = re.compile(r"^# %%( \[markdown\])?\n", re.M)
PICTURE = re.compile(r"!\[[^]]*\]\([^)]*\)\n*")
PAGE_LINK = re.compile(r"\[([^]]*)\]\(\.\.[^)]*\)")


def pages() -> dict[str, str | bytes]:
    """Path in the site -> a page, or the file that it offers for download."""
    made: dict[str, str | bytes] = {}
    for name in NAMES:
        found = cells((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        made[f"notebooks/{name}.md"] = page(found, name)
        made[f"notebooks/{name}.ipynb"] = json.dumps(notebook(found), indent=1).encode()
    return made


def cells(script: str) -> list[tuple[bool, str]]:
    """Of each cell whether it is Markdown, and its text, of which comments are Markdown's lines."""
    parts = MARK.split(script)
    return [
        (bool(mark), re.sub(r"^# ?", "", text, flags=re.M).strip() if mark else text.strip())
        for mark, text in zip(parts[1::2], parts[2::2], strict=True)
    ]


def page(found: list[tuple[bool, str]], name: str) -> str:
    """The cells in Markdown, with the download below the title."""
    texts = [text if is_markdown else f"```python\n{text}\n```" for is_markdown, text in found]
    title, _, rest = texts[0].partition("\n")
    return "\n\n".join([title, f"[Download this notebook]({name}.ipynb)", rest.strip(), *texts[1:]]) + "\n"


def notebook(found: list[tuple[bool, str]]) -> dict[str, Any]:
    """The cells as Jupyter stores them, without the site's pictures and links, which are not there."""
    stored = []
    for number, (is_markdown, text) in enumerate(found):
        text = PAGE_LINK.sub(r"\1", PICTURE.sub("", text)) if is_markdown else text
        cell = {"cell_type": "markdown" if is_markdown else "code", "id": str(number), "metadata": {}}
        cell |= {"source": text.splitlines(keepends=True)}
        stored.append(cell if is_markdown else cell | {"execution_count": None, "outputs": []})
    return {"cells": stored, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
