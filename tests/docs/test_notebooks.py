"""The notebooks run from an empty folder, and the site has each as a page and as a file for Jupyter."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site import notebooks
from tests.child_path import child_path

PRINTED = {
    "fine_tune": r"48 to train on, 12 to test on: bird, butterfly, fish\n(epoch \d: \d+% of the held-out .*\n){3}",
    "from_torchvision": r"(\d+\.jpg: 0\.\d\d levels in the mean, 1 at most\n){3}",
    "eight_bit_gradients": r"float32: 0\.72 MB sent a step, loss .*\n8-bit: 0\.18 MB sent a step, loss .*\n",
}
NEEDED = {"from_torchvision": "torchvision"}


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_the_notebook_runs_in_an_empty_folder(name: str, tmp_path: Path) -> None:
    if name in NEEDED and importlib.util.find_spec(NEEDED[name]) is None:
        pytest.skip(f"{NEEDED[name]} is not installed")
    done = subprocess.run(
        [sys.executable, notebooks.FOLDER / f"{name}.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": child_path(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[name], done.stdout), done.stdout


def test_every_script_is_a_page_and_a_notebook_with_the_same_code() -> None:
    assert {path.stem for path in notebooks.FOLDER.glob("*.py")} == set(notebooks.NAMES)
    pages = notebooks.pages()
    for name in notebooks.NAMES:
        page, stored = str(pages[f"notebooks/{name}.md"]), json.loads(pages[f"notebooks/{name}.ipynb"])
        assert page.startswith("# ") and f"({name}.ipynb)" in page
        code = ["".join(cell["source"]) for cell in stored["cells"] if cell["cell_type"] == "code"]
        assert code == [block.rstrip("\n") for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)]
        script = (notebooks.FOLDER / f"{name}.py").read_text()
        without_comments = re.sub(r"^# .*\n|^#\n", "", script, flags=re.M)
        assert "".join("".join(code).split()) == "".join(without_comments.split())


def test_cells_of_a_script() -> None:
    script = "# %% [markdown]\n# # Title\n#\n# See [it](../it.md).\n\n# %%\nx = 1\n\n\n# %%\nx\n"
    found = notebooks.cells(script)
    assert found == [(True, "# Title\n\nSee [it](../it.md)."), (False, "x = 1"), (False, "x")]
    assert notebooks.notebook(found)["cells"][0]["source"] == ["# Title\n", "\n", "See it."]
