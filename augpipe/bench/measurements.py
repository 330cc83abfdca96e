"""All measurements of one run, interleaved, so that whatever else the machine does falls on all alike."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from augpipe.bench.machine import machine
from augpipe.bench.tasks import Task, decode_task, kernel_task, loader_task, plan_task, region_task
from augpipe.native.workers import num_usable_cores
from augpipe.pipeline.blocks import BLOCK_SIZE
from augpipe.pipeline.held_images import hold
from augpipe.pipeline.stored_image import StoredImage
from augpipe.recipes.names import as_recipe
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Source, is_sized

NUM_ROUNDS = 7
"""Rounds that a run is meant to have; the median of so many leaves out what disturbed one or two of them."""
MIN_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How fast one thing went."""

    what: str
    """decode, decode_region, kernel, plan, loader_memory or loader_disk."""
    threads: int
    images_per_s: float
    """The median over the rounds."""
    low: float
    """The slowest round."""
    high: float
    """The fastest round."""
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run found."""

    machine: dict[str, object]
    recipe: str
    batch_size: int
    num_images: int
    """How many different ones were put through."""
    mean_pixels: float
    mean_bytes: float
    """0 for a source that holds pixels."""
    rates: tuple[Rate, ...]
    skipped: dict[int, str]
    seconds: float
    """How long the whole run took, preparations included."""

    def rate(self, what: str, threads: int) -> float | None:
        """The median rate of one thing in images/s, if it was measured."""
        return next((r.images_per_s for r in self.rates if (r.what, r.threads) == (what, threads)), None)

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads measured, 1 first."""
        return tuple(sorted({rate.threads for rate in self.rates}))

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        planning = self.rate("plan", 1)
        return {
            "machine": self.machine,
            "recipe": self.recipe,
            "batch_size": self.batch_size,
            "photographs": {
                "number": self.num_images,
                "mean_pixels": round(self.mean_pixels),
                "mean_bytes": round(self.mean_bytes),
                "skipped": len(self.skipped),
            },
            "rates": [
                {
                    "what": rate.what,
                    "threads": rate.threads,
                    "images_per_s": round(rate.images_per_s, 1),
                    "low": round(rate.low, 1),
                    "high": round(rate.high, 1),
                    "rounds": rate.rounds,
                }
                for rate in self.rates
            ],
            "planning_us_per_image": None if planning is None else round(1e6 / planning, 3),
            "seconds": round(self.seconds, 2),
        }


@dataclass(slots=True)
class _Contestant:
    what: str
    threads: int
    task: Task
    num: int
    """Images in a round."""
    rates: list[float]


def _refuse_targets(recipe: Recipe) -> None:
    """Raise ValueError where a recipe needs objects, of which images in memory have none."""
    for needs, what in (
        (recipe.mosaic is not None, "a mosaic"),
        (bool(recipe.keeping), "keep_objects"),
        (recipe.pastes_objects, "copy_paste"),
    ):
        if needs:
            raise ValueError(
                f"{recipe.called} has {what}, which looks at objects, and what is measured are images alone. Leave it "
                "out of the recipe, or time an epoch of a Loader."
            )


def measure(
    source: Source,
    recipe: Recipe | str | Path,
    *,
    seconds: float = 15.0,
    batch_size: int = 64,
    num_threads: int | None = None,
    seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Callable[[float, int], None] | None = None,
) -> Report:
    """Time decoding (whole, and what a plan looks at), planning, the kernel and the loader, on 1 thread and on all.

    Args:
        source: where the images are; up to `held.MAX_IMAGES` of them are held in memory.
        recipe: what is done to them.
        seconds: about how long to measure, not counting reading and compiling.
        batch_size: of the loader.
        num_threads: what "all" means; None for one a core.
        seed: of the plans.
        on_error: "raise", or "skip" images that cannot be used.
        progress: called with the share of `seconds` that has passed, above 0, and how many images were measured.

    Raises:
        SampleError: an image cannot be used.
        ValueError: an argument is out of range, or the recipe looks at objects.
    """
    if not seconds > 0.0:
        raise ValueError(f"seconds={seconds} must be above 0.")
    for name, value in (("batch_size", batch_size), ("num_threads", num_threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    start = time.perf_counter()
    recipe = as_recipe(recipe)
    _refuse_targets(recipe)
    held, skipped = hold(source, recipe, skips_bad=on_error == "skip")
    threads_tried = sorted({1, num_threads or num_usable_cores()})
    images = held[: _num_in_a_slice(held, recipe, seconds / (5 * len(threads_tried) + 1), batch_size)]
    contestants = [
        _Contestant(what, threads, task, len(images), [])
        for what, task in (
            ("decode", decode_task(images)),
            ("decode_region", region_task(images, source, recipe, seed, 0)),
            ("kernel", kernel_task(images, recipe, seed, 0, batch_size)),
            ("loader_memory", loader_task(images, recipe, seed, batch_size, None)),
            ("loader_disk", loader_task(images, recipe, seed, batch_size, source)),
        )
        for threads in threads_tried
    ]
    num_planned = max(batch_size, BLOCK_SIZE) if is_sized(source) else batch_size
    contestants.append(_Contestant("plan", 1, plan_task(images, recipe, seed, num_planned), 16 * batch_size, []))
    for contestant in contestants:
        # the same images as often for each, or one would have the larger ones
        contestant.task(1, contestant.threads)
        passes = seconds / (NUM_ROUNDS * len(contestants)) / contestant.task(contestant.num, contestant.threads)
        contestant.num *= max(1, round(passes))
    begun = time.perf_counter()
    number = num_measured = 0
    while number < MIN_ROUNDS or time.perf_counter() - begun < seconds * (1.0 - 0.5 / NUM_ROUNDS):
        for contestant in contestants:
            contestant.rates.append(contestant.num / contestant.task(contestant.num, contestant.threads))
            num_measured += contestant.num
            if progress is not None:
                progress(min(1.0, (time.perf_counter() - begun) / seconds), num_measured)
        number += 1
    sizes = [image.size[0] * image.size[1] for image in images]
    num_bytes = [len(image.content) for image in images if isinstance(image.content, bytes)]
    return Report(
        machine=machine(),
        recipe=recipe.name or "recipe",
        batch_size=batch_size,
        num_images=len(images),
        mean_pixels=statistics.fmean(sizes),
        mean_bytes=statistics.fmean(num_bytes or [0]),
        rates=tuple(_rate(contestant) for contestant in contestants),
        skipped=skipped,
        seconds=time.perf_counter() - start,
    )


def _num_in_a_slice(held: Sequence[StoredImage], recipe: Recipe, share_s: float, batch_size: int) -> int:
    """How many images the loader gets through in one round, where each thing measured has `share_s` in all."""
    pilot = loader_task(held, recipe, 0, batch_size, None)
    pilot(1, 1)  # compiles
    num = 1
    while (took := pilot(num, 1)) < share_s / 20 and num < len(held):
        num = min(4 * num, len(held))
    per_second = num / took
    count = int(per_second * share_s / NUM_ROUNDS)
    if count < batch_size:
        # rather fewer rounds than a batch cut short
        return max(1, min(batch_size, len(held), int(per_second * share_s / MIN_ROUNDS)))
    return min(len(held), count // batch_size * batch_size)


def _rate(contestant: _Contestant) -> Rate:
    rates = contestant.rates
    return Rate(
        what=contestant.what,
        threads=contestant.threads,
        images_per_s=statistics.median(rates),
        low=min(rates),
        high=max(rates),
        rounds=len(rates),
    )
