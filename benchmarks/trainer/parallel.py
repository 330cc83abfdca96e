"""Model-data parallelism: bytes by the formulas, memory of a rank, a million classes, and steps on throttled links.

    python -m benchmarks.trainer.parallel bytes     # AlexNet's bytes a rank and step, over 2 to 128 ranks; seconds
    python -m benchmarks.trainer.parallel memory    # weights, gradients, momentum of a rank of four; two minutes, 8 GB
    python -m benchmarks.trainer.parallel classes   # a step of a layer of a million classes on ranks of 2.5 GiB
    sudo python -m benchmarks.trainer.parallel steps [--mbit 200 1000]      # as throttled.py, with real computing
    sudo python -m benchmarks.trainer.parallel exchange [--mbit 200 1000]   # AlexNet's bytes, without computing

Of `exchange` AlexNet's convolutions give ready-made features, and ready-made gradients, which the butterfly averages;
its fully connected layers give ready-made outputs and error deltas. What is left are the exchanges as a step has them,
one after the other, with encoding, decoding and adding up, beside bytes over bandwidth.
"""

import resource
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks import ranks
from benchmarks.harness import Bench, ratio
from benchmarks.ranks import Contender

NUM_RANKS, BATCH = 4, 128
GOALS = {"bytes": 0.22, "bytes in 8 bits": 0.06, "memory": 0.35, "exchange": 1.10}
"""At most, over data parallelism in fp32: AlexNet's bytes on 4 ranks of 128 images; deep_image_16's memory. And the
seconds of an exchange over the bytes that a rank hands to the network / bandwidth."""
CLASSES, WIDTH, LIMIT_GIB = 1_000_000, 512, 2.5
ALL_TO_ALL_BYTES = 6_000_000
"""What a rank sends in one by itself, about as much as in one of the exchanges in fp32."""
FEATURES, WIDTHS = 9216, (4096, 4096, 1000)
"""Numbers of AlexNet's last convolution, and of its fully connected layers."""
CODECS = {"fp32": "fp32", "8 bits": "dynamic-tree"}
HERE = "benchmarks.trainer.parallel"


def run_bytes(bench: Bench) -> dict[str, object]:
    """Bytes a rank and step: gradients of what is not split, by the butterfly, and features and deltas."""
    table = []
    for num_ranks, batch in [(NUM_RANKS, BATCH), *((2**n, 64) for n in range(1, 8))]:
        row: dict[str, Any] = {"ranks": num_ranks, "batch": batch}
        for name in CODECS.values():
            row[f"data parallel, {name}"], row[f"hybrid, {name}"], row["split by"] = alexnet_bytes(
                num_ranks, batch, name
            )
        table.append(row)
        print(
            f"{num_ranks:3} x {batch}", {name: round(of / 1e6, 2) for name, of in row.items() if isinstance(of, float)}
        )
    for name, codec in (("bytes", "fp32"), ("bytes in 8 bits", "dynamic-tree")):
        share = table[0][f"hybrid, {codec}"] / table[0]["data parallel, fp32"]
        print(f"{name}: {share:.4f} of data parallelism in fp32; goal {GOALS[name]}")
    return {"table": table}


