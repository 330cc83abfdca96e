"""Section of `check`: `augpipe train` on CUDA: a step's rate, launches and waits; evaluation; repeated runs.

Each run is one of the loop that the command calls, in a folder of its own, on the images as a folder of two classes.
Steps are timed by the host's clock from one's end, where its loss has been read, to the next one's. The last steps go
through torch's profiler and are not timed.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.evaluation.trained_run import open_run
from augpipe.trainer.loop import run as train
from augpipe.trainer.loop.data import evaluation_loader
from augpipe.trainer.loop.evaluate import evaluate
from augpipe.trainer.loop.step import Step, StepResult
from augpipe.trainer.loop.world import open_world
from benchmarks.gpu.common import Findings, Run, synchronize

SKIPPED, NUM_STEPS, NUM_PROFILED = 8, 20, 3
"""Steps that are not counted, those that are, and the profiler's after them."""
GIB = 1 << 30
RESNET_50: dict[str, Any] = {
    "model": {"name": "resnet-50", "num_classes": 1000, "channels_last": True},
    "optim": {"name": "sgd", "lr": 1e-4, "amp": "bf16"},
}
CASES: dict[str, dict[str, Any]] = {
    "resnet-50, bf16, channels_last": RESNET_50,
    "resnet-18, fp16": {"model": {"name": "resnet-18"}, "optim": {"amp": "fp16"}},
}
REPEATED: dict[str, Any] = {
    "model": {"name": "resnet-18", "channels_last": True},
    "optim": {"amp": "bf16"},
    "data": {"size": 96, "scales": (112,), "batch_size": 64, "backend": "native"},
}
WAITS = ("Synchronize", "cudaMemcpy", "cudaEventQuery", "cudaFree", "cudaMalloc", "cudaHostAlloc")
"""Parts of names of CUDA's calls in which the host may wait."""


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """Rates first; then evaluation of what the first one has trained; then runs that must come out alike."""
    found: dict[str, Callable[[Findings], Any]] = {name: partial(_rates, run, name) for name in CASES}
    return found | {"evaluation": partial(_evaluation, run), "deterministic and resumed": partial(_repeated, run)}


def run_config(run: Run, out: str, num_steps: int, case: dict[str, Any], **more: Any) -> RunConfig:
    """The config of a run in a folder, of so many steps, and what else it is beyond the defaults."""
    total = 0 if run.is_simulated else torch.cuda.mem_get_info()[1]
    batch_size = run.pick(256 if total > 40 * GIB else 64, 2)
    data = {"source": str(run.many(run.pick(11_000, 50), "ab")), "batch_size": batch_size}
    tiny: dict[str, Any] = {"data": {"size": 16, "scales": (18,)}, "model": {"name": "small-cnn"}, "optim": {}}
    chosen = run.pick(case, tiny)
    tables: dict[str, Any] = {
        "out": str(run.work / "runs" / out),
        "device": run.pick("cuda", "cpu"),
        "max_steps": num_steps,
        "checkpoint": {"every_epochs": 0},
        "report": {"progress": False, "tensorboard": False},
        "data": data | {"eval_fraction": 0.2} | chosen.get("data", {}),
    }
    return RunConfig.model_validate(tables | {name: chosen.get(name, {}) for name in ("model", "optim")} | more)


class Watch:
    """What the loop's steps did, one by one, and the last ones in the profiler."""

    def __init__(self, num: int, num_profiled: int = 0) -> None:
        self.steps: list[Step] = []
        self.results: list[StepResult] = []
        self.ends: list[float] = []
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        self.profile = profile(activities=activities)
        self._first, self._last = num - num_profiled, num

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around a run."""
        as_it_is = Step.run

        def watched(step: Step, *given: Any, **named: Any) -> StepResult:
            if len(self.results) == self._first < self._last:
                synchronize()
                self.profile.start()
            result = as_it_is(step, *given, **named)
            self.steps.append(step)
            self.results.append(result)
            self.ends.append(time.perf_counter())
            if len(self.results) == self._last > self._first:
                synchronize()
                self.profile.stop()
            return result

        Step.run = watched  # type: ignore[method-assign]
        try:
            yield
        finally:
            Step.run = as_it_is  # type: ignore[method-assign]

    def profiled(self) -> dict[str, Any]:
        """Of one step: launches, kernels and what they take, and where the host was in CUDA's hands."""
        num, rows = self._last - self._first, self.profile.key_averages()
        on_device = [row for row in rows if row.device_type != DeviceType.CPU]
        on_device = [row for row in on_device if not getattr(row, "is_user_annotation", False)]
        kernels = [row for row in on_device if not row.key.startswith(("Memcpy", "Memset"))]
        copies = {row.key: round(row.count / num, 1) for row in on_device if row.key.startswith("Memcpy")}
        calls = [row for row in rows if row.device_type == DeviceType.CPU and row.key.startswith("cu")]
        waits = [row for row in calls if any(part in row.key for part in WAITS)]
        return {
            "operators": round(sum(row.count for row in rows if row.key.startswith("aten::")) / num),
            "launches": round(sum(row.count for row in calls if "Launch" in row.key) / num),
            "kernels": round(sum(row.count for row in kernels) / num),
            "kernels_ms": round(sum(row.self_device_time_total for row in kernels) / num / 1e3, 3),
            "copies": copies,
            "waits (times, ms)": {
                row.key: [round(row.count / num, 1), round(row.self_cpu_time_total / num / 1e3, 3)] for row in waits
            },
        }


