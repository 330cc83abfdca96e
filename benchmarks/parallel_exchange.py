"""The exchanges of a step with split layers beside bytes over bandwidth: nothing is computed; see parallel.py.

AlexNet on four ranks of 128 images, all on the model axis. Its convolutions give ready-made features, and ready-made
gradients, which the butterfly averages; its fully connected layers give ready-made outputs and error deltas. What is
left are the exchanges as a step has them, one after the other, with encoding, decoding and adding up.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

NUM_RANKS, BATCH = 4, 128
TIMEOUT_S = 300.0
GOAL = 1.10
"""Seconds over bytes that a rank hands to the network / bandwidth, at most."""
ALL_TO_ALL_BYTES = 6_000_000
"""What a rank sends in one by itself, about as much as in one of the exchanges in fp32."""
FEATURES, WIDTHS = 9216, (4096, 4096, 1000)
"""Numbers of AlexNet's last convolution, and of its fully connected layers."""


def run_exchange(options: argparse.Namespace, run_ranks: Callable[..., list[dict[str, Any]]]) -> dict[str, object]:
    """All link speeds, one after the other."""
    from throttled import hosts, need_links

    need_links()
    results = {}
    for mbit in options.mbit:
        with hosts(NUM_RANKS, mbit) as names:
            found = run_ranks(
                "exchange", NUM_RANKS, options, lambda rank, names=names: ["ip", "netns", "exec", names[rank]]
            )
        print(f"\n{mbit:g} Mbit/s, {NUM_RANKS} ranks of {BATCH} images")
        rows: dict[str, object] = {}
        for name, seconds in found[0]["seconds"].items():
            sent = max(one["bytes"][name] for one in found)
            least_s = sent * 8 / (mbit * 1e6)
            cpu_s = sum(statistics.median(one["cpu_s"][name]) for one in found)
            rows[name] = {
                "seconds": seconds,
                "bytes": sent,
                "cpu_s of all ranks": cpu_s,
                "median over bytes / bandwidth": statistics.median(seconds) / least_s,
                "fastest over bytes / bandwidth": min(seconds) / least_s,
            }
            print(
                f"  {name:14} {sent / 1e6:6.2f} MB, {statistics.median(seconds):.3f} s: "
                f"{statistics.median(seconds) / least_s:.3f} of bytes / bandwidth, {min(seconds) / least_s:.3f} in the "
                f"fastest round; goal {GOAL}; {cpu_s:.3f} s of CPU on all ranks"
            )
        results[f"{mbit:g} Mbit/s"] = rows
    return {"results": results, "goal": GOAL}


def all_to_all(num: int) -> Callable[[], dict[str, int]]:
    """Torch's, by itself: what the backend makes of the link."""
    import torch
    import torch.distributed as dist

    splits = [0 if rank == dist.get_rank() else ALL_TO_ALL_BYTES // (num - 1) for rank in range(num)]
    sent, received = (torch.zeros(sum(splits), dtype=torch.uint8) for _ in range(2))

    def once() -> dict[str, int]:
        dist.all_to_all_single(received, sent, splits, splits)
        return {"all": sum(splits)}

    return once


def exchange_rank(num: int, rounds: int) -> dict[str, object]:
    """One rank's steps in fp32 and 8 bits, in turn; seconds are those of the slowest rank."""
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn

    from augpipe.trainer.models import build
    from augpipe.trainer.parallel import make_mesh, split
    from augpipe.trainer.strategies import strategy

    with torch.device("meta"):
        convolutions = [one.shape for one in build("alexnet", num_classes=1000).features.parameters()]
    generator = torch.Generator().manual_seed(dist.get_rank())

    def numbers(shape: Any) -> Tensor:
        return torch.randn(shape, generator=generator) * 1e-3

    class Given(torch.autograd.Function):
        """Ready-made outputs, and ready-made gradients of the inputs."""

        @staticmethod
        def forward(ctx: Any, output: Tensor, gradients: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
            ctx.gradients = gradients
            return output.view_as(output)

        @staticmethod
        def backward(ctx: Any, *_: Tensor) -> tuple[Any, ...]:
            return None, None, *ctx.gradients

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in convolutions)
            self.gradients = tuple(numbers(shape) for shape in convolutions)
            self.output = torch.relu(numbers((BATCH, FEATURES)))

        def forward(self, x: Tensor) -> Tensor:
            return Given.apply(self.output, self.gradients, *self.layers)

    def play(layer: Any) -> None:
        """Have a split layer give outputs and deltas of the right sizes."""
        kept: dict[str, Tensor] = {}
        start, stop = layer.output_cuts[layer.rank], layer.output_cuts[layer.rank + 1]
        width = stop - start if layer.kind == "column" else layer.out_features

        def compute(x: Tensor) -> Tensor:
            if not kept:
                kept.update(output=numbers((len(x), width)), deltas=numbers(x.shape))
            return Given.apply(kept["output"], (kept["deltas"],), x)

        layer.compute = compute

    class Nothing(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            """The exchange alone is timed."""

    seconds: dict[str, list[float]] = {}
    sent: dict[str, float] = {}
    cpu_s: dict[str, list[float]] = {}
    made: dict[str, Callable[[], dict[str, int]]] = {}
    images = torch.zeros(BATCH, 1)
    for name, codec in (("fp32", "fp32"), ("8 bits", "dynamic-tree")):
        widths = (FEATURES, *WIDTHS)
        layers = [nn.Linear(widths[i], widths[i + 1]) for i in range(len(WIDTHS))]
        parts = split(
            nn.Sequential(Features(), *layers), make_mesh(num), activations=codec, deltas=codec, timeout_s=TIMEOUT_S
        )
        for layer in parts.layers.values():
            play(layer)
        sync = strategy(
            "butterfly", parts.model, lambda p: Nothing(p, lr=0.0), codec=codec, split=parts, timeout_s=TIMEOUT_S
        )

        def step(sync: Any = sync) -> dict[str, int]:
            sync.module(images).sum().backward()
            bytes_sent: dict[str, int] = sync.step().bytes_sent
            return bytes_sent

        made[name] = step
    made["one all-to-all"] = all_to_all(num)
    for turn in range(rounds + 1):
        for name, step in made.items():
            dist.barrier()
            begin, begin_cpu = time.perf_counter(), time.process_time()
            num_bytes = step()
            taken, used = torch.tensor([time.perf_counter() - begin]), time.process_time() - begin_cpu
            dist.all_reduce(taken, op=dist.ReduceOp.MAX)
            if turn:
                seconds.setdefault(name, []).append(float(taken))
                cpu_s.setdefault(name, []).append(used)
                sent[name] = sum(num_bytes.values())
    return {"seconds": seconds, "bytes": sent, "cpu_s": cpu_s}
