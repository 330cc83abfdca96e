"""The examples for DDP, Lightning and Hugging Face run as they stand, where what they need is installed."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 200

pytestmark = pytest.mark.slow


def run(*command: str, quiet: bool = False) -> str:
    """What the command prints; `quiet` keeps it from the network, whatever the library would ask for."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"HF_HUB_OFFLINE": "1"} if quiet else {})
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def need(*libraries: str) -> None:
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


def test_the_hook_in_a_plain_ddp_script() -> None:
    out = run(*("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"), str(EXAMPLES / "ddp_hook.py"))
    assert re.search(r"epoch 1: mean loss \d+\.\d{3}", out)
    assert "all ranks have the same weights: True" in out


def test_the_loader_in_lightning() -> None:
    need("pytorch_lightning")
    # warnings are errors but for one that torch's pytree gives to Lightning
    out = run("-W", "error", "-W", "ignore::FutureWarning", str(EXAMPLES / "lightning_fit.py"))
    assert re.search(r"epoch 0: mean loss \d\.\d{3}\nepoch 1: mean loss \d\.\d{3}", out)


def test_the_loader_in_a_hugging_face_trainer() -> None:
    need("transformers", "accelerate")
    out = run(str(EXAMPLES / "hf_trainer.py"), quiet=True)
    assert re.search(r"8 steps: mean loss \d\.\d{3}", out)  # 64 photographs, twice, by 16
