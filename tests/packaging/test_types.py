"""Type checkers find the package where it is installed editable, and give users' code the types that it has."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of, page_names

HERE = Path(__file__).parent
OTHERS = {
    "CONTRIBUTING.md": "pyright lets no class narrow a field, as an op does with its name",
    "docs/cards.md": "what open_card returns is a Source to a type checker, which need not know boxes",
    "docs/dali.md": "DALI's own types deny its public names",
    "docs/stats.md": "duplicates is None where they were not asked for",
}
"""Pages whose Python does not pass, and why."""
GIVEN = {
    "README.md": "from torch.nn import Linear, parallel\nmodel = parallel.DistributedDataParallel(Linear(3, 1))",
    "docs/augment.md": "from typing import Any\npaths: Any = ['1.jpg']\nlabels: Any = [0]",
    "docs/labels.md": "from typing import Any\nmodel: Any = 1",
    "docs/start.md": "from typing import Any\ntransform: Any = 1\nA: Any = 1\nmodel: Any = 1\nmodule: Any = 1",
    "docs/parallel.md": "from augpipe import Loader, recipes\nloader = Loader('photos/', recipes.none(), batch_size=4)",
    "docs/recipes.md": "from typing import Any\ncompose: Any = 1\nA: Any = 1\ntransform: Any = 1\nmodule: Any = 1",
    "docs/trainers.md": "from typing import Any\ntransform: Any = 1",
    "docs/sync.md": "from torch.nn import Linear, parallel\nddp = parallel.DistributedDataParallel(Linear(3, 1))",
}
"""What readers of a page have before its first block."""
CHECKERS: dict[str, tuple[str, ...]] = {
    # the folder of the installed package is no user's code, so nothing that is wrong in it is told
    "mypy": ("mypy", "--strict", "--no-error-summary", "--cache-dir", ".mypy", "--python-executable"),
    "pyright": ("pyright", "--pythonpath"),
}
EACH = pytest.mark.parametrize("checker", [pytest.param("mypy", marks=pytest.mark.deep), "pyright"])
"""mypy reads torch for a minute; in every run it checks a user's code without torch, below."""
IGNORED = (
    "no-untyped-def",
    "no-untyped-call",
    "type-arg",
    "import-untyped",
    "import-not-found",
    "reportUnusedExpression",
    "reportPossiblyUnbound",
)
"""What guides leave out: annotations of their functions, stubs of other libraries, loops that might not run."""

Check = Callable[[str], list[tuple[str, int, str]]]


