"""Other systems: what they lack is hidden here, and batches stay the same; one that cannot be used says so."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BATCH = """
import hashlib
import io
import numpy as np
from PIL import Image
from augpipe import Loader, recipes

class Photos:
    classes = ()
    __len__ = lambda self: 4
    label = lambda self, sample_id: -1
    name = lambda self, sample_id: f"photo {sample_id}"

    def read(self, sample_id):
        image = np.random.default_rng(sample_id).integers(0, 255, (9, 12, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(image).resize((120, 90)).save(file, "JPEG")
        return file.getvalue()

recipe = recipes.deep_image(32, (48, 64))
loader = Loader(Photos(), recipe, batch_size=4, framework="numpy", cache="host", cache_bytes=10**8)
print([hashlib.sha256(batch.images.tobytes()).hexdigest() for epoch in range(2) for batch in loader])
"""
WITHOUT = """
import os
from pathlib import Path
from llvmlite import binding

binding.get_host_cpu_features = binding.targets.FeatureMap  # an ARM CPU has none of the x86's names
for name in ("sched_getaffinity", "posix_fadvise", "process_cpu_count"):
    if hasattr(os, name):
        delattr(os, name)
is_file = Path.is_file
Path.is_file = lambda path, **options: not str(path).startswith(("/proc", "/sys")) and is_file(path, **options)
"""


def answer(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200)


def test_a_system_without_linuxs_calls_on_a_cpu_without_avx2_makes_the_same_batches() -> None:
    here, there = answer(BATCH), answer(WITHOUT + BATCH)
    assert (here.returncode, there.returncode) == (0, 0), here.stderr + there.stderr
    assert here.stdout == there.stdout and here.stdout.count(",") == 1
    assert "False" in answer(WITHOUT + "from augpipe.gpu_ops.jpeg.workspace import *\nprint(HAS_WIDE_VECTORS)").stdout


@pytest.mark.parametrize("statement", ["import augpipe", "from augpipe.datasets.open import open_source"])
def test_windows_is_told_what_to_do(statement: str) -> None:
    ended = answer(f"import importlib, os, pathlib\nos.name = 'nt'\n{statement}")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ImportError: augpipe runs on Linux and macOS, and this is Windows") and "WSL 2" in last
