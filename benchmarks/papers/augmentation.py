"""What augmentation is worth: a small network's test accuracy by recipe, and how it bears what is done to test images.

Two data sets. CIFAR-10: its binary files, written once from the JPEGs, at 32 pixels. The sample data set: the synthetic
photographs that `augpipe sample` draws, at 64 pixels, with the demo's optimizer; the test images are drawn
from another seed. A seed fixes the first weights and the order of the samples for all recipes alike, so that recipes
are compared seed by seed, too. The budget is that of one thread and two minutes a run: accuracies are those of short
training on few images. Robustness is that of `augpipe.trainer.evaluation.robustness_of`, averaged over seeds.

    python -m benchmarks.papers.augmentation --kept FOLDER
    python -m benchmarks.papers.augmentation --kept FOLDER --tasks sample           # one data set alone, for now
    python -m benchmarks.papers.augmentation --kept FOLDER --report-only            # tables and figure of what is there

Each finished run is kept with its checkpoint; started again, only what is missing is run. `--earlier` takes CIFAR-10's
accuracies of runs that are not kept from an earlier result: such runs have no part in robustness.
"""

import csv
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from augpipe import Recipe, ops, policies, recipes
from augpipe.datasets.synthetic.generate import generate
from augpipe.sampling.epoch_order import sample_ids
from augpipe.trainer.config import make_config
from augpipe.trainer.evaluation import robustness_of
from augpipe.trainer.loop import run
from benchmarks.figures import Line, Panel, draw
from benchmarks.harness import FIGURES, Bench, Kept, each, interval
from benchmarks.papers.training import cifar10_files

NONE, FLIP_CROP, DEEP_IMAGE, TRIVIAL = "none", "flip + crop", "deep_image", "flip + crop + TrivialAugment"
MIXUP, ALTERNATING = "flip + crop + TrivialAugment + MixUp", "alternating flip + crop"
COMPARED = (NONE, FLIP_CROP, DEEP_IMAGE, TRIVIAL)
"""The recipes of both data sets, whose robustness is measured; the last is the modern one, without MixUp."""
PAIRS = ((NONE, FLIP_CROP), (FLIP_CROP, DEEP_IMAGE), (FLIP_CROP, TRIVIAL), (TRIVIAL, MIXUP), (FLIP_CROP, ALTERNATING))
STRENGTHS = (0.0, 0.5, 1.0, 2.0)
"""Vignettes and lenses go no further than 1 and 1.28."""
PAPERS = (ops.ColorCast(), ops.Vignette(), ops.LensDistortion(), ops.Rotate())
CHANGED = Recipe(
    name="papers, blur, light", ops=(*PAPERS, ops.Blur(sigma_px=(0.0, 1.0)), ops.Brightness(), ops.Contrast())
)
"""The ops of the Deep Image papers as they draw them, and three that no recipe but TrivialAugment's has."""
MEANS = {
    "the four lenses": ("lens",),
    "cast, vignette, lenses, rotation": ("color_cast", "vignette", "lens", "rotate"),
    "brightness, contrast": ("brightness", "contrast"),
}
"""Ops that are averaged, by how their names begin."""


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
    width: int = 16
    """Filters of the first layer of `small-cnn`; its own are 24."""
    write: Callable[["Task", Path], None]
    """Writes the data under a folder: `train`, `test` and `robustness`, with `suffix`."""
    suffix: str = ""

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


