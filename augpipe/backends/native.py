"""The CPU backend: a few threads read, decode and augment, each photograph while it is still in the thread's cache.

A batch goes through two stages. First its photographs are read and their headers looked at; the thread that finishes
the last one plans the whole batch. Then each photograph is decoded and its views are rendered into the batch. Tasks of
earlier batches go first, so that a batch is finished as soon as it can be.
"""

import threading
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from augpipe.backends.photograph import Photograph, open_photograph
from augpipe.backends.render import Scratch, render
from augpipe.batch import Batch
from augpipe.buffers import BufferPool
from augpipe.errors import SampleError
from augpipe.output import OutputFormat
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.plan import Plan, plan
from augpipe.recipe import Recipe
from augpipe.source import Source
from augpipe.workers import WorkerPool

Rows = npt.NDArray[np.void]

TASKS_PER_THREAD = 4
"""Tasks that a batch's stage is cut into, for each thread; at 16, batches of 32 were measured 5 % slower."""

MAX_REPLACEMENTS = 1_000
"""How many neighbours of an unusable photograph are tried before giving up."""


@dataclass(frozen=True, kw_only=True)
class NativeSettings:
    """What the backend needs to know beside the source; see `Loader`."""

    source: Source
    recipe: Recipe
    seed: int
    form: OutputFormat
    num_threads: int
    prefetch: int
    skips_bad: bool
    max_pixels: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """One batch to make."""

    number: int
    """Its place in the epoch: lower ones are made first."""
    epoch: int
    sample_ids: npt.NDArray[np.int64]


@dataclass(kw_only=True)
class _Assembly:
    """A batch in the making; each position is written by one task at a time."""

    request: Request
    photographs: list[Photograph | None]
    problems: dict[int, BaseException] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)
    plan: Plan | None = None
    tables: tuple[Rows, ...] = ()
    factors: npt.NDArray[np.int64] | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    memory: tuple[npt.NDArray[np.generic], ...] = ()
    remaining: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)


