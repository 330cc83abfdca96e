"""The kernels that a wheel carries for a level of CPU make the pixels of those that are compiled for this CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from augpipe.gpu_ops.compiled.folder import LEVELS, host_level
from augpipe.gpu_ops.compiled.prebuilt import build

RENDER = """
import hashlib, io, json, sys
from pathlib import Path
import numpy as np
from PIL import Image
from augpipe.gpu_ops.compiled import cache
if len(sys.argv) > 1:
    cache.PREBUILT, cache.host_level = Path(sys.argv[1]), lambda: sys.argv[2]
from augpipe import Loader, Recipe, ops, recipes
from augpipe.gpu_ops.compiled import declared

class Photos:
    classes = ()
    __len__ = lambda self: 6
    label = lambda self, sample_id: -1
    name = lambda self, sample_id: f"photo {sample_id}"

    def read(self, sample_id):
        image = np.random.default_rng(sample_id).integers(0, 255, (30, 40, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(image).resize((160, 120), Image.Resampling.BICUBIC).save(file, "JPEG")
        return file.getvalue()

steps = [ops.ColorJitter(), ops.Gamma(p=1), ops.Equalize(p=1), ops.Sharpness(p=1), ops.Noise(p=1), ops.Erase(p=1)]
chain = [ops.RandomResizedCrop(size=32), ops.Blur(p=0.5), ops.Perspective(p=0.5), *steps]
digests = {}
for name, recipe in {
    "paper": recipes.deep_image(32, (40, 64)),
    "steps": Recipe(ops=[*chain, ops.Normalize()], mixing=[ops.MixUp(p=1)]),
    "levels": Recipe(ops=chain, mixing=[ops.CutMix(p=1)]),
}.items():
    for dtype in ("uint8",) if name == "levels" else ("float32", "float16"):
        images = [batch.images for batch in Loader(Photos(), recipe, batch_size=3, framework="numpy", dtype=dtype)]
        digests[f"{name}, {dtype}"] = hashlib.sha256(np.concatenate(images).tobytes()).hexdigest()
kernels = {name: kernel for name, (_, kernel, _) in declared._DECLARED.items() if kernel.signatures}
places = {str(kernel._cache.find(sig)[1]) for kernel in kernels.values() for sig in kernel.signatures}
print(json.dumps({"digests": digests, "num_kernels": len(kernels), "places": sorted(places)}))
"""


def rendered(*prebuilt: str, **environment: str) -> dict[str, Any]:
    """What a new interpreter makes with the kernels of a level, or with those compiled for this CPU."""
    command = [sys.executable, "-c", RENDER, *prebuilt]
    ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    made: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return made


@pytest.mark.deep  # compiling all kernels takes a minute of CPU time a level
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", sorted(LEVELS))
def test_kernels_of_a_level_make_the_pixels_of_this_cpus(level: str, tmp_path: Path) -> None:
    levels = list(LEVELS)
    best = host_level()
    if best is None or levels.index(level) < levels.index(best):
        pytest.skip(f"this CPU cannot run code for {level}")
    assert build(level, tmp_path / "prebuilt" / level) >= 31
    here = rendered()
    wheel = rendered(str(tmp_path / "prebuilt"), level, AUGPIPE_CACHE_DIR=str(tmp_path / "empty"))
    assert wheel["digests"] == here["digests"] and len(set(here["digests"].values())) == 5
    assert wheel["places"] == ["wheel"] and here["places"] == ["here"] and wheel["num_kernels"] >= 8
    assert not list(tmp_path.glob("empty/**/*.kernel"))  # nothing was compiled
