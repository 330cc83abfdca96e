"""Situations in which a loader is slow: its arguments, what it reads, who uses its batches, and what can be freed.

The first ten are what users complain of. The others are meant to fool advice: they look like one of the ten.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from augpipe import Batch, Recipe, View
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.pairs import MapStyleSource
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.ops import (
    Blur,
    ColorJitter,
    Flip,
    GaussianBlur,
    Grayscale,
    Normalize,
    Op,
    RandomCrop,
    RandomResizedCrop,
    Rotate,
)
from augpipe.sources.protocol import Source
from benchmarks.pipeline.staging import Disk, Files, Held, PillowDataset, Sized, Staging

DISK = {"latency_s": 0.008, "bytes_per_s": 200e6}
STEP_S = 0.08
"""A step of training on a device, a batch of 32."""
CACHE_BYTES = 8 << 20
SMALL_BATCHES = {"batch_size": 16}
MATRIX = torch.ones(1024, 1024)
JITTER = ColorJitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p=0.8)
"""As for SimCLR; its blur is wider here."""


def crops(*steps: Op, size: int = 224) -> tuple[Op, ...]:
    """A crop of random area, a flip, what more there is, and normalisation."""
    return RandomResizedCrop(size=size), Flip(), *steps, Normalize()


def eight_views(size: int, **how: Any) -> Recipe:
    """Eight turned views of each photograph in a batch, as for batch augmentation (Hoffer et al. 2020)."""
    return Recipe(views=(View(ops=crops(Rotate(), size=size), count=8),), **how)


CROPS = Recipe(ops=crops())
POINTS: dict[str, Any] = {"interpolation": "nearest", "antialias": False}
"""Fields of a recipe for which photographs are decoded in full size, however small its views are."""
TINY = Recipe(ops=crops(size=8), **POINTS)


def nothing(batch: Batch) -> None:
    """Take no time."""


def sleeps(batch: Batch) -> None:
    """Wait for a device."""
    time.sleep(STEP_S)


def computes(batch: Batch) -> None:
    """Train on this CPU, on all of its cores."""
    for _ in range(2):
        torch.mm(MATRIX, MATRIX)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A loader, its consumer, and what can be freed."""

    files: Files
    """What lies in the folder."""
    open: Callable[[Path], Any] = FolderSource
    """Makes the source of the folder."""
    recipe: Recipe = CROPS
    consumer: Callable[[Batch], None] = nothing
    """Called with each batch."""
    loader: dict[str, Any] = field(default_factory=lambda: {"batch_size": 32})
    """Further arguments of the loader."""
    is_cold: bool = False
    """Whether the files are on the disk only when a loader begins, and not in the system's page cache."""
    before_map: tuple[str, ...] = ("reading", "decoding")
    """Which stages before the map can be freed."""
    without_map: Recipe | None = TINY
    """The recipe with hardly a pixel to look up; None where it would be decoded or coloured otherwise."""
    without_program: Recipe | None = None
    """The recipe without what acts on the looked-up view; None where nothing does."""

    def freed(self) -> "dict[str, Situation]":
        """Stage -> the situation without it, as far as that goes: planning is that of many samples at once."""
        opened, files = self.open, self.files
        sources: dict[str, Callable[[Path], Source]] = {
            "reading": lambda folder: Held(opened(folder), files.contents, reads=False),
            "decoding": lambda folder: Held(opened(folder), files.pixels, reads=True),
            "planning": lambda folder: Sized(opened(folder), files.sizes),
        }
        found = {stage: replace(self, open=sources[stage]) for stage in self.before_map}
        recipes = {"map": self.without_map, "program": self.without_program}
        found |= {stage: replace(self, recipe=recipe) for stage, recipe in recipes.items() if recipe is not None}
        return found if self.consumer is nothing else found | {"consumer": replace(self, consumer=nothing)}


def slow_disk(folder: Path) -> Source:
    """A disk that is slow to answer, and answers many at once."""
    return Disk(FolderSource(folder), **DISK)


def one_head(folder: Path) -> Source:
    """A disk that answers one read after another, however many threads wait."""
    return Disk(FolderSource(folder), **DISK, at_once=1)


def pillow_dataset(folder: Path) -> Source:
    """A data set whose items are images."""
    return MapStyleSource(PillowDataset(folder))


def remote(url: str, folder: Path) -> Source:
    """Shards behind a network, and a new cache that is much smaller than they are."""
    return ShardSource(url, remote=RemoteSettings(cache_folder=mkdtemp(dir=folder.parent), cache_bytes=CACHE_BYTES))


BLURRED = Recipe(ops=crops(JITTER, Grayscale(p=0.2), GaussianBlur(sigma_px=(2.0, 12.0)), size=384))
SITUATIONS: dict[str, Callable[[Staging], Situation]] = {
    "slow_disk": lambda at: Situation(files=at.few, open=slow_disk),
    "one_thread": lambda at: Situation(files=at.photographs, loader={"batch_size": 32, "num_threads": 1}),
    "large_photographs": lambda at: Situation(files=at.large, loader=SMALL_BATCHES, without_map=None),
    "large_blur": lambda at: Situation(
        files=at.photographs, recipe=BLURRED, without_map=None, without_program=Recipe(ops=crops(size=384))
    ),
    "slow_consumer": lambda at: Situation(files=at.photographs, consumer=sleeps),
    "cold_cache": lambda at: Situation(files=at.unread, is_cold=True),
    "pngs": lambda at: Situation(files=at.pngs, loader=SMALL_BATCHES),
    "remote": lambda at: Situation(files=at.shards, open=partial(remote, at.url), loader=SMALL_BATCHES),
    "small_images": lambda at: Situation(
        files=at.small,
        recipe=Recipe(ops=(RandomCrop(size=32, padding=4), Flip(), Normalize())),
        loader={"batch_size": 256},
        before_map=("reading", "decoding", "planning"),
        without_map=None,
    ),
    "many_views": lambda at: Situation(
        files=at.photographs,
        recipe=eight_views(224),
        without_map=eight_views(8, **POINTS),
        before_map=("reading", "decoding", "planning"),
    ),
    "busy_consumer": lambda at: Situation(files=at.photographs, consumer=computes),
    "one_head": lambda at: Situation(files=at.few, open=one_head, loader=SMALL_BATCHES),
    "pillow_dataset": lambda at: Situation(files=at.photographs, open=pillow_dataset, before_map=("reading",)),
    "blur_in_the_map": lambda at: Situation(
        files=at.photographs, recipe=Recipe(ops=crops(Blur(sigma_px=(1.0, 4.0)))), loader=SMALL_BATCHES
    ),
    "few_large": lambda at: Situation(files=at.few_large, without_map=None),
}
