"""What every CUDA kernel takes of a device: registers, spills, shared memory and PTX instructions, without a device."""

import subprocess
from importlib.metadata import version

from common import save

from augpipe.gpu_ops.cuda.ptx import KERNELS, compile_ptx_of, find_ptxas, resources

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))


def assembler() -> str:
    """The version that ptxas names, or that there is none."""
    ptxas = find_ptxas()
    if ptxas is None:
        return "none"
    return subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def main() -> None:
    table = []
    print(f"{'kernel':24}{'for':>8}{'registers':>11}{'spilled':>9}{'shared':>8}{'PTX lines':>11}")
    for cc in CAPABILITIES:
        for spec in KERNELS:
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
    save(
        "cuda_resources",
        {
            "what": "one thread of each kernel as ptxas reports it; bytes; a multiprocessor has 65536 registers",
            "ptxas": assembler(),
            "numba_cuda": version("numba-cuda"),
            "kernels": table,
        },
    )


if __name__ == "__main__":
    main()