class NativeBackend:
    """Makes batches on the CPU; one instance serves a loader over all its epochs."""

    def __init__(self, settings: NativeSettings) -> None:
        self._settings = settings
        num_views = len(settings.recipe.all_views)
        self._buffers = BufferPool(keep=(settings.prefetch + 2) * num_views)
        self._scratch = Scratch()

    def run(self, requests: Iterator[Request]) -> Generator[tuple[Batch, dict[int, str]], None, None]:
        """Make the batches in order, `prefetch` of them ahead; yields each with what was skipped and why.

        Closing the iterator, or dropping it, ends its threads.

        Raises:
            SampleError: a photograph cannot be used and nothing is skipped; the first one of the batch.
        """
        pool = WorkerPool(self._settings.num_threads)
        try:
            ahead: deque[_Assembly] = deque()
            for request in requests:
                ahead.append(self._start(pool, request))
                if len(ahead) > self._settings.prefetch:
                    yield self._finish(pool, ahead.popleft())
            while ahead:
                yield self._finish(pool, ahead.popleft())
        finally:
            pool.close()

    def _start(self, pool: WorkerPool, request: Request) -> _Assembly:
        assembly = _Assembly(request=request, photographs=[None] * len(request.sample_ids))
        self._spread(pool, assembly, 0)
        return assembly

    def _spread(self, pool: WorkerPool, assembly: _Assembly, stage: int) -> None:
        """Queue the tasks of a stage; the one that ends last goes on to the next stage."""
        num = len(assembly.photographs)
        num_tasks = max(1, min(num, TASKS_PER_THREAD * self._settings.num_threads))
        cuts = [num * i // num_tasks for i in range(num_tasks + 1)]
        assembly.remaining = num_tasks
        step = self._read if stage == 0 else self._render

        def run(first: int, last: int) -> None:
            for position in range(first, last):
                try:
                    step(assembly, position)
                except BaseException as problem:
                    assembly.problems[position] = problem
            with assembly.lock:
                assembly.remaining -= 1
                is_last = assembly.remaining == 0
            if not is_last:
                return
            if stage == 0 and not assembly.problems:
                try:
                    self._plan(assembly)
                except BaseException as problem:
                    assembly.problems[0] = problem
            if stage == 0 and not assembly.problems:
                self._spread(pool, assembly, 1)
            else:
                assembly.done.set()

        for first, last in pairwise(cuts):
            pool.submit((assembly.request.number, -stage), partial(run, first, last))

    def _read(self, assembly: _Assembly, position: int) -> None:
        assembly.photographs[position] = self._usable(assembly, position, 0)

    def _usable(self, assembly: _Assembly, position: int, first_offset: int) -> Photograph:
        """The photograph, or where it cannot be read and may be skipped the next one in the source's order that can.

        The search begins `first_offset` places after the sample that the position asks for.
        """
        source = self._settings.source
        num, wanted = len(source), int(assembly.request.sample_ids[position])
        for offset in range(first_offset, min(num, MAX_REPLACEMENTS)):
            candidate = (wanted + offset) % num
            try:
                return open_photograph(source, self._settings.recipe, candidate, self._settings.max_pixels)
            except SampleError as problem:
                self._skip_or_raise(assembly, candidate, problem)
        others = min(num, MAX_REPLACEMENTS) - 1
        after = f"nor can any of the {others} photographs after it" if others else "and it is the only photograph"
        name = source.name(wanted)
        reason = assembly.skipped[wanted].removeprefix(f"{name}: ")
        raise SampleError(name, f"it cannot be used, {after}. The first reason: {reason}")

    def _skip_or_raise(self, assembly: _Assembly, sample_id: int, problem: SampleError) -> None:
        if not self._settings.skips_bad:
            raise problem
        assembly.skipped[sample_id] = str(problem)

    def _plan(self, assembly: _Assembly) -> None:
        photographs = [photograph for photograph in assembly.photographs if photograph is not None]
        assembly.plan = plan(
            self._settings.recipe,
            [photograph.sample_id for photograph in photographs],
            sizes=[photograph.size for photograph in photographs],
            epoch=assembly.request.epoch,
            seed=self._settings.seed,
        )
        assembly.factors, assembly.tables = self._tables(assembly.plan, photographs)
        assembly.sizes = tuple(
            view.out_size or self._common_size(rows, photographs)
            for view, rows in zip(self._settings.recipe.all_views, assembly.plan.views, strict=True)
        )
        assembly.memory = tuple(
            self._buffers.take(len(photographs) * height * width * 3, self._settings.form.held_as)
            for height, width in assembly.sizes
        )

    def _tables(self, made: Plan, photographs: list[Photograph]) -> tuple[npt.NDArray[np.int64], tuple[Rows, ...]]:
        may_scale = np.array([bool(p.header and p.header.may_scale) for p in photographs], np.bool_)
        factors = np.where(may_scale, dct_factors(made.views), 1)
        return factors, tuple(kernel_rows(rows, factors) for rows in made.views)

    def _common_size(self, rows: Rows, photographs: list[Photograph]) -> tuple[int, int]:
        """The one size of the output images of a view that keeps whole photographs."""
        if not len(rows):
            return (0, 0)
        height, width = int(rows["out_height"][0]), int(rows["out_width"][0])
        other = np.flatnonzero((rows["out_height"] != height) | (rows["out_width"] != width))
        if len(other):
            row = rows[other[0]]
            names = [self._settings.source.name(photographs[i].sample_id) for i in (0, int(other[0]))]
            raise ValueError(
                f"one batch cannot hold images of several sizes: {names[0]} is {height}x{width} and {names[1]} "
                f"{row['out_height']}x{row['out_width']}. Add a crop to the recipe, or use batch_size=1."
            )
        return height, width

    def _render(self, assembly: _Assembly, position: int) -> None:
        photograph = assembly.photographs[position]
        assert photograph is not None and assembly.factors is not None
        try:
            self._render_one(assembly, position, photograph, int(assembly.factors[position]))
        except SampleError as problem:
            self._skip_or_raise(assembly, photograph.sample_id, problem)
            self._replace(assembly, position, photograph)
        photograph.content = b""  # of no more use

    def _replace(self, assembly: _Assembly, position: int, unusable: Photograph) -> None:
        """Put the next photograph that can be decoded in the place of one that cannot, with draws of its own."""
        num, wanted = len(self._settings.source), int(assembly.request.sample_ids[position])
        photograph = unusable
        while True:
            photograph = self._usable(assembly, position, (photograph.sample_id - wanted) % num + 1)
            try:
                self._render_one(assembly, position, photograph, self._fit_in(assembly, position, photograph))
            except SampleError as problem:
                self._skip_or_raise(assembly, photograph.sample_id, problem)
                continue
            photograph.content = b""
            return

    def _fit_in(self, assembly: _Assembly, position: int, photograph: Photograph) -> int:
        """Plan a replacement in a batch that is planned already; returns its DCT factor.

        Raises:
            ValueError: the batch holds whole photographs, and this one is of another size.
        """
        assembly.photographs[position] = photograph
        if len(assembly.photographs) == 1:
            self._plan(assembly)  # its memory may change
            assert assembly.factors is not None
            return int(assembly.factors[0])
        assert assembly.plan is not None
        made = plan(
            self._settings.recipe,
            [photograph.sample_id],
            sizes=[photograph.size],
            epoch=assembly.request.epoch,
            seed=self._settings.seed,
        )
        factors, tables = self._tables(made, [photograph])
        for view, rows in enumerate(made.views):
            size = int(rows["out_height"][0]), int(rows["out_width"][0])
            if size != assembly.sizes[view]:
                height, width = assembly.sizes[view]
                raise ValueError(
                    f"one batch cannot hold images of several sizes: {self._settings.source.name(photograph.sample_id)}"
                    f", which replaces an unusable photograph, is {size[0]}x{size[1]} and the others {height}x{width}. "
                    "Add a crop to the recipe, or use batch_size=1."
                )
            assembly.plan.views[view][position] = rows[0]
            assembly.tables[view][position] = tables[view][0]
        return int(factors[0])

    def _render_one(self, assembly: _Assembly, position: int, photograph: Photograph, factor: int) -> None:
        try:
            pixels = photograph.decode(self._scratch, factor)
        except ValueError as problem:
            raise SampleError(self._settings.source.name(photograph.sample_id), str(problem)) from problem
        for view, (height, width) in enumerate(assembly.sizes):
            num = height * width * 3
            out = assembly.memory[view][position * num : (position + 1) * num]
            row = assembly.tables[view][position : position + 1]
            render(pixels, row, out, (height, width), self._settings.form, self._scratch)

    def _finish(self, pool: WorkerPool, assembly: _Assembly) -> tuple[Batch, dict[int, str]]:
        if not assembly.done.is_set():
            if pool.is_closed:
                raise RuntimeError(
                    "the threads of this pass over the loader have ended, as they do in a forked process. "
                    "Start a new pass: iter(loader)."
                )
            assembly.done.wait()
        if assembly.problems:
            raise assembly.problems[min(assembly.problems)]
        assert assembly.plan is not None
        form = self._settings.form
        num = len(assembly.photographs)
        images = [
            form.wrap(memory, num, height, width)
            for memory, (height, width) in zip(assembly.memory, assembly.sizes, strict=True)
        ]
        ids = assembly.plan.sample_ids
        labels = np.array([self._settings.source.label(int(sample_id)) for sample_id in ids], np.int64)
        batch = Batch(
            images=images[0] if len(images) == 1 else tuple(images),
            labels=form.wrap_labels(labels),
            sample_ids=ids,
            plan=assembly.plan,
        )
        return batch, assembly.skipped
