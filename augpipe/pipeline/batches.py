"""The way of a batch: its stages, carried out by a few threads, batch after batch, in the order asked for.

A stage in pieces is cut into tasks for all threads, the thread that ends the last one goes on with the next stage, and
tasks of earlier batches go first, so that a batch is finished as soon as it can be.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from augpipe.batch import Batch
from augpipe.batch_targets import in_form
from augpipe.cache import PixelCache
from augpipe.mixed_labels import MixedLabels
from augpipe.native.workers import WorkerPool
from augpipe.pipeline.blocks import Request
from augpipe.pipeline.dali_stage import DaliStage
from augpipe.pipeline.item_line import part_length
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.samples import Samples
from augpipe.pipeline.stages import Output, Stage, stages_of, without_pixels

TASKS_PER_THREAD = 4
"""Tasks that a stage in pieces is cut into, for each thread; at 16, batches of 32 were measured 5 % slower."""

LEFT_BY_DALI = 0.25
"""The part of a batch that DALI leaves to our own decoder before all our threads are started for it."""


def _num_pieces(stage: Stage, batch: BatchInProgress, num_items: int, num_threads: int) -> int:
    if not stage.is_in_pieces:
        return 1
    num_pieces = min(num_items, TASKS_PER_THREAD * num_threads)
    if stage.min_piece_px:
        image_px = sum(height * width for height, width in batch.sizes)
        num_pieces = min(num_pieces, -(-num_items * image_px // stage.min_piece_px))
    return num_pieces


class BatchMaker:
    """Makes batches; one instance serves a loader over all its epochs.

    Args:
        settings: the loader's.
        output: where images come into being.
        cache: pixels from one epoch to the next.
        dali: makes the stage in which DALI decodes what it can; None: our own decoder takes all.
    """

    def __init__(
        self,
        settings: Settings,
        output: Output,
        *,
        cache: PixelCache | None = None,
        dali: Callable[[Samples], DaliStage] | None = None,
    ) -> None:
        self._settings = settings
        self._output = output
        self._cache = cache
        samples = Samples(settings, cache)
        self._dali = dali(samples) if dali is not None else None
        self._dali_free_s = 0.0  # when DALI had ended the batch before
        self._stages = stages_of(settings, output, cache, samples, self._dali)

    def run(self, requests: Iterator[Request]) -> Generator[tuple[Batch, dict[int, str]], None, None]:
        """Make the batches of one recipe; see `make_ahead`."""
        wanted = ((self, request) for request in requests)
        return make_ahead(wanted, first_threads=self._settings.first_threads, prefetch=self._settings.prefetch)

    def start(self, pool: WorkerPool) -> None:
        """Take part in a pass, whose threads those of the `pool` are."""
        if self._dali is not None:
            self._dali.start(partial(self._after_dali, pool))

    def begin(self, pool: WorkerPool, request: Request) -> BatchInProgress:
        """Have a batch made by the threads of a pass."""
        batch = BatchInProgress.of(request)
        pool.submit((request.number, 0), partial(self._go_on, pool, batch))
        return batch

    def close(self) -> None:
        """End what `start` began, except for the pool, which is the pass's."""
        if self._dali is not None:
            self._dali.close()

    def _go_on(self, pool: WorkerPool, batch: BatchInProgress) -> None:
        """Carry out the stages that are left, as far as this thread can; each counts from the end of the one before."""
        since = time.perf_counter()
        try:
            while batch.num_stages_begun < len(self._stages):
                stage = self._stages[batch.num_stages_begun]
                batch.num_stages_begun += 1
                items = batch.items if stage.items is None else stage.items(batch)
                if not items and stage.items is not None:
                    continue
                num_pieces = _num_pieces(stage, batch, len(items), pool.num_threads)
                if num_pieces > 1:
                    self._share_out(pool, batch, stage, items, num_pieces)
                    return
                if stage.goes_on_elsewhere:
                    batch.submitted_s = since
                since = self._carry_out(stage, batch, items, since)
                if stage.goes_on_elsewhere:
                    return
        except BaseException as problem:
            batch.error = problem
        batch.done.set()

    def _carry_out(self, stage: Stage, batch: BatchInProgress, items: Sequence[Item], since: float) -> float:
        """Count a stage's work from `since` on; returns when it ended."""
        try:
            stage.work(batch, items)
        finally:
            now = time.perf_counter()
            with batch.lock:
                batch.work_s[stage.counts_as] += now - since
        return now

    def _after_dali(self, pool: WorkerPool, batch: BatchInProgress) -> None:
        now = time.perf_counter()
        batch.dali_s, self._dali_free_s = now - max(batch.submitted_s, self._dali_free_s), now
        if len(without_pixels(batch)) > LEFT_BY_DALI * len(batch.items):
            pool.grow_to(self._settings.num_threads)
        self._go_on(pool, batch)

    def _share_out(
        self, pool: WorkerPool, batch: BatchInProgress, stage: Stage, items: list[Item], num_pieces: int
    ) -> None:
        """Queue the tasks of a stage in pieces; the one that ends last goes on to the next stage."""
        cuts = [len(items) * i // num_pieces for i in range(num_pieces + 1)]
        batch.num_pieces_left = num_pieces

        def run(piece: list[Item]) -> None:
            try:
                self._carry_out(stage, batch, piece, time.perf_counter())
            except BaseException as problem:
                piece[0].error = problem
            with batch.lock:
                batch.num_pieces_left -= 1
                is_last = batch.num_pieces_left == 0
            if is_last:
                self._go_on(pool, batch)

        for first, last in pairwise(cuts):
            pool.submit((batch.request.number, -batch.num_stages_begun), partial(run, items[first:last]))

    def finish(self, pool: WorkerPool, batch: BatchInProgress) -> tuple[Batch, dict[int, str]]:
        """Wait for a batch; it, and what was skipped and why.

        Raises:
            SampleError: an image cannot be used and nothing is skipped; the first one of the batch.
        """
        if not batch.done.is_set():
            if pool.is_closed:
                raise RuntimeError(
                    "the threads of this pass over the loader have ended, as they do in a forked process. "
                    "Start a new pass: iter(loader)."
                )
            batch.done.wait()
        if batch.error is not None:
            raise batch.error
        assert batch.plan is not None and batch.labels is not None
        start = time.perf_counter()
        images, labels = self._output.finish(batch), batch.labels
        batch.work_s["copying"] += time.perf_counter() - start
        num_hits = 0
        if self._cache is not None:
            num_hits = sum(item.is_cached for item in batch.items)
            self._cache.count(hits=num_hits, misses=len(batch.items) - num_hits)
        self._settings.clock.add(batch, num_hits)
        plan, positions, wrap = batch.plan, batch.request.positions, self._output.labels
        if batch.num_own < len(plan):
            plan = plan[: batch.num_own]
        made = Batch(
            images=images[0] if len(images) == 1 else tuple(images),
            labels=MixedLabels(*map(wrap, labels)) if isinstance(labels, MixedLabels) else wrap(labels),
            sample_ids=plan.sample_ids,
            asked_ids=batch.request.sample_ids[: batch.num_own],
            plan=plan,
            positions=None if positions is None else positions[: batch.num_own],
            part=part_length(self._settings.source),
            columns=batch.columns,
        )
        return self._with_targets(made, batch), batch.skipped

    def _with_targets(self, made: Batch, batch: BatchInProgress) -> Batch:
        options = self._settings.targets
        if options is None:
            return made
        targets = [in_form(found, options.form, self._output.labels) for found in batch.targets]
        dropped = [found.dropped for found in batch.targets]
        is_one = len(targets) == 1
        return replace(
            made, targets=targets[0] if is_one else tuple(targets), dropped=dropped[0] if is_one else tuple(dropped)
        )


def make_ahead(
    wanted: Iterator[tuple[BatchMaker, Request]], *, first_threads: int, prefetch: int
) -> Generator[tuple[Batch, dict[int, str]], None, None]:
    """Make batches in the order in which they are wanted; yields each with what was skipped and why.

    `wanted` is drawn by the thread that asks for a batch, `prefetch` requests beyond the batch that it is given, so
    that as many are made while it uses that one. Closing the iterator, or dropping it, ends its threads.

    Args:
        wanted: requests, each with its maker, as several recipes have several; of rising numbers.
        first_threads: threads that the pass begins with.
        prefetch: batches made ahead, at least 1.

    Raises:
        SampleError: an image cannot be used and nothing is skipped; the first one of the batch.
    """
    pool = WorkerPool(first_threads)
    makers: list[BatchMaker] = []
    try:
        ahead: deque[tuple[BatchMaker, BatchInProgress]] = deque()
        for maker, request in wanted:
            finished = None
            if len(ahead) == prefetch and ahead[0][1].done.is_set():
                # before the next one is begun: threads that wake for it would hold the GIL meanwhile
                finished = _finish_first(pool, ahead)
            if maker not in makers:
                makers.append(maker)
                maker.start(pool)
            ahead.append((maker, maker.begin(pool, request)))
            if finished is None and len(ahead) > prefetch:
                finished = _finish_first(pool, ahead)
            if finished is not None:
                yield finished
        while ahead:
            yield _finish_first(pool, ahead)
    finally:
        for maker in makers:
            maker.close()
        pool.close()


def _finish_first(pool: WorkerPool, ahead: deque[tuple[BatchMaker, BatchInProgress]]) -> tuple[Batch, dict[int, str]]:
    maker, batch = ahead.popleft()
    return maker.finish(pool, batch)
