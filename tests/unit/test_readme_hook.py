"""The README's two lines for a trainer of one's own run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_hook_is_found_by_what_is_imported() -> None:
    (snippet,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        if "register_comm_hook" in text
    ]
    model = "class model:\n    register_comm_hook = print\n"
    command = [sys.executable, "-c", model + snippet]
    done = subprocess.run(command, cwd=README.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "ButterflyState" in done.stdout
