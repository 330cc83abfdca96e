"""Codecs on one core: GB/s of float32 encoded, decoded and added, beside a copy and bitsandbytes on the CPU.

    python benchmarks/codec_speed.py [--num 25000000] [--rounds 15] [--no-save]

Contenders take turns, on one core. "wall" is what the clock says; "cpu" is the process's own time, which neighbours on
the machine disturb less. bitsandbytes is measured where it is installed; its calls allocate what they return.
"""

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from common import save

from augpipe.trainer.codecs import codec, names

BLOCK = 256
GOALS = {"dynamic-tree encode": 2.0, "dynamic-tree decode": 4.0, "nf4 encode": 3.0, "nf4 decode": 6.0}


def gradients(num: int) -> np.ndarray:
    """Student's t with three degrees of freedom, as heavy in the tails as gradients are."""
    return np.random.default_rng(0).standard_t(3, num).astype(np.float32)


def ours(name: str, x: np.ndarray, block: int | None = BLOCK) -> dict[str, Callable[[], object]]:
    made = codec(name, block=block)
    payload, out = made.encode(x), np.zeros_like(x)
    label = name if block == BLOCK or made.block is None else f"{name}, one scale"
    return {
        f"{label} encode": lambda: made.encode_into(x, payload),
        f"{label} decode": lambda: made.decode_into(payload, out),
        f"{label} decode and add": lambda: made.decode_into(payload, out, add=True),
    }


def bitsandbytes(x: np.ndarray) -> tuple[dict[str, Callable[[], object]], dict[str, object]]:
    """Its dynamic map; and how many of its codes are ours."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return {}, {"bitsandbytes": "not installed"}
    import bitsandbytes
    import torch
    from bitsandbytes import functional

    torch.set_num_threads(1)
    tensor, made = torch.from_numpy(x), codec("dynamic-map", block=BLOCK)
    code = functional.create_dynamic_map()
    quantized, absmax = torch.ops.bitsandbytes.quantize_blockwise(tensor, code, BLOCK)
    mine = made.encode(x)[4 * len(absmax) :]
    theirs = torch.ops.bitsandbytes.dequantize_blockwise(quantized, absmax, code, BLOCK, torch.float32).numpy()
    return {
        "bitsandbytes encode": lambda: torch.ops.bitsandbytes.quantize_blockwise(tensor, code, BLOCK),
        "bitsandbytes decode": lambda: torch.ops.bitsandbytes.dequantize_blockwise(
            quantized, absmax, code, BLOCK, torch.float32
        ),
    }, {
        "bitsandbytes": bitsandbytes.__version__,
        "codes that differ from dynamic-map's": int((quantized.numpy() != mine).sum()),
        "its mean squared error over dynamic-map's": round(
            float(np.square(theirs - x).mean() / np.square(made.decode(made.encode(x)) - x).mean()), 4
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=25_000_000, help="numbers; 25 million in the goals")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-save", action="store_true", help="print and keep nothing: for a trial")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    x = gradients(arguments.num)
    copied = np.empty_like(x)
    contenders: dict[str, Callable[[], object]] = {"copy (numpy)": lambda: np.copyto(copied, x)}
    for name in names():
        contenders |= ours(name, x)
    contenders |= ours("dynamic-tree", x, block=None)
    peers, notes = bitsandbytes(x)
    contenders |= peers

    wall: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(arguments.rounds + 1):  # the first compiles, and is not counted
        for name, work in contenders.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            work()
            if turn:
                wall[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - start_cpu)

    gigabytes = x.nbytes / 1e9
    table = {
        name: {
            "cpu, median": round(gigabytes / statistics.median(cpu[name]), 2),
            "cpu, best": round(gigabytes / min(cpu[name]), 2),
            "wall, median": round(gigabytes / statistics.median(wall[name]), 2),
        }
        for name in contenders
    }
    result = {
        "what": f"GB/s of float32 on one core, {arguments.num} numbers (Student's t, 3 degrees), blocks of {BLOCK}, "
        f"{arguments.rounds} rounds",
        "gigabytes_per_s": table,
        "goals": {f"{what} (goal: at least {goal} GB/s)": table[what]["wall, median"] for what, goal in GOALS.items()},
        "notes": notes,
        "load_average": os.getloadavg()[0],
    }
    if not arguments.no_save:
        save("codec_speed", result)
        return
    for name, row in table.items():
        print(f"{name:40s} {row}")
    print(result["goals"], notes)


if __name__ == "__main__":
    main()
