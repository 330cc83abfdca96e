"""Section of `check`: the fused kernel alone, next to the copy bandwidth, its floor and Kornia; then policies, ops
of levels, and mixing, which take further launches.

Batches lie in device memory, as a full cache holds them. The floor is the longer of two times: what the loop issues for
a pixel (`benchmarks/gpu/resources.py`, on sm_90) at one instruction a clock for each of a multiprocessor's 128 lanes,
and the bytes that must move at the bandwidth of a copy.
"""

import io
import statistics
import subprocess
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from augpipe import Recipe, ops, plan, policies, recipes
from augpipe.gpu_ops.image.cuda.launch import finish_batch, mix_batch, most_copied_bytes, render_batch
from augpipe.gpu_ops.image.mix import MIX_JOB
from augpipe.gpu_ops.image.program_rows import are_filters, first_parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.planning.kernel_rows import kernel_rows
from benchmarks.gpu.common import Findings, Run, copy_bandwidth, event_seconds, stream_number

NUM_SHAPES = 64
"""Different images; the others are their copies, in memory of their own."""
TIMES = 200
CASES = {
    "scale 256 from 256": ((256, 341), (256,)),
    "scale 512 from 375": ((375, 500), (512,)),
    "scale 256 from 375": ((375, 500), (256,)),
    "default mix from 375": ((375, 500), (256, 512)),
}
"""The images' height and width, and the scales that are drawn from."""
INSTRUCTIONS = {1: (100, 111), 2: (230, 241), 3: (274, 285), 4: (367, 378), 5: (1318, 1329)}
"""Issued for a pixel without and with a lens, by taps along an axis; 1 is bilinear. See docs/measured-gpu.md."""
LANES = 128
"""Instructions of single threads that a multiprocessor issues in a clock."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OPS = "AutoContrast", "Equalize", "Gamma", "Invert", "Posterize", "Sharpness", "Solarize", "SolarizeAdd"
SEVERAL_PASSES = {f"policy {name}": name for name in policies.__all__} | {"contrast about the mean": "Contrast"}
SEVERAL_PASSES |= {f"op {op}": op for op in (*OPS, "Noise", "Erase", "Hue")}
"""Recipes whose images take a second launch: each policy, and a crop with one op that every image goes through."""
TIMM = "rand-m9-mstd0.5-inc1"


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """The copy first: what follows is compared with it."""
    found: dict[str, Callable[[Findings], Any]] = {"copy": lambda findings: findings.keep("copy", _copy())}
    found |= {name: partial(_case, run, name) for name in CASES}
    found |= {name: partial(_several_passes, run, name) for name in SEVERAL_PASSES} | {"mixing": partial(_mixing, run)}
    return found | {"Kornia": partial(_kornia, run)}


@cache
def _copy() -> dict[str, Any]:
    return copy_bandwidth()


def _case(run: Run, name: str, findings: Findings) -> None:
    for lens in (True, False):
        for dtype in ("float16", "float32"):
            batches = _batches(run, name, lens, dtype)
            seconds = event_seconds(batches.launch, run.pick(TIMES, 2), warm_up=batches.num_batches)
            median, moved = statistics.median(seconds), batches.bytes_per_batch()
            per_second = sum(moved.values()) / median
            kept = {
                "ns_an_image": round(median / batches.batch_size * 1e9, 1),
                "ns_an_image_of_rounds": [round(value / batches.batch_size * 1e9, 1) for value in seconds],
                "images_per_second": round(batches.batch_size / median),
                "share_of_copy_bandwidth": round(per_second / _copy()["bytes_per_second"], 3),
                "bytes_an_image": {way: round(num / batches.batch_size) for way, num in moved.items()},
                "instructions_a_pixel": round(batches.instructions(), 1),
            }
            if not run.is_simulated:
                with findings.attempt("the floor", is_others=True):
                    kept["floor"] = _floor(batches, sum(moved.values()), median)
            findings.keep(f"{name}, {'lens' if lens else 'no lens'}, {dtype}", kept)
            del batches


def _floor(batches: "CachedBatches", num_bytes: int, seconds: float) -> dict[str, float]:
    """What an image takes at least, and how many times that it took."""
    clock_hz = _clock_hz()
    lanes = torch.cuda.get_device_properties(0).multi_processor_count * LANES
    issue = batches.instructions() * batches.height * batches.width / (lanes * clock_hz)
    memory = num_bytes / batches.batch_size / _copy()["bytes_per_second"]
    return {
        "issue_ns": round(issue * 1e9, 1),
        "memory_ns": round(memory * 1e9, 1),
        "clock_hz": clock_hz,
        "times_the_floor (goal: 1.25 for the default mix)": round(seconds / batches.batch_size / max(issue, memory), 3),
    }


def _several_passes(run: Run, name: str, findings: Findings) -> dict[str, Any]:
    """The launches of a batch, and of them the last one alone; float16."""
    kind, _, what = name.partition(" ")
    size, side = run.pick(((375, 500), 224), ((8, 10), 6))
    if kind == "policy":
        recipe = recipes.timm(TIMM, side) if what == "timm" else getattr(recipes, what)(size=side)
    else:
        what, always = SEVERAL_PASSES[name], {} if what in ("Gamma", "Hue") else {"p": 1.0}
        always |= {"about": "mean"} if what == "Contrast" else {}
        recipe = Recipe(ops=(ops.RandomResizedCrop(size=side), getattr(ops, what)(**always), ops.Normalize()))
    batches, times = CachedBatches(run, recipe, "float16", size), run.pick(TIMES // 4, 1)
    found: dict[str, Any] = {"batch_size": batches.batch_size}
    ways = {"all launches": batches.launch} | ({"the last one alone": batches.finish} if batches.takes_two else {})
    for way, work in ways.items():
        seconds = statistics.median(event_seconds(work, times, rounds=2, warm_up=batches.num_batches))
        found[f"ns_an_image, {way}"] = round(seconds / batches.batch_size * 1e9, 1)
    findings.keep(name, found)
    return {"covers": {"policy": [what]} if kind == "policy" else {"op": [op.op for op in recipe.ops]}}


def _mixing(run: Run, findings: Findings) -> dict[str, Any]:
    """A batch whose images are mixed in pairs, in place: over whole images, as MixUp, and in a half, as CutMix."""
    num, side = run.pick((256, 224), (2, 6))
    for held_as in ("float16", "float32"):
        batch = torch.ones((num, 3, side, side), dtype=getattr(torch, held_as), device=run.device)
        for name, right, weight in (("mix_up", side, 0.7), ("cut_mix", side // 2, 0.0)):
            jobs = np.zeros(num // 2, MIX_JOB)
            jobs["places"] = np.arange(num).reshape(-1, 2)
            jobs["weights"], jobs["regions"] = weight, (0, 0, right, side)
            table = torch.from_numpy(jobs.view(np.uint8).reshape(-1)).to(run.device)
            shape: dict[str, Any] = {"num_jobs": len(jobs), "height": side, "width": side, "planar": True}

            def mix(_: int, at: int = table.data_ptr(), to: int = batch.data_ptr(), shape: Any = shape) -> None:
                mix_batch(at, to, **shape, held_as=held_as, stream=stream_number())  # noqa: B023 - called at once

            seconds = statistics.median(event_seconds(mix, run.pick(TIMES // 4, 1), rounds=2))
            moved = 2 * batch.nbytes * right // side / seconds
            share = round(moved / _copy()["bytes_per_second"], 3)
            findings.keep(
                f"{name}, {held_as}",
                {"ns_an_image": round(seconds / num * 1e9, 1), "share_of_copy_bandwidth": share, "batch_size": num},
            )
    return {"covers": {"op": ["mix_up", "cut_mix"]}}


@cache
def _clock_hz() -> float:
    """The multiprocessors' highest clock; under load they may run below it."""
    command = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits", "-i", "0"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    return float(said.splitlines()[0]) * 1e6


