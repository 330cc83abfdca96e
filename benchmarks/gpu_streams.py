"""Section of `gpu_check`: batches are right on whatever stream is current, and the host never waits for the device.

The second is shown in two ways: torch is told to raise at every call that waits, and the stream is kept busy by a spin
that must still be running when batches have been handed out.
"""

import time
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from gpu_common import Findings, Run, spread
from gpu_loader import make_loader

from augpipe import Augment, recipes

SPIN_S = 0.5
AHEAD = 3
"""Batches taken while the spin is on; fewer than may be in flight (`cuda.render.MAX_PENDING`)."""


def run(run: Run, findings: Findings) -> None:
    cycles = _cycles_a_second()
    findings.keep("spin_cycles_per_second", round(cycles))
    with findings.attempt("side stream"):
        _side_stream(run, findings, cycles)
    with findings.attempt("several streams"):
        _several_streams(run, findings)
    for name, options in {
        "native": {"backend": "native"},
        "dali": {"backend": "dali"},
        "the cache full, native": {"backend": "native", "cache": "device"},
        "the cache full, dali": {"backend": "dali", "cache": "device"},
    }.items():
        with findings.attempt(f"host never waits, {name}"):
            _no_waiting(run, findings, name, options, cycles)


def _cycles_a_second() -> float:
    """How fast `torch.cuda._sleep` counts."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(100_000_000)
    end.record()
    torch.cuda.synchronize()
    return 100_000_000 / (begin.elapsed_time(end) / 1e3)


def _photographs(num: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    return [torch.from_numpy(rng.integers(0, 256, (300, 400, 3), np.uint8)).cuda() for _ in range(num)]


def _side_stream(run: Run, findings: Findings, cycles: float) -> None:
    """The stream is busy when the call comes: it returns before the stream gets there, and the images are right."""
    photographs, augment = _photographs(16), Augment(recipes.deep_image(), dtype="float16")
    expected = augment(photographs, range(16))
    torch.cuda.synchronize()
    stream, spun = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(cycles * SPIN_S))
        spun.record()
        begin = time.perf_counter()
        found = augment(photographs, range(16))
        seconds = time.perf_counter() - begin
        was_spinning = not spun.query()
        doubled = found.float() * 2
    stream.synchronize()
    findings.keep("call on a busy stream, host milliseconds", round(seconds * 1e3, 3))
    findings.check("a call on a busy side stream does not wait", was_spinning)
    findings.check("images on a side stream are right", torch.equal(found, expected))
    findings.check("work after them on that stream finds them ready", torch.equal(doubled, expected.float() * 2))


def _several_streams(run: Run, findings: Findings) -> None:
    """One transform on four streams in turn, the photographs let go of at once."""
    augment = Augment(recipes.deep_image(), dtype="float16")
    kept = [_photographs(8) for _ in range(4)]
    expected = [augment(photographs, range(8), epoch) for epoch in range(3) for photographs in kept]
    torch.cuda.synchronize()
    streams, found = [torch.cuda.Stream() for _ in range(4)], []
    for epoch in range(3):
        for stream, photographs in zip(streams, kept, strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                found.append(augment([image.clone() for image in photographs], range(8), epoch))
    torch.cuda.synchronize()
    findings.check("four streams in turn", all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)))


def _no_waiting(run: Run, findings: Findings, name: str, options: dict[str, Any], cycles: float) -> None:
    loader = make_loader(run, run.many(640), 32, num_threads=4, **options)
    for _ in range(2):
        for _ in loader:
            pass
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        num = sum(1 for _ in loader)
        findings.check(f"{name}: torch sees no waiting in an epoch", num == 20)
    except RuntimeError as error:
        findings.check(f"{name}: torch sees no waiting in an epoch", False, str(error)[:300])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for where, context in (("default stream", nullcontext()), ("side stream", torch.cuda.stream(torch.cuda.Stream()))):
        with context:
            batches = iter(loader)
            for _ in islice(batches, 4):
                pass
            torch.cuda.synchronize()
            time.sleep(0.3)  # the batches ahead are decoded meanwhile
            spun = torch.cuda.Event()
            torch.cuda._sleep(int(cycles * SPIN_S))
            spun.record()
            seconds, was_spinning = [], True
            for _ in range(AHEAD):
                begin = time.perf_counter()
                next(batches)
                seconds.append(time.perf_counter() - begin)
                was_spinning &= not spun.query()
            torch.cuda.synchronize()
            batches.close()  # type: ignore[attr-defined]
        findings.keep(f"{name}, {where}: next() while it is busy, ms", spread([value * 1e3 for value in seconds]))
        findings.check(f"{name}, {where}: next() returns while the stream is busy", was_spinning)
