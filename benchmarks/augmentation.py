"""What augmentation is worth: a small network's test accuracy by recipe, and how it bears what is done to test images.

Two data sets. CIFAR-10: its binary files, written once from the JPEGs, at 32 pixels. The sample data set: the synthetic
photographs that `augpipe sample` draws, at 64 pixels, with the demo's optimizer; the test images are drawn
from another seed. A seed fixes the first weights and the order of the samples for all recipes alike, so that recipes
are compared seed by seed, too. The budget is that of one thread and two minutes a run: accuracies are those of short
training on few images. Robustness is that of `augpipe.trainer.evaluation.robustness_of`, see robustness.py.

    python benchmarks/augmentation.py --kept FOLDER
    python benchmarks/augmentation.py --kept FOLDER --tasks sample           # one data set alone, for now
    python benchmarks/augmentation.py --kept FOLDER --report-only            # tables and figure of what is there
    python benchmarks/augmentation.py --kept FOLDER --try-lr 0.003 0.01 0.02 0.03      # of CIFAR-10, how it was chosen

Each finished run is kept with its checkpoint; started again, only what is missing is run. `--earlier` takes the
accuracies of runs that are not kept from an earlier result: such runs have no part in robustness.
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import interval, save
from robustness import FIGURE, curves_of, draw, table_of

from augpipe import Recipe, ops, policies, recipes
from augpipe.datasets.synthetic.generate import generate
from augpipe.sampling.epoch_order import sample_ids
from augpipe.trainer.config import make_config
from augpipe.trainer.loop import run

NUM_SEEDS, TRIED_SEED = 5, 100
NONE, FLIP_CROP, DEEP_IMAGE, TRIVIAL = "none", "flip + crop", "deep_image", "flip + crop + TrivialAugment"
MIXUP, ALTERNATING = "flip + crop + TrivialAugment + MixUp", "alternating flip + crop"
COMPARED = (NONE, FLIP_CROP, DEEP_IMAGE, TRIVIAL)
"""The recipes of both data sets; the last is the modern one, without MixUp."""
PAIRS = ((NONE, FLIP_CROP), (FLIP_CROP, DEEP_IMAGE), (FLIP_CROP, TRIVIAL), (TRIVIAL, MIXUP), (FLIP_CROP, ALTERNATING))


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set, and how the network is trained on it."""

    title: str
    recipes: dict[str, Recipe]
    num_images: int
    num_test: int
    num_robustness: int
    """How many of the test images measure robustness."""
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    warmup_epochs: float
    width: int
    """Filters of the first layer of `small-cnn`; its own are 24."""
    write: Callable[[Path], None]
    """Writes the data under a folder: `train`, `test` and `robustness`, with `suffix`."""
    suffix: str

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self.num_images // self.batch_size

    @property
    def what(self) -> str:
        """The setting in words."""
        return (
            f"{self.title}, {self.num_images:,} training images, {self.num_test:,} test images after the last of "
            f"{self.epochs} epochs, small-cnn of width {self.width}, batches of {self.batch_size}, adamw lr "
            f"{self.lr:g} weight decay {self.weight_decay:g}, rising over {self.warmup_epochs:g} epochs, then falling "
            "as a cosine"
        )


