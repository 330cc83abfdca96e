"""What mkdocs calls while it builds the site: pages made from augpipe join those of docs/, and links find them."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

from docs.site import gallery, notebooks, reference, translations

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()[^)#:\s]+(?=[)#])")
FROM_REPOSITORY = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages outside of docs/ that the site shows whether or not a page links to them."""
HOMES: dict[str, str] = {}
"""File of the site -> file of the repository that it shows."""


def on_files(files: Files, *, config: Any) -> Files:
    """Add the generated pages, and what the pages link to outside of docs/."""
    made = {
        "Gallery": gallery.pages(),
        "Reference": reference.pages(),
        "From other libraries": translations.pages(),
        "Notebooks": notebooks.pages(),
    }
    for section, pages in made.items():
        for path, content in pages.items():
            files.append(File.generated(config, path, content=content))
        entry = next(part for part in config.nav if section in part)
        entry[section] = [path for path in pages if path.endswith(".md")]
    waiting = [f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")]
    waiting += FROM_REPOSITORY
    while waiting:
        path = waiting.pop()
        if site_path(path) not in HOMES and (ROOT / path).exists():
            HOMES[site_path(path)] = path
            text = page_text(ROOT / path)
            if not path.startswith("docs/"):
                content = (ROOT / path).read_bytes() if text is None else text
                files.append(File.generated(config, site_path(path), content=content))
            waiting += [normpath(join(dirname(path), link)) for link in LINK.findall(text or "")]
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links to files of the repository lead to where the site has them."""
    here = page.file.src_uri
    if here not in HOMES:
        return markdown

    def moved(found: re.Match[str]) -> str:
        return relpath(site_path(normpath(join(dirname(HOMES[here]), found[0]))), dirname(here) or ".")

    return LINK.sub(moved, markdown)


def site_path(path: str) -> str:
    """Where the site has a file or folder of the repository; what Markdown can show is a page."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    is_page = (ROOT / path).is_dir() or path.endswith(".py")
    return f"repository/{path}{'.md' if is_page else ''}"


def page_text(path: Path) -> str | None:
    """The Markdown that shows a file or a folder; None for what is served as it is."""
    if path.is_dir():
        return f"# {path.name}\n\n" + "".join(
            f"- [{file.name}]({path.name}/{file.name})\n" for file in sorted(path.iterdir()) if file.is_file()
        )
    if path.suffix == ".py":
        return f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"
    return path.read_text(encoding="utf-8") if path.suffix == ".md" else None


def on_post_page(output: str, **_: Any) -> str:
    """Give the search dialog the name that the theme leaves out, for screen readers."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