def _rates(run: Run, name: str, findings: Findings) -> None:
    skipped, num, num_profiled = run.pick((SKIPPED, NUM_STEPS, NUM_PROFILED), (1, 2, 1))
    watch = Watch(skipped + num + num_profiled, num_profiled)
    config = run_config(run, name.replace(", ", "-"), skipped + num + num_profiled, CASES[name])
    with watch.watching():
        train(config)
    ends, counted = watch.ends[skipped - 1 : skipped + num], watch.results[skipped : skipped + num]
    seconds = [end - begin for begin, end in pairwise(ends)]
    found: dict[str, Any] = {
        "images_per_second": round(sum(result.num_samples for result in counted) / sum(seconds), 1),
        "step_ms": {"median": round(statistics.median(seconds) * 1e3, 3), "max": round(max(seconds) * 1e3, 3)},
        "waits_for_batches_ms": round(statistics.median(result.data_s for result in counted) * 1e3, 3),
        "batch_size": config.data.batch_size,
        "steps": len(counted),
    }
    findings.keep(name, found)
    not_finite = [number for number, result in enumerate(watch.results, 1) if not result.is_finite]
    findings.check(f"{name}: every loss is finite", not not_finite, f"not in steps {not_finite}")
    with findings.attempt(f"{name}: a step in the profiler", is_others=True):
        profiled = watch.profiled()
        busy = {} if run.is_simulated else {"gpu_busy": round(profiled["kernels_ms"] / found["step_ms"]["median"], 3)}
        findings.keep(f"{name}: a step in the profiler", profiled | busy)


def _evaluation(run: Run, findings: Findings) -> None:
    """The whole of the held-out images, twice: the first time starts threads and builds kernels."""
    name, case = next(iter(CASES.items()))
    config = run_config(run, name.replace(", ", "-"), 1, case)
    if not Path(config.out).exists():
        train(config)
    with open_world(config.device, 60.0) as world:
        trained = open_run(config.out, world)
        model, held_out = trained.load_network(), trained.held_out()
        loader, seconds = evaluation_loader(trained.config, held_out, world), []
        for _ in range(2):
            begin = time.perf_counter()
            found = evaluate(trained.config, world, model, loader)
            seconds.append(time.perf_counter() - begin)
    rates = [round(found.num_samples / value, 1) for value in seconds]
    findings.keep("evaluation", {"images": found.num_samples, "images_per_second": rates})
    findings.check("evaluation: each image once", found.num_samples == len(held_out), found.num_samples)


def _repeated(run: Run, findings: Findings) -> None:
    """Twice the same run with `deterministic`, and once with a stop in the middle."""
    num, weights = run.pick(8, 4), {}
    try:
        for name, stops in (("first", (num,)), ("second", (num,)), ("resumed", (num // 2, num))):
            for stop in stops:
                config = run_config(run, f"repeated-{name}", stop, REPEATED, deterministic=True)
                reached = train(config).step
            assert reached == num
            with open_world(config.device, 60.0) as world:
                state = open_run(config.out, world).load_network().state_dict()
            weights[name] = torch.cat([value.detach().double().reshape(-1).cpu() for value in state.values()])
    finally:
        torch.use_deterministic_algorithms(False)  # what comes after is to run as usual
    for name, what in (("second", "twice the same run"), ("resumed", "a run that was stopped and went on")):
        apart = int((weights[name] != weights["first"]).sum())
        detail = f"{apart} of {len(weights[name])} numbers differ"
        findings.check(f"deterministic: {what} has the same weights bit by bit", apart == 0, detail)
