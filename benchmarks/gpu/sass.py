"""Plays single threads of a kernel's machine code (SASS for sm_90) and counts what they issue, without a device.

NVIDIA does not write down what its instructions do. That those here are read rightly is shown by what they write: the
caller compares it with the CPU's. An instruction that is not known raises, so nothing is counted by guesswork.
"""

import ctypes
import math
import operator
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from augpipe.gpu_ops.image.cuda.ptx import find_ptxas

FIRST_PARAMETER = 0x210
"""Where sm_90 keeps a kernel's arguments in its constant bank."""

WORD = 0xFFFFFFFF
_LINE = re.compile(r"/\*[0-9a-f]+\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_COMPARE = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq}


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One line of a listing."""

    guard: str
    """The predicate under which it has an effect; PT always."""
    kind: str
    """Without modifiers, and without the U of those that work on a warp's common registers."""
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A kernel's instructions, and where its labels stand among them."""

    instructions: list[Instruction]
    labels: dict[str, int]


def disassembler() -> str | None:
    """NVIDIA's nvdisasm on PATH or beside ptxas; None where there is none."""
    ptxas = find_ptxas()
    return shutil.which("nvdisasm") or (shutil.which("nvdisasm", path=str(ptxas.parent)) if ptxas else None)


def listing(ptx: str) -> Listing:
    """Assemble a kernel for sm_90 and read its machine code."""
    ptxas, nvdisasm = find_ptxas(), disassembler()
    assert ptxas and nvdisasm
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        subprocess.run([ptxas, "-arch=sm_90", source, "-o", source.with_suffix(".cubin")], check=True)
        command = [nvdisasm, "-c", source.with_suffix(".cubin")]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if found := _LABEL.match(line):
            labels[found[1]] = len(instructions)
        if found := _LINE.search(line):
            kind, *modifiers = found[2].split(".")
            operands = tuple(part.removesuffix(".reuse") for part in re.split(r",\s*", found[3]) if part)
            kind = kind[1:] if kind.startswith("U") else kind
            guard = found[1] or "PT"
            instructions.append(Instruction(guard=guard, kind=kind, modifiers=tuple(modifiers), operands=operands))
    return Listing(instructions=instructions, labels=labels)


class Thread:
    """Registers of one thread; memory is this process's own.

    Args:
        arguments: the kernel's, each an int64.
        thread, block, num_threads: x, y, z of threadIdx, blockIdx and blockDim.
    """

    def __init__(
        self, arguments: Sequence[int], thread: Sequence[int], block: Sequence[int], num_threads: Sequence[int]
    ) -> None:
        self.issued: Counter[str] = Counter()
        self.registers: dict[str, int] = {}
        self.constants = bytearray(FIRST_PARAMETER + 8 * len(arguments))
        struct.pack_into("<3I", self.constants, 0, *num_threads)
        struct.pack_into(f"<{len(arguments)}q", self.constants, FIRST_PARAMETER, *arguments)
        places = {"TID": thread, "CTAID": block}
        self.special = {f"SR_{name}.{axis}": at["XYZ".index(axis)] for name, at in places.items() for axis in "XYZ"}

    def run(self, code: Listing) -> Counter[str]:
        """Play to the end; how often each kind of instruction was issued, effect or none."""
        at = 0
        while True:
            line = code.instructions[at]
            self.issued[line.kind] += 1
            at += 1
            if not self.predicate(line.guard):
                continue
            if line.kind == "EXIT":
                return self.issued
            if line.kind == "BRA":
                if all(self.predicate(name) for name in line.operands[:-1]):
                    at = code.labels[line.operands[-1].strip("`()")]
            elif line.kind not in ("BSSY", "BSYNC", "NOP"):  # these keep a warp together
                _EFFECTS[line.kind](self, line.modifiers, line.operands)

    def predicate(self, name: str) -> bool:
        """The value of P0, !P0, UP0, PT and so on."""
        plain = name.lstrip("!")
        value = plain in ("PT", "UPT") or bool(self.registers.get(plain, 0))
        return value != name.startswith("!")

    def bits(self, name: str) -> int:
        """An operand as 32 bits, with its inversion or sign; minus zero is 2^32, for the sake of its carry."""
        if name.startswith("-") and not name.startswith("-0x"):
            return (~self.bits(name[1:]) & WORD) + 1
        if name.startswith("~"):
            return ~self.bits(name[1:]) & WORD
        if name in ("RZ", "URZ", "SRZ"):
            return 0
        if found := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", name):
            return int(struct.unpack_from("<I", self.constants, int(found[1], 16))[0])
        if re.fullmatch(r"U?R\d+", name):
            return self.registers[name]
        return int(name, 0) & WORD

    def signed(self, name: str) -> int:
        """An operand as an int32."""
        value = self.bits(name) & WORD
        return value - (value >> 31 << 32)

    def wide(self, name: str) -> int:
        """A register and the next one as 64 bits, or a constant of 8 bytes."""
        if found := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", name):
            return self.bits(name) | self.bits(f"c[0x0][{hex(int(found[1], 16) + 4)}]") << 32
        return self.bits(name) | self.bits(_next(name)) << 32

    def number(self, name: str) -> np.float32:
        """An operand as a float32, with its sign."""
        if name.startswith("-") and name[1] in "RUc|":
            return -self.number(name[1:])
        if name.startswith("|"):
            return abs(self.number(name.strip("|")))
        if re.fullmatch(r"[+-]?(?:\d.*|INF|QNAN)", name):
            return np.float32(float(name.replace("QNAN", "NAN")))
        return np.float32(struct.unpack("<f", struct.pack("<I", self.bits(name)))[0])

    def put(self, name: str, value: int) -> None:
        """Write 32 bits; registers that are always zero stay so."""
        if name not in ("RZ", "URZ", "PT", "UPT"):
            self.registers[name] = value & WORD

    def put_wide(self, name: str, value: int) -> None:
        """Write 64 bits to a register and the next one."""
        self.put(name, value)
        self.put(_next(name), value >> 32)

    def put_number(self, name: str, value: float) -> None:
        """Write a float32."""
        self.put(name, int(np.float32(value).view(np.uint32)))

    def address(self, name: str) -> int:
        """The address that desc[UR4][R2.64+0x10] stands for."""
        found = re.fullmatch(r"desc\[UR\d+\]\[(R\w+)\.64(?:\+(-?0x[0-9a-f]+))?\]", name)
        assert found, name
        return self.wide(found[1]) + int(found[2] or "0", 16)


Effect = Callable[[Thread, tuple[str, ...], tuple[str, ...]], Any]


def _next(name: str) -> str:
    found = re.fullmatch(r"(U?R)(\d+)", name)
    return f"{found[1]}{int(found[2]) + 1}" if found else name  # RZ


def _imad(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    if "WIDE" in how:
        read = t.bits if "U32" in how else t.signed
        t.put_wide(at[0], read(at[1]) * read(at[2]) + t.wide(at[3]))
    else:
        assert "HI" not in how
        carry = t.predicate(at[4]) if "X" in how else False
        t.put(at[0], t.bits(at[1]) * t.bits(at[2]) + t.bits(at[3]) + carry)


def _iadd3(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    rest = [name for name in at[1:] if re.search(r"P[\dT]$", name)]
    terms = [name for name in at[1:] if name not in rest]
    carried = [name for name in rest if "X" not in how or at.index(name) < at.index(terms[0])]
    total = sum(t.bits(name) for name in terms) + sum(t.predicate(name) for name in rest if name not in carried)
    t.put(at[0], total)
    for name in carried:
        t.put(name, total >> 32)


def _lea(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    carried, (low, other, *rest) = (at[1], at[2:]) if "P" in at[1] else ("PT", at[1:])
    carry = t.predicate(rest.pop()) if "X" in how else False
    shift = int(rest.pop(), 0)
    if "HI" in how:
        high = t.signed(low) >> 31 if "SX32" in how else t.bits(rest[0])
        shifted = (high << 32 | t.bits(low)) >> 32 - shift
    else:
        shifted = t.bits(low) << shift
    total = (shifted & WORD) + t.bits(other) + carry
    t.put(at[0], total)
    t.put(carried, total >> 32)


def _shf(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    high = t.signed(at[3]) if "S32" in how or "S64" in how else t.bits(at[3])
    both, shift = high << 32 | t.bits(at[1]), t.bits(at[2]) & 63
    both = both >> shift if "R" in how else both << shift
    t.put(at[0], both >> 32 if "HI" in how else both)


def _setp(read: str) -> Effect:
    def effect(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
        reader = getattr(t, "bits" if "U32" in how else read)
        left, right, condition = reader(at[2]), reader(at[3]), t.predicate(at[4])
        if "EX" in how and left == right:
            value = t.predicate(at[5])
        else:
            value = _compares(how[0], left, right)
        t.put(at[0], value or condition if "OR" in how else value and condition)

    return effect


def _compares(how: str, left: Any, right: Any) -> bool:
    if how == "NE" or how == "NEU":
        return bool(left != right)
    unordered = how.endswith("U") and bool(np.isnan(left) or np.isnan(right))
    return unordered or bool(_COMPARE[how[:2]](left, right))


def _fset(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    assert how[0] == "BF" and how[2] == "AND"
    t.put_number(at[0], _compares(how[1], t.number(at[1]), t.number(at[2])) and t.predicate(at[3]))


def _looked_up(table: int, values: Sequence[int]) -> int:
    """Bit by bit what a table of eight entries says of three inputs."""
    a, b, c = values
    terms = [(a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c) for i in range(8) if table >> i & 1]
    return reduce(operator.or_, terms, 0) & WORD


def _lop3(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    flag, at = (at[0], at[1:]) if "P" in at[0] else ("PT", at)
    value = _looked_up(int(at[4], 0), [t.bits(name) for name in at[1:4]])
    t.put(at[0], value)
    t.put(flag, value != 0)


def _plop3(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    inputs = [int(t.predicate(name)) for name in at[2:5]]
    t.put(at[0], _looked_up(int(at[5], 0), inputs) & 1)
    t.put(at[1], _looked_up(int(at[6], 0), inputs) & 1)


def _prmt(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    data = (t.bits(at[1]) | t.bits(at[3]) << 32).to_bytes(8, "little")
    picks = [t.bits(at[2]) >> 4 * i & 15 for i in range(4)]
    assert not how and all(pick < 8 for pick in picks)
    t.put(at[0], int.from_bytes(bytes(data[pick] for pick in picks), "little"))


def _ffma(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    exact = float(t.number(at[1])) * float(t.number(at[2])) + float(t.number(at[3]))
    t.put_number(at[0], min(max(exact, 0.0), 1.0) if "SAT" in how else exact)


def _f2i(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    value = float(t.number(at[1]))
    rounded = 0 if math.isnan(value) else min(max(value, -(2.0**31)), 2.0**31 - 1)
    t.put(at[0], math.floor(rounded) if "FLOOR" in how else math.trunc(rounded))


def _i2f(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    if how[-1] == "S64":
        value = t.wide(at[1])
        t.put_number(at[0], value - (value >> 63 << 64))
    else:
        t.put_number(at[0], t.signed(at[1]) if how[-1] == "S32" else t.bits(at[1]))


def _halves(t: Thread, at: tuple[str, ...], high: float, low: float) -> None:
    packed = np.array([low, high], np.float16).view(np.uint32)
    t.put(at[0], int(packed[0]))


def _load(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    size = 8 if "64" in how else 1 if "U8" in how else 4
    assert "E" in how and not {"U16", "128"} & set(how)
    value = int.from_bytes(ctypes.string_at(t.address(at[1]), size), "little")
    (t.put_wide if size == 8 else t.put)(at[0], value)


def _store(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    size = 8 if "64" in how else 2 if "U16" in how else 1 if "U8" in how else 4
    value = t.wide(at[1]) if size == 8 else t.bits(at[1])
    ctypes.memmove(t.address(at[0]), value.to_bytes(8, "little"), size)


def _mufu(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    assert how == ("RCP",)
    t.put_number(at[0], np.float32(1.0) / t.number(at[1]))


def _extreme(read: str, put: str) -> Effect:
    def effect(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
        pick = min if t.predicate(at[3]) else max
        getattr(t, put)(at[0], pick(getattr(t, read)(at[1]), getattr(t, read)(at[2])))

    return effect


def _hfma2(t: Thread, how: tuple[str, ...], at: tuple[str, ...]) -> None:
    assert at[1:3] == ("-RZ", "RZ")  # a way to write a constant
    _halves(t, at, float(at[3]), float(at[4]))


_EFFECTS: dict[str, Effect] = {
    "MOV": lambda t, how, at: t.put(at[0], t.bits(at[1])),
    "R2UR": lambda t, how, at: t.put(at[0], t.bits(at[1])),
    "CS2R": lambda t, how, at: t.put_wide(at[0], t.bits(at[1])),
    "S2R": lambda t, how, at: t.put(at[0], t.special[at[1]]),
    "S2UR": lambda t, how, at: t.put(at[0], t.special[at[1]]),
    "LDC": lambda t, how, at: t.put_wide(at[0], t.wide(at[1])) if "64" in how else t.put(at[0], t.bits(at[1])),
    "LDG": _load,
    "STG": _store,
    "VIADD": lambda t, how, at: t.put(at[0], t.bits(at[1]) + t.bits(at[2])),
    "VIMNMX": _extreme("signed", "put"),
    "IADD3": _iadd3,
    "IMAD": _imad,
    "LEA": _lea,
    "SHF": _shf,
    "LOP3": _lop3,
    "PLOP3": _plop3,
    "PRMT": _prmt,
    "ISETP": _setp("signed"),
    "FSETP": _setp("number"),
    "FSET": _fset,
    "VOTEU": lambda t, how, at: t.put(at[-2], t.predicate(at[-1])),  # one thread is its warp
    "SEL": lambda t, how, at: t.put(at[0], t.bits(at[1] if t.predicate(at[3]) else at[2])),
    "FSEL": lambda t, how, at: t.put_number(at[0], t.number(at[1] if t.predicate(at[3]) else at[2])),
    "FMNMX": _extreme("number", "put_number"),
    "FADD": lambda t, how, at: t.put_number(at[0], t.number(at[1]) + t.number(at[2])),
    "FMUL": lambda t, how, at: t.put_number(at[0], t.number(at[1]) * t.number(at[2])),
    "FFMA": _ffma,
    "HFMA2": _hfma2,
    "MUFU": _mufu,
    "F2I": _f2i,
    "F2FP": lambda t, how, at: _halves(t, at, float(t.number(at[1])), float(t.number(at[2]))),
    "I2F": _i2f,
    "I2FP": _i2f,
}
