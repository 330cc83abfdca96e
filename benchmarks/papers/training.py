"""Training over ranks of this machine (Gloo), for dettmers.py and convergence.py: data, a strategy, kept runs.

A seed fixes the first weights, the order of the samples and the flips for all ways to exchange gradients alike.
"""

import json
import math
import os
import tarfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks import ranks
from benchmarks.harness import Kept

FEEDBACK = " + error feedback"
"""Behind a codec's name: what its payloads leave out is sent later."""
POWER_SGD, POWER_SGD_START = "PowerSGD, rank ", 2
"""torch's hook, and the steps of which it sends the gradients as they are: the fewest that it takes; its default is a
thousand."""
ONE_BUCKET_BYTES = 2**32
"""With several buckets the hook's second and third all-reduce would meet those of other buckets on Gloo."""
EVALUATION_BATCH = 500


def mnist(folder: Path) -> dict[str, Tensor]:
    """Images (N, 1, 28, 28) float32 in 0..1 and int64 labels, for training and for testing."""
    with np.load(folder / "mnist.npz") as file:
        return {
            part: torch.from_numpy(
                file[part][:, None].astype(np.float32) / 255 if part.endswith("images") else file[part].astype(np.int64)
            )
            for part in ("train_images", "train_labels", "test_images", "test_labels")
        }


def cifar10_files(folder: Path) -> Iterator[tuple[str, str, np.ndarray]]:
    """("train" or "test", class, (32, 32, 3) uint8) of each image."""
    import simplejpeg

    with tarfile.open(folder / "cifar10_jpg.tar.gz") as tar:
        for member in tar:
            part, label = Path(member.name).parts[-3:-1] if member.isfile() else ("", "")
            if part in ("train", "test"):
                content = tar.extractfile(member)
                assert content is not None
                yield part, label, simplejpeg.decode_jpeg(content.read())


def cifar10(folder: Path) -> dict[str, Tensor]:
    """Images (N, 3, 32, 32) float32 less the mean image, in units of one standard deviation, and int64 labels."""
    files = list(cifar10_files(folder))
    classes = sorted({label for _, label, _ in files})
    data: dict[str, Tensor] = {}
    mean = std = np.float32(0)
    for part in ("train", "test"):
        images = np.stack([image for of, _, image in files if of == part]).transpose(0, 3, 1, 2).astype(np.float32)
        if part == "train":
            mean, std = images.mean(axis=0), images.std()
        data[f"{part}_images"] = torch.from_numpy((images - mean) / std)
        data[f"{part}_labels"] = torch.tensor([classes.index(label) for of, label, _ in files if of == part])
    return data