def write_cifar(task: Task, out: Path) -> None:
    """CIFAR-10's binary files from its JPEGs: of the training images the first ones of a mixed order."""
    records: dict[str, list[tuple[str, bytes]]] = {"train": [], "test": []}
    for part, label, image in cifar10_files(Path(os.environ["AUGPIPE_DATA"])):
        records[part].append((label, image.transpose(2, 0, 1).tobytes()))
    classes = sorted({name for name, _ in records["train"]})
    chosen = sample_ids(np.arange(task.num_images), len(records["train"]), 0, 0, True)
    records["train"] = [records["train"][index] for index in chosen]
    records["test"] = records["test"][: task.num_test]
    records["robustness"] = records["test"][:: task.num_test // task.num_robustness]
    (out / "batches.meta.txt").write_text("".join(f"{name}\n" for name in classes))
    for part, rows in records.items():
        (out / f"{part}.bin").write_bytes(b"".join(bytes([classes.index(name)]) + data for name, data in rows))


def write_sample(task: Task, out: Path) -> None:
    """The sample data set, and test images of another seed, the first of which measure robustness, too."""
    for part, num, seed in (
        ("train", task.num_images, 0),
        ("test", task.num_test, 1),
        ("robustness", task.num_robustness, 1),
    ):
        generate(out / part, num=num, seed=seed, workers=1)


NORMALIZE = ops.Normalize(mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262))
MOVED = (ops.CenterCrop(size=32), ops.Translate(horizontal=(-4, 4), vertical=(-4, 4), unit="px", step=1))
"""With a reflected border it is a random crop of the image padded by four pixels, as torchvision's RandomCrop."""
CROP_64 = ops.MultiResolutionCrop(size=64, scales=(64, 75, 85))
"""The demo's crop of 96 pixels, at two thirds of that."""
WIDE = policies.trivial_augment_wide()


def _cifar_recipe(*others: ops.Op, mixing: tuple[Any, ...] = ()) -> Recipe:
    return Recipe(border="reflect", ops=(*MOVED, *others, NORMALIZE), mixing=mixing)


TASKS = {
    "cifar10": Task(
        title="CIFAR-10 at 32 px",
        recipes={
            NONE: Recipe(ops=(MOVED[0], NORMALIZE)),
            FLIP_CROP: _cifar_recipe(ops.Flip()),
            DEEP_IMAGE: _cifar_recipe(*PAPERS, ops.Flip()),
            TRIVIAL: _cifar_recipe(ops.Flip(), *WIDE),
            MIXUP: _cifar_recipe(ops.Flip(), *WIDE, mixing=(ops.MixUp(alpha=0.2, p=0.5),)),
            ALTERNATING: _cifar_recipe(ops.Flip(alternate=True)),
        },
        num_images=10_000, num_test=10_000, num_robustness=5_000, epochs=30, batch_size=128, lr=0.02, weight_decay=0.01,
        warmup_epochs=1.0, write=write_cifar, suffix=".bin",
    ),
    "sample": Task(
        title="sample data set at 64 px",
        recipes={
            NONE: Recipe(ops=(ops.CenterCrop(size=64, scale=64), ops.Normalize())),
            FLIP_CROP: Recipe(ops=(CROP_64, ops.Flip(), ops.Normalize())),
            DEEP_IMAGE: recipes.deep_image(size=64, scales=CROP_64.scales),
            TRIVIAL: Recipe(ops=(CROP_64, ops.Flip(), *WIDE, ops.Normalize())),
        },
        num_images=1_500, num_test=500, num_robustness=250, epochs=20, batch_size=32, lr=0.004, weight_decay=0.05,
        warmup_epochs=4.0, write=write_sample,
    ),
}  # fmt: skip


def train(task: Task, name: str, seed: int, data: Path, out: Path) -> dict[str, Any]:
    """One run of the trainer: the accuracy on all test images, and the loss over each epoch's training images.

    The run is stopped before its last step and resumed with test images, so that they are looked at once, at its end.
    """
    start, cpu = time.perf_counter(), time.process_time()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for field, recipe in {"recipe": task.recipes[name], "eval_recipe": task.recipes[NONE]}.items():
        recipe.dump(out / f"{field}.toml")
    config = {
        "out": f"{out}/run",
        "epochs": task.epochs,
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
        "optim": {"lr": task.lr, "weight_decay": task.weight_decay, "decay_1d": False},
        "schedule": {"warmup_epochs": task.warmup_epochs},
        "checkpoint": {"every_epochs": 0},
        "report": {"progress": False, "tensorboard": False, "log_every": task.steps},
    }
    run(make_config(config, [f"max_steps={task.epochs * task.steps - 1}"]))
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


