"""Dettmers' experiments, rerun: does training with 8-bit gradients end at the same test error as with 32-bit ones?

Data parallel over two ranks on this machine (Gloo), every exchange a butterfly of the codec under test; the paper
simulated a cluster on one GPU. MNIST: his 784-1024-1024-10 network, dropout 0.2, 0.3, 0.3, RMSProp; five seeds for 32
bits and each of his four 8-bit types, and his F-test. CIFAR-10: his convolutional network. A seed fixes the first
weights, the order of the samples and the dropout for all codecs alike. What the paper does not say, batch size, epochs
and schedule, is chosen so that two cores are done within an hour: the errors are those of short training.

    python benchmarks/dettmers.py mnist
    python benchmarks/dettmers.py cifar10

The same question for four bits and for one, both with error feedback, beside fp32; in runs of a minute or so:

    python benchmarks/dettmers.py mnist_few_bits
    python benchmarks/dettmers.py cifar10_few_bits

Each finished run is kept beside the results at once; started again, only what is missing is run.
"""

import argparse
import itertools
import json
import os
import statistics
import tarfile
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import RESULTS, save
from torch import nn

from augpipe.trainer import model as build
from augpipe.trainer import strategy

WORLD_SIZE = 2
TYPES = ("fp32", "dynamic-tree", "linear", "mantissa", "static-tree")
FEEDBACK = " + error feedback"
FEW_BITS = ("fp32", f"nf4{FEEDBACK}", f"one-bit{FEEDBACK}")
"""A codec's name, and whether what its payloads leave out is sent later."""
EVALUATION_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is trained, how, and how long."""

    data: str = ""
    """The key in `DATA`; empty for the experiment's own name."""
    network: str
    optimizer: str
    lr: float
    momentum: float
    weight_decay: float
    rank_batch: int
    epochs: int
    num_images: int
    """How many of the training set are used: the first ones in a fixed mixed order; the test set is always whole."""
    seeds: int
    types: tuple[str, ...]
    divide_after: tuple[float, ...]
    """Shares of the training after which the learning rate is divided by ten."""
    warm_up: int = 0
    """Epochs over which the learning rate rises from nothing."""


EXPERIMENTS = {
    "mnist": Experiment(
        network="mnist-mlp",
        optimizer="rmsprop",
        lr=0.0005,
        momentum=0.0,
        weight_decay=0.0,
        rank_batch=128,
        epochs=6,
        num_images=60_000,
        seeds=5,
        types=TYPES,
        divide_after=(0.7,),
    ),
    "cifar10": Experiment(
        network="cifar-conv",
        optimizer="sgd",
        lr=0.006,
        momentum=0.9,
        weight_decay=0.001,
        rank_batch=64,
        epochs=6,
        num_images=20_000,
        seeds=4,
        types=("fp32", "dynamic-tree"),
        divide_after=(0.6, 0.85),
        warm_up=1,
    ),
    "mnist_few_bits": Experiment(
        data="mnist",
        network="mnist-mlp",
        optimizer="rmsprop",
        lr=0.0005,
        momentum=0.0,
        weight_decay=0.0,
        rank_batch=128,
        epochs=3,
        num_images=60_000,
        seeds=4,
        types=FEW_BITS,
        divide_after=(0.7,),
    ),
    "cifar10_few_bits": Experiment(
        data="cifar10",
        network="small-cnn",
        optimizer="sgd",
        lr=0.05,
        momentum=0.9,
        weight_decay=0.0005,
        rank_batch=64,
        epochs=3,
        num_images=20_000,
        seeds=4,
        types=FEW_BITS,
        divide_after=(0.6, 0.85),
        warm_up=1,
    ),
}


def mnist(folder: Path) -> dict[str, torch.Tensor]:
    """Images (N, 1, 28, 28) float32 in 0..1 and int64 labels, for training and for testing."""
    with np.load(folder / "mnist.npz") as file:
        return {
            part: torch.from_numpy(
                file[part][:, None].astype(np.float32) / 255 if part.endswith("images") else file[part].astype(np.int64)
            )
            for part in ("train_images", "train_labels", "test_images", "test_labels")
        }


