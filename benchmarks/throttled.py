"""Exchanges of gradients over throttled links: ranks in network namespaces of this machine, each behind `tc tbf`.

    sudo python benchmarks/throttled.py [--ranks 4] [--mbit 200 1000] [--num 25000000] [--rounds 5] [--no-save]

Needs root, and `ip` and `tc` of iproute2; without them it says so and does nothing. One exchange: from the start of a
backward pass that costs nothing to averaged gradients on all ranks, by torch's DistributedDataParallel (fp32, and with
torch's fp16 and PowerSGD hooks), by DDP with the butterfly hook, and by the strategy `butterfly`, both with 8 bits, and
with 4 and 1 and error feedback. Whole steps: butterfly and lazy with SGD and momentum, the network's computing played
by sleeping. Contenders take turns; a round's time is that of the slowest rank. Parameters have ResNet-50's shapes,
scaled to --num. A contender takes about a GB of memory in all: choose some with --only, or fewer gradients.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

GOALS = {200.0: (0.28, 0.56), 1000.0: (0.40, 0.75)}
"""By Mbit/s: the 8-bit butterfly's time over DDP's in fp32, and over DDP's with the fp16 hook, at most."""
GOAL_4_BITS = {200.0: 0.62}
"""By Mbit/s: the time of the butterfly in 4 bits with error feedback over that in 8 bits without, at most."""
FEW_BITS = {"4 bits": "nf4", "1 bit": "one-bit"}
ONE_BUCKET_MIB = 4096
TIMEOUT_S = 120
Contender = tuple[Callable[[], None], Callable[[], None], Callable[[], None]]
"""Do it once, finish what is pending, and close."""


def need_links() -> None:
    """End the benchmark with a line where no links can be throttled; others go on after it."""
    missing = next((f"`{tool}`: install iproute2" for tool in ("ip", "tc") if shutil.which(tool) is None), None)
    if os.geteuid() != 0:
        missing = "root, for network namespaces: run it with sudo"
    if missing is not None:
        print(f"skipped: this benchmark needs {missing}.")
        raise SystemExit(0)


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True, timeout=30, capture_output=True)


_NUMBERS = itertools.count()


@contextmanager
def hosts(num: int, mbit: float, burst_kb: int = 256) -> Iterator[list[str]]:
    """Names of `num` network namespaces on one bridge; each sends and receives at `mbit` Mbit/s (0: no limit)."""
    tag = f"ap{os.getpid() % 100000}x{next(_NUMBERS)}"  # a namespace that was deleted may live on for a moment
    bridge = f"{tag}b"
    names = [f"{tag}n{rank}" for rank in range(num)]
    # a burst that holds the largest segment, and a queue deep enough that nothing is dropped
    limit = f"tbf rate {mbit}mbit burst {burst_kb}kb limit 32mb"
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


