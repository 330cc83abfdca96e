"""How many careless changes of one line the tests detect.

    python -m benchmarks.careless list                  # the 100 changes
    python -m benchmarks.careless run                   # each alone, with the tests of its folder and those around it
    python -m benchmarks.careless together              # what survived at once, with all tests; then who failed
    python -m benchmarks.careless run --commit COMMIT   # the same changes on another commit, with its tests

Results are written after each change to benchmarks/results/DATE-careless.json (`--name`), and a later run goes on from
there. A reader of a survivor writes into its field "equivalent" why the change alters nothing.

Verdicts: "caught" (a test fails, and passes without the change), "survived", "time-out" (of a test or of the limit; to
be repeated alone: `--again time-out --seconds 900`), "gone" (the line is not in this commit). Each change is made in a
copy of the commit with caches of its own. Kernels that a change in gpu_ops cannot reach are not compiled again.
"""

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.careless_changes import ROOMS, Change, chosen
from benchmarks.harness import RESULTS, ROOT, machine

SEED = 31
AROUND = {
    "augpipe/decoding": "augpipe/loader property/test_loader_regions.py",
    "augpipe/ops": "parity augpipe/planning augpipe/recipes property/test_same_everywhere.py",
    "augpipe/planning": "parity augpipe/ops property/test_regions.py property/test_mixing.py",
    "augpipe/policies": "augpipe/importers parity",
    "augpipe/sampling": "property/test_sampling.py property/test_sticky.py augpipe/loader trainer/loop",
    "augpipe/recipes": "augpipe/importers property/test_recipe.py property/test_schedule.py",
    "augpipe": "augpipe/loader contracts",
    "datasets": "datasets property/test_shards.py",
    "gpu_ops/codec": "gpu_ops/cuda/test_codecs.py trainer/codecs property/test_codecs.py simulator/test_codecs.py",
    "gpu_ops/compiled": "gpu_ops/compiled packaging/test_wheel_kernels.py augpipe/loader/test_cold_start.py",
    "gpu_ops/image/cuda": "simulator contracts gpu_ops/cuda",
    "gpu_ops/image": "gpu_ops/test_leaves.py parity property/test_geometry.py property/test_regions.py simulator",
    "gpu_ops/jpeg": "gpu_ops/test_jpeg.py gpu_ops/test_jpeg_walk.py augpipe/decoding augpipe/loader",
    "gpu_ops": "gpu_ops simulator augpipe/planning",
    "trainer/parallel": "distributed/test_train_parallel.py distributed/test_sync.py",
    "trainer/loop": "distributed/test_train_resume.py distributed/test_train_evaluate.py",
    "trainer/servers": "trainer/simulate distributed/test_sync.py",
    "trainer/tensors": "trainer/checkpoint trainer/models",
    "trainer": "distributed/test_sync.py trainer/loop",
}
"""Where tests of a folder lie, apart from those in the folder of its name."""


