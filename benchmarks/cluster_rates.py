"""What `augpipe simulate` is told of this machine: rates of wires, copies and the optimizer, and of throttled links.

    sudo python benchmarks/cluster_rates.py [--ranks 4] [--mbit 200 1000] [--no-save]

Nothing here exchanges gradients: wires encode and decode slices on one core, by processor time, and links carry plain
all-to-alls of bytes between ranks in network namespaces, as `throttled.py` makes them. Needs root for these.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory

from common import save
from throttled import hosts, need_links, shapes

NUM = 25_557_032
"""ResNet-50's weights, as in throttled.py."""
SLICE = 2**20 // 4
"""Values of a slice: a bucket of 4 MiB among four ranks."""
CODECS = ("fp32", "dynamic-tree", "nf4", "one-bit")
BIG, SMALL, TIMES = 2**20, 64, 20
"""Bytes of a message, and how many all-to-alls are timed together."""


def rates(rounds: int) -> dict[str, object]:
    """Bytes of float32 a second of one core, by what is done to them: the median of `rounds`."""
    import torch

    from augpipe.trainer import codec
    from augpipe.trainer.codecs.error_feedback import ErrorFeedback
    from augpipe.trainer.exchange.message import CodecWire, RawWire

    torch.set_num_threads(1)
    num = NUM // SLICE * SLICE
    flat = torch.randn(num) * 1e-3
    slices = list(flat.split(SLICE))

    def rate(act: Callable[[], object]) -> float:
        act()
        taken = []
        for _ in range(rounds):
            start = time.thread_time()
            act()
            taken.append(time.thread_time() - start)
        return round(4 * num / statistics.median(taken))

    found: dict[str, object] = {}
    for name in CODECS:
        is_raw = name == "fp32"
        wire = RawWire(torch.float32, torch.float32) if is_raw else CodecWire(ErrorFeedback(codec(name)))
        payloads = [wire.view(torch.empty(wire.num_bytes(SLICE), dtype=torch.uint8)) for _ in slices]
        keys = [("reduce", 0, i) for i in range(len(slices))] if name in ("nf4", "one-bit") else ()

        def each(act: Callable[[int], object]) -> Callable[[], object]:
            return lambda: [act(i) for i in range(len(slices))]

        found[name] = {
            "encode": rate(
                each(lambda i, w=wire, p=payloads, k=keys: w.encode([slices[i]], [p[i]], [k[i]] if k else ()))
            ),
            "decode": rate(each(lambda i, w=wire, p=payloads: w.decode([p[i]], [slices[i]]))),
            "add": rate(each(lambda i, w=wire, p=payloads: w.add([p[i]], slices[i]))),
        }
        flat.normal_().mul_(1e-3)
    gradients = [torch.randn(shape) for shape in shapes(NUM)]
    views = [
        part.view(one.shape)
        for part, one in zip(
            flat.new_zeros(NUM + 64).split_with_sizes(
                [*(one.numel() for one in gradients), NUM + 64 - sum(one.numel() for one in gradients)]
            ),
            gradients,
            strict=False,
        )
    ]
    found["copy"] = rate(lambda: [view.copy_(one) for view, one in zip(views, gradients, strict=True)])
    weights = [torch.nn.Parameter(torch.zeros_like(one)) for one in gradients]
    for weight, one in zip(weights, gradients, strict=True):
        weight.grad = one
    found["optimizer"] = rate(torch.optim.SGD(weights, lr=0.1, momentum=0.9).step)
    return found


def worker(rank: int, options: argparse.Namespace) -> None:
    """One rank; rank 0 prints seconds of an all-to-all of big and of small messages, one after the other and as many at
    once as Gloo carries out, processor seconds, and what sleeping adds to the time asked for."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.meet}", rank=rank, world_size=options.ranks)
    found = {}
    for name, size in (("big", BIG), ("small", SMALL)):
        split = [0 if other == rank else size for other in range(options.ranks)]
        sent, got = torch.zeros(sum(split), dtype=torch.uint8), torch.zeros(sum(split), dtype=torch.uint8)
        taken, cpu = {False: [], True: []}, []
        for _ in range(options.rounds):
            for at_once in (False, True):
                dist.barrier()
                start, cpu_start = time.perf_counter(), time.process_time()
                works = []
                for _ in range(TIMES):
                    works.append(dist.all_to_all_single(got, sent, split, split, async_op=True))
                    if not at_once:
                        works.pop().wait()
                for work in works:
                    work.wait()
                taken[at_once].append((time.perf_counter() - start) / TIMES)
            cpu.append((time.process_time() - cpu_start) / TIMES)
        found[name] = {
            "bytes": sum(split),
            "seconds": statistics.median(taken[False]),
            "seconds, all at once": statistics.median(taken[True]),
            "cpu_s": statistics.median(cpu),
        }
    if rank == 0:
        layers, pause_s = len(shapes(NUM)), 0.3 / 3 / len(shapes(NUM))
        start = time.perf_counter()
        for _ in range(layers):
            time.sleep(pause_s)
            time.sleep(2 * pause_s)
        found["0.3 s slept layer by layer"] = time.perf_counter() - start
    if rank == 0:
        print("RESULT" + json.dumps(found), flush=True)
    dist.barrier()
    os._exit(0)


def links(options: argparse.Namespace, mbit: float) -> dict[str, object]:
    with hosts(options.ranks, mbit) as names, TemporaryDirectory() as folder:
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *sys.argv, "--meet", f"{folder}/meet", "--rank"]
        ranks = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command, str(rank)], stdout=subprocess.PIPE, text=True, env=environment
            )
            for rank, name in enumerate(names)
        ]
        outs = [process.communicate(timeout=300)[0] for process in ranks]
    line = next(line for line in outs[0].splitlines() if line.startswith("RESULT"))
    return json.loads(line.removeprefix("RESULT"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mbit", type=float, nargs="+", default=[200.0, 1000.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="cluster_rates")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        worker(options.rank, options)
    need_links()
    found = {"bytes_per_s": rates(options.rounds), "links": {f"{m:g} Mbit/s": links(options, m) for m in options.mbit}}
    print(json.dumps(found, indent=2))
    if not options.no_save:
        save(options.name, {"settings": {"ranks": options.ranks, "rounds": options.rounds}, "results": found})


if __name__ == "__main__":
    main()
