"""Every block of the documentation runs as it stands, for a reader who does a page from its beginning."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer.main

from augpipe.cli.app import app
from augpipe.datasets.synthetic.generate import generate
from tests.child_path import child_path
from tests.docs.blocks import ROOT, Block, blocks_of, code_spans, commands, page_names
from tests.docs.pages import PAGES, Page, photos

SHELLS = ("sh", "bash")
RUNNABLE = ("python", *SHELLS, "console", "toml")

Read = Callable[[str, str, Page], None]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample dataset."""
    folder = tmp_path_factory.mktemp("drawn") / "photos"
    generate(folder, num=24, classes=4, workers=1)
    return folder


@pytest.fixture(scope="module")
def reader() -> Iterator["subprocess.Popen[str]"]:
    """The process of tests/docs/reader.py, with this checkout's package and this environment's commands."""
    outer = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": child_path(),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",  # a process is forked best while it has one thread
    }
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests/docs/reader.py")],
        env=outer | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        yield process
        process.stdin.close()


@pytest.fixture
def read(reader: "subprocess.Popen[str]", drawn: Path, tmp_path: Path) -> Read:
    """Does a page's blocks; what they print is in the failure."""

    def read(name: str, markdown: str, page: Page) -> None:
        folder, log = tmp_path / "reader", tmp_path / "log"
        folder.mkdir()
        for put in page.files:
            put(folder, drawn)
        job = {"page": name, "folder": str(folder), "steps": steps(markdown, page)}
        assert reader.stdin is not None and reader.stdout is not None
        print(json.dumps(job | {"log": str(log)}), file=reader.stdin, flush=True)
        if reader.stdout.readline() != "0\n":
            pytest.fail(f"{name}:\n{log.read_text()}", pytrace=False)

    return read


def steps(markdown: str, page: Page) -> list[dict[str, Any]]:
    """The blocks that run, as tests/docs/reader.py takes them."""
    found = []
    for block in blocks_of(markdown):
        if named(block, page.needs) or named(block, page.plain):
            continue
        text = block.text
        for old, new in page.instead.items():
            text = text.replace(old, new)
        before = [page.before[start] for start in named(block, page.before)]
        then = [expectation for start in named(block, page.then) for expectation in page.then[start]]
        found.append({"language": block.language, "text": text, "line": block.line, "before": before, "then": then})
    return found


def named(block: Block, starts: Iterable[str]) -> list[str]:
    """Those of `starts` that the block begins with."""
    return [start for start in starts if block.text.startswith(start)]


def blocks(name: str) -> list[Block]:
    return blocks_of((ROOT / name).read_text())


@pytest.mark.parametrize("name", page_names())
def test_a_page_does_what_it_says(name: str, read: Read) -> None:
    read(name, (ROOT / name).read_text(), PAGES[name])


def test_the_table_names_every_page() -> None:
    assert sorted(PAGES) == sorted(page_names())


@pytest.mark.parametrize("name", page_names())
def test_what_the_table_says_of_a_page_is_there_once(name: str) -> None:
    page, found = PAGES[name], blocks(name)
    for start in (*page.before, *page.then, *page.needs, *page.plain):
        assert len([block for block in found if named(block, [start])]) == 1, start
    for text in page.instead:
        assert any(text in block.text for block in found), text
    for block in found:
        assert len(named(block, (*page.then, *page.needs, *page.plain))) <= 1, block.text
        assert (block.language == "") == bool(named(block, page.plain)), f"line {block.line}: of which language?"
        assert block.language in ("", *RUNNABLE), f"line {block.line}: nothing here runs {block.language}"


NOT_RUN = [(name, block) for name in page_names() for block in blocks(name) if named(block, PAGES[name].needs)]


@pytest.mark.parametrize(("name", "block"), [pytest.param(*case, id=f"{case[0]}:{case[1].line}") for case in NOT_RUN])
def test_a_block_that_cannot_run_here_is_sound(name: str, block: Block) -> None:
    if block.language in SHELLS:
        subprocess.run(["bash", "-n", "-c", block.text], check=True)  # whether its commands exist: below
    else:
        before = [other.text for other in blocks(name) if other.language == "python" and other.line < block.line]
        check_calls(block.text, before)


def check_calls(text: str, before: Iterable[str]) -> None:
    """That what the block calls, by the imports in it and in those before it, takes such arguments."""
    namespace: dict[str, Any] = {}
    for block in (*before, text):
        imports = [node for node in ast.parse(block).body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), "imports", "exec"), namespace)
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        function = eval(ast.unparse(call.func), namespace)
        given = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
        inspect.signature(function).bind(*call.args, **given)


@pytest.mark.parametrize("name", page_names())
def test_every_command_that_a_page_names_exists(name: str) -> None:
    shells = [block.text for block in blocks(name) if block.language in SHELLS]
    sessions = [re.findall(r"^\$ (.*)", block.text, re.M) for block in blocks(name) if block.language == "console"]
    spans = [span for span in code_spans((ROOT / name).read_text()) if re.match(r"(augpipe|make|python) \S", span)]
    for text in (*shells, *(command for session in sessions for command in session), *spans):
        for words in commands(text):
            check_command(words)


