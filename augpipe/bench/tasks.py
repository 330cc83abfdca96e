"""The things that are timed, each a function of the number of images to put through and the threads to use."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from augpipe.cache.row_indexes import DEFAULT_BYTES, RowIndexes
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.loader import Loader, Numpy
from augpipe.native.cpu_render import Scratch, render
from augpipe.pipeline.held_images import HeldSource
from augpipe.pipeline.stored_image import StoredImage
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import Plan, plan
from augpipe.planning.regions import source_regions
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Source

Task = Callable[[int, int], float]
"""(images to put through, threads) -> seconds that it took."""

MAX_DECODED_BYTES = 256 * 2**20
"""Decoded images held for the kernel's measurement; the first is kept however large it is."""

FORM = OutputFormat(dtype="float32", layout="NCHW", framework="numpy")


def decode_task(photographs: Sequence[StoredImage]) -> Task:
    """Bytes in memory to whole images at full size, each thread into a buffer that it uses again."""

    def task(num: int, threads: int) -> float:
        scratch = Scratch()

        def one(i: int) -> None:
            photographs[i % len(photographs)].decode(scratch)

        return spread(one, num, threads)

    return task


def region_task(photographs: Sequence[StoredImage], source: Source, recipe: Recipe, seed: int, epoch: int) -> Task:
    """Bytes in memory to what the plan looks at, as the loader decodes it; row indexes are found in the first round."""
    made = _plan(recipe, photographs, seed, epoch)
    factors = np.where([photograph.may_scale for photograph in photographs], dct_factors(made.views), 1)
    tables = [kernel_rows(rows, factors) for rows in made.views]
    sizes = [view.out_size for view in recipe.all_views if view.out_size is not None]
    regions = source_regions(tables, sizes).tolist() if len(sizes) == len(tables) else None
    row_indexes = RowIndexes(source, DEFAULT_BYTES)

    def task(num: int, threads: int) -> float:
        scratch = Scratch()

        def one(i: int) -> None:
            which = i % len(photographs)
            photograph, factor = photographs[which], int(factors[which])
            if regions is None or not photograph.may_crop:
                photograph.decode(scratch, factor)
                return
            part = photograph.region(factor, regions[which], row_indexes)
            part.decode_into(scratch.pixels(part.num_bytes))

        return spread(one, num, threads)

    return task


def kernel_task(photographs: Sequence[StoredImage], recipe: Recipe, seed: int, epoch: int, batch_size: int) -> Task:
    """Decoded and planned images to float32 images in a batch's memory, all views, as the loader renders them."""
    made = _plan(recipe, photographs, seed, epoch)
    is_jpeg = np.array([photograph.may_scale for photograph in photographs])
    factors = np.where(is_jpeg, dct_factors(made.views), 1)
    scratch = Scratch()
    pixels: list[LocatedPixels] = []
    for photograph, factor in zip(photographs, factors, strict=True):
        pixels.append(LocatedPixels.of(np.array(photograph.decode(scratch, int(factor)))))
        if sum(image.owner.nbytes for image in pixels) > MAX_DECODED_BYTES:
            break
    tables = [kernel_rows(rows, factors) for rows in made.views]
    sizes = [[(int(row["out_height"]), int(row["out_width"])) for row in rows] for rows in made.views]
    largest = max(height * width * 3 for view in sizes for height, width in view)
    # images are written one after the other through as much memory as a batch takes, or a cache would flatter them
    slots = max(1, min(batch_size, MAX_DECODED_BYTES // (4 * largest)))
    memory: npt.NDArray[np.float32] = np.empty((slots, largest), np.float32)

    def one(i: int) -> None:
        which = i % len(pixels)
        for table, view in zip(tables, sizes, strict=True):
            height, width = view[which]
            out = memory[i % slots, : height * width * 3]
            render([pixels[which]], table[which : which + 1], out, (height, width), FORM, scratch)

    return lambda num, threads: spread(one, num, threads)


def plan_task(photographs: Sequence[StoredImage], recipe: Recipe, seed: int, num_planned: int) -> Task:
    """Ids and sizes to drawn plans and the kernel's table, `num_planned` at a time, on one thread."""
    ids = np.resize([image.sample_id for image in photographs], num_planned)
    sizes = np.resize([image.size for image in photographs], (num_planned, 2))

    def task(num: int, threads: int) -> float:
        start = time.perf_counter()
        for epoch in range(-(-num // num_planned)):
            made = plan(recipe, ids, sizes=sizes, epoch=epoch, seed=seed)
            factors = dct_factors(made.views)
            for rows in made.views:
                kernel_rows(rows, factors)
        return time.perf_counter() - start

    return task


def loader_task(
    photographs: Sequence[StoredImage], recipe: Recipe, seed: int, batch_size: int, source: Source | None
) -> Task:
    """A whole epoch of the loader, its threads' start and end included: from `source`, or from memory for None."""
    # one loader for each length, so that from its second epoch on it has its memory, as a training loop's has
    loaders: dict[tuple[int, int], Loader[Numpy]] = {}

    def task(num: int, threads: int) -> float:
        loader = loaders.get((num, threads)) or loaders.setdefault((num, threads), make(num, threads))
        start = time.perf_counter()
        for _ in loader:
            pass
        return time.perf_counter() - start

    def make(num: int, threads: int) -> Loader[Numpy]:
        return Loader(
            HeldSource(photographs, num, source),
            recipe,
            batch_size=batch_size,
            seed=seed,
            rank=0,
            world_size=1,
            num_threads=threads,
            framework="numpy",
        )

    return task


def spread(one: Callable[[int], None], num: int, threads: int) -> float:
    """Call one(0) .. one(num - 1) from as many threads, each taking the next few when it is free; returns seconds.

    Raises:
        Exception: whatever a call raised first.
    """
    if threads == 1:
        start = time.perf_counter()
        for i in range(num):
            one(i)
        return time.perf_counter() - start
    step = max(1, min(8, num // (4 * threads)))
    firsts = iter(range(0, num, step))
    lock = threading.Lock()
    problems: list[BaseException] = []

    def work() -> None:
        while not problems:
            with lock:
                first = next(firsts, None)
            if first is None:
                return
            try:
                for i in range(first, min(first + step, num)):
                    one(i)
            except BaseException as problem:
                problems.append(problem)

    workers = [threading.Thread(target=work, name=f"augpipe-measure-{i}", daemon=True) for i in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    if problems:
        raise problems[0]
    return seconds


def _plan(recipe: Recipe, photographs: Sequence[StoredImage], seed: int, epoch: int) -> Plan:
    ids = [image.sample_id for image in photographs]
    return plan(recipe, ids, sizes=[image.size for image in photographs], epoch=epoch, seed=seed)
