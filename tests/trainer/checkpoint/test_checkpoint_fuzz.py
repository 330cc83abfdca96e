"""Changed checkpoints: each is what it was, or is refused by the file's name; none asks for memory.

Half of them are changed by somebody who sums up what there is then: those may load as something else.
"""

import json
import random
import resource
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.checkpoint import DamagedError
from augpipe.trainer.checkpoint.checkpoints_folder import newest_whole
from tests.distributed.largest_storage import noting
from tests.trainer.checkpoint.folders import contents, is_same, sum_up, write

LIMIT = 2**16
"""Bytes of the largest tensor that may be made; the largest in the checkpoint has about a hundred."""
MORE_KB = 20_000
"""How much the process may grow, in KB."""
STRANGE: list[Any] = [-1, 0, 1, 2**31, 2**63, 2**70, 10**400, 1.5, -0.0, True, None, "", "x", "../../etc/passwd", "F64"]
STRANGE += [[], {}, [[]], [0, 8], [2**62, 2**62], {"$tensor": "common/model/fc"}, {"$tensor": 1}, {"$tuple": 3}]
STRANGE += [{"$pairs": [[[], 1]]}, {"$float": "one"}, {"$tensor": "rank0/rng", "$pairs": 0}]
STRANGE += [{"$complex": "common/model/fc"}, {"$complex": "rank0/flags"}, {"$complex": 1}]


def depths(dice: random.Random) -> str:
    depth = dice.choice([99, 101, 1000, 50_000])
    opening, closing = dice.choice([("[", "]"), ('{"a":', "}"), ('{"$tuple":[', "]}")])
    return opening * depth + "0" + closing * dice.choice([depth, 0])


def changed(value: Any, dice: random.Random) -> Any:
    """A value with something strange in one place."""
    if isinstance(value, dict | list) and value and dice.random() < 0.85:
        copy = value.copy()
        where: Any = dice.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
        kind = dice.random()
        if kind < 0.1:
            del copy[where]
        elif kind < 0.2 and isinstance(copy, dict):
            copy[dice.choice(["__metadata__", "common/model/fc", "..", "$tensor", where + "/"])] = copy.pop(where)
        else:
            copy[where] = changed(copy[where], dice)
        return copy
    if type(value) is int and dice.random() < 0.5:
        return value + dice.choice([-8, -1, 1, 4, 8])
    return dice.choice(STRANGE)


def flip(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice([1, 1, 3])):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def cut(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def lengthen(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randrange(1, 20)))


def remove(path: Path, dice: random.Random) -> None:
    path.unlink()


def exchange(path: Path, dice: random.Random) -> None:
    other = dice.choice([one for one in sorted(path.parent.iterdir()) if one != path])
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def edit(path: Path, dice: random.Random) -> None:
    """Another JSON, or another header."""
    data, prefix, rest = path.read_bytes(), b"", b""
    if path.suffix == ".safetensors":
        length = int.from_bytes(data[:8], "little")
        data, rest = data[8 : 8 + length], data[8 + length :]
    text = json.dumps(changed(json.loads(data), dice)).encode()
    if dice.random() < 0.15:
        where = dice.choice([place for place, letter in enumerate(text) if letter in b":[,"] or [0])
        text = text[: where + 1] + depths(dice).encode() + text[where + 1 :]
    if path.suffix == ".safetensors":
        length = len(text) if dice.random() < 0.9 else dice.choice([0, 2**24, 2**40, 2**64 - 1, len(text) + 1])
        prefix = struct.pack("<Q", length)
    path.write_bytes(prefix + text + rest)


CHANGES: list[Callable[[Path, random.Random], None]] = [flip, cut, lengthen, remove, exchange, edit, edit, edit, edit]


@pytest.mark.slow
@pytest.mark.parametrize(("num", "num_of_each"), [(200, 2), pytest.param(2000, 21, marks=pytest.mark.deep)])
def test_no_change_goes_unnoticed_or_costs_memory(
    num: int, num_of_each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.trainer.tensors.tensor_file.CHUNK_BYTES", 1024)
    run = tmp_path / "run"
    before, path = write(run, 1), write(run, 2)
    expected, expected_before = contents(path), contents(before)
    whole = {one.name: one.read_bytes() for one in path.iterdir()}
    found: Counter[str] = Counter()
    usage_kb = []
    for number in range(num):
        usage_kb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        dice = random.Random(number)
        if path.exists():
            shutil.rmtree(path)
        path.mkdir()
        for name, data in whole.items():
            (path / name).write_bytes(data)
        name = dice.choice(sorted(whole))
        dice.choice(CHANGES)(path / name, dice)
        is_summed = dice.random() < 0.5
        if is_summed:
            try:
                sum_up(path)
            except Exception:  # the list itself is strange
                is_summed = False
        said: list[str] = []
        with noting(LIMIT):
            try:
                taken = newest_whole(run, said.append)
                result = contents(taken or path)
            except DamagedError as error:
                assert is_summed and str(path) in str(error), (number, error)  # noqa: PT017
                found["refused when it is read"] += 1
                continue
        if taken == before:
            assert len(said) == 1 and str(path) in said[0] and is_same(result, expected_before), (number, said)
            found["refused, and the one before is taken"] += 1
        elif is_same(result, expected):
            found["the same"] += 1
        else:
            assert is_summed, (number, name)
            found["something else, which was summed up"] += 1
    assert sum(found.values()) == num and min(found.values()) >= num_of_each and len(found) == 4, found
    assert found["refused, and the one before is taken"] > num / 2, found
    assert usage_kb[-1] - usage_kb[100] < MORE_KB  # by then torch has imported what it wants
