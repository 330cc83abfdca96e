"""Table 1 of Dettmers' 8-bit paper with the codecs: our errors beside the printed ones, row by row.

    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.codec_error [--num 25000000] [--steps 300]

One scale for all numbers, as in the paper. Dynamic tree and linear are scaled by the absmax. The paper gives mantissa
and static tree an exponent offset instead, 10^2 for N(0, 10^2) and 10^1 for the rest; both ways are measured. The MNIST
rows need torch, and mnist.npz in the folder that AUGPIPE_DATA names. Relative errors are means of |error / x|, x != 0.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from augpipe.trainer.codecs import codec
from benchmarks.harness import Bench

Numbers = npt.NDArray[np.float32]

TYPES = {
    "8-bit dynamic tree": "dynamic-tree",
    "8-bit linear quant": "linear",
    "8-bit mantissa": "mantissa",
    "8-bit static tree": "static-tree",
}
WITH_OFFSET = ("mantissa", "static-tree")
EXTRA = ("dynamic-map",)
"""Not in the paper; measured for comparison."""

_PRINTED = (
    ("U(0, 1)", ("0.00004", "0.0024", "0.0017", "0.0007"), ("1.39", "2.16", "7.22", "4.82")),
    ("N(0, 1)", ("0.0005", "0.0004", "0.0104", "0.0093"), ("2.46", "6.47", "6.89", "6.3")),
    ("N(0, 10^2)", ("0.049", "0.041", "1.066", "0.926"), ("2.49", "6.44", "7.19", "6.28")),
    ("N(0, 0.2^2)", ("0.000018", "0.000015", "0.00055", "0.00022"), ("2.45", "6.15", "8.26", "6.58")),
    (
        "MNIST model parallel",
        ("0.025 / 2 / 3321", "0.02 / 2.6 / 3387", "1 / 70 / 265000", "0.45 / 50 / 187000"),
        ("0.5 / 2 / 2", "1 / 2 / 3", "1.5 / 2 / 8", "1 / 2 / 6"),
    ),
    (
        "MNIST data parallel",
        ("0.0005 / 0.004 / 0.95", "0.001 / 0.01 / 1.25", "0.02 / 0.1 / 55", "0.01 / 0.04 / 24"),
        ("3 / 4 / 5", "5 / 6 / 6", "4.5 / 4.5 / 6", "4 / 4 / 5"),
    ),
)
PRINTED = {row: dict(zip(TYPES.values(), zip(*columns, strict=True), strict=True)) for row, *columns in _PRINTED}
"""Table 1: "mean absolute error" and "mean relative error in %"; MNIST by layer."""

NOTES = (
    "The column 'mean absolute error' of the normal distributions can hardly be what it says: with sigma ten times as "
    "large the error of a scaled type is ten times as large, and the printed one is a hundred times as large. Our mean "
    "squared errors have the printed sizes within a factor of about three, and the printed order of the types.",
    "The rows of U(0, 1) mix units: 0.00004 for the dynamic tree is of the size of a mean squared error, 0.0024 for "
    "linear quantisation of that of a mean absolute one.",
    "The printed relative errors are larger than ours by 1.2 to 1.6 for the normal distributions; the paper does not "
    "say how numbers near zero were counted.",
    "MNIST: the paper gives no step, batch size or unit for its errors by layer; ours are means over a run's steps.",
)


def distributions(num: int) -> Iterator[tuple[str, Numbers, float]]:
    """Row, sample, and what the paper's exponent offset amounts to as a scale."""
    for row, sigma, offset in (
        ("U(0, 1)", None, 10.0),
        ("N(0, 1)", 1.0, 10.0),
        ("N(0, 10^2)", 10.0, 100.0),
        ("N(0, 0.2^2)", 0.2, 10.0),
    ):
        rng = np.random.default_rng(1)
        x = rng.random(num, np.float32) if sigma is None else rng.standard_normal(num, np.float32) * np.float32(sigma)
        yield row, x, offset


