"""The live page in a browser: `browse_live.py` uses it, wide, at 400 px and in the dark, and axe looks at it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augpipe import Recipe, ops
from tests.child_path import child_path
from tests.docs.test_site import BROWSERS, PYTHON

ROOT = Path(__file__).resolve().parents[3]
RECIPE = Recipe(ops=(ops.RandomResizedCrop(size=64), ops.Rotate(), ops.ColorCast()))


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.skipif(not PYTHON.exists(), reason="make docs has not set up .venv-docs")
def test_all_that_can_be_done_on_the_page_does_what_it_says(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    (tmp_path / "photos").mkdir()
    for number, coarse in enumerate(np.random.default_rng(5).integers(0, 256, (30, 8, 9, 3), np.uint8)):
        image = Image.fromarray(coarse).resize((300, 200), Image.Resampling.BICUBIC)
        image.save(tmp_path / f"photos/{number:02}.jpg", quality=92)
    RECIPE.dump(tmp_path / "mine.toml")
    command = [sys.executable, *"-m augpipe preview photos --serve --recipe mine.toml".split()]
    environment = {**os.environ, "PYTHONPATH": child_path(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address, script = process.stdout.readline().strip(), Path(__file__).with_name("browse_live.py")
            browsed = subprocess.run(
                [PYTHON, script, address, "--browser", browser, "--server", str(process.pid)],
                capture_output=True,
                text=True,
            )
        finally:
            process.kill()
    assert browsed.returncode == 0, browsed.stderr
    found = json.loads(browsed.stdout)
    assert found["problems"] == []
    assert found["left"]["page_kB"] > 0
