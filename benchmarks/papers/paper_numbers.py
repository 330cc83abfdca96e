"""What the papers' printed numbers come to when they are counted or divided again: no training, no data, some seconds.

Counts are taken from what augpipe does (variants, weights, decoded examples, official splits); the rest is arithmetic
on numbers that a paper prints, where two of them should agree and do not, or where a reader needs the quotient.

    python -m benchmarks.papers.paper_numbers
"""

import math

import numpy as np
import torch
from scipy import stats

from augpipe import recipes
from augpipe.datasets.cards.card import load_card
from augpipe.trainer import codec
from augpipe.trainer.models import build
from benchmarks.harness import Bench

EXAMPLES = {"dynamic-tree": (0.2345678, 0.0000234), "static-tree": (0.2345678,), "mantissa": (0.2345678,)}
"""Dettmers' types and the numbers that his section 3.1 encodes in them."""


def deep_image() -> dict[str, object]:
    """Table 1 and Table 2 counted, and the shares that the text prints."""
    recipe = recipes.deep_image(scales=(512,))
    with torch.device("meta"):
        network = build("deep-image-16", num_classes=1000)
    named = list(network.named_parameters())
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    return {
        "variants": {op.op: op.num_variants for op in recipe.ops if op.op != "normalize"},
        "product of the variants": recipe.num_variants,
        "places of 224x224 in 512x512": (512 - 224 + 1) ** 2,
        "filters": [module.out_channels for module in convolutions],
        "fully connected": [module.out_features for module in network.modules() if isinstance(module, torch.nn.Linear)],
        "weights": sum(tensor.numel() for name, tensor in named if not name.endswith("bias")),
        "weights and biases": sum(tensor.numel() for _, tensor in named),
        "5.33 under 6.66": 1 - 5.33 / 6.66,
        "share of the gap from 6.66 to 5.1 that 5.33 closes": (6.66 - 5.33) / (6.66 - 5.1),
        "efficiency of 47x on 64 GPUs": 47 / 64,
        "efficiency of 24.7x on 32 GPUs": 24.7 / 32,
    }


def official_splits() -> dict[str, object]:
    """Samples of each split of the second Deep Image paper's data sets, as their authors give them."""
    names = ("cub200", "flowers102", "pets", "aircraft", "indoor67")
    return {name: {split: part.num_samples for split, part in load_card(name).splits.items()} for name in names}


def dettmers() -> dict[str, object]:
    """The encoded examples, the p of the printed F, and the mantissa's error between 2 and 2.499."""
    decoded = {name: {f"{value:.7f}": nearest(name, value) for value in values} for name, values in EXAMPLES.items()}
    between = np.linspace(2, 2.499, 100_001)
    relative = (between - 2) / between
    return {
        "decoded": decoded,
        "p of F(4, 4) = 0.71": stats.f.sf(0.71, 4, 4),
        "p of F(4, 20) = 0.71": stats.f.sf(0.71, 4, 20),
        "p of F(4, 4) = 0.54": stats.f.sf(0.54, 4, 4),
        "p of F(4, 20) = 0.54": stats.f.sf(0.54, 4, 20),
        "2 to 2.499 taken for 2, mean relative error": relative.mean(),
        "2 to 2.499 taken for 2, largest relative error": relative.max(),
    }


def nearest(name: str, value: float) -> float:
    """What a number of a block whose absmax is 1 becomes."""
    both = codec(name).decode(codec(name).encode(np.array([1.0, value], np.float32)))
    return float(both[1])


def bsc() -> dict[str, object]:
    """Speed-ups and efficiencies from the printed images a second and hours."""
    one, rates = 124.18, {"7 nodes, 4 + 3": (396.62, 7), "4 nodes, 4 + 3": (374.73, 4), "4 nodes, 4 + 1": (292.22, 4)}
    rates |= {"2 nodes, 2 + 1": (195.6, 2), "4 nodes, 4 + 3, Table 2": (383.09, 4), "8 nodes, 8 + 7": (809.1, 8)}
    return {
        "speed-up": {name: rate / one for name, (rate, _) in rates.items()},
        "efficiency": {name: rate / one / nodes for name, (rate, nodes) in rates.items()},
        "speed-up to the final loss": {nodes: 106.43 / hours for nodes, hours in ((2, 62.78), (4, 37.99), (8, 22.5))},
    }


def mullapudi() -> dict[str, object]:
    """What the epochs of Table 2 mean for an iteration, and how much longer they get."""
    return {
        "microseconds an iteration, of 55,000 in 3.52 s": 3.52 / 55_000 * 1e6,
        "Downpour, 12 nodes over 4": 3.55 / 3.52,
        "delay compensated, 12 nodes over 4": 3.64 / 3.59,
    }


def main() -> None:
    bench = Bench(__doc__)
    found = {
        "deep image": deep_image(),
        "official splits": official_splits(),
        "dettmers": dettmers(),
        "bsc": bsc(),
        "mullapudi": mullapudi(),
    }
    assert math.prod(found["deep image"]["variants"].values()) == found["deep image"]["product of the variants"]
    bench.keep("paper_numbers", found)


if __name__ == "__main__":
    main()
