"""What mkdocs calls while it builds the site: pages made from augpipe join those of docs/, and links find them."""

import re
import tomllib
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from textwrap import dedent
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from docs.site import gallery, notebooks, reference, translations

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()[^)#:\s]+(?=[)#])")
BLOCK = re.compile(r"^( *)```(python|toml)\n(.*?)^\1```", re.M | re.S)
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
    check_blocks(here, markdown)

    def moved(found: re.Match[str]) -> str:
        return relpath(site_path(normpath(join(dirname(HOMES[here]), found[0]))), dirname(here) or ".")

    return LINK.sub(moved, markdown)


def site_path(path: str) -> str:
    """Where the site has a file or folder of the repository; what Markdown can show is a page."""
    if path.startswith("docs/"):
        return re.sub(r"\.py$", ".md", path.removeprefix("docs/"))
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


def check_blocks(page: str, markdown: str) -> None:
    """End the build where a block of Python or TOML cannot be parsed; tests/docs/test_pages.py runs the blocks."""
    for _, language, text in BLOCK.findall(markdown):
        try:
            compile(dedent(text), page, "exec") if language == "python" else tomllib.loads(dedent(text))
        except (SyntaxError, tomllib.TOMLDecodeError) as error:
            raise PluginError(f"{page}: a block of {language} cannot be parsed: {error}\n{text}") from error


def on_post_build(*, config: Any) -> None:
    """End the build where the reference lacks a public name."""
    pages = [path.read_text(encoding="utf-8") for path in Path(config.site_dir, "reference").glob("augpipe*.html")]
    shown = set(re.findall(r'id="(augpipe\.[\w.]+)"', "".join(pages)))
    lacking = sorted(set(reference.entries()) - shown)
    if lacking:
        raise PluginError(f"These public names have no entry in the reference: {', '.join(lacking)}")


def on_post_template(output: str, **_: Any) -> str:
    """The page for addresses that do not exist is a template, not a page."""
    return on_post_page(output)


def on_post_page(output: str, **_: Any) -> str:
    """Give the search dialog the name that the theme leaves out, for screen readers."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
