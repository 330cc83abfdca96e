"""From a source to its statistics, on several threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from augpipe.datasets.stats.chunk import decode_sample, measure_chunk
from augpipe.datasets.stats.duplicates import find_duplicates
from augpipe.datasets.stats.fingerprints import has_image_hash, pixel_digest
from augpipe.datasets.stats.label_numbers import WithoutLabels, label_numbers
from augpipe.datasets.stats.objects import object_statistics
from augpipe.datasets.stats.statistics import Statistics
from augpipe.datasets.stats.sums import Sums, merge_all
from augpipe.decoding import MAX_PIXELS
from augpipe.native.cpu_render import Scratch
from augpipe.native.workers import num_usable_cores
from augpipe.sources.protocol import Source
from augpipe.validation.arguments import as_num_threads

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many images of it are done, and of how many."""
T = TypeVar("T")
CHUNK = 32
"""Images a task: few enough that all threads end at about the same time."""


def collect_statistics(
    source: Source,
    *,
    name: str = "",
    duplicates: bool = True,
    num_threads: int | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: Progress = lambda what, done, total: None,
) -> Statistics:
    """Read and decode every image once; the result does not depend on the number of threads.

    Unusable images are listed in the result and in no sum. Memory: 49 bytes an image for finding duplicates
    (about 200 while they are compared), some hundred for every different image size, and one decoded image a
    thread.

    Args:
        source: any source. Where its labels are several numbers an image, those are counted instead of classes, and
            duplicates' labels are not compared.
        name: what the statistics call it.
        duplicates: whether to look for them. Look-alikes are among them where ImageHash is installed.
        num_threads: None for one a core.
        max_pixels: larger images are unusable.
        progress: called after each image, from one thread at a time.

    Raises:
        ValueError: fewer than one thread.
        SampleError: while duplicates are compared, an image cannot be read again.
    """
    numbers = label_numbers(source)
    left_out = tuple(getattr(source, "left_out", ()))
    objects = object_statistics(source)
    if numbers:
        source = WithoutLabels(source)
    threads = as_num_threads(num_threads, num_usable_cores())
    perceptual = duplicates and has_image_hash()
    if perceptual:
        import imagehash  # noqa: F401  # here, not from all threads at once
    scratch = Scratch()

    def measured(chunk: Sequence[int], tick: Callable[[], None]) -> Sums:
        return measure_chunk(
            source,
            chunk,
            fingerprints=duplicates,
            perceptual=perceptual,
            scratch=scratch,
            max_pixels=max_pixels,
            tick=tick,
        )

    def digests(chunk: Sequence[int], tick: Callable[[], None]) -> list[Sequence[int]]:
        made = []
        for sample_id in chunk:
            _, pixels = decode_sample(source, sample_id, scratch, max_pixels)
            made.append(pixel_digest(pixels))
            tick()
        return made

    def pixel_digests(sample_ids: Sequence[int]) -> npt.NDArray[np.uint64]:
        parts = map_chunks(
            digests, sample_ids, threads, lambda done: progress("comparing pixels", done, len(sample_ids))
        )
        return np.array([digest for part in parts for digest in part], np.uint64)

    total = len(source)
    sums = merge_all(map_chunks(measured, range(total), threads, lambda done: progress("reading", done, total)))
    found = None
    if duplicates:
        found = find_duplicates(source, sums.fingerprints, pixel_digests, has_perceptual=perceptual)
    return Statistics(
        source=name,
        classes=tuple(source.classes),
        sums=sums,
        duplicates=found,
        left_out=left_out,
        label_numbers=numbers,
        objects=objects,
    )


class _Ended(Exception):
    """Whoever wanted the results wants them no longer."""


def map_chunks(
    function: Callable[[Sequence[int], Callable[[], None]], T],
    sample_ids: Sequence[int],
    num_threads: int,
    progress: Callable[[int], None],
) -> Iterator[T]:
    """Results of `function(chunk, tick)` in the chunks' order; it calls `tick` after each sample.

    At most two chunks a thread are under way. Where the caller stops early, by Ctrl-C too, every thread ends after the
    sample that it works on. `progress` is told how many samples are done, at first 0, from one thread at a time.
    """
    ended = threading.Event()
    lock = threading.Lock()
    done = 0

    def tick() -> None:
        nonlocal done
        if ended.is_set():
            raise _Ended
        with lock:
            done += 1
            progress(done)

    progress(0)
    chunks = (sample_ids[start : start + CHUNK] for start in range(0, len(sample_ids), CHUNK))
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix="augpipe-stats")
    under_way: deque[Future[T]] = deque()
    try:
        for chunk in islice(chunks, 2 * num_threads):
            under_way.append(executor.submit(function, chunk, tick))
        while under_way:
            yield under_way.popleft().result()
            for chunk in islice(chunks, 1):
                under_way.append(executor.submit(function, chunk, tick))
    finally:
        ended.set()
        executor.shutdown(cancel_futures=True)
