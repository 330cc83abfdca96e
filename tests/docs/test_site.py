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
from docs.site.tables import cell, prose
from tests.docs.blocks import ROOT

PYTHON = ROOT / ".venv-docs/bin/python"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


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
    for name in set(ops.__all__) - {"Op", "KeepObjects"}:
        (section,) = re.findall(rf"^## {name}$(.*?)(?=^## |\Z)", text, re.M | re.S)
        toml = "A TOML file cannot hold it." if name == "Custom" else "[mosaic]" if name == "Mosaic" else 'op = "'
        assert f"ops.{name}(" in section and toml in section
        assert ("images/before.webp" in section) == (name not in ("Identity", "Normalize")), "a picture that differs"


def test_the_fields_of_keep_objects_stand_next_to_the_crops() -> None:
    page = str(gallery_pages()["gallery/crops.md"])
    assert "## KeepObjects" in page and all(f"`{name}`" in page for name in ops.KeepObjects.field_names())


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
        assert ("times as fast with 16 images a call" in page) == (title in translations.CHAINS)
    assert "`re_prob=0.25`" in pages["from/timm.md"]


def test_every_command_and_every_field_of_the_config_is_in_the_reference() -> None:
    pages = reference.pages()
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"\n## augpipe {name}\n" in str(pages["reference/cli.md"])
    for name, field in RunConfig.model_fields.items():
        assert f"`{name}`" in str(pages["reference/config.md"])
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            _, _, section = str(pages["reference/config.md"]).partition(f"\n## [{name}]\n")
            for inner, part in field.annotation.model_fields.items():
                assert f"| `{inner}` | {cell(prose(part.description or ''))} |" in section.partition("\n## ")[0]


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


BREAKS = {
    "links": ("docs/stats.md", "# ", "[gone](gone.md) [nowhere](loader.md#nowhere)\n\n# ", ("'gone.md'", "'#nowhere'")),
    "a block": (
        "docs/stats.md",
        "# ",
        "```python\nprint(\n```\n\n# ",
        ("stats.md: a block of python cannot be parsed",),
    ),
    "a public name": (
        "docs/site/reference.py",
        'f"::: {name}" for name in names',
        'f"::: {name}" for name in names[1:]',
        ("These public names have no entry in the reference: augpipe.", "augpipe.nn."),
    ),
}
"""What is broken -> file, text, its replacement, and what the build then says."""


@pytest.mark.deep
@pytest.mark.skipif(not PYTHON.exists(), reason="make docs has not set up .venv-docs")
@pytest.mark.parametrize("broken", BREAKS)
def test_what_is_broken_ends_the_build(broken: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for path in ROOT.iterdir():
        if path.name not in ("docs", "build"):
            (tmp_path / path.name).symlink_to(path)
    name, old, new, said = BREAKS[broken]
    text = (tmp_path / name).read_text()
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1))
    built = build(tmp_path, tmp_path / "build")
    assert built.returncode != 0 and all(part in built.stderr for part in said), built.stderr


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not PYTHON.exists(), reason="make docs has not set up .venv-docs")
def test_every_page_loads_in_a_browser_and_axe_finds_nothing_serious(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    assert build(ROOT, tmp_path / "site").returncode == 0
    bad = tmp_path / "site/planted.html"
    bad.write_text('<html lang="en"><title>x</title><img src="none.png"><p style="width: 2000px">wide</p></html>')
    browsed = subprocess.run(
        [PYTHON, ROOT / "tests/docs/browse.py", tmp_path / "site", "--browser", browser], capture_output=True, text=True
    )
    assert browsed.returncode == 0, browsed.stderr
    found = json.loads(browsed.stdout)
    assert found["pages"] == len(list((tmp_path / "site").rglob("*.html"))) > 100
    problems = found["problems"]
    planted = [line for line in problems if line.startswith("planted.html, narrow")]
    assert any("image-alt" in line for line in planted) and any("wider than" in line for line in planted)
    assert [line for line in problems if not line.startswith("planted.html")] == []
