"""Exchanges of gradients over throttled links: ranks in network namespaces of this machine, each behind `tc tbf`.

    sudo python -m benchmarks.trainer.throttled [--ranks 4] [--mbit 200 1000] [--num 25000000] [--rounds 5]

Needs root, and `ip` and `tc` of iproute2; without them it says so and does nothing. One exchange: from the start of a
backward pass that costs nothing to averaged gradients on all ranks, by torch's DistributedDataParallel (fp32, and with
torch's fp16 and PowerSGD hooks), by DDP with the butterfly hook, and by the strategy `butterfly`, both with 8 bits, and
with 4 and 1 and error feedback. Whole steps: butterfly and lazy with SGD and momentum, the network's computing played
by sleeping. Parameters have ResNet-50's shapes, scaled to --num. A contender takes about a GB of memory in all: choose
some with --only, parts of their names (a leading = asks for a whole name), or fewer gradients.
"""

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import ranks
from benchmarks.harness import Bench, ratio
from benchmarks.ranks import Contender

FEW_BITS = {"4 bits": "nf4", "1 bit": "one-bit"}
ONE_BUCKET_MIB = 4096
FP32, FP16, OURS = "DDP fp32", "DDP fp16 hook", "butterfly, 8 bits"
RATIOS = {
    "butterfly_over_ddp_fp32": (OURS, FP32),
    "butterfly_over_ddp_fp16": (OURS, FP16),
    "hook_over_ddp_fp16": ("DDP butterfly hook, 8 bits", FP16),
    "4_bits_over_8_bits": ("butterfly, 4 bits", OURS),
    **{
        f"lazy_over_butterfly{end}": (f"step of lazy, {kind}", f"step of butterfly, {kind}")
        for kind, end in {"8 bits": "", "4 bits": "_4_bits", "fp32": "_fp32"}.items()
    },
}
GOALS = {
    200.0: {"butterfly_over_ddp_fp32": 0.28, "butterfly_over_ddp_fp16": 0.56, "4_bits_over_8_bits": 0.62},
    1000.0: {"butterfly_over_ddp_fp32": 0.40, "butterfly_over_ddp_fp16": 0.75},
}
"""By Mbit/s, at most."""


