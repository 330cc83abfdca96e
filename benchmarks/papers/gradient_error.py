"""Ways to send real gradients in few bits: what they lose in a step, and over steps with and without error feedback.

    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.gradient_error [--networks mnist-mlp]

Gradients are those of networks of the trainer in training (fp32, one process): 12 steps in a row at its beginning, in
its middle and at its end; all tensors but one-dimensional ones as one run of numbers, in blocks of 256 with a float32
scale each. "One step" is the sum of squared errors over that of the squared gradients, on average over the 12. "Sum" is
the same of the sum of the 12 steps, without and with error feedback: what an optimizer that averages over steps sees.

nf4, one-bit, linear and dynamic-tree are the codecs. The others were candidates for the 4 bits: even steps;
bitsandbytes' dynamic map of 4 bits; E2M1, the 4-bit float of OCP's microscaling formats; and even steps or nf4 of each
block after a Hadamard transform of it with random signs, whose numbers are nearly normal. PowerSGD (Vogels,
Karimireddy, Jaggi, 2019) is as in torch's hook, warm start included.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from augpipe.trainer import model as build
from augpipe.trainer.codecs import codec
from benchmarks.harness import Bench
from benchmarks.papers.training import DATA

Numbers = npt.NDArray[np.float32]
Step = list[Numbers]
"""The gradients of one step, by tensor, in their shapes."""
Way = Callable[[Step], Numbers]
"""A step's gradients, flat, as they arrive; it may keep what its next call needs."""

BLOCK = 256
WINDOW = 12
"""Steps in a row that are looked at."""

NETWORKS: dict[str, tuple[str, int, int, Callable[..., torch.optim.Optimizer]]] = {
    "mnist-mlp": ("mnist", 900, 128, partial(torch.optim.RMSprop, lr=0.0005)),
    "small-cnn": ("cifar10", 500, 64, partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.0005)),
    "cifar-conv": ("cifar10", 240, 64, partial(torch.optim.SGD, lr=0.006, momentum=0.9, weight_decay=0.001)),
}
"""Data, steps, batch size and optimizer; the learning rate is divided by ten after 60 % and 85 % of the steps."""


