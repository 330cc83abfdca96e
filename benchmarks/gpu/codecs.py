"""Section of `check`: gradients of ResNet-50's size encoded, decoded and added, and the CPU's payloads of them.

Kernels are timed by CUDA events, through the calls that an exchange makes: none of them reads from the device. What the
host spends in such a call, with all its checks in Python, is a figure of its own.
"""

import statistics
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from augpipe.trainer.codecs import Codec, codec, names
from benchmarks.gpu.common import Findings, Run, event_seconds, synchronize

NUM, SLICE = 25_600_000, 131_072
CASES = [*((name, 256) for name in names()), ("dynamic-tree", 4096), ("one-bit", 4096)]
"""Every codec, and two whose blocks are more than a warp's."""
GOAL = "goal: at least 600 GB/s of float32"


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """Equality first; fp32 and bf16 have no blocks."""
    found: dict[str, Callable[[Findings], Any]] = {}
    for name, block in CASES:
        made = codec(name, block=block)
        words = name if made.block is None else f"{name}, blocks of {block}"
        for what, work in (("equality", _equality), ("speed", _speed)):
            found[f"{words}: {what}"] = partial(work, run, words, made)
    return found


@cache
def _gradients(run: Run, num: int) -> torch.Tensor:
    """Student's t with three degrees of freedom, as heavy in the tails as gradients are; on the device."""
    drawn = np.random.default_rng(0).standard_t(3, min(num, 1 << 20)).astype(np.float32)
    return torch.from_numpy(np.resize(drawn, num)).to(run.device)


def _equality(run: Run, words: str, made: Codec, findings: Findings) -> None:
    num = run.pick(1_000_003, 1_003)
    x = _gradients(run, num).clone()
    x[num // 3], x[num // 2 : num // 2 + 300] = float("nan"), 0.0
    payload, wanted = made.encode(x), made.encode(x.cpu())
    apart = int((payload.cpu() != wanted).sum())
    if made.name == "one-bit":  # the means are sums, in another order than the CPU's
        found, expected = made.decode(payload).cpu(), made.decode(wanted)
        alike = torch.allclose(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
        findings.check(f"{words}: decodes to the CPU's numbers but for the means' last bits", alike, apart)
    else:
        findings.check(f"{words}: the CPU's payload bit by bit", apart == 0, f"{apart} of {len(wanted)} bytes differ")
    found, expected = torch.ones(num, device=x.device), torch.ones(num)
    made.decode_into(wanted.to(x.device), found, add=True)
    made.decode_into(wanted, expected, add=True)
    alike = torch.equal(found.cpu().view(torch.int32), expected.view(torch.int32))
    alike |= torch.allclose(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)  # NaN has many bit patterns
    findings.check(f"{words}: adds up as on the CPU bit by bit", alike)


def _speed(run: Run, words: str, made: Codec, findings: Findings) -> dict[str, Any]:
    """Of all numbers in one piece, and of a bucket's slices, each way by one call."""
    x = _gradients(run, run.pick(NUM, 2_000))
    out, xs = torch.zeros_like(x), x.split(run.pick(SLICE, 500))
    payload, payloads, outs = made.encode(x), [made.encode(part) for part in xs], out.split(run.pick(SLICE, 500))
    ways: dict[str, Callable[[int], object]] = {
        "encode": lambda _: made.encode_slices([x], [payload]),
        "decode": lambda _: made.decode_slices([payload], [out]),
        "decode and add": lambda _: made.add_slices([payload], out),
        f"encode {len(xs)} slices": lambda _: made.encode_slices(xs, payloads),
        f"decode {len(xs)} slices": lambda _: made.decode_slices(payloads, outs),
        "decode 7 payloads and add": lambda _: made.add_slices([payloads[0]] * 7, outs[0]),
    }
    found: dict[str, Any] = {}
    for name, work in ways.items():
        num_bytes = 7 * xs[0].nbytes if name.startswith("decode 7") else x.nbytes
        seconds = statistics.median(event_seconds(work, run.pick(20, 1), rounds=2))
        found[name] = {
            "gb_per_second": round(num_bytes / seconds / 1e9, 1),
            "microseconds": round(seconds * 1e6, 1),
            "host_microseconds": round(_host_seconds(work, run.pick(10, 1)) * 1e6, 1),
        }
    findings.keep(f"{words}: {x.numel()} numbers ({GOAL})", found)
    return {"covers": {"codec": [made.name]}}


def _host_seconds(work: Callable[[int], object], times: int) -> float:
    """What a call takes until it returns, with nothing queued before it."""
    seconds = []
    for turn in range(times):
        synchronize()
        begin = time.perf_counter()
        work(turn)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
