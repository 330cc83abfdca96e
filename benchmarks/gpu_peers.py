"""Section of `gpu_check`: the same chain on the device by other means, from the same cached photographs.

By torch: written by hand for whole batches, the look-up through `grid_sample`, every op of deep_image; as it is and
through torch.compile. Kornia, torchvision and DALI's own operators where they are installed: each does less than our
chain (no lens, no vignette), and says so.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_batches import CachedBatches
from gpu_common import Findings, Run, event_seconds, levels_apart, spread, synchronize, wall_seconds

from augpipe import recipes

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def run(run: Run, findings: Findings) -> None:
    size, side = run.pick((256, 341), (8, 10)), run.pick(224, 6)
    batches = CachedBatches(run, recipes.deep_image(side, (size[0],)), "float16", "NCHW", size=size)
    seconds = event_seconds(batches.launch, run.pick(100, 2), warm_up=batches.num_batches)
    ours = statistics.median(seconds)
    findings.keep("augpipe, the kernel alone", {"milliseconds": spread([value * 1e3 for value in seconds])})

    def peer(name: str, does: str, seconds: list[float]) -> None:
        found = {"does": does, "milliseconds": spread([value * 1e3 for value in seconds])}
        findings.keep(name, found | {"times_ours": round(statistics.median(seconds) / ours, 2)})

    with findings.attempt("torch, by hand"):
        chain = HandWritten(batches)
        apart = levels_apart(chain(0).float(), batches.launch(0).float(), batches.recipe)
        findings.keep("torch's pixels beside ours, levels", {"mean": float(apart.mean()), "most": float(apart.max())})
        findings.check("torch's chain is ours", float(apart.mean()) < 1.0, float(apart.mean()))
        peer("torch, by hand", "every op", event_seconds(chain, run.pick(20, 1)))
    with findings.attempt("DALI's operators", is_others=True):
        device = "gpu" if not run.is_simulated else "cpu"
        does = "crop, rotate and mirror in one warp_affine, brightness, normalise; no lens, vignette or cast"
        peer("DALI's operators", does, _dali(batches, device, run.pick(20, 1)))
    if run.is_simulated:
        return
    with findings.attempt("Kornia", is_others=True):
        peer("Kornia", "crop, rotate, flip, shift of channels, normalise; no lens, no vignette", _kornia(batches))
    with findings.attempt("torchvision", is_others=True):
        does = "photograph by photograph: crop, rotate, flip, normalise; no lens, vignette or cast"
        peer("torchvision", does, _torchvision(batches))
    with findings.attempt("torch, by hand, compiled", is_others=True):
        compiled = HandWritten(batches, torch.compile)
        peer("torch, by hand, compiled", "every op", event_seconds(compiled, 20, warm_up=10))


class HandWritten:
    """deep_image on whole batches by torch's operators, with the numbers of our plans: (B, 3, H, W) uint8 to float16.

    Numbers and photographs are on the device before it starts, and photographs are planar, as torch likes them best.
    """

    def __init__(self, batches: CachedBatches, wrapper: Callable[[Any], Any] = lambda function: function) -> None:
        device = batches.photographs.device
        self._photographs, self._numbers = [], []
        for order, rows in zip(batches.order, batches.rows, strict=True):
            chosen = batches.photographs[torch.from_numpy(order).to(device)]
            self._photographs.append(chosen[..., :3].permute(0, 3, 1, 2).contiguous())
            self._numbers.append(_numbers(rows, device))
        y, x = np.mgrid[0 : batches.height, 0 : batches.width].astype(np.float32)
        self._x = torch.from_numpy(x + 0.5 - batches.width / 2).to(device)
        self._y = torch.from_numpy(y + 0.5 - batches.height / 2).to(device)
        self._chain = wrapper(_chain)

    def __call__(self, turn: int) -> torch.Tensor:
        which = turn % len(self._photographs)
        result: torch.Tensor = self._chain(self._photographs[which], self._x, self._y, self._numbers[which])
        return result


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


def _dali(batches: CachedBatches, device: str, times: int) -> list[float]:
    """A pipeline of DALI's operators, fed with photographs that lie on the device."""
    import nvidia.dali as dali
    from nvidia.dali import fn, types

    num, turn = batches.batch_size, [0]
    matrices = [_matrices(rows, batches.height, batches.width) for rows in batches.rows]
    chosen = [batches.photographs[torch.from_numpy(order).to(batches.photographs.device)] for order in batches.order]
    rgb = [images[..., :3].contiguous() for images in chosen]
    pictures = rgb if device == "gpu" else [images.numpy() for images in rgb]

    def next_matrices() -> np.ndarray:
        turn[0] += 1
        return matrices[turn[0] % len(matrices)]

    pipeline = dali.Pipeline(num, 4, 0 if device == "gpu" else None, prefetch_queue_depth=2)
    with pipeline:
        images = fn.external_source(
            source=lambda: pictures[turn[0] % len(pictures)], device=device, layout="HWC", no_copy=True, batch=True
        )
        matrix = fn.external_source(source=next_matrices, batch=True, dtype=types.FLOAT, ndim=2)
        warped = fn.warp_affine(
            images, matrix=matrix, size=(batches.height, batches.width), interp_type=types.INTERP_LINEAR, fill_value=0
        )
        bright = fn.brightness(warped, brightness=fn.random.uniform(range=[0.9, 1.1]))
        pipeline.set_outputs(
            fn.crop_mirror_normalize(
                bright,
                dtype=types.FLOAT16,
                output_layout="CHW",
                mean=[255 * value for value in MEAN],
                std=[255 * value for value in STD],
            )
        )
    pipeline.build()
    at_once = 10

    def work(_: int) -> None:
        for _ in range(at_once):
            pipeline.run()

    return [value / at_once for value in wall_seconds(work, times, 1)]


