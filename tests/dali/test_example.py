"""The example of the in-graph op runs as it stands, and on a folder that is given to it."""

import subprocess
import sys
from pathlib import Path

from tests.unit.picture_files import encoded, scene

EXAMPLE = Path(__file__).parents[2] / "examples" / "dali_pipeline.py"


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_runs() -> None:
    lines = run().splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 0", "epoch 1"]
    assert all("(8, 3, 64, 64) torch.float32" in line for line in lines)


def test_the_example_reads_a_folder(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / ("cat", "dog")[number % 2]
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(encoded(scene(80, 100, number), "JPEG"))
    found = run(str(tmp_path)).splitlines()
    assert [line.split(";")[0] for line in found] == ["epoch 0: cat 3, dog 2", "epoch 1: cat 3, dog 2"]
    assert all("(5, 3, 64, 64)" in line for line in found)
