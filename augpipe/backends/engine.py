"""The engine of every backend: a few threads read, decode and render, batch after batch, in the order asked for.

A batch goes through stages. Its photographs are read and their headers looked at; the thread that finishes the last one
plans the whole batch. A source that knows the sizes of its photographs, as shards do, has them read later. Where
another decoder helps (DALI), the batch passes through it. Then each photograph that is not decoded yet is, and is put
into the output. Tasks of earlier batches go first, so that a batch is finished as soon as it can be.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from augpipe.backends.assembly import Assembly, Proceed, Request, Settings
from augpipe.backends.photograph import Photograph
from augpipe.backends.planned import plan_batch, plan_replacement, rectangle_of
from augpipe.backends.render import pack_into
from augpipe.backends.samples import Samples
from augpipe.batch import Batch
from augpipe.cache import PixelCache
from augpipe.errors import SampleError
from augpipe.source import Pixels
from augpipe.workers import WorkerPool

TASKS_PER_THREAD = 4
"""Tasks that a batch's stage is cut into, for each thread; at 16, batches of 32 were measured 5 % slower."""


class Output(Protocol):
    """Where a batch's images come into being."""

    def begin(self, assembly: Assembly) -> None:
        """Give a planned batch its memory."""

    def room(self, assembly: Assembly, position: int, num_bytes: int) -> Pixels:
        """(num_bytes,) for the calling thread to decode a photograph into before it calls `put`."""

    def put(self, assembly: Assembly, position: int, pixels: Pixels, first: tuple[int, int] = (0, 0)) -> None:
        """Take one photograph, given as (H, W, 4) RGBX that starts at column and row `first` of it."""

    def flush(self) -> None:
        """Called by a thread that has put photographs, before it does anything else."""

    def ready(self, assembly: Assembly) -> None:
        """Called once every photograph of a batch was put."""

    def finish(self, assembly: Assembly) -> list[Any]:
        """The images of each view; called by the thread that asked for the batch."""

    def labels(self, labels: npt.NDArray[np.int64]) -> Any:
        """(B,) labels beside the images."""

    def close(self) -> None:
        """A pass has ended."""


class DecodeStage(Protocol):
    """A decoder that takes whole batches, beside our own."""

    def start(self, proceed: Proceed) -> None:
        """A pass begins; `proceed` is called with every batch that was submitted, from any thread."""

    def submit(self, assembly: Assembly) -> None:
        """Decode what it can of a planned batch: fill in its `regions` or `on_device`."""

    def close(self) -> None:
        """The pass has ended: batches under way are dropped."""


