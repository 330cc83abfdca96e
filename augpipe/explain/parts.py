"""What decoding, the map and the program take of an image, on one thread: the loader does them in one stage."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.pixels import pack_levels
from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import first_parts
from augpipe.native.cpu_render import LEVELS, Scratch, call_functions, render
from augpipe.native.functions import Functions
from augpipe.pipeline.blocks import Block
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.items import BatchInProgress, Settings
from augpipe.pipeline.planner import Planner
from augpipe.pipeline.samples import Samples
from augpipe.pipeline.stored_image import StoredImage
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.record_passes import is_joined, parted_tables

Rows = npt.NDArray[np.void]

FORM = OutputFormat(dtype="float32", layout="NCHW", framework="numpy")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """CPU seconds of a thread for an image, on average: what other processes take meanwhile does not count."""

    decoding: float
    map: float
    program: float
    cached_bytes: float
    """What a cache would take for an image."""

    @property
    def total(self) -> float:
        return self.decoding + self.map + self.program


def time_parts(settings: Settings, images: Sequence[StoredImage], epoch: int) -> Parts:
    """Time them for each image, planned as the loader plans them; the second of two rounds counts."""
    settings = replace(settings, targets=None, groups_of=None)
    samples = Samples(settings, None)
    planner = Planner(settings, None, _nothing, decodes=True, wants_regions=False)
    decoder, scratch, memory = Decoder(settings, samples, planner, None), Scratch(), Scratch()
    for _ in range(2):
        spent, cached = np.zeros(3), 0
        for image in images:
            (request,) = Block(epoch, np.array([image.sample_id], np.int64)).requests(0, 1, 1)
            batch = BatchInProgress.of(request)
            (item,) = batch.items
            item.image = replace(image)
            planner.plan(batch, batch.items)
            start = time.thread_time()
            decoder.decode(batch, item, scratch.pixels)
            spent[0] += time.thread_time() - start
            assert item.pixels is not None and batch.plan is not None
            for view, (rows, size) in enumerate(zip(batch.tables, batch.sizes, strict=True)):
                functions = Functions.of(batch.plan, view, lambda place: f"image {place}")
                pixels, form = item.pixels, LEVELS if is_joined(rows) else FORM
                out, (height, width) = memory.values(0), size
                for nth, (own, own_size) in enumerate(_passes(rows, size)):
                    start = time.thread_time()
                    if nth:  # what the pass before has left
                        packed = scratch.between(height * width)[1]
                        pack_levels(out, packed)
                        spent[1] += time.thread_time() - start
                        start = time.thread_time()
                        if functions is not None:
                            call_functions(functions, nth, 0, packed.reshape(height, width, 4))
                        spent[2] += time.thread_time() - start
                        start = time.thread_time()
                        pixels = LocatedPixels.of(packed.reshape(height, width, 4))
                    height, width = own_size
                    out, first = memory.values(height * width * 3), first_parts(own)
                    render([pixels], first, out, (height, width), form, scratch)
                    spent[1] += time.thread_time() - start
                    if first is not own:
                        start = time.thread_time()
                        take_programs(own, out, out, height, width, form.planar)
                        spent[2] += time.thread_time() - start
            height, width, channels = image.shape(item.factor)
            cached += height * width * channels
    decoding, mapping, program = (spent / len(images)).tolist()
    return Parts(decoding=decoding, map=mapping, program=program, cached_bytes=cached / len(images))


def _passes(rows: Rows, size: tuple[int, int]) -> list[tuple[Rows, tuple[int, int]]]:
    """The (1,) kernel row of each pass of a view, and height and width of what it makes."""
    if not is_joined(rows):
        return [(rows, size)]
    return [(own, (int(sizes[0, 0]), int(sizes[0, 1]))) for own, sizes in parted_tables(rows)]


def _nothing(batch: BatchInProgress) -> None:
    """No memory is wanted of a batch that is timed."""
