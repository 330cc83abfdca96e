"""The state of a server comes back to the bit; a damaged file is refused by its name, and costs no memory."""

import io
import random
import resource
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe.trainer.checkpoint.tree import flatten
from augpipe.trainer.servers.state_file import read_state, write_state
from augpipe.trainer.tensors.tensor_file import DamagedError

NUM = 600
MORE_KB = 50_000
"""How much the process may grow, in KB."""


def state() -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(1)
    return {
        "version": 7,
        "wide": torch.randn(40, generator=numbers),
        "narrow": torch.randint(9, (3, 4), generator=numbers),
        "none": torch.zeros(0, 2),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "optimizer": {0: {"step": 3, "name": "ä"}},
    }


def is_same(found: Any, expected: Any) -> bool:
    (text, tensors), (text_expected, tensors_expected) = flatten(found), flatten(expected)
    return (
        text == text_expected
        and tensors.keys() == tensors_expected.keys()
        and all(one.dtype == tensors_expected[name].dtype for name, one in tensors.items())
        and all(torch.equal(one, tensors_expected[name]) for name, one in tensors.items())
    )


def test_a_state_comes_back(tmp_path: Path) -> None:
    write_state(tmp_path / "a.npz", state())
    found = read_state(tmp_path / "a.npz")
    assert is_same(found, state())
    found["wide"].add_(1)  # its memory is its own


def npz(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


def npy(array: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, np.asarray(array))
    return content.getvalue()


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode()


HUGE = header("{'descr': '<f4', 'fortran_order': False, 'shape': (1125899906842624,), }\n")
TEXT = npy(['{"a": {"$tensor": "a"}}', "a"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "BadZipFile"),
        (b"text", "BadZipFile"),
        (npz({}), "KeyError.*json.npy"),
        (npz({"json.npy": TEXT}), "KeyError.*000000.npy"),
        (npz({"json.npy": TEXT, "000000.npy": HUGE}), "ValueError: .*reshape"),
        (bytes(1000) + npz({"json.npy": TEXT}, zipfile.ZIP_DEFLATED), "json is compressed"),
        (npz({"json.npy": TEXT, "000000.npy": b"\x80\x04N."}), "000000 is not a plain array"),
        (npz({"json.npy": TEXT, "000000.npy": npy(["x"])}), "TypeError"),
        (npz({"json.npy": npy(['{"a": {"$tensor": "b"}}', "a"]), "000000.npy": npy([1.0])}), "KeyError: 'b'"),
        (npz({"json.npy": npy(['{"a": {"$complex": "a"}}', "a"]), "000000.npy": npy([1.0])}), "complex numbers"),
        (npz({"json.npy": npy(["[" * 50_000])}), "nested deeper than 100"),
        (npz({"json.npy": npy(0.0)}), "TypeError"),
        (
            npz({"json.npy": TEXT}).replace(struct.pack("<II", *[len(TEXT)] * 2), b"\xfe\xff\xff\x7f" * 2),
            "would have 2,1",
        ),
    ],
)
def test_what_is_not_a_state_is_named(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "server-0.npz"
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=rf"server-0\.npz is not the state of a server \(.*{problem}"):
        read_state(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"server-0\.npz cannot be read \(No such file"):
        read_state(tmp_path / "server-0.npz")


def test_damaged_files_are_refused_or_are_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "server-0.npz"
    write_state(path, state())
    whole, found = path.read_bytes(), Counter[str]()
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(NUM):
        dice = random.Random(number)
        data = bytearray(whole)
        match number % 4:
            case 0:
                del data[dice.randrange(len(data)) :]
            case 1:
                start = dice.randrange(len(data))
                del data[start : start + dice.randrange(1, 40)]
            case 2:  # the archive's directory, and the headers of its entries
                start = data.find(b"PK", dice.randrange(len(data) - 30))
                data[start + dice.randrange(4, 46)] = dice.randrange(256) if start + 50 < len(data) else 0
            case _:
                for _ in range(dice.choice([1, 1, 3, 30])):
                    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        try:
            result = read_state(path)
        except DamagedError as error:
            assert str(path) in str(error), number  # noqa: PT017
            found["refused"] += 1
            continue
        assert is_same(result, state()), number
        found["the same"] += 1
    assert found["refused"] > NUM / 2 and found["the same"] > 0, found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MORE_KB
