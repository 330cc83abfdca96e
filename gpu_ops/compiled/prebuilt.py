"""Compile the kernels that a wheel carries: `python -m augpipe.gpu_ops.compiled.prebuilt`, then build the wheel.

A process for each level of CPU has numba compile for it (NUMBA_CPU_NAME), whatever the machine is.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from augpipe.gpu_ops.compiled.cache import MANIFEST
from augpipe.gpu_ops.compiled.folder import CACHE_VARIABLE, LEVELS, PREBUILT, compilers, kernels_digest


def build(level: str, destination: Path) -> int:
    """Fill a folder with the kernels of one of `LEVELS`; how many there are."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            CACHE_VARIABLE: folder,
            "NUMBA_CPU_NAME": level,
            "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in LEVELS[level]),
        }
        subprocess.run([sys.executable, "-m", "augpipe", "warm", "--quiet"], env=environment, check=True)
        destination.mkdir(parents=True)
        kernels = sorted((Path(folder) / f"kernels-{kernels_digest(level)}").glob("*.kernel"))
        for path in kernels:
            shutil.copy(path, destination)
    manifest = {"compilers": compilers(), "digest": kernels_digest(level), "kernels": [path.name for path in kernels]}
    (destination / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return len(kernels)


if __name__ == "__main__":
    shutil.rmtree(PREBUILT, ignore_errors=True)
    for name in LEVELS:
        print(f"{name}: {build(name, PREBUILT / name)} kernels")
