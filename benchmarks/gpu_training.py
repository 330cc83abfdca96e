"""Section of `gpu_check`: what the GPU waits for between ResNet-50's training steps, fed from cache, DALI and files.

A step is forward, backward and SGD in bfloat16 autocast, channels_last. Events are recorded where a step begins and
where it ends, on the stream that it runs on: between one's end and the next one's begin the GPU had nothing to do
there, for want of images or because the host had not queued more. The same on one batch that stays on the device is the
least that there can be. What the loader's own kernels take from a step shows in its length.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import islice, repeat
from typing import Any

import torch
from gpu_common import Findings, Run, make_loader, synchronize
from torch import nn

ROUNDS = 3
NUM_STEPS, SKIPPED = 40, 4
"""Steps of a round, and how many of the first are not counted."""
GIB = 1 << 30
FED: dict[str, dict[str, Any]] = {
    "from the device cache": {"backend": "dali", "cache": "device"},
    "from DALI": {"backend": "dali"},
    "from files, native": {"backend": "native"},
}
Step = Callable[[torch.Tensor], None]

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels within a stage's blocks, blocks, stride of the first one."""

EXPANSION = 4


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """Alone at first; each of the others beside that again."""
    return {"alone": partial(_alone, run)} | {name: partial(_fed, run, name) for name in FED}


@cache
def _step(run: Run) -> tuple[Step, torch.Tensor]:
    """A training step of images, and a batch that stays on the device."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in resnet(STAGES).parameters()) == 25_557_032  # ResNet-50's
    model = resnet(run.pick(STAGES, ((4, 1, 1),))).to(run.device, memory_format=torch.channels_last)
    total = 0 if run.is_simulated else torch.cuda.mem_get_info()[1]
    batch_size, side = run.pick(256 if total > 40 * GIB else 64, 2), run.pick(224, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    labels = torch.randint(0, 1000, (batch_size,), device=run.device)
    fixed = torch.randn(batch_size, 3, side, side, device=run.device, dtype=torch.float16)
    fixed = fixed.contiguous(memory_format=torch.channels_last)

    def step(images: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(run.device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    for _ in range(run.pick(8, 1)):
        step(fixed)
    return step, fixed


def _alone(run: Run, findings: Findings) -> None:
    step, fixed = _step(run)
    num = run.pick(NUM_STEPS, 3)
    found = [_round(run, step, repeat(fixed), num) for _ in range(run.pick(ROUNDS, 1))]
    findings.keep("the step alone", _told(found, len(fixed)))


def _fed(run: Run, name: str, findings: Findings) -> None:
    step, fixed = _step(run)
    num = run.pick(NUM_STEPS, 3)
    folder = run.many(len(fixed) * num)
    loader = make_loader(run, folder, len(fixed), layout="channels_last", **FED[name])
    for _ in range(2 if "cache" in FED[name] else 0):
        for _ in loader:
            pass
    alone, fed = [], []
    for _ in range(run.pick(ROUNDS, 1)):
        alone.append(_round(run, step, repeat(fixed), num))
        fed.append(_round(run, step, (batch.images for batch in loader), num))
    longer = statistics.median(f[0] / a[0] - 1 for f, a in zip(fed, alone, strict=True))
    goal = " (goal: waits under 0.005 of a step)" if "cache" in name else ""
    findings.keep(f"{name}{goal}", _told(fed, len(fixed)) | {"longer_than_alone_by": round(longer, 5)})
    del loader


def _round(run: Run, step: Step, batches: Iterable[torch.Tensor], num: int) -> tuple[float, float]:
    """Seconds a step, from one's begin to the next one's, and the part of them that the GPU waited."""
    begins, ends = [], []
    synchronize()
    for images in islice(batches, num):
        begins.append(_mark(run))
        step(images)
        ends.append(_mark(run))
    synchronize()
    first = run.pick(SKIPPED, 0)
    whole = _between(begins[first], begins[-1])
    waits = sum(_between(end, begin) for end, begin in zip(ends[first:], begins[first + 1 :], strict=False))
    return whole / (num - 1 - first), waits / whole


def _mark(run: Run) -> Any:
    """Now: an event on the current stream; in the simulator the host's clock."""
    if run.is_simulated:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(begin: Any, end: Any) -> float:
    return end - begin if isinstance(begin, float) else float(begin.elapsed_time(end)) / 1e3


def _told(rounds: list[tuple[float, float]], batch_size: int) -> dict[str, Any]:
    seconds = statistics.median(found[0] for found in rounds)
    return {
        "step_ms": round(seconds * 1e3, 3),
        "images_per_second": round(batch_size / seconds, 1),
        "gpu_waits_share_of_a_step": round(statistics.median(found[1] for found in rounds), 5),
        "of_rounds": [round(found[1], 5) for found in rounds],
        "batch_size": batch_size,
    }


class Block(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a short cut."""

    def __init__(self, before: int, within: int, stride: int) -> None:
        super().__init__()
        after = within * EXPANSION
        self.body = nn.Sequential(
            *(nn.Conv2d(before, within, 1, bias=False), nn.BatchNorm2d(within), nn.ReLU(inplace=True)),
            *(nn.Conv2d(within, within, 3, stride, 1, bias=False), nn.BatchNorm2d(within), nn.ReLU(inplace=True)),
            *(nn.Conv2d(within, after, 1, bias=False), nn.BatchNorm2d(after)),
        )
        self.short_cut = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            if before != after or stride != 1
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short_cut(x))


def resnet(stages: tuple[tuple[int, int, int], ...], num_classes: int = 1000) -> nn.Module:
    """(B, 3, H, W) in, (B, num_classes) out; as in He et al., 2015, with the stride in the 3x3 convolution."""
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    ]
    before = 64
    for within, num_blocks, stride in stages:
        for number in range(num_blocks):
            layers.append(Block(before, within, stride if number == 0 else 1))
            before = within * EXPANSION
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))
    return nn.Sequential(*layers, *head)
