"""What the sections of `check` share: the run they belong to, what they find, images on a device, timing."""

import json
import statistics
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from augpipe import Loader, Plan, Recipe, ops, policies, recipes
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.gpu_ops.image.cuda import launch
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.mixing_draws import mix_jobs
from augpipe.planning.output_format import OutputFormat
from augpipe.trainer import codecs
from augpipe.trainer.strategies import build_strategy

SPIN_CYCLES = 100_000_000
"""For `torch.cuda._sleep`, about 50 ms: the host queues its work meanwhile, and gaps between launches are not timed."""
MAX_SPIN_CYCLES = 1 << 30
"""About half a second: what is not ahead then never is."""
OPTIONAL = ("nvidia", "nvidia.dali", "kornia", "pytest", "hypothesis", "scipy")
"""Packages that may be missing: what needs one is then not run. Any other error of an import is an error."""
NO_DEVICE = "it needs a device"
ALLOWED_LEVELS = 1.0
"""How far CPU and CUDA may be apart."""

Answers = dict[str, Callable[["Findings"], None]]
"""By name, what finds something."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the script, as each section sees it."""

    photographs: Path
    """A flat folder of JPEG files."""
    origin: str
    """What they are, in words."""
    work: Path
    """A folder for sections' own files."""
    is_simulated: bool
    """Whether numba's CUDA simulator stands in for a device: sizes are tiny and nothing is timed."""

    def pick(self, full: Any, tiny: Any) -> Any:
        """A size: the one to measure with, or one that the simulator gets through."""
        return tiny if self.is_simulated else full

    @property
    def device(self) -> torch.device:
        """Where tensors lie."""
        return torch.device("cpu") if self.is_simulated else torch.device("cuda", 0)

    def encoded(self) -> list[bytes]:
        """The files' contents, by name."""
        return [file.read_bytes() for file in sorted(self.photographs.iterdir())]

    def many(self, num: int, classes: Sequence[str] = (".",)) -> Path:
        """A folder of `num` files, flat or by classes: the images again and again, as hard links."""
        folder, files = self.work / f"{num}-files-{len(classes)}", sorted(self.photographs.iterdir())
        for number in range(0 if folder.exists() else num):
            file = folder / classes[number % len(classes)] / f"{number:06}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.hardlink_to(files[number % len(files)])
        return folder


NO_FILES = Run(photographs=Path(), origin="", work=Path(), is_simulated=IS_SIMULATED)
"""For answers' names, and for what looks at kernels alone."""


class Findings:
    """What a section found, written to a file at each step: a run that is killed leaves what it had."""

    def __init__(self, into: Path) -> None:
        self._into = into  # which holds what an earlier process found, if there was one
        self._found: dict[str, dict[str, Any]] = {"measured": {}, "checks": {}, "not_run": {}, "errors": {}}
        if into.is_file():
            self._found = json.loads(into.read_text())
        self.num_said, self._failed = 0, list[str]()

    def outcome(self, answer: str) -> dict[str, str]:
        """What became of an answer that is over: "error", "not run", "wrong" where a check failed, "ran"; and why."""
        failed, self._failed = self._failed, []
        if answer in self._found["errors"]:
            return {"outcome": "error", "reason": self._found["errors"][answer][-1]}
        if answer in self._found["not_run"]:
            return {"outcome": "not run", "reason": self._found["not_run"][answer]}
        return {"outcome": "wrong" if failed else "ran", "reason": "; ".join(failed)}

    def keep(self, name: str, value: Any) -> None:
        """A figure, or several by name."""
        self._found["measured"][name] = value
        self._write()

    def check(self, name: str, passed: bool, detail: Any = None) -> None:
        """Something that must be so."""
        self._found["checks"][name] = {"passed": bool(passed)} | ({} if detail is None else {"detail": detail})
        self._failed += [] if passed else [f"{name}: {detail}"]
        self._write()

    def leave_out(self, name: str, reason: str) -> None:
        """Something that was not run here; under its answer's name, the whole answer."""
        self._found["not_run"][name] = reason
        self._write()

    def fail(self, name: str, lines: list[str]) -> None:
        """An error, in lines of which the last one says what it is."""
        self._found["errors"][name] = lines
        self._failed.append(f"{name}: {lines[-1]}")
        self._write()

    @contextmanager
    def attempt(self, name: str, *, is_others: bool = False) -> Generator[None, None, None]:
        """A part that may fail without ending the section: other people's is then not run, ours is an error.

        Where one of the `OPTIONAL` packages is missing, either is not run.
        """
        try:
            yield
        except Exception as error:
            causes = [cause for cause in (error, error.__cause__) if isinstance(cause, ModuleNotFoundError)]
            missing = [cause.name for cause in causes if cause.name in OPTIONAL]
            if missing:
                self.leave_out(name, f"{missing[0]} is not installed")
            elif is_others:
                self.leave_out(name, f"{type(error).__name__}: {error}"[:500])
            else:
                self.fail(name, traceback.format_exc().splitlines()[-30:])

    def _write(self) -> None:
        self.num_said += 1
        part = self._into.with_suffix(".part")
        part.write_text(json.dumps(self._found))
        part.replace(self._into)


