"""Two checkouts of augpipe in turn, as "before" and "after" of a change: what users wait for, by what both can do.

    git worktree add ../before COMMIT
    python -m benchmarks.pipeline.compare --before ../before --after . [--rounds 5] [--exchange | --loaders]

Each turn is a process of its own with the checkout first on its path; within it each task runs a few times and the
fastest counts, in CPU time, which neighbours on the machine disturb less. Kernels are compiled before the first turn.
With --exchange it is steps of two ranks over Gloo instead, by the clock: the median of each turn. With --loaders it is
the loaders only, each with one thread.
"""

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

NUM_ARRAYS, SIZE, REPEATS = 64, 224, 4
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
    found = measure_loaders(folder, num_threads=2)
    num_files = len(os.listdir(folder / "files/photos"))

    def prepare_s() -> float:
        """Its processes are not this one's: the clock on the wall."""
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as out:
            prepare(folder, Path(out, "set"))
        return (time.perf_counter() - start) / num_files * 1e6

    found["prepare to 512 px, by the clock"] = min(prepare_s() for _ in range(2))
    return found | measure_codecs()


def prepare(folder: Path, shards: Path) -> None:
    """Write shards of the photographs, as the command does it."""
    command = [sys.executable, "-m", "augpipe", "prepare", str(folder / "files/photos"), str(shards), "--scales", "512"]
    subprocess.run(command, check=True, capture_output=True)


def measure_loaders(folder: Path, num_threads: int) -> dict[str, float]:
    """Microseconds of CPU time an image."""
    from augpipe import Loader, Recipe, recipes
    from augpipe.ops import Flip, MultiResolutionCrop, Normalize, RandomResizedCrop, Rotate

    paper = recipes.deep_image(SIZE)
    crops = Recipe(ops=(RandomResizedCrop(size=SIZE), Flip(), Normalize()))
    of_512 = Recipe(ops=(Rotate(max_deg=10), MultiResolutionCrop(size=SIZE, scales=(512,)), Normalize()))
    arrays, files, shards = (
        list(np.load(folder / "files/arrays.npz").values()),
        str(folder / "files/photos"),
        folder / "set",
    )

    def epochs(source: Any, recipe: Recipe, batch_size: int, **options: Any) -> Callable[[], int]:
        loader = Loader(source, recipe, batch_size=batch_size, num_threads=num_threads, framework="numpy", **options)
        return lambda: sum(map(len, loader))

    prepare(folder, shards)
    found = {
        "kernel, crops of arrays": fastest(epochs(arrays, crops, 32)),
        "kernel, deep_image of arrays": fastest(epochs(arrays, paper, 32)),
        "224 of 512 from shards": fastest(epochs(str(shards), of_512, 64)),
        "cache, deep_image": fastest(epochs(files, paper, 64, cache="host", cache_bytes=2**30)),
    }
    for batch_size in (32, 64, 256):
        found[f"files, deep_image, batches of {batch_size}"] = fastest(epochs(files, paper, batch_size))
        found[f"files, crops, batches of {batch_size}"] = fastest(epochs(files, crops, batch_size))
    return found


def measure_codecs() -> dict[str, float]:
    """Microseconds of CPU time a million values."""
    from augpipe.trainer import codec

    found = {}
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


def turn(checkout: Path, files: Path, kind: str) -> dict[str, float]:
    """What a process of its own, or two, find of a checkout."""
    code = f"import runpy; runpy.run_path({__file__!r}, run_name='measured')"
    environment = os.environ | {"PYTHONPATH": str(checkout)}  # its augpipe, and no package of this checkout
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(files, f"{folder}/files")
        ranks = [str(rank) for rank in range(2 if kind == "exchange" else 1)]
        commands = [[sys.executable, "-c", code, folder, rank, kind] for rank in ranks]
        running = [
            subprocess.Popen(one, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder) for one in commands
        ]
        texts = [one.communicate()[0] for one in running]
    found: dict[str, float] = json.loads(texts[0].splitlines()[-1])
    return found


def least(turns: list[dict[str, dict[str, float]]], side: str, task: str) -> float:
    """The least that a checkout took for a task in any turn."""
    return min(one[side][task] for one in turns)


def commit_of(checkout: Path) -> str:
    """The commit that is checked out."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    from benchmarks.harness import Bench, imagenet_sized

    bench = Bench(__doc__, before=Path, after=Path, exchange=False, loaders=False)
    chosen = bench.options
    if chosen.before is None or chosen.after is None:
        raise SystemExit("Give two checkouts: --before and --after.")
    checkouts = {"before": chosen.before.resolve(), "after": chosen.after.resolve()}
    kind = "exchange" if chosen.exchange else "loaders" if chosen.loaders else "all"
    encoded, origin = bench.photographs()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "photos")
        folder.mkdir()
        for number, data in enumerate(encoded):
            (folder / f"{number:04}.jpg").write_bytes(data)
        np.savez(f"{temporary}/arrays.npz", *(one[..., :3] for one in imagenet_sized(encoded, NUM_ARRAYS)))
        turns = [
            {name: turn(checkouts[name], Path(temporary), kind) for name in list(checkouts)[:: 1 if number % 2 else -1]}
            for number in range(bench.rounds + 1)
        ][1:]  # kernels were compiled in the first
    ratios = {task: [round(one["after"][task] / one["before"][task], 3) for one in turns] for task in turns[0]["after"]}
    what = f"microseconds of CPU time an image or a million values, {origin}, {bench.rounds} turns"
    bench.keep(
        "compare" if kind == "all" else f"compare-{kind}",
        {
            "what": f"microseconds of a step, {bench.rounds} turns" if chosen.exchange else what,
            "commits": {name: commit_of(path) for name, path in checkouts.items()},
            "after over before": {
                task: {
                    "median": round(statistics.median(values), 3),
                    "of the least": round(least(turns, "after", task) / least(turns, "before", task), 3),
                    "all": values,
                }
                for task, values in ratios.items()
            },
            "before": {task: round(statistics.median(one["before"][task] for one in turns), 1) for task in ratios},
        },
    )


if __name__ == "measured":  # by a checkout, which need not have this script
    place, number = Path(sys.argv[1]), int(sys.argv[2])
    measured = {
        "all": lambda: measure(place),
        "loaders": lambda: measure_loaders(place, num_threads=1),
        "exchange": lambda: measure_steps(place / "meet", number),
    }
    print(json.dumps(measured[sys.argv[3]]()), flush=True)
    os._exit(0)  # a rank whose twin is gone would wait for it

if __name__ == "__main__":
    main()
