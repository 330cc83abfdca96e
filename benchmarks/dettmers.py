"""Dettmers' experiments, rerun: does training with 8-bit gradients end at the same test error as with 32-bit ones?

Over two or four ranks of this machine (Gloo); the paper simulated a cluster on one GPU. Data parallel: each exchange of
gradients is a butterfly of the codec under test. Model parallel: fully and locally connected layers are split among the
ranks, and activations and error deltas are encoded as well. MNIST: his 784-1024-1024-10 network, dropout 0.2, 0.3, 0.3,
RMSProp; five seeds for 32 bits and each of his four 8-bit types, and his F-test. CIFAR-10: his convolutional network. A
seed fixes the first weights, the order of the samples and the dropout for all codecs alike. What the paper does not
say, batch size, epochs and schedule, is chosen so that two cores are done within an hour: the errors are those of short
training.

    python benchmarks/dettmers.py mnist
    python benchmarks/dettmers.py cifar10
    python benchmarks/dettmers.py mnist_split_2      # model parallel, as the next two are
    python benchmarks/dettmers.py mnist_split_4
    python benchmarks/dettmers.py cifar10_split_2

The same question for four bits and for one, both with error feedback, and for torch's PowerSGD hook, which has its own,
beside fp32; in runs of a minute or so:

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
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from augpipe.trainer import model as build
from augpipe.trainer import strategy
from augpipe.trainer.parallel import build_split, make_mesh
from augpipe.trainer.strategies import Strategy, butterfly_bytes

TYPES = ("fp32", "dynamic-tree", "linear", "mantissa", "static-tree")
FEEDBACK = " + error feedback"
FEW_BITS = ("fp32", f"nf4{FEEDBACK}", f"one-bit{FEEDBACK}")
"""A codec's name, and whether what its payloads leave out is sent later."""
POWER_SGD = "PowerSGD, rank "
POWER_SGD_RANKS = tuple(f"{POWER_SGD}{rank}" for rank in (1, 2, 4))
POWER_SGD_START = 2
"""Steps of which the hook sends the gradients as they are: the fewest that it takes; its default is a thousand."""
ONE_BUCKET_BYTES = 2**32
"""With several buckets the hook's second and third all-reduce would meet those of other buckets on Gloo."""
EVALUATION_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is trained, how, and how long."""

    data: str
    """The key in `DATA`."""
    network: str
    optimizer: str
    lr: float
    momentum: float
    weight_decay: float
    ranks: int = 2
    model_ranks: int = 1
    """How many of them a layer is split among; with one, training is data parallel."""
    rank_batch: int
    epochs: int
    evaluate_every: int = 1
    """Epochs, of which `epochs` is a multiple."""
    num_images: int
    """How many of the training set are used: the first ones in a fixed mixed order; the test set is always whole."""
    seeds: int
    types: tuple[str, ...]
    divide_after: tuple[float, ...]
    """Shares of the training after which the learning rate is divided by ten."""
    warm_up: int = 0
    """Epochs over which the learning rate rises from nothing."""


MNIST = Experiment(
    data="mnist",
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
)
CIFAR10 = Experiment(
    data="cifar10",
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
)
SPLIT_MNIST = replace(MNIST, epochs=2, num_images=20_000)
EXPERIMENTS = {
    "mnist": MNIST,
    "cifar10": CIFAR10,
    "mnist_split_2": replace(SPLIT_MNIST, ranks=2, model_ranks=2, rank_batch=128),
    "mnist_split_4": replace(SPLIT_MNIST, ranks=4, model_ranks=4, rank_batch=64),
    "cifar10_split_2": replace(CIFAR10, model_ranks=2, lr=0.004, epochs=5, evaluate_every=5, num_images=5_000, seeds=3),
    "mnist_few_bits": replace(MNIST, epochs=3, seeds=4, types=FEW_BITS + POWER_SGD_RANKS),
    "cifar10_few_bits": replace(
        CIFAR10,
        network="small-cnn",
        lr=0.05,
        weight_decay=0.0005,
        epochs=3,
        types=FEW_BITS + POWER_SGD_RANKS,
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
    images, labels = (data[f"test_{part}"][dist.get_rank() :: dist.get_world_size()] for part in ("images", "labels"))
    wrong = sum(
        int((network(images[at : at + EVALUATION_BATCH]).argmax(dim=1) != labels[at : at + EVALUATION_BATCH]).sum())
        for at in range(0, len(labels), EVALUATION_BATCH)
    )
    total = torch.tensor(wrong)
    dist.all_reduce(total)
    return int(total) / len(data["test_labels"])


def power_sgd(of: Experiment, network: nn.Module, matrix_rank: int) -> tuple[Strategy, PowerSGDState]:
    """torch's DistributedDataParallel with its PowerSGD hook, and the state that counts what the hook sends."""
    sync = strategy("ddp", network, optimizer_of(of), bucket_bytes=ONE_BUCKET_BYTES)
    state = PowerSGDState(None, matrix_approximation_rank=matrix_rank, start_powerSGD_iter=POWER_SGD_START)
    sync.module.register_comm_hook(state, powerSGD_hook)
    return sync, state