def gradients(network: str, data: dict[str, torch.Tensor], share: float) -> dict[str, list[Step]]:
    """Train, and keep the gradients of `WINDOW` steps at each of three stages."""
    _, num_steps, batch, optimizer_of = NETWORKS[network]
    num_steps = max(round(num_steps * share), 3 * WINDOW)
    torch.manual_seed(0)
    trained = build(network, num_classes=10)
    optimizer = optimizer_of(trained.parameters())
    lr = optimizer.param_groups[0]["lr"]
    starts = {"beginning": 0, "middle": num_steps // 2, "end": num_steps - WINDOW}
    kept: dict[str, list[Step]] = {stage: [] for stage in starts}
    images, labels = data["train_images"], data["train_labels"]
    generator = torch.Generator().manual_seed(1)
    for step in range(num_steps):
        optimizer.param_groups[0]["lr"] = lr * 0.1 ** sum(step >= share * num_steps for share in (0.6, 0.85))
        chosen = torch.randint(len(labels), (batch,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(trained(images[chosen]), labels[chosen]).backward()
        for stage, start in starts.items():
            if start <= step < start + WINDOW:
                kept[stage].append([p.grad.numpy().copy() for p in trained.parameters() if p.ndim > 1])
        optimizer.step()
    return kept


def flat(step: Step) -> Numbers:
    return np.concatenate([tensor.reshape(-1) for tensor in step])


def by_codec(name: str) -> Way:
    made = codec(name, block=BLOCK)
    return lambda step: made.decode(made.encode(flat(step)))


def blocks_of(x: Numbers) -> Numbers:
    return np.append(x, np.zeros(-len(x) % BLOCK, np.float32)).reshape(-1, BLOCK)


def nearest(blocks: Numbers, levels: npt.ArrayLike) -> Numbers:
    """Each number's nearest level, in units of its block's absmax."""
    sorted_levels = np.unique(np.asarray(levels, np.float32))
    absmax = np.abs(blocks).max(axis=1, keepdims=True)
    scaled = blocks / np.where(absmax > 0, absmax, 1)
    return sorted_levels[np.searchsorted((sorted_levels[1:] + sorted_levels[:-1]) / 2, scaled)] * absmax


def by_levels(levels: npt.ArrayLike) -> Way:
    def way(step: Step) -> Numbers:
        x = flat(step)
        return nearest(blocks_of(x), levels).reshape(-1)[: len(x)]

    return way


def rotated(levels: npt.ArrayLike) -> Way:
    """The same after a Hadamard transform of each block, with signs drawn once; and back."""
    hadamard = np.ones((1, 1), np.float32)
    while len(hadamard) < BLOCK:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    hadamard /= np.sqrt(np.float32(BLOCK))
    signs = np.random.default_rng(0).choice(np.float32([-1, 1]), BLOCK)

    def way(step: Step) -> Numbers:
        x = flat(step)
        found = nearest((blocks_of(x) * signs) @ hadamard, levels) @ hadamard * signs
        return found.reshape(-1)[: len(x)]

    return way


class PowerSgd:
    """Each matrix as a product of two of few columns; the second one begins with what the last step found."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.rng = np.random.default_rng(0)
        self.second: list[Numbers] = []

    def is_smaller(self, shape: tuple[int, ...]) -> bool:
        """As torch's hook asks by default: at least half of the numbers saved."""
        rows, columns = shape[0], int(np.prod(shape[1:]))
        return (rows + columns) * min(self.rank, rows, columns) * 2 < rows * columns

    def num_sent(self, step: Step) -> int:
        """Numbers that travel in place of the gradients."""
        return sum(
            (one.shape[0] + one.size // one.shape[0]) * self.rank if self.is_smaller(one.shape) else one.size
            for one in step
        )

    def __call__(self, step: Step) -> Numbers:
        if not self.second:
            shapes = [(one.size // one.shape[0], self.rank) for one in step]
            self.second = [self.rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        found = []
        for nth, one in enumerate(step):
            if self.is_smaller(one.shape):
                matrix = one.reshape(one.shape[0], -1)
                first = np.linalg.qr(matrix @ np.linalg.qr(self.second[nth])[0])[0]
                self.second[nth] = matrix.T @ first
                found.append((first @ self.second[nth].T).reshape(-1))
            else:
                found.append(one.reshape(-1))
        return np.concatenate(found)


def dynamic_map() -> list[float]:
    """bitsandbytes' `create_dynamic_map(signed=True, max_exponent_bits=3, total_bits=4)`."""
    levels = [0.0, 1.0]
    for n in range(3):
        edges = np.linspace(0.1, 1, 2**n + 1)
        levels += [sign * 10.0 ** (n - 2) * middle for middle in (edges[1:] + edges[:-1]) / 2 for sign in (1, -1)]
    return levels


def ways() -> Iterator[tuple[str, Callable[[], Way]]]:
    """What is compared, each made anew for a stage."""
    linear, nf4 = np.arange(-7, 8) / 7, codec("nf4").codebook
    float4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]) / 6
    yield "4 bits: linear", lambda: by_levels(linear)
    yield "4 bits: dynamic map", lambda: by_levels(dynamic_map())
    yield "4 bits: float, E2M1", lambda: by_levels(np.concatenate([float4, -float4]))
    yield "4 bits: nf4", lambda: by_codec("nf4")
    yield "4 bits: Hadamard, linear", lambda: rotated(linear)
    yield "4 bits: Hadamard, nf4", lambda: rotated(nf4)
    for name in ("one-bit", "linear", "dynamic-tree"):
        yield name, partial(by_codec, name)
    for rank in (1, 2, 4):
        yield f"PowerSGD, rank {rank}", partial(PowerSgd, rank)


def error(found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> float:
    """Normalised mean squared error."""
    return float(np.square(found - wanted, dtype=np.float64).sum() / np.square(wanted, dtype=np.float64).sum())


def measured(make: Callable[[], Way], steps: list[Step]) -> dict[str, float]:
    """One step, and the sum of all without and with error feedback."""
    plain, fed = make(), make()
    residual = np.zeros_like(flat(steps[0]))
    single, sums = [], np.zeros((3, len(residual)))  # of what was given, what arrived without, and with
    for step in steps:
        x = flat(step)
        arrived = plain(step)
        single.append(error(arrived, x))
        owed = x + residual
        cuts = np.cumsum([one.size for one in step])[:-1]
        shaped = [part.reshape(one.shape) for part, one in zip(np.split(owed, cuts), step, strict=True)]
        arrived_fed = fed(shaped)
        residual = owed - arrived_fed
        for total, one in zip(sums, (x, arrived, arrived_fed), strict=True):
            total += one
    return {
        "one step": float(np.mean(single)),
        "sum": error(sums[1], sums[0]),
        "sum, with error feedback": error(sums[2], sums[0]),
    }


def bytes_a_number(name: str, way: Way, step: Step) -> float:
    num = flat(step).size
    if isinstance(way, PowerSgd):
        return 4 * way.num_sent(step) / num
    used = "nf4" if name.startswith("4 bits") else name
    return codec(used, block=BLOCK).num_bytes(num) / num


def main() -> None:
    bench = Bench(__doc__, networks=("mnist-mlp", "small-cnn"), steps=1.0)
    bench.data("mnist.npz")
    folder = bench.data("cifar10_jpg.tar.gz")
    torch.set_num_threads(1)
    networks = bench.pick(bench.options.networks, ["mnist-mlp"])
    chosen = list(ways())[:: bench.pick(1, 4)]
    rows: dict[str, dict[str, Any]] = {name: {"bytes a number": {}} for name, _ in chosen}
    for network in networks:
        data = DATA[NETWORKS[network][0]](folder)
        for stage, steps in gradients(network, data, bench.pick(bench.options.steps, 0.0)).items():
            for name, make in chosen:
                found = {key: float(f"{value:.3g}") for key, value in measured(make, steps).items()}
                rows[name][f"{network}, {stage}"] = found
                rows[name]["bytes a number"][network] = round(bytes_a_number(name, make(), steps[0]), 4)
                print(f"{network:10} {stage:9} {name:26} {found}", flush=True)
    what = "squared error over squared gradients (all tensors but one-dimensional ones, blocks of "
    what += f"{BLOCK}), mean over {WINDOW} steps in a row, and that of their sum"
    trained = {name: f"{NETWORKS[name][1]} steps of {NETWORKS[name][2]}" for name in networks}
    bench.keep("gradient_error", {"what": what, "networks": trained, "rows": rows})


if __name__ == "__main__":
    main()
