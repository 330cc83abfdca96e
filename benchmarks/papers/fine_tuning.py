"""Fine-tuning with few images: all layers, the last three or the last one, beside training from scratch.

The protocol of Deep Image's paper on fine-grained classes: a network is trained on other classes, its last layer begins
anew, and all layers, its three fully connected ones or the last one alone are trained on. Here `small-cnn` with three
fully connected layers, five classes of the sample dataset to begin with, and its other five to be fine-tuned for.

    python -m benchmarks.papers.fine_tuning
    python -m benchmarks.papers.fine_tuning --try-lr 0.0003 0.001 0.003 0.01     # how the rates were chosen

Finished runs and answers are kept; started again, only what is missing is run.
"""

import random
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import torch

from augpipe.trainer.evaluation import Views
from augpipe.trainer.evaluation.trained_run import open_run
from augpipe.trainer.loop.world import open_world
from augpipe.trainer.models.finetune import last_layer
from benchmarks.harness import Bench, each, interval
from benchmarks.papers.sample_runs import (
    BATCH_SIZE,
    FIRST,
    NETWORK,
    OTHER,
    PARTS,
    TRIED_SEED,
    WEIGHT_DECAY,
    WIDTH,
    answers,
    error_of,
    images,
    listed,
    loss,
    train,
)

SIZE, SCALES, FC_WIDTHS = 96, (96, 112, 128), (128, 128)
VIEW = Views(scales=(SIZE,))
NUM_SEEDS = 3
FIRST_EPOCHS, FIRST_LR = 16, 0.004
EPOCHS = {20: 40, 100: 20}
"""By the number of images of a class."""
SCRATCH, START = "from scratch", {"all layers": "all", "last three layers": "last-fc:3", "last layer": "last"}
METHODS = (SCRATCH, *START)
LR = dict.fromkeys(product(METHODS, EPOCHS), 0.004) | {
    ("last three layers", 20): 0.016,
    ("last layer", 20): 0.016,
    ("last layer", 100): 0.016,
}
"""Those with the least error on validation images; of errors that one image makes differ, that with the lower loss."""


def few(kept: Path, num: int, seed: int) -> Path:
    """A list of `num` images of each of the other five classes, drawn by the seed."""
    images(kept, "train", OTHER)
    found = {name: sorted((kept / "train" / name).glob("*.jpg")) for name in OTHER}
    drawn = {name: random.Random(seed).sample(paths, num) for name, paths in found.items()}
    return listed(drawn, kept / f"{num}-{seed}.csv")


def weights_of(out: Path) -> Path:
    """A file with the weights of a run but its last layer's, which has as many outputs as the new one."""
    path = out / "weights.pt"
    if not path.exists():
        with open_world("cpu", 60.0) as world:
            network = open_run(out / "run", world).load_network()
        head = last_layer(network)
        kept = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith(f"{head}.")}
        torch.save(kept, path)
    return path


def begin(seed: int, kept: Path) -> Path:
    """The folder of a network trained on the first five classes."""
    out, options = kept / f"source-{seed}", {"fc_widths": list(FC_WIDTHS)}
    train(
        out,
        images(kept, "more", FIRST),
        size=SIZE,
        scales=SCALES,
        seed=seed,
        lr=FIRST_LR,
        epochs=FIRST_EPOCHS,
        options=options,
    )
    return out


def tune(method: str, num: int, seed: int, kept: Path, *, lr: float | None = None) -> Path:
    """The folder of a network trained on `num` images of each of the other five classes."""
    rate = lr or LR[method, num]
    source = few(kept, num, seed)
    out, options = kept / f"{method.replace(' ', '-')}-{num}-{seed}-{rate:g}", {"fc_widths": list(FC_WIDTHS)}
    model: dict[str, Any] = {}
    if method != SCRATCH:
        model = {"weights": str(weights_of(begin(seed, kept))), "new_head": True, "trainable": START[method]}
    train(out, source, size=SIZE, scales=SCALES, seed=seed, lr=rate, epochs=EPOCHS[num], options=options, model=model)
    return out


