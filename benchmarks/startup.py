"""How long importing `augpipe` takes beyond numpy and numba, and the first batch with kernels compiled and cached."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import photographs, save

ROUNDS = 7

IMPORT = """
import time; start = time.perf_counter()
import numpy, numba; middle = time.perf_counter()
from augpipe import *; end = time.perf_counter()
import json; print(json.dumps([middle - start, end - middle]))
"""

FIRST_BATCH = """
import sys, time
import augpipe
loader = augpipe.Loader(sys.argv[1], augpipe.recipes.deep_image(), batch_size=8, framework="numpy")
start = time.perf_counter(); batch = next(iter(loader)); print(time.perf_counter() - start)
"""


def main() -> None:
    imports = [json.loads(_run(IMPORT)) for _ in range(ROUNDS)]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        for number, data in enumerate(photographs()[0][:16]):
            (Path(folder) / f"{number:05}.jpg").write_bytes(data)
        environment = os.environ | {"AUGPIPE_CACHE_DIR": cache}
        compiled = float(_run(FIRST_BATCH, folder, environment=environment))
        cached = statistics.median(float(_run(FIRST_BATCH, folder, environment=environment)) for _ in range(ROUNDS))
    save(
        "startup",
        {
            "what": "seconds, each in a fresh process",
            "import_numpy_and_numba": round(statistics.median(row[0] for row in imports), 3),
            "import_augpipe_beyond_them (goal: under 0.5)": round(statistics.median(row[1] for row in imports), 3),
            "first_batch_compiling": round(compiled, 2),
            "first_batch_from_cache": round(cached, 3),
        },
    )


def _run(code: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
