"""Section of `gpu_check`: the fused kernel alone, beside the copy bandwidth, its floor, Kornia and `grid_sample`.

Batches lie in device memory, as a full cache holds them. The floor is the longer of two times: what the loop issues for
a pixel (`benchmarks/cuda_resources.py`, on sm_90) at one instruction a clock for each of a multiprocessor's 128 lanes,
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
from gpu_common import Findings, Run, copy_bandwidth, event_seconds, form, levels_apart, stream_number, wall_seconds
from PIL import Image

from augpipe import Recipe, plan, recipes
from augpipe.gpu_ops.image.cuda.launch import render_batch
from augpipe.planning.kernel_rows import kernel_rows

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
"""Issued for a pixel without and with a lens, by taps along an axis; 1 is the bilinear way. See docs/gpu.md."""
LANES = 128
"""Instructions of single threads that a multiprocessor issues in a clock."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """The copy first: what follows is compared with it."""
    found: dict[str, Callable[[Findings], None]] = {"copy": lambda findings: findings.keep("copy", _copy())}
    found |= {name: partial(_case, run, name) for name in CASES}
    return found | {"torch, by grid_sample": partial(_by_hand, run), "Kornia": partial(_kornia, run)}


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
    return CachedBatches(run, Recipe(name="deep_image", ops=steps), dtype, "NCHW", size=size)


class CachedBatches:
    """Batches that take turns, so that the device's own cache is not what is measured.

    Args:
        run: which images.
        recipe: what is done to them; one view.
        dtype, layout: of the images.
        size: height and width of a cached image.
        num_batches, batch_size: together more images than the device's cache holds.
    """

    def __init__(
        self,
        run: Run,
        recipe: Recipe,
        dtype: str,
        layout: str,
        *,
        size: tuple[int, int],
        num_batches: int = 8,
        batch_size: int = 256,
    ) -> None:
        self.recipe, self.form = recipe, form(dtype, layout)
        self.num_batches, self.batch_size = run.pick(num_batches, 2), run.pick(batch_size, 2)
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
        self._uploaded = [
            tuple(torch.from_numpy(part.view(np.uint8).reshape(-1)).to(run.device) for part in pair)
            for pair in zip(self.tables, self.rows, strict=True)
        ]
        self.height, self.width = (int(made.rows[name][0]) for name in ("out_height", "out_width"))
        inner = (3, self.height, self.width) if self.form.planar else (self.height, self.width, 3)
        shape = (self.batch_size, *inner)
        # two, so that a batch's writes do not find the last one's in the device's cache
        self._outs = [torch.empty(shape, dtype=getattr(torch, dtype), device=run.device) for _ in range(2)]

    def launch(self, turn: int) -> torch.Tensor:
        """Queue one batch: the kernel and nothing else."""
        pixels, rows = self._uploaded[turn % self.num_batches]
        out = self._outs[turn % 2]
        render_batch(
            pixels.data_ptr(),
            rows.data_ptr(),
            out.data_ptr(),
            num=self.batch_size,
            height=self.height,
            width=self.width,
            planar=self.form.planar,
            held_as=self.form.dtype,
            stream=stream_number(),
        )
        return out

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


def _peer(batches: "CachedBatches", findings: Findings, name: str, does: str, seconds: list[float]) -> None:
    ours = statistics.median(event_seconds(batches.launch, 50))
    theirs = statistics.median(seconds)
    found = {"does": does, "ns_an_image": round(theirs / batches.batch_size * 1e9, 1)}
    findings.keep(name, found | {"times_ours": round(theirs / ours, 2)})


def _by_hand(run: Run, findings: Findings) -> None:
    """deep_image on whole batches by torch's operators, with the numbers of our plans: (B, 3, H, W) uint8 to float16.

    Numbers and images are on the device before it starts, and images are planar, as torch likes them best.
    """
    batches = _batches(run, "scale 256 from 256", True, "float16")
    device = batches.photographs.device
    planar = [_planar(batches, order) for order in batches.order]
    numbers = [_numbers(rows, device) for rows in batches.rows]
    at_y, at_x = np.mgrid[0 : batches.height, 0 : batches.width].astype(np.float32)
    x = torch.from_numpy(at_x + 0.5 - batches.width / 2).to(device)
    y = torch.from_numpy(at_y + 0.5 - batches.height / 2).to(device)

    def chain(turn: int) -> torch.Tensor:
        return _chain(planar[turn % len(planar)], x, y, numbers[turn % len(numbers)])

    apart = levels_apart(chain(0).float(), batches.launch(0).float(), batches.recipe)
    findings.check("torch's chain is ours, under 1 level in the mean", float(apart.mean()) < 1.0, float(apart.mean()))
    _peer(batches, findings, "torch, by grid_sample", "every op", event_seconds(chain, run.pick(10, 1)))
    if not run.is_simulated:
        with findings.attempt("torch.compile", is_others=True):
            compiled = torch.compile(_chain)
            seconds = event_seconds(lambda turn: compiled(planar[turn % 8], x, y, numbers[turn % 8]), 20, warm_up=10)
            _peer(batches, findings, "torch, by grid_sample, compiled", "every op", seconds)


def _numbers(rows: np.ndarray, device: torch.device) -> dict[str, torch.Tensor]:
    """The kernel's rows as (B, 1, 1) tensors, channels as (B, 3, 1, 1)."""
    found = {}
    for name in rows.dtype.names or ():
        values = np.ascontiguousarray(rows[name]).astype(np.float32)
        shape = (-1, 3, 1, 1) if values.ndim == 2 else (-1, 1, 1)
        found[name] = torch.from_numpy(values).reshape(shape).to(device)
    return found


