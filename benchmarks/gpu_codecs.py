"""Section of `gpu_check`: gradients of ResNet-50's size encoded, decoded and added, beside the CPU's payloads."""

import statistics
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from gpu_common import Findings, Run, event_seconds, synchronize

from augpipe.trainer.codecs import Codec, codec

NUM = 25_600_000
SLICE = 131_072
CASES = [
    ("dynamic-tree", 256),
    ("dynamic-tree", 4096),
    ("nf4", 256),
    ("bf16", 256),
    ("one-bit", 256),
    ("one-bit", 4096),
]
GOAL = "goal: at least 600 GB/s of float32"


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """Equality first, then all at once, then slice by slice; bf16 has no blocks."""
    found: dict[str, Callable[[Findings], None]] = {}
    for name, block in CASES:
        words, made = name if name == "bf16" else f"{name}, blocks of {block}", codec(name, block=block)
        for what, work in (("equality", _equality), ("speed", _speed), ("slices", _slices)):
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


def _speed(run: Run, words: str, made: Codec, findings: Findings) -> None:
    x = _gradients(run, run.pick(NUM, 2_000))
    payload, out = made.encode(x), torch.zeros_like(x)
    ways: dict[str, Callable[[int], object]] = {
        "encode": lambda _: made.encode_into(x, payload),
        "decode": lambda _: made.decode_into(payload, out),
        "decode and add": lambda _: made.decode_into(payload, out, add=True),
    }
    found = {}
    for name, work in ways.items():
        seconds = statistics.median(event_seconds(work, run.pick(20, 1)))
        found[name] = {"gb_per_second": round(x.nbytes / seconds / 1e9, 1), "microseconds": round(seconds * 1e6, 1)}
    findings.keep(f"{words}: {x.numel()} numbers ({GOAL})", found)


def _slices(run: Run, words: str, made: Codec, findings: Findings) -> None:
    """A bucket's slices, one call each and one call for all; the host's time too."""
    x = _gradients(run, run.pick(NUM, 2_000))
    xs = x.split(run.pick(SLICE, 500))
    payloads = [made.encode(part) for part in xs]
    outs = [torch.zeros_like(part) for part in xs]
    ways: dict[str, Callable[[], object]] = {
        "encode, one by one": lambda: [made.encode_into(*pair) for pair in zip(xs, payloads, strict=True)],
        "decode, one by one": lambda: [made.decode_into(*pair) for pair in zip(payloads, outs, strict=True)],
        "encode, all at once": lambda: made.encode_slices(xs, payloads),
        "decode, all at once": lambda: made.decode_slices(payloads, outs),
    }
    found = {}
    for name, work in ways.items():
        hosts, walls = [], []
        for _ in range(run.pick(6, 2)):
            synchronize()
            begin = time.perf_counter()
            work()
            hosts.append(time.perf_counter() - begin)
            synchronize()
            walls.append(time.perf_counter() - begin)
        host, wall = statistics.median(hosts[1:]), statistics.median(walls[1:])
        found[name] = {
            "host_microseconds_a_slice": round(host / len(xs) * 1e6, 2),
            "gb_per_second": round(x.nbytes / wall / 1e9, 1),
        }
    findings.keep(f"{words}: {len(xs)} slices of {len(xs[0])}", found)