def power_sgd_bytes(state: PowerSGDState) -> int:
    """Bytes a rank sends in a step after the first ones: the hook's numbers, by the formula for an all-reduce."""
    _, _, num_sent = state.compression_stats()
    per_step = num_sent // (state.iter - POWER_SGD_START)
    return round(butterfly_bytes(per_step, dist.get_world_size(), lambda num: 4 * num))


def train(of: Experiment, codec: str, seed: int, data: dict[str, torch.Tensor]) -> dict[str, Any]:
    """One run; the test error after each epoch that is evaluated."""
    codec_name = codec.removesuffix(FEEDBACK)
    feedback = codec_name != codec
    make = partial(build, of.network, num_classes=10)
    torch.manual_seed(seed)
    split = None
    if of.model_ranks > 1:
        split = build_split(make, make_mesh(of.model_ranks), activations=codec_name, deltas=codec_name, seed=seed)
    network = make() if split is None else split.model
    power = None
    if codec.startswith(POWER_SGD):
        sync, power = power_sgd(of, network, int(codec.removeprefix(POWER_SGD)))
    else:
        sync = strategy("butterfly", network, optimizer_of(of), codec=codec_name, error_feedback=feedback, split=split)
    torch.manual_seed(1_000_003 * (seed + 1) + dist.get_rank())  # dropout differs between ranks, not between codecs
    some = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[: of.num_images]
    images, labels = data["train_images"][some], data["train_labels"][some]
    steps = len(labels) // (of.rank_batch * of.ranks)
    num, milestones = steps * of.epochs, [round(share * steps * of.epochs) for share in of.divide_after]
    errors, start, done, num_bytes = [], time.perf_counter(), 0, 0
    for epoch in range(of.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed * 1000 + epoch))
        sync.module.train()
        before = sum(sync.meter.total.values())
        for step in range(steps):
            first = (step * of.ranks + dist.get_rank()) * of.rank_batch
            batch = order[first : first + of.rank_batch]
            warmth = min(1.0, (done + 1) / (of.warm_up * steps)) if of.warm_up else 1.0
            sync.set_lr(warmth * 0.1 ** sum(done >= milestone for milestone in milestones))
            nn.functional.cross_entropy(sync.module(images[batch]), labels[batch]).backward()
            sync.step()
            done += 1
        sync.flush()
        num_bytes += sum(sync.meter.total.values()) - before
        if (epoch + 1) % of.evaluate_every == 0:
            errors.append(test_error(network, data))
    assert done == num
    sync.close()
    if split is not None:
        split.close()
    return {
        "codec": codec,
        "seed": seed,
        "errors": errors,
        "bytes a step": round(num_bytes / num) if power is None else power_sgd_bytes(power),
        "seconds": round(time.perf_counter() - start, 1),
    }


