"""Section of `check`: gradients exchanged over NCCL on one GPU, by every strategy and every codec.

NCCL refuses two ranks on one GPU. So the process group here says that it has two ranks, and hands each collective to an
NCCL group of this rank alone: what goes to the other rank comes back as if from a twin, through NCCL's streams and
works. Strategies are built, threaded and closed as the trainer does it. The network's weights, inputs and so its
gradients are alike in both halves of each bucket, so a twin's message is what this rank itself would have sent: weights
must come out as without an exchange. Delays are kernels that sleep before each collective, as long as a slow link would
take: whatever forgets to wait for a stream then finds other weights.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile

from augpipe.trainer import strategy
from augpipe.trainer.codecs import names
from augpipe.trainer.config.tables import SyncConfig
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.parallel import make_mesh, split
from benchmarks.gpu.common import Findings, Run, synchronize, wall_seconds

STRATEGIES: tuple[str, ...] = get_args(SyncConfig.model_fields["strategy"].annotation)
HOOK = "ddp by an issuer"
"""As split layers have it: torch's all-reduces give way to the butterfly hook, without a codec too."""
SPLIT = "split layers"  # all of them, between both ranks; the codec is that of activations and deltas
NUM_LAYERS, WIDTH, BATCH_SIZE = 25, 1024, 256
"""As many weights as ResNet-50 has, a bucket of 4 MiB each."""
WARM_UP, NUM_STEPS, LR = 2, 5, 1.0
LINK_BYTES_S = 25e9
"""Bandwidth of the link that delays stand for: 200 Gbit/s."""
CYCLES_S = 2e9
"""Cycles of `torch.cuda._sleep` in a second, about."""
FAR = {"fp32": 1e-4, "bf16": 0.005, "nf4": 0.2, "one-bit": 1.0}
"""How far weights may be from those without an exchange, relative to the way that those have gone; other codecs 0.1.
fp32's are equal where a matrix product rounds both halves alike, which cuBLAS does not promise."""


class Twins(dist.ProcessGroup):
    """A group of two ranks, of which the other one sends what this one sends; or of this one only."""

    delay = False
    """Whether collectives of gradients take as long as on a link of `LINK_BYTES_S`."""
    link: Any = None  # a stream
    group_name = ""

    def __init__(self, alone: dist.ProcessGroup, size: int) -> None:
        super().__init__(0, size)
        self._alone = alone

    def allgather(self, outs: Any, ins: Any, _options: Any = None) -> Any:
        for out in outs[0]:
            work = self._alone.allgather([[out]], ins)
            work.wait()
        return work

    def allreduce(self, tensors: Any, _options: Any = None) -> Any:
        torch._foreach_mul_(tensors, 2)
        with self._link(tensors[0]):
            return self._alone.allreduce(tensors)

    def alltoall_base(self, out: Any, tensor: Any, _outs: Any, _ins: Any, _options: Any = None) -> Any:
        assert len(out) == len(tensor), "both halves of a bucket are as large"
        with self._link(tensor):
            return self._alone.alltoall_base(out, tensor, [len(out)], [len(out)])

    all_to_all_single = alltoall_base  # torch from 2.13 on calls it so

    def broadcast(self, tensors: Any, _options: Any = None) -> Any:
        return self._alone.broadcast(tensors)

    @contextmanager
    def _link(self, sent: torch.Tensor) -> Iterator[None]:
        """Within it a collective comes after a sleep, on a stream of its own: what is computed meanwhile goes on."""
        if self.delay and sent.is_cuda:
            Twins.link = link = self.link or torch.cuda.Stream()
            link.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(link):
                torch.cuda._sleep(int(sent.nbytes / LINK_BYTES_S * CYCLES_S))
                yield
            return
        if self.delay:
            time.sleep(0.001)
        yield

    def getBackendName(self) -> str:
        return "nccl_twins"

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, _desc: str) -> None: ...

    def shutdown(self) -> None:
        """The group of one rank serves the next one, too."""


