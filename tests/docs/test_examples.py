"""The examples run as they stand, where what they need is installed."""

import importlib.util
import os
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from augpipe import Augment, recipes
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


def test_the_example_of_a_dali_pipeline_reads_a_folder(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / ("cat", "dog")[number % 2]
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(encoded(scene(80, 100, number), "JPEG"))
    found = run(*QUIET, str(EXAMPLES / "dali_pipeline.py"), str(tmp_path)).splitlines()
    assert [line.split(";")[0] for line in found] == ["epoch 0: cat 3, dog 2", "epoch 1: cat 3, dog 2"]
    assert all("(5, 3, 64, 64)" in line for line in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("is_kept", [False, True], ids=["new workers", "persistent workers"])
def test_the_example_of_a_dataset_draws_anew_in_each_epoch_whatever_the_workers(is_kept: bool) -> None:
    """An epoch that lies in the dataset's memory would not reach workers that live longer than one."""
    example = runpy.run_path(str(EXAMPLES / "torch_dataset.py"))
    images = example["Images"]([encoded(scene(80, 100, number), "JPEG") for number in range(4)])

    def drawn(**options: Any) -> list[torch.Tensor]:
        augment = Augment(recipes.deep_image(size=64, scales=(72, 96)), seed=1)
        loader: Any = torch.utils.data.DataLoader(
            images, batch_size=2, collate_fn=augment.collate, timeout=TIMEOUT_S * bool(options), **options
        )
        made = []
        for epoch in (0, 1, 0):
            augment.set_epoch(epoch)
            made.append(torch.cat([batch.images for batch in loader]))
        return made

    first, second, again = drawn(num_workers=2, multiprocessing_context="fork", persistent_workers=is_kept)
    assert torch.equal(first, again)
    assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    for found, expected in zip((first, second), drawn(), strict=False):
        assert torch.equal(found, expected)


RESUMED = """
import runpy
import sys
from pathlib import Path

import torch
from transformers import ResNetConfig, ResNetForImageClassification, TrainerCallback, TrainingArguments

from augpipe.datasets.synthetic.generate import generate

example, output = runpy.run_path(sys.argv[1]), Path(sys.argv[2])
generate(output / "photos", num=40, classes=4)
read = []


class StopAfter4Of6(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        control.should_training_stop = state.global_step == 4


def trainer(name, *callbacks):
    torch.manual_seed(1)
    config = ResNetConfig(num_labels=4, embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    arguments = TrainingArguments(
        output_dir=str(output / name),
        num_train_epochs=2,
        per_device_train_batch_size=16,
        use_cpu=True,
        save_strategy="steps",
        save_steps=4,
        report_to="none",
        disable_tqdm=True,
    )
    model = ResNetForImageClassification(config)
    model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["pixel_values"].clone()), with_kwargs=True
    )
    return example["ImageTrainer"](output / "photos", model=model, args=arguments, callbacks=list(callbacks))


whole = trainer("whole")
whole.train()
batches = read.copy()
print([len(batch) for batch in batches], "alike" if torch.equal(batches[0], batches[3]) else "epochs differ")
trainer("stopped", StopAfter4Of6()).train()
read.clear()
resumed = trainer("stopped")
resumed.train(resume_from_checkpoint=True)
print(resumed.state.global_step, "steps in all,", len(read), "after resuming")
print("same batches:", all(torch.equal(one, other) for one, other in zip(read, batches[4:], strict=True)))
pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
print("same weights:", all(torch.equal(one, other) for one, other in pairs))
"""


@pytest.mark.slow
def test_the_example_of_a_hugging_face_trainer_resumes_within_an_epoch(tmp_path: Path) -> None:
    for library in LIBRARIES["hf_trainer.py"]:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    printed = run("-c", RESUMED, str(EXAMPLES / "hf_trainer.py"), str(tmp_path))
    expected = ["[16, 16, 8, 16, 16, 8] epochs differ", "6 steps in all, 2 after resuming"]
    assert [line for line in printed.splitlines() if "{" not in line] == [
        *expected,
        "same batches: True",
        "same weights: True",
    ]
