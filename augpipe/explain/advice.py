"""What could be changed about a slow stage: each change is tried for a moment, and the best is advised."""

import io
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from PIL import Image

from augpipe.cache.budget import available_host_bytes, default_budget, host_reserve
from augpipe.cache.statistics import shown_bytes
from augpipe.decoding import probe
from augpipe.explain.parts import Parts, time_parts
from augpipe.explain.trials import Trials
from augpipe.native.cpu_render import Scratch
from augpipe.native.workers import num_usable_cores
from augpipe.ops import Blur, GaussianBlur
from augpipe.pipeline.load_times import LoadTimes
from augpipe.pipeline.stored_image import StoredImage
from augpipe.recipes.parts import with_ops
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import is_sized
from augpipe.validation.models import changed

SECOND_EPOCH = " in the second epoch"
MOST_THREADS = 64
WAITS = 1.5
"""Seconds over CPU seconds of the loader's threads from which on they wait for storage rather than for a core."""

SHORT_SIDES = 2
"""Short sides of the output that smaller files have: a crop of a quarter of such an image still fills the output."""
TOO_LARGE = 1.5
"""Short sides of stored images over that, from which on smaller files are tried."""

COSTLY = 0.15
"""Part of decoding and rendering from which on leaving an op out is tried."""
FEW = 16
"""Images that are timed without each op, or made smaller."""

SMALL_BATCH = 256
"""Images of a batch up to which larger ones are tried."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """A change that was tried."""

    text: str
    """What to do."""
    run: Callable[[], LoadTimes]
    """Runs the loader with the change, and without a consumer."""
    times: LoadTimes
    """What the first run took."""
    command: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    when: str = ""
    """From when on it helps, unless at once."""

    @classmethod
    def tried(cls, run: Callable[[], LoadTimes], **how: Any) -> Self:
        """One that has run once."""
        return cls(run=run, times=run(), **how)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is known of a loader when advice is sought."""

    trials: Trials
    alone: LoadTimes
    """A run of the loader as it is, without a consumer."""
    images: Sequence[StoredImage]
    parts: Parts
    path: str | None
    """Where the source lies, if the loader was given a path."""


def tried_changes(case: Case, bottleneck: str) -> Iterator[Change]:
    """What may make a stage faster, tried one after the other, the least intrusive first."""
    yield from _more_threads(case, bottleneck)
    if case.trials.choice.is_on_cuda:
        return
    can_hold = not case.trials.settings.recipe.keeping  # images that are held come without their objects
    if bottleneck in ("reading", "decoding") and can_hold:
        yield from _cache(case)
    if bottleneck == "decoding" and can_hold:
        yield from _row_indexes(case)
        yield from _smaller_files(case)
    if bottleneck in ("decoding", "map", "program"):
        yield from _another_recipe(case)
    if bottleneck in ("planning", "copying"):
        yield from _larger_batches(case)


def _more_threads(case: Case, bottleneck: str) -> Iterator[Change]:
    cores, threads = num_usable_cores(), case.trials.settings.num_threads
    alone = case.alone
    waits = sum(alone.work_s.values()) / alone.seconds / max(alone.cores, 1e-9)
    is_storage = bottleneck == "reading" and waits > WAITS  # all other stages wait for cores that others use
    num = min(MOST_THREADS, math.ceil(cores * waits)) if is_storage else cores
    if num > threads:
        run = partial(case.trials.run, num_threads=num, first_threads=num)
        yield Change.tried(run, text=f"num_threads={num} instead of {threads}", arguments={"num_threads": num})


def _cache(case: Case) -> Iterator[Change]:
    if case.trials.choice.cache != "off" or not _fits(case.parts.cached_bytes, case):
        return
    run = partial(case.trials.run_cached, case.images, case.alone.images_per_s, case.parts.cached_bytes)
    times, image_bytes = run()
    if _fits(image_bytes, case):
        needed = shown_bytes(int(image_bytes * len(case.trials.settings.source)))
        text = f'cache="host", which takes about {needed} of memory for all images'
        yield Change(text=text, run=lambda: run()[0], times=times, arguments={"cache": "host"}, when=SECOND_EPOCH)


def _fits(image_bytes: float, case: Case) -> bool:
    """Whether a cache has room for all images, of so many bytes each."""
    available = available_host_bytes()
    return image_bytes * len(case.trials.settings.source) <= default_budget(available, host_reserve(available))


def _row_indexes(case: Case) -> Iterator[Change]:
    source = case.trials.settings.source
    if case.path is None or not os.path.isdir(case.path) or not hasattr(source, "row_index"):
        return  # the command takes folders of photographs
    if is_sized(source) or not any(image.may_crop for image in case.images):
        return
    run = partial(case.trials.run_held, case.images, case.alone.images_per_s, read_from=source)
    command = f"augpipe index {shlex.quote(case.path)}"
    yield Change.tried(run, text=command, command=command, when=" in the first epoch")