def error(out: Path, test: Path) -> tuple[float, float]:
    """The top-1 error of a run, and its cross-entropy."""
    log_probs, labels = answers(out, test, VIEW)
    return error_of(log_probs, labels), loss(log_probs, labels)


def report(bench: Bench, found: dict[tuple[str, int, int], float], about: dict[str, Any]) -> None:
    """Keep the table: each method's errors, and its difference to training from scratch with the same images."""
    seeds = sorted({seed for *_, seed in found})

    def less(num: int, method: str, other: str) -> dict[str, Any]:
        return each([found[method, num, seed] - found[other, num, seed] for seed in seeds])

    bench.keep(
        "fine_tuning",
        about
        | {
            "top-1 error": {
                f"{num} images a class": {
                    method: each([found[method, num, seed] for seed in seeds]) for method in METHODS
                }
                for num in EPOCHS
            },
            "with the same images, in points": {
                f"{num} images a class": {
                    f"{method} less {other}": less(num, method, other)
                    for method, other in [
                        *((method, SCRATCH) for method in START),
                        *((method, "all layers") for method in START if method != "all layers"),
                    ]
                }
                for num in EPOCHS
            },
        },
    )
    for method in METHODS:
        print(method, [interval([found[method, num, seed] for seed in seeds]) for num in EPOCHS])


def main() -> None:
    bench = Bench(__doc__, kept=Path, seeds=NUM_SEEDS, try_lr=(0.0,))
    torch.set_num_threads(1)
    with bench.kept() as folder:
        measure(bench, folder.folder)


def measure(bench: Bench, kept: Path) -> None:
    """Try learning rates, or train and test what is missing."""
    if any(bench.options.try_lr):
        validation = images(kept, "validation", OTHER)
        for num, method, lr in product(EPOCHS, METHODS, bench.options.try_lr):
            wrong, cross_entropy = error(tune(method, num, TRIED_SEED, kept, lr=lr), validation)
            print(f"{num} a class, {method}, lr {lr:g}: {cross_entropy:.3f}, error {wrong:.1%}", flush=True)
        return
    if bench.is_quick:
        shorten()
    test, first_test = images(kept, "test", OTHER), images(kept, "test", FIRST)
    found, begun = {}, []
    for seed in range(bench.pick(bench.options.seeds, 1)):
        begun.append(error(begin(seed, kept), first_test)[0])
        for num, method in product(EPOCHS, METHODS):
            found[method, num, seed] = error(tune(method, num, seed, kept), test)[0]
        told = ", ".join(
            f"{method} {found[method, num, seed]:.1%} of {num}" for num, method in product(EPOCHS, METHODS)
        )
        print(f"seed {seed}: {begun[-1]:.1%} before; {told}", flush=True)
    what = f"{NETWORK} of width {WIDTH} with fully connected layers of {FC_WIDTHS}, {SIZE} px, sample dataset"
    about = {
        "what": f"{what}, batches of {BATCH_SIZE}, adamw weight decay {WEIGHT_DECAY:g}",
        "test images": PARTS["test"][0] // 2,
        "classes before": FIRST,
        "classes": OTHER,
        "images before": PARTS["more"][0],
        "epochs before": FIRST_EPOCHS,
        "learning rate before": FIRST_LR,
        "epochs, by images a class": {str(num): epochs for num, epochs in EPOCHS.items()},
        "learning rate": {f"{num} images a class": {method: LR[method, num] for method in METHODS} for num in EPOCHS},
        "how the learning rate was chosen": f"error on validation images, seed {TRIED_SEED}",
        "error before, on its own classes, %": round(100 * statistics.mean(begun), 2),
    }
    report(bench, found, about)


def shorten() -> None:
    """As little as shows that the script runs."""
    global FIRST_EPOCHS
    FIRST_EPOCHS = 1
    EPOCHS.pop(100)
    EPOCHS[20] = 1
    PARTS.update(train=(400, 10, 1), test=(40, 10, 2), more=(40, 5, 4))


if __name__ == "__main__":
    main()
