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

MOST_BATCHES = 64
"""Batches of an epoch of held images: shorter epochs take longer, as they are planned one by one."""

MOST_HELD = 64
MOST_HELD_BYTES = 256 * 2**20
"""Images that are held in memory, and bytes of them."""
MOST_CACHED_BYTES = 2**30
"""What the cache of a trial takes."""


@dataclass(kw_only=True)
class Trials:
    """Runs a loader's stages without a consumer.

    Each trial goes on where the one before ended, and none finds what another has learned of the files: all are as far
    in their epoch as the pass that is explained.
    """

    settings: Settings
    choice: Choice
    epochs: Epochs
    cache: PixelCache | None
    epoch: int
    consumed: int
    """Where the next trial begins: an epoch, and the samples before it."""
    seconds: float
    """How long each counts."""

    def __post_init__(self) -> None:
        seen, indexes = self.settings.seen, self.settings.row_indexes
        assert seen is not None and indexes is not None
        self.settings = replace(self.settings, seen=seen.read_only(), row_indexes=indexes.read_only())

    def run(
        self,
        *,
        epochs: Epochs | None = None,
        cache: PixelCache | None = None,
        first_batch: int = 0,
        most_batches: int | None = None,
        **changes: Any,
    ) -> LoadTimes:
        """What the loader takes with some of its settings changed.

        Args:
            epochs: another batch size or number of samples.
            cache: another cache; the loader's own serves its own source.
            first_batch: that is counted, once all threads have work.
            most_batches: to count, unless they take less than a quarter of the time.
            changes: fields of `Settings`.
        """
        clock, ordered = PassClock(), epochs or self.epochs
        settings = replace(self.settings, clock=clock, **changes)
        cache = cache or (None if "source" in changes else self.cache)
        maker = self.choice.batch_maker(settings, ordered.batch_size, cache)
        wanted = ((maker, request) for request in self._requests(ordered, settings))
        made = make_ahead(wanted, first_threads=settings.first_threads, prefetch=settings.prefetch)
        running = Pass((batch for batch, _ in made), clock)
        try:
            for _ in range(max(first_batch, settings.prefetch + 1)):
                next(running)
            clock.begin(resets=True)
            next(running)
            start = time.perf_counter()
            while (num := clock.times.num_batches) < LEAST_BATCHES or time.perf_counter() - start < (
                self.seconds if most_batches is None or num < most_batches else self.seconds / 4
            ):
                next(running)
        finally:
            made.close()
        return clock.times

    def run_held(self, images: Sequence[StoredImage], rate: float, *, read_from: Source | None = None) -> LoadTimes:
        """What it takes for a few images, over and over, in the second epoch.

        Args:
            images: in memory.
            rate: images/s, at which an epoch takes about as long as a trial.
            read_from: reads those very images there instead.
        """
        epochs = self._epochs_of(int(rate * self.seconds))
        return self._run_second_epoch(epochs, HeldSource(images, epochs.num_samples, read_from))

    def run_cached(self, images: Sequence[StoredImage], rate: float, image_bytes: float) -> tuple[LoadTimes, float]:
        """The same with a cache in host memory, in the second epoch; and the bytes of an image that it holds by then.

        Args:
            images, rate: as above.
            image_bytes: about what the cache takes for one.
        """
        epochs = self._epochs_of(min(int(rate * self.seconds), int(MOST_CACHED_BYTES / image_bytes)))
        cache = replace(self.choice, cache="host", cache_bytes=None).make_cache(epochs.num_samples)
        assert cache is not None
        # those that the cache does not hold yet, or at another scale, are read as always
        held = HeldSource(images, epochs.num_samples, self.settings.source)
        times = self._run_second_epoch(epochs, held, cache)
        return times, cache.statistics().held_bytes / epochs.num_samples

    def _epochs_of(self, num: int) -> Epochs:
        """Epochs of about so many samples, in any order, on one rank."""
        size = self.epochs.batch_size
        num_batches = min(max(num // size, LEAST_BATCHES + self.settings.prefetch + 1), MOST_BATCHES)
        return replace(self.epochs, num_samples=num_batches * size, rank=0, world_size=1, shuffle=True, sampling=None)

    def _run_second_epoch(self, epochs: Epochs, source: Source, cache: PixelCache | None = None) -> LoadTimes:
        """Of it alone: in the first one sizes and row indexes are found, and a cache fills."""
        num_batches, ahead = epochs.num_batches(), self.settings.prefetch + 1
        return self.run(
            epochs=epochs,
            cache=cache,
            first_batch=num_batches + ahead,
            most_batches=num_batches - ahead,
            source=source,
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
        request = next(self._requests(replace(self.epochs, batch_size=MOST_HELD, drop_last=False), self.settings))
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

    def _requests(self, epochs: Epochs, settings: Settings) -> Iterator[Request]:
        """Without end, from where the loader's own images were left, or from the start of held ones."""
        is_own = settings.source is self.settings.source
        epoch, consumed = (self.epoch, self.consumed) if is_own else (self.epoch, 0)
        numbers = count()
        while True:
            for request in epochs.requests(settings.recipe, settings.seed, epoch, consumed):
                consumed += epochs.per_batch
                if is_own:
                    self.epoch, self.consumed = epoch, min(consumed, epochs.num_samples)
                yield replace(request, number=next(numbers))
            epoch, consumed = epoch + 1, 0