def _batches(run: Run, name: str, lens: bool, dtype: str) -> "CachedBatches":
    size, scales = CASES[name]
    size, scales, side = run.pick((size, scales, 224), ((8, 10), (8, 12)[: len(scales)], 6))
    chain = recipes.deep_image(side, scales)
    steps = tuple(op for op in chain.ops if lens or op.op != "lens_distortion")
    return CachedBatches(run, Recipe(name="deep_image", ops=steps), dtype, size)


class CachedBatches:
    """Batches that take turns, so that the device's own cache is not what is measured.

    Args:
        run: which images.
        recipe: what is done to them; one view.
        dtype: of the images.
        size: height and width of a cached image.
    """

    def __init__(self, run: Run, recipe: Recipe, dtype: str, size: tuple[int, int]) -> None:
        self.recipe, self._held_as = recipe, dtype
        # together more images than the device's cache holds
        self.num_batches, self.batch_size = run.pick((8, 256), (2, 2))
        num = self.num_batches * self.batch_size
        images = torch.from_numpy(_resized(run, size)).to(run.device)
        self.photographs = images.repeat(-(-num // len(images)), 1, 1, 1)[:num].contiguous()
        self.order = np.random.default_rng(0).permutation(num).reshape(self.num_batches, self.batch_size)
        first, image_bytes = self.photographs.data_ptr(), size[0] * size[1] * 4
        self.tables, self.rows = [], []
        for number, ids in enumerate(self.order):
            made = plan(recipe, ids, sizes=[size] * len(ids), epoch=number)
            table = np.zeros((len(ids), 5), np.int64)
            table[:, 0], table[:, 1], table[:, 4] = first + ids * image_bytes, size[1], 4
            self.tables.append(table)
            self.rows.append(kernel_rows(made.rows))
        self.takes_two = self.rows[0].dtype != KERNEL_ROW
        self._uploaded = [
            [
                torch.from_numpy(np.ascontiguousarray(part).view(np.uint8).reshape(-1)).to(run.device)
                for part in (table, first_parts(rows), rows)
            ]
            for table, rows in zip(self.tables, self.rows, strict=True)
        ]
        self.height, self.width = (int(made.rows[name][0]) for name in ("out_height", "out_width"))
        shape = (self.batch_size, 3, self.height, self.width)
        # two, so that a batch's writes do not find the last one's in the device's cache
        self._outs = [torch.empty(shape, dtype=getattr(torch, dtype), device=run.device) for _ in range(2)]
        self._levels = torch.empty(shape if self.takes_two else 0, dtype=torch.float32, device=run.device)
        more = [rows["steps"] for rows in self.rows if self.takes_two]
        self._filters = any(map(are_filters, more))
        self._copied_bytes = max((most_copied_bytes(steps, self.height, self.width) for steps in more), default=0)
        self._copies = torch.empty(self.batch_size * self._copied_bytes, dtype=torch.uint8, device=run.device)

    def launch(self, turn: int) -> torch.Tensor:
        """Queue one batch: the kernels and nothing else."""
        pixels, rows, _ = self._uploaded[turn % self.num_batches]
        out = self._levels if self.takes_two else self._outs[turn % 2]
        render_batch(
            pixels.data_ptr(),
            rows.data_ptr(),
            out.data_ptr(),
            **self._shape,
            held_as="float32" if self.takes_two else self._held_as,
            stream=stream_number(),
        )
        return self.finish(turn) if self.takes_two else out

    def finish(self, turn: int) -> torch.Tensor:
        """Queue what follows in a recipe of several passes; of levels that were finished before it makes as much."""
        rows, out = self._uploaded[turn % self.num_batches][2], self._outs[turn % 2]
        finish_batch(
            rows.data_ptr(),
            self._levels.data_ptr(),
            out.data_ptr(),
            self._copies.data_ptr(),
            row_bytes=self.rows[0].itemsize,
            copied_bytes=self._copied_bytes,
            filters=self._filters,
            **self._shape,
            held_as=self._held_as,
            stream=stream_number(),
        )
        return out

    @property
    def _shape(self) -> dict[str, Any]:
        return {"num": self.batch_size, "height": self.height, "width": self.width, "planar": True}

    def bytes_per_batch(self) -> dict[str, int]:
        """The least that a batch must move: what is written, and the images' pixels under the output, once."""
        written = self._outs[0].nbytes
        read = [_covered_pixels(rows, self.height, self.width) * 4 for rows in self.rows]
        return {"written": written, "read": round(sum(read) / len(read))}

    def instructions(self) -> float:
        """What the loop issues for a pixel, on average; pixels beyond an image's border take longer."""
        rows = np.concatenate(self.rows)
        taps = np.maximum(np.ceil(2 * rows["support_x"]), np.ceil(2 * rows["support_y"]))
        narrow = (rows["support_x"] == 1) & (rows["support_y"] == 1) & (rows["is_constant"] == 0)
        ways = np.where(narrow, 1, np.clip(taps, 2, max(INSTRUCTIONS)))
        lens = rows["has_lens"] != 0
        return float(np.mean([INSTRUCTIONS[int(way)][int(bent)] for way, bent in zip(ways, lens, strict=True)]))


def _covered_pixels(rows: np.ndarray, height: int, width: int) -> float:
    """Image pixels under a batch's outputs, by the maps' determinants; lenses' bends are left out."""
    after = rows["after_xx"] * rows["after_yy"] - rows["after_xy"] * rows["after_yx"]
    before = rows["before_xx"] * rows["before_yy"] - rows["before_xy"] * rows["before_yx"]
    area = np.abs(after * np.where(rows["has_lens"] != 0, before, 1.0)).astype(np.float64)
    there = (rows["high_x"] - rows["low_x"] + 1.0) * (rows["high_y"] - rows["low_y"] + 1.0)
    return float(np.minimum(area * height * width, there).sum())


@cache
def _resized(run: Run, size: tuple[int, int]) -> np.ndarray:
    """(N, height, width, 4): the images, brought to one size."""
    images = []
    for data in run.encoded()[:NUM_SHAPES]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        resized = image.resize((size[1], size[0]), Image.Resampling.BILINEAR, reducing_gap=2.0)
        images.append(np.array(resized.convert("RGBX")))
    return np.stack(images)


def _kornia(run: Run, findings: Findings) -> None:
    import kornia.augmentation as K

    batches = _batches(run, "scale 256 from 256", True, "float16")
    chain = K.AugmentationSequential(
        K.RandomCrop((batches.height, batches.width)),
        K.RandomRotation(10.0, p=1.0),
        K.RandomHorizontalFlip(p=0.5),
        K.RandomRGBShift(20 / 255, 20 / 255, 20 / 255, p=1.0),
        K.Normalize(mean=torch.tensor(MEAN), std=torch.tensor(STD)),
    ).to(batches.photographs.device)
    cached, orders = batches.photographs, [torch.from_numpy(order) for order in batches.order]
    planar = [cached[order.to(cached.device), ..., :3].permute(0, 3, 1, 2).contiguous() for order in orders]

    def work(turn: int) -> None:
        with torch.no_grad():
            chain(planar[turn % len(planar)].float() / 255).half()

    with findings.attempt("Kornia", is_others=True):
        theirs, ours = (statistics.median(event_seconds(way, run.pick(20, 1))) for way in (work, batches.launch))
        does = "crop, rotate, flip, shift of channels, normalise; no lens, no vignette"
        found = {"does": does, "ns_an_image": round(theirs / batches.batch_size * 1e9, 1)}
        findings.keep("Kornia", found | {"times_ours": round(theirs / ours, 2)})
