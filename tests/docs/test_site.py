"""The site has a place for every public name, and builds without a warning or anything from elsewhere."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import typer

import augpipe
from augpipe import ops
from augpipe.cli.app import app
from augpipe.recipes.importers.text import parameters
from augpipe.trainer.config import RunConfig
from augpipe.trainer.config.tables import Section
from docs.site import gallery, reference, translations
from tests.docs.blocks import ROOT

PYTHON = ROOT / ".venv-docs/bin/python"


@cache
def gallery_pages() -> dict[str, str | bytes]:
    return gallery.pages()


def texts(pages: dict[str, str | bytes]) -> str:
    return "\n".join(page for page in pages.values() if isinstance(page, str))


def test_every_public_name_is_in_the_reference() -> None:
    text = texts(reference.pages())
    for name in augpipe.__all__:
        assert f"::: augpipe.{name}\n" in text or f"- [augpipe.{name}](" in text, name


def test_every_op_is_in_the_gallery_with_what_it_does() -> None:
    text = texts({path: page for path, page in gallery_pages().items() if path != "gallery/index.md"})
    for name in set(ops.__all__) - {"Op"}:
        (section,) = re.findall(rf"^## {name}$(.*?)(?=^## |\Z)", text, re.M | re.S)
        assert f"ops.{name}(" in section and 'op = "' in section
        assert ("images/before.webp" in section) == (name not in ("Identity", "Normalize")), "a picture that differs"


def test_every_picture_is_there() -> None:
    pages = gallery_pages()
    for picture in set(re.findall(r"\((images/\S+\.webp)\)", texts(pages))):
        assert bytes(pages[f"gallery/{picture}"])[8:12] == b"WEBP", picture


def test_every_transform_of_other_libraries_has_a_row() -> None:
    pages = translations.pages()
    for title, (alias, library, mapped) in translations.LIBRARIES.items():
        page = pages[f"from/{title.replace(' ', '-')}.md"]
        for name in set(parameters(library)) - {"Compose", "Sequential"}:
            assert f"`{alias}.{name}(" in page
            assert name not in mapped or f"`{alias}.{name}(" not in page.partition("not there yet")[2]
        assert page.count("| exact |") > 15
    assert "`re_prob=0.25`" in pages["from/timm.md"]


def test_every_command_and_every_table_of_the_config_is_in_the_reference() -> None:
    pages = reference.pages()
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"\n## augpipe {name}\n" in str(pages["reference/cli.md"])
    for name, field in RunConfig.model_fields.items():
        assert f"`{name}`" in str(pages["reference/config.md"])
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            assert f"\n## [{name}]\n" in str(pages["reference/config.md"])


def build(root: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    command = [PYTHON, "-m", "mkdocs", "build", "--site-dir", site]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


@pytest.mark.deep
@pytest.mark.skipif(not PYTHON.exists(), reason="make docs has not set up .venv-docs")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = build(ROOT, tmp_path)
    assert built.returncode == 0, built.stderr
    pages = {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    for name, page in pages.items():
        assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?(?:https?:)?//[^\">]*", page) == [], name
    assert all('id="' + name.lower() + '"' in "".join(pages.values()) for name in ops.__all__ if name != "Op")
    assert all(f'id="augpipe.{name}"' in pages["reference/augpipe.html"] for name in ("Loader", "Recipe", "Plan"))
    found = {entry["location"] for entry in json.loads((tmp_path / "search/search_index.json").read_text())["docs"]}
    assert {"start.html", "gallery/levels.html#gamma", "reference/cli.html#augpipe-preview"} <= found


@pytest.mark.deep
@pytest.mark.skipif(not PYTHON.exists(), reason="make docs has not set up .venv-docs")
def test_a_broken_link_and_a_broken_anchor_end_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for path in ROOT.iterdir():
        if path.name not in ("docs", "build"):
            (tmp_path / path.name).symlink_to(path)
    with (tmp_path / "docs/stats.md").open("a") as page:
        page.write("\n[gone](gone.md) and [nowhere](loader.md#nowhere)\n")
    built = build(tmp_path, tmp_path / "build")
    assert built.returncode != 0 and "'gone.md'" in built.stderr and "'#nowhere'" in built.stderr