def write_cifar(out: Path) -> None:
    """CIFAR-10's binary files from its JPEGs: of the training images the first ones of a mixed order."""
    import simplejpeg

    records: dict[str, list[tuple[str, bytes]]] = {"train": [], "test": []}
    with tarfile.open(Path(os.environ["AUGPIPE_DATA"]) / "cifar10_jpg.tar.gz") as tar:
        for member in tar:
            parts = Path(member.name).parts[-3:]
            if member.isfile() and parts[0] in records:
                content = tar.extractfile(member)
                assert content is not None
                image = simplejpeg.decode_jpeg(content.read())
                records[parts[0]].append((parts[1], image.transpose(2, 0, 1).tobytes()))
    classes = sorted({name for name, _ in records["train"]})
    chosen = sample_ids(np.arange(CIFAR.num_images), len(records["train"]), 0, 0, True)
    records["train"] = [records["train"][index] for index in chosen]
    records["robustness"] = records["test"][:: CIFAR.num_test // CIFAR.num_robustness]
    (out / "batches.meta.txt").write_text("".join(f"{name}\n" for name in classes))
    for part, rows in records.items():
        (out / f"{part}.bin").write_bytes(b"".join(bytes([classes.index(name)]) + data for name, data in rows))


def write_sample(out: Path) -> None:
    """The sample data set, and test images of another seed, the first of which measure robustness, too."""
    generate(out / "train", num=SAMPLE.num_images, seed=0, workers=1)
    generate(out / "test", num=SAMPLE.num_test, seed=1, workers=1)
    generate(out / "robustness", num=SAMPLE.num_robustness, seed=1, workers=1)


NORMALIZE = ops.Normalize(mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262))
MOVED = (ops.CenterCrop(size=32), ops.Translate(horizontal=(-4, 4), vertical=(-4, 4), unit="px", step=1))
"""With a reflected border it is a random crop of the image padded by four pixels, as torchvision's RandomCrop."""
PAPERS = (ops.ColorCast(), ops.Vignette(), ops.LensDistortion(), ops.Rotate())
CROP_64 = ops.MultiResolutionCrop(size=64, scales=(64, 75, 85))
"""The demo's crop of 96 pixels, at two thirds of that."""


def _cifar_recipe(*others: ops.Op, mixing: tuple[Any, ...] = ()) -> Recipe:
    return Recipe(border="reflect", ops=(*MOVED, *others, NORMALIZE), mixing=mixing)


CIFAR = Task(
    title="CIFAR-10 at 32 px",
    recipes={
        NONE: Recipe(ops=(MOVED[0], NORMALIZE)),
        FLIP_CROP: _cifar_recipe(ops.Flip()),
        DEEP_IMAGE: _cifar_recipe(*PAPERS, ops.Flip()),
        TRIVIAL: _cifar_recipe(ops.Flip(), *policies.trivial_augment_wide()),
        MIXUP: _cifar_recipe(ops.Flip(), *policies.trivial_augment_wide(), mixing=(ops.MixUp(alpha=0.2, p=0.5),)),
        ALTERNATING: _cifar_recipe(ops.Flip(alternate=True)),
    },
    num_images=10_000,
    num_test=10_000,
    num_robustness=5_000,
    epochs=30,
    batch_size=128,
    lr=0.02,
    weight_decay=0.01,
    warmup_epochs=1.0,
    width=16,
    write=write_cifar,
    suffix=".bin",
)
SAMPLE = Task(
    title="sample data set at 64 px",
    recipes={
        NONE: Recipe(ops=(ops.CenterCrop(size=64, scale=64), ops.Normalize())),
        FLIP_CROP: Recipe(ops=(CROP_64, ops.Flip(), ops.Normalize())),
        DEEP_IMAGE: recipes.deep_image(size=64, scales=CROP_64.scales),
        TRIVIAL: Recipe(ops=(CROP_64, ops.Flip(), *policies.trivial_augment_wide(), ops.Normalize())),
    },
    num_images=1_500,
    num_test=500,
    num_robustness=250,
    epochs=20,
    batch_size=32,
    lr=0.004,
    weight_decay=0.05,
    warmup_epochs=4.0,
    width=16,
    write=write_sample,
    suffix="",
)
TASKS = {"cifar10": CIFAR, "sample": SAMPLE}


def folder_of(kept: Path, task: str, name: str, seed: int) -> Path:
    """Where a run is kept."""
    return kept / f"{task}-{name.replace(' ', '')}-{seed}"


