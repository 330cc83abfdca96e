"""Section of `gpu_check`: from JPEG files to batches on the device, beside DALI's decoding of the same files alone.

Each contender runs by itself through the same files, in the same order, and is timed between two batches in the middle,
the device waited for at both: from the fourth on, and not the last ones, so that nothing counts that was decoded ahead.
Files come from the system's page cache.
"""

import gc
import time
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from gpu_common import Findings, Run, make_loader, synchronize

from augpipe import Plan, plan
from augpipe.cpu.workers import num_usable_cores
from augpipe.dali import decoder
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.pipeline import choose
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.regions import source_regions

NUM_FILES, BATCH_SIZE = 32_000, 256
SKIPPED = 4
"""Batches at the beginning and at the end that are not timed."""
LONGEST_S = 9.0
"""The longest that a contender is measured."""
LOADS = (0.65, 0.9, 1.0)
"""Shares of a batch that the JPEG engines are given."""
THREADS = (4, 8, 16)
SLICE, OURS = "DALI image_slice", "augpipe dali"
_rates: dict[str, float] = {}


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """What is compared lies side by side in time, and the first one comes once more at the end."""
    named: dict[str, Callable[[], Iterator[int]]] = {
        "DALI image": partial(_dali, run, smooth=False),
        "DALI image, smooth upsampling": partial(_dali, run, smooth=True),
    }
    for load in LOADS:
        named[f"{SLICE}, hw_decoder_load {load}"] = partial(_dali, run, smooth=True, load=load, regions=True)
        for threads in THREADS if load == LOADS[0] else THREADS[:1]:
            named[f"{OURS}, hw_decoder_load {load}, {threads} threads"] = partial(_ours, run, load, threads)
    named["augpipe native"] = partial(_ours, run, LOADS[0], None, backend="native")
    named["torchvision decode_jpeg"] = partial(_torchvision, run)
    named[f"{SLICE}, hw_decoder_load {LOADS[0]}, once more"] = named[f"{SLICE}, hw_decoder_load {LOADS[0]}"]
    return {name: partial(_timed, run, name, work) for name, work in named.items()}


def _timed(run: Run, name: str, work: Callable[[], Iterator[int]], findings: Findings) -> None:
    batches = work()
    last = _num_files(run) // _batch_size(run) - run.pick(SKIPPED, 0)
    first, num, start, begin = run.pick(SKIPPED, 1), 0, time.perf_counter(), 0.0
    for number, images in enumerate(batches, 1):
        num += images if number > first else 0
        if number == first:
            synchronize()
            begin = time.perf_counter()
        if number == last or time.perf_counter() - start > LONGEST_S:
            break
    synchronize()
    rate = num / (time.perf_counter() - begin)
    if isinstance(batches, Generator):
        batches.close()
    gc.collect()  # DALI's pipelines end with their last reference, and would go on decoding beside the next one
    findings.keep(name, {"images_per_second": round(rate, 1), "images": num})
    _rates[name] = rate
    load = name.partition("hw_decoder_load ")[2].partition(",")[0]
    alone = _rates.get(f"{SLICE}, hw_decoder_load {load}")
    if alone and (name.startswith(OURS) or name.endswith("more")):
        goal = "goal: at least 0.97" if name.startswith(OURS) else "how far the machine drifted"
        findings.keep(f"{name}: over DALI's decoding of the same regions ({goal})", round(rate / alone, 3))


def _batch_size(run: Run) -> int:
    size: int = run.pick(BATCH_SIZE, 2)
    return size


def _num_files(run: Run) -> int:
    num: int = run.pick(NUM_FILES, 6)
    return num


def _ours(run: Run, load: float, threads: int | None, backend: str = "dali") -> Iterator[int]:
    """Our loader; `threads` of its own beside DALI's."""
    before = choose.FEW_THREADS, decoder.HW_DECODER_LOAD
    try:
        decoder.HW_DECODER_LOAD = load
        choose.FEW_THREADS = threads or choose.FEW_THREADS
        loader = make_loader(run, run.many(_num_files(run)), _batch_size(run), backend=backend, shuffle=False)
        for number, batch in enumerate(loader):
            if number == 0:  # what DALI alone is timed with
                assert batch.plan.rows.tobytes() == _plan(run).rows[: len(batch)].tobytes()
            yield len(batch)
    finally:
        choose.FEW_THREADS, decoder.HW_DECODER_LOAD = before


@cache
def _plan(run: Run) -> Plan:
    """What our loader does in its first epoch."""
    headers = [probe(data, max_pixels=MAX_PIXELS) for data in run.encoded()]
    sizes = [(header.height, header.width) for header in headers]
    num = _num_files(run)
    recipe = make_loader(run, run.many(num), 1, backend="native").recipe
    return plan(recipe, range(num), sizes=[sizes[number % len(sizes)] for number in range(num)])


def _regions(run: Run) -> np.ndarray:
    """(num files, 4): what our loader looks at of each file then; left, top, right, bottom."""
    rows = _plan(run).rows
    return source_regions([kernel_rows(rows)], [(int(rows["out_height"][0]), int(rows["out_width"][0]))])


def _dali(run: Run, *, smooth: bool, load: float = LOADS[0], regions: bool = False) -> Iterator[int]:
    """DALI's file reader and decoder, with as many threads as there are cores."""
    import nvidia.dali as dali
    from nvidia.dali import fn, types

    files = sorted(map(str, run.many(_num_files(run)).iterdir()))
    batch_size, looked_at = _batch_size(run), _regions(run) if regions else None
    options: dict[str, Any] = {"output_type": types.RGB, "jpeg_fancy_upsampling": smooth, "adjust_orientation": False}
    options |= run.pick({"device": "mixed", "hw_decoder_load": load}, {"device": "cpu"})
    pipeline = dali.Pipeline(batch_size, num_usable_cores(), run.pick(0, None), prefetch_queue_depth=3)
    with pipeline:
        encoded, _ = fn.readers.file(files=files, name="files")
        if looked_at is None:
            pipeline.set_outputs(fn.decoders.image(encoded, **options))
        else:
            corners = [np.ascontiguousarray(looked_at[:, 1::-1]), looked_at[:, :1:-1] - looked_at[:, 1::-1]]
            start, shape = fn.external_source(
                source=lambda number: [
                    np.take(part, _positions(number, batch_size, files), axis=0) for part in corners
                ],
                num_outputs=2,
                batch=True,
                dtype=types.INT32,
            )
            pipeline.set_outputs(fn.decoders.image_slice(encoded, start=start, shape=shape, axes=(0, 1), **options))
    pipeline.build()
    for _ in range(len(files) // batch_size):
        pipeline.run()
        yield batch_size


def _positions(number: int, batch_size: int, files: list[str]) -> np.ndarray:
    """Which files a batch is of; DALI works ahead, into the next epoch."""
    return np.arange(number * batch_size, (number + 1) * batch_size) % len(files)


def _torchvision(run: Run) -> Iterator[int]:
    from torchvision.io import decode_jpeg

    encoded = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in run.encoded()]
    batch_size, device = _batch_size(run), run.pick("cuda", "cpu")
    for first in range(0, _num_files(run), batch_size):
        decode_jpeg([encoded[(first + number) % len(encoded)] for number in range(batch_size)], device=device)
        yield batch_size
