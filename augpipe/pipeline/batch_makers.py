"""What makes a loader's batches in one process, and what is kept there for it: cache, row indexes, sizes of images."""

import logging
import os
from collections.abc import Generator, Iterator
from dataclasses import replace

from augpipe.batch import Batch
from augpipe.cache import PixelCache
from augpipe.cache.file_stamps import FileStamps
from augpipe.cache.pixels import SeenSizes
from augpipe.cache.row_indexes import RowIndexes
from augpipe.pipeline.batches import BatchMaker, make_ahead
from augpipe.pipeline.blocks import Request
from augpipe.pipeline.choose import Choice
from augpipe.pipeline.items import Settings
from augpipe.pipeline.load_times import PassClock
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.schedule import Schedule
from augpipe.sources.protocol import check_unchanged
from augpipe.sources.targets import has_targets
from augpipe.validation.log_once import log_once


class BatchMakers:
    """The `BatchMaker` of the recipe in use, and what it shares with those before and after it.

    A copy makes all of it again, as a process that is forked does.

    Args:
        choice: of backend, device and cache.
        settings: the loader's, but for what is kept here, and for the recipe and the seed, which each call gives.
        batch_size: images in a batch.
    """

    def __init__(self, choice: Choice, settings: Settings, batch_size: int) -> None:
        self._choice = choice
        self._settings = replace(settings, clock=PassClock())
        self._batch_size = batch_size
        self.cache: PixelCache | None = None
        """That of the images; None with cache="off" and before the first pass."""
        self._stamps: FileStamps | None = None
        self._row_indexes: RowIndexes | None = None
        self._seen: SeenSizes | None = None
        self._maker: BatchMaker | None = None
        self._recipe: Recipe | None = None
        self._process = os.getpid()

    def __reduce__(self) -> tuple[type, tuple[Choice, Settings, int]]:
        return BatchMakers, (self._choice, self._settings, self._batch_size)

    @property
    def clock(self) -> PassClock:
        """What counts the passes."""
        return self._settings.clock

    def settings(self, recipe: Recipe, seed: int) -> Settings:
        """What the stages need to know of this recipe and seed."""
        self._forget_after_fork()
        source = self._settings.source
        self._seen = self._seen or SeenSizes(len(source))
        self._row_indexes = self._row_indexes or RowIndexes(source, self._settings.row_index_bytes)
        return replace(self._settings, recipe=recipe, seed=seed, seen=self._seen, row_indexes=self._row_indexes)

    def maker(self, recipe: Recipe, seed: int) -> BatchMaker:
        """The same one as before for the same recipe."""
        self._forget_after_fork()
        if self._maker is None or self._recipe is not recipe:
            settings = self.settings(recipe, seed)
            source, reason = settings.source, self._choice.reason
            if reason is not None:
                first, num = settings.first_threads, settings.num_threads
                next_to = f" next to {num} of DALI's" if first < num else ""
                log_once(logging.INFO, f"{reason}; threads: {first}{next_to}", key=reason)
            if self.cache is None:
                self.cache = self._choice.make_cache(len(source))
                if self.cache is not None:
                    reads_maps = settings.targets is not None and has_targets(source) and source.has_label_maps
                    self._stamps = FileStamps(source, label_maps=bool(reads_maps))
            settings = replace(settings, stamps=self._stamps)
            self._maker = self._choice.batch_maker(settings, self._batch_size, self.cache)
            self._recipe = recipe
        return self._maker

    def maker_of_one(self, recipe: Recipe, seed: int) -> BatchMaker:
        """For one image a batch, which neither comes from the cache nor is counted."""
        return self._choice.batch_maker(replace(self.settings(recipe, seed), clock=PassClock()), 1, None)

    def make_ahead(
        self, requests: Iterator[Request], schedule: Schedule, seed: int
    ) -> Generator[tuple[Batch, dict[int, str]], None, None]:
        """Make batches of any epochs in the order of `requests`, each by the maker of its recipe; see `make_ahead`."""
        wanted = self._with_makers(requests, schedule, seed)
        return make_ahead(wanted, first_threads=self._settings.first_threads, prefetch=self._settings.prefetch)

    def check_files(self) -> None:
        """Raise where the source's files are others than those that were opened, or than those that are cached."""
        check_unchanged(self._settings.source)
        if self._stamps is not None:
            self._stamps.check()

    def _forget_after_fork(self) -> None:
        if self._process != os.getpid():  # a fork copies locks as they are
            self._process = os.getpid()
            self._maker = self.cache = self._stamps = self._row_indexes = None

    def _with_makers(
        self, requests: Iterator[Request], schedule: Schedule, seed: int
    ) -> Iterator[tuple[BatchMaker, Request]]:
        makers: dict[int, BatchMaker] = {}
        for request in requests:
            recipe = schedule.at(request.epoch)
            if id(recipe) not in makers:  # the maker keeps the recipe, and so its id, alive
                makers[id(recipe)] = self.maker(recipe, seed)
            yield makers[id(recipe)], request
