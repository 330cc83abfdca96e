"""What every CUDA kernel takes of a device: registers, spills, shared memory and PTX instructions, without a device.

And what the fused kernel issues for a pixel on sm_90, by each way through it: its machine code is played for threads in
the middle of an image, once with more rows than another time, so that the difference is the loop alone.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count

import numpy as np
import numpy.typing as npt

from augpipe import Recipe, ops, plan
from augpipe.gpu_ops.image.cuda.ptx import KERNELS, KernelSpec, compile_ptx_of, find_ptxas, resources
from augpipe.gpu_ops.image.fused import jobs_per_image, run_jobs
from augpipe.planning.kernel_rows import kernel_rows
from benchmarks.gpu.sass import Listing, Thread, disassembler, listing
from benchmarks.harness import Bench

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))

SCALE, SIDE = 256, 224
WAYS = {
    "bilinear": (256, "context"),
    "2x2 taps": (256, "constant"),
    "3x3 taps": (375, "context"),
    "4x4 taps": (500, "context"),
    "5x5 taps": (600, "context"),
}
"""Short side of the image, and the border: one of a constant colour keeps images from the bilinear way."""

BLOCK, THREAD = (16, 8, 1), (5, 3, 0)
FEW_ROWS, MORE_ROWS = 4, 12
NO_NVDISASM = "there is no nvdisasm: pip install nvidia-cuda-nvdisasm"
TOLERANCE = 1e-5
"""How far the machine code's normalised float32 pixels may be from the CPU's."""


def assembler() -> str:
    """The version that ptxas names, or that there is none."""
    ptxas = find_ptxas()
    if ptxas is None:
        return "none"
    return subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def instructions(most: int | None) -> list[dict[str, object]]:
    """What the fused kernel's loop issues for a pixel of RGBX to float32 planes, by ways through it."""
    code = listing(compile_ptx_of(KernelSpec(held_as="float32"), (9, 0)))
    table = []
    print(f"{'way through the kernel on sm_90':40}{'instructions a pixel':>22}")
    for way, (short, border) in list(WAYS.items())[:most]:
        for lens in (ops.LensDistortion(),), ():
            chain = (*lens, ops.ColorCast(), ops.Vignette(), ops.MultiResolutionCrop(size=SIDE, scales=(SCALE,)))
            recipe = Recipe(border=border, ops=(*chain, ops.Normalize()))
            image = np.random.default_rng(0).integers(0, 256, (short, short * 4 // 3, 4), np.uint8)
            rows = next(rows for rows in drawn(recipe, image) if bool(rows["has_lens"][0]) == bool(lens))
            taps = np.ceil(2 * rows["support_x"]), np.ceil(2 * rows["support_y"])
            assert way == "bilinear" or all(way.startswith(f"{num[0]:.0f}x") for num in taps)
            fewer, more = (played(code, image, rows, num_rows) for num_rows in (FEW_ROWS, MORE_ROWS))
            pixels = 2 * (MORE_ROWS - FEW_ROWS)
            kinds = {kind: issued / pixels for kind, issued in (more - fewer).most_common()}
            row = {"way": way, "lens": bool(lens), "instructions": sum(kinds.values()), "kinds": kinds}
            print(f"{way + (' after a radial lens' if lens else ''):40}{row['instructions']:>22.1f}")
            table.append(row)
    return table


def drawn(recipe: Recipe, image: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.void]]:
    """The kernel's row for the image, as each seed draws it."""
    for seed in count():
        yield kernel_rows(plan(recipe, [0], sizes=[image.shape[:2]], seed=seed).rows)


def played(code: Listing, image: npt.NDArray[np.uint8], rows: npt.NDArray[np.void], num_rows: int) -> Counter[str]:
    """What one thread issues for `num_rows` pairs of pixels, which must be those of the CPU."""
    pixels = np.array([[image.ctypes.data, image.shape[1], 0, 0, 4]], np.int64)
    out, expected = np.full((2, 3, SIDE, SIDE), np.nan, np.float32)
    sizes = SIDE, SIDE, num_rows, out[0].nbytes, BLOCK[1] * out[0, 0].nbytes
    arguments = pixels.ctypes.data, rows.ctypes.data, out.ctypes.data, *sizes
    issued = Thread(arguments, THREAD, (1, 0, 0), BLOCK).run(code)
    run_jobs(pixels[:, :4].copy(), rows, expected.reshape(-1), SIDE, SIDE, True, 0, jobs_per_image(SIDE))
    first_column = 2 * (BLOCK[0] + THREAD[0])
    written = np.s_[:, THREAD[1] : BLOCK[1] * num_rows : BLOCK[1], first_column : first_column + 2]
    assert np.isfinite(out).sum() == out[written].size
    assert np.abs(out[written] - expected[written]).max() < TOLERANCE
    return issued


def main() -> None:
    bench, table = Bench(__doc__), []
    print(f"{'kernel':24}{'for':>8}{'registers':>11}{'spilled':>9}{'shared':>8}{'PTX lines':>11}")
    for cc in CAPABILITIES[: bench.pick(None, 1)]:
        for spec in KERNELS[: bench.pick(None, 2)]:
            ptx = compile_ptx_of(spec, cc)
            taken, reason = resources(ptx, cc)
            lines = sum(line.startswith("\t") and line.endswith(";") for line in ptx.splitlines())
            row: dict[str, object] = {"kernel": spec.name, "for": f"sm_{cc[0]}{cc[1]}", "ptx_instructions": lines}
            if taken is None:
                row["unknown"] = reason
                print(f"{spec.name:24}{row['for']:>8}  {reason}")
            else:
                row |= {
                    "registers": taken.registers,
                    "spill_bytes": taken.spill_bytes,
                    "stack_bytes": taken.stack_bytes,
                    "shared_bytes": taken.shared_bytes,
                }
                print(
                    f"{spec.name:24}{row['for']:>8}{taken.registers:>11}{taken.spill_bytes:>9}{taken.shared_bytes:>8}"
                    f"{lines:>11}"
                )
            table.append(row)
    bench.keep(
        "cuda_resources",
        {
            "what": "one thread of each kernel as ptxas reports it; bytes; a multiprocessor has 65536 registers",
            "ptxas": assembler(),
            "numba_cuda": version("numba-cuda"),
            "kernels": table,
            "instructions_a_pixel_on_sm_90": instructions(bench.pick(None, 1)) if disassembler() else NO_NVDISASM,
        },
    )


if __name__ == "__main__":
    main()