def work(rank: int, port: int, name: str, of: Experiment, kept: str) -> None:
    """One rank: all the runs that are missing, one after the other."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, of.ranks, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=of.ranks)
    data = DATA[of.data](Path(os.environ["AUGPIPE_DATA"]))
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


def table_of(runs: list[dict[str, Any]], types: tuple[str, ...]) -> dict[str, Any]:
    """Each type's errors, means, confidence intervals and errors over fp32's, of the seeds that all types have."""
    from scipy import stats

    seeds = sorted(set.intersection(*({run["seed"] for run in runs if run["codec"] == codec} for codec in types)))
    num = len(seeds)
    table: dict[str, Any] = {}
    last, best = {}, {}
    for codec in types:
        of_seed = {run["seed"]: run for run in runs if run["codec"] == codec}
        last[codec] = [of_seed[seed]["errors"][-1] for seed in seeds]
        best[codec] = [min(of_seed[seed]["errors"]) for seed in seeds]
        mean, fp32 = statistics.mean(last[codec]), statistics.mean(last["fp32"])
        more = [error - other for error, other in zip(last[codec], last["fp32"], strict=True)]
        half, half_more = dict.fromkeys((95, 99), 0.0), 0.0
        if num > 1:
            quantiles = {level: float(stats.t.ppf((1 + level / 100) / 2, num - 1)) / num**0.5 for level in half}
            half = {level: quantile * statistics.stdev(last[codec]) for level, quantile in quantiles.items()}
            half_more = quantiles[95] * statistics.stdev(more)
        table[codec] = {
            "test error after the last epoch, %": [round(100 * error, 2) for error in last[codec]],
            "mean, %": round(100 * mean, 3),
            **{f"{level} % confidence, +- %": round(100 * value, 3) for level, value in half.items()},
            "best over the epochs, mean, %": round(100 * statistics.mean(best[codec]), 3),
            "over fp32": round(mean / fp32, 4),
            "accuracy over fp32's": round((1 - mean) / (1 - fp32), 5),
        }
        if codec != "fp32" and num > 1:  # a seed's weights, order and dropout are the same for all types
            paired = stats.ttest_rel(last[codec], last["fp32"])
            table[codec]["over fp32, paired by seed"] = {
                "95 % confidence, +-": round(half_more / fp32, 4),
                "p": float(f"{paired.pvalue:.2g}"),
            }
        sent = [of_seed[seed]["bytes a step"] for seed in seeds if "bytes a step" in of_seed[seed]]
        if sent:
            table[codec]["bytes that rank 0 sends a step"] = round(statistics.mean(sent))
    tests = {}
    for what, groups in {"last epoch": last, "best epoch": best}.items():
        if num > 1:
            found = stats.f_oneway(*groups.values())
            between, within = len(groups) - 1, (num - 1) * len(groups)
            tests[what] = f"F({between}, {within}) = {found.statistic:.2f}, p = {found.pvalue:.2g}"
    return {"seeds": seeds, "types": table, "one-way analysis of variance of the test errors": tests}


def report(name: str, of: Experiment, runs: list[dict[str, Any]]) -> None:
    """Keep the table of the seeds that all types have, and of those more that fp32 and some types have."""
    result = table_of(runs, of.types)
    num_runs = {codec: sum(run["codec"] == codec for run in runs) for codec in of.types}
    with_more = tuple(codec for codec in of.types if num_runs[codec] > len(result["seeds"]))
    if "fp32" in with_more and len(with_more) > 1:
        result["with more seeds"] = table_of(runs, with_more)
    way = "butterfly over" if of.model_ranks == 1 else "layers split among"
    if set(of.types) & set(POWER_SGD_RANKS):
        way = f"butterfly, or DDP with the PowerSGD hook after {POWER_SGD_START} steps as they are, over"
    save(
        f"dettmers_{name}",
        {
            "what": f"{of.network}, {of.num_images:,} training pictures, "
            f"{way} {of.ranks} ranks of {of.rank_batch} pictures a step, "
            f"{of.optimizer} lr {of.lr:g} momentum {of.momentum:g} weight decay {of.weight_decay:g}, "
            f"{f'rising over {of.warm_up} epoch(s), ' * (of.warm_up > 0)}divided by ten "
            f"after {', '.join(f'{share:.0%}' for share in of.divide_after)} of {of.epochs} epochs",
            "command": f"python benchmarks/dettmers.py {name}",
            **result,
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
    torch.multiprocessing.spawn(work, (server.port, chosen.dataset, of, str(kept)), nprocs=of.ranks)
    runs = [json.loads(path.read_text()) for path in sorted(kept.glob(f"{chosen.dataset}-*.json"))]
    runs = [run for run in runs if run["seed"] < of.seeds]
    found = {run["codec"] for run in runs}
    types = tuple(name for name in EXPERIMENTS[chosen.dataset].types if name in found)
    if "fp32" in types:  # what the others are compared with
        report(chosen.dataset, replace(of, types=types), runs)


if __name__ == "__main__":
    main()
