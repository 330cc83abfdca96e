"""How long it takes from nothing to the first batch: compiled kernels in a wheel, in a cache, nowhere yet.

Where $AUGPIPE_WHEEL_PYTHON names the Python of an environment with a wheel of `make wheel`, its first batches are
timed too, without a folder that could be written. Where $AUGPIPE_EARLIER names an earlier checkout, it takes turns.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.harness import Bench

IMPORT = """
import time; start = time.perf_counter()
import numpy, numba; middle = time.perf_counter()
from augpipe import *; end = time.perf_counter()
import json; print(json.dumps([middle - start, end - middle]))
"""
"""Seconds of importing numpy and numba, and of importing augpipe after them."""

BASE = """
import time; start = time.perf_counter()
import torch, numba
print(time.perf_counter() - start)
"""

FIRST_BATCH = """
import time; start = time.perf_counter()
import hashlib, json, sys
import augpipe
made = getattr(augpipe.recipes, sys.argv[2])()
imported = time.perf_counter()
loader = augpipe.Loader(sys.argv[1], made, batch_size=32, seed=1, framework=sys.argv[3])
built = time.perf_counter()
batches = iter(loader)  # kept: to end a pass waits for the batches that were begun
images = next(batches).images
first = time.perf_counter()
try:
    from augpipe.decoding.jpeg import own_decoder
    own_decoder()
except ImportError:  # an earlier release, which has compiled everything by now
    pass
end = time.perf_counter()
digest = hashlib.sha256(memoryview(images if sys.argv[3] == "numpy" else images.numpy())).hexdigest()[:12]
print(json.dumps({"import": imported - start, "loader": built - imported, "batch": first - built, "digest": digest,
                  "first_batch": first - start, "all_compiled": end - start}))
"""
"""Seconds of each part, from the start of the process's own code."""

COMPILE = """
import json, sys, time
from augpipe.gpu_ops.compiled.declared import overloads
from augpipe.gpu_ops.jit import kernel
warm = kernel()(lambda x: x + 1); warm(1.0)  # what numba does once
times = {}
for one in overloads():
    start = time.process_time(); one.compile(); times[one.name] = time.process_time() - start
print(json.dumps(times))
"""
"""CPU seconds of each kernel, compiled one after another in one process: what an earlier one has compiled is not
compiled again."""

NOTHING = "print({})"
"""In its place with --quick: they are some fifty."""


def main() -> None:
    bench = Bench(__doc__)
    with bench.files() as (folder, _):
        bench.keep("startup", measure(str(folder), bench.rounds, bench.pick(COMPILE, NOTHING)))


def measure(folder: str, rounds: int, compile_all: str) -> dict[str, Any]:
    """The figures, from a folder of photographs; the longest waits once, all else as medians."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"AUGPIPE_CACHE_DIR": cache}
        empty = _first(folder, "deep_image", "torch", environment)
        full: dict[str, list[dict[str, Any]]] = {"torch": [], "numpy": []}
        base, imports = [], []
        for _ in range(rounds):
            base.append(float(_run(BASE)))
            imports.append(json.loads(_run(IMPORT)))
            for framework, rows in full.items():
                rows.append(_first(folder, "deep_image", framework, environment))
        earlier = _earlier(folder, environment, rounds)
    with tempfile.TemporaryDirectory() as cache:
        compiled = json.loads(_run(compile_all, environment=os.environ | {"AUGPIPE_CACHE_DIR": cache}))
    beyond = {
        name: round(
            statistics.median(row["first_batch"] for row in rows)
            - statistics.median(base if name == "torch" else [a for a, _ in imports]),
            3,
        )
        for name, rows in full.items()
    }
    digests = {row["digest"] for rows in full.values() for row in rows} | {empty["digest"]}
    assert len(digests) == 1, "a start decides on pixels"
    return {
        "what": "seconds; each start in a process of its own, batches of 32 of 224x224 from a folder of photographs",
        "import_numpy_and_numba": _median(row[0] for row in imports),
        "import_augpipe_beyond_them (goal: under 0.5)": _median(row[1] for row in imports),
        "import_torch_and_numba": _median(base),
        "full_cache": {
            framework: {
                part: _median(row[part] for row in rows) for part in ("import", "loader", "batch", "first_batch")
            }
            for framework, rows in full.items()
        },
        "full_cache_beyond_those_imports (goal: torch 0.6; numpy: first_batch 1.0)": beyond,
        "empty_cache": {part: round(empty[part], 2) for part in ("first_batch", "all_compiled")},
        "earlier_checkout": earlier,
        "wheel_without_a_cache": _wheel(folder, digests, rounds),
        "compile_cpu_s": {name: round(seconds, 2) for name, seconds in compiled.items()},
        "compile_cpu_s_of_all": round(sum(compiled.values()), 1),
    }


def _earlier(folder: str, now: dict[str, str], rounds: int) -> dict[str, Any] | str:
    """First batches of an earlier checkout and of this one, in turn, from caches that are empty and full."""
    checkout = os.environ.get("AUGPIPE_EARLIER")
    if not checkout:
        return "not measured: set AUGPIPE_EARLIER"
    with tempfile.TemporaryDirectory() as cache:
        then = os.environ | {"AUGPIPE_CACHE_DIR": cache, "PYTHONPATH": checkout}
        made: dict[str, Any] = {
            "empty_cache, torch": round(_first(folder, "deep_image", "torch", then)["first_batch"], 2)
        }
        for framework in ("torch", "numpy"):
            rows = [
                [_first(folder, "deep_image", framework, one)["first_batch"] for one in (then, now)]
                for _ in range(rounds)
            ]
            made[f"full_cache, {framework}"] = _median(row[0] for row in rows)
            made[f"full_cache, {framework}, this one over it"] = _median(row[1] / row[0] for row in rows)
    return made


def _wheel(folder: str, digests: set[str], rounds: int) -> dict[str, Any] | str:
    python = os.environ.get("AUGPIPE_WHEEL_PYTHON")
    if not python:
        return "not measured: set AUGPIPE_WHEEL_PYTHON"
    nowhere = {"AUGPIPE_CACHE_DIR": "", "XDG_CACHE_HOME": "/dev/null/cache", "HOME": "/dev/null"}
    made: dict[str, Any] = {}
    for recipe in ("deep_image", "rand_augment", "three_augment"):
        for framework in ("torch", "numpy"):
            rows = [_first(folder, recipe, framework, os.environ | nowhere, python) for _ in range(rounds)]
            made[f"{recipe}, {framework}"] = _median(row["first_batch"] for row in rows)
            if recipe == "deep_image":
                assert {row["digest"] for row in rows} == digests, "the wheel's kernels give other pixels"
    return made


def _first(folder: str, recipe: str, framework: str, environment: Any, python: str = sys.executable) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        _run(FIRST_BATCH, folder, recipe, framework, environment=environment, python=python)
    )
    return made


def _median(values: Any) -> float:
    return round(statistics.median(values), 3)


def _run(code: str, *arguments: str, environment: dict[str, str] | None = None, python: str = sys.executable) -> str:
    command = [python, "-c", code, *arguments]
    environment = dict(environment or os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled to bytecode once, as for users
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd="/")
    return ended.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