class Engine:
    """Makes batches; one instance serves a loader over all its epochs."""

    def __init__(
        self,
        settings: Settings,
        output: Output,
        *,
        cache: PixelCache | None = None,
        stage: Callable[[Samples], DecodeStage] | None = None,
    ) -> None:
        self._settings = settings
        self._output = output
        self._cache = cache
        self._samples = Samples(settings)
        self._stage = stage(self._samples) if stage is not None else None
        self._may_read_late = cache is None and stage is None and settings.num_threads > 1

    def run(self, requests: Iterator[Request]) -> Generator[tuple[Batch, dict[int, str]], None, None]:
        """Make the batches in order, `prefetch` of them ahead; yields each with what was skipped and why.

        Closing the iterator, or dropping it, ends its threads.

        Raises:
            SampleError: a photograph cannot be used and nothing is skipped; the first one of the batch.
        """
        pool = WorkerPool(self._settings.num_threads)
        try:
            if self._stage is not None:
                self._stage.start(lambda assembly: self._spread(pool, assembly, 1))
            ahead: deque[Assembly] = deque()
            for request in requests:
                finished = None
                if len(ahead) == self._settings.prefetch and ahead[0].done.is_set():
                    # before the next one is begun: threads that wake for it would hold Python's lock meanwhile
                    finished = self._finish(pool, ahead.popleft())
                ahead.append(self._start(pool, request))
                if finished is None and len(ahead) > self._settings.prefetch:
                    finished = self._finish(pool, ahead.popleft())
                if finished is not None:
                    yield finished
            while ahead:
                yield self._finish(pool, ahead.popleft())
        finally:
            if self._stage is not None:
                self._stage.close()
            pool.close()
            self._output.close()

    def _start(self, pool: WorkerPool, request: Request) -> Assembly:
        assembly = Assembly(request=request, cache=self._cache, photographs=[None] * len(request.sample_ids))
        if self._cache is not None and self._cache.sizes_of(request.sample_ids).are_known.all():
            pool.submit((request.number, 0), partial(self._open_known, pool, assembly))
        elif self._may_read_late:
            pool.submit((request.number, 0), partial(self._plan_unread, pool, assembly))
        else:
            self._spread(pool, assembly, 0)
        return assembly

    def _plan_unread(self, pool: WorkerPool, assembly: Assembly) -> None:
        """The first stage where the source knows all sizes: each photograph is read when it is decoded.

        Reading is little but Python, and decoding is not: threads that read at the same time wait for each other.
        """
        try:
            photographs = self._samples.unread(assembly)
        except BaseException as problem:
            assembly.problems[0] = problem
            photographs = []
        if photographs is None:
            self._spread(pool, assembly, 0)
            return
        assembly.photographs, assembly.is_unread = [*photographs], True
        self._go_on(pool, assembly, 0)

    def _open_known(self, pool: WorkerPool, assembly: Assembly) -> None:
        """The first stage of a batch that the cache knows all samples of: nothing is read, so it is one task."""
        try:
            assembly.photographs = [*self._samples.known(assembly)]
        except BaseException as problem:
            assembly.problems[0] = problem
        self._go_on(pool, assembly, 0)

    def _spread(self, pool: WorkerPool, assembly: Assembly, stage: int) -> None:
        """Queue the tasks of a stage; the one that ends last goes on to the next stage."""
        num = len(assembly.photographs)
        num_tasks = max(1, min(num, TASKS_PER_THREAD * self._settings.num_threads))
        cuts = [num * i // num_tasks for i in range(num_tasks + 1)]
        assembly.remaining = num_tasks
        step = self._read if stage == 0 else self._put

        def run(first: int, last: int) -> None:
            for position in range(first, last):
                try:
                    step(assembly, position)
                except BaseException as problem:
                    assembly.problems[position] = problem
            try:
                self._output.flush()
            except BaseException as problem:
                assembly.problems[first] = problem
            with assembly.lock:
                assembly.remaining -= 1
                is_last = assembly.remaining == 0
            if is_last:
                self._go_on(pool, assembly, stage)

        for first, last in pairwise(cuts):
            pool.submit((assembly.request.number, -stage), partial(run, first, last))

    def _go_on(self, pool: WorkerPool, assembly: Assembly, stage: int) -> None:
        if not assembly.problems:
            try:
                if stage == 0:
                    plan_batch(assembly, self._settings)
                    self._output.begin(assembly)
                else:
                    self._label(assembly)
                    self._output.ready(assembly)
            except BaseException as problem:
                assembly.problems[0] = problem
        if stage == 1 or assembly.problems:
            assembly.done.set()
        elif assembly.is_on_device:
            self._go_on(pool, assembly, 1)
        elif self._stage is not None:
            self._stage.submit(assembly)
        else:
            self._spread(pool, assembly, 1)

    def _label(self, assembly: Assembly) -> None:
        label = self._settings.source.label
        assembly.labels = np.array([label(photograph.sample_id) for photograph in assembly.opened()], np.int64)

    def _read(self, assembly: Assembly, position: int) -> None:
        assembly.photographs[position] = self._samples.usable(assembly, position)

    def _put(self, assembly: Assembly, position: int) -> None:
        photograph = assembly.photographs[position]
        assert photograph is not None
        try:
            if assembly.is_unread:
                photograph = self._read_late(assembly, position, photograph)
            self._put_one(assembly, position, photograph)
        except SampleError as problem:
            self._samples.decoding_failed(assembly, photograph, problem)
            self._replace(assembly, position, photograph)
        photograph.content = None  # of no more use

    def _read_late(self, assembly: Assembly, position: int, known: Photograph) -> Photograph:
        """Read a photograph of a planned batch, and plan it anew where the source was wrong about it.

        Raises:
            SampleError: it cannot be read or used.
        """
        found = self._samples.opened(known.sample_id)
        assert assembly.factors is not None
        if found.size == known.size and (found.may_scale or assembly.factors[position] == 1):
            assembly.photographs[position] = found
        elif plan_replacement(assembly, position, found, self._settings):
            self._output.begin(assembly)
        return found

    def _replace(self, assembly: Assembly, position: int, unusable: Photograph) -> None:
        """Put the next photograph that can be decoded in the place of one that cannot, with draws of its own."""
        num, wanted = len(self._settings.source), int(assembly.request.sample_ids[position])
        photograph = unusable
        assembly.regions.pop(position, None)
        assembly.on_device.pop(position, None)
        while True:
            photograph = self._samples.usable(assembly, position, (photograph.sample_id - wanted) % num + 1)
            if plan_replacement(assembly, position, photograph, self._settings):
                self._output.begin(assembly)
            try:
                self._put_one(assembly, position, photograph)
            except SampleError as problem:
                self._samples.decoding_failed(assembly, photograph, problem)
                continue
            photograph.content = None
            return

    def _put_one(self, assembly: Assembly, position: int, photograph: Photograph) -> None:
        """Bring one photograph's pixels from wherever they are to the output.

        Raises:
            SampleError: it is damaged.
        """
        held, region = assembly.held.get(position), assembly.regions.get(position)
        if held is not None:
            if held.pixels is not None:  # else it is on the device already
                self._output.put(assembly, position, held.pixels)
        elif position in assembly.on_device:
            return
        elif region is not None and region.pixels.shape[:2] != photograph.size:
            height, width, _ = region.pixels.shape
            pixels = pack_into(self._output.room(assembly, position, height * width * 4), region.pixels)
            self._output.put(assembly, position, pixels, (region.first_x, region.first_y))
        else:
            assert assembly.factors is not None
            self._put_decoded(assembly, position, photograph, int(assembly.factors[position]))

    def _put_decoded(self, assembly: Assembly, position: int, photograph: Photograph, factor: int) -> None:
        """Decode a photograph, into the cache where it has room, and put it into the output."""
        if position not in assembly.regions:
            self._samples.read(photograph)
        cache, slot = assembly.cache, None
        if cache is not None and cache.is_on_host:
            height, width = photograph.size
            slot = cache.reserve(
                photograph.sample_id, factor, height=height, width=width, may_scale=photograph.may_scale
            )
        try:
            pixels, first = self._decoded(assembly, position, photograph, factor, None if slot is None else slot.pixels)
        except BaseException as problem:
            if cache is not None and slot is not None:
                cache.cancel(slot)
            if isinstance(problem, ValueError):
                raise SampleError(self._settings.source.name(photograph.sample_id), str(problem)) from problem
            raise
        if cache is not None and slot is not None:
            cache.commit(slot)
        self._output.put(assembly, position, pixels, first)

    def _decoded(
        self, assembly: Assembly, position: int, photograph: Photograph, factor: int, target: Pixels | None
    ) -> tuple[Pixels, tuple[int, int]]:
        """A photograph's RGBX pixels, all of them in `target` where that is given, and where in it they start."""
        region, cache = assembly.regions.get(position), assembly.cache
        room = partial(self._output.room, assembly, position)
        is_wanted_whole = target is not None or (
            cache is not None and not cache.is_on_host and not cache.has_no_room_for(photograph.sample_id, factor)
        )
        if region is None and photograph.may_crop and not is_wanted_whole:
            return photograph.decode_region(rectangle_of(assembly, position), room, factor)
        height, width, channels = photograph.shape(factor)
        buffer = room(height * width * channels) if target is None else target.reshape(-1)
        if region is not None:
            return pack_into(buffer, region.pixels), (0, 0)
        return photograph.decode_into(buffer, factor), (0, 0)

    def _finish(self, pool: WorkerPool, assembly: Assembly) -> tuple[Batch, dict[int, str]]:
        if not assembly.done.is_set():
            if pool.is_closed:
                raise RuntimeError(
                    "the threads of this pass over the loader have ended, as they do in a forked process. "
                    "Start a new pass: iter(loader)."
                )
            assembly.done.wait()
        if assembly.problems:
            raise assembly.problems[min(assembly.problems)]
        assert assembly.plan is not None and assembly.labels is not None
        images = self._output.finish(assembly)
        if assembly.cache is not None:
            assembly.cache.count(hits=len(assembly.held), misses=len(assembly.photographs) - len(assembly.held))
        batch = Batch(
            images=images[0] if len(images) == 1 else tuple(images),
            labels=self._output.labels(assembly.labels),
            sample_ids=assembly.plan.sample_ids,
            plan=assembly.plan,
        )
        return batch, assembly.skipped
