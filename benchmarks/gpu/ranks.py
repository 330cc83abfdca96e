"""Section of `check`: two ranks on one GPU, over Gloo, with CUDA tensors: every strategy, the hook and split layers
must train to what torch's DDP trains to.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer import butterfly_hook, strategy
from augpipe.trainer.parallel import make_mesh, split
from benchmarks.gpu.common import Findings, Run, is_on_cuda

WORLD_SIZE, NUM_STEPS, BATCH_SIZE = 2, 20, 32
BUCKET_BYTES = 1 << 16
"""Several buckets, with parameters cut between them."""
CASES = (("butterfly", "fp32"), ("lazy", "fp32"), ("butterfly", "dynamic-tree"), ("lazy", "dynamic-tree"))
CASES += (("butterfly", "one-bit"), ("ddp", "fp32"), ("ddp", "dynamic-tree"))
FAR = 0.1
"""How far weights that an 8-bit codec brought about may be from DDP's, relative to the way that those have gone."""
ROUNDING = 1e-4
"""How far a split network's logits may be from DDP's, relative to these: it adds up in another order."""


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """One, by a pair of processes."""
    return {"two ranks": partial(_two_ranks, run)}


def _two_ranks(run: Run, findings: Findings) -> dict[str, Any]:
    code = "import sys; from benchmarks.gpu import check; check.as_installed()"
    code += "; from benchmarks.gpu import ranks; ranks.rank(*sys.argv[1:])"
    outs = [run.work / f"rank-{number}.json" for number in range(WORLD_SIZE)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number), str(run.work / "meeting"), str(out)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            text=True,
        )
        for number, out in enumerate(outs)
    ]
    try:
        said = [process.communicate(timeout=100)[0].splitlines()[-15:] for process in processes]
    finally:
        for process in processes:
            process.kill()
    failed = any(process.returncode for process in processes)
    findings.check("two ranks train", not failed, said)
    if failed:
        return {}
    for words, found in json.loads(outs[0].read_text()).items():
        findings.keep(words, found)
        findings.check(f"{words}: the same weights on both ranks bit by bit", found["same_on_all_ranks"])
        if words.startswith("split"):
            findings.check(f"{words}: DDP's logits but for rounding", found["far_from_ddp"] < ROUNDING, found)
        elif words.endswith("fp32"):
            findings.check(f"{words}: DDP's weights bit by bit", found["equals_ddp"], found)
        elif not words.endswith("one-bit"):
            findings.check(f"{words}: near DDP's weights", found["far_from_ddp"] < FAR, found)
    return {"covers": {"strategy": sorted({name for name, _ in CASES}), "codec": sorted({name for _, name in CASES})}}


def rank(number: str, meeting: str, out: str) -> None:
    """One rank: DDP first, then each strategy, from the same weights and with the same images."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(number), world_size=WORLD_SIZE)
    device = torch.device("cuda", 0) if is_on_cuda() else torch.device("cpu")
    torch.backends.cudnn.deterministic = True
    images = [torch.randn(BATCH_SIZE, 3, 16, 16, generator=_seeded(number, step)) for step in range(NUM_STEPS)]
    reference = _network().to(device)
    start, module = _weights(reference), DistributedDataParallel(reference)
    _train(module, _sgd(reference.parameters()), images)
    expected, found = _weights(reference), {}

    def keep(words: str, model: nn.Module, num_bytes: int) -> None:
        ours = _weights(model)
        found[words] = {
            "same_on_all_ranks": _is_everyones(ours),
            "equals_ddp": torch.equal(ours, expected),
            "far_from_ddp": float((ours - expected).norm() / (expected - start).norm()),
            "bytes_sent_a_step": num_bytes // NUM_STEPS,
        }

    for name, codec in CASES:
        model = _network().to(device)
        options = {"codec": codec, "error_feedback": codec == "one-bit", "bucket_bytes": BUCKET_BYTES, "timeout_s": 30}
        sync = strategy(name, model, _sgd, **options)  # type: ignore[arg-type]
        num_bytes = _synced(sync, images)
        keep(f"{name}, {codec}", model, num_bytes)
        sync.close()
    model = _network().to(device)
    module = DistributedDataParallel(model, bucket_cap_mb=BUCKET_BYTES / 2**20)
    hook, function = butterfly_hook("fp32", timeout_s=30)
    module.register_comm_hook(hook, function)
    _train(module, _sgd(model.parameters()), images)
    keep("DDP with butterfly_hook, fp32", model, sum(hook.meter.since_last().values()))
    hook.close()
    mesh = make_mesh(WORLD_SIZE, device_type=device.type)
    for scheme in ("gather", "rotate"):
        parts = split(_network().to(device), mesh, layers=["4", "6"], scheme=scheme, timeout_s=30)
        sync = strategy("butterfly", parts.model, _sgd, split=parts, timeout_s=30)
        num_bytes = _synced(sync, images)
        with torch.no_grad():  # all ranks at once, as split layers ask for
            ours, theirs = (model(images[0].to(device)) for model in (parts.model, reference))
        found[f"split layers, {scheme}"] = {
            "same_on_all_ranks": _is_everyones(_weights(parts.model[0])),
            "far_from_ddp": float((ours - theirs).norm() / theirs.norm()),
            "bytes_sent_a_step": num_bytes // NUM_STEPS,
        }
        sync.close()
        parts.close()
    if int(number) == 0:
        Path(out).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _train(module: nn.Module, update: torch.optim.Optimizer, images: list[torch.Tensor]) -> None:
    device = next(module.parameters()).device
    for batch in images:
        _loss(module, batch.to(device)).backward()
        update.step()
        update.zero_grad()


def _synced(sync: Any, images: list[torch.Tensor]) -> int:
    """Train by a strategy; returns the bytes that it has sent."""
    device, num_bytes = next(sync.module.parameters()).device, 0
    for batch in images:
        _loss(sync.module, batch.to(device)).backward()
        num_bytes += sum(sync.step().bytes_sent.values())
    sync.flush()
    return num_bytes


def _is_everyones(numbers: torch.Tensor) -> bool:
    """Whether all ranks have the same ones."""
    everyones = [torch.empty_like(numbers) for _ in range(WORLD_SIZE)]
    dist.all_gather(everyones, numbers)
    return all(torch.equal(numbers, theirs) for theirs in everyones)


def _seeded(number: str, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * int(number) + step)


def _network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.Tanh(), nn.Flatten(), nn.Linear(3136, 37))
    return nn.Sequential(*layers, nn.Tanh(), nn.Linear(37, 10))


def _loss(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(module(images), torch.arange(len(images), device=images.device) % 10)


def _weights(model: nn.Module) -> torch.Tensor:
    """All parameters in a row, on the CPU."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).cpu()
