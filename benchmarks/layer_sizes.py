"""How many times sooner a layer's gradients are averaged in 8, 4 bits and 1 than in 32, by the layer's size.

    sudo python benchmarks/layer_sizes.py [--mbit 200 1000] [--sizes 50_000 ... 10_000_000] [--rounds 8] [--no-save]
    python benchmarks/layer_sizes.py --draw benchmarks/results/DATE-layer_sizes.json

Figure 2 of Dettmers' paper has the average time of a transfer between two GPUs, compressing and decompressing included,
in 32, 8 bits and 1, for layers of some ten thousand to some million parameters. Here two ranks in network namespaces,
each behind `tc tbf`, average the gradients of one layer by the strategy `butterfly`: each sends the half that the other
averages, and the mean of its own. Data types take turns, several exchanges each; a round's time is that of the slower
rank, and the fastest round counts. Needs root, `ip` and `tc`; drawing needs matplotlib alone.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from common import save
from throttled import hosts, need_links

NUM_RANKS = 2
CODECS = {"32 bits": "fp32", "8 bits": "dynamic-tree", "4 bits": "nf4", "1 bit": "one-bit"}
WITH_FEEDBACK = ("4 bits", "1 bit")
SIZES = (50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000)
BURST_KB = 16
"""Less than `throttled.py` has it, for what passes at once after a pause is a small layer's whole message there."""
NUMBERS_A_ROUND = 1_000_000
"""Small layers are exchanged so often in a round that this many numbers are."""
TIMEOUT_S = 120.0
FIGURE = Path(__file__).parents[1] / "docs/images/layer_sizes.png"
COLOURS = {"8 bits": "#3b6ea5", "4 bits": "#c8641e", "1 bit": "#4c8c4a"}

Seconds = dict[str, dict[str, list[float]]]
"""What one exchange takes, by size and data type: one entry a round."""


def worker(rank: int, options: argparse.Namespace) -> None:
    """One rank; rank 0 prints what was found."""
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn

    from augpipe.trainer import strategy

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.meet}", rank=rank, world_size=NUM_RANKS)

    class Layer(nn.Module):
        def __init__(self, num: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(num // 100, 100))

        def forward(self) -> Tensor:
            return self.weight.view_as(self.weight)

    class Nothing(torch.optim.SGD):
        """The exchange alone is timed."""

        def step(self, closure: object = None) -> None:
            pass

    def contender(kind: str, num: int) -> tuple[Callable[[], None], Callable[[], None]]:
        sync = strategy(
            "butterfly",
            Layer(num),
            lambda parameters: Nothing(parameters, lr=0.0),
            codec=CODECS[kind],
            error_feedback=kind in WITH_FEEDBACK,
            timeout_s=TIMEOUT_S,
        )
        gradient = torch.randn(num // 100, 100, generator=torch.Generator().manual_seed(rank)) * 1e-3

        def once() -> None:
            sync.module().backward(gradient)
            sync.step()

        return once, sync.close

    seconds: Seconds = {}
    for num in options.sizes:
        made = {kind: contender(kind, num) for kind in CODECS}
        repeats = max(NUMBERS_A_ROUND // num, 1)
        of_size: dict[str, list[float]] = seconds.setdefault(str(num), {kind: [] for kind in CODECS})
        for turn in range(options.rounds + 1):
            for kind, (once, _) in made.items():
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(repeats):
                    once()
                taken = torch.tensor([(time.perf_counter() - begin) / repeats])
                dist.all_reduce(taken, op=dist.ReduceOp.MAX)
                if turn:
                    of_size[kind].append(round(float(taken), 6))
        for _, close in made.values():
            close()
    if rank == 0:
        print("RESULT" + json.dumps(seconds), flush=True)
    dist.barrier()
    os._exit(0)


def measure(options: argparse.Namespace, mbit: float) -> Seconds:
    with hosts(NUM_RANKS, mbit, BURST_KB) as names, TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    name,
                    sys.executable,
                    *sys.argv,
                    "--meet",
                    f"{folder}/meet",
                    "--rank",
                    str(rank),
                ],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            )
            for rank, name in enumerate(names)
        ]
        try:
            outs = [process.communicate(timeout=options.limit_s)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    line = next((line for line in outs[0].splitlines() if line.startswith("RESULT")), None)
    if line is None:
        raise SystemExit(f"at {mbit:g} Mbit/s the ranks gave no result; what they wrote is above")
    return json.loads(line.removeprefix("RESULT"))


def speedups(seconds: Seconds) -> dict[str, list[tuple[int, float]]]:
    """(parameters, 32 bits' time over this data type's), by data type; of either the fastest round."""
    return {
        kind: [(int(num), min(times["32 bits"]) / min(times[kind])) for num, times in seconds.items()]
        for kind in CODECS
        if kind != "32 bits"
    }


def draw(results: dict[str, Seconds], path: Path) -> None:
    """One panel a bandwidth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6 * len(results), 3.9), layout="constrained")
    for panel, (title, seconds) in zip(
        figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True
    ):
        for kind, points in speedups(seconds).items():
            panel.plot(*zip(*points, strict=True), color=COLOURS[kind], marker="o", markersize=4, label=kind)
        panel.axhline(1, color="#888888", linewidth=1, label="32 bits")
        panel.set_xscale("log")
        panel.set_yscale("log", base=2)
        ticks = (1, 2, 4, 8, 16)
        panel.set_yticks(ticks, [f"{tick}×" for tick in ticks])
        panel.set_ylim(0.7, 24)
        panel.set_xlabel("parameters of the layer", fontsize=9)
        panel.set_ylabel("speedup over 32 bits", fontsize=9)
        panel.set_title(f"two ranks, {title}", fontsize=10)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        panel.legend(fontsize=8, frameon=False, loc="upper left")
    figure.savefig(path, dpi=120)
    print(f"drawn in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, nargs="+", default=[200.0, 1000.0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="parameters of the layer, hundreds")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=900.0, help="seconds after which a bandwidth is given up")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--draw", type=Path, help="a kept result: draw it, and measure nothing")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        worker(options.rank, options)
        return
    if options.draw:
        draw(json.loads(options.draw.read_text())["results"], FIGURE)
        return
    need_links()
    results = {f"{mbit:g} Mbit/s": measure(options, mbit) for mbit in options.mbit}
    for title, seconds in results.items():
        print(f"\n{title}: milliseconds, fastest of {options.rounds} rounds, and speedup over 32 bits")
        found = {kind: dict(points) for kind, points in speedups(seconds).items()}
        for num, times in seconds.items():
            columns = "  ".join(
                f"{kind} {1e3 * min(all_times):9.2f} ({found[kind][int(num)] if kind in found else 1.0:5.2f})"
                for kind, all_times in times.items()
            )
            print(f"  {int(num):>10,}  {columns}")
    if not options.no_save:
        settings = {"ranks": NUM_RANKS, "rounds": options.rounds, "burst_kb": BURST_KB, "codecs": CODECS}
        save("layer_sizes", {"settings": settings, "results": results})
        draw(results, FIGURE)


if __name__ == "__main__":
    main()
