"""The rooms are linked as one package, imports between them point one way, and READMEs say where to begin."""

import ast
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINKED_ROOMS = ("gpu_ops", "datasets", "trainer")
MAY_IMPORT = {
    "gpu_ops": {"gpu_ops"},
    "augpipe": {"gpu_ops", "augpipe"},
    "datasets": {"gpu_ops", "augpipe", "datasets"},
    "trainer": {"gpu_ops", "augpipe", "datasets", "trainer"},
}
GPU_OPS_NEEDS = {"numpy", "numba", "llvmlite"}  # llvmlite is the half of numba that writes machine code
README_ABOVE = 5
"""A folder of more Python files than these needs a README.md; `__init__.py` is not counted."""
MACHINE_CODE, MACHINE_CODE_NEEDS = Path("gpu_ops/cuda/machine_code.py"), {"cuda"}  # the half of numba-cuda that runs it


@dataclass(frozen=True, kw_only=True)
class Import:
    """One name that a source file imports."""

    name: str
    line: int
    in_function: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def room(self) -> str | None:
        """The room that the name lies in; None outside augpipe."""
        parts = self.name.split(".")
        if parts[0] != "augpipe":
            return None
        return parts[1] if len(parts) > 1 and parts[1] in LINKED_ROOMS else "augpipe"


@cache
def imports_of(source: str) -> tuple[Import, ...]:
    """Every import in `source`, those by `import_module("...")` too; relative ones are refused by the linter."""
    found: list[Import] = []
    # most of a file's nodes are expressions, in which nothing but that call is looked for
    looked_into = ast.AST if "import_module" in source else (ast.stmt, ast.excepthandler, ast.match_case)

    def visit(node: ast.AST, in_function: bool) -> None:
        names: list[str] = []
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                names = [f"{module}.{alias.name}" for alias in aliases]
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names = [name]
        found.extend(Import(name=name, line=node.lineno, in_function=in_function) for name in names)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, looked_into):
                visit(child, inside)

    visit(ast.parse(source), False)
    return tuple(found)


def python_files(*folders: str, root: Path = ROOT) -> Iterator[Path]:
    """Sources below `folders`, links not followed; both are relative to `root`, the checkout."""
    for folder in folders:
        for parent, _, files in os.walk(root / folder):
            yield from (Path(parent, name).relative_to(root) for name in sorted(files) if name.endswith(".py"))


def opens_datasets(found: Import) -> bool:
    """Whether this is the convenience of passing a path: datasets imported at the call, not with the module."""
    return found.room == "datasets" and found.in_function


def is_allowed(path: Path, found: Import) -> bool:
    """Whether the file at `path` may import this: the command line may use every room, the trainer at the call only."""
    room = path.parts[0]
    if found.room is None or found.room in MAY_IMPORT[room] or (room == "augpipe" and opens_datasets(found)):
        return True
    is_cli = path.parts[:2] == ("augpipe", "cli")
    return is_cli and (found.room == "datasets" or (found.room == "trainer" and found.in_function))


def faults(path: Path, source: str) -> list[str]:
    """What in the file at `path` (relative to the checkout) breaks the direction of imports."""
    return [
        f"{path}:{found.line}: {path.parts[0]} imports {found.name}"
        for found in imports_of(source)
        if not is_allowed(path, found)
    ]


@pytest.mark.parametrize("room", LINKED_ROOMS)
def test_a_room_is_a_relative_link_to_its_folder(room: str) -> None:
    link = ROOT / "augpipe" / room
    assert link.is_symlink()
    assert os.readlink(link) == f"../{room}"
    assert link.is_dir()


def test_the_editable_installs_folder_holds_augpipe_and_nothing_else() -> None:
    assert [name for name in os.listdir(ROOT / "src") if not name.endswith(".egg-info")] == ["augpipe"]
    assert os.readlink(ROOT / "src/augpipe") == "../augpipe"


def test_datasets_stays_a_namespace_package() -> None:
    assert list((ROOT / "datasets").rglob("*.py")), "there is nothing to test"
    # with an __init__.py, `import datasets` from the checkout would no longer find Hugging Face's
    assert list((ROOT / "datasets").rglob("__init__.py")) == []


