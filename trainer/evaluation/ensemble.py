"""Several runs on the same images: each alone, and their answers averaged."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from augpipe.sources.protocol import Source, labels_of
from augpipe.trainer.evaluation.metrics import Metrics, measure
from augpipe.trainer.evaluation.predict import Answers, predict
from augpipe.trainer.evaluation.trained_run import TrainedRun, open_run
from augpipe.trainer.evaluation.views import Views, average_answers
from augpipe.trainer.loop.world import open_world
from augpipe.validation.arguments import as_count, check_choice
from augpipe.validation.plural import count

MEMORY_MB = 1024
"""What batches may take by default, in MB."""
TOGETHER = "all together"
_TIMEOUT_S = 3600.0
"""For which a rank waits for one that has larger images."""

Tell = Callable[[str, int, int], None]
"""Called with (what is under way, images done, images in all)."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One network's result, or that of all together."""

    name: str
    """The run's folder, or `TOGETHER`."""
    weight: float
    """Its share of the average; 1 for all together."""
    step: int | None
    """Steps of training; None for all together."""
    weights: str
    """Which weights were evaluated: "average" (ema), "last", or "" for all together."""
    metrics: Metrics
    log_probs: npt.NDArray[np.float32]
    """(N, C) the logarithms of its probabilities."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The results of all runs on the same images."""

    views: Views
    results: tuple[RunResult, ...]
    """Each run's, and, where there are several, that of all together."""
    classes: tuple[str, ...]
    """(C,) names, in the order of the outputs; one without a class is called "output 12"."""
    names: tuple[str, ...]
    """(N,) the images that count."""
    labels: npt.NDArray[np.int64]
    """(N,) their classes."""
    source: Source
    """Where the images are."""
    sample_ids: npt.NDArray[np.int64]
    """(N,) the numbers that the images have there."""
    left_out: dict[int, str]
    """Images that one of the runs could not use, which count for none: sample id -> "name: reason"."""

    @property
    def last(self) -> RunResult:
        """All together, or the only run."""
        return self.results[-1]

    @property
    def log_probs(self) -> npt.NDArray[np.float32]:
        """(N, C) the logarithms of the last result's probabilities."""
        return self.last.log_probs


def evaluate_runs(
    runs: str | Path | Sequence[str | Path],
    views: Views | None = None,
    *,
    source: str | Path | Source | None = None,
    held_out: bool = False,
    recipe: str | Path | None = None,
    weights: Sequence[float] | None = None,
    device: str = "auto",
    memory_mb: int = MEMORY_MB,
    on_error: str | None = None,
    tell: Tell | None = None,
    keep: str | Path | None = None,
) -> Comparison:
    """Evaluate one run, or several on the same images and all together.

    Called by all ranks where there are several: they share the images, and each has all results.

    Args:
        runs: folders of training runs, which may differ in network, input size and normalisation.
        views: how each image is shown; None: as in the runs' own evaluation.
        source: what to evaluate on, of the runs' classes; None: what the first run held out, if all held out the same.
        held_out: of `source` only what the runs held out, by name: for photographs that have been moved.
        recipe: what makes the images: a recipe's name (at the run's size) or a TOML file; None: as in the runs' own
            evaluation.
        weights: of the runs in the average; None: the same for all.
        device: "auto", "cpu", "cuda" or "cuda:1".
        memory_mb: what batches may take, in MB, by an estimate: see `groups.Memory`.
        on_error: "raise"; "skip" to leave out images that cannot be used; None: as each run's config says.
        tell: hears how far it is.
        keep: a folder in which answers are kept meanwhile, so that the same call goes on after a kill; None: nowhere.

    Raises:
        ValueError: a folder is not a run or has no checkpoint, runs or source differ in their classes, the source is
            empty, or a network does not take such views.
        SampleError: an image cannot be used.
    """
    views = views or Views()
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    shares = _checked_weights(weights, len(folders))
    as_count("memory_mb", memory_mb)
    check_choice("on_error", on_error, (None, "raise", "skip"))
    with open_runs(folders, source, device, held_out=held_out, recipe=recipe) as (opened, images, labels):
        found = [
            predict(
                run,
                images,
                views,
                memory_mb=memory_mb,
                on_error=on_error,
                progress=None if tell is None else partial(tell, str(run.path)),
                keep=None if keep is None else Path(keep),
            )
            for run in opened
        ]
    return _compared(opened, images, labels, views, shares, found)


@contextmanager
def open_runs(
    folders: Sequence[str | Path],
    source: str | Path | Source | None,
    device: str,
    *,
    held_out: bool = False,
    recipe: str | Path | None = None,
) -> Iterator[tuple[list[TrainedRun], Source, npt.NDArray[np.int64]]]:
    """Runs of the same classes, the images to evaluate them on and those images' classes; arguments as `evaluate_runs`.

    Raises:
        ValueError: a folder is not a run or has no checkpoint, runs or source differ in their classes, or it is empty.
    """
    with open_world(device, _TIMEOUT_S) as world:
        opened = [open_run(folder, world, recipe) for folder in folders]
        _check_same_classes(opened)
        images = _source_of(opened, source, held_out)
        yield opened, images, _labels_of(images, opened[0])


