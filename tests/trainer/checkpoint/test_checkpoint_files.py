"""What a checkpoint's files hold: read by others' readers, and by ours what is whole, in parts, and not believed."""

import json
import math
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from augpipe.trainer.checkpoint import Box, Checkpoint, DamagedError, save
from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, newest_whole
from augpipe.trainer.checkpoint.manifest import verify
from augpipe.trainer.checkpoint.save import Copied
from augpipe.trainer.evaluation.weights import write_weights
from augpipe.trainer.tensors.tensor_file import DTYPES, TensorFile, write_tensors
from tests.distributed.train_runs import tensors_in
from tests.trainer.checkpoint.folders import WHOLE, box_at, common, contents, is_same, own, sum_up, write


def test_all_comes_back_whole_and_by_parts(tmp_path: Path) -> None:
    checkpoint = Checkpoint(write(tmp_path, 3))
    assert (checkpoint.step, checkpoint.world_size) == (3, 2)
    whole = checkpoint.common()
    assert torch.equal(whole["model"]["fc"], common(3)["model"]["fc"])
    assert torch.equal(whole["ema"]["fc"], common(3)["ema"]["fc"])
    assert whole["counters"] == common(3)["counters"]
    for rank in range(2):
        found, expected = checkpoint.common(box_at(rank)), common(3, rank)
        for part in ("model", "ema"):
            assert all(torch.equal(found[part][name], expected[part][name]) for name in expected[part])
        mine, theirs = checkpoint.of_rank(rank), own(3, rank)
        assert torch.equal(mine["sync"]["state"][0, 5]["exp_avg"], theirs["sync"]["state"][0, 5]["exp_avg"])
        assert mine["sync"]["empty"].shape == (0, 3) and torch.equal(mine["rng"], theirs["rng"])
        assert mine["buffers"]["bf16"].dtype == torch.bfloat16 and torch.equal(mine["flags"], theirs["flags"])
    assert checkpoint.common_shapes() == {
        "/model/fc": WHOLE,
        "/model/bias": (3,),
        "/ema/fc": (4, 6),
        "/ema/n_averaged": (),
    }
    found_average = checkpoint.common_tensor("ema/n_averaged")
    assert found_average is not None and int(found_average) == 3 and checkpoint.common_tensor("ema/other") is None
    means = [own(3, rank)["buffers"]["mean"].double() for rank in range(2)]
    assert torch.equal(checkpoint.averaged_buffers("buffers")["mean"], (means[0] + means[1]) / 2)


def test_only_what_is_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(write(tmp_path, 3))
    read: list[str] = []
    inner = TensorFile.read

    def noting(self: TensorFile, name: str, *arguments: Any) -> None:
        read.append(f"{self.path.name} {name}")
        inner(self, name, *arguments)

    monkeypatch.setattr(TensorFile, "read", noting)
    checkpoint.of_rank(1, entries=("rng", "buffers"))
    checkpoint.common(entries=("counters",))
    names = ("buffers/bf16", "buffers/mean", "rng")
    assert sorted(read) == [f"rank1.safetensors rank1/{name}" for name in names]


@pytest.mark.parametrize("chunk_bytes", [16, 2**24])
def test_any_box_is_read_from_any_pieces(chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.trainer.tensors.tensor_file.CHUNK_BYTES", chunk_bytes)
    shape = (5, 3, 4)
    whole = torch.arange(60.0).view(shape)
    wholes = Box.all_of(shape)
    pieces = [
        Box(shape=shape, offsets=offsets, sizes=sizes)
        for offsets, sizes in (
            ((0, 0, 0), (2, 3, 4)),
            ((2, 0, 0), (3, 1, 4)),
            ((2, 1, 0), (3, 2, 3)),
            ((2, 1, 3), (3, 2, 1)),
        )
    ]
    files = []
    for number, box in enumerate(pieces):
        path = tmp_path / f"{number}"
        write_tensors(path, {"w": box.within(whole, wholes).contiguous()}, {"w": box})
        files.append(TensorFile(path))
    for offsets in [(0, 0, 0), (1, 0, 0), (1, 1, 1), (4, 2, 3)]:
        for sizes in [(1, 1, 1), (1, 1, 4), (4, 3, 4), (3, 2, 3), (5, 3, 4)]:
            if all(first + size <= of for first, size, of in zip(offsets, sizes, shape, strict=True)):
                wanted = Box(shape=shape, offsets=offsets, sizes=sizes)
                target = torch.full(sizes, math.nan)
                for file in files:
                    file.read("w", wanted, target)
                assert torch.equal(target, wanted.within(whole, wholes))


def test_the_format_is_that_of_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    from safetensors import safe_open

    tensors = {code: torch.arange(6).view(2, 3).to(dtype) for code, dtype in DTYPES.items()}
    tensors |= {"scalar": torch.tensor(7), "empty": torch.zeros(0, 4), "a/ä": torch.ones(1)}
    told = write_tensors(tmp_path / "a.safetensors", tensors, {})
    found = safetensors.load_file(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys() and told["num_bytes"] == (tmp_path / "a.safetensors").stat().st_size
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].double(), tensor.double())
    path = write(tmp_path, 3)
    with safe_open(path / "rank1.safetensors", "pt") as file:
        assert json.loads(file.metadata()["common/model/fc"]) == {"shape": [6, 4], "offsets": [2, 0]}
        assert torch.equal(file.get_tensor("common/model/fc"), common(3, 1)["model"]["fc"])
    safetensors.save_file(tensors, tmp_path / "b.safetensors")  # and theirs is read by ours
    theirs = TensorFile(tmp_path / "b.safetensors")
    for name, tensor in tensors.items():
        target = torch.empty_like(tensor)
        theirs.read(name, Box.all_of(tuple(tensor.shape)), target)
        assert torch.equal(target.double(), tensor.double())


