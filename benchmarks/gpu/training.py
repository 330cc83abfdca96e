"""Section of `check`: what the GPU waits for between the trainer's ResNet-50 steps, fed from cache, DALI and files.

The step is the one of `augpipe train`: forward, backward and SGD in bfloat16 autocast, channels_last, with all that it
reads back. Events are recorded on its stream where a batch is handed over and where the optimizer's work ends: between
one's end and the next one's begin the GPU had nothing to do but the step's few sums, for want of images or because the
host had not queued more. The same on one batch that stays on the device is the least that there can be: what is longer
is the loader's. What the loader's own kernels take from a step shows in its length.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import islice, repeat
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from augpipe import Batch
from augpipe.trainer.loop import run as train
from augpipe.trainer.loop.step import UpdateBatches
from benchmarks.gpu.common import Findings, Run, make_loader, synchronize
from benchmarks.gpu.trainer import RESNET_50, Watch, run_config

ROUNDS = 2
NUM_STEPS, SKIPPED = 16, 4
"""Steps of a round, and how many of the first are not counted."""
FED: dict[str, dict[str, Any]] = {
    "from the device cache": {"backend": "dali", "cache": "device"},
    "from DALI": {"backend": "dali"},
    "from files, native": {"backend": "native"},
}


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """Alone at first; each of the others next to that again."""
    return {"alone": partial(_alone, run)} | {name: partial(_fed, run, name) for name in FED}


class Trainer:
    """The step of a run of the trainer that has made one, and a batch that stays on the device."""

    def __init__(self, run: Run) -> None:
        for_few_pixels = run.pick({}, {"model": {"name": "resnet-18"}})
        config, watch = run_config(run, "waits", 1, RESNET_50, **for_few_pixels), Watch(1)
        with watch.watching():
            train(config)
        (self._step,) = watch.steps
        num, side = config.data.batch_size, run.pick(224, 6)
        self._run, self._update = run, UpdateBatches(num_batches=1, num_samples=num)
        self._begins, self._ends = [], []
        images = torch.randn(num, 3, side, side, device=run.device).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(0, 2, (num,), device=run.device)
        self.fixed = Batch(images=images, labels=labels, sample_ids=np.arange(num), plan=None)  # type: ignore[arg-type]
        self.round(repeat(self.fixed), run.pick(8, 4))

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if len(optimizer.param_groups[0]["params"]) > 1:  # a scaler may be shown an optimizer of one weight
            self._ends.append(_mark(self._run))

    def round(self, batches: Iterable[Batch], num: int) -> tuple[float, float]:
        """Seconds a step, from one's begin to the next one's, and the part of them that the GPU waited."""
        begins, ends = self._begins, self._ends
        del begins[:], ends[:]
        synchronize()
        handed, hook = self._handed(islice(batches, num)), register_optimizer_step_post_hook(self._stepped)
        for _ in range(num):
            self._step.run(handed, self._update)
        synchronize()
        hook.remove()
        assert len(begins) == len(ends) == num, "a step was left out, as its gradients were not finite"
        first = self._run.pick(SKIPPED, 0)
        whole = _between(begins[first], begins[-1])
        waits = sum(_between(end, begin) for end, begin in zip(ends[first:], begins[first + 1 :], strict=False))
        return whole / (num - 1 - first), waits / whole

    def _handed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._begins.append(_mark(self._run))
            yield replace(batch, labels=self.fixed.labels)  # a flat folder has none


@cache
def _trainer(run: Run) -> Trainer:
    return Trainer(run)


def _alone(run: Run, findings: Findings) -> None:
    trainer = _trainer(run)
    num = run.pick(NUM_STEPS, 3)
    found = [trainer.round(repeat(trainer.fixed), num) for _ in range(run.pick(ROUNDS, 1))]
    findings.keep("the step alone", _told(found, len(trainer.fixed)))


def _fed(run: Run, name: str, findings: Findings) -> None:
    trainer = _trainer(run)
    num, batch_size = run.pick(NUM_STEPS, 3), len(trainer.fixed)
    folder = run.many(batch_size * num)
    loader = make_loader(run, folder, batch_size, layout="channels_last", dtype="float32", **FED[name])
    for _ in range(2 if "cache" in FED[name] else 0):
        for _ in loader:
            pass
    alone, fed = [], []
    for _ in range(run.pick(ROUNDS, 1)):
        alone.append(trainer.round(repeat(trainer.fixed), num))
        fed.append(trainer.round(loader, num))
    longer = statistics.median(f[0] / a[0] - 1 for f, a in zip(fed, alone, strict=True))
    more = statistics.median(f[1] - a[1] for f, a in zip(fed, alone, strict=True))
    goal = " (goal: waits under 0.005 of a step more than alone)" if "cache" in name else ""
    found = {"longer_than_alone_by": round(longer, 5), "waits_more_than_alone_by": round(more, 5)}
    findings.keep(f"{name}{goal}", _told(fed, batch_size) | found)


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
