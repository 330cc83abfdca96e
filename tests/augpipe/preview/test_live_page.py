"""The live page in a browser: sliders, switches, texts and a drag do what they say, and axe finds nothing serious."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Recipe, ops
from augpipe.ops.op import KINDS
from tests.child_path import child_path
from tests.docs.test_site import BROWSERS, PYTHON

ROOT = Path(__file__).resolve().parents[3]
RECIPE = Recipe(ops=(ops.RandomResizedCrop(size=64), ops.Rotate(), ops.ColorCast()))

pytestmark = [
    pytest.mark.deep,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PYTHON.exists(), reason="make docs has not set up .venv-docs"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `browse_live.py` found on the page of a folder of photographs."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of these browsers is installed: {', '.join(BROWSERS)}")
    root = tmp_path_factory.mktemp("live")
    rng = np.random.default_rng(5)
    for number in range(30):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
        (root / "photos").mkdir(exist_ok=True)
        coarse.resize((300, 200), Image.Resampling.BICUBIC).save(root / f"photos/{number:02}.jpg", quality=92)
    RECIPE.dump(root / "mine.toml")
    command = [*("-m", "augpipe", "preview", "photos", "--serve", "--recipe", "mine.toml")]
    environment = {**os.environ, "PYTHONPATH": child_path(ROOT)}
    with subprocess.Popen(
        [sys.executable, *command], cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            script = ROOT / "tests/augpipe/preview/browse_live.py"
            browsed = subprocess.run(
                [PYTHON, script, address, "--browser", browser, "--server", str(process.pid)],
                capture_output=True,
                text=True,
            )
        finally:
            process.kill()
    assert browsed.returncode == 0, browsed.stderr
    made: dict[str, Any] = json.loads(browsed.stdout)
    return made


def test_it_is_sound_wide_narrow_and_in_the_dark(found: dict[str, Any]) -> None:
    assert found["looks"] == []
    assert found["used"]["problems"] == [], "errors, or requests to elsewhere"


def test_pictures_follow_sliders_switches_and_keys(found: dict[str, Any]) -> None:
    used = found["used"]
    num, num_moved = used["pictures that a slider moves"]
    assert num == 12 and num_moved >= 9, "an angle may be the same in both ranges"
    assert used["by keyboard"] and used["a switch leaves an op out"]
    assert used["cards of all ops"] == 2 + len(KINDS)


def test_the_recipe_goes_both_ways(found: dict[str, Any], tmp_path: Path) -> None:
    used = found["used"]
    assert used["toml follows"] and used["controls follow the toml"] and used["the address opens the recipe"]
    (tmp_path / "copied.toml").write_text(used["copied toml"])
    made: dict[str, Any] = {}
    exec(used["copied python"], made)
    assert Recipe.load(tmp_path / "copied.toml") == made["recipe"]


def test_a_mistake_is_shown_where_it_is_and_goes_again(found: dict[str, Any]) -> None:
    used = found["used"]
    assert used["mistake"].startswith("max_deg=-3 must be above 0") and used["it is marked"] and used["it is gone"]
    assert used["mistake in toml"].startswith("not valid TOML")


def test_texts_open_a_drag_compares_and_numbers_show(found: dict[str, Any]) -> None:
    used = found["used"]
    became, num_ops = used["opened"]
    assert "RandomRain is left out" in became and num_ops == 2
    assert used["a drag shows what was before"] == ["50 %", 12]
    assert "looks at" in used["numbers"] and "rotate" in used["numbers"]
    assert used["another photograph"] == ["true", True]
    assert "photographs a second on" in used["speed"]


def test_two_hundred_quick_moves_leave_nothing_behind(found: dict[str, Any]) -> None:
    moved = found["moved"]
    before, after = moved["before"], moved["after"]
    assert moved["the last is shown"] and 0 < moved["questions_of_200_moves"] < 200
    assert after.get("Threads", 0) <= before.get("Threads", 0)
    assert after.get("VmRSS", 0) - before.get("VmRSS", 0) < 16_000, "kB of the server"
    assert after["heap_kB"] - before["heap_kB"] < 2_000, "of the page"
