"""Codecs on one core: GB/s of float32 encoded, decoded and added, beside a copy and bitsandbytes on the CPU.

    python -m benchmarks.trainer.codec_speed [--num 25000000] [--rounds 15]

Contenders take turns, on one core. "wall" is what the clock says; "cpu" is the process's own time, which neighbours on
the machine disturb less. bitsandbytes is measured where it is installed; its calls allocate what they return.
"""

import importlib.util
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from augpipe.trainer.codecs import codec, names
from benchmarks.harness import Bench

BLOCK = 256
GOALS = {"dynamic-tree encode": 2.0, "dynamic-tree decode": 4.0, "nf4 encode": 3.0, "nf4 decode": 6.0}
Contenders = dict[str, Callable[[], object]]


def ours(name: str, x: np.ndarray, block: int | None = BLOCK) -> Contenders:
    """A codec's three ways, with a scale a block or one for all."""
    made = codec(name, block=block)
    payload, out = made.encode(x), np.zeros_like(x)
    label = name if block == BLOCK or made.block is None else f"{name}, one scale"
    return {
        f"{label} encode": lambda: made.encode_into(x, payload),
        f"{label} decode": lambda: made.decode_into(payload, out),
        f"{label} decode and add": lambda: made.decode_into(payload, out, add=True),
    }


def bitsandbytes(x: np.ndarray) -> tuple[Contenders, dict[str, object]]:
    """Its dynamic map; and how many of its codes are ours."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return {}, {"bitsandbytes": "not installed"}
    import bitsandbytes
    import torch
    from bitsandbytes import functional

    torch.set_num_threads(1)
    tensor, made, peer = torch.from_numpy(x), codec("dynamic-map", block=BLOCK), torch.ops.bitsandbytes
    code = functional.create_dynamic_map()
    quantized, absmax = peer.quantize_blockwise(tensor, code, BLOCK)
    mine = made.encode(x)[4 * len(absmax) :]
    theirs = peer.dequantize_blockwise(quantized, absmax, code, BLOCK, torch.float32).numpy()
    errors = [float(np.square(found - x).mean()) for found in (theirs, made.decode(made.encode(x)))]
    return {
        "bitsandbytes encode": lambda: peer.quantize_blockwise(tensor, code, BLOCK),
        "bitsandbytes decode": lambda: peer.dequantize_blockwise(quantized, absmax, code, BLOCK, torch.float32),
    }, {
        "bitsandbytes": bitsandbytes.__version__,
        "codes that differ from dynamic-map's": int((quantized.numpy() != mine).sum()),
        "its mean squared error over dynamic-map's": round(errors[0] / errors[1], 4),
    }


def main() -> None:
    bench = Bench(__doc__, rounds=15, num=25_000_000)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    num = bench.pick(bench.options.num, 100_000)
    # Student's t with three degrees of freedom, as heavy in the tails as gradients are
    x = np.random.default_rng(0).standard_t(3, num).astype(np.float32)
    copied = np.empty_like(x)
    contenders: Contenders = {"copy (numpy)": lambda: np.copyto(copied, x)}
    for name in names():
        contenders |= ours(name, x)
    peers, notes = bitsandbytes(x)
    contenders |= ours("dynamic-tree", x, block=None) | peers
    cpu: dict[str, list[float]] = {name: [] for name in contenders}

    def counted(name: str, work: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            start = time.process_time()
            work()
            cpu[name].append(time.process_time() - start)
            return 1

        return run

    wall, gigabytes = bench.in_turn({name: counted(name, work) for name, work in contenders.items()}), x.nbytes / 1e9
    table = {
        name: {
            "cpu, median": round(gigabytes / statistics.median(cpu[name][1:]), 2),  # the first is not counted
            "cpu, best": round(gigabytes / min(cpu[name][1:]), 2),
            "wall, median": round(gigabytes / statistics.median(wall[name]), 2),
        }
        for name in contenders
    }
    for name, row in table.items():
        print(f"{name:40s} {row}")
    what = f"{num} numbers (Student's t, 3 degrees), blocks of {BLOCK}, {bench.rounds} rounds"
    goals = {f"{what} (goal: at least {goal} GB/s)": table[what]["wall, median"] for what, goal in GOALS.items()}
    result = {"what": f"GB/s of float32 on one core, {what}", "gigabytes_per_s": table, "goals": goals, "notes": notes}
    bench.keep("codec_speed", result)


if __name__ == "__main__":
    main()