def cifar10(folder: Path) -> dict[str, torch.Tensor]:
    """Images (N, 3, 32, 32) float32 less the mean image, in units of one standard deviation, and int64 labels."""
    import simplejpeg

    pictures: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    labels: dict[str, list[str]] = {"train": [], "test": []}
    with tarfile.open(folder / "cifar10_jpg.tar.gz") as tar:
        for member in tar:
            parts = Path(member.name).parts[-3:]
            if member.isfile() and parts[0] in pictures:
                content = tar.extractfile(member)
                assert content is not None
                pictures[parts[0]].append(simplejpeg.decode_jpeg(content.read()))
                labels[parts[0]].append(parts[1])
    classes = sorted(set(labels["train"]))
    data = {}
    mean = std = np.float32(0)
    for part in ("train", "test"):
        images = np.stack(pictures[part]).transpose(0, 3, 1, 2).astype(np.float32)
        if part == "train":
            mean, std = images.mean(axis=0), images.std()
        data[f"{part}_images"] = torch.from_numpy((images - mean) / std)
        data[f"{part}_labels"] = torch.tensor([classes.index(label) for label in labels[part]])
    return data


DATA = {"mnist": mnist, "cifar10": cifar10}


def optimizer_of(of: Experiment) -> Any:
    """What builds the optimizer from the parameters."""
    if of.optimizer == "rmsprop":
        return partial(torch.optim.RMSprop, lr=of.lr, momentum=of.momentum, weight_decay=of.weight_decay)
    return partial(torch.optim.SGD, lr=of.lr, momentum=of.momentum, weight_decay=of.weight_decay)


@torch.no_grad()
def test_error(network: nn.Module, data: dict[str, torch.Tensor]) -> float:
    """Share of the test images that are taken for something else; each rank looks at its part."""
    network.eval()
    images, labels = (data[f"test_{part}"][dist.get_rank() :: WORLD_SIZE] for part in ("images", "labels"))
    wrong = sum(
        int((network(images[at : at + EVALUATION_BATCH]).argmax(dim=1) != labels[at : at + EVALUATION_BATCH]).sum())
        for at in range(0, len(labels), EVALUATION_BATCH)
    )
    total = torch.tensor(wrong)
    dist.all_reduce(total)
    return int(total) / len(data["test_labels"])


def train(of: Experiment, codec: str, seed: int, data: dict[str, torch.Tensor]) -> dict[str, Any]:
    """One run; the test error after each epoch."""
    torch.manual_seed(seed)
    network = build(of.network, num_classes=10)
    codec_name = codec.removesuffix(FEEDBACK)
    feedback = codec_name != codec
    sync = strategy("butterfly", network, optimizer_of(of), codec=codec_name, error_feedback=feedback)
    torch.manual_seed(1_000_003 * (seed + 1) + dist.get_rank())  # dropout differs between ranks, not between codecs
    some = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[: of.num_images]
    images, labels = data["train_images"][some], data["train_labels"][some]
    steps = len(labels) // (of.rank_batch * WORLD_SIZE)
    num, milestones = steps * of.epochs, [round(share * steps * of.epochs) for share in of.divide_after]
    errors, start, done = [], time.perf_counter(), 0
    for epoch in range(of.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed * 1000 + epoch))
        sync.module.train()
        for step in range(steps):
            first = (step * WORLD_SIZE + dist.get_rank()) * of.rank_batch
            batch = order[first : first + of.rank_batch]
            warmth = min(1.0, (done + 1) / (of.warm_up * steps)) if of.warm_up else 1.0
            sync.set_lr(warmth * 0.1 ** sum(done >= milestone for milestone in milestones))
            nn.functional.cross_entropy(sync.module(images[batch]), labels[batch]).backward()
            sync.step()
            done += 1
        sync.flush()
        errors.append(test_error(network, data))
    assert done == num
    sync.close()
    return {
        "codec": codec,
        "seed": seed,
        "errors": errors,
        "bytes a step": round(sum(sync.meter.total.values()) / num),
        "seconds": round(time.perf_counter() - start, 1),
    }


