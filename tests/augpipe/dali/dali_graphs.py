"""What the tests of the in-graph op share: images, a pipeline around the op, a GPU renderer's stand-in."""

from collections.abc import Callable, Iterator, Sequence
from ctypes import c_uint8
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from nvidia.dali import Pipeline, fn

from augpipe.dali import augment
from augpipe.native.cpu_render import Scratch, as_rgbx, render
from augpipe.planning.output_format import OutputFormat
from augpipe.recipes.recipe import Recipe
from tests.augpipe.decoding.image_files import scene

Array = npt.NDArray[Any]

MAX_BATCH_SIZE = 6
PHOTOS = [scene(40 + 3 * seed, 61 - 2 * seed, seed) for seed in range(11)]
BATCHES = [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 0], [1], [2, 3, 4, 5, 6, 7]]
"""Which images the batches of `feed` hold; they differ in number."""
IDS = [1000 + 10 * position for position in range(sum(map(len, BATCHES)))]
"""Their sample ids, in that order; an image that comes again has another id."""
EPOCHS = [position // 4 for position in range(len(IDS))]
"""Their epochs, where the graph gives them; they change within a batch."""


def photographs() -> Any:
    """A node that gives BATCHES of images."""
    return fn.external_source(
        source=iter([[PHOTOS[number] for number in numbers] for numbers in BATCHES]), layout="HWC"
    )


def ids() -> Any:
    """A node that gives IDS, as the labels of DALI's readers come."""
    return fn.external_source(source=_in_batches([np.array([sample_id], np.int32) for sample_id in IDS]))


def epochs() -> Any:
    """A node that gives EPOCHS, as scalars."""
    return fn.external_source(source=_in_batches([np.array(epoch, np.int64) for epoch in EPOCHS]))


def _in_batches(values: list[Array]) -> Iterator[list[Array]]:
    remaining = iter(values)
    return iter([list(islice(remaining, len(numbers))) for numbers in BATCHES])


def pipeline_of(define: Callable[[], Any], **options: Any) -> Pipeline:
    """A CPU pipeline whose outputs `define` gives."""
    pipeline = Pipeline(**({"batch_size": MAX_BATCH_SIZE, "num_threads": 2, "device_id": None} | options))
    with pipeline:
        outputs = define()
        pipeline.set_outputs(*outputs) if isinstance(outputs, tuple) else pipeline.set_outputs(outputs)
    return pipeline


def results_of(pipeline: Pipeline, num_batches: int = len(BATCHES)) -> list[list[Array]]:
    """For each output of the pipeline its samples of all batches, in order.

    Every batch is looked at in the end, so that memory written to too early shows; DALI's older executors alone take
    their outputs' memory back at the next run.
    """
    runs = []
    for _ in range(num_batches):
        outputs = pipeline.run()
        runs.append(outputs if pipeline.exec_dynamic else [_arrays(samples) for samples in outputs])
    return [[image for samples in outputs for image in _arrays(samples)] for outputs in zip(*runs, strict=True)]


def _arrays(samples: Any) -> list[Array]:
    return samples if isinstance(samples, list) else [np.array(samples.at(i)) for i in range(len(samples))]


def augmented(recipe: Recipe, *, with_epochs: bool = False, pipeline: Any = None, **options: Any) -> list[list[Array]]:
    """What the op makes of BATCHES with their ids: for each view its samples."""

    def define() -> Any:
        given = {"epoch": epochs()} if with_epochs else {}
        return augment(photographs(), recipe, sample_ids=ids(), **given, **options)

    return results_of(pipeline_of(define, **(pipeline or {})))


class HostRenderer:
    """Does what the device's renderer does on addresses in host memory, with the CPU's kernel; notes each launch."""

    def __init__(self, form: OutputFormat) -> None:
        self._form = form
        self.launches: list[list[int]] = []

    def render(
        self,
        pixels: npt.NDArray[np.int64],
        tables: Sequence[npt.NDArray[np.void]],
        sizes: Sequence[tuple[int, int]],
        keep: Sequence[Any],
        sample_ids: npt.NDArray[np.int64],
    ) -> list[Any]:
        self.launches.append(sample_ids.tolist())
        scratch, finished = Scratch(), []
        for table, (height, width) in zip(tables, sizes, strict=True):
            memory = np.empty((len(pixels), height * width * 3), self._form.held_as)
            for entry, row, out in zip(pixels, table, memory, strict=True):
                address, stride, first_x, first_y, channels = (int(number) for number in entry)
                assert (first_x, first_y) == (0, 0) and (channels != 4 or address % 4 == 0)
                num_rows = int(row["origin_y"] + row["high_y"]) + 1  # the last one that the kernel reads
                held = np.ctypeslib.as_array((c_uint8 * (num_rows * stride * channels)).from_address(address))
                image = as_rgbx(held.reshape(num_rows, stride, channels), scratch)
                render([image], row[None], out, (height, width), self._form, scratch)
            finished.append(torch.from_numpy(self._form.wrap(memory.reshape(-1), len(pixels), height, width)))
        return finished