class OnDevice:
    """Images in device memory, of (H, W, 1, 3 or 4) uint8, and a renderer for the plans of a recipe."""

    def __init__(self, run: Run, photographs: Sequence[np.ndarray], recipe: Recipe, form: OutputFormat) -> None:
        self.tensors = [torch.from_numpy(np.ascontiguousarray(image)).to(run.device) for image in photographs]
        rows = [(t.data_ptr(), t.shape[1], 0, 0, t.shape[2]) for t in self.tensors]
        self.table = np.array(rows, np.int64).reshape(-1, 5)
        self.renderer = DeviceRenderer(run.device, recipe, form)

    def render(self, plan: Plan) -> list[torch.Tensor]:
        """The images of each view, on the device; of a recipe that mixes, with those whose ids are their places."""
        tables = [kernel_rows(rows) for rows in plan.views]
        sizes = [(int(rows["out_height"][0]), int(rows["out_width"][0])) for rows in plan.views]
        mixing = plan.recipe.mixing
        jobs = [mix_jobs(rows, mixing, rows["mixing"]["partner"]) for rows in plan.views if mixing]
        return self.renderer.render(self.table, tables, sizes, self.tensors, plan.sample_ids, jobs)

    def render_rows(self, rows: np.ndarray, *, size: tuple[int, int]) -> np.ndarray:
        """(B, 3, H, W) float32 of (B,) kernel rows, on the host."""
        (images,) = self.renderer.render(self.table, [rows], [size], self.tensors, np.arange(len(rows)))
        return images.cpu().numpy()


def on_device(run: Run, answers: Answers) -> Answers:
    """The answers; where numba's simulator stands in for a device, in vain, they are left out."""
    left_out = {name: partial(Findings.leave_out, name=name, reason=NO_DEVICE) for name in answers}
    return dict(left_out) if run.is_simulated else answers


def form(dtype: str = "float32", layout: str = "NCHW") -> OutputFormat:
    """Torch tensors of a number type and layout."""
    return OutputFormat(dtype=dtype, layout=layout, framework="torch")


def pixels_agree(
    found: torch.Tensor, expected: torch.Tensor, recipe: Recipe, rounding: float = 0.0
) -> tuple[bool, dict[str, float]]:
    """Whether what CUDA `found` for a recipe without tables is what the CPU `expected`, and how far they are apart.

    `rounding` is what a number may be off by, in levels, on top of `ALLOWED_LEVELS`.
    """
    stds = [255.0 * max(op.std) for view in recipe.all_views for op in view.ops if op.op == "normalize"]
    apart = (found.cpu().double() - expected.cpu().double()).abs() * (stds[0] if stds else 1.0)
    figures = {"greatest_levels": round(float(apart.max()), 6), "mean_levels": round(float(apart.mean()), 8)}
    is_alike = found.shape == expected.shape and found.stride() == expected.stride()
    return is_alike and bool((apart <= ALLOWED_LEVELS + rounding).all()), figures  # not of NaN