def config_of(task: Task, name: str, seed: int, lr: float, epochs: int, data: Path, out: Path) -> dict[str, Any]:
    """The tables of a run; recipes are written beside it."""
    for field, recipe in {"recipe": task.recipes[name], "eval_recipe": task.recipes[NONE]}.items():
        recipe.dump(out / f"{field}.toml")
    return {
        "out": f"{out}/run",
        "epochs": epochs,
        "seed": seed,
        "device": "cpu",
        "data": {
            "source": str(data / f"train{task.suffix}"),
            "recipe": f"{out}/recipe.toml",
            "eval_recipe": f"{out}/eval_recipe.toml",
            "batch_size": task.batch_size,
            "eval_batch_size": min(1000, task.num_test),
            "num_threads": 1,
            "cache": "off" if task.suffix else "host",
        },
        "model": {"name": "small-cnn", "options": {"width": task.width}, "channels_last": True},
        "optim": {"lr": lr, "weight_decay": task.weight_decay, "decay_1d": False},
        "schedule": {"warmup_epochs": task.warmup_epochs},
        "checkpoint": {"every_epochs": 0},
        "report": {"progress": False, "tensorboard": False, "log_every": task.steps},
    }


def train(
    task: Task, name: str, seed: int, data: Path, out: Path, *, lr: float | None = None, epochs: int | None = None
) -> dict[str, Any]:
    """One run of the trainer: the accuracy on all test images, and the loss over each epoch's training images.

    The run is stopped before its last step and resumed with test images, so that they are looked at once, at its end.
    """
    start, cpu = time.perf_counter(), time.process_time()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    epochs = epochs or task.epochs
    config = config_of(task, name, seed, lr or task.lr, epochs, data, out)
    run(make_config(config, [f"max_steps={epochs * task.steps - 1}"]))
    result = run(make_config(config, [f"data.eval_source={data / f'test{task.suffix}'}"]))
    with open(out / "run" / "metrics.csv", newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]][:-1]  # less the last step
    assert result.evaluation is not None and result.evaluation.num_samples == task.num_test
    return {
        "recipe": name,
        "seed": seed,
        "accuracy": result.evaluation.top1,
        "test_loss": round(result.evaluation.loss, 4),
        "training_loss": losses,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def accuracy_table(task: Task, runs: list[dict[str, Any]], earlier: dict[str, list[float]]) -> dict[str, Any]:
    """Each recipe's accuracies, and what it adds to another one with the same seeds.

    Args:
        earlier: by recipe the accuracy of each seed from 0 on in %, for those that are not among the runs.
    """
    of = {
        name: dict(enumerate(value / 100 for value in earlier.get(name, ())))
        | {run["seed"]: run["accuracy"] for run in runs if run["recipe"] == name}
        for name in task.recipes
    }
    of = {name: dict(sorted(by_seed.items())) for name, by_seed in of.items() if by_seed}
    shared = {pair: sorted(of[pair[0]].keys() & of[pair[1]].keys()) for pair in PAIRS if set(pair) <= set(of)}
    gains = {
        (less, more): [of[more][seed] - of[less][seed] for seed in seeds]
        for (less, more), seeds in shared.items()
        if seeds
    }
    return {
        "what": task.what,
        "test accuracy": {
            name: {"each seed, %": [round(100 * value, 2) for value in values.values()], **interval([*values.values()])}
            for name, values in of.items()
        },
        "with the same seeds, %": {
            f"{more} less {less}": {"each seed, %": [round(100 * one, 2) for one in values], **interval(values)}
            for (less, more), values in gains.items()
        },
        **{
            title: {
                name: round(statistics.median(number(run) for run in runs if run["recipe"] == name), 3)
                for name in of
                if any(run["recipe"] == name for run in runs)
            }
            for title, number in {
                "training loss, last epoch, median": lambda run: run["training_loss"][-1],
                "CPU seconds a run, median": lambda run: run["cpu_seconds"],
            }.items()
        },
    }


def earlier_accuracies(path: Path | None) -> dict[str, list[float]]:
    """The accuracies of CIFAR-10 in an earlier result, by recipe and seed, in %."""
    if path is None:
        return {}
    result = json.loads(path.read_text())
    table = result.get("cifar10", result)["test accuracy"]
    return {name: row["each seed, %"] for name, row in table.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="folder for finished runs and the data")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--recipes", nargs="+", help="train these alone, for now; default: all of the task's")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(NUM_SEEDS)))
    parser.add_argument("--earlier", type=Path, help="a result whose accuracies on CIFAR-10 stand for runs not kept")
    parser.add_argument("--report-only", action="store_true", help="train nothing")
    parser.add_argument("--no-report", action="store_true", help="train, and stop there")
    parser.add_argument("--try-lr", type=float, nargs="+", help="only print training losses of flip + crop at these")
    parser.add_argument("--try-epochs", type=int, default=12, help="how long --try-lr trains")
    chosen = parser.parse_args()
    if "AUGPIPE_DATA" not in os.environ:
        raise SystemExit("Set AUGPIPE_DATA to the folder that holds cifar10_jpg.tar.gz.")
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for key in chosen.tasks:
        task, data = TASKS[key], chosen.kept.absolute() / f"data-{key}"
        if not (data / "whole").exists():
            data.mkdir(parents=True, exist_ok=True)
            task.write(data)
            (data / "whole").touch()
        for lr in chosen.try_lr or ():
            out = chosen.kept.absolute() / f"tried-{key}-{lr:g}"
            tried = train(task, FLIP_CROP, TRIED_SEED, data, out, lr=lr, epochs=chosen.try_epochs)
            loss = f"training loss {tried['training_loss'][-1]:.4f}"
            print(f"{key}, lr {lr:g}: {loss} in the last of {chosen.try_epochs} epochs")
        runs = {}
        for seed, name in product(chosen.seeds, [] if chosen.try_lr else task.recipes):
            out = folder_of(chosen.kept.absolute(), key, name, seed)
            wanted = not chosen.report_only and (chosen.recipes is None or name in chosen.recipes)
            if wanted and not (out / "result.json").exists():
                done = train(task, name, seed, data, out)
                (out / "result.json").write_text(json.dumps(done))
                took = f"{done['cpu_seconds']:.0f} s of CPU"
                print(f"{key}, seed {seed}, {name}: {100 * done['accuracy']:.2f} % in {took}", flush=True)
            if (out / "result.json").exists():
                runs[out] = json.loads((out / "result.json").read_text())
        if chosen.try_lr or chosen.no_report:
            continue
        earlier = earlier_accuracies(chosen.earlier) if key == "cifar10" else {}
        kept = {(done["recipe"], done["seed"]): out for out, done in runs.items()}
        shared = [seed for seed in chosen.seeds if all((name, seed) in kept for name in COMPARED)]
        compared = {kept[name, seed]: (name, seed) for name, seed in product(COMPARED, shared)}
        curves = {out: curves_of(out, data / f"robustness{task.suffix}") for out in compared}
        result[key] = accuracy_table(task, [*runs.values()], earlier) | {
            "robustness": {"test images": task.num_robustness, **table_of(compared, curves)}
        }
    if result:
        command = "OMP_NUM_THREADS=1 AUGPIPE_DATA=FOLDER nice -n 10 python benchmarks/augmentation.py --kept KEPT"
        earlier = f" --earlier {chosen.earlier.name}" if chosen.earlier else ""
        taken = {"CIFAR-10's accuracies of runs not repeated": chosen.earlier.name} if chosen.earlier else {}
        save("augmentation", {"command": command + earlier, **taken, **result})
        draw({TASKS[key].title: found["robustness"] for key, found in result.items()}, FIGURE)


if __name__ == "__main__":
    main()
