"""Section of `gpu_check`: two ranks on one GPU, over Gloo, with CUDA tensors: butterfly and lazy beside torch's DDP."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from gpu_common import Findings, Run, is_on_cuda
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer import strategy

WORLD_SIZE, NUM_STEPS, BATCH_SIZE = 2, 20, 32
BUCKET_BYTES = 1 << 16
"""Several buckets, with parameters cut between them."""
CASES = (("butterfly", "fp32"), ("lazy", "fp32"), ("butterfly", "dynamic-tree"), ("lazy", "dynamic-tree"))
CASES += (("butterfly", "one-bit"),)
FAR = 0.1
"""How far weights that an 8-bit codec brought about may be from DDP's, relative to the way that those have gone."""


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """One, by a pair of processes."""
    return {"two ranks": partial(_two_ranks, run)}


def _two_ranks(run: Run, findings: Findings) -> None:
    code = "import sys, gpu_check; gpu_check.as_installed(); import gpu_ranks; gpu_ranks.rank(*sys.argv[1:])"
    outs = [run.work / f"rank-{number}.json" for number in range(WORLD_SIZE)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number), str(run.work / "meeting"), str(out)],
            cwd=Path(__file__).parent,
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
    findings.check("two ranks train", not any(process.returncode for process in processes), said)
    for words, found in json.loads(outs[0].read_text()).items():
        findings.keep(words, found)
        findings.check(f"{words}: the same weights on both ranks bit by bit", found["same_on_all_ranks"])
        if words.endswith("fp32"):
            findings.check(f"{words}: DDP's weights bit by bit", found["equals_ddp"], found)
        elif not words.endswith("one-bit"):
            findings.check(f"{words}: near DDP's weights", found["far_from_ddp"] < FAR, found)


def rank(number: str, meeting: str, out: str) -> None:
    """One rank: DDP first, then each strategy, from the same weights and with the same images."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(number), world_size=WORLD_SIZE)
    device = torch.device("cuda", 0) if is_on_cuda() else torch.device("cpu")
    torch.backends.cudnn.deterministic = True
    images = [torch.randn(BATCH_SIZE, 3, 16, 16, generator=_seeded(number, step)) for step in range(NUM_STEPS)]
    model = _network().to(device)
    start, module = _weights(model), DistributedDataParallel(model)
    update = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in images:
        _loss(module, batch.to(device)).backward()
        update.step()
        update.zero_grad()
    expected, found = _weights(model), {}
    for name, codec in CASES:
        model = _network().to(device)
        sync = strategy(
            name,  # type: ignore[arg-type]
            model,
            lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
            codec=codec,
            error_feedback=codec == "one-bit",
            bucket_bytes=BUCKET_BYTES,
            timeout_s=30,
        )
        num_bytes = 0
        for batch in images:
            _loss(sync.module, batch.to(device)).backward()
            num_bytes += sum(sync.step().bytes_sent.values())
        sync.flush()
        ours = _weights(model)
        everyones = [torch.empty_like(ours) for _ in range(WORLD_SIZE)]
        dist.all_gather(everyones, ours)
        found[f"{name}, {codec}"] = {
            "same_on_all_ranks": all(torch.equal(ours, theirs) for theirs in everyones),
            "equals_ddp": torch.equal(ours, expected),
            "far_from_ddp": float((ours - expected).norm() / (expected - start).norm()),
            "bytes_sent_a_step": num_bytes // NUM_STEPS,
        }
        sync.close()
    if int(number) == 0:
        Path(out).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


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