def _compared(
    runs: list[TrainedRun],
    source: Source,
    labels: npt.NDArray[np.int64],
    views: Views,
    shares: list[float],
    found: list[Answers],
) -> Comparison:
    left_out = dict(sorted({key: text for answers in found for key, text in answers.left_out.items()}.items()))
    kept = np.array([number for number in range(len(source)) if number not in left_out], np.int64)
    if not len(kept):
        raise ValueError(f"none of {count(len(source), 'photograph')} can be used: {next(iter(left_out.values()))}.")
    counted = [answers.log_probs[kept] for answers in found]
    results = [
        RunResult(
            name=str(run.path),
            weight=share,
            step=run.checkpoint.step,
            weights="average" if run.averages else "last",
            metrics=measure(log_probs, labels[kept]),
            log_probs=log_probs,
        )
        for run, share, log_probs in zip(runs, shares, counted, strict=True)
    ]
    if len(runs) > 1:
        stacked = torch.from_numpy(np.stack(counted))
        mean = average_answers(stacked, torch.tensor(shares), views.average).numpy()
        metrics = measure(mean, labels[kept])
        results.append(RunResult(name=TOGETHER, weight=1.0, step=None, weights="", metrics=metrics, log_probs=mean))
    num_outputs = runs[0].num_outputs
    classes = [*source.classes, *(f"output {number}" for number in range(len(source.classes), num_outputs))]
    return Comparison(
        views=views,
        results=tuple(results),
        classes=tuple(classes),
        names=tuple(source.name(number) for number in kept.tolist()),
        labels=labels[kept],
        source=source,
        sample_ids=kept,
        left_out=left_out,
    )


def _checked_weights(weights: Sequence[float] | None, num: int) -> list[float]:
    """The weights of `num` runs, scaled to a sum of 1; even where none are given."""
    if num == 0:
        raise ValueError("runs is empty. Give the folder of a training run, or several.")
    given = [1.0] * num if weights is None else list(weights)
    if len(given) != num or not all(0 < weight < float("inf") for weight in given):
        raise ValueError(f"weights={given} must be {count(num, 'number')} above 0, one for each run.")
    return [weight / sum(given) for weight in given]


def _check_same_classes(runs: list[TrainedRun]) -> None:
    for run in runs[1:]:
        if run.classes != runs[0].classes or run.num_outputs != runs[0].num_outputs:
            first, other = runs[0], run
            nums = f"{first.num_outputs} and {other.num_outputs}"
            how = f": {nums}" if first.num_outputs != other.num_outputs else ", by their names or their order"
            raise ValueError(
                f"{first.path} and {other.path} were trained on different classes{how}. Answers are averaged for the "
                "same ones alone: evaluate each by itself."
            )


def _source_of(runs: list[TrainedRun], source: str | Path | Source | None, held_out: bool) -> Source:
    if source is None and held_out:
        raise ValueError("--held-out goes with --source, which says where the photographs are now. Leave it out.")
    place = str(source) if isinstance(source, str | Path) else None
    images: Source | None = _opened(source, runs[0], held_out) if isinstance(source, str | Path) else source
    if images is not None and len(images) == 0:
        raise ValueError("the source is empty: it holds no photographs. Check where it points to.")
    if images is not None and not held_out:
        for run in runs:
            run.check_classes(images, "the source" if place is None else f"source={place!r}")
            run.say_if_trained_on(images, place)
        return images
    name = place or "the source"
    first = runs[0].held_out(images, name)
    for run in runs[1:]:
        other = run.held_out(images, name)
        same = len(first) == len(other) and all(first.name(i) == other.name(i) for i in range(len(first)))
        if not same:
            raise ValueError(
                f"{runs[0].path} and {run.path} held out different photographs, and each may have been trained on the "
                "other's. Give a source that none was trained on."
            )
    return first


def _opened(place: str | Path, run: TrainedRun, held_out: bool) -> Source:
    """A source, or where it holds several parts, the one that a run held out."""
    kept = run.data.held_out if run.data is not None and held_out else None
    try:
        return run.opened(str(place))
    except ValueError:
        if kept is None or kept.split is None:
            raise
        return run.opened(str(place), kept.split)


def _labels_of(source: Source, run: TrainedRun) -> npt.NDArray[np.int64]:
    labels = labels_of(source, np.arange(len(source), dtype=np.int64)).astype(np.int64)
    without = np.flatnonzero((labels < 0) | (labels >= run.num_outputs))
    if len(without):
        raise ValueError(
            f"{source.name(int(without[0]))} has no class, nor have {len(without) - 1:,} others. Evaluation needs one "
            "for each photograph."
        )
    return labels