def _chain(photographs: torch.Tensor, x: torch.Tensor, y: torch.Tensor, n: dict[str, torch.Tensor]) -> torch.Tensor:
    height, width = photographs.shape[2:]
    u, v = n["before_xx"] * x + n["before_xy"] * y, n["before_yx"] * x + n["before_yy"] * y
    r2 = u * u + v * v
    gain = 1 + r2 * (n["k1"] + r2 * (n["k2"] + r2 * n["k3"]))
    has_lens = n["has_lens"] != 0
    u, v = torch.where(has_lens, u * gain, x), torch.where(has_lens, v * gain, y)
    at_x = n["origin_x"] + n["after_xx"] * u + n["after_xy"] * v + n["offset_x"]
    at_y = n["origin_y"] + n["after_yx"] * u + n["after_yy"] * v + n["offset_y"]
    grid = torch.stack([at_x * (2 / width) - 1, at_y * (2 / height) - 1], dim=-1)
    values = torch.nn.functional.grid_sample(
        photographs.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
    r2 = (x * x + y * y) * n["inverse_corner_r2"]
    depth = (r2 - n["vignette_inner_r2"]).clamp(min=0) * n["vignette_inverse_span"]
    lost = -n["vignette_strength"] * depth * depth
    before, after = 1 + lost * n["casts_last"], 1 + lost * (1 - n["casts_last"])
    values = (values * before[:, None] + n["cast"]).clamp(0, 255) * after[:, None]
    return (values * n["scale"] + n["bias"]).half()


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
    planar = [_planar(batches, order) for order in batches.order]

    def work(turn: int) -> None:
        with torch.no_grad():
            chain(planar[turn % len(planar)].float() / 255).half()

    does = "crop, rotate, flip, shift of channels, normalise; no lens, no vignette"
    with findings.attempt("Kornia's chain", is_others=True):
        _peer(batches, findings, "Kornia", does, wall_seconds(work, run.pick(20, 1)))


def _planar(batches: CachedBatches, order: np.ndarray) -> torch.Tensor:
    """(B, 3, H, W) uint8 of one batch."""
    chosen = batches.photographs[torch.from_numpy(order).to(batches.photographs.device)]
    return chosen[..., :3].permute(0, 3, 1, 2).contiguous()