def check_command(words: list[str]) -> None:
    """That ours exists, and takes the options that it is given."""
    known: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    match words:
        case ["augpipe", group, command, *arguments] if hasattr(known.get(group), "commands"):
            check_options(known[group].commands[command], arguments)
        case ["augpipe", command, *arguments]:
            check_options(known[command], arguments)
        case ["make", *targets]:
            makefile = (ROOT / "Makefile").read_text()
            for target in targets:
                assert "=" in target or re.search(rf"^{target}:", makefile, re.M), f"make {target}"
        case ["python", script, *_] if script.endswith(".py"):
            assert (ROOT / script).is_file(), script
        case ["python" | "torchrun", *arguments] if "-m" in arguments:
            module = arguments[arguments.index("-m") + 1]
            assert find_spec(module), module
        case _:
            assert words[0] in ("pip", "python"), f"{words[0]} is not known here"


def check_options(command: Any, arguments: list[str]) -> None:
    """That a command of ours takes the options that it is given."""
    options = {option for parameter in command.params for option in parameter.opts}
    given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    assert given <= options | {"--help"}, f"augpipe {command.name} takes none of {given - options}"


@pytest.mark.parametrize("name", page_names())
def test_every_name_of_ours_that_a_page_writes_out_is_there(name: str) -> None:
    for span in code_spans((ROOT / name).read_text()):
        for path in re.finditer(r"(?<![\w./])augpipe(\.\w+)+", span):
            resolve_name(path[0])  # or it raises


@pytest.mark.parametrize(
    ("markdown", "told"),
    [
        ("```python\nprint(7)\nraise KeyError(8)\n```", 'File "page.md", line 3'),
        ("```python\nimport augpipe\naugpipe.trainer.kodec('linear')\n```", "has no attribute 'kodec'"),
        ("```python\nimport warnings\nwarnings.warn('old')\n```", "UserWarning: old"),
        ("```python\nx = 1\n```\n- ```python\n  assert x == 2\n  ```", "AssertionError"),
        ("```sh\nls photos\nls nowhere\nls photos\n```", "page.md, line 2: exit code 2"),
        ("```sh\nfalse | cat\n```", "exit code 1"),
        ("```console\n$ echo 1 23\n1 …\n$ echo 4\n3\n```", "page.md, line 2: echo 4 prints\n4\n"),
        ("```toml\nname = \n```", "TOMLDecodeError"),
        ("```python\nprint(6)\n```", "this does not hold: output == '7'"),
    ],
)
def test_a_block_that_does_not_do_what_it_says_fails(markdown: str, told: str, read: Read) -> None:
    page = Page(files=(photos(1),), then={"print(6)": ("output == '6\\n'", "output == '7'")})
    with pytest.raises(pytest.fail.Exception) as failure:
        read("page.md", markdown, page)
    assert told in str(failure.value)


def test_a_page_that_does_what_it_says_passes(read: Read) -> None:
    markdown = """
1. A list:

   ```sh
   echo 'name = "mine"' > there.toml   # not run as it stands
   ```

```toml
name = "given"
```

~~~python
assert "augpipe" not in globals() and three == 3
~~~

```console
$ cat nowhere
cat: nowhere: …
```

    indented code is no block
"""
    page = Page(
        before={"assert": "import augpipe; two = 2; given = {'three': two + 1}"},
        instead={"mine": "given", "# not run": "; echo '# by the test' >> there.toml # not run"},
        then={"assert": ("Path('there.toml').read_text() == Path('given.toml').read_text() + '# by the test\\n'",)},
    )
    read("page.md", markdown, page)
    assert [block.language for block in blocks_of(markdown)] == ["sh", "toml", "python", "console"]


@pytest.mark.parametrize(
    "text",
    ["Recipe()", "Loader('photos/', recipes.deep_images())", "Loader('photos/', recipes.none(), batch_sizes=4)", "x ="],
)
def test_a_call_that_cannot_be_made_is_found(text: str) -> None:
    check_calls("Loader('photos/', recipes.deep_image(), batch_size=4)", ["from augpipe import Loader, recipes"])
    with pytest.raises((NameError, AttributeError, TypeError, SyntaxError)):
        check_calls(text, ["from augpipe import Loader, recipes"])


@pytest.mark.parametrize(
    "command",
    [
        "augpipe prepair photos/ OUT",
        "augpipe stats photos/ --plot plots/",
        "augpipe checkpoint converts a b",
        "augpipe checkpoint convert a b --trust",
        "make everything",
        "python benchmarks/no.py",
        "torchrun -m augpipe.trains",
        "augpip doctor",
    ],
)
def test_a_command_that_is_not_there_is_found(command: str) -> None:
    (words,) = commands(f"X=1 sudo {command} > out  # a comment")
    with pytest.raises((AssertionError, KeyError)):
        check_command(words)
