"""Deep Image's Figures 2 and 3, and eight-GPU nodes of today, as `augpipe simulate` has them.

    python -m benchmarks.papers.scaling [--draw]    # six minutes; --draw: the picture alone, from what is kept

Figure 2 (arXiv 1501.02876, section 3.3): 8 convolutional and 3 fully connected layers, 64 images a GPU, data against
hybrid parallelism; there, data parallelism is ahead above 16 GPUs. Figure 3: 47 times as many images a second on 64
GPUs with a batch of 1024 in all. The cards were written before any of this was run and are not fitted to it. What the
paper does not state is assumed: images of 224 pixels, the widths of `scaling-8conv` (VGG's network A), SGD with
momentum, a ring for data parallelism in fp32, and fully connected layers divided among all GPUs ("evenly divided
amongst all GPUs") or, as nobody there tried, among the four of a node.
"""

import json
from typing import Any

from augpipe.trainer.config.load import make_config
from augpipe.trainer.simulate.cluster_card import Card, load_card
from augpipe.trainer.simulate.prediction import Prediction, predict, subject_of
from benchmarks.figures import Line, Panel, draw
from benchmarks.harness import FIGURES, RESULTS, Bench

RANKS = 1, 2, 4, 8, 16, 32, 64
NODES = 8, 64, 128, 256, 512, 1024
"""GPUs, eight in each."""
PAPERS = {"crossover, GPUs": 16, "speed-up on 64 GPUs at a batch of 1024": 47.0}
GOAL = 0.9
"""Efficiency on today's nodes."""


def predicted(card: Card, ranks: int, batch_size: int, *, model: str = "scaling-8conv", **tables: Any) -> Prediction:
    """A step of SGD with momentum."""
    config = make_config(
        {
            "data": {"source": "none", "size": 224, "batch_size": batch_size},
            "model": {"name": model, "num_classes": 1000},
            "optim": {"name": "sgd", "momentum": 0.9},
            **tables,
        }
    )
    return predict(subject_of(config, card), card, [ranks])[0]


def row(one: Prediction) -> dict[str, float]:
    """What is kept of a prediction."""
    return {
        "step_s": one.step_s,
        "waiting_s": one.exposed_s,
        "efficiency": one.efficiency,
        "speed_up": one.ranks * one.efficiency,
        "mb_sent": one.bytes_sent / 1e6,
        "mb_held": one.memory_bytes / 1e6,
    }


def ways(ranks: int, strategies: dict[str, tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Tables of a config by name: data parallelism in several ways, and the fully connected layers split among all."""
    found: dict[str, dict[str, Any]] = {
        name: {"sync": {"strategy": strategy, "codec": codec}} for name, (strategy, codec) in strategies.items()
    }
    if ranks > 1:
        for name, codec in (("hybrid, fp32", "fp32"), ("hybrid, 8 bits", "dynamic-tree"), ("hybrid, 4 bits", "nf4")):
            coded = {"activations": codec, "deltas": codec}
            found[name] = {"sync": {"codec": codec}, "parallel": {"model": ranks, **coded}}
            if ranks > 4:
                found[f"{name}, split in 4"] = {"sync": {"codec": codec}, "parallel": {"model": 4, **coded}}
    return found


STRATEGIES = {
    "data, fp32": ("ddp", "fp32"),
    "data, butterfly": ("butterfly", "fp32"),
    "data, lazy": ("lazy", "fp32"),
    "data, lazy, 8 bits": ("lazy", "dynamic-tree"),
    "data, lazy, 4 bits": ("lazy", "nf4"),
}


def main() -> None:
    bench = Bench(__doc__, draw=False)
    if bench.options.draw:
        figure(json.loads(sorted(RESULTS.glob("*-scaling.json"))[-1].read_text()))
        return
    ranks, nodes_of = bench.pick((RANKS, NODES), ((2, 64), (8,)))
    minwa, today = load_card("minwa"), load_card("nvlink-8")
    figure_2 = table("Figure 2: 64 images a GPU", minwa, ranks, lambda ranks: 64)
    figure_3 = {
        f"batch of {batch}": table(
            f"Figure 3: batch of {batch}", minwa, ranks, lambda ranks, batch=batch: batch // ranks
        )
        for batch in (512, 1024)
    }
    nodes = table("ResNet-50, 64 images a GPU", today, nodes_of, lambda ranks: 64, "resnet-50")
    found = {"papers": PAPERS, "figure 2": figure_2, "figure 3": figure_3, "nodes of eight": nodes}
    bench.keep("scaling", found)
    if not bench.is_quick:
        figure(found)


def table(
    title: str, card: Card, ranks: tuple[int, ...], batch_of: Any, model: str = "scaling-8conv"
) -> dict[str, Any]:
    """Each way's row by the number of ranks."""
    print(f"\n{title}, {card.title}: ms a step (speed-up, efficiency)")
    found: dict[str, dict[str, Any]] = {}
    for number in ranks:
        chosen = ways(number if model != "resnet-50" else 1, STRATEGIES)
        for name, tables in chosen.items():
            one = predicted(card, number, batch_of(number), model=model, **tables)
            found.setdefault(name, {})[str(number)] = row(one)
    for name, rows in found.items():
        cells = (f"{n}: {1e3 * r['step_s']:.1f} ({r['speed_up']:.1f}, {r['efficiency']:.2f})" for n, r in rows.items())
        print(f"  {name:28}", "  ".join(cells), flush=True)
    return found


SHOWN = {
    "data, fp32": "data, ring",
    "data, butterfly": "data, butterfly",
    "data, lazy, 8 bits": "data, lazy, 8 bits",
    "hybrid, fp32": "hybrid, among all",
    "hybrid, fp32, split in 4": "hybrid, in four",
}


def figure(found: dict[str, Any]) -> None:
    """Figures 2 and 3 as simulated."""
    tables = found["figure 2"], found["figure 3"]["batch of 1024"]
    left, right = (
        [
            Line(label=label, x=list(map(int, table[name])), y=[factor * one[what] for one in table[name].values()])
            for name, label in SHOWN.items()
        ]
        for table, what, factor in zip(tables, ("step_s", "speed_up"), (1e3, 1), strict=True)
    )
    paper = Line(label="the paper", x=[64], y=[PAPERS["speed-up on 64 GPUs at a batch of 1024"]], colour="black")
    titles = "64 images a GPU: ms a step", "1024 images in all: images a second over those of one GPU"
    panels = [
        Panel(title=title, x="GPUs", y="", lines=lines, log_x=2)
        for title, lines in zip(titles, (left, [*right, paper]), strict=True)
    ]
    draw(panels, FIGURES / "deep-image-scaling.png")


if __name__ == "__main__":
    main()
