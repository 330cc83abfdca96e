"""How far the CUDA kernels' pixels and labels are from the CPU's, without a device: their PTX is run on the CPU.

The comparison is that of docs/gpu.md's promise, `tests.parity.promise`, over recipes with and without tables.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from augpipe import Recipe, ops, plan
from augpipe.gpu_ops.image.cuda import launch
from augpipe.gpu_ops.image.cuda.ptx import KernelSpec, compile_ptx_of
from augpipe.gpu_ops.image.program_rows import are_filters, first_parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.planning.fields import BENDING, drawn_by
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.targets.masks import map_mask, shown_pixels
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


CROP = ops.RandomResizedCrop(size=224)
MAPS: dict[str, tuple[ops.Op, ...]] = {
    "crop, flip": (CROP, ops.Flip()),
    "turn, crop": (ops.Rotate(max_deg=40, step=None, p=1.0), CROP),
    "lens, crop": (ops.BrownConrady(), CROP),
    "perspective, crop": (ops.Perspective(p=1.0), CROP),
    "elastic, crop": (ops.ElasticTransform(p=1.0), CROP),
    "grid, crop": (ops.GridDistortion(cells="whole_px", p=1.0), CROP),
    "optical, crop": (ops.OpticalDistortion(p=1.0), CROP),
}


def labels_apart(chain: tuple[ops.Op, ...], num: int) -> dict[str, float]:
    """The share of labels of noise in which masks by the kernel's PTX differ from the CPU's, by how exact
    reciprocals are."""
    looked_up = PtxOnCpu(compile_ptx_of(KernelSpec(looks_up_labels=True), (9, 0)))
    labels = [np.ascontiguousarray(noise(375, 500, seed=i)[:, :, 0]) for i in range(num)]
    drawn = plan(Recipe(ops=chain, border="constant"), range(num), sizes=[(375, 500)] * num).rows
    expected = np.stack(
        [map_mask(one, shown_pixels(drawn[i : i + 1], fills=True), 255) for i, one in enumerate(labels)]
    )
    places = np.array([(one.ctypes.data, 500, 0, 0, 1) for one in labels], np.int64)
    rows, out = kernel_rows(drawn), np.empty(expected.shape, np.int64)
    asked: dict[str, Any] = {
        "fill": 255,
        "fills": True,
        "as_taps": not drawn_by(drawn).isdisjoint(BENDING),
        "stream": 0,
    }
    shape = dict(zip(("num", "height", "width"), out.shape, strict=True))
    found: dict[str, float] = {}
    for is_rough in (False, True):
        looked_up.set_rough(is_rough)
        with patch.object(launch, "_labels", lambda: looked_up):
            launch.look_up_label_maps(places.ctypes.data, rows.ctypes.data, out.ctypes.data, **shape, **asked)
        found["1 ulp off" if is_rough else "exact"] = float((out != expected).mean())
    return found


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
    apart = {name: labels_apart(chain, bench.pick(16, 1)) for name, chain in list(MAPS.items())[: bench.pick(None, 1)]}
    for name, shares in apart.items():
        print(f"labels apart, {name:36}" + "".join(f"{share:>12.1e} ({how})" for how, share in shares.items()))
    what = f"PTX for sm_90 run on the CPU next to the CPU's loop; {origin}"
    bench.keep("cuda_arithmetic", {"what": what, "cases": table, "share_of_labels_apart": apart})


if __name__ == "__main__":
    main()