DATA = {"mnist": mnist, "cifar10": cifar10}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is trained, how, and how long."""

    data: str
    """The key in `DATA`."""
    network: str
    width: int = 0
    """Of small-cnn; 0: its own."""
    optimizer: str = "sgd"
    lr: float
    momentum: float = 0.9
    weight_decay: float
    strategy: str = "butterfly"
    ranks: int = 2
    model_ranks: int = 1
    """How many of them a layer is split among; with one, training is data parallel."""
    rank_batch: int
    epochs: int
    evaluate_every: int = 1
    """Epochs, of which `epochs` is a multiple."""
    num_images: int
    """How many of the training set are used: the first ones in a fixed mixed order; the test set is always whole."""
    divide_after: tuple[float, ...] = ()
    """Shares of the training after which the learning rate is divided by ten; none: it falls as a cosine to zero."""
    warm_up: int = 0
    """Epochs over which the learning rate rises from nothing."""
    flips: bool = False

    def lr_factor(self, step: int, steps: int) -> float:
        """Of the learning rate, where an epoch has `steps` steps."""
        warm_up, num = self.warm_up * steps, self.epochs * steps
        warmth = min(1.0, (step + 1) / warm_up) if warm_up else 1.0
        if self.divide_after:
            return warmth * 0.1 ** sum(step >= round(share * num) for share in self.divide_after)
        return warmth if step < warm_up else 0.5 * (1.0 + math.cos(math.pi * (step - warm_up) / (num - warm_up)))


@torch.no_grad()
def evaluate(network: nn.Module, data: dict[str, Tensor]) -> tuple[float, float]:
    """Error and mean loss on the test images, of which each rank looks at its part; running statistics averaged."""
    num, rank = dist.get_world_size(), dist.get_rank()
    for buffer in network.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= num
    network.eval()
    images, labels = (data[f"test_{part}"][rank::num] for part in ("images", "labels"))
    total = torch.zeros(2, dtype=torch.float64)
    for batch, wanted in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
        logits = network(batch)
        total[0] += (logits.argmax(1) != wanted).sum()
        total[1] += nn.functional.cross_entropy(logits, wanted, reduction="sum")
    dist.all_reduce(total)
    network.train()
    error, loss = (total / len(data["test_labels"])).tolist()
    return error, loss


def train(of: Experiment, codec: str, seed: int, data: dict[str, Tensor]) -> dict[str, Any]:
    """One run; error and loss on the test images after each epoch that is evaluated."""
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    from augpipe.trainer import model as build
    from augpipe.trainer import strategy
    from augpipe.trainer.parallel import build_split, make_mesh
    from augpipe.trainer.strategies import butterfly_bytes

    start, cpu = time.perf_counter(), time.process_time()
    kind = torch.optim.RMSprop if of.optimizer == "rmsprop" else torch.optim.SGD
    optimizer = partial(kind, lr=of.lr, momentum=of.momentum, weight_decay=of.weight_decay)
    make = partial(build, of.network, num_classes=10, **({"width": of.width} if of.width else {}))
    name = codec.removesuffix(FEEDBACK)
    torch.manual_seed(seed)
    split = power = None
    if of.model_ranks > 1:
        split = build_split(make, make_mesh(of.model_ranks), activations=name, deltas=name, seed=seed)
    network = make() if split is None else split.model
    if codec.startswith(POWER_SGD):
        matrix_rank = int(codec.removeprefix(POWER_SGD))
        sync = strategy("ddp", network, optimizer, bucket_bytes=ONE_BUCKET_BYTES)
        power = PowerSGDState(None, matrix_approximation_rank=matrix_rank, start_powerSGD_iter=POWER_SGD_START)
        sync.module.register_comm_hook(power, powerSGD_hook)
    else:
        sync = strategy(of.strategy, network, optimizer, codec=name, error_feedback=name != codec, split=split)
    torch.manual_seed(1_000_003 * (seed + 1) + dist.get_rank())  # dropout differs between ranks, not between codecs
    some = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[: of.num_images]
    images, labels = data["train_images"][some], data["train_labels"][some]
    steps, errors, losses, num_bytes = len(labels) // (of.rank_batch * of.ranks), [], [], 0
    for epoch in range(of.epochs):
        drawn = torch.Generator().manual_seed(seed * 1000 + epoch)
        order = torch.randperm(len(labels), generator=drawn)
        is_flipped = (torch.rand(len(labels), generator=drawn) < 0.5) & of.flips
        sync.module.train()
        before = sum(sync.meter.total.values())
        for step in range(steps):
            first = (step * of.ranks + dist.get_rank()) * of.rank_batch
            chosen = order[first : first + of.rank_batch]
            batch = images[chosen]
            if of.flips:
                batch = torch.where(is_flipped[chosen, None, None, None], batch.flip(3), batch)
            sync.set_lr(of.lr_factor(epoch * steps + step, steps))
            nn.functional.cross_entropy(sync.module(batch), labels[chosen]).backward()
            sync.step()
        sync.flush()
        num_bytes += sum(sync.meter.total.values()) - before
        if (epoch + 1) % of.evaluate_every == 0:
            error, loss = evaluate(network, data)
            errors.append(error)
            losses.append(round(loss, 5))
    a_step = round(num_bytes / (steps * of.epochs))
    if power is not None:  # the hook's numbers after the first steps, by the formula for an all-reduce
        per_step = power.compression_stats()[2] // (power.iter - POWER_SGD_START)
        a_step = round(butterfly_bytes(per_step, of.ranks, lambda num: 4 * num))
    sync.close()
    if split is not None:
        split.close()
    cpu_seconds = torch.tensor(time.process_time() - cpu)
    dist.all_reduce(cpu_seconds)
    return {
        "codec": codec,
        "seed": seed,
        "errors": errors,
        "losses": losses,
        "bytes a step": a_step,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(cpu_seconds.item(), 1),
    }


def work(of: dict[str, Any], jobs: list[tuple[str, str, int]], folder: str) -> int:
    """One rank: the given runs (name, codec, seed), one after the other."""
    data, kept = torch.load(Path(folder) / f"{of['data']}.pt", mmap=True), Kept(Path(folder))
    for name, codec, seed in jobs:
        found = train(Experiment(**of), codec, seed, data)
        if dist.get_rank() == 0:
            kept.put(name, found)
            print(json.dumps(found), flush=True)
    return len(jobs)


def runs_of(
    of: Experiment, jobs: dict[str, tuple[str, int]], kept: Kept, *, trains: bool = True
) -> list[dict[str, Any]]:
    """By name a codec and a seed: the results that are kept, after those that are missing were made."""
    missing = [(name, *job) for name, job in jobs.items() if not kept.has(name)]
    if missing and trains:
        path = kept.folder / f"{of.data}.pt"
        if not path.exists():
            torch.save(DATA[of.data](Path(os.environ["AUGPIPE_DATA"])), path)
        options = {"of": asdict(of), "jobs": missing, "folder": str(kept.folder)}
        ranks.run("benchmarks.papers.training:work", of.ranks, options, limit_s=86_400)
    found = [kept.get(name) for name in jobs if kept.has(name)]
    for run in found:
        print(f"{run['codec']:24} seed {run['seed']}: {100 * run['errors'][-1]:.2f} % in {run['seconds']:.0f} s")
    return found
