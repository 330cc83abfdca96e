"""Two checkouts of augpipe in turn, as "before" and "after" of a change: what users wait for, by what both can do.

    git worktree add ../before COMMIT
    python benchmarks/compare.py ../before . [--rounds 5] [--exchange] [--no-save]

Each turn is a process of its own with the checkout first on its path; within it each task runs a few times and the
fastest counts, in CPU time, which neighbours on the machine disturb less. Kernels are compiled before the first turn.
With --exchange it is steps of two ranks over Gloo instead, by the clock: the median of each turn.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import imagenet_sized, photographs, save

NUM_FILES, NUM_ARRAYS, SIZE, REPEATS = 250, 64, 224, 4
NUM_VALUES = 1 << 22


def fastest(work: Callable[[], int]) -> float:
    """CPU time an item, in microseconds, after one run that is not counted."""
    work()
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        num = work()
        taken.append((time.process_time() - start) / num)
    return min(taken) * 1e6


def measure(folder: Path) -> dict[str, float]:
    """Microseconds of CPU time an image, or a million values, by the augpipe that is on the path."""
    from augpipe import Loader, Recipe, recipes
    from augpipe.ops import Flip, MultiResolutionCrop, Normalize, RandomResizedCrop, Rotate
    from augpipe.trainer import codec

    paper = recipes.deep_image(SIZE)
    crops = Recipe(ops=(RandomResizedCrop(size=SIZE), Flip(), Normalize()))
    of_512 = Recipe(ops=(Rotate(max_deg=10), MultiResolutionCrop(size=SIZE, scales=(512,)), Normalize()))
    arrays = [array[..., :3].copy() for array in imagenet_sized(photographs()[0], NUM_ARRAYS)]

    def epochs(source: Any, recipe: Recipe, batch_size: int, **options: Any) -> Callable[[], int]:
        loader = Loader(source, recipe, batch_size=batch_size, num_threads=2, framework="numpy", **options)
        return lambda: sum(map(len, loader))

    def prepare() -> int:
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "augpipe", "prepare", folder / "files", f"{out}/set", "--scales", "512"]
            subprocess.run(command, check=True, capture_output=True)
        return NUM_FILES

    def prepare_s() -> float:
        """Its processes are not this one's: the clock on the wall."""
        start = time.perf_counter()
        prepare()
        return (time.perf_counter() - start) / NUM_FILES * 1e6

    files, shards = str(folder / "files"), str(folder / "set")
    command = [sys.executable, "-m", "augpipe", "prepare", files, shards, "--scales", "512"]
    subprocess.run(command, check=True, capture_output=True)
    found = {
        "kernel, crops of arrays": fastest(epochs(arrays, crops, 32)),
        "kernel, deep_image of arrays": fastest(epochs(arrays, paper, 32)),
        "224 of 512 from shards": fastest(epochs(shards, of_512, 64)),
        "cache, deep_image": fastest(epochs(files, paper, 64, cache="host", cache_bytes=2**30)),
        "prepare to 512 px, by the clock": min(prepare_s() for _ in range(2)),
    }
    for batch_size in (32, 64, 256):
        found[f"files, deep_image, batches of {batch_size}"] = fastest(epochs(files, paper, batch_size))
        found[f"files, crops, batches of {batch_size}"] = fastest(epochs(files, crops, batch_size))
    values = np.random.default_rng(0).standard_t(3, NUM_VALUES).astype(np.float32)
    for name in ("dynamic-tree", "linear"):
        made, out = codec(name), np.empty_like(values)
        payload = made.encode(values)

        def encode(made: Any = made, payload: Any = payload) -> int:
            made.encode_into(values, payload)
            return NUM_VALUES // 1_000_000

        def decode(made: Any = made, payload: Any = payload, out: Any = out) -> int:
            made.decode_into(payload, out)
            return NUM_VALUES // 1_000_000

        found |= {f"{name}, encode": fastest(encode), f"{name}, decode": fastest(decode)}
    return found


def measure_steps(meet: Path, rank: int) -> dict[str, float]:
    """Microseconds of a step of one of two ranks, each with a thread: 5.9 million weights in buckets of 4 MiB."""
    import torch
    import torch.distributed as dist

    from augpipe.trainer import strategy

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    found = {}
    for name, codec in itertools.product(("ddp", "butterfly", "lazy"), ("fp32", "dynamic-tree")):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(700, 700) for _ in range(12)])
        images, taken = torch.randn(16, 700), []
        synced = strategy(name, model, partial(torch.optim.SGD, lr=0.01), codec=codec, bucket_bytes=4 << 20)
        for _ in range(34):
            dist.barrier()
            start = time.perf_counter()
            synced.module(images).square().mean().backward()
            synced.step()
            synced.flush()
            taken.append(time.perf_counter() - start)
        synced.close()
        found[f"a step of two ranks, {name}, {codec}"] = statistics.median(taken[4:]) * 1e6
    return found


def turn(checkout: Path, files: Path, exchanges: bool) -> dict[str, float]:
    """What a process of its own, or two, find of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    with tempfile.TemporaryDirectory() as folder:
        if exchanges:
            commands = [[sys.executable, __file__, "--measure", f"{folder}/meet", "--rank", str(i)] for i in (0, 1)]
            ranks = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True, env=environment) for one in commands]
            texts = [rank.communicate()[0] for rank in ranks]
            of_first: dict[str, float] = json.loads(texts[0].splitlines()[-1])
            return of_first
        os.symlink(files, f"{folder}/files")
        command = [sys.executable, __file__, "--measure", folder]
        ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--exchange", action="store_true", help="steps of two ranks over Gloo")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        found = measure(options.measure) if options.rank is None else measure_steps(options.measure, options.rank)
        print(json.dumps(found), flush=True)
        os._exit(0)  # a rank whose twin is gone would wait for it
    if options.after is None:
        parser.error("give two checkouts")
    checkouts = {"before": options.before.resolve(), "after": options.after.resolve()}
    encoded, origin = photographs()
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(encoded[:NUM_FILES]):
            Path(folder, f"{number:04}.jpg").write_bytes(data)
        turns = [
            {name: turn(path, Path(folder), options.exchange) for name, path in checkouts.items()}
            for _ in range(options.rounds + 1)
        ]
    turns = turns[1:]  # kernels were compiled in the first
    tasks = list(turns[0]["before"])
    result: dict[str, object] = {
        "what": f"microseconds of a step, {options.rounds} turns"
        if options.exchange
        else f"microseconds of CPU time an image or a million values, {origin}, {options.rounds} turns",
        "commits": {name: commit_of(path) for name, path in checkouts.items()},
        "after over before": {
            task: {
                "median": round(statistics.median(one["after"][task] / one["before"][task] for one in turns), 3),
                "all": [round(one["after"][task] / one["before"][task], 3) for one in turns],
            }
            for task in tasks
        },
        "before": {task: round(statistics.median(one["before"][task] for one in turns), 1) for task in tasks},
    }
    if options.no_save:
        print(json.dumps(result, indent=2))
    else:
        save("compare-exchange" if options.exchange else "compare", result)


def commit_of(checkout: Path) -> str:
    """The commit that is checked out."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
