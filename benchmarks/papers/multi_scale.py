"""Deep Image's multi-scale networks and its tests: resolutions alone and fused; from the centre to dense.

`small-cnn` is trained on the sample dataset, whose objects are often small, at a low, a middle and a high resolution,
and tested on images of another seed. Each network is tested by its centre, ten crops, and densely; the answers of two
are fused by averaging probabilities. Two networks of one resolution are fused, too: any two networks gain something.

    python -m benchmarks.papers.multi_scale
    python -m benchmarks.papers.multi_scale --try-lr 0.002 0.004 0.008     # how the learning rate was chosen

Finished runs and answers are kept; started again, only what is missing is run.
"""

import statistics
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from augpipe.trainer.evaluation import Views, mcnemar
from augpipe.trainer.evaluation.views import average_answers
from benchmarks.harness import Bench, each, interval
from benchmarks.papers.sample_runs import (
    BATCH_SIZE,
    FIRST,
    NETWORK,
    PARTS,
    TRIED_SEED,
    WEIGHT_DECAY,
    WIDTH,
    answers,
    error_of,
    images,
    loss,
    train,
)

SCALES = {"low": (48, 56, 64), "middle": (72, 84, 96), "high": (96, 112, 128)}
"""Short sides that a network is trained at, in pixels; its crops have the first one's size."""
NUM_SEEDS = 4
EPOCHS, LR = 36, 0.004
CENTRE, CLOSER, ALL = "centre, whole short side", "centre", "dense + scales + flip"
PAIRS = {
    "low and high": (("low", 0), ("high", 0)),
    "middle and high": (("middle", 0), ("high", 0)),
    "low and low": (("low", 0), ("low", 1)),
    "middle and middle": (("middle", 0), ("middle", 1)),
    "high and high": (("high", 0), ("high", 1)),
}
"""Networks that are fused: a resolution, and how many seeds further on (after the last comes the first)."""
COMPARED = (
    *(("low and high", other) for other in ("low", "high", "low and low", "high and high")),
    *(("middle and high", other) for other in ("middle", "high", "middle and middle", "high and high")),
    *((f"{name} and {name}", name) for name in SCALES),
)

Floats = npt.NDArray[np.float32]


def views_of(resolution: str) -> dict[str, Views]:
    """The ways to test a network; one scale is the middle one of training, several are all of them."""
    scales = SCALES[resolution]
    return {
        CENTRE: Views(scales=scales[:1]),
        CLOSER: Views(),
        "centre + flip": Views(flip=True),
        "ten crops": Views(crops=10),
        "dense": Views(dense=True),
        "dense + scales": Views(dense=True, scales=scales),
        ALL: Views(dense=True, scales=scales, flip=True),
    }


def train_at(
    resolution: str, seed: int, out: Path, source: Path, *, lr: float | None = None, epochs: int | None = None
) -> dict[str, Any]:
    scales = SCALES[resolution]
    chosen = {"lr": lr or LR, "epochs": epochs or EPOCHS}
    return train(out, source, size=scales[0], scales=scales, seed=seed, **chosen)


def fused(first: Floats, second: Floats) -> Floats:
    mean: Floats = average_answers(torch.from_numpy(np.stack([first, second])), torch.ones(2), "softmax").numpy()
    return mean


