"""How networks of kept runs bear what is done to test images, averaged over seeds; augmentation.py makes the runs."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

from common import half_width

from augpipe import Recipe, ops
from augpipe.trainer.evaluation import robustness_of

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "robustness.png"
COLOURS = ("#888888", "#3b6ea5", "#c8641e", "#4c8c4a")
REFERENCE = "flip + crop"
MEANS = {
    "the four lenses": ("lens",),
    "cast, vignette, lenses, rotation": ("color_cast", "vignette", "lens", "rotate"),
    "brightness, contrast": ("brightness", "contrast"),
}
"""Ops that are averaged, by how their names begin."""
STRENGTHS = (0.0, 0.5, 1.0, 2.0)
"""Vignettes and lenses go no further than 1 and 1.28."""
CHANGED = Recipe(
    name="papers, blur, light",
    ops=(
        ops.ColorCast(),
        ops.Vignette(),
        ops.LensDistortion(),
        ops.Rotate(),
        ops.Blur(sigma_px=(0.0, 1.0)),
        ops.Brightness(),
        ops.Contrast(),
    ),
)
"""The ops of the Deep Image papers as they draw them, and three that no recipe but TrivialAugment's has."""


def curves_of(out: Path, source: Path) -> dict[str, Any]:
    """A run's accuracy by op and strength; kept beside the run, and made where it is not there."""
    path = out / "robustness.json"
    if not path.exists():
        cpu = time.process_time()
        found = robustness_of(out / "run", CHANGED, strengths=STRENGTHS, source=source, device="cpu")
        curves = {
            curve.op: {f"{point.strength:g}": point.top1.value for point in curve.points} for curve in found.curves
        }
        draws = {curve.op: curve.draws for curve in found.curves}
        path.write_text(json.dumps({"curves": curves, "draws": draws, "cpu_seconds": time.process_time() - cpu}))
        print(f"{out.name}: curves in {time.process_time() - cpu:.0f} s of CPU", flush=True)
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def _percent(values: list[float]) -> dict[str, float | None]:
    half = half_width(values) if len(values) > 1 else None
    return {
        "mean": round(100 * statistics.mean(values), 2),
        "95 % confidence, +-": None if half is None else round(100 * half, 2),
    }


def _costs(change: dict[str, list[float]]) -> dict[str, Any]:
    """What strength 1 changes, of each recipe's seeds, and that beside the reference."""
    return {
        "change from strength 0 to 1, points": {name: _percent(values) for name, values in change.items()},
        f"that change less the one of {REFERENCE}, same seeds, points": {
            name: _percent([one - other for one, other in zip(values, change[REFERENCE], strict=True)])
            for name, values in change.items()
            if name != REFERENCE
        },
    }


def table_of(runs: dict[Path, tuple[str, int]], curves: dict[Path, Any]) -> dict[str, Any]:
    """Each op's accuracy by strength and recipe, and what strength 1 costs, seed by seed beside flip + crop.

    Args:
        runs: by folder the recipe and the seed; all recipes have the same seeds.
        curves: by folder what `curves_of` gave.
    """
    names = list(dict.fromkeys(name for name, _ in runs.values()))
    seeds = sorted({seed for _, seed in runs.values()})
    by_run = {run: curves[out]["curves"] for out, run in runs.items()}
    first = next(iter(curves.values()))
    table: dict[str, Any] = {}
    changes: dict[str, dict[str, list[float]]] = {}
    for op, points in first["curves"].items():
        accuracy = {
            name: {strength: [by_run[name, seed][op][strength] for seed in seeds] for strength in points}
            for name in names
        }
        changes[op] = {
            name: [one - plain for one, plain in zip(by["1"], by["0"], strict=True)] for name, by in accuracy.items()
        }
        table[op] = {
            "draws at strength 1": first["draws"][op],
            "strengths": [float(strength) for strength in points],
            "accuracy, %": {
                name: {
                    key: [_percent(values)[key] for values in by.values()] for key in ("mean", "95 % confidence, +-")
                }
                for name, by in accuracy.items()
            },
            **_costs(changes[op]),
        }
    means = {}
    for title, some in MEANS.items():
        mine = [changes[op] for op in table if op.startswith(some)]
        means[title] = _costs(
            {name: [statistics.mean(at) for at in zip(*(one[name] for one in mine), strict=True)] for name in names}
        )
    return {"seeds": seeds, "ops": table, "means of several ops": means}


def draw(tables: dict[str, dict[str, Any]], path: Path) -> None:
    """A block of panels for each data set: one an op, a line a recipe with its interval over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.7 * len(tables)), layout="constrained")
    blocks = figure.subfigures(len(tables), 1, squeeze=False)[:, 0]
    for block, (title, table) in zip(blocks, tables.items(), strict=True):
        block.suptitle(f"{title}, mean of seeds {', '.join(map(str, table['seeds']))}", fontsize=11)
        columns = -(-len(table["ops"]) // 2)
        panels = block.subplots(2, columns, sharey=True)
        for panel, (op, found) in zip(panels.flat, table["ops"].items(), strict=False):
            for (name, values), colour in zip(found["accuracy, %"].items(), COLOURS, strict=False):
                strengths, means = found["strengths"], values["mean"]
                panel.plot(strengths, means, color=colour, marker="o", markersize=3, linewidth=1.3, label=name)
                halves = [half or 0.0 for half in values["95 % confidence, +-"]]
                low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
                panel.fill_between(strengths, low, high, color=colour, alpha=0.12, linewidth=0)
            panel.axvline(1, color="#888888", linewidth=0.8, linestyle=":")
            panel.set_title(op.replace("_", " "), fontsize=9)
            panel.set_xlim(-0.05, max(STRENGTHS) + 0.05)
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
            panel.tick_params(labelsize=8)
        for row in panels:
            row[0].set_ylabel("test accuracy, %", fontsize=9)
        for panel in panels[-1]:
            panel.set_xlabel("strength", fontsize=9)
        block.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn in {path}")