def exchange(
    num: int, rounds: int, steps: int, compute_s: float, codec: str, mib: float, ddp_mib: float, only: list[str]
) -> dict[str, Any]:
    """One rank's contenders in turn: exchanges, then whole steps, for each has buffers as large as the gradients."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    from augpipe.trainer import butterfly_hook, strategy
    from benchmarks.trainer.played import TIMEOUT_S, Layers, Nothing, momentum, shapes

    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    gradients = [torch.randn(shape, generator=generator) * 1e-3 for shape in shapes(num)]
    start = torch.ones(1, requires_grad=True)

    def ddp(hook: Any = None, mib: float = ddp_mib, *, is_ours: bool = False, warm_up: int = 0) -> Contender:
        # ours as docs/sync.md says; torch's as it is by default
        model = DistributedDataParallel(Layers(gradients), bucket_cap_mb=mib, gradient_as_bucket_view=is_ours)
        if hook is not None:
            model.register_comm_hook(*hook)

        def once() -> None:
            model(start).sum().backward()
            model.zero_grad()

        for _ in range(warm_up):
            once()
        return Contender(once=once, close=getattr(hook and hook[0], "close", lambda: None))

    def power_sgd(matrix_rank: int) -> Contender:
        # torch sends the first gradients as they are, at least two; its default is a thousand
        state = PowerSGDState(None, matrix_approximation_rank=matrix_rank, start_powerSGD_iter=2)
        # in one bucket: of several, its second and third all-reduces meet those of other buckets on Gloo
        return ddp((state, powerSGD_hook), ONE_BUCKET_MIB, warm_up=3)

    def ours(name: str, codec: str, optimizer: Callable[..., Any] = Nothing) -> Contender:
        is_step = optimizer is momentum
        settings = {"bucket_bytes": int(mib * 2**20), "timeout_s": TIMEOUT_S, "codec": codec}
        model = Layers(gradients, compute_s if is_step else 0.0)
        sync = strategy(name, model, optimizer, error_feedback=codec in FEW_BITS.values(), **settings)

        def once() -> None:
            sync.module(start).sum().backward()
            sync.step()

        # what lazy has not waited for yet counts
        return Contender(once=once, finish=sync.flush, close=sync.close, repeats=steps if is_step else 1)

    def hook(codec: str) -> Contender:
        made = butterfly_hook(codec=codec, error_feedback=codec in FEW_BITS.values(), timeout_s=TIMEOUT_S)
        return ddp(made, mib, is_ours=True)

    bits = {"8 bits": codec} | FEW_BITS
    made: dict[str, Callable[[], Contender]] = {FP32: ddp, FP16: lambda: ddp((None, fp16_compress_hook))}
    made |= {f"DDP PowerSGD hook, rank {one}": partial(power_sgd, one) for one in (1, 2, 4)}
    made |= {f"DDP butterfly hook, {name}": partial(hook, one) for name, one in bits.items()}
    made |= {f"butterfly, {name}": partial(ours, "butterfly", one) for name, one in bits.items()}
    of_steps = {"8 bits": codec, "4 bits": FEW_BITS["4 bits"], "fp32": "fp32"}
    made |= {
        f"step of {way}, {name}": partial(ours, way, one, momentum)
        for name, one in of_steps.items()
        for way in ("butterfly", "lazy")
    }
    asked = [
        name for name in made if not only or any(name == one[1:] if one[0] == "=" else one in name for one in only)
    ]
    found: dict[str, Any] = {}
    for is_step in (False, True):
        chosen = [name for name in asked if name.startswith("step") == is_step]
        found |= ranks.in_turn({name: made[name]() for name in chosen}, rounds)
    kinds = {key: {name: row[key] for name, row in found.items()} for key in ("seconds", "cpu_s", "wire_bytes")}
    return {"num": sum(one.numel() for one in gradients)} | kinds


def break_even(medians: dict[float, dict[str, float]], theirs: str) -> str:
    """Mbit/s at which both take the same time: straight lines in 1 / bandwidth through the two slowest links."""
    rates = sorted(rate for rate in medians if rate)[:2]
    if len(rates) < 2 or not {OURS, theirs} <= medians[rates[0]].keys():
        return "needs two bandwidths"

    def line(name: str) -> tuple[float, float]:
        (x0, y0), (x1, y1) = ((1 / rate, medians[rate][name]) for rate in rates)
        slope = (y1 - y0) / (x1 - x0)
        return slope, y0 - slope * x0

    (our_slope, our_fixed), (their_slope, their_fixed) = line(OURS), line(theirs)
    if math.isclose(our_fixed, their_fixed) or our_fixed < their_fixed:
        return "none: faster at any bandwidth, by these two"
    return f"{(their_slope - our_slope) / (our_fixed - their_fixed):.0f} Mbit/s"


def main() -> None:
    bench = Bench(
        __doc__, ranks=4, mbit=(200.0, 1000.0), num=25_000_000, steps=3, compute_s=0.3, codec="dynamic-tree", mib=4.0,
        ddp_mib=25.0, only=("",), name="throttled",
    )  # fmt: skip
    chosen = bench.options
    settings = {name: getattr(chosen, name) for name in ("steps", "compute_s", "codec", "mib", "ddp_mib")}
    settings |= {
        "num": bench.pick(chosen.num, 200_000),
        "rounds": bench.rounds,
        "only": [one for one in chosen.only if one],
    }
    found, medians = {}, {}
    mbits = bench.pick(chosen.mbit, [1000.0])
    for link, mbit, results in ranks.on_links("benchmarks.trainer.throttled:exchange", chosen.ranks, settings, mbits):
        result = results[0]
        seconds = result["seconds"]
        medians[mbit] = {name: statistics.median(times) for name, times in seconds.items()}
        for name, median in medians[mbit].items():
            print(f"  {name:28} {median:7.3f} s  {result['wire_bytes'][name] / 1e6:7.1f} MB sent by rank 0")
        ratios = {name: ratio(seconds, *pair) for name, pair in RATIOS.items() if set(pair) <= set(seconds)}
        for name, value in ratios.items():
            print(f"  {name:28} {value:7.3f}; goal {GOALS.get(mbit, {}).get(name, '-')}")
        found[link] = result | ratios
    even = {theirs: break_even(medians, theirs) for theirs in (FP32, FP16)}
    print(f"\nbreak-even bandwidth: {even}")
    bench.keep(chosen.name, {"settings": {"ranks": chosen.ranks} | settings, "results": found, "break_even": even})


if __name__ == "__main__":
    main()
