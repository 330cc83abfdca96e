"""What augmentation is worth: the test accuracy of one small network on CIFAR-10 with more and more of it.

The trainer runs on CIFAR's binary files, written once from the JPEGs. A seed fixes the first weights and the order of
the samples for all recipes alike, so that recipes are compared seed by seed, too. The budget is that of one thread and
two minutes a run: accuracies are those of short training on a part of the images.

    python benchmarks/augmentation.py
    python benchmarks/augmentation.py --try-lr 0.003 0.01 0.02 0.03     # how the learning rate was chosen

Each finished run is kept beside the results at once; started again, only what is missing is run.
"""

import argparse
import csv
import json
import os
import statistics
import tarfile
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import save

from augpipe import Recipe, ops, policies
from augpipe.order import sample_ids
from augpipe.trainer.config import make_config
from augpipe.trainer.loop import run

NETWORK, WIDTH = "small-cnn", 16
NUM_IMAGES, EPOCHS, BATCH_SIZE, LR, WEIGHT_DECAY = 10_000, 30, 128, 0.02, 0.01
NUM_SEEDS, TRIED_SEED = 5, 100
SIDE, STEPS = 32, NUM_IMAGES // BATCH_SIZE
NORMALIZE = ops.Normalize(mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262))
CENTER = ops.CenterCrop(size=SIDE)
MOVED = ops.Translate(horizontal=(-4, 4), vertical=(-4, 4), unit="px", step=1)
"""With a reflected border it is a random crop of the image padded by four pixels, as torchvision's RandomCrop."""
CROP, TRIVIAL = (CENTER, MOVED), policies.trivial_augment_wide()
MIXING = (ops.MixUp(alpha=0.2, p=0.5),)
NONE, FLIP_CROP, ALTERNATING = "none", "flip + crop", "alternating flip + crop"
RECIPES = {
    NONE: Recipe(ops=(CENTER, NORMALIZE)),
    FLIP_CROP: Recipe(border="reflect", ops=(*CROP, ops.Flip(), NORMALIZE)),
    "flip + crop + TrivialAugment": Recipe(border="reflect", ops=(*CROP, ops.Flip(), *TRIVIAL, NORMALIZE)),
    "flip + crop + TrivialAugment + MixUp": Recipe(
        border="reflect", ops=(*CROP, ops.Flip(), *TRIVIAL, NORMALIZE), mixing=MIXING
    ),
    ALTERNATING: Recipe(border="reflect", ops=(*CROP, ops.Flip(alternate=True), NORMALIZE)),
}
"""Each adds to the one before, but the last, which is the second with flips that alternate (Jordan 2024)."""


def write_cifar(archive: Path, out: Path) -> None:
    """CIFAR-10's binary files from its JPEGs: of the training images the first `NUM_IMAGES` of a mixed order."""
    import simplejpeg

    records: dict[str, list[tuple[str, bytes]]] = {"train": [], "test": []}
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts[-3:]
            if member.isfile() and parts[0] in records:
                content = tar.extractfile(member)
                assert content is not None
                image = simplejpeg.decode_jpeg(content.read())
                records[parts[0]].append((parts[1], image.transpose(2, 0, 1).tobytes()))
    classes = sorted({name for name, _ in records["train"]})
    chosen = sample_ids(np.arange(NUM_IMAGES), len(records["train"]), 0, 0, True)
    records["train"] = [records["train"][index] for index in chosen]
    (out / "batches.meta.txt").write_text("".join(f"{name}\n" for name in classes))
    for part, rows in records.items():
        (out / f"{part}.bin").write_bytes(b"".join(bytes([classes.index(name)]) + data for name, data in rows))


def config_of(name: str, seed: int, lr: float, epochs: int, folder: Path, out: Path) -> dict[str, Any]:
    """The tables of a run; recipes are written beside it."""
    for field, recipe in {"recipe": RECIPES[name], "eval_recipe": RECIPES[NONE]}.items():
        recipe.dump(out / f"{field}.toml")
    return {
        "out": f"{out}/run",
        "epochs": epochs,
        "seed": seed,
        "device": "cpu",
        "data": {
            "source": str(folder / "train.bin"),
            "recipe": f"{out}/recipe.toml",
            "eval_recipe": f"{out}/eval_recipe.toml",
            "batch_size": BATCH_SIZE,
            "eval_batch_size": 1000,
            "num_threads": 1,
        },
        "model": {"name": NETWORK, "options": {"width": WIDTH}, "channels_last": True},
        "optim": {"lr": lr, "weight_decay": WEIGHT_DECAY, "decay_1d": False},
        "schedule": {"warmup_epochs": 1.0},
        "checkpoint": {"every_epochs": 0},
        "report": {"progress": False, "tensorboard": False, "log_every": STEPS},
    }