class Copy:
    """A copy of a commit in which changes are made, and its tests run."""

    def __init__(self, commit: str) -> None:
        self.commit = subprocess.check_output(["git", "rev-parse", commit], cwd=ROOT, text=True).strip()
        folder = ROOT / "build" / "careless" / self.commit[:12]
        self.root, self._kernels, self._temporary = (folder / name for name in ("checkout", "kernels", "tmp"))
        self._kept, self._gpu_ops = folder / "kept", folder / "gpu_ops"
        shutil.rmtree(self.root, ignore_errors=True)
        for made in (self.root, self._temporary):
            made.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", self.commit], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(self.root)], input=archive.stdout, check=True)
        self._env = os.environ | {
            "PYTHONPATH": str(self.root / "src"),
            "AUGPIPE_CACHE_DIR": str(self._kernels),
            "TMPDIR": str(self._temporary),
            "CI": "1",  # hypothesis then draws the same examples each time
        }
        if not self._kept.exists():
            shutil.copytree(self.root / "gpu_ops", self._gpu_ops)
            subprocess.run([sys.executable, "-m", "augpipe", "warm", "--quiet"], env=self._env, check=True)
            shutil.copytree(self._kernels, self._kept)
        self._imports = _imports(self.root)

    @contextmanager
    def changed(self, changes: Sequence[Change], *, are_kernels_kept: bool = True) -> Iterator[None]:
        """Make changes, and undo them."""
        texts = {self.root / change.file: (self.root / change.file).read_text().split("\n") for change in changes}
        for change in changes:
            assert texts[self.root / change.file][change.line - 1] == change.old, change
            texts[self.root / change.file][change.line - 1] = change.new
        has_kernels = any(change.file.startswith("gpu_ops/") for change in changes)
        named = self.root / "gpu_ops/compiled/folder.py"
        if has_kernels and are_kernels_kept and named not in texts:  # they have the name of the unchanged sources
            folder = f"sources_digest(Path({str(self._gpu_ops)!r}), cpu)"
            texts[named] = named.read_text().replace("sources_digest(SOURCES, cpu)", folder).split("\n")
            self._restore_kernels({change.file for change in changes})
        before = {path: (path.read_text(), path.stat().st_mtime_ns) for path in texts}
        for path, lines in texts.items():
            path.write_text("\n".join(lines))
        try:
            yield
        finally:
            for path, (text, modified_ns) in before.items():
                path.write_text(text)
                os.utime(path, ns=(modified_ns, modified_ns))  # Python knows its compiled files by time and size
            if has_kernels:
                self._restore_kernels(set())

    def _restore_kernels(self, files: set[str]) -> None:
        """Have the kept kernels, but for those whose modules import one of the files."""
        shutil.rmtree(self._kernels, ignore_errors=True)
        shutil.copytree(self._kept, self._kernels)
        reached = {file.removesuffix(".py").replace("/", ".") for file in files}
        while more := {name for name, imported in self._imports.items() if imported & reached} - reached:
            reached |= more
        for path in self._kernels.rglob("*.kernel"):
            if path.name.partition("-")[0].rpartition(".")[0] in reached:
                path.unlink()

    def test(self, tests: Sequence[str], seconds: float, mark: str = "not deep", *, first: bool = True) -> "Outcome":
        """Run tests, those of the simulator in a session of their own; `first`: until one fails."""
        failed: list[str] = []
        simulated = [name for name in tests if name.startswith(("tests/simulator", "tests/contracts"))]
        normal = [name for name in tests if not name.startswith("tests/simulator")]
        for names, env in ((normal, {}), (simulated, {"NUMBA_ENABLE_CUDASIM": "1"})):
            if not names or (failed and first):
                continue
            options = ["-q", "-p", "no:cacheprovider", "--timeout", "120", "-m", mark, *(["-x"] if first else [])]
            start, path = time.monotonic(), self._temporary.parent / "output.txt"
            with path.open("w") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "pytest", *options, *names],
                    cwd=self.root,
                    env=self._env | env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    code: int | None = process.wait(max(seconds, 1.0))
                except subprocess.TimeoutExpired:
                    code = None
                self._end(process)
            seconds -= time.monotonic() - start
            text = path.read_text(errors="replace")
            failed += re.findall(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - |$)", text, re.MULTILINE)
            if code is None or "Failed: Timeout" in text:
                return failed, True
            if code not in (0, 5) and not failed:
                failed.append(f"pytest, which ended with {code}")
        return failed, False

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a session and what it has left behind: all processes whose environment names this copy's folder."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"TMPDIR={self._temporary}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
        for path in self._temporary.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def place(self, entry: dict[str, Any]) -> Change | None:
        """A change as it is made in this commit, where its line may have moved; None where it is gone."""
        change = Change(**{name: entry[name] for name in Change.__dataclass_fields__})
        found = []
        for path in (path for room in ROOMS for path in sorted((self.root / room).rglob("*.py"))):
            file = str(path.relative_to(self.root))
            for nth, line in enumerate(path.read_text().split("\n"), 1):
                if line.strip() == change.old.strip():
                    far = (file != change.file, path.name != Path(change.file).name, abs(nth - change.line))
                    new = line[: -len(line.lstrip())] + change.new.strip()
                    found.append((far, replace(change, file=file, line=nth, old=line, new=new)))
        found.sort(key=lambda one: one[0])
        is_doubtful = len(found) > 1 and found[0][0][1]
        return found[0][1] if found and not is_doubtful else None

    def stages(self, change: Change) -> Iterator[tuple[list[str], str]]:
        """Tests that may see a change, with their marks: those that name its file first, slow and wide ones last."""
        folder = Path(change.file).parent
        folders = [folder, *folder.parents]
        mirror = next(one for one in folders if (self.root / "tests" / one).is_dir())
        around = next(AROUND[str(one)] for one in folders if str(one) in AROUND).split()
        files: dict[str, None] = {}
        for path in (self.root / "tests" / name for name in (mirror, *around)):
            files |= dict.fromkeys(map(str, sorted(path.rglob("test_*.py")) if path.is_dir() else [path]))
        if folder.parts[0] == "gpu_ops" and folder.name != "compiled":
            files = {name: None for name in files if "/compiled/" not in name}  # they see that kernels are kept
        module = "augpipe." * (folder.parts[0] != "augpipe") + change.file.removesuffix(".py").replace("/", ".")
        near = [name for name in files if Path(change.file).stem in name or module in Path(name).read_text()]
        rest = [name for name in files if name not in near]
        for tests, mark in (
            (near, "not slow and not deep"),
            (rest, "not slow and not deep"),
            ([*files], "slow and not deep"),
        ):
            yield [str(Path(name).relative_to(self.root)) for name in tests], mark


