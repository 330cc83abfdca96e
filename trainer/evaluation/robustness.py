"""Accuracy against the strength of each op of a recipe, on the same draws at every strength."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from augpipe import Recipe, ops
from augpipe.ops.op import Op
from augpipe.ops.strength import NAMES, at_strength, has_strength
from augpipe.recipes.view import View
from augpipe.sources.protocol import Source
from augpipe.trainer.evaluation.ensemble import MEMORY_MB, Tell, open_runs
from augpipe.trainer.evaluation.metrics import Share, wilson
from augpipe.trainer.evaluation.predict import ShownNetwork, predict
from augpipe.trainer.evaluation.trained_run import TrainedRun
from augpipe.trainer.evaluation.views import Views
from augpipe.validation.arguments import as_count, check_choice
from augpipe.validation.models import changed

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Parts of what the recipe draws; 0 is the plain evaluation."""
USUAL = Recipe(
    name="usual",
    ops=(
        ops.ColorCast(),
        ops.Vignette(),
        ops.LensDistortion(),
        ops.Rotate(),
        ops.Zoom(),
        ops.Blur(sigma_px=(0.0, 1.0)),
        ops.Noise(),
        ops.Brightness(),
        ops.Contrast(),
    ),
)
"""The ops of the Deep Image papers as they draw them, scale, blur, noise, brightness and contrast."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One strength."""

    strength: float
    top1: Share


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run under one op."""

    run: str
    op: str
    """Its kind, and of lenses which one."""
    draws: str
    """Its draws at strength 1, in words."""
    points: tuple[Point, ...]
    """By rising strength; an op that does not go so far ends before the largest."""


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """The curves of all runs under all ops of a recipe."""

    recipe: str
    strengths: tuple[float, ...]
    curves: tuple[Curve, ...]
    """Each op's, the runs side by side."""


def robustness_of(
    runs: str | Path | Sequence[str | Path],
    recipe: Recipe = USUAL,
    *,
    strengths: Sequence[float] = STRENGTHS,
    source: str | Path | Source | None = None,
    held_out: bool = False,
    device: str = "auto",
    memory_mb: int = MEMORY_MB,
    on_error: str | None = None,
    tell: Tell | None = None,
) -> Robustness:
    """Evaluate runs on images that each op of a recipe by itself has changed, at several strengths.

    Every image is changed, whatever the op's `p`, in the centre that the run's own evaluation shows. An image's random
    words are the same at every strength and for every run, those of seed 0 and epoch 0: a strength only scales what is
    drawn, see `augpipe.ops.strength`.

    Args:
        runs: folders of training runs.
        recipe: whose ops are looked at; those of its groups, too, each by itself.
        strengths: parts of what the ops draw; 0 is the plain evaluation.
        source, held_out, device, memory_mb, on_error, tell: as `evaluate_runs`.

    Raises:
        ValueError: a strength is negative or twice there, no op of the recipe has a strength, or what `evaluate_runs`
            raises.
        SampleError: an image cannot be used.
    """
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    if not folders:
        raise ValueError("runs is empty. Give the folder of a training run, or several.")
    looked_at = ops_of(recipe)
    ordered = _checked(strengths)
    as_count("memory_mb", memory_mb)
    check_choice("on_error", on_error, (None, "raise", "skip"))
    by_run = []
    with open_runs(folders, source, device, held_out=held_out) as (opened, images, labels):
        for run in opened:
            shares = partial(_share, run, images, labels, ShownNetwork(run, Views()), memory_mb, on_error, tell)
            plain = [Point(strength=0.0, top1=shares("plain", run.recipe))] if ordered[0] == 0.0 else []
            by_run.append(
                [
                    Curve(
                        run=str(run.path),
                        op=name,
                        draws=op.draws_text,
                        points=(
                            *plain,
                            *(
                                Point(
                                    strength=strength, top1=shares(f"{name} x {strength:g}", with_op(run.recipe, one))
                                )
                                for strength, one in _stronger(op, ordered)
                            ),
                        ),
                    )
                    for name, op in looked_at.items()
                ]
            )
    curves = tuple(curve for of_op in zip(*by_run, strict=True) for curve in of_op)
    return Robustness(recipe=recipe.name or "recipe", strengths=ordered, curves=curves)


def ops_of(recipe: Recipe) -> dict[str, Op]:
    """The ops of a recipe that have a strength, always applied, under names; each kind of lens is one of its own.

    Raises:
        ValueError: there are none.
    """
    found: dict[str, Op] = {}
    for op in (inner for view in recipe.all_views for outer in view.ops for inner in outer.flat):
        if not has_strength(op):
            continue
        always = op.model_copy(update={"p": 1.0})
        parts = {op.op: always}
        if isinstance(op, ops.LensDistortion):
            parts = {f"lens {kind}": always.model_copy(update={"kinds": (kind,)}) for kind in op.kinds}
        for name, part in parts.items():
            if part not in found.values():
                same = sum(one.partition(" #")[0] == name for one in found)
                found[f"{name} #{same + 1}" if same else name] = part
    if not found:
        raise ValueError(
            f"the recipe {recipe.name or 'given'} has no op with a strength. Those that have one: {', '.join(NAMES)}."
        )
    return found


def with_op(recipe: Recipe, op: Op) -> Recipe:
    """A run's evaluation with one more op, on the cropped image."""
    own = recipe.all_views[0].ops
    last = max((place for place, one in enumerate(own, start=1) if one.is_crop), default=0)
    view = View.model_validate({"ops": (*own[:last], op, *own[last:])})
    return changed(recipe, ops=(), views=(view,), mixing=())


def _stronger(op: Op, strengths: tuple[float, ...]) -> list[tuple[float, Op]]:
    """The op at each strength above 0 that it can have."""
    found = []
    for strength in strengths:
        if strength > 0.0:
            try:
                found.append((strength, at_strength(op, strength)))
            except ValueError:
                break
    return found


def _share(
    run: TrainedRun,
    images: Source,
    labels: npt.NDArray[np.int64],
    network: ShownNetwork,
    memory_mb: int,
    on_error: str | None,
    tell: Tell | None,
    name: str,
    recipe: Recipe,
) -> Share:
    """The top-1 under a recipe, of the images that can be used."""
    answers = predict(
        replace(run, recipe=recipe),
        images,
        Views(),
        memory_mb=memory_mb,
        on_error=on_error,
        progress=None if tell is None else partial(tell, f"{run.path}, {name}"),
        network=network,
    )
    kept = ~np.isnan(answers.log_probs[:, 0])
    right = answers.log_probs[kept].argmax(1) == labels[kept]
    return wilson(int(right.sum()), int(kept.sum()))


def _checked(strengths: Sequence[float]) -> tuple[float, ...]:
    ordered = tuple(sorted(float(one) for one in strengths))
    if not ordered or not all(0.0 <= one <= 100.0 for one in ordered) or len(set(ordered)) < len(ordered):
        raise ValueError(
            f"strengths={list(strengths)} must be numbers in 0..100, each once, as 0,0.5,1,2: parts of what the recipe "
            "draws."
        )
    return ordered