@cache
def _group_of_one(device: str) -> dist.ProcessGroup:
    """Gloo for tensors of the CPU and, on a GPU, NCCL for its own."""
    store, kinds, minute = dist.HashStore(), dist.ProcessGroup.BackendType, timedelta(seconds=60)
    group = dist.ProcessGroup(store, 0, 1)
    group._set_default_backend(kinds.NCCL if device == "cuda" else kinds.GLOO)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), 0, 1, minute)
    group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    if device == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = minute
        nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), 0, 1, options)
        nccl._set_sequence_number_for_group()
        group._register_backend(torch.device("cuda"), kinds.NCCL, nccl)
    return group


@cache
def _register(device: str) -> None:
    dist.Backend.register_backend(
        "nccl_twins", lambda _, __, size, *___: Twins(_group_of_one(device), size), devices=["cpu", "cuda"]
    )


@contextmanager
def _two_ranks(run: Run, *, delay: bool) -> Iterator[None]:
    _register(run.device.type)
    Twins.delay = delay
    dist.init_process_group("nccl_twins", store=dist.HashStore(), rank=0, world_size=2)
    try:
        yield
    finally:
        dist.destroy_process_group()


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """Without an exchange first; every strategy with every codec; then behind a link."""
    if run.is_simulated:
        torch.set_num_threads(1)  # several that wait for each other awake would take the machine
    found: dict[str, Callable[[Findings], Any]] = {"no exchange": partial(_alone, run)}
    ways = [*((way, codec) for way in STRATEGIES for codec in names()), (HOOK, "fp32")]
    found |= {f"{way}, {codec}": partial(_exchanged, run, way, codec) for way, codec in ways}
    found |= {f"{SPLIT}, {codec}": partial(_exchanged, run, SPLIT, codec) for codec in ("fp32", "dynamic-tree")}
    late = [(way, codec) for way, codec in ways if codec in ("fp32", "dynamic-tree")]
    return found | {f"{way}, {codec}, behind a link": partial(_delayed, run, way, codec) for way, codec in late}


def _alone(run: Run, findings: Findings) -> None:
    _, weights, seconds = _reference(run)
    findings.keep("no exchange", {"step_ms": round(seconds * 1e3, 3), "gradients_bytes": weights.nbytes})


def _exchanged(run: Run, way: str, codec: str, findings: Findings) -> dict[str, Any]:
    name, (first, expected, alone_s) = f"{way}, {codec}", _reference(run)
    weights, found = _trained(run, way, codec)
    far = float((weights - expected).norm() / (expected - first).norm())
    seconds = found["step_ms"] / 1e3
    found |= {"longer_than_without_ms": round((seconds - alone_s) * 1e3, 3)}
    found |= {"gradients_gb_per_second": round(weights.nbytes / seconds / 1e9, 2)}
    found |= {"far_from_without": far, "equal_bit_by_bit": torch.equal(weights, expected)}
    findings.keep(name, found)
    findings.check(f"{name}: the weights of training without an exchange", far < FAR.get(codec, 0.1), far)
    return {"covers": {"codec": [codec]} | ({"strategy": [way]} if way in STRATEGIES else {})}


def _delayed(run: Run, way: str, codec: str, findings: Findings) -> None:
    weights, found = _trained(run, way, codec)
    late, found_late = _trained(run, way, codec, delay=True)
    step_ms = {"step_ms_at_once": found["step_ms"], "step_ms": found_late["step_ms"]}
    findings.keep(f"{way}, {codec}, behind a link of {LINK_BYTES_S / 1e9:g} GB/s", found_late | step_ms)
    apart = int((weights != late).sum())
    findings.check(f"{way}, {codec}: the same weights behind a slow link, bit by bit", apart == 0, f"{apart} differ")


