"""From a source to its statistics, on several threads."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from augpipe.arguments import as_num_threads
from augpipe.backends.render import Scratch
from augpipe.datasets.stats.chunk import decode_sample, measure_chunk
from augpipe.datasets.stats.duplicates import find_duplicates
from augpipe.datasets.stats.fingerprints import pixel_digest
from augpipe.datasets.stats.perceptual import is_available
from augpipe.datasets.stats.statistics import Statistics
from augpipe.datasets.stats.sums import Sums, merge_all
from augpipe.datasets.stats.threads import map_chunks
from augpipe.decoding import MAX_PIXELS
from augpipe.source import Source
from augpipe.workers import num_usable_cores

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many photographs of it are done, and of how many."""


def collect_statistics(
    source: Source,
    *,
    name: str = "",
    duplicates: bool = True,
    num_threads: int | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: Progress = lambda what, done, total: None,
) -> Statistics:
    """Read and decode every photograph once; the result does not depend on the number of threads.

    Unusable photographs are listed in the result and in no sum. Memory: 49 bytes a photograph for finding duplicates
    (about 200 while they are compared), some hundred for every different picture size, and one decoded picture a
    thread.

    Args:
        source: any source.
        name: what the statistics call it.
        duplicates: whether to look for them. Look-alikes are among them where ImageHash is installed.
        num_threads: None for one a core.
        max_pixels: larger pictures are unusable.
        progress: called after each photograph, from one thread at a time.

    Raises:
        ValueError: fewer than one thread.
        SampleError: while duplicates are compared, a photograph cannot be read again.
    """
    threads = as_num_threads(num_threads, num_usable_cores())
    perceptual = duplicates and is_available()
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
        told = partial(_tell, progress, "comparing pixels", len(sample_ids))
        parts = map_chunks(digests, sample_ids, threads, told)
        return np.array([digest for part in parts for digest in part], np.uint64)

    total = len(source)
    sums = merge_all(map_chunks(measured, range(total), threads, partial(_tell, progress, "reading", total)))
    found = None
    if duplicates:
        found = find_duplicates(source, sums.fingerprints, pixel_digests, has_perceptual=perceptual)
    return Statistics(source=name, classes=tuple(source.classes), sums=sums, duplicates=found)


def _tell(progress: Progress, what: str, total: int, done: int) -> None:
    progress(what, done, total)
