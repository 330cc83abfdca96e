"""The examples run as they stand, where what they need is installed."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.augpipe.decoding.image_files import encoded, scene
from tests.distributed.train_processes import as_two_ranks, started
from tests.docs.blocks import ROOT

EXAMPLES = ROOT / "examples"
TIMEOUT_S = 200
QUIET = ("-W", "error")

CASES = {
    "train_loop.py": (QUIET, r"epoch 1: mean loss \d\.\d{3}\n"),
    "torch_dataset.py": (QUIET, r"(epoch [01]: \(4, 3, 64, 64\) torch\.float32, mean .*\n){4}"),
    "dali_pipeline.py": (QUIET, r"(epoch [01]: .*the last batch is \(8, 3, 64, 64\) torch\.float32.*\n){2}"),
    "ddp_hook.py": (QUIET, r"epoch 1: mean loss \d+\.\d{3}\nall ranks have the same weights: True\n"),
    "lightning_fit.py": (
        (*QUIET, "-W", "ignore::FutureWarning"),  # torch's pytree gives one to Lightning
        r"epoch 0: mean loss \d\.\d{3}\nepoch 1: mean loss \d\.\d{3}",
    ),
    "hf_trainer.py": ((), r"8 steps: mean loss \d\.\d{3}"),  # 64 images, twice, by 16
}
"""Each example: what stands before its name, and what it, or its first rank, prints."""
OF_TWO_RANKS = ("ddp_hook.py",)
LIBRARIES = {"lightning_fit.py": ("pytorch_lightning",), "hf_trainer.py": ("transformers", "accelerate")}


def run(*arguments: str, num_ranks: int = 1) -> str:
    """What Python prints with these arguments, or its first rank does."""
    commands = [(list(arguments), {"HF_HUB_OFFLINE": "1"})]  # nothing goes to the network
    with started(commands if num_ranks == 1 else as_two_ranks(list(arguments))) as processes:
        said = [process.communicate(TIMEOUT_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * num_ranks, said
    return said[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_the_example_runs(script: str) -> None:
    for library in LIBRARIES.get(script, ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    flags, expected = CASES[script]
    num_ranks = 2 if script in OF_TWO_RANKS else 1
    assert re.search(expected, run(*flags, str(EXAMPLES / script), num_ranks=num_ranks))


@pytest.mark.slow
def test_the_example_of_a_torch_dataset_draws_anew_each_epoch() -> None:
    lines = run(*QUIET, str(EXAMPLES / "torch_dataset.py")).splitlines()
    means = {line.rpartition(" ")[2] for line in lines}
    assert len(means) == len(lines) == 4


def test_the_example_of_a_dali_pipeline_reads_a_folder(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / ("cat", "dog")[number % 2]
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(encoded(scene(80, 100, number), "JPEG"))
    found = run(*QUIET, str(EXAMPLES / "dali_pipeline.py"), str(tmp_path)).splitlines()
    assert [line.split(";")[0] for line in found] == ["epoch 0: cat 3, dog 2", "epoch 1: cat 3, dog 2"]
    assert all("(5, 3, 64, 64)" in line for line in found)