def _matrices(rows: np.ndarray, height: int, width: int) -> np.ndarray:
    """(B, 2, 3): output to photograph pixels, corners at 0, as warp_affine takes them; without lenses."""
    has_lens = rows["has_lens"] != 0
    after = np.stack([rows["after_xx"], rows["after_xy"], rows["after_yx"], rows["after_yy"]], 1).reshape(-1, 2, 2)
    before = np.stack([rows["before_xx"], rows["before_xy"], rows["before_yx"], rows["before_yy"]], 1).reshape(-1, 2, 2)
    linear = np.where(has_lens[:, None, None], np.matmul(after, before), after)
    middle = np.stack([rows["origin_x"] + rows["offset_x"], rows["origin_y"] + rows["offset_y"]], 1)
    offset = middle - np.matmul(linear, np.array([width / 2, height / 2], np.float32)[:, None])[:, :, 0]
    return np.ascontiguousarray(np.concatenate([linear, offset[:, :, None]], axis=2).astype(np.float32))


def _kornia(batches: CachedBatches) -> list[float]:
    import kornia.augmentation as K

    device = batches.photographs.device
    chain = K.AugmentationSequential(
        K.RandomCrop((batches.height, batches.width)),
        K.RandomRotation(10.0, p=1.0),
        K.RandomHorizontalFlip(p=0.5),
        K.RandomRGBShift(20 / 255, 20 / 255, 20 / 255, p=1.0),
        K.Normalize(mean=torch.tensor(MEAN), std=torch.tensor(STD)),
    ).to(device)
    planar = [_planar(batches, order) for order in batches.order]

    def work(turn: int) -> None:
        with torch.no_grad():
            chain(planar[turn % len(planar)].float() / 255).half()

    return wall_seconds(work, 20)


def _torchvision(batches: CachedBatches) -> list[float]:
    from torchvision.transforms import InterpolationMode, v2

    chain = v2.Compose(
        [
            v2.RandomCrop((batches.height, batches.width)),
            v2.RandomRotation(10, interpolation=InterpolationMode.BILINEAR),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float16, scale=True),
            v2.Normalize(mean=MEAN, std=STD),
        ]
    )
    planar = [_planar(batches, order) for order in batches.order]
    synchronize()

    def work(turn: int) -> None:
        torch.stack([chain(image) for image in planar[turn % len(planar)]])

    return wall_seconds(work, 5, 1)


def _planar(batches: CachedBatches, order: np.ndarray) -> torch.Tensor:
    """(B, 3, H, W) uint8 of one batch."""
    chosen = batches.photographs[torch.from_numpy(order).to(batches.photographs.device)]
    return chosen[..., :3].permute(0, 3, 1, 2).contiguous()
