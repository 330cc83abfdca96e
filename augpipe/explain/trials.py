"""Short runs of a loader with something changed, so that what advice promises was measured."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from augpipe.cache import PixelCache
from augpipe.errors import SampleError
from augpipe.native.cpu_render import Scratch
from augpipe.pipeline.batches import make_ahead
from augpipe.pipeline.blocks import Request
from augpipe.pipeline.choose import Choice
from augpipe.pipeline.epochs import Epochs
from augpipe.pipeline.held_images import HeldSource, open_sound
from augpipe.pipeline.items import Settings
from augpipe.pipeline.load_times import LoadTimes, PassClock
from augpipe.pipeline.passes import Pass
from augpipe.pipeline.stored_image import StoredImage
from augpipe.sources.protocol import Source

LEAST_BATCHES = 4
"""Batches that a trial counts at least: fewer come in bursts."""

ROUNDS_TO_FILL = 4
"""Epochs in which a cache fills: an image is kept at the scales that it was decoded at, which are drawn."""

MOST_HELD = 64
MOST_HELD_BYTES = 256 * 2**20
MOST_CACHED_BYTES = 2**30
"""What the cache of a trial takes."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Runs a loader's stages without a consumer."""

    settings: Settings
    choice: Choice
    epochs: Epochs
    cache: PixelCache | None
    epoch: int
    """The first one whose images the trials make."""
    seconds: float
    """How long each counts."""

    def run(
        self, *, epochs: Epochs | None = None, warm_batches: int = 0, cached: bool = False, **changes: Any
    ) -> LoadTimes:
        """What the loader takes with some of its settings changed.

        Args:
            epochs: another batch size or number of samples.
            warm_batches: batches to leave out before the count, in addition to those that fill the threads.
            cached: with an empty cache in host memory, instead of the loader's own.
            changes: fields of `Settings`.
        """
        clock, ordered = PassClock(), epochs or self.epochs
        settings = replace(self.settings, clock=clock, **changes)
        choice = replace(self.choice, cache="host", cache_bytes=None) if cached else self.choice
        cache = choice.make_cache(ordered.num_samples) if cached else None if "source" in changes else self.cache
        maker = choice.batch_maker(settings, ordered.batch_size, cache)
        wanted = ((maker, request) for request in self._endless(ordered, settings))
        made = make_ahead(wanted, first_threads=settings.first_threads, prefetch=settings.prefetch)
        running = Pass((batch for batch, _ in made), clock)
        try:
            for _ in range(warm_batches + settings.prefetch + 1):
                next(running)
            clock.begin(anew=True)
            next(running)
            start = time.perf_counter()
            while time.perf_counter() < start + self.seconds or clock.times.num_batches < LEAST_BATCHES:
                next(running)
        finally:
            made.close()
        return clock.times

    def run_held(
        self,
        images: Sequence[StoredImage],
        *,
        read_from: Source | None = None,
        is_warm: bool = False,
        cached: bool = False,
        image_bytes: float = 1.0,
    ) -> LoadTimes:
        """The same of a few images, over and over.

        Args:
            images: in memory.
            read_from: reads those very images there instead.
            is_warm: leave the first round out, in which sizes and row indexes are found.
            cached: with a cache, once it is filled.
            image_bytes: what the cache takes for an image.
        """
        num = max(len(images), LEAST_BATCHES * self.epochs.batch_size)
        num = max(1, min(num, int(MOST_CACHED_BYTES / image_bytes))) if cached else num
        epochs = replace(
            self.epochs, num_samples=num, rank=0, world_size=1, drop_last=False, shuffle=True, sampling=None
        )
        return self.run(
            epochs=epochs,
            warm_batches=epochs.num_batches() * (ROUNDS_TO_FILL if cached else is_warm),
            cached=cached,
            source=HeldSource(images, num, read_from),
            seen=None,
            row_indexes=None,
            groups_of=None,
            targets=None,
            stamps=None,
        )

    def hold(self) -> list[StoredImage]:
        """Some sound images of the next epoch, as they are stored; it takes about as long as a trial.

        Raises:
            SampleError: none of them can be used.
        """
        settings, scratch = self.settings, Scratch()
        start, num_bytes = time.perf_counter(), 0
        held: list[StoredImage] = []
        problem: SampleError | None = None
        request = next(self._endless(replace(self.epochs, batch_size=MOST_HELD, drop_last=False), self.settings))
        for sample_id in request.sample_ids[:MOST_HELD].tolist():
            try:
                image = open_sound(settings.source, settings.recipe, sample_id, scratch, settings.max_pixels)
            except SampleError as found:
                problem = found
                continue
            held.append(image)
            num_bytes += image.num_bytes or image.size[0] * image.size[1] * 3
            if num_bytes > MOST_HELD_BYTES or (len(held) >= 8 and time.perf_counter() > start + self.seconds):
                break
        if not held and problem is not None:
            raise problem
        return held

    def _endless(self, epochs: Epochs, settings: Settings) -> Iterator[Request]:
        numbers = count()
        for epoch in count(self.epoch):
            for request in epochs.requests(settings.recipe, settings.seed, epoch, 0):
                yield replace(request, number=next(numbers))