def test_the_rooms_bare_names_are_imported_nowhere() -> None:
    files = list(python_files(*MAY_IMPORT, "tests", "benchmarks", "examples", "docs"))
    assert len(files) > len(MAY_IMPORT)
    bare = [
        f"{path}:{found.line}: {found.name}"
        for path in files
        if re.search(rf"(?<![.\w])({'|'.join(LINKED_ROOMS)})\b", source := (ROOT / path).read_text())
        for found in imports_of(source)
        if found.top in LINKED_ROOMS
    ]
    assert bare == []


def test_imports_between_rooms_point_one_way() -> None:
    found = [fault for path in python_files(*MAY_IMPORT) for fault in faults(path, (ROOT / path).read_text())]
    assert found == []


def test_one_module_at_most_opens_a_path_through_datasets() -> None:
    opening = [
        str(path)
        for path in python_files("augpipe")
        if path.parts[1] != "cli" and any(opens_datasets(found) for found in imports_of((ROOT / path).read_text()))
    ]
    assert len(opening) <= 1, opening


def nodes_of(sources: dict[Path, str]) -> dict[str, set[str]]:
    """What each node imports of the others: a folder is a node, and so is each file at the top of a room."""
    modules = {}
    for path in sources:
        parts = path.with_suffix("").parts
        name = ".".join(parts if parts[0] == "augpipe" else ("augpipe", *parts)).removesuffix(".__init__")
        modules[name] = str(path if len(parts) == 2 and parts[1] != "__init__" else path.parent)
    edges: dict[str, set[str]] = {node: set() for node in modules.values()}
    for source, node in zip(sources.values(), modules.values(), strict=True):
        for found in imports_of(source):
            name = found.name
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                edges[node].add(modules[name])
        edges[node].discard(node)
    assert len(modules) == len(sources)
    return edges


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """The sets of nodes of which each reaches all others."""
    reached = {}
    for node in edges:
        seen: set[str] = set()
        todo = list(edges[node])
        while todo:
            if (at := todo.pop()) not in seen:
                seen.add(at)
                todo += edges[at]
        reached[node] = seen
    found = [{node, *(other for other in edges if node in reached[other] and other in reached[node])} for node in edges]
    return [nodes for place, nodes in enumerate(found) if len(nodes) > 1 and nodes not in found[:place]]


def test_no_folders_import_each_other() -> None:
    edges = nodes_of({path: (ROOT / path).read_text() for path in python_files(*MAY_IMPORT)})
    assert "datasets/files" in edges["datasets/shards"]
    assert circles(edges) == []


def test_a_circle_of_folders_is_seen() -> None:
    sources = {
        Path("datasets/open.py"): "from augpipe.datasets.shards.shard_source import ShardSource",
        Path("datasets/shards/shard_source.py"): "from augpipe.datasets.files import atomic",
        Path("datasets/files/atomic.py"): "import os",
    }
    assert circles(nodes_of(sources)) == []
    sources[Path("datasets/files/atomic.py")] = "def write():\n    from augpipe.datasets.open import open_source"
    assert circles(nodes_of(sources)) == [{"datasets/open.py", "datasets/shards", "datasets/files"}]