def shapes(num: int) -> list[tuple[int, ...]]:
    """ResNet-50's parameters, its widths scaled until there are about `num` of them."""
    found: list[tuple[int, ...]] = []

    def build(width: float) -> int:
        found.clear()

        def conv(out: int, into: int, kernel: int) -> None:
            found.extend([(out, into, kernel, kernel), (out,), (out,)])

        w = max(int(64 * width), 1)
        conv(w, 3, 7)
        into = w
        for stage, blocks in enumerate((3, 4, 6, 3)):
            mid = w * 2**stage
            for block in range(blocks):
                conv(mid, into, 1)
                conv(mid, mid, 3)
                conv(4 * mid, mid, 1)
                if block == 0:
                    conv(4 * mid, into, 1)
                into = 4 * mid
        found.extend([(1000, into), (1000,)])
        return sum(_product(shape) for shape in found)

    low, high = 0.02, 8.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if build(middle) < num else (low, middle)
    build(high)
    return list(found)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def worker(rank: int, options: argparse.Namespace) -> None:
    """One rank; rank 0 prints what was found."""
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    from augpipe.trainer import butterfly_hook, strategy

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.meet}", rank=rank, world_size=options.ranks)
    all_shapes = shapes(options.num)

    class Emit(torch.autograd.Function):
        """A layer whose gradient is ready made; computing is played by sleeping."""

        @staticmethod
        def forward(ctx, x, parameter, gradient, seconds):
            ctx.gradient, ctx.seconds = gradient, seconds
            _sleep(seconds)
            return x.clone()

        @staticmethod
        def backward(ctx, x):
            _sleep(2 * ctx.seconds)
            return x, ctx.gradient, None, None

    def _sleep(seconds: float) -> None:
        if seconds:
            time.sleep(seconds)

    generator = torch.Generator().manual_seed(rank)
    gradients = [torch.randn(shape, generator=generator) * 1e-3 for shape in all_shapes]

    class Layers(nn.Module):
        def __init__(self, compute_s: float) -> None:
            super().__init__()
            self.layers = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in all_shapes)
            self.seconds = compute_s / 3 / len(all_shapes)

        def forward(self, x: Tensor) -> Tensor:
            for layer, gradient in zip(self.layers, gradients, strict=True):
                x = Emit.apply(x, layer, gradient, self.seconds)
            return x

    class Nothing(torch.optim.SGD):
        """The exchange alone is timed."""

        def step(self, closure: object = None) -> None:
            pass

    start = torch.ones(1, requires_grad=True)

    def nothing() -> None:
        pass

    def ddp(
        hook: tuple[object, Callable[..., object]] | None,
        *,
        mib: float = options.ddp_mib,
        is_ours: bool = False,
        warm_up: int = 0,
    ) -> Contender:
        # ours as docs/sync.md says; torch's as it is by default
        model = DistributedDataParallel(Layers(0.0), bucket_cap_mb=mib, gradient_as_bucket_view=is_ours)
        if hook is not None:
            model.register_comm_hook(*hook)

        def once() -> None:
            model(start).sum().backward()
            model.zero_grad()

        for _ in range(warm_up):
            once()

        def close() -> None:
            if hook is not None and hasattr(hook[0], "close"):
                hook[0].close()

        return once, nothing, close

    def power_sgd(matrix_rank: int) -> Contender:
        # torch sends the first gradients as they are, at least two; its default is a thousand
        state = PowerSGDState(None, matrix_approximation_rank=matrix_rank, start_powerSGD_iter=2)
        # in one bucket: of several, its second and third all-reduces meet those of other buckets on Gloo
        return ddp((state, powerSGD_hook), mib=ONE_BUCKET_MIB, warm_up=3)

    def ours(name: str, optimizer: Callable[..., torch.optim.Optimizer], compute_s: float, codec: str) -> Contender:
        model = Layers(compute_s)
        settings = {"bucket_bytes": int(options.mib * 2**20), "timeout_s": TIMEOUT_S}
        sync = strategy(name, model, optimizer, codec=codec, error_feedback=codec in FEW_BITS.values(), **settings)

        def once() -> None:
            sync.module(start).sum().backward()
            sync.step()

        return once, sync.flush, sync.close

    def momentum(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def exchange_of(codec: str) -> Contender:
        return ours("butterfly", lambda p: Nothing(p, lr=0.0), 0.0, codec)

    def hook_of(codec: str) -> Contender:
        made = butterfly_hook(codec=codec, error_feedback=codec in FEW_BITS.values(), timeout_s=TIMEOUT_S)
        return ddp(made, mib=options.mib, is_ours=True)

    contenders: dict[str, Callable[[], Contender]] = {
        "DDP fp32": lambda: ddp(None),
        "DDP fp16 hook": lambda: ddp((None, fp16_compress_hook)),
        **{f"DDP PowerSGD hook, rank {one}": partial(power_sgd, one) for one in (1, 2, 4)},
        "DDP butterfly hook, 8 bits": lambda: hook_of(options.codec),
        "butterfly, 8 bits": lambda: exchange_of(options.codec),
        **{f"DDP butterfly hook, {bits}": partial(hook_of, codec) for bits, codec in FEW_BITS.items()},
        **{f"butterfly, {bits}": partial(exchange_of, codec) for bits, codec in FEW_BITS.items()},
        "step of butterfly, 8 bits": lambda: ours("butterfly", momentum, options.compute_s, options.codec),
        "step of lazy, 8 bits": lambda: ours("lazy", momentum, options.compute_s, options.codec),
        "step of butterfly, 4 bits": lambda: ours("butterfly", momentum, options.compute_s, FEW_BITS["4 bits"]),
        "step of lazy, 4 bits": lambda: ours("lazy", momentum, options.compute_s, FEW_BITS["4 bits"]),
        "step of butterfly, fp32": lambda: ours("butterfly", momentum, options.compute_s, "fp32"),
        "step of lazy, fp32": lambda: ours("lazy", momentum, options.compute_s, "fp32"),
    }
    if options.only:
        contenders = {
            name: make for name, make in contenders.items() if any(_is_asked(name, part) for part in options.only)
        }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    sent: dict[str, float] = {}
    for whole_steps in (False, True):  # not all at once: each has buffers as large as the gradients
        made = {name: make() for name, make in contenders.items() if name.startswith("step") == whole_steps}
        steps = options.steps if whole_steps else 1
        for turn in range(options.rounds + 1):
            for name, (once, finish, _) in made.items():
                dist.barrier()
                before, begin = _sent_bytes(), time.perf_counter()
                for _ in range(steps):
                    once()
                finish()  # what lazy has not waited for yet counts
                taken = torch.tensor([(time.perf_counter() - begin) / steps])
                dist.all_reduce(taken, op=dist.ReduceOp.MAX)
                if turn:
                    seconds[name].append(float(taken))
                    sent[name] = (_sent_bytes() - before) / steps
        for _, _, close in made.values():
            close()
        del made
    if rank == 0:
        num = sum(_product(shape) for shape in all_shapes)
        print("RESULT" + json.dumps({"num": num, "seconds": seconds, "wire_bytes": sent}), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def _is_asked(name: str, part: str) -> bool:
    return name == part[1:] if part.startswith("=") else part in name


def _sent_bytes() -> int:
    """Bytes that left this namespace's interface, with all headers."""
    path = Path("/proc/self/net/dev")
    for line in path.read_text().splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split(":", 1)[1].split()[8])
    return 0


def measure(options: argparse.Namespace, mbit: float) -> dict[str, object]:
    with hosts(options.ranks, mbit) as names, TemporaryDirectory() as folder:
        command = [*sys.argv, "--meet", f"{folder}/meet"]
        ranks = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, *command, "--rank", str(rank)],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            )
            for rank, name in enumerate(names)
        ]
        try:
            outs = [process.communicate(timeout=options.limit_s)[0] for process in ranks]
        except subprocess.TimeoutExpired:
            raise SystemExit(f"at {mbit:g} Mbit/s the ranks took more than --limit-s {options.limit_s:g}") from None
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    line = next((line for line in outs[0].splitlines() if line.startswith("RESULT")), None)
    if line is None:
        raise SystemExit(f"at {mbit:g} Mbit/s the ranks gave no result; what they wrote is above")
    return json.loads(line.removeprefix("RESULT"))


