"""How many times sooner a layer's gradients are averaged in 8, 4 bits and 1 than in 32, by the layer's size.

    sudo python -m benchmarks.papers.layer_sizes [--mbit 200 1000] [--sizes 50_000 ... 10_000_000] [--rounds 8]
    python -m benchmarks.papers.layer_sizes --draw benchmarks/results/DATE-layer_sizes.json

Figure 2 of Dettmers' paper has the average time of a transfer between two GPUs, compressing and decompressing included,
in 32, 8 bits and 1, for layers of some ten thousand to some million parameters. Here two ranks in network namespaces,
each behind `tc tbf`, average the gradients of one layer by the strategy `butterfly`: each sends the half that the other
averages, and the mean of its own. Data types take turns, several exchanges each; a round's time is that of the slower
rank, and the fastest round counts. Needs root, `ip` and `tc`; drawing needs matplotlib alone.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import ranks
from benchmarks.figures import Line, Panel, draw
from benchmarks.harness import FIGURES, Bench, Seconds

NUM_RANKS, BURST_KB = 2, 16
"""Less of a burst than `throttled` has: what passes at once after a pause would be a small layer's whole message."""
CODECS = {"32 bits": "fp32", "8 bits": "dynamic-tree", "4 bits": "nf4", "1 bit": "one-bit"}
SIZES = (50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000)
NUMBERS_A_ROUND = 1_000_000
"""Small layers are exchanged so often in a round that this many numbers are."""


def layers(sizes: list[int], rounds: int) -> dict[str, Seconds]:
    """What one exchange takes, by size and data type."""
    import torch
    from torch.distributed import get_rank

    from augpipe.trainer import strategy
    from benchmarks.trainer.played import TIMEOUT_S, Layers, Nothing

    start = torch.ones(1, requires_grad=True)

    def contender(codec: str, num: int) -> ranks.Contender:
        gradient = torch.randn(num // 100, 100, generator=torch.Generator().manual_seed(get_rank())) * 1e-3
        feedback = codec in ("nf4", "one-bit")
        sync = strategy(
            "butterfly", Layers([gradient]), Nothing, codec=codec, error_feedback=feedback, timeout_s=TIMEOUT_S
        )

        def once() -> None:
            sync.module(start).sum().backward()
            sync.step()

        return ranks.Contender(once=once, close=sync.close, repeats=max(NUMBERS_A_ROUND // num, 1))

    found = {}
    for num in sizes:
        taken = ranks.in_turn({kind: contender(codec, num) for kind, codec in CODECS.items()}, rounds)
        found[str(num)] = {kind: row["seconds"] for kind, row in taken.items()}
    return found


def speedups(seconds: dict[str, Seconds]) -> dict[str, dict[int, float]]:
    """32 bits' time over each data type's, of the fastest rounds, by parameters."""
    return {
        kind: {int(num): min(times["32 bits"]) / min(times[kind]) for num, times in seconds.items()}
        for kind in CODECS
        if kind != "32 bits"
    }


def figure(results: dict[str, dict[str, Seconds]]) -> None:
    """One panel a bandwidth."""
    panels = [
        Panel(
            title=f"two ranks, {link}", x="parameters of the layer", y="speedup over 32 bits", log_x=10, log_y=2,
            lines=[Line(label=kind, x=list(of), y=list(of.values())) for kind, of in speedups(seconds).items()],
        )
        for link, seconds in results.items()
    ]  # fmt: skip
    draw(panels, FIGURES / "layer_sizes.png")


def main() -> None:
    bench = Bench(__doc__, rounds=8, mbit=(200.0, 1000.0), sizes=SIZES, draw=Path)
    if bench.options.draw:
        figure(json.loads(bench.options.draw.read_text())["results"])
        return
    settings: dict[str, Any] = {"rounds": bench.rounds, "sizes": bench.pick(list(bench.options.sizes), [50_000])}
    results, function = {}, "benchmarks.papers.layer_sizes:layers"
    mbits = bench.pick(bench.options.mbit, [1000.0])
    for link, _, found in ranks.on_links(function, NUM_RANKS, settings, mbits, BURST_KB):
        results[link] = found[0]
        table = speedups(found[0])
        for num, times in found[0].items():
            told = (
                f"{kind} {1e3 * min(of):9.2f} ms ({table.get(kind, {}).get(int(num), 1):5.2f})"
                for kind, of in times.items()
            )
            print(f"  {int(num):>10,}  {'  '.join(told)}")
    settings |= {"ranks": NUM_RANKS, "burst_kb": BURST_KB, "codecs": CODECS}
    bench.keep("layer_sizes", {"settings": settings, "results": results})
    if not bench.is_quick:
        figure(results)


if __name__ == "__main__":
    main()
