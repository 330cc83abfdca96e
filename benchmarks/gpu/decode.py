"""Section of `check`: from JPEG files to batches on the device, next to DALI's decoding of the same files alone.

Each contender runs by itself through the same files, in the same order, and is timed between two batches in the middle,
the device waited for at both: from the fourth on, and not the last ones, so that nothing counts that was decoded ahead.
Files come from the system's page cache. DALI alone decodes what our loader asks it for: the regions that the plans look
at, or whole images where the nvJPEG that is loaded takes no regions, and DALI would decode those on the CPU.
"""

import gc
import json
import time
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import augpipe.dali
from augpipe import Plan, plan, recipes
from augpipe.cuda.versions import written
from augpipe.dali import decoder
from augpipe.dali.nvjpeg import Nvjpeg, loaded_nvjpeg
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.native.workers import num_usable_cores
from augpipe.pipeline import choose
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.regions import source_regions
from benchmarks.gpu.common import Findings, Run, make_loader, synchronize

NUM_FILES, BATCH_SIZE = 32_000, 256
SKIPPED = 4
"""Batches at the beginning and at the end that are not timed."""
FEWEST = 10
"""Batches that must be timed: a rate of fewer is an accident."""
LONGEST_S, STARTING_S = 2.5, 10.0
"""The longest that a contender is measured, and before that waited for."""
LOADS = (0.65, 0.9, 1.0)
"""Shares of a batch that the JPEG engines are given."""
THREADS = (4, 8, 16)
ALONE, OURS, OPERATOR = "DALI alone", "augpipe dali", "augpipe.dali.augment"


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """What is compared lies side by side in time, and the first one comes once more at the end."""
    named: dict[str, Callable[[], Iterator[int]]] = {
        "DALI image": partial(_dali, run, smooth=False),
        "DALI image, smooth upsampling": partial(_dali, run, smooth=True),
        f"{OPERATOR}, whole images": partial(_dali, run, smooth=True, augments=True),
    }
    for load in LOADS:
        named[f"{ALONE}, hw_decoder_load {load}"] = partial(_alone, run, load)
        for threads in THREADS if load == LOADS[0] else THREADS[:1]:
            named[f"{OURS}, hw_decoder_load {load}, {threads} threads"] = partial(_ours, run, load, threads)
    named["augpipe native"] = partial(_ours, run, LOADS[0], None, backend="native")
    named[f"{ALONE}, hw_decoder_load {LOADS[0]}, once more"] = named[f"{ALONE}, hw_decoder_load {LOADS[0]}"]
    return {name: partial(_timed, run, name, work) for name, work in named.items()}


def _timed(run: Run, name: str, work: Callable[[], Iterator[int]], findings: Findings) -> None:
    batches = work()
    num_files, batch_size = _sizes(run)
    last = num_files // batch_size - run.pick(SKIPPED, 0)
    first, num, timed, start, begin = run.pick(SKIPPED, 1), 0, 0, time.perf_counter(), None
    for number, images in enumerate(batches, 1):
        now = time.perf_counter()
        if begin is not None:
            num, timed = num + images, timed + 1
        elif number == first:
            synchronize()
            begin = time.perf_counter()
        if number == last or now - (begin or start) > (STARTING_S if begin is None else LONGEST_S):
            break
    synchronize()
    seconds = time.perf_counter() - (begin or start)
    if isinstance(batches, Generator):
        batches.close()
    gc.collect()  # DALI's pipelines end with their last reference, and would go on decoding next to the next one
    if timed < run.pick(FEWEST, 1):
        findings.leave_out(name, f"{timed} batches were timed in {seconds:.1f} s: too few for a rate")
        return
    found: dict[str, Any] = {"images_per_second": round(num / seconds, 1), "batches": timed}
    findings.keep(name, found | (_decoded_by(run) if name.startswith(ALONE) else {}))
    _compare(run, name, num / seconds, findings)


