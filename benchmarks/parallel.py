"""Model-data parallelism: bytes by the formulas, memory of a rank, a million classes, and steps on throttled links.

    python benchmarks/parallel.py bytes     # AlexNet's bytes a rank and step, over 2 to 128 ranks; seconds
    python benchmarks/parallel.py memory    # weights, gradients and momentum of a rank of four; two minutes, 8 GB
    python benchmarks/parallel.py classes   # a step of a layer of a million classes on four ranks of 2.5 GiB each
    sudo python benchmarks/parallel.py steps [--mbit 200 1000] [--rounds 5]   # as throttled.py, with real computing
    sudo python benchmarks/parallel.py exchange [--mbit 200 1000] [--rounds 5]   # AlexNet's bytes, without computing

Each keeps its figures unless --no-save is given.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from parallel_exchange import exchange_rank, run_exchange

NUM_RANKS = 4
GOALS = {"bytes": 0.22, "bytes in 8 bits": 0.06, "memory": 0.35}
"""At most, over data parallelism in fp32: AlexNet's bytes on 4 ranks of 128 images; deep_image_16's memory."""
CLASSES, WIDTH, LIMIT_GIB = 1_000_000, 512, 2.5
TIMEOUT_S = 300.0


def run_bytes(options: argparse.Namespace) -> dict[str, object]:
    """Bytes a rank and step: gradients of what is not split, by the butterfly, and features and deltas."""
    table = []
    for num_ranks, batch in [(4, 128), *((2**n, 64) for n in range(1, 8))]:
        row: dict[str, object] = {"ranks": num_ranks, "batch": batch}
        for name in ("fp32", "dynamic-tree"):
            row[f"data parallel, {name}"], row[f"hybrid, {name}"], kinds = alexnet_bytes(num_ranks, batch, name)
            row["split by"] = kinds
        table.append(row)
    of_goal = table[0]
    base = of_goal["data parallel, fp32"]
    print("AlexNet, MB a rank and step")
    for row in table:
        figures = "  ".join(f"{name} {value / 1e6:8.2f}" for name, value in row.items() if isinstance(value, float))
        print(f"{row['ranks']:3} ranks x {row['batch']}: {figures}  {' '.join(row['split by'])}")
    for name, codec in (("bytes", "fp32"), ("bytes in 8 bits", "dynamic-tree")):
        print(f"{name}: {of_goal[f'hybrid, {codec}'] / base:.4f} of data parallelism in fp32; goal {GOALS[name]}")
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


def run_ranks(what: str, num: int, options: argparse.Namespace, prefix: Callable[[int], list[str]]) -> list[dict]:
    """What each of `num` ranks found."""
    with TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [
                    *prefix(rank),
                    sys.executable,
                    __file__,
                    what,
                    "--rank",
                    str(rank),
                    "--ranks",
                    str(num),
                    "--meet",
                    f"{folder}/meet",
                    "--rounds",
                    str(options.rounds),
                ],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
                | ({"GLOO_SOCKET_IFNAME": "eth0"} if prefix(rank) else {}),
            )
            for rank in range(num)
        ]
        try:
            outs = [process.communicate(timeout=options.limit_s)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    found = [next((line for line in out.splitlines() if line.startswith("RESULT")), None) for out in outs]
    if None in found:
        raise SystemExit(f"{what}: rank {found.index(None)} gave no result; what it wrote is above")
    return [json.loads(line.removeprefix("RESULT")) for line in found]


def nowhere(_rank: int) -> list[str]:
    return []


def run_memory(options: argparse.Namespace) -> dict[str, object]:
    """Bytes of all tensors of weights, gradients and momentum after two steps of deep_image_16, fc_widths 8192."""
    alone = run_ranks("memory", 1, options, nowhere)[0]
    split = run_ranks("memory", NUM_RANKS, options, nowhere)
    shares = [one["tensors"] / alone["tensors"] for one in split]
    print(
        f"a data-parallel rank: {alone['tensors'] / 1e9:.3f} GB; of {NUM_RANKS} ranks with split layers: "
        f"{', '.join(f'{share:.3f}' for share in shares)} of it; goal {GOALS['memory']}"
    )
    return {"data_parallel_bytes": alone["tensors"], "split": split, "shares": shares}


def memory_rank(rank: int, num: int) -> dict[str, object]:
    import torch

    from augpipe.trainer.models import build
    from augpipe.trainer.parallel import build_split, cross_entropy, make_mesh
    from augpipe.trainer.strategies import strategy

    torch.manual_seed(0)
    made = build_split(
        lambda: build("deep-image-16", num_classes=1000, fc_widths=(8192, 8192)), make_mesh(num), timeout_s=TIMEOUT_S
    )
    sync = strategy("butterfly", made.model, momentum, split=made, timeout_s=TIMEOUT_S)
    generator = torch.Generator().manual_seed(rank)
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


def momentum(parameters: object) -> object:
    import torch

    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def run_classes(options: argparse.Namespace) -> dict[str, object]:
    """A step of a last layer of a million classes, the loss split, on four ranks of limited memory."""
    found = run_ranks("classes", NUM_RANKS, options, nowhere)
    peaks = [one["peak_gib"] for one in found]
    print(
        f"{CLASSES:,} classes x {WIDTH}: weights, gradients and momentum {3 * 4 * CLASSES * WIDTH / 1e9:.1f} GB; "
        f"peak of each rank {', '.join(f'{peak:.2f}' for peak in peaks)} GiB of {LIMIT_GIB}; "
        f"losses {[one['losses'] for one in found]}"
    )
    return {"ranks": found, "limit_gib": LIMIT_GIB}


def classes_rank(rank: int, num: int) -> dict[str, object]:
    # data, not addresses: libraries map more than they use
    resource.setrlimit(resource.RLIMIT_DATA, (int(LIMIT_GIB * 2**30),) * 2)
    import torch
    from torch import nn

    from augpipe.trainer.parallel import build_split, cross_entropy, make_mesh
    from augpipe.trainer.strategies import strategy

    class Faces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Linear(64, WIDTH)
            self.head = nn.Linear(WIDTH, CLASSES, bias=False)

        def forward(self, x: torch.Tensor) -> object:
            return self.head(torch.relu(self.features(x)))

    torch.manual_seed(0)
    made = build_split(Faces, make_mesh(num), layers="head", logits="split", timeout_s=TIMEOUT_S)
    sync = strategy("butterfly", made.model, momentum, split=made, timeout_s=TIMEOUT_S)
    generator = torch.Generator().manual_seed(rank)
    x, labels = torch.randn(8, 64, generator=generator), torch.randint(0, CLASSES, (8,), generator=generator)
    losses, began = [], time.perf_counter()
    for _ in range(3):
        loss = cross_entropy(sync.module(x), labels).mean()
        loss.backward()
        sync.step()
        losses.append(float(loss))
    return {
        "losses": losses,
        "seconds_a_step": (time.perf_counter() - began) / 3,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


CONTENDERS: dict[str, dict[str, object] | None] = {
    "butterfly": None,
    "hybrid, gather": {"scheme": "gather"},
    "hybrid, rotate": {"scheme": "rotate"},
}


def run_steps(options: argparse.Namespace) -> dict[str, object]:
    from throttled import hosts, need_links

    need_links()
    results = {}
    for mbit in options.mbit:
        with hosts(NUM_RANKS, mbit) as names:
            found = run_ranks(
                "steps", NUM_RANKS, options, lambda rank, names=names: ["ip", "netns", "exec", names[rank]]
            )
        seconds = found[0]["seconds"]
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        print(f"\n{mbit:g} Mbit/s, {NUM_RANKS} ranks")
        for name, median in medians.items():
            base = name.partition(", ")[2] if name.startswith("butterfly") else name.split(", ")[2]
            ratio = statistics.median(
                mine / theirs for mine, theirs in zip(seconds[name], seconds[f"butterfly, {base}"], strict=True)
            )
            print(
                f"  {name:24} {median:7.3f} s a step, {ratio:.3f} of the butterfly; "
                f"{found[0]['bytes'][name] / 1e6:.2f} MB sent by rank 0"
            )
        results[f"{mbit:g} Mbit/s"] = found[0] | {"medians": medians}
    return {"results": results}


def steps_rank(rank: int, num: int, rounds: int) -> dict[str, object]:
    """Whole steps of the network of 8 convolutions and 3 fully connected layers, in turn."""
    import torch
    import torch.distributed as dist

    from augpipe.trainer.models import build
    from augpipe.trainer.parallel import cross_entropy, make_mesh, split
    from augpipe.trainer.strategies import strategy

    options = {"num_classes": 1000, "filters": (16, 32, 48, 64, 64), "fc_widths": (1024, 1024)}
    generator = torch.Generator().manual_seed(rank)
    images, labels = torch.randn(32, 3, 64, 64, generator=generator), torch.randint(0, 1000, (32,), generator=generator)
    seconds: dict[str, list[float]] = {}
    sent: dict[str, float] = {}
    made: dict[str, Callable[[], dict[str, int]]] = {}
    for codec in ("fp32", "dynamic-tree"):
        for name, how in CONTENDERS.items():
            torch.manual_seed(0)
            model = build("scaling-8conv", **options)
            parts = (
                None
                if how is None
                else split(model, make_mesh(num), activations=codec, deltas=codec, timeout_s=TIMEOUT_S, **how)
            )
            model = model if parts is None else parts.model
            sync = strategy("butterfly", model, momentum, codec=codec, split=parts, timeout_s=TIMEOUT_S)

            def step(sync: object = sync) -> dict[str, int]:
                cross_entropy(sync.module(images), labels).mean().backward()
                return sync.step().bytes_sent

            made[f"{name}, {'8 bits' if codec != 'fp32' else codec}"] = step
    for turn in range(rounds + 1):
        for name, step in made.items():
            dist.barrier()
            begin = time.perf_counter()
            num_bytes = step()
            taken = torch.tensor([time.perf_counter() - begin])
            dist.all_reduce(taken, op=dist.ReduceOp.MAX)
            if turn:
                seconds.setdefault(name, []).append(float(taken))
                sent[name] = sum(num_bytes.values())
    return {"seconds": seconds, "bytes": sent}


RANKS = {"memory": memory_rank, "classes": classes_rank}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bytes", "memory", "classes", "steps", "exchange"))
    parser.add_argument("--mbit", type=float, nargs="+", default=[200.0, 1000.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=900.0, help="seconds after which ranks are given up")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, default=NUM_RANKS, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{options.meet}", rank=options.rank, world_size=options.ranks
        )
        if options.what == "steps":
            found = steps_rank(options.rank, options.ranks, options.rounds)
        elif options.what == "exchange":
            found = exchange_rank(options.ranks, options.rounds)
        else:
            found = RANKS[options.what](options.rank, options.ranks)
        print("RESULT" + json.dumps(found), flush=True)
        dist.barrier()
        os._exit(0)
    from common import save

    runs = {
        "bytes": run_bytes,
        "memory": run_memory,
        "classes": run_classes,
        "steps": run_steps,
        "exchange": lambda options: run_exchange(options, run_ranks),
    }
    found = runs[options.what](options)
    if not options.no_save:
        save(f"parallel_{options.what}", found)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
