"""The corpus of published recipes is large, spread, written of calls alone, and split as it says."""

import ast
import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tests.augpipe.importers.recipes import CORPUS, FRESH, HELD_OUT, SEEN, Published, calls, counted, published

HELD_OUT_SHA256 = "fe138fa679c3254c302b63019569f640f98788f96fd0fb146bf832f8769c7e5e"
FILES = [pytest.param(path, id=path.stem) for path in (SEEN, HELD_OUT, FRESH)]


def test_there_are_enough_of_each_library() -> None:
    by_library = Counter(entry.library for path in (SEEN, HELD_OUT) for entry in published(path))
    assert by_library.total() >= 200
    assert by_library["torchvision"] >= 90 and by_library["albumentations"] >= 80
    assert by_library["timm"] + by_library["kornia"] >= 30
    assert set(by_library) == {"torchvision", "albumentations", "timm", "kornia"}


def test_none_is_there_twice() -> None:
    texts = Counter(ast.unparse(entry.tree) for path in (SEEN, HELD_OUT, FRESH) for entry in published(path))
    assert [text for text, times in texts.items() if times > 1] == []


@pytest.mark.parametrize("path", FILES)
def test_each_is_one_call_and_says_where_it_was_seen(path: Path) -> None:
    for entry in published(path):
        assert isinstance(entry.tree, ast.Call) and list(calls(entry.tree))
        assert "/" in entry.seen and entry.what


@pytest.mark.parametrize("path", FILES[:2])
def test_each_lies_in_the_file_that_its_digest_says(path: Path) -> None:
    assert [entry.seen for entry in published(path) if entry.file != path] == []


def test_what_is_held_out_stays_as_it_is() -> None:
    assert hashlib.sha256(HELD_OUT.read_bytes()).hexdigest() == HELD_OUT_SHA256


def test_the_readme_counts_what_may_be_seen() -> None:
    rows = (CORPUS / "README.md").read_text(encoding="utf-8").partition("| Calls |")[2].splitlines()[2:]
    assert rows == counted(published(SEEN))


@pytest.mark.parametrize(
    "recipe", ["A.Compose(steps()[0])", "A.Compose(**options)", "A.Blur(lambda x: x)", "[i for i in x]"]
)
def test_what_would_not_be_calls_alone_is_told(recipe: str) -> None:
    with pytest.raises(ValueError, match="a/b"):
        _ = Published(library="albumentations", seen="a/b", what="", recipe=recipe).tree
