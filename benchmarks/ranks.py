"""Ranks as processes of this machine, over Gloo: in network namespaces behind `tc tbf`, or side by side.

`run` calls a function, named as "module:function", in each of them; what rank r returned is the r-th of its results.
Within it, `in_turn` times contenders of which a round takes as long as its slowest rank.
"""

import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_NUMBERS = itertools.count()
_MARK = "RESULT"


def need_links() -> None:
    """End the script with a line where no links can be throttled; others go on after it."""
    missing = next((f"`{tool}`: install iproute2" for tool in ("ip", "tc") if shutil.which(tool) is None), None)
    if os.geteuid() != 0:
        missing = "root, for network namespaces: run it with sudo"
    if missing is not None:
        print(f"skipped: this benchmark needs {missing}.")
        raise SystemExit(0)


@contextmanager
def hosts(num: int, mbit: float, burst_kb: int = 256) -> Iterator[list[str]]:
    """Names of `num` network namespaces on one bridge; each sends and receives at `mbit` Mbit/s (0: no limit)."""
    tag = f"ap{os.getpid() % 100000}x{next(_NUMBERS)}"  # a namespace that was deleted may live on for a moment
    bridge, names = f"{tag}b", [f"{tag}n{rank}" for rank in range(num)]
    # a burst that holds the largest segment, and a queue deep enough that nothing is dropped
    limit = f"tbf rate {mbit}mbit burst {burst_kb}kb limit 32mb"

    def sh(command: str) -> None:
        subprocess.run(command.split(), check=True, timeout=30, capture_output=True)

    try:
        sh(f"ip link add {bridge} type bridge")
        sh(f"ip link set {bridge} up")
        for rank, name in enumerate(names):
            sh(f"ip netns add {name}")
            sh(f"ip link add {tag}h{rank} type veth peer name eth0 netns {name}")
            sh(f"ip link set {tag}h{rank} master {bridge} up")
            sh(f"ip -n {name} addr add 10.77.0.{rank + 1}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 up")
            sh(f"ip -n {name} link set lo up")
            if mbit:
                sh(f"tc -n {name} qdisc add dev eth0 root {limit}")
                sh(f"tc qdisc add dev {tag}h{rank} root {limit}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=30, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, timeout=30, capture_output=True)


def run(function: str, num: int, options: dict[str, Any], *, at: list[str] = (), limit_s: float = 900.0) -> list[Any]:
    """What each of `num` ranks finds, a value of JSON; `at` are the namespaces that they are in."""
    with TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment |= {"GLOO_SOCKET_IFNAME": "eth0"} if at else {}
        ranks = []
        for rank in range(num):
            command = ["ip", "netns", "exec", at[rank]] if at else []
            command += [sys.executable, "-m", "benchmarks.ranks", function, json.dumps(options)]
            command += [str(rank), str(num), f"{folder}/meet"]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        try:
            outs = [process.communicate(timeout=limit_s)[0] for process in ranks]
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{function}: the ranks took more than {limit_s:g} s") from None
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    found = []
    for rank, out in enumerate(outs):
        lines = [line for line in out.splitlines() if line.startswith(_MARK)]
        if not lines:
            raise SystemExit(f"{function}: rank {rank} gave no result; what it wrote is above")
        found.append(json.loads(lines[0].removeprefix(_MARK)))
    return found


def on_links(
    function: str, num: int, options: dict[str, Any], mbits: list[float], burst_kb: int = 256
) -> Iterator[tuple[str, float, list[Any]]]:
    """Each bandwidth's name, its Mbit/s, and what the ranks found behind such links."""
    need_links()
    for mbit in mbits:
        with hosts(num, mbit, burst_kb) as names:
            print(f"\n{mbit:g} Mbit/s, {num} ranks", flush=True)
            yield f"{mbit:g} Mbit/s", mbit, run(function, num, options, at=names)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """What a rank does in its turn."""

    once: Callable[[], Any]
    finish: Callable[[], Any] = lambda: None
    """Ends what is pending, within the turn."""
    close: Callable[[], Any] = lambda: None
    repeats: int = 1
    """How often `once` is done in a turn; times are those of one."""


def in_turn(contenders: dict[str, Contender], rounds: int) -> dict[str, dict[str, Any]]:
    """By contender: the slowest rank's seconds and this rank's CPU seconds, an entry a round after one that is not
    counted, and the bytes that left this rank's interface, all headers included."""
    import torch
    import torch.distributed as dist

    found: dict[str, dict[str, Any]] = {name: {"seconds": [], "cpu_s": []} for name in contenders}
    for turn in range(rounds + 1):
        for name, made in contenders.items():
            dist.barrier()
            sent, cpu, begin = _sent_bytes(), time.process_time(), time.perf_counter()
            for _ in range(made.repeats):
                made.once()
            made.finish()
            taken = torch.tensor([(time.perf_counter() - begin) / made.repeats], dtype=torch.float64)
            cpu = (time.process_time() - cpu) / made.repeats
            dist.all_reduce(taken, op=dist.ReduceOp.MAX)
            if turn:
                found[name]["seconds"].append(round(float(taken), 7))
                found[name]["cpu_s"].append(cpu)
                found[name]["wire_bytes"] = (_sent_bytes() - sent) / made.repeats
    for made in contenders.values():
        made.close()
    return found


def _sent_bytes() -> int:
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next((int(line.split(":", 1)[1].split()[8]) for line in lines if line.strip().startswith("eth0:")), 0)


def main() -> None:
    """One rank."""
    import torch
    import torch.distributed as dist

    function, options, rank, num, meet = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=int(rank), world_size=int(num))
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)(**json.loads(options))
    print(_MARK + json.dumps(found), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # what is not ended by then would wait for the others


if __name__ == "__main__":
    main()