def test_ten_lines_read_it(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    state = {"model": {"w": torch.arange(6.0).view(2, 3)}}
    Copied(0, state, {"step": torch.tensor(4)}).write(tmp_path / "plain")
    found = tensors_in(tmp_path / "plain")
    assert found.keys() == {"common/model/w", "rank0/step"}
    assert torch.equal(found["common/model/w"], state["model"]["w"])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([], "its header is not one of safetensors"),
        ({"w": {}}, "its header lacks 'dtype', or names a dtype that is not known"),
        ({"w": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}, "its header lacks 'F31', or names"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, r"w has the shape \(2,\) and 4 bytes"),
        ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}, r"\[-1\] are not sizes"),
        ({"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, r"\[True\] are not sizes"),
        ({"w": {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]}}, "its tensors end at byte"),
        ({"w": {"dtype": "F32", "shape": [2**40, 2**40, 0], "data_offsets": [0, 0]}}, "which is too large"),
        ({"w": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]}}, "are not sizes"),
        ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "w begins at byte"),
        ({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}, "cut short?"),
        (
            {n: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for n in "vw"},
            "w begins at byte .* what is before it ends at",
        ),
        (
            {
                "__metadata__": {"w": '{"shape": [1], "offsets": [1]}'},
                "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            r"w reaches out of the tensor of \(1,\) that it is a part of",
        ),
        (
            {
                "__metadata__": {"w": "[" * 200},
                "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            "its header is not one of safetensors",
        ),
    ],
)
def test_a_header_is_not_believed(header: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rank0.safetensors"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(DamagedError, match=f"^{re.escape(str(path))}: .*{message}"):
        TensorFile(path)


@pytest.mark.parametrize(
    "data", [b"", b"\x01", bytes(8), b"\xff" * 8, struct.pack("<Q", 2**62), b"\x02" + bytes(7) + b"{"]
)
def test_a_file_too_short_for_its_header(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DamagedError, match="its header"):
        TensorFile(tmp_path / "a")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for step, name in enumerate(("rank0.safetensors", "rank0.json", "manifest.json")):
        path = write(tmp_path, step)
        (path / name).unlink()
        os.mkfifo(path / name)
        with pytest.raises(DamagedError, match=f"{name} (cannot be read|has 0 bytes)"):
            verify(path)


def test_parts_that_make_no_whole_are_refused(tmp_path: Path) -> None:
    """A tensor that claims more than its parts have is not made."""
    path = write(tmp_path, 1)
    data = (path / "rank1.safetensors").read_bytes()
    for old, new, message in (
        (rb"\"shape\": [6, 4]", rb"\"shape\": [7, 4]", "common/model/fc in this file and others are not a whole"),
        (rb"\"offsets\": [2, 0]", rb"\"offsets\": [1, 0]", "common/model/fc in this file and others overlap"),
    ):
        assert data.count(old) == 1
        (path / "rank1.safetensors").write_bytes(data.replace(old, new))
        sum_up(path)
        with pytest.raises(DamagedError, match=f"rank1.safetensors: the parts of {message}"):
            Checkpoint(path)


def test_a_tensor_that_is_named_often_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    values = json.loads((path / "rank0.json").read_text())
    values["common"]["model"] |= {f"again{number}": {"$tensor": "common/model/fc"} for number in range(1000)}
    (path / "rank0.json").write_text(json.dumps(values))
    sum_up(path)
    found = Checkpoint(path).common()["model"]
    assert len(found) == 1002 and len({tensor.data_ptr() for tensor in found.values()}) == 2


def test_as_many_values_as_may_be_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Copied(0, {"name": "x" * 100}, {})
    num_bytes = copied.write(tmp_path / "usual")["rank0.json"]["num_bytes"]
    monkeypatch.setattr(save, "MAX_JSON_BYTES", num_bytes)
    assert copied.write(tmp_path / "most")["rank0.json"]["num_bytes"] == num_bytes
    monkeypatch.setattr(save, "MAX_JSON_BYTES", num_bytes - 1)
    with pytest.raises(
        ValueError, match=rf"rank0\.json would have {num_bytes} bytes, and {num_bytes - 1} are the most"
    ):
        copied.write(tmp_path / "more")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_nan_is_neither_written_nor_read(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = torch.ones(40_000, dtype=dtype)
    weights[7] = math.inf  # which a mask may hold
    write_tensors(tmp_path / "fine", {"w": weights}, {})
    weights[-1] = math.nan
    with pytest.raises(ValueError, match="^common/model/w holds NaN$"):
        Copied(0, {"model": {"w": weights}}, {}).write(tmp_path)
    fine = (tmp_path / "fine").read_bytes()
    (tmp_path / "bad").write_bytes(fine[: -weights.itemsize] + bytes(weights[-1:].view(torch.uint8).numpy()))
    with pytest.raises(DamagedError, match="bad: w holds NaN$"):
        TensorFile(tmp_path / "bad").sha256()


def test_the_one_before_is_taken_for_one_that_holds_nan(tmp_path: Path) -> None:
    before, path = write(tmp_path, 1), write(tmp_path, 2)
    weights = path / "rank0.safetensors"
    file = TensorFile(weights)
    data = bytearray(weights.read_bytes())
    start = file.entries["common/model/bias"].start
    data[start : start + 8] = struct.pack("<d", math.nan)
    weights.write_bytes(data)
    sum_up(path)
    said: list[str] = []
    assert newest_whole(tmp_path, said.append) == before
    assert said == [
        f"checkpoint step-000000002 is refused: {weights}: common/model/bias holds NaN. The one before it is tried."
    ]


def test_nothing_is_promised_where_there_is_none_before(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    weights = path / "rank0.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    said: list[str] = []
    with pytest.raises(DamagedError, match=r"none of the 1 checkpoints"):
        newest_whole(tmp_path, said.append)
    assert len(said) == 1 and said[0].endswith("cut short?") and "one before" not in said[0]


def edited(path: Path, rank: int, *keys: str, value: Any) -> Checkpoint:
    """A checkpoint whose JSON says something else at one place, and whose sums are right."""
    text = path / f"rank{rank}.json"
    data = inner = json.loads(text.read_text())
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    text.write_text(json.dumps(data))
    sum_up(path)
    verify(path)
    return Checkpoint(path)


@pytest.mark.parametrize("name", ["common/model/fc", "common/ema/n_averaged", "rank0/flags", "rank0/rng"])
def test_a_tensor_that_is_not_complex_is_not_read_as_one(name: str, tmp_path: Path) -> None:
    checkpoint = edited(write(tmp_path, 1), 0, "common", "model", "fc", value={"$complex": name})
    with pytest.raises(DamagedError, match=rf"rank0\.json is not a rank's state \(ValueError: {name} is not .*complex"):
        checkpoint.common()


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (("buffers",), 3, "buffers is not a table of tensors"),
        (("buffers", "mean"), [1.5], "buffers/mean is not a tensor"),
        (("buffers", "mean"), {"$tensor": "rank1/buffers/bf16"}, r"buffers/mean has the shape \(3,\), .* \(2,\)"),
    ],
)
def test_buffers_that_cannot_be_averaged_are_named(
    keys: tuple[str, ...], value: Any, problem: str, tmp_path: Path
) -> None:
    checkpoint = edited(write(tmp_path, 1), 1, "rank1", *keys, value=value)
    with pytest.raises(DamagedError, match=rf"step-000000001/rank1\.json: {problem}"):
        checkpoint.averaged_buffers("buffers")


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (("model",), [], "model is not a table of tensors"),
        (("model", "fc"), None, "model/fc is not a tensor"),
        (("other",), 0, None),
    ],
)
def test_weights_that_are_not_tensors_are_named(
    keys: tuple[str, ...], value: Any, problem: str | None, tmp_path: Path
) -> None:
    checkpoint = edited(write(tmp_path, 1), 0, "common", *keys, value=value)
    out = tmp_path / "weights.safetensors"
    if problem is None:
        write_weights(checkpoint, out, averaged=False)
        assert TensorFile(out).entries.keys() == {"fc", "bias"}
        return
    with pytest.raises(DamagedError, match=rf"step-000000001/rank0\.json: {problem}"):
        write_weights(checkpoint, out, averaged=False)
    assert not out.exists()


def test_a_count_of_averages_that_is_not_a_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step-000000001.tmp"
    files = Copied(0, {"ema": {"n_averaged": torch.ones(3)}}, {}).write(path)
    checkpoint = Checkpoint(finish_checkpoint(tmp_path, 1, {"step": 1, "world_size": 1}, 9, files))
    with pytest.raises(DamagedError, match=r"ema/n_averaged is not a number"):
        write_weights(checkpoint, tmp_path / "weights.pt", averaged=True)


def test_what_is_written_again_is_the_same(tmp_path: Path) -> None:
    assert is_same(contents(write(tmp_path / "a", 5)), contents(write(tmp_path / "b", 5)))
    assert not is_same(contents(write(tmp_path / "c", 6)), contents(write(tmp_path / "b", 5)))


def test_a_file_without_tensors_is_its_header_alone(tmp_path: Path) -> None:
    write_tensors(tmp_path / "none.safetensors", {}, {})
    assert TensorFile(tmp_path / "none.safetensors").entries == {}
