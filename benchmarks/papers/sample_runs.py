"""Runs of the trainer on the sample dataset, which several benchmarks share: images, config, training, answers.

A folder keeps all of it, so that a benchmark that was stopped goes on where it was.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe import Recipe, ops
from augpipe.datasets.synthetic.generate import class_names, generate
from augpipe.trainer.config import make_config
from augpipe.trainer.evaluation import Views, evaluate_runs
from augpipe.trainer.loop.run import run

NETWORK, WIDTH, BATCH_SIZE, WEIGHT_DECAY = "small-cnn", 16, 32, 0.05
TRIED_SEED = 100
"""Learning rates are tried with this seed, which is none of those that are tested."""

ALL_CLASSES = class_names(10)
FIRST, OTHER = ALL_CLASSES[:5], ALL_CLASSES[5:]
"""Half of the classes each: what one network is trained for does not occur in the other half."""
PARTS = {"train": (2000, 10, 1), "test": (2000, 10, 2), "validation": (500, 10, 3), "more": (2500, 5, 4)}
"""How many images of how many classes, and the seed that they are drawn from."""


def images(kept: Path, part: str, classes: list[str]) -> Path:
    """A list of the images of some classes in one of `PARTS`, drawn where they are not there yet."""
    folder, (num, num_classes, seed) = kept / part, PARTS[part]
    generate(folder, num=num, classes=num_classes, seed=seed, workers=1)
    return listed({name: sorted((folder / name).glob("*.jpg")) for name in classes}, kept / f"{part}-{classes[0]}.csv")


def listed(paths: dict[str, list[Path]], out: Path) -> Path:
    """A list of images and their classes, as a file that the trainer takes for a source."""
    lines = [f"{path},{name}" for name, some in paths.items() for path in some]
    out.write_text("\n".join(["path,label", *lines]) + "\n")
    return out


def train(
    out: Path,
    source: Path,
    *,
    size: int,
    scales: tuple[int, ...],
    seed: int,
    lr: float,
    epochs: int,
    model: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a network, or look up the run that is there: its last epoch's training loss and what it took.

    Args:
        out: the run's folder.
        source: what to train on, with the demo's augmentation: colour casts, flips and crops of one of several scales.
        size: height and width of the crops, in pixels.
        scales: short sides of the resized images, in pixels; evaluation takes the middle one.
        model: more of the `[model]` table.
        options: more options of the network.
    """
    about = out / "done.json"
    if about.exists():
        done: dict[str, Any] = json.loads(about.read_text())
        return done
    out.mkdir(parents=True, exist_ok=True)
    drawn = (ops.ColorCast(), ops.Flip(), ops.MultiResolutionCrop(size=size, scales=scales), ops.Normalize())
    Recipe(ops=drawn).dump(out / "recipe.toml")
    network = {"name": NETWORK, "options": {"width": WIDTH} | (options or {}), "channels_last": True}
    config = {
        "out": f"{out}/run",
        "epochs": epochs,
        "seed": seed,
        "device": "cpu",
        "data": {
            "source": str(source),
            "recipe": f"{out}/recipe.toml",
            "eval_scale": scales[len(scales) // 2],
            "batch_size": BATCH_SIZE,
            "num_threads": 1,
            "cache": "host",
        },
        "model": network | (model or {}),
        "optim": {"lr": lr, "weight_decay": WEIGHT_DECAY, "decay_1d": False},
        "schedule": {"warmup_epochs": round(0.1 * epochs, 3)},
        "checkpoint": {"every_epochs": 0},
        "report": {"progress": False, "tensorboard": False},
    }
    start = time.process_time()
    run(make_config(config))
    done = {"out": out.name, "seed": seed, "lr": lr, "cpu_seconds": round(time.process_time() - start, 1)}
    about.write_text(json.dumps(done))
    return done


def answers(out: Path, source: Path, views: Views) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """What a run says of images: (N, C) the logarithms of probabilities, and (N,) the right classes; kept beside it."""
    path = out / f"{source.stem} {views}.npz"
    if not path.exists():
        found = evaluate_runs(out / "run", views, source=source, device="cpu")
        np.savez(path, log_probs=found.log_probs, labels=found.labels)
    with np.load(path) as content:
        return content["log_probs"], content["labels"]


def loss(log_probs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
    """Mean cross-entropy."""
    return float(-log_probs[np.arange(len(labels)), labels].mean())


def error_of(log_probs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
    """The share of images whose likeliest class is not theirs."""
    return float((log_probs.argmax(1) != labels).mean())