def alexnet_bytes(num_ranks: int, batch: int, codec_name: str) -> tuple[float, float, list[str]]:
    """(data parallel, hybrid over all ranks, how its layers are split), bytes a rank sends on average."""
    import torch

    from augpipe.trainer.codecs import codec
    from augpipe.trainer.models import build
    from augpipe.trainer.parallel.forward import ForwardPass
    from augpipe.trainer.parallel.layers import SplitLayer
    from augpipe.trainer.parallel.split_choice import choose_layers, find_chains, replace_chains
    from augpipe.trainer.strategies import butterfly_bytes

    used = codec(codec_name)
    with torch.device("meta"):
        model = build("alexnet", num_classes=1000)
        whole = sum(parameter.numel() for parameter in model.parameters())
        names = choose_layers(model, "auto", num_ranks)
        passes = ForwardPass(SimpleNamespace(rank=0, size=num_ranks, ranks=range(num_ranks)))
        replace_chains(model, find_chains(model, names), passes, last=["own"], scheme="gather", seed=0)
    layers = [module for module in model.modules() if isinstance(module, SplitLayer)]
    sent = 0
    for rank in range(num_ranks):
        sizes = layers[0].chain.bytes_sent([batch] * num_ranks, rank, lambda _class, _most, num: used.num_bytes(num))
        sent += sum(sizes.values())
    rest = sum(parameter.numel() for parameter in model.features.parameters())
    return (
        butterfly_bytes(whole, num_ranks, used.num_bytes),
        butterfly_bytes(rest, num_ranks, used.num_bytes) + sent / num_ranks,
        [layer.kind for layer in layers],
    )


def run_memory(bench: Bench) -> dict[str, object]:
    """Bytes of all tensors of weights, gradients and momentum after two steps of deep_image_16, fc_widths 8192."""
    settings = {"width": bench.pick(8192, 64)}
    alone, split = (ranks.run(f"{HERE}:memory_of_rank", num, settings) for num in (1, NUM_RANKS))
    shares = [one["tensors"] / alone[0]["tensors"] for one in split]
    print(f"a data-parallel rank: {alone[0]['tensors'] / 1e9:.3f} GB; split: {shares} of it; goal {GOALS['memory']}")
    return {"data_parallel_bytes": alone[0]["tensors"], "split": split, "shares": shares}


def memory_of_rank(width: int) -> dict[str, object]:
    import torch

    from augpipe.trainer.models import build
    from augpipe.trainer.parallel import cross_entropy

    made, sync = _split_run(lambda: build("deep-image-16", num_classes=1000, fc_widths=(width, width)))
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    for _ in range(2):
        images = torch.randn(2, 3, 64, 64, generator=generator)
        cross_entropy(sync.module(images), torch.randint(0, 1000, (2,), generator=generator)).mean().backward()
        gradients = sum(one.grad.nbytes for one in made.model.parameters() if one.grad is not None)
        sync.step()
    weights = sum(one.nbytes for one in made.model.parameters())
    state = sum(kept.nbytes for of in sync.optimizer.state.values() for kept in of.values() if kept is not None)
    # what is averaged lies in flat buffers of float32 by then, as large as its weights
    gradients = max(gradients, weights)
    return {"weights": weights, "gradients": gradients, "momentum": state, "tensors": weights + gradients + state}


def _split_run(make: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """A network of which layers are split among all ranks, and the butterfly with SGD and momentum."""
    import torch

    from augpipe.trainer.parallel import build_split, make_mesh
    from augpipe.trainer.strategies import strategy
    from benchmarks.trainer.played import TIMEOUT_S, momentum

    torch.manual_seed(0)
    made = build_split(make, make_mesh(torch.distributed.get_world_size()), timeout_s=TIMEOUT_S, **options)
    return made, strategy("butterfly", made.model, momentum, split=made, timeout_s=TIMEOUT_S)


def run_classes(bench: Bench) -> dict[str, object]:
    """A step of a last layer of a million classes, the loss split, on four ranks of limited memory."""
    num_classes = bench.pick(CLASSES, 1_000)
    found = ranks.run(f"{HERE}:classes_of_rank", NUM_RANKS, {"num_classes": num_classes})
    peaks = [round(one["peak_gib"], 2) for one in found]
    gigabytes = 3 * 4 * num_classes * WIDTH / 1e9
    print(f"weights, gradients and momentum {gigabytes:.1f} GB; peaks of the ranks {peaks} GiB of {LIMIT_GIB}")
    return {"ranks": found, "limit_gib": LIMIT_GIB}


def classes_of_rank(num_classes: int) -> dict[str, object]:
    # data, not addresses: libraries map more than they use
    resource.setrlimit(resource.RLIMIT_DATA, (int(LIMIT_GIB * 2**30),) * 2)
    import torch
    from torch import nn

    from augpipe.trainer.parallel import cross_entropy

    class Faces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Linear(64, WIDTH)
            self.head = nn.Linear(WIDTH, num_classes, bias=False)

        def forward(self, x: torch.Tensor) -> object:
            return self.head(torch.relu(self.features(x)))

    _, sync = _split_run(Faces, layers="head", logits="split")
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    x, labels = torch.randn(8, 64, generator=generator), torch.randint(0, num_classes, (8,), generator=generator)
    losses, began = [], time.perf_counter()
    for _ in range(3):
        loss = cross_entropy(sync.module(x), labels).mean()
        loss.backward()
        sync.step()
        losses.append(float(loss))
    seconds, peak = (time.perf_counter() - began) / 3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"losses": losses, "seconds_a_step": seconds, "peak_gib": peak}