def _trained(run: Run, way: str, codec: str, *, delay: bool = False) -> tuple[torch.Tensor, dict[str, Any]]:
    """Weights after `NUM_STEPS`, and what a step took. The first steps have a learning rate of 0: DDP fills its buckets
    in another way in its first one, where halves are not alike."""
    model, images, reports = _network(run), _images(run), []
    with _two_ranks(run, delay=delay):
        issuer = Issuer("gpu-check", images.device) if way == HOOK else None
        options: dict[str, Any] = {"codec": codec, "bucket_bytes": 4 * images.shape[1] ** 2, "issuer": issuer}
        if way == SPLIT:
            options = {"split": _split(model, images.device.type, codec)}
            model = options["split"].model
        name: Any = {HOOK: "ddp", SPLIT: "butterfly"}.get(way, way)
        sync = strategy(name, model, partial(torch.optim.SGD, lr=LR), timeout_s=20, **options)

        def step(turn: int) -> None:
            sync.set_lr(float(turn >= 0))
            sync.module(images).square().mean().backward()
            reports.append(sync.step())
            sync.flush()

        try:
            seconds = wall_seconds(step, NUM_STEPS, WARM_UP)
            calls = {"longest_calls (times, ms)": _longest_calls(step)} if codec == "fp32" and not delay else {}
        finally:
            sync.close()
            for other in filter(None, (issuer, options.get("split"))):
                other.close()
    return _weights(model), {
        "step_ms": round(statistics.median(seconds) * 1e3, 3),
        "exposed_ms": round(
            statistics.median(report.exposed_s for report in reports[WARM_UP : WARM_UP + NUM_STEPS]) * 1e3, 3
        ),
        "bytes_sent": sum(reports[-1].bytes_sent.values()),
        "steps_ms": [round(one * 1e3, 1) for one in seconds],
    } | calls


def _longest_calls(step: Callable[[int], None], num: int = 12) -> dict[str, list[float]]:
    """In which of torch's and CUDA's functions all threads of the host are longest, in a step that changes nothing."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=activities) as profiled:
        step(-1)
        synchronize()
    rows = sorted(profiled.key_averages(), key=lambda row: row.self_cpu_time_total, reverse=True)
    return {row.key: [row.count, round(row.self_cpu_time_total / 1e3, 3)] for row in rows[:num]}


def _split(model: nn.Module, device: str, codec: str) -> Any:
    module = import_module(split.__module__)
    made, module.own_group = module.own_group, lambda like, backend="", **options: made(like, **options)  # no Gloo's
    try:
        return split(model, make_mesh(2, device_type=device), activations=codec, deltas=codec, small=1, timeout_s=20)
    finally:
        module.own_group = made


@cache
def _reference(run: Run) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Weights before and after, and seconds of a step, without an exchange."""
    model, images = _network(run), _images(run)
    first, update = _weights(model), torch.optim.SGD(model.parameters(), lr=LR)

    def step(turn: int) -> None:
        model(images).square().mean().backward()
        if turn >= 0:
            update.step()
        update.zero_grad()

    seconds = statistics.median(wall_seconds(step, NUM_STEPS, WARM_UP))
    return first, _weights(model), seconds


def _network(run: Run) -> nn.Module:
    """Layers whose weights are the same four times, so that both halves of a gradient are alike."""
    width, layers = run.pick(WIDTH, 64), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(run.pick(NUM_LAYERS, 3)):
        layers += [nn.Linear(width, width, bias=False), nn.Tanh()]
        # signals keep their size
        quarter = torch.randn(width // 2, width // 2, generator=generator) / (2 * width) ** 0.5
        with torch.no_grad():
            layers[-2].weight.copy_(quarter.repeat(2, 2))
    return nn.Sequential(*layers).to(run.device)


def _images(run: Run) -> torch.Tensor:
    half = torch.randn(run.pick(BATCH_SIZE, 16), run.pick(WIDTH, 64) // 2, generator=torch.Generator().manual_seed(1))
    return half.repeat(1, 2).to(run.device)


def _weights(model: nn.Module) -> torch.Tensor:
    """All parameters in a row, a copy; of a split layer both halves, which are alike."""
    wholes = [one.detach().repeat([max(one.shape) // side for side in one.shape]) for one in model.parameters()]
    return torch.cat([whole.reshape(-1) for whole in wholes])