def ratio(seconds: dict[str, list[float]], above: str, below: str) -> float | None:
    if above not in seconds or below not in seconds:
        return None
    return statistics.median(a / b for a, b in zip(seconds[above], seconds[below], strict=True))


def break_even(medians: dict[float, dict[str, float]], ours: str, theirs: str) -> str:
    """Mbit/s at which both take the same time: straight lines in 1 / bandwidth through the two slowest links."""
    rates = sorted(rate for rate in medians if rate)[:2]
    if len(rates) < 2 or any(name not in medians[rate] for rate in rates for name in (ours, theirs)):
        return "needs two bandwidths"

    def line(name: str) -> tuple[float, float]:
        (x0, y0), (x1, y1) = ((1 / rate, medians[rate][name]) for rate in rates)
        slope = (y1 - y0) / (x1 - x0)
        return slope, y0 - slope * x0

    (our_slope, our_fixed), (their_slope, their_fixed) = line(ours), line(theirs)
    if our_fixed <= their_fixed:
        return "none: faster at any bandwidth, by these two"
    return f"{(their_slope - our_slope) / (our_fixed - their_fixed):.0f} Mbit/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mbit", type=float, nargs="+", default=[200.0, 1000.0], help="0: no limit")
    parser.add_argument("--num", type=int, default=25_000_000, help="gradients")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="whole steps a round")
    parser.add_argument("--compute-s", type=float, default=0.3, help="computing in a whole step, played by sleeping")
    parser.add_argument("--codec", default="dynamic-tree")
    parser.add_argument("--mib", type=float, default=4.0, help="buckets of ours, in MiB")
    parser.add_argument("--ddp-mib", type=float, default=25.0, help="DDP's bucket_cap_mb, but with our hook")
    parser.add_argument(
        "--only", nargs="*", help="contenders whose name has one of these parts; a leading = asks for the whole name"
    )
    parser.add_argument("--limit-s", type=float, default=900.0, help="seconds after which a bandwidth is given up")
    parser.add_argument("--name", default="throttled", help="of the kept result")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        worker(options.rank, options)
        return
    need_links()
    from common import save

    found, medians = {}, {}
    ours, fp32, fp16 = "butterfly, 8 bits", "DDP fp32", "DDP fp16 hook"
    for mbit in options.mbit:
        result = measure(options, mbit)
        seconds: dict[str, list[float]] = result["seconds"]
        medians[mbit] = {name: statistics.median(times) for name, times in seconds.items()}
        wire: dict[str, float] = result["wire_bytes"]
        print(f"\n{mbit:g} Mbit/s, {options.ranks} ranks, {result['num']:,} gradients")
        for name, median in medians[mbit].items():
            print(f"  {name:28} {median:7.3f} s  {wire[name] / 1e6:7.1f} MB sent by rank 0")
        for name in (ours, "DDP butterfly hook, 8 bits"):
            against = (ratio(seconds, name, fp32), ratio(seconds, name, fp16))
            goal = GOALS.get(mbit)
            if None not in against:
                print(f"  {name} / fp32 {against[0]:.3f}, / fp16 {against[1]:.3f}" + (f"; goal {goal}" if goal else ""))
        few = ratio(seconds, "butterfly, 4 bits", ours)
        if few is not None:
            print(f"  butterfly, 4 bits / 8 bits {few:.3f}; goal {GOAL_4_BITS.get(mbit)}")
        for kind in ("8 bits", "4 bits", "fp32"):
            lazy = ratio(seconds, f"step of lazy, {kind}", f"step of butterfly, {kind}")
            if lazy is not None:
                print(f"  whole steps, {kind}: lazy / butterfly {lazy:.3f}; goal at most 1")
        found[f"{mbit:g} Mbit/s"] = result | {
            "butterfly_over_ddp_fp32": ratio(seconds, ours, fp32),
            "butterfly_over_ddp_fp16": ratio(seconds, ours, fp16),
            "4_bits_over_8_bits": few,
            "lazy_over_butterfly": ratio(seconds, "step of lazy, 8 bits", "step of butterfly, 8 bits"),
        }
    even = {theirs: break_even(medians, ours, theirs) for theirs in (fp32, fp16)}
    print(f"\nbreak-even bandwidth: with DDP fp32 {even[fp32]}, with the fp16 hook {even[fp16]}")
    if not options.no_save:
        settings = {
            key: getattr(options, key) for key in ("ranks", "rounds", "steps", "compute_s", "codec", "mib", "ddp_mib")
        }
        save(options.name, {"settings": settings, "results": found, "break_even": even})


if __name__ == "__main__":
    main()