def work(rank: int, port: int, name: str, of: Experiment, kept: str) -> None:
    """One rank: all the runs that are missing, one after the other."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, WORLD_SIZE, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    data = DATA[of.data or name](Path(os.environ["AUGPIPE_DATA"]))
    for seed, codec in itertools.product(range(of.seeds), of.types):
        path = Path(kept) / f"{name}-{codec.replace(' ', '')}-{seed}.json"
        waiting = torch.tensor(0 if path.exists() else 1)
        dist.broadcast(waiting, src=0)
        if not int(waiting):
            continue
        run = train(of, codec, seed, data)
        if rank == 0:
            path.write_text(json.dumps(run))
            took = f"{run['seconds']:.0f} s"
            print(f"{name} {codec:24} seed {seed}: {100 * run['errors'][-1]:.2f} % in {took}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


def report(name: str, of: Experiment, runs: list[dict[str, Any]]) -> None:
    """Keep the table: mean and 99 % confidence interval of each type, the F-test, and errors relative to fp32's."""
    from scipy import stats

    table, last, best = {}, {}, {}
    for codec in of.types:
        errors = [run["errors"] for run in runs if run["codec"] == codec]
        last[codec], best[codec] = [row[-1] for row in errors], [min(row) for row in errors]
        half = 0.0
        if len(errors) > 1:
            half = float(stats.t.ppf(0.995, len(errors) - 1)) * statistics.stdev(last[codec]) / len(errors) ** 0.5
        table[codec] = {
            "test error after the last epoch, %": [round(100 * error, 2) for error in last[codec]],
            "mean, %": round(100 * statistics.mean(last[codec]), 3),
            "99 % confidence, +- %": round(100 * half, 3),
            "best over the epochs, mean, %": round(100 * statistics.mean(best[codec]), 3),
            "over fp32": round(statistics.mean(last[codec]) / statistics.mean(last["fp32"]), 4),
            "accuracy over fp32's": round((1 - statistics.mean(last[codec])) / (1 - statistics.mean(last["fp32"])), 5),
        }
        sent = [run["bytes a step"] for run in runs if run["codec"] == codec and "bytes a step" in run]
        if sent:
            table[codec]["bytes that rank 0 sends a step"] = round(statistics.mean(sent))
    tests = {}
    for what, groups in {"last epoch": last, "best epoch": best}.items():
        if of.seeds > 1:
            found = stats.f_oneway(*groups.values())
            between, within = len(groups) - 1, sum(map(len, groups.values())) - len(groups)
            tests[what] = f"F({between}, {within}) = {found.statistic:.2f}, p = {found.pvalue:.2f}"
    save(
        f"dettmers_{name}",
        {
            "what": f"{of.network}, {of.num_images:,} training pictures, "
            f"butterfly over {WORLD_SIZE} ranks of {of.rank_batch} pictures a step, "
            f"{of.optimizer} lr {of.lr:g} momentum {of.momentum:g} weight decay {of.weight_decay:g}, "
            f"{f'rising over {of.warm_up} epoch(s), ' * (of.warm_up > 0)}divided by ten "
            f"after {', '.join(f'{share:.0%}' for share in of.divide_after)} of {of.epochs} epochs",
            "command": f"python benchmarks/dettmers.py {name}",
            "types": table,
            "one-way analysis of variance of the test errors": tests,
            "seconds, all runs": round(sum(run["seconds"] for run in runs)),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=EXPERIMENTS)
    parser.add_argument("--types", nargs="+", help="run these alone for now; the table has what is there")
    parser.add_argument("--seeds", type=int, help="how many; the experiment's own number by default")
    parser.add_argument("--kept", type=Path, help="folder for finished runs; default: a temporary one of today")
    chosen = parser.parse_args()
    of = EXPERIMENTS[chosen.dataset]
    if chosen.seeds:
        of = replace(of, seeds=chosen.seeds)
    if chosen.types:
        of = replace(of, types=tuple(chosen.types))
    if "AUGPIPE_DATA" not in os.environ:
        raise SystemExit("Set AUGPIPE_DATA to the folder that holds mnist.npz and cifar10_jpg.tar.gz.")
    kept = chosen.kept or Path(tempfile.gettempdir()) / f"augpipe-dettmers-{datetime.now(UTC):%Y-%m-%d}"
    kept.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(work, (server.port, chosen.dataset, of, str(kept)), nprocs=WORLD_SIZE)
    runs = [json.loads(path.read_text()) for path in sorted(kept.glob(f"{chosen.dataset}-*.json"))]
    found = {run["codec"] for run in runs}
    types = tuple(name for name in EXPERIMENTS[chosen.dataset].types if name in found)
    if "fp32" in types:  # what the others are compared with
        report(chosen.dataset, replace(of, types=types), runs)


if __name__ == "__main__":
    main()