def accuracy_table(task: Task, runs: list[dict[str, Any]], earlier: Path | None) -> dict[str, Any]:
    """Each recipe's accuracies, and what it adds to another one with the same seeds."""
    of: dict[str, dict[int, dict[str, Any]]] = {}
    for one in sorted(runs, key=lambda one: (list(task.recipes).index(one["recipe"]), one["seed"])):
        of.setdefault(one["recipe"], {})[one["seed"]] = one
    for name, row in _accuracies(earlier).items():
        for seed, percent in enumerate(row["each seed, %"]):
            of.setdefault(name, {}).setdefault(seed, {"accuracy": percent / 100})
    gains = {
        f"{more} less {less}": [of[more][seed]["accuracy"] - of[less][seed]["accuracy"] for seed in seeds]
        for less, more in PAIRS
        if (seeds := sorted(of.get(less, {}).keys() & of.get(more, {}).keys()))
    }
    numbers: dict[str, Callable[[dict[str, Any]], float]] = {
        "training loss, last epoch, median": lambda one: one["training_loss"][-1],
        "CPU seconds a run, median": lambda one: one["cpu_seconds"],
    }
    own = {
        name: whole for name, rows in of.items() if (whole := [one for one in rows.values() if "cpu_seconds" in one])
    }
    return {
        "what": task.what,
        "test accuracy": {name: each([one["accuracy"] for one in rows.values()]) for name, rows in of.items()},
        "with the same seeds, %": {name: each(values) for name, values in gains.items()},
        **{
            title: {name: round(statistics.median(map(number, rows)), 3) for name, rows in own.items()}
            for title, number in numbers.items()
        },
    }


def _accuracies(result: Path | None) -> dict[str, Any]:
    """CIFAR-10's in an earlier result."""
    found = json.loads(result.read_text()) if result else {}
    table: dict[str, Any] = found.get("cifar10", found).get("test accuracy", {})
    return table


def curves_of(out: Path, source: Path, strengths: tuple[float, ...]) -> dict[str, Any]:
    """A run's accuracy by op and strength."""
    found = robustness_of(out / "run", CHANGED, strengths=strengths, source=source, device="cpu")
    return {
        "curves": {one.op: {f"{point.strength:g}": point.top1.value for point in one.points} for one in found.curves},
        "draws": {one.op: one.draws for one in found.curves},
    }


def _percent(values: list[float]) -> dict[str, float | None]:
    mean, half = interval(values).values()
    return {"mean": mean, "95 % confidence, +-": half}


def _costs(change: dict[str, list[float]]) -> dict[str, Any]:
    """What strength 1 changes, of each recipe's seeds, and that beside flip + crop."""
    return {
        "change from strength 0 to 1, points": {name: _percent(values) for name, values in change.items()},
        f"that change less the one of {FLIP_CROP}, same seeds, points": {
            name: _percent([one - other for one, other in zip(values, change[FLIP_CROP], strict=True)])
            for name, values in change.items()
            if name != FLIP_CROP
        },
    }