@dataclass(frozen=True, kw_only=True)
class User:
    """A user's project, and the environment that it runs in."""

    folder: Path
    python: Path


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """An environment with this one's packages and an editable install of the checkout, as pip makes it."""
    root = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True, timeout=60)
    (site,) = (root / "venv").glob("lib/python*/site-packages")
    checkout = root / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in ("src", "augpipe", "gpu_ops", "datasets", "trainer"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"from setuptools.build_meta import build_editable; build_editable({str(root)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True, capture_output=True, timeout=120)
    (wheel,) = root.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # packages by their folders: what is named in the .pth files of those, as this checkout, is not taken
    packages = [str(path) for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")]
    (site / "packages.pth").write_text("\n".join(packages))
    folder = root / "project"
    folder.mkdir()
    for name in ("typed_use.py", "wrong_use.py"):
        shutil.copy(HERE / name, folder)
    for name in page_names():
        found = [block.text for block in blocks_of((ROOT / name).read_text()) if block.language == "python"]
        if found and name not in OTHERS:
            (folder / page_file(name)).write_text("\n".join([GIVEN.get(name, ""), *found]))
    return User(folder=folder, python=root / "venv/bin/python")


def page_file(name: str) -> str:
    return "page_" + re.sub(r"\W", "_", name.removesuffix(".md")) + ".py"


@pytest.fixture(scope="module")
def found(user: User) -> Callable[[str], list[tuple[str, int, str]]]:
    """What a checker says of the project: file, line, message; asked once."""
    answers: dict[str, list[tuple[str, int, str]]] = {}

    def ask(checker: str) -> list[tuple[str, int, str]]:
        if importlib.util.find_spec(checker) is None:
            pytest.skip(f"{checker} is not installed")
        if checker not in answers:
            command = [sys.executable, "-m", *CHECKERS[checker], str(user.python), "."]
            environment = os.environ | {"PYTHONPATH": ""}  # as tests set it, it would come before what is installed
            ended = subprocess.run(
                command, cwd=user.folder, env=environment, capture_output=True, text=True, timeout=200
            )
            answers[checker] = list(errors(ended.stdout))
            assert ended.returncode == 1, ended.stdout + ended.stderr  # it has seen wrong_use.py
        return answers[checker]

    return ask


def errors(output: str) -> Iterable[tuple[str, int, str]]:
    """Those among the lines of mypy (file:line: error: text) and pyright (file:line:column - error: text)."""
    for line in output.splitlines():
        match = re.match(r"\s*(?:\S*/)?(\w+\.py):(\d+):(?:\d+)? (?:- )?error: (.*)", line)
        if match and not any(code in match[3] for code in IGNORED):
            yield match[1], int(match[2]), match[3]


@EACH
def test_what_users_write_has_its_types(checker: str, found: Check) -> None:
    assert [error for error in found(checker) if error[0] == "typed_use.py"] == []


@EACH
def test_the_pages_code_passes(checker: str, found: Check, user: User) -> None:
    assert len(list(user.folder.glob("page_*.py"))) > 12
    wrong = [": ".join(map(str, error)) for error in found(checker) if error[0].startswith("page_")]
    assert not wrong, "\n".join(wrong)


@EACH
def test_mistakes_are_found(checker: str, found: Check) -> None:
    lines = (HERE / "wrong_use.py").read_text().splitlines()
    expected = [number for number, line in enumerate(lines, 1) if "  # wrong" in line]
    assert sorted({line for name, line, _ in found(checker) if name == "wrong_use.py"}) == expected


def test_an_editable_install_adds_one_folder_with_nothing_but_augpipe(user: User) -> None:
    (pth,) = user.python.parent.parent.glob("lib/python*/site-packages/*augpipe*.pth")
    folder = Path(pth.read_text().strip())
    assert folder.is_dir() and folder.name == "src"
    names = "import augpipe, importlib.util as u; print(augpipe.__file__, *map(u.find_spec, ('gpu_ops', 'trainer')))"
    ended = subprocess.run([user.python, "-c", names], cwd=user.folder, capture_output=True, text=True, timeout=60)
    # files go by one name, however the package was found: kernels are kept by it
    assert ended.stdout.split() == [str(folder / "augpipe/__init__.py"), "None", "None"], ended.stderr
    code = "import augpipe.loader as loader, augpipe.gpu_ops.jit as jit; print(loader.__file__, jit.__file__)"
    ended = subprocess.run([user.python, "-c", code], cwd=user.folder, capture_output=True, text=True, timeout=60)
    package = folder.parent / "augpipe"
    assert ended.stdout.split() == [str(package / "loader.py"), str(package / "gpu_ops/jit.py")], ended.stderr


def test_users_without_torch_can_check_their_code(tmp_path: Path) -> None:
    """None of the packages is found here, torch among them: what is of their types is Any."""
    (tmp_path / "mine.py").write_text(
        "from augpipe import Loader, Recipe, ops\n"
        "for images, labels in Loader('photos/', Recipe(ops=[ops.Flip()]), batch_size=8, framework='numpy'):\n"
        "    images.shape[0]\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-site-packages", "--follow-imports=silent"]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src"), "PYTHONPATH": ""}
    ended = subprocess.run(
        [*command, "mine.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert ended.stdout.startswith("Success") and ended.returncode == 0, ended.stdout + ended.stderr