def test_gpu_ops_needs_numpy_and_numba_alone() -> None:
    allowed = GPU_OPS_NEEDS | {"augpipe"} | sys.stdlib_module_names
    strangers = [
        f"{path}:{found.line}: {found.name}"
        for path in python_files("gpu_ops")
        for found in imports_of((ROOT / path).read_text())
        if found.top not in allowed | (MACHINE_CODE_NEEDS if path == MACHINE_CODE else set())
    ]
    assert strangers == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("gpu_ops/image/tone.py", "import augpipe"),
        ("gpu_ops/image/tone.py", "from augpipe.plan import Plan"),
        ("gpu_ops/image/tone.py", "def f():\n    import augpipe.datasets.formats.folder"),
        ("augpipe/loader.py", "from augpipe.datasets.formats.folder import FolderSource"),
        ("augpipe/loader.py", "from augpipe import datasets"),
        ("augpipe/loader.py", "def f():\n    from augpipe.trainer import loop"),
        ("augpipe/loader.py", "import importlib\nimportlib.import_module('augpipe.trainer')"),
        ("augpipe/cli/app.py", "import augpipe.trainer"),
        ("datasets/formats/folder.py", "if True:\n    import numpy, augpipe.trainer.loop"),
    ],
)
def test_an_import_the_wrong_way_is_seen(path: str, source: str) -> None:
    assert len(faults(Path(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "gpu_ops/image/tone.py",
            "import numpy\nfrom augpipe.gpu_ops.jit import leaf\nfrom augpipe.gpu_ops import lens",
        ),
        ("augpipe/loader.py", "from augpipe.gpu_ops.image.rows import KERNEL_ROW\nfrom augpipe.plan import Plan"),
        ("augpipe/loader.py", "def f():\n    from augpipe.datasets.formats.folder import FolderSource"),
        ("augpipe/cli/app.py", "from augpipe.datasets.formats.folder import FolderSource"),
        ("augpipe/cli/app.py", "def f():\n    from augpipe.trainer.launch import launch"),
        ("datasets/formats/folder.py", "from augpipe.sources.protocol import Source"),
        ("trainer/loop.py", "import augpipe.gpu_ops.codec, augpipe.datasets.formats.folder, augpipe.loader"),
    ],
)
def test_an_import_the_right_way_passes(path: str, source: str) -> None:
    assert faults(Path(path), source) == []


def folders_of(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each folder of the rooms below `root`, relative to it, with the names of its files; links are not followed."""
    for room in MAY_IMPORT:
        for parent, _, files in os.walk(root / room):
            yield Path(parent).relative_to(root), files


def without_readme(root: Path) -> list[str]:
    """The rooms and large folders that have no README.md."""
    return [
        f"{folder}/ needs a README.md: what lives here, where to begin, and a line of imports, in 8 to 20 lines"
        for folder, files in folders_of(root)
        if "README.md" not in files
        if len(folder.parts) == 1 or sum(name.endswith(".py") for name in {*files} - {"__init__.py"}) > README_ABOVE
    ]


def readmes_of(root: Path) -> dict[Path, str]:
    """The text of each README.md in the rooms, by its folder."""
    return {
        folder: (root / folder / "README.md").read_text() for folder, files in folders_of(root) if "README.md" in files
    }


def missing_paths(root: Path, folder: Path, text: str) -> list[str]:
    """The files and folders that `text`, the README of `folder`, names in code quotes and that do not exist."""
    quoted = re.findall(r"`([\w./-]+)`", text)
    return [
        f"{folder}/README.md names `{path}`, which exists neither in {folder}/ nor at the root"
        for path in quoted
        if re.search(r"/|\.(py|md|toml)$", path)
        if not any(os.path.exists(root / start / path) for start in (folder, ""))
    ]


def part_of(root: Path, folder: Path, found: Import) -> str | None:
    """What a README says of this import: another room, or a part of its own one; None within `folder` or outside all.

    A part of a room is a folder or file at its top, written as `trainer.codecs`; the room itself is its `__init__.py`.
    """
    room = folder.parts[0]
    if found.room != room:
        return found.room
    parts = found.name.split(".")[0 if room == "augpipe" else 1 :]
    if tuple(parts[: len(folder.parts)]) == folder.parts:
        return None
    part = root.joinpath(*parts[:2])
    return ".".join(parts[:2]) if part.is_dir() or part.with_suffix(".py").is_file() else room


def wrong_imports(root: Path, folder: Path, text: str) -> list[str]:
    """What the paragraph of imports in `text`, the README of `folder`, should say, where it says something else."""
    sources = [(root / path).read_text() for path in python_files(str(folder), root=root)]
    parts = {part_of(root, folder, found) for source in sources for found in imports_of(source)} - {None}
    listed = re.search(r"^Imports: (nothing from other folders|`[\w.]+`(,\s`[\w.]+`)*)\.$", text, re.MULTILINE)
    if listed and set(re.findall(r"`([\w.]+)`", listed[0])) == parts:
        return []
    actual = ", ".join(f"`{part}`" for part in sorted(map(str, parts))) or "nothing from other folders"
    return [f"{folder}/README.md should say: Imports: {actual}."]


def test_each_room_and_large_folder_has_a_readme() -> None:
    assert without_readme(ROOT) == []


def test_what_readmes_name_exists() -> None:
    readmes = readmes_of(ROOT)
    assert {*map(Path, MAY_IMPORT)} <= {*readmes}
    assert [fault for folder, text in readmes.items() for fault in missing_paths(ROOT, folder, text)] == []


def test_readmes_say_what_their_folders_import() -> None:
    assert [fault for folder, text in readmes_of(ROOT).items() for fault in wrong_imports(ROOT, folder, text)] == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Rooms of one file each, a folder with as many files as need no README, and READMEs of the rooms."""
    imports = "from augpipe.datasets.open import open_source\nfrom augpipe.gpu_ops import jit\nimport os"
    sources = {f"trainer/loop/part_{number}.py": "" for number in range(README_ABOVE)}
    sources |= {f"{room}/open.py": "" for room in MAY_IMPORT} | {
        "trainer/loop/__init__.py": "",
        "trainer/open.py": imports,
    }
    sources |= {f"{room}/README.md": "`open.py`\n\nImports: nothing from other folders.\n" for room in MAY_IMPORT}
    sources["trainer/README.md"] = "`loop/`, `datasets/open.py`\n\nImports: `datasets`,\n`gpu_ops`.\n"
    for name, text in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "augpipe/trainer").symlink_to("../trainer")
    return tmp_path