def report(
    bench: Bench, found: dict[tuple[str, int, str], Floats], labels: npt.NDArray[np.int64], about: dict[str, Any]
) -> None:
    """Keep the tables of both questions: what fusing gains, and what each way to test does."""
    seeds, views = sorted({seed for _, seed, _ in found}), list(views_of("low"))
    groups = {name: ((name, 0),) for name in SCALES} | PAIRS

    def errors(group: str, view: str) -> list[float]:
        values = []
        for seed in seeds:
            networks = [found[name, seeds[(seed + further) % len(seeds)], view] for name, further in groups[group]]
            values.append(error_of(networks[0] if len(networks) == 1 else fused(*networks), labels))
        return values

    def less(group: str, other: str, view: str) -> dict[str, Any]:
        return each([a - b for a, b in zip(errors(group, view), errors(other, view), strict=True)])

    def cut(group: str, view: str, base: str) -> dict[str, Any]:
        return each([1 - a / b for a, b in zip(errors(group, view), errors(group, base), strict=True)])

    def changed(name: str, seed: int) -> dict[str, Any]:
        before, after = (found[name, seed, view].argmax(1) == labels for view in (CENTRE, ALL))
        lost, gained = int((before & ~after).sum()), int((after & ~before).sum())
        return {"right to wrong": lost, "wrong to right": gained, "p": float(f"{mcnemar(lost, gained):.2g}")}

    bench.keep(
        "multi_scale",
        about
        | {
            "top-1 error": {group: {view: each(errors(group, view)) for view in views} for group in groups},
            "fused, with the same seeds, in points": {
                view: {f"{group} less {other}": less(group, other, view) for group, other in COMPARED} for view in views
            },
            "relative cut of the error": {
                f"against {base}": {
                    group: {view: cut(group, view, base) for view in views if view != base} for group in groups
                }
                for base in (CENTRE, CLOSER)
            },
            f"McNemar, {CENTRE} to {ALL}": {
                name: {f"seed {seed}": changed(name, seed) for seed in seeds} for name in SCALES
            },
        },
    )
    for group, view in product(groups, views):
        told = {base: cut(group, view, base)["mean, %"] for base in (CENTRE, CLOSER)}
        print(f"{group}, {view}: {interval(errors(group, view))}, cut against {told} %")


def try_rates(rates: list[float], epochs: int, kept: Path) -> None:
    """Print what each learning rate comes to on images of a third seed."""
    source, validation = images(kept, "train", FIRST), images(kept, "validation", FIRST)
    for name, lr in product(("low", "high"), rates):
        out = kept / f"{name}-{TRIED_SEED}-{lr:g}"
        done = train_at(name, TRIED_SEED, out, source, lr=lr, epochs=epochs)
        log_probs, labels = answers(out, validation, views_of(name)[CENTRE])
        wrong = error_of(log_probs, labels)
        print(
            f"{name}, lr {lr:g}: {loss(log_probs, labels):.3f}, error {wrong:.1%}, {done['cpu_seconds']} s", flush=True
        )


def main() -> None:
    bench = Bench(__doc__, kept=Path, seeds=NUM_SEEDS, try_lr=(0.0,), try_epochs=12)
    torch.set_num_threads(1)
    with bench.kept() as folder:
        if any(bench.options.try_lr):
            try_rates(bench.options.try_lr, bench.options.try_epochs, folder.folder)
        else:
            measure(bench, folder.folder)


def measure(bench: Bench, kept: Path) -> None:
    """Train and test what is missing, and report."""
    epochs = bench.pick(EPOCHS, 1)
    if bench.is_quick:
        PARTS.update(train=(100, 10, 1), test=(40, 10, 2))
    source, test = images(kept, "train", FIRST), images(kept, "test", FIRST)
    found, done, labels = {}, [], np.empty(0, np.int64)
    for seed, name in product(range(bench.pick(bench.options.seeds, 2)), SCALES):
        out = kept / f"{name}-{seed}"
        done.append(train_at(name, seed, out, source, epochs=epochs) | {"resolution": name})
        for view, shown in views_of(name).items():
            found[name, seed, view], labels = answers(out, test, shown)
        wrong = error_of(found[name, seed, CENTRE], labels), error_of(found[name, seed, ALL], labels)
        print(f"{name}, seed {seed}: {wrong[0]:.1%}, {ALL} {wrong[1]:.1%}, {done[-1]['cpu_seconds']} s", flush=True)
    what = f"{NETWORK} of width {WIDTH}, sample dataset, {len(FIRST)} classes"
    about = {
        "what": f"{what}, batches of {BATCH_SIZE}, adamw weight decay {WEIGHT_DECAY:g}",
        "classes": FIRST,
        "training images": PARTS["train"][0] // 2,
        "test images": len(labels),
        "epochs": epochs,
        "learning rate": LR,
        "how the learning rate was chosen": f"validation loss of low and high, 12 epochs, seed {TRIED_SEED}",
        "short sides, px": {name: list(scales) for name, scales in SCALES.items()},
        "CPU seconds of a training, median": {
            name: statistics.median(one["cpu_seconds"] for one in done if one["resolution"] == name) for name in SCALES
        },
    }
    report(bench, found, labels, about)


if __name__ == "__main__":
    main()