def run_steps(bench: Bench) -> dict[str, object]:
    """Whole steps over links, beside those of the butterfly of all."""
    results, mbits = {}, bench.pick(bench.options.mbit, [1000.0])
    for link, _, found in ranks.on_links(f"{HERE}:steps_of_rank", NUM_RANKS, {"rounds": bench.rounds}, mbits):
        seconds = found[0]["seconds"]
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        for name, median in medians.items():
            over, sent = ratio(seconds, name, f"butterfly, {name.rpartition(', ')[2]}"), found[0]["bytes"][name] / 1e6
            print(f"  {name:24} {median:7.3f} s a step, {over:.3f} of the butterfly; {sent:.2f} MB sent by rank 0")
        results[link] = found[0] | {"medians": medians}
    return {"results": results}


def steps_of_rank(rounds: int) -> dict[str, object]:
    """Steps of the network of 8 convolutions and 3 fully connected layers, in turn."""
    import torch

    from augpipe.trainer.models import build
    from augpipe.trainer.parallel import cross_entropy, make_mesh, split
    from augpipe.trainer.strategies import strategy
    from benchmarks.trainer.played import TIMEOUT_S, momentum

    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    images, labels = torch.randn(32, 3, 64, 64, generator=generator), torch.randint(0, 1000, (32,), generator=generator)
    sent: dict[str, int] = {}

    def contender(name: str, codec: str, scheme: str | None) -> Contender:
        torch.manual_seed(0)
        model = build("scaling-8conv", num_classes=1000, filters=(16, 32, 48, 64, 64), fc_widths=(1024, 1024))
        parts = None
        if scheme is not None:
            coded = {"activations": codec, "deltas": codec, "scheme": scheme}
            parts = split(model, make_mesh(torch.distributed.get_world_size()), timeout_s=TIMEOUT_S, **coded)
            model = parts.model
        sync = strategy("butterfly", model, momentum, codec=codec, split=parts, timeout_s=TIMEOUT_S)

        def once() -> None:
            cross_entropy(sync.module(images), labels).mean().backward()
            sent[name] = sum(sync.step().bytes_sent.values())

        return Contender(once=once)

    ways = {"butterfly": None, "hybrid, gather": "gather", "hybrid, rotate": "rotate"}
    made = {
        name: contender(name, codec, scheme)
        for bits, codec in CODECS.items()
        for name, scheme in ((f"{way}, {bits}", scheme) for way, scheme in ways.items())
    }
    return {"seconds": {name: row["seconds"] for name, row in ranks.in_turn(made, rounds).items()}, "bytes": sent}