def train(name: str, seed: int, folder: Path, *, lr: float = LR, epochs: int = EPOCHS) -> dict[str, Any]:
    """One run of the trainer: the accuracy on all test images, and the loss over the last epoch's training images.

    The run is stopped before its last step and resumed with test images, so that they are looked at once, at its end.
    """
    start, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as out:
        config = config_of(name, seed, lr, epochs, folder, Path(out))
        run(make_config(config, [f"max_steps={epochs * STEPS - 1}"]))
        result = run(make_config(config, [f"data.eval_source={folder / 'test.bin'}"]))
        with open(f"{out}/run/metrics.csv", newline="") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]][:-1]  # less the last step
    assert result.evaluation is not None and result.evaluation.num_samples == 10_000
    return {
        "recipe": name,
        "seed": seed,
        "accuracy": result.evaluation.top1,
        "test_loss": round(result.evaluation.loss, 4),
        "training_loss": losses,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def interval(values: list[float]) -> dict[str, float]:
    """Mean and half of the 95 % confidence interval of Student's t, in percent."""
    from scipy import stats

    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return {"mean, %": round(100 * statistics.mean(values), 2), "95 % confidence, +- %": round(100 * half, 2)}


def report(runs: list[dict[str, Any]], command: str) -> None:
    """Keep the table: each recipe's accuracies, and what it adds to another one with the same seeds; print it, too."""
    of = {name: [run["accuracy"] for run in runs if run["recipe"] == name] for name in RECIPES}
    pairs = [*pairwise(list(RECIPES)[:-1]), (FLIP_CROP, ALTERNATING)]
    save(
        "augmentation",
        {
            "what": f"CIFAR-10, {NUM_IMAGES:,} training images, all test images after the last of {EPOCHS} epochs, "
            f"{NETWORK} of width {WIDTH}, batches of {BATCH_SIZE}, adamw lr {LR:g} weight decay {WEIGHT_DECAY:g}, "
            "rising over one epoch, then falling as a cosine",
            "command": command,
            "test accuracy": {
                name: {"each seed, %": [round(100 * value, 2) for value in values], **interval(values)}
                for name, values in of.items()
            },
            "with the same seeds, %": {
                f"{more} less {fewer}": {
                    "each seed, %": [round(100 * (b - a), 2) for a, b in zip(of[fewer], of[more], strict=True)],
                    **interval([b - a for a, b in zip(of[fewer], of[more], strict=True)]),
                }
                for fewer, more in pairs
            },
            "training loss, last epoch, mean": {
                name: round(statistics.mean(run["training_loss"][-1] for run in runs if run["recipe"] == name), 3)
                for name in RECIPES
            },
            "CPU seconds a run, median": {
                name: round(statistics.median(run["cpu_seconds"] for run in runs if run["recipe"] == name))
                for name in RECIPES
            },
            "seconds, all runs": round(sum(run["seconds"] for run in runs)),
        },
    )

    print(f"\n| | {len({run['seed'] for run in runs})} seeds | mean | 95 % confidence |\n|---|---|---|---|")
    for name, values in of.items():
        mean, half = interval(values).values()
        print(f"| {name} | {', '.join(f'{100 * value:.2f}' for value in values)} | {mean:.2f} | ±{half:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, help="folder for finished runs; default: a temporary one of today")
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS, help="how many seeds, from 0 on; 2 at least")
    parser.add_argument("--try-lr", type=float, nargs="+", help="only print training losses of flip + crop at these")
    parser.add_argument("--try-epochs", type=int, default=12, help="how long --try-lr trains")
    chosen = parser.parse_args()
    if "AUGPIPE_DATA" not in os.environ:
        raise SystemExit("Set AUGPIPE_DATA to the folder that holds cifar10_jpg.tar.gz.")
    kept = chosen.kept or Path(tempfile.gettempdir()) / f"augpipe-augmentation-{datetime.now(UTC):%Y-%m-%d}"
    kept.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_cifar(Path(os.environ["AUGPIPE_DATA"]) / "cifar10_jpg.tar.gz", Path(folder))
        for lr in chosen.try_lr or ():
            tried = train(FLIP_CROP, TRIED_SEED, Path(folder), lr=lr, epochs=chosen.try_epochs)
            print(
                f"lr {lr:g}: training loss {tried['training_loss'][-1]:.4f} in the last of {chosen.try_epochs} epochs"
            )
        if chosen.try_lr:
            return
        for seed, name in product(range(chosen.seeds), RECIPES):
            path = kept / f"{name.replace(' ', '')}-{seed}.json"
            if not path.exists():
                done = train(name, seed, Path(folder))
                path.write_text(json.dumps(done))
                print(f"seed {seed}, {name}: {100 * done['accuracy']:.2f} % in {done['seconds']:.0f} s", flush=True)
    done = [kept / f"{name.replace(' ', '')}-{seed}.json" for name, seed in product(RECIPES, range(chosen.seeds))]
    seeds = f" --seeds {chosen.seeds}" if chosen.seeds != NUM_SEEDS else ""
    command = f"OMP_NUM_THREADS=1 AUGPIPE_DATA=FOLDER nice -n 5 python benchmarks/augmentation.py{seeds}"
    report([json.loads(path.read_text()) for path in done], command)


if __name__ == "__main__":
    main()
