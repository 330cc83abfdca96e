"""Section of `gpu_check`: how fast the fused kernel is, alone and with the host's part of a launch."""

import statistics
from typing import Any

from gpu_batches import CachedBatches
from gpu_common import Findings, Run, copy_bandwidth, event_seconds, rates, spread, wall_seconds

from augpipe import Recipe, ops, recipes
from augpipe.cuda.render import DeviceRenderer

TIMES = 200
ROUNDS = 3
"""Of the main figure, to see how far it moves from one to the next."""


def run(run: Run, findings: Findings) -> None:
    size, side = run.pick((256, 341), (8, 10)), run.pick(224, 6)
    bandwidth = copy_bandwidth()
    findings.keep("copy", bandwidth)
    chain = recipes.deep_image(side, (size[0],))
    whole = CachedBatches(run, chain, "float16", "NCHW", size=size)
    main = _kernel(whole, bandwidth["bytes_per_second"], ROUNDS)
    findings.keep(f"deep_image, {side}x{side} float16 NCHW from {size[0]}-pixel RGBX", main)
    findings.keep("the same with the host's part", _with_host(run, whole))
    for dtype, layout in (("float16", "NHWC"), ("float32", "NCHW"), ("uint8", "NCHW"), ("bfloat16", "channels_last")):
        steps = tuple(op for op in chain.ops if dtype != "uint8" or op.op != "normalize")
        batches = CachedBatches(run, Recipe(name="deep_image", ops=steps), dtype, layout, size=size)
        findings.keep(f"deep_image, {dtype} {layout}", _kernel(batches, bandwidth["bytes_per_second"]))
    del whole
    for name, recipe in _parts(side, size[0]).items():
        batches = CachedBatches(run, recipe, "float16", "NCHW", size=size)
        findings.keep(f"float16 NCHW, {name}", _kernel(batches, bandwidth["bytes_per_second"]))
    batches = CachedBatches(run, chain, "float16", "NCHW", size=size, channels=3)
    findings.keep("deep_image, float16 NCHW from RGB", _kernel(batches, bandwidth["bytes_per_second"]))
    larger = run.pick((375, 500), (10, 12))
    shrinking = CachedBatches(run, chain, "float16", "NCHW", size=larger, num_batches=4)
    name = f"deep_image, float16 NCHW from {larger[0]}-pixel RGBX brought to {size[0]} by antialiasing"
    findings.keep(name, _kernel(shrinking, bandwidth["bytes_per_second"]))


def _parts(side: int, scale: int) -> dict[str, Recipe]:
    """The chain piece by piece, to see what costs what."""
    crop, last = ops.MultiResolutionCrop(size=side, scales=(scale,)), ops.Normalize()
    return {
        "crop alone": Recipe(ops=(crop, last)),
        "crop, flip, rotate": Recipe(ops=(ops.Flip(), ops.Rotate(), crop, last)),
        "crop, lens": Recipe(ops=(ops.LensDistortion(), crop, last)),
        "crop, cast, vignette": Recipe(ops=(ops.ColorCast(), ops.Vignette(), crop, last)),
    }


def _kernel(batches: CachedBatches, bandwidth: float, rounds: int = 1) -> dict[str, Any]:
    """The kernel alone, by events."""
    medians, seconds = [], []
    for _ in range(rounds):
        seconds = event_seconds(batches.launch, TIMES, warm_up=batches.num_batches)
        medians.append(statistics.median(seconds))
    median = statistics.median(medians)
    moved = batches.bytes_per_batch()
    per_second = sum(moved.values()) / median
    return {
        "images_per_second": round(batches.batch_size / median),
        "microseconds_per_batch": spread([value * 1e6 for value in seconds]),
        "medians_of_rounds_microseconds": [round(value * 1e6, 2) for value in medians],
        "batch_size": batches.batch_size,
        "bytes_per_batch": moved,
        "bytes_per_second": round(per_second),
        "fraction_of_copy_bandwidth": round(per_second / bandwidth, 3),
    }


def _with_host(run: Run, batches: CachedBatches) -> dict[str, Any]:
    """`DeviceRenderer.render`, tables uploaded each time, by the host's clock over many batches at once."""
    renderer = DeviceRenderer(run.device, batches.recipe, batches.form)
    size, at_once = (batches.height, batches.width), run.pick(50, 2)

    def work(turn: int) -> None:
        for number in range(at_once):
            which = (turn + number) % batches.num_batches
            renderer.render(batches.tables[which], [batches.rows[which]], [size], [], batches.order[which])

    seconds = [value / (at_once * batches.batch_size) for value in wall_seconds(work, run.pick(7, 1))]
    return {"images_per_second": rates(seconds), "batches_at_once": at_once}