Outcome = tuple[list[str], bool]
"""The tests that failed, and whether time was over for one or all."""


def _imports(root: Path) -> dict[str, set[str]]:
    """Each module's imports of ours, both without `augpipe.` before other rooms' names."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (path for room in ROOMS for path in (root / room).rglob("*.py")):
        name = str(path.relative_to(root)).removesuffix(".py").replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                found[name] |= {re.sub(r"^augpipe\.(?=gpu_ops|datasets|trainer)", "", one) for one in names}
    return found


def _seed_of(result: Path) -> int:
    """By which the changes of a result were drawn: samples of other seeds are not gone on with."""
    return int(json.loads(result.read_text())["seed"])


class Report:
    """The result, kept after each change."""

    def __init__(self, name: str, copy: Copy) -> None:
        found = [path for path in sorted(RESULTS.glob(f"????-??-??-{name}.json")) if _seed_of(path) == SEED]
        self._path = found[-1] if found else RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
        self._copy = copy
        if found:
            self.content = json.loads(self._path.read_text())
        else:
            drawn = [asdict(change) | {"verdict": "", "equivalent": ""} for change in chosen(copy.root, SEED)]
            head = {"benchmark": name, "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
            self.content = head | {"commit": copy.commit, "seed": SEED, "summary": {}, "changes": drawn}
        self.entries: list[dict[str, Any]] = self.content["changes"]
        self._is_sound: dict[str, bool] = {}

    def is_sound(self, test: str) -> bool:
        """Whether a test that failed passes without the change."""
        if test not in self._is_sound:
            self._is_sound[test] = not test.startswith("tests/") or self._copy.test([test], 600.0) == ([], False)
        return self._is_sound[test]

    def judge(self, entry: dict[str, Any], change: Change, seconds: float) -> None:
        """One change alone, until a test fails."""
        entry |= {"verdict": "survived", "test": ""}
        start = time.monotonic()
        for tests, mark in self._copy.stages(change):
            while tests and entry["verdict"] == "survived":
                with self._copy.changed([change]):
                    failed, is_over = self._copy.test(tests, seconds - (time.monotonic() - start), mark)
                sound = [name for name in failed if self.is_sound(name)]
                if is_over or sound:
                    entry |= {"verdict": "time-out" if is_over else "caught", "test": [*sound, ""][0]}
                files = {name.partition("::")[0] for name in failed}
                tests = [name for name in tests if name not in files] if failed else []
        self.write(entry)

    def judge_together(self, seconds: float) -> None:
        """What survived, at once, with all tests: a test that fails is run again with each change alone."""
        entries = [one for one in self.entries if one["verdict"] in ("survived", "time-out") and not one["equivalent"]]
        left = [(entry, change) for entry in entries if (change := self._copy.place(entry))]
        with self._copy.changed([change for _, change in left], are_kernels_kept=False):
            failed, _ = self._copy.test(["tests", "tests/simulator", "tests/contracts"], seconds, first=False)
        for test in filter(self.is_sound, failed):
            for entry, change in left:
                with self._copy.changed([change]):
                    if entry["verdict"] != "caught" and self._copy.test([test], 300.0)[0]:
                        entry |= {"verdict": "caught", "test": test}
                        self.write(entry)

    def write(self, entry: dict[str, Any]) -> None:
        """Say a verdict, and write the result whole."""
        print(f"{entry['verdict']:9} {entry['file']}:{entry['line']}  {entry['test']}", flush=True)
        for room in ROOMS:
            of_room = [one for one in self.entries if one["file"].startswith(f"{room}/")]
            found = Counter("equivalent" if one["equivalent"] else one["verdict"] for one in of_room)
            self.content["summary"][room] = dict(found)
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self.content, indent=2) + "\n")
        unfinished.replace(self._path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("list", "run", "together"))
    parser.add_argument("--name", default="careless", help="of the result")
    parser.add_argument("--commit", default="HEAD", help="whose sources and tests these are")
    parser.add_argument("--only", default="", metavar="ROOM", help="changes in one room, folder or file")
    parser.add_argument("--again", default="", metavar="VERDICT", help="run changes with this verdict, too")
    parser.add_argument("--seconds", type=float, default=300.0, help="for one change; for `together`, in all")
    options = parser.parse_args()
    if options.what == "list":
        for change in chosen(ROOT, SEED):
            print(f"{change.file}:{change.line} {change.operator}\n-{change.old}\n+{change.new}")
        return
    copy = Copy(options.commit)
    report = Report(options.name, copy)
    if options.what == "together":
        report.judge_together(options.seconds)
        return
    for entry in report.entries:
        if entry["verdict"] in ("", options.again) and entry["file"].startswith(options.only):
            if change := copy.place(entry):
                report.judge(entry, change, options.seconds)
            else:
                entry |= {"verdict": "gone", "test": ""}
                report.write(entry)


if __name__ == "__main__":
    main()