def run_exchange(bench: Bench) -> dict[str, object]:
    """The exchanges over links, beside bytes over bandwidth."""
    results: dict[str, Any] = {}
    settings, mbits = {"rounds": bench.rounds, "batch": bench.pick(BATCH, 8)}, bench.pick(bench.options.mbit, [1000.0])
    for link, mbit, found in ranks.on_links(f"{HERE}:exchange_of_rank", NUM_RANKS, settings, mbits):
        results[link] = {}
        for name, row in found[0].items():
            sent, seconds = max(one[name]["bytes"] for one in found), row["seconds"]
            least_s, cpu_s = sent * 8 / (mbit * 1e6), sum(statistics.median(one[name]["cpu_s"]) for one in found)
            over = {"median": statistics.median(seconds) / least_s, "fastest": min(seconds) / least_s}
            results[link][name] = {"seconds": seconds, "bytes": sent, "cpu_s of all ranks": cpu_s}
            results[link][name] |= {f"{what} over bytes / bandwidth": value for what, value in over.items()}
            print(
                f"  {name:14} {sent / 1e6:6.2f} MB, {over} of bytes / bandwidth; "
                f"goal {GOALS['exchange']}; CPU {cpu_s:.3f} s"
            )
    return {"results": results, "goal": GOALS["exchange"]}


def exchange_of_rank(rounds: int, batch: int) -> dict[str, dict[str, Any]]:
    """AlexNet on ranks that are all on the model axis: steps in fp32 and 8 bits, and an all-to-all of torch's by
    itself, for what the backend makes of the link."""
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn

    from augpipe.trainer.models import build
    from augpipe.trainer.parallel import make_mesh, split
    from augpipe.trainer.strategies import strategy
    from benchmarks.trainer.played import TIMEOUT_S, Given, Nothing

    with torch.device("meta"):
        convolutions = [one.shape for one in build("alexnet", num_classes=1000).features.parameters()]
    rank, num = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(rank)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 1e-3

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in convolutions)
            self.gradients = tuple(numbers(*shape) for shape in convolutions)
            self.output = torch.relu(numbers(batch, FEATURES))

        def forward(self, x: Tensor) -> Tensor:
            return Given.apply(self.output, self.gradients, 0.0, *self.layers)

    def play(layer: Any) -> None:
        """Have a split layer give outputs and deltas of the right sizes."""
        kept: dict[str, Tensor] = {}
        start, stop = layer.output_cuts[layer.rank], layer.output_cuts[layer.rank + 1]
        width = stop - start if layer.kind == "column" else layer.out_features

        def compute(x: Tensor) -> Tensor:
            if not kept:
                kept.update(output=numbers(len(x), width), deltas=numbers(*x.shape))
            return Given.apply(kept["output"], (kept["deltas"],), 0.0, x)

        layer.compute = compute

    images, sent, made = torch.zeros(batch, 1), dict[str, int](), dict[str, Contender]()
    for name, codec in CODECS.items():
        layers = [nn.Linear(*pair) for pair in zip((FEATURES, *WIDTHS), WIDTHS, strict=False)]
        coded = {"activations": codec, "deltas": codec, "timeout_s": TIMEOUT_S}
        parts = split(nn.Sequential(Features(), *layers), make_mesh(num), **coded)
        for layer in parts.layers.values():
            play(layer)
        sync = strategy("butterfly", parts.model, Nothing, codec=codec, split=parts, timeout_s=TIMEOUT_S)

        def step(name: str = name, sync: Any = sync) -> None:
            sync.module(images).sum().backward()
            sent[name] = sum(sync.step().bytes_sent.values())

        made[name] = Contender(once=step)
    splits = [0 if other == rank else ALL_TO_ALL_BYTES // (num - 1) for other in range(num)]
    given, received = (torch.zeros(sum(splits), dtype=torch.uint8) for _ in range(2))
    sent["one all-to-all"] = sum(splits)
    made["one all-to-all"] = Contender(once=lambda: dist.all_to_all_single(received, given, splits, splits))
    return {name: row | {"bytes": sent[name]} for name, row in ranks.in_turn(made, rounds).items()}


RUNS = {"bytes": run_bytes, "memory": run_memory, "classes": run_classes, "steps": run_steps, "exchange": run_exchange}


def main() -> None:
    bench = Bench(__doc__, names=RUNS, mbit=(200.0, 1000.0))
    for name in bench.names:
        bench.keep(f"parallel_{name}", RUNS[name](bench))


if __name__ == "__main__":
    main()