def _compare(run: Run, name: str, rate: float, findings: Findings) -> None:
    """Keep what a rate is of DALI's alone; rates are in a file, as the process that took one may have died since."""
    file = run.work / "rates.json"
    rates = (json.loads(file.read_text()) if file.exists() else {}) | {name: rate}
    file.write_text(json.dumps(rates))
    load = name.partition("hw_decoder_load ")[2].partition(",")[0]
    if name.startswith(OURS):
        base, goal = f"{ALONE}, hw_decoder_load {load}", "decoding of the same (goal: at least 0.97)"
    elif name.startswith(OPERATOR):
        base, goal = "DALI image, smooth upsampling", "decoding of the same"
    elif name.endswith("once more"):
        base, goal = name.removesuffix(", once more"), "rate before (how far the machine drifted)"
    else:
        return
    if base in rates:
        findings.keep(f"{name}: over DALI's {goal}", round(rate / rates[base], 3))
    else:
        findings.leave_out(f"{name}: over DALI's {goal}", f"there is no rate of {base!r}: it failed, or was too slow")


def _nvjpeg(run: Run) -> Nvjpeg | None:
    """The nvJPEG that decodes in this process, which is loaded by the first decoder."""
    if loaded_nvjpeg() is None:
        decoder.DaliDecoder(1, 1, run.pick(0, None), 1).close()
    return loaded_nvjpeg()


def _decoded_by(run: Run) -> dict[str, str | None]:
    nvjpeg = _nvjpeg(run)
    what = "regions" if nvjpeg is None or nvjpeg.takes_regions else "whole images"
    return {"decodes": what, "nvjpeg": nvjpeg and written(nvjpeg.version)}


def _alone(run: Run, load: float) -> Iterator[int]:
    return _dali(run, smooth=True, load=load, regions=_decoded_by(run)["decodes"] == "regions")


def _sizes(run: Run) -> tuple[int, int]:
    """How many files there are, and how many of them in a batch."""
    sizes: tuple[int, int] = run.pick((NUM_FILES, BATCH_SIZE), (6, 2))
    return sizes


def _ours(run: Run, load: float, threads: int | None, backend: str = "dali") -> Iterator[int]:
    """Our loader; `threads` of its own next to DALI's."""
    before = choose.FEW_THREADS, decoder.HW_DECODER_LOAD
    try:
        decoder.HW_DECODER_LOAD = load
        choose.FEW_THREADS = threads or choose.FEW_THREADS
        num_files, batch_size = _sizes(run)
        loader = make_loader(run, run.many(num_files), batch_size, backend=backend, shuffle=False)
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
    num, _ = _sizes(run)
    recipe = make_loader(run, run.many(num), 1, backend="native").recipe
    return plan(recipe, range(num), sizes=[sizes[number % len(sizes)] for number in range(num)])


def _regions(run: Run) -> np.ndarray:
    """(num files, 4): what our loader looks at of each file then; left, top, right, bottom."""
    rows = _plan(run).rows
    return source_regions([kernel_rows(rows)], [(int(rows["out_height"][0]), int(rows["out_width"][0]))])


def _dali(
    run: Run, *, smooth: bool, load: float = LOADS[0], regions: bool = False, augments: bool = False
) -> Iterator[int]:
    """DALI's file reader and decoder, with as many threads as there are cores; `augments`: and our operator."""
    import nvidia.dali as dali
    from nvidia.dali import fn, types

    num_files, batch_size = _sizes(run)
    files, looked_at = sorted(map(str, run.many(num_files).iterdir())), _regions(run) if regions else None
    options: dict[str, Any] = {"output_type": types.RGB, "jpeg_fancy_upsampling": smooth, "adjust_orientation": False}
    options |= run.pick({"device": "mixed", "hw_decoder_load": load}, {"device": "cpu"})
    pipeline = dali.Pipeline(batch_size, num_usable_cores(), run.pick(0, None), prefetch_queue_depth=3)
    with pipeline:
        encoded, _ = fn.readers.file(files=files, name="files")
        if looked_at is None:
            images = fn.decoders.image(encoded, **options)
            recipe = run.pick(recipes.deep_image(), recipes.deep_image(6, (7, 12)))
            pipeline.set_outputs(augpipe.dali.augment(images, recipe, dtype="float16") if augments else images)
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
