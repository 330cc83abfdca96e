"""Section of `gpu_check`: what a ResNet-50 training step waits for data, with the cache full and from JPEG files.

A step is forward, backward and SGD in bfloat16 autocast, channels_last. The same number of steps is run on one batch
that stays on the device, and on a loader's batches, in turn: the difference is what the data cost, waiting and the
augmentation's own time on the device together.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from gpu_common import Findings, Run, spread, synchronize
from gpu_loader import make_loader
from gpu_resnet import resnet50

ROUNDS = 3
GIB = 1 << 30


def run(run: Run, findings: Findings) -> None:
    device = run.device
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = resnet50().to(device, memory_format=torch.channels_last)
    findings.check("the model has ResNet-50's weights", sum(p.numel() for p in model.parameters()) == 25_557_032)
    batch_size, num_steps = _batch_size(run), run.pick(40, 2)
    step = _stepper(model, batch_size, device)
    side = run.pick(224, 32)
    fixed = torch.randn(batch_size, 3, side, side, device=device, dtype=torch.float16)
    fixed = fixed.contiguous(memory_format=torch.channels_last)
    for _ in range(run.pick(8, 1)):
        step(fixed)
    synchronize()
    folder = run.many(batch_size * num_steps)
    for name, options in {
        "the cache full, dali": {"backend": "dali", "cache": "device"},
        "the cache full, native": {"backend": "native", "cache": "device"},
        "from JPEG files, dali": {"backend": "dali"},
    }.items():
        with findings.attempt(name):
            loader = make_loader(run, folder, batch_size, layout="channels_last", **options)
            for _ in range(2 if "cache" in options else 1):
                for _ in loader:
                    pass
            synchronize()
            findings.keep(name, _compared(step, fixed, loader, num_steps, run.pick(ROUNDS, 1)) | {"batch": batch_size})
            del loader


def _batch_size(run: Run) -> int:
    if run.is_simulated:
        return 2
    total = torch.cuda.mem_get_info()[1]
    return 256 if total > 40 * GIB else 128 if total > 20 * GIB else 32


def _stepper(model: torch.nn.Module, batch_size: int, device: torch.device) -> Callable[[torch.Tensor], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    labels = torch.randint(0, 1000, (batch_size,), device=device)

    def step(images: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def _compared(
    step: Callable[[torch.Tensor], None], fixed: torch.Tensor, loader: Any, num_steps: int, rounds: int
) -> dict[str, Any]:
    alone, fed = [], []
    waits: list[float] = []
    for _ in range(rounds):
        alone.append(_per_step(step, (fixed for _ in range(num_steps)), num_steps, []))
        fed.append(_per_step(step, (batch.images for batch in loader), num_steps, waits))
    more = [f / a - 1 for f, a in zip(fed, alone, strict=True)]
    return {
        "step_alone_ms": spread([value * 1e3 for value in alone]),
        "step_with_loader_ms": spread([value * 1e3 for value in fed]),
        "longer_by_fraction_of_step (goal: under 0.01)": spread(more),
        "host_in_next_ms": spread([value * 1e3 for value in waits]),
        "images_per_second_with_loader": round(len(fixed) / statistics.median(fed), 1),
        "steps_a_round": num_steps,
    }


def _per_step(
    step: Callable[[torch.Tensor], None], batches: Iterable[torch.Tensor], num_steps: int, waits: list[float]
) -> float:
    """Seconds a step of a whole pass; how long each batch took to be handed out is added to `waits`."""
    synchronize()
    iterator, num = iter(batches), 0
    begin = asked = time.perf_counter()
    for images in iterator:
        waits.append(time.perf_counter() - asked)
        step(images)
        num += 1
        asked = time.perf_counter()
    synchronize()
    assert num == num_steps
    return (time.perf_counter() - begin) / num
