"""Runs a kernel's PTX on the CPU, one thread after the other: what CUDA's arithmetic makes of pixels, without a device.

PTX is written out as C, an instruction a statement, and compiled so that the compiler neither joins nor splits what
rounds: `fma.rn` is one rounding, `mul` and `add` are two. Two things may differ on a device. `rcp.approx` is off by up
to one unit in the last place, which `set_rough` imitates; and ptxas may join a `mul` and an `add` that NVVM left apart.
An instruction that is not known raises. There are no warps: a barrier is right only for blocks of one thread.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

FLAGS = ("-O1", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-w", "-march=native", "-shared", "-fPIC")
TYPES = {"f32": "float", "f64": "double", "pred": "uint8_t"} | {
    f"{kind}{bits}": f"{'' if kind == 's' else 'u'}int{bits}_t" for kind in "sub" for bits in (8, 16, 32, 64)
}
WIDER = {"int16_t": "int32_t", "int32_t": "int64_t", "int64_t": "__int128"} | {
    "uint16_t": "uint32_t",
    "uint32_t": "uint64_t",
    "uint64_t": "unsigned __int128",
}
PRELUDE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
int is_rough = 0;
static uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
static float float_of(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
static double double_of(uint64_t bits) { double value; memcpy(&value, &bits, 8); return value; }
static float reciprocal(float value) {
    uint32_t bits = bits_of(1.0f / value), chance = bits_of(value) * 2654435761u >> 30;
    return float_of(is_rough && chance < 2 ? bits + (chance ? 1 : -1) : bits);
}
static uint32_t permuted(uint32_t low, uint32_t high, uint32_t picks) {
    uint64_t bytes = low | (uint64_t)high << 32; uint32_t result = 0;
    for (int i = 0; i < 4; i++) result |= (uint32_t)(bytes >> 8 * (picks >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
static int32_t whole(float value) {
    if (value != value) return 0;
    return value >= 2147483648.0f ? INT32_MAX : value < -2147483648.0f ? INT32_MIN : (int32_t)value;
}
static uint32_t natural(float value) {
    return !(value > 0) ? 0 : value >= 4294967296.0f ? UINT32_MAX : (uint32_t)value;
}
"""
INFIX = {"add": "+", "sub": "-", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OPPOSITES = {"neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}
"""Comparisons that hold for NaN: the opposite does not."""


def find_compiler() -> str | None:
    """A C compiler on PATH; None where there is none."""
    return shutil.which("gcc") or shutil.which("cc")


class PtxOnCpu:
    """A kernel that is called as `gpu_ops.cuda.machine_code.Kernel` is; addresses are of host memory."""

    def __init__(self, ptx: str) -> None:
        compiler = find_compiler()
        assert compiler, "there is no C compiler"
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
            source.write_text(as_c(ptx))
            subprocess.run([compiler, *FLAGS, source, "-o", library, "-lm"], check=True)
            self._library = ctypes.CDLL(str(library))

    def set_rough(self, is_rough: bool) -> None:
        """Whether approximate reciprocals are a unit off in the last place for half of the numbers."""
        ctypes.c_int.in_dll(self._library, "is_rough").value = is_rough

    def launch(self, grid: Sequence[int], block: Sequence[int], stream: int, *arguments: int) -> None:
        """Run all threads of all blocks."""
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        self._library.run_grid((ctypes.c_int64 * len(arguments))(*arguments), *map(ctypes.c_int, (*grid, *block)))


def as_c(ptx: str) -> str:
    """A module of one kernel as C."""
    shared = re.findall(r"\.shared .align \d+ \.b8 (\w+)\[(\d+)\]", ptx)
    lines = [PRELUDE, *(f"static uint8_t {name}[{size}] __attribute__((aligned(16)));" for name, size in shared)]
    lines.append("static void thread(const int64_t *given, const int *tid, const int *ctaid, const int *ntid) {")
    for line in ptx[ptx.index("\n{") + 2 : ptx.rindex("}")].splitlines():
        text = line.split("//")[0].strip()
        if found := re.match(r"\.reg \.(\w+)\s+%(\w+?)<(\d+)>;", text):
            lines.append(f"{TYPES[found[1]]} {', '.join(f'{found[2]}{i} = 0' for i in range(int(found[3])))};")
        elif found := re.match(r"\$(\w+):$", text):
            lines.append(f"{found[1]}:;")
        elif found := re.match(r"(?:@(!?)%(p\d+)\s+)?(\w[\w.]*)\s*(.*);$", text):
            condition = f"if ({found[1]}{found[2]}) " if found[2] else ""
            lines.append(f"{condition}{{ {_statement(found[3].split('.'), found[4])}; }}")
        else:
            assert text in ("", "{", "}") or text.startswith(".pragma"), text
    lines += [
        "}",
        "void run_grid(const int64_t *given, int gx, int gy, int gz, int nx, int ny, int nz) {",
        "int ntid[] = {nx, ny, nz};",
        "for (int i = 0; i < gx * gy * gz; i++) for (int j = 0; j < nx * ny * nz; j++) {",
        "int ctaid[] = {i % gx, i / gx % gy, i / gx / gy}, tid[] = {j % nx, j / nx % ny, j / nx / ny};",
        "thread(given, tid, ctaid, ntid); } }",
    ]
    return "\n".join(lines)


def _operand(name: str) -> str:
    if found := re.fullmatch(r"%(tid|ctaid|ntid)\.([xyz])", name):
        return f"{found[1]}[{'xyz'.index(found[2])}]"
    if found := re.fullmatch(r"0([fd])(\w+)", name):
        return f"{'float' if found[1] == 'f' else 'double'}_of(0x{found[2]}ull)"
    if re.fullmatch(r"-?\d+", name):
        return f"{name}ll" if int(name) > -(2**63) else "INT64_MIN"
    return name.removeprefix("%") if name.startswith("%") else f"(uint64_t){name}"


def _address(name: str, kind: str) -> str:
    found = re.fullmatch(r"\[(%?\w+)(?:\+(-?\d+))?\]", name)
    assert found, name
    return f"(({kind} *)({_operand(found[1])} + ({found[2] or 0}ll)))"


def _bits(operand: str) -> str:
    """The bits of a register of any 32-bit type."""
    return f"bits_of({operand})" if re.fullmatch(r"f\d+", operand) else f"(uint32_t){operand}"


def _put_bits(target: str, bits: str) -> str:
    return f"{target} = float_of({bits})" if re.fullmatch(r"f\d+", target) else f"{target} = {bits}"


def _statement(parts: list[str], rest: str) -> str:
    """One instruction, given by what its dots separate, and its operands."""
    name, last = parts[0], parts[-1]
    names = [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{]+", rest) if part.strip()]
    if name == "bra":
        return f"goto {rest.strip().removeprefix('$')}"
    if name in ("ret", "bar"):
        return "return" if name == "ret" else ""
    kind = TYPES[last]
    if name == "ld" and parts[1] == "param":
        number = re.search(r"_param_(\d+)\]", rest)
        assert number
        return f"{_operand(names[0])} = ({kind})given[{number[1]}]"
    if name == "ld":
        assert "v2" not in parts
        return f"{_operand(names[0])} = *{_address(names[1], kind)}"
    if name == "st":
        values = [_operand(value.strip()) for value in names[1].strip("{}").split(",")]
        return "; ".join(f"{_address(names[0], kind)}[{i}] = ({kind}){value}" for i, value in enumerate(values))
    if name == "atom":
        assert "add" in parts
        return f"*{_address(names[1], kind)} += ({kind}){_operand(names[2])}"
    target, *given = map(_operand, names)
    typed = [f"(({kind}){operand})" for operand in given]
    is_float = last in ("f32", "f64")
    if name == "mov":
        return _put_bits(target, _bits(given[0])) if last == "b32" else f"{target} = {given[0]}"
    if name == "cvt":
        if last == "f32" and parts[1] in ("rzi", "rmi"):
            value = f"floorf({given[0]})" if parts[1] == "rmi" else given[0]
            return f"{target} = {'natural' if parts[2] == 'u32' else 'whole'}({value})"
        return f"{target} = ({TYPES[parts[-2]]}){typed[0]}"
    if name == "setp" and is_float and parts[1] in OPPOSITES:
        return f"{target} = !({typed[0]} {OPPOSITES[parts[1]]} {typed[1]})"
    if name == "setp":
        assert not (is_float and parts[1] == "ne")  # C's holds for NaN
        return f"{target} = {typed[0]} {RELATIONS[parts[1]]} {typed[1]}"
    if name == "selp":
        return f"{target} = {given[2]} ? {typed[0]} : {typed[1]}"
    if name in ("mul", "mad") and not is_float:
        wide = WIDER[kind]
        product = f"({wide}){typed[0]} * ({wide}){typed[1]}"
        if "hi" in parts:
            return f"{target} = ({kind})(({product}) >> {last[1:]})"
        return f"{target} = {product}" + (f" + {given[2]}" if name == "mad" else "")
    if name == "mul":
        return f"{target} = {typed[0]} * {typed[1]}"
    if name == "fma":
        product = f"fmaf({', '.join(given)})"
        return f"{target} = " + (f"fminf(fmaxf({product}, 0.0f), 1.0f)" if "sat" in parts else product)
    if name in ("shl", "shr"):
        return f"{target} = {typed[0]} {INFIX[name]} {given[1]}"
    if name in INFIX:
        return f"{target} = {typed[0]} {INFIX[name]} {typed[1]}"
    if name in ("min", "max"):
        if is_float:
            return f"{target} = f{name}f({given[0]}, {given[1]})"
        return f"{target} = {typed[0]} {'<' if name == 'min' else '>'} {typed[1]} ? {typed[0]} : {typed[1]}"
    if name in ("neg", "not"):
        return f"{target} = {'-' if name == 'neg' else '!' if last == 'pred' else '~'}{typed[0]}"
    if name == "prmt":
        return _put_bits(target, f"permuted({_bits(given[0])}, {_bits(given[1])}, {given[2]})")
    return f"{target} = { {'abs': 'fabsf', 'sqrt': 'sqrtf', 'rcp': 'reciprocal'}[name] }({given[0]})"