def robustness_table(curves: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    """Each op's accuracy by strength and recipe, and what strength 1 costs; `curves` by recipe and seed."""
    names, seeds = (list(dict.fromkeys(run[place] for run in curves)) for place in (0, 1))
    first = next(iter(curves.values()))
    table: dict[str, Any] = {}
    changes: dict[str, dict[str, list[float]]] = {}
    for op, points in first["curves"].items():
        values = {
            name: {at: [curves[name, seed]["curves"][op][at] for seed in seeds] for at in points} for name in names
        }
        changes[op] = {name: [a - b for a, b in zip(by["1"], by["0"], strict=True)] for name, by in values.items()}
        told = {name: [_percent(of) for of in by.values()] for name, by in values.items()}
        table[op] = {
            "draws at strength 1": first["draws"][op],
            "strengths": [float(strength) for strength in points],
            "accuracy, %": {
                name: {key: [one[key] for one in of] for key in ("mean", "95 % confidence, +-")}
                for name, of in told.items()
            },
            **_costs(changes[op]),
        }
    means = {}
    for title, some in MEANS.items():
        mine = [changes[op] for op in table if op.startswith(some)]
        averaged = {name: list(map(statistics.mean, zip(*(one[name] for one in mine), strict=True))) for name in names}
        means[title] = _costs(averaged)
    return {"seeds": seeds, "ops": table, "means of several ops": means}


def panels_of(title: str, table: dict[str, Any]) -> list[Panel]:
    """A panel an op, a line a recipe with its interval over seeds."""
    panels = []
    for op, found in table["ops"].items():
        lines = [
            Line(label=name, x=found["strengths"], y=of["mean"], half=[one or 0.0 for one in of["95 % confidence, +-"]])
            for name, of in found["accuracy, %"].items()
        ]
        panels.append(Panel(title=f"{title}: {op.replace('_', ' ')}", x="strength", y="test accuracy, %", lines=lines))
    return panels


def main() -> None:
    bench = Bench(__doc__, kept=Path, earlier=Path, tasks=tuple(TASKS), seeds=(0, 1, 2, 3, 4), report_only=False)
    chosen, result, panels = bench.options, dict[str, Any](), list[Panel]()
    torch.set_num_threads(1)
    tiny = {"num_images": 64, "num_test": 20, "num_robustness": 10, "epochs": 2, "batch_size": 16, "warmup_epochs": 1.0}
    with bench.kept() as kept:
        for key in bench.pick(chosen.tasks, ["sample"]):
            task, data = replace(TASKS[key], **bench.pick({}, tiny)), kept.folder / f"data-{key}"
            if task.suffix:
                bench.data("cifar10_jpg.tar.gz")
            if not (data / "whole").exists():
                data.mkdir(parents=True, exist_ok=True)
                task.write(task, data)
                (data / "whole").touch()
            found = runs_of(bench, task, key, kept, data)
            seeds = [seed for seed in chosen.seeds if all((name, seed) in found for name in COMPARED)]
            source, strengths = data / f"robustness{task.suffix}", bench.pick(STRENGTHS, (0.0, 1.0))
            curves = {}
            for name, seed in product(COMPARED, seeds):
                out = kept.folder / folder_of(key, name, seed)
                curves[name, seed] = Kept(out).get("robustness", partial(curves_of, out, source, strengths))
            table, earlier = robustness_table(curves), chosen.earlier if task.suffix else None
            robustness = {"robustness": {"test images": task.num_robustness, **table}}
            result[key] = accuracy_table(task, list(found.values()), earlier) | robustness
            panels += panels_of(task.title, table)
    bench.keep("augmentation", result)
    if not bench.is_quick:
        draw(panels, FIGURES / "robustness.png", columns=4)


def folder_of(key: str, name: str, seed: int) -> str:
    """Where a run is kept."""
    return f"{key}-{name.replace(' ', '')}-{seed}"


def runs_of(bench: Bench, task: Task, key: str, kept: Kept, data: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """By recipe and seed, after those that are missing were trained."""
    found = {}
    for seed, name in product(bench.pick(bench.options.seeds, [0]), bench.pick(list(task.recipes), COMPARED)):
        out = kept.folder / folder_of(key, name, seed)
        if not (out / "result.json").exists():
            if bench.options.report_only:
                continue
            trained = train(task, name, seed, data, out)
            Kept(out).put("result", trained)
        done = found[name, seed] = Kept(out).get("result")
        print(f"{key}, seed {seed}, {name}: {100 * done['accuracy']:.2f} % in {done['cpu_seconds']:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    main()
