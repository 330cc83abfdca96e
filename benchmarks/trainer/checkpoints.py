"""Saving and loading a checkpoint of 212.7 million parameters with SGD's momentum, beside an older checkout's.

    git worktree add ../before COMMIT
    python -m benchmarks.trainer.checkpoints [disk] [memory] --before ../before [--disk FOLDER] [--rounds 5]

The network is deep-image-16; its state has 1.70 GB. Each save and each load is a process of its own, with the checkout
first on its path, and the checkouts take turns. A save counts from the call until the checkpoint is whole, and a load
until all tensors are there, both with one rank; before a load from the disk, the file system's cache forgets the files.
"extra bytes" are the process's peak while it saves or loads, less what it had before; Linux only. "disk" is the folder
for temporary files, or --disk; "memory" is /dev/shm.
"""

import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NETWORK, QUICK_NETWORK = "deep-image-16", "small-cnn"
TASKS = ("save", "load")
FIGURES = ("seconds", "CPU seconds", "extra bytes", "peak bytes")
GOALS = {"seconds": 1.1, "extra bytes": 1.0}


def measure(task: str, folder: Path, network: str) -> dict[str, float]:
    """What one save or load takes, by the augpipe that is on the path."""
    import torch
    import torch.distributed as dist

    from augpipe.trainer.checkpoint import Checkpoint, Saver, agree_on_newest

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{task}", rank=0, world_size=1)
    group, checkpoints = dist.group.WORLD, folder / "checkpoints"
    common = state_of(network) if task == "save" else {}
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before, start, cpu_start = memory("VmRSS"), time.perf_counter(), time.process_time()
    if task == "save":
        saver = Saver(checkpoints, group, keep=3, asynchronous=True, about={"model": network})
        saver.save(1, common, {"rng": torch.get_rng_state()})
        saver.wait()
        assert saver.last_step == 1
    else:
        path = agree_on_newest(checkpoints, group)
        takes_group = len(inspect.signature(Checkpoint).parameters) > 1  # before version 2
        common = (Checkpoint(path, group) if takes_group else Checkpoint(path)).common()
    seconds, cpu_seconds, peak = time.perf_counter() - start, time.process_time() - cpu_start, memory("VmHWM")
    held = [*common["model"].values(), *(one["momentum_buffer"] for one in common["optimizer"]["state"].values())]
    return {
        "seconds": seconds,
        "CPU seconds": cpu_seconds,
        "extra bytes": peak - before,
        "peak bytes": peak,
        "state bytes": sum(tensor.nbytes for tensor in held),
    }


def state_of(network: str) -> dict[str, Any]:
    """Random weights of a network, and a momentum for each."""
    import torch

    from augpipe.trainer.models import build

    with torch.device("meta"):
        model = build(network, num_classes=1000)
    weights = {name: torch.rand(weight.shape) for name, weight in model.named_parameters()}
    momentum = {name: {"momentum_buffer": weight * 0.5} for name, weight in weights.items()}
    groups = [{"lr": 0.1, "momentum": 0.9, "params": list(weights)}]
    return {"model": weights, "optimizer": {"state": momentum, "groups": groups}}


def memory(key: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def forget(folder: Path) -> None:
    """Have the file system's cache drop the files below a folder."""
    os.sync()
    for path in folder.rglob("*.*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def turn(checkout: Path, place: Path, network: str) -> dict[str, dict[str, float]]:
    """A save and a load by a checkout, each in a process of its own."""
    code = f"import runpy; runpy.run_path({__file__!r}, run_name='measured')"
    environment = os.environ | {"PYTHONPATH": str(checkout)}  # its augpipe, and no package of this checkout
    found = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for task in TASKS:
            forget(Path(folder))
            command = [sys.executable, "-c", code, task, folder, network]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder, check=True)
            found[task] = json.loads(ended.stdout.splitlines()[-1])
    return found


def compared(turns: list[dict[str, dict[str, dict[str, float]]]], task: str) -> dict[str, Any]:
    """Ratios of both checkouts' figures, turn by turn, and the medians of the older one's."""
    ratios = {key: [one["after"][task][key] / one["before"][task][key] for one in turns] for key in FIGURES}
    return {
        "after over before": {
            key: {"median": round(statistics.median(of), 3), "all": [round(value, 3) for value in of]}
            | ({"goal": GOALS[key]} if key in GOALS else {})
            for key, of in ratios.items()
        },
        **{
            name: {key: round(statistics.median(one[name][task][key] for one in turns), 3) for key in FIGURES}
            for name in ("before", "after")
        },
    }


def main() -> None:
    from benchmarks.harness import ROOT, Bench
    from benchmarks.pipeline.compare import commit_of

    bench = Bench(__doc__, names=("disk", "memory"), before=Path, disk=Path)
    if bench.options.before is None:
        raise SystemExit("Give an older checkout: --before.")
    checkouts = {"before": bench.options.before.resolve(), "after": ROOT}
    places = {"disk": bench.options.disk or Path(tempfile.gettempdir()), "memory": Path("/dev/shm")}
    network = bench.pick(NETWORK, QUICK_NETWORK)
    found, num_bytes = {}, 0.0
    for name in bench.names:
        turns = []
        for number in range(bench.rounds + 1):
            order = list(checkouts.items())[:: 1 if number % 2 else -1]
            turns.append({side: turn(checkout, places[name], network) for side, checkout in order})
        num_bytes = turns[0]["after"]["load"]["state bytes"]
        assert all(one[task]["state bytes"] == num_bytes for of in turns for one in of.values() for task in TASKS)
        found[name] = {task: compared(turns[1:], task) for task in TASKS}  # the first is not counted
    bench.keep(
        "checkpoints",
        {
            "what": f"{num_bytes / 8e6:,.1f} million parameters of {network} with momentum, {bench.rounds} turns",
            "commits": {side: commit_of(checkout) for side, checkout in checkouts.items()},
            **found,
        },
    )


if __name__ == "measured":  # by a checkout, which need not have this script
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), sys.argv[3])), flush=True)

if __name__ == "__main__":
    main()
