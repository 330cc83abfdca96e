"""What `augpipe simulate` is told of this machine: rates of wires, copies and the optimizer, and of throttled links.

    sudo python -m benchmarks.trainer.cluster_rates [--ranks 4] [--mbit 200 1000]

Nothing here exchanges gradients: wires encode and decode slices on one core, by processor time, and links carry plain
all-to-alls of bytes between ranks in network namespaces, as `throttled` makes them. Needs root for these.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import ranks
from benchmarks.harness import Bench

NUM = 25_557_032
"""ResNet-50's weights, as in throttled.py."""
SLICE = 2**20 // 4
"""Values of a slice: a bucket of 4 MiB among four ranks."""
CODECS = ("fp32", "dynamic-tree", "nf4", "one-bit")
SIZES, TIMES = {"big": 2**20, "small": 64}, 20
"""Bytes of a message, and how many all-to-alls are timed together."""


def rates(rounds: int, num: int) -> dict[str, object]:
    """Bytes of float32 a second of one core, by what is done to them: the median of `rounds`."""
    import torch

    from augpipe.trainer import codec
    from augpipe.trainer.codecs.error_feedback import ErrorFeedback
    from augpipe.trainer.exchange.message import CodecWire, RawWire
    from benchmarks.trainer.played import momentum, shapes

    torch.set_num_threads(1)
    num = num // SLICE * SLICE
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
        wire: Any = RawWire(torch.float32, torch.float32) if name == "fp32" else CodecWire(ErrorFeedback(codec(name)))
        payloads = [wire.view(torch.empty(wire.num_bytes(SLICE), dtype=torch.uint8)) for _ in slices]
        has_feedback = name in ("nf4", "one-bit")

        def each(act: Callable[[int], object]) -> Callable[[], object]:
            return lambda: [act(i) for i in range(len(slices))]

        def encode(i: int, w: Any = wire, p: Any = payloads, fed: bool = has_feedback) -> None:
            w.encode([slices[i]], [p[i]], [("reduce", 0, i)] if fed else ())

        found[name] = {
            "encode": rate(each(encode)),
            "decode": rate(each(lambda i, w=wire, p=payloads: w.decode([p[i]], [slices[i]]))),
            "add": rate(each(lambda i, w=wire, p=payloads: w.mean(p[i][None], slices[i]))),
        }
        flat.normal_().mul_(1e-3)
    gradients = [torch.randn(shape) for shape in shapes(num)]
    copies = [torch.empty_like(one) for one in gradients]
    found["copy"] = rate(lambda: [into.copy_(one) for into, one in zip(copies, gradients, strict=True)])
    weights = [torch.nn.Parameter(torch.zeros_like(one)) for one in gradients]
    for weight, one in zip(weights, gradients, strict=True):
        weight.grad = one
    found["optimizer"] = rate(momentum(weights).step)
    return found


def all_to_alls(rounds: int) -> dict[str, Any]:
    """Seconds of an all-to-all of big and of small messages, one after the other and as many at once as Gloo carries
    out, processor seconds, and what sleeping adds to the time asked for."""
    import torch
    import torch.distributed as dist

    from benchmarks.trainer.played import shapes

    found: dict[str, Any] = {}
    for name, size in SIZES.items():
        split = [0 if other == dist.get_rank() else size for other in range(dist.get_world_size())]
        sent, got = torch.zeros(sum(split), dtype=torch.uint8), torch.zeros(sum(split), dtype=torch.uint8)

        def begin(sent: Any = sent, got: Any = got, split: Any = split) -> Any:
            return dist.all_to_all_single(got, sent, split, split, async_op=True)

        def one_by_one(begin: Any = begin) -> None:
            for _ in range(TIMES):
                begin().wait()

        def at_once(begin: Any = begin) -> None:
            for work in [begin() for _ in range(TIMES)]:
                work.wait()

        taken = ranks.in_turn({"one": ranks.Contender(once=one_by_one), "all": ranks.Contender(once=at_once)}, rounds)
        medians = {
            (way, key): statistics.median(row[key]) / TIMES
            for way, row in taken.items()
            for key in ("seconds", "cpu_s")
        }
        found[name] = {
            "bytes": sum(split),
            "seconds": medians["one", "seconds"],
            "seconds, all at once": medians["all", "seconds"],
            "cpu_s": medians["one", "cpu_s"] + medians["all", "cpu_s"],
        }
    layers, pause_s = len(shapes(NUM)), 0.3 / 3 / len(shapes(NUM))
    start = time.perf_counter()
    for _ in range(layers):
        time.sleep(pause_s)
        time.sleep(2 * pause_s)
    return found | {"0.3 s slept layer by layer": time.perf_counter() - start}


def main() -> None:
    bench = Bench(__doc__, ranks=4, mbit=(200.0, 1000.0), name="cluster_rates")
    chosen, settings = bench.options, {"rounds": bench.rounds}
    ranks.need_links()
    found: dict[str, Any] = {"bytes_per_s": rates(bench.rounds, bench.pick(NUM, 4 * SLICE)), "links": {}}
    function, mbits = "benchmarks.trainer.cluster_rates:all_to_alls", bench.pick(chosen.mbit, [1000.0])
    for link, _, results in ranks.on_links(function, chosen.ranks, settings, mbits):
        found["links"][link] = results[0]
    bench.keep(chosen.name, {"settings": {"ranks": chosen.ranks} | settings, "results": found})


if __name__ == "__main__":
    main()
