"""How far the CUDA kernels' pixels are from the CPU's, without a device: their PTX is run on the CPU.

The comparison is that of docs/gpu.md's promise, `tests.parity.promise`, over recipes with and without tables.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import numpy as np

from augpipe import Recipe, ops, plan
from augpipe.gpu_ops.image.cuda import launch
from augpipe.gpu_ops.image.cuda.ptx import KernelSpec, compile_ptx_of
from augpipe.gpu_ops.image.program_rows import are_filters, first_parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.planning.kernel_rows import kernel_rows
from benchmarks.gpu.ptx_on_cpu import PtxOnCpu
from benchmarks.harness import Bench, imagenet_sized
from tests.parity.images import Pixels, noise
from tests.parity.promise import Images, Renderer, Rows, compare, cpu_renderer
from tests.parity.table import TABLE_CASES

NUM_IMAGES = 24
SIZES = (224, 512, 1024)
SLANTED = (ops.Rotate(max_deg=45, step=None), ops.Perspective())
STEEP = (ops.Contrast(factor=(3.0, 3.0)), ops.Saturation(factor=(3.0, 3.0)))


@cache
def kernel(held_as: str, planar: bool, finishes: bool) -> PtxOnCpu:
    """Compiled for sm_90."""
    return PtxOnCpu(compile_ptx_of(KernelSpec(held_as=held_as, planar=planar, finishes=finishes), (9, 0)))


@contextmanager
def on_cpu(*, is_rough: bool) -> Iterator[None]:
    """Launches run here, one thread a block in the kernel behind the fused one, which has barriers."""
    for finishes in (False, True):
        kernel("float32", True, finishes).set_rough(is_rough)
    with (
        patch.object(launch, "_fused", lambda held_as, planar: kernel(held_as, planar, False)),
        patch.object(launch, "_finish", lambda held_as, planar: kernel(held_as, planar, True)),
        patch.object(launch, "FINISH_THREADS", (1,)),
    ):
        yield


def ptx_renderer(packed: Sequence[Pixels], size: tuple[int, int]) -> Renderer:
    """For `compare`, of (H, W, 4) images."""
    places = np.array([(image.ctypes.data, image.shape[1], 0, 0, 4) for image in packed], np.int64)

    def rendered(rows: Rows) -> Images:
        levels, out = np.empty((2, len(rows), 3, *size), np.float32)
        first = first_parts(rows)
        shape = {"num": len(rows), "height": size[0], "width": size[1], "planar": True, "held_as": "float32"}
        launch.render_batch(places.ctypes.data, first.ctypes.data, levels.ctypes.data, **shape, stream=0)
        if rows.dtype == KERNEL_ROW:
            return levels
        copied_bytes = launch.most_copied_bytes(rows["steps"], *size)
        copies = np.empty(len(rows) * copied_bytes, np.uint8)
        memory = rows.ctypes.data, levels.ctypes.data, out.ctypes.data, copies.ctypes.data
        shape |= {"copied_bytes": copied_bytes, "filters": are_filters(rows["steps"])}
        launch.finish_batch(*memory, row_bytes=rows.itemsize, **shape, stream=0)
        return out

    return rendered


def main() -> None:
    bench = Bench(__doc__)
    encoded, origin = bench.photographs()
    kinds = {
        "photographs": imagenet_sized(encoded, bench.pick(NUM_IMAGES, 1)),
        "noise": [
            np.concatenate([noise(375, 500, seed=i), noise(375, 500)[:, :, :1]], axis=2)
            for i in range(bench.pick(4, 1))
        ],
    }
    cases = {name: (ops.RandomResizedCrop(size=SIZES[0]), *chosen[1:]) for name, chosen in TABLE_CASES.items()}
    for size in SIZES:
        cases[f"slanted, posterize, {size}"] = (ops.RandomResizedCrop(size=size), *SLANTED, ops.Posterize())
    crop = cases["posterize"][0]
    cases["lens, slanted, steep, posterize"] = (crop, ops.BrownConrady(), *SLANTED, *STEEP, ops.Posterize())
    table = []
    print(f"{'images, recipe':50}{'reciprocals':>12}{'levels':>10}{'from edge':>11}{'apart':>9}{'> 1 level':>11}")
    for kind, images in kinds.items():
        for name, chosen in list(cases.items())[: bench.pick(None, 1)]:
            drawn = plan(Recipe(ops=chosen), range(len(images)), sizes=[image.shape[:2] for image in images]).rows
            rows, size = kernel_rows(drawn), (int(drawn["out_height"][0]), int(drawn["out_width"][0]))
            ours, theirs = cpu_renderer(images, size), ptx_renderer(images, size)
            scale = (rows["scale"] * rows["header"]["scale"])[:, :, None, None]
            for is_rough in (False, True):
                with on_cpu(is_rough=is_rough):
                    apart = compare(rows, ours, theirs)
                    far = float((np.abs(theirs(rows) - ours(rows)) > scale).mean())
                row = {"images": kind, "recipe": name, "rough": is_rough, "share_beyond_a_level_at_the_end": far}
                table.append(row | vars(apart) | {"is_promised": apart.is_promised})
                share = apart.num_rounded_apart / apart.num_before_tables
                print(
                    f"{kind + ', ' + name:50}{'1 ulp off' if is_rough else 'exact':>12}{apart.levels:>10.1e}"
                    f"{apart.from_edge_levels:>11.1e}{share:>9.1e}{far:>11.1e}"
                )
    bench.keep(
        "cuda_arithmetic", {"what": f"PTX for sm_90 run on the CPU beside the CPU's loop; {origin}", "cases": table}
    )


if __name__ == "__main__":
    main()