def errors(name: str, x: Numbers, offset: float | None = None) -> dict[str, float]:
    """What a type is off by with one scale, which is the absmax or `offset`."""
    made = codec(name, block=None)
    given = x.reshape(-1) if offset is None else np.append(x, np.float32(offset))  # the last number is the absmax
    decoded = made.decode(made.encode(given))[: x.size]
    error, size = np.abs(decoded - x.reshape(-1)), np.abs(x.reshape(-1))
    used = size > 0
    return {
        "mean absolute error": float(error.mean(dtype=np.float64)),
        "mean squared error": float(np.square(error).mean(dtype=np.float64)),
        "mean relative error in %": float(100 * (error[used] / size[used]).mean(dtype=np.float64)),
    }


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.3g}") for name, value in values.items()}


def mnist_layers(path: Path, num_steps: int) -> dict[str, list[list[Numbers]]]:
    """Activations and weight gradients, by layer, of steps of a run with the paper's network and settings."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    with np.load(path) as data:
        images = torch.from_numpy(data["train_images"].reshape(-1, 784).astype(np.float32) / 255)
        labels = torch.from_numpy(data["train_labels"].astype(np.int64))
    layers = [nn.Linear(784, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)]
    optimizer = torch.optim.RMSprop([p for layer in layers for p in layer.parameters()], lr=0.003)
    kept: dict[str, list[list[Numbers]]] = {"MNIST model parallel": [[], [], []], "MNIST data parallel": [[], [], []]}
    for step in range(num_steps):
        chosen = torch.randint(len(images), (128,))
        x, outputs = images[chosen], []
        for nth, (layer, drop) in enumerate(zip(layers, (0.2, 0.3, 0.3), strict=True)):
            x = layer(nn.functional.dropout(x, drop))
            x = x if nth == 2 else x.relu()
            outputs.append(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(x, labels[chosen]).backward()
        if step % 20 == 19:
            for nth, (layer, output) in enumerate(zip(layers, outputs, strict=True)):
                assert layer.weight.grad is not None
                kept["MNIST model parallel"][nth].append(output.detach().numpy().copy())
                kept["MNIST data parallel"][nth].append(layer.weight.grad.numpy().copy())
        optimizer.step()
    return kept


def row_of_layers(name: str, layers: list[list[Numbers]]) -> dict[str, str]:
    """The means over the kept steps, the three layers with slashes between, as the paper prints them."""
    found = [[errors(name, matrix) for matrix in matrices] for matrices in layers]
    return {key: " / ".join(f"{np.mean([one[key] for one in layer]):.3g}" for layer in found) for key in found[0][0]}


def main() -> None:
    bench = Bench(__doc__, num=25_000_000, steps=300)
    num, steps = bench.pick(bench.options.num, 10_000), bench.pick(bench.options.steps, 20)
    labels = {name: label for label, name in TYPES.items()}
    rows: list[dict[str, object]] = []

    def add(row: str, name: str, **ours: object) -> None:
        absolute, relative = PRINTED[row].get(name, (None, None))
        printed = {"mean absolute error": absolute, "mean relative error in %": relative}
        rows.append({"data": row, "type": labels.get(name, name), "printed": printed} | ours)

    for row, x, offset in distributions(num):
        for name in (*TYPES.values(), *EXTRA):
            ours = {"ours, scaled by the absmax": rounded(errors(name, x))}
            if name in WITH_OFFSET:
                ours[f"ours, exponent offset {offset:g}"] = rounded(errors(name, x, offset))
            add(row, name, **ours)
    path = Path(os.environ.get("AUGPIPE_DATA", ".")) / "mnist.npz"
    if path.exists():
        for row, layers in mnist_layers(path, steps).items():
            for name in (*TYPES.values(), *EXTRA):
                add(row, name, **{"ours, scaled by the absmax": row_of_layers(name, layers)})
    else:
        print(f"no MNIST rows: there is no {path.name} in the folder that AUGPIPE_DATA names")
    bench.keep(
        "codec_error",
        {
            "what": f"Dettmers' Table 1 beside the codecs; {num} numbers of each distribution, one scale for "
            f"all; MNIST 784-1024-1024-10, RMSProp at 0.003, batches of 128, {steps} steps, every 20th",
            "rows": rows,
            "notes": NOTES,
        },
    )


if __name__ == "__main__":
    main()