def test_a_missing_readme_is_seen(checkout: Path) -> None:
    assert without_readme(checkout) == []
    (checkout / "trainer/loop/one_more.py").touch()
    (checkout / "datasets/README.md").unlink()
    assert [fault.split()[0] for fault in without_readme(checkout)] == ["datasets/", "trainer/loop/"]


@pytest.mark.parametrize("path", ["loops/", "loop/absent.py", "datasets/opened.py", "absent.py", "open.toml"])
def test_a_name_in_a_readme_of_what_is_not_there_is_seen(checkout: Path, path: str) -> None:
    folder = Path("trainer")
    text = readmes_of(checkout)[folder]
    assert missing_paths(checkout, folder, text) == []
    assert missing_paths(checkout, folder, f"{text}Open `{path}`, then the `Loop`.") == [
        f"trainer/README.md names `{path}`, which exists neither in trainer/ nor at the root"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Imports: `datasets`.",
        "Imports: `augpipe`, `datasets`, `gpu_ops`.",
        "Imports: nothing from other folders.",
        "Imports `datasets`, `gpu_ops`.",
        "Imports: datasets, gpu_ops.",
        "",
    ],
)
def test_a_readme_that_is_wrong_about_imports_is_seen(checkout: Path, line: str) -> None:
    folder = Path("trainer")
    assert wrong_imports(checkout, folder, readmes_of(checkout)[folder]) == []
    assert wrong_imports(checkout, folder, f"The loop.\n\n{line}\n") == [
        "trainer/README.md should say: Imports: `datasets`, `gpu_ops`."
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from augpipe.trainer.open import opened", "`trainer.open`"),
        ("from augpipe.trainer import open", "`trainer.open`"),
        ("from augpipe.trainer import strategy", "`trainer`"),
        ("def f():\n    import augpipe.datasets.open, augpipe.loader", "`augpipe`, `datasets`"),
        ("from augpipe.trainer.loop.part_1 import run\nimport numpy", "nothing from other folders"),
    ],
)
def test_what_a_folder_imports_of_its_room_is_told_by_part(checkout: Path, source: str, said: str) -> None:
    (checkout / "trainer/loop/part_0.py").write_text(source)
    assert wrong_imports(checkout, Path("trainer/loop"), f"Imports: {said}.") == []
    assert wrong_imports(checkout, Path("trainer/loop"), "Imports: `gpu_ops`.") == [
        f"trainer/loop/README.md should say: Imports: {said}."
    ]