def kernels_made() -> dict[str, int]:
    """How many variants of each kernel of images this process has compiled or loaded."""
    made = {"fused": launch._compiled_fused, "finish": launch._compiled_finish, "mix": launch._compiled_mix}
    made |= {"filter": launch._compiled_filter, "labels": launch._compiled_labels, "pack_rgbx": launch._compiled_pack}
    return {kind: of.cache_info().currsize for kind, of in made.items()}


def registered() -> dict[str, list[str]]:
    """What there is to be covered, by name."""
    kinds = [
        getattr(ops, name) for name in ops.__all__ if name not in ("Op", "Custom", "KeepObjects", "Mosaic", "CopyPaste")
    ]
    found = {"op": [kind.model_fields["op"].default for kind in kinds], "policy": policies.__all__}
    found |= {"codec": codecs.names(), "strategy": build_strategy.NAMES}
    return {kind: sorted(names) for kind, names in found.items()}


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Least, median and most, and how many there were."""
    found = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: round(value, digits) for name, value in found.items()} | {"times": len(values)}


def is_on_cuda() -> bool:
    """False in the simulator."""
    return not IS_SIMULATED


def is_usable() -> bool:
    """Whether the CUDA context, where there is one, has come through without an error that stays."""
    try:
        if is_on_cuda() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def synchronize() -> None:
    """Wait for the device."""
    if is_on_cuda():
        torch.cuda.synchronize()


def stream_number() -> int:
    """The current stream as a `cudaStream_t`."""
    return torch.cuda.current_stream().cuda_stream if is_on_cuda() else 0


def event_seconds(work: Callable[[int], Any], times: int, rounds: int = 3, warm_up: int = 3) -> list[float]:
    """Seconds a call of `work(i)` that the device spends, `times` calls between two events, one figure a round.

    The calls are queued behind a spin, so that the host is ahead and only the device's own time is seen; where the
    spin was over too early, all is done again behind a longer one. Work that itself waits for the device, or that the
    host cannot keep ahead of, is timed with its gaps.
    """
    if not is_on_cuda():
        return wall_seconds(work, 2, 0)
    for turn in range(warm_up):
        work(turn)
    seconds: list[float] = []
    cycles = SPIN_CYCLES
    while len(seconds) < rounds:
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(cycles)
        begin.record()
        for turn in range(times):
            work(turn)
        end.record()
        was_ahead = not begin.query()
        torch.cuda.synchronize()
        if was_ahead or cycles >= MAX_SPIN_CYCLES:
            seconds.append(begin.elapsed_time(end) / 1e3 / times)
        else:
            cycles *= 4
    return seconds


def wall_seconds(work: Callable[[int], Any], times: int, warm_up: int = 3) -> list[float]:
    """Seconds of each of `times` calls `work(i)` by the host's clock, the device waited for after each."""
    seconds = []
    for turn in range(-warm_up, times):
        begin = time.perf_counter()
        work(turn)
        synchronize()
        if turn >= 0:
            seconds.append(time.perf_counter() - begin)
    return seconds


def copy_bandwidth(num_bytes: int = 4 << 30, times: int = 20) -> dict[str, Any]:
    """Bytes a second of a device-to-device copy, those read and those written counted."""
    device = "cuda" if is_on_cuda() else "cpu"
    num_bytes = min(num_bytes, torch.cuda.mem_get_info()[0] // 4) if is_on_cuda() else 1 << 16
    source = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = event_seconds(lambda _: target.copy_(source), times)
    return {
        "what": f"copy_ of {num_bytes / 2**30:.2f} GiB, bytes read and written",
        "bytes_per_second": round(2 * num_bytes / statistics.median(seconds)),
        "milliseconds": spread([value * 1e3 for value in seconds]),
    }


def decoded(run: Run, num: int) -> list[np.ndarray]:
    """The first images as (H, W, 4) RGBX."""
    return [decode(data, probe(data, max_pixels=MAX_PIXELS)).copy() for data in run.encoded()[:num]]


def make_loader(run: Run, folder: Path, batch_size: int, **options: Any) -> Loader:
    """A loader for the device: deep_image, float16."""
    recipe = run.pick(recipes.deep_image(), recipes.deep_image(6, (7, 12)))
    return Loader(folder, recipe, batch_size=batch_size, device="cuda", **({"dtype": "float16"} | options))