def _smaller_files(case: Case) -> Iterator[Change]:
    sizes = [view.out_size for view in case.trials.settings.recipe.all_views]
    if not all(sizes) or any(isinstance(image.content, np.ndarray) for image in case.images):
        return
    scale = SHORT_SIDES * max(max(size) for size in sizes if size is not None)
    short = float(np.mean([min(image.size) for image in case.images]))
    are_jpegs = all(image.header is not None and image.header.format == "JPEG" for image in case.images)
    if short < TOO_LARGE * scale and are_jpegs:
        return
    few = [_smaller(image, scale, case.trials.settings.max_pixels) for image in case.images[:FEW]]
    faster = max(1.0, short / scale) ** 2
    run = partial(case.trials.run_held, few, faster * case.alone.images_per_s)
    out = None if case.path is None else f"{case.path.rstrip('/')}-{scale}"
    command = f"augpipe prepare {shlex.quote(case.path or 'SOURCE')} {shlex.quote(out or 'OUT')} --scales {scale}"
    what = f"{command}, which writes JPEGs with a short side of {scale} px" if short > scale else f"{command} (JPEGs)"
    if out is None:
        yield Change.tried(run, text=what)
    else:
        yield Change.tried(run, text=what, command=command, arguments={"source": out})


def _smaller(image: StoredImage, scale: int, max_pixels: int) -> StoredImage:
    """What `augpipe prepare` makes of it, nearly."""
    pixels = Image.fromarray(image.decode(Scratch())[:, :, :3])
    ratio = min(1.0, scale / min(pixels.size))
    resized = pixels.resize((round(pixels.width * ratio), round(pixels.height * ratio)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    resized.save(file, "JPEG", quality=90)
    content = file.getvalue()
    header = probe(content, max_pixels=max_pixels)
    size = (header.height, header.width)
    return replace(image, content=content, header=header, size=size, may_scale=header.may_scale)


def _another_recipe(case: Case) -> Iterator[Change]:
    """Without the op that takes most of the time, or with a blur that takes less."""
    settings, few = case.trials.settings, case.images[:FEW]
    if (passes := settings.recipe.num_passes) > 1 and not settings.recipe.has_functions:
        yield _tried(case, f"recipe.fused(), one pass instead of {passes}, with other images", settings.recipe.fused())
    listed = [op for view in settings.recipe.all_views for op in view.ops]
    kinds = {op.key for op in listed if op.op != "normalize" and not op.is_crop and getattr(op, "p", 0.0) > 0.0}
    before = time_parts(settings, few, case.trials.epoch).total
    gains: dict[str, float] = {}
    for kind in sorted(kinds):
        without = replace(settings, recipe=_with(settings.recipe, kind, p=0.0))
        gains[kind] = 1.0 - time_parts(without, few, case.trials.epoch).total / before
    if not gains or max(gains.values()) < COSTLY:
        return
    kind = max(gains, key=lambda name: gains[name])
    if kind == "blur":
        yield _tried(case, "ops.GaussianBlur instead of ops.Blur", _by_filter(settings.recipe))
    yield _tried(case, f"leave {kind} out, or lower its p", _with(settings.recipe, kind, p=0.0))


def _tried(case: Case, text: str, recipe: Recipe) -> Change:
    is_one_of_several = case.trials.settings.recipes_differ
    arguments = {} if is_one_of_several else {"recipe": recipe}  # which would end the schedule
    return Change.tried(partial(case.trials.run, recipe=recipe), text=text, arguments=arguments)


def _with(recipe: Recipe, kind: str, **fields: Any) -> Recipe:
    """The recipe with other values in some fields of the ops of a kind, or of a name of the user's own."""
    return with_ops(recipe, lambda op: changed(op, **fields) if op.key == kind else op)


def _by_filter(recipe: Recipe) -> Recipe:
    return with_ops(recipe, lambda op: GaussianBlur(sigma_px=op.sigma_px, p=op.p) if isinstance(op, Blur) else op)


def _larger_batches(case: Case) -> Iterator[Change]:
    size = case.trials.epochs.batch_size
    if size < SMALL_BATCH and all(view.out_size for view in case.trials.settings.recipe.all_views):
        larger = min(4 * size, SMALL_BATCH)
        run = partial(case.trials.run, epochs=replace(case.trials.epochs, batch_size=larger, drop_last=False))
        yield Change.tried(run, text=f"batch_size={larger} instead of {size}", arguments={"batch_size": larger})
