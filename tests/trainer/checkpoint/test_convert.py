"""augpipe checkpoint convert: checkpoints of version 1, asked for by name, and weights for other programs."""

import hashlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.trainer.checkpoint import Checkpoint, DamagedError
from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, newest_whole, unfinished_path
from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.checkpoint.save import Copied
from augpipe.trainer.models import build
from tests.trainer.checkpoint.folders import common, write


def convert(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["checkpoint", "convert", *map(str, arguments)])
    return found.exit_code, found.output


def write_version_1(path: Path) -> None:
    """As augpipe wrote it: torch's distributed checkpoint with a text in each part, and a list of files."""
    values = {
        "common": {
            "model": {"fc": {"$tensor": "/model/fc"}},
            "groups": {"$pairs": [[{"$tuple": [0, 5]}, {"$tensor": "/groups/0"}]]},
            "best": math.inf,
        },
        "rank0": {"buffers": {"mean": {"$tensor": "/buffers/mean"}}},
        "rank1": {"buffers": {"mean": {"$tensor": "/buffers/mean"}}},
    }
    tensors: dict[str, Any] = {f"{part}/.json": bytes_of(json.dumps(value)) for part, value in values.items()}
    tensors |= {"common/model/fc": torch.arange(6.0).view(2, 3), "common/groups/0": torch.tensor(5)}
    tensors |= {f"rank{rank}/buffers/mean": torch.ones(2) * rank for rank in range(2)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save(tensors, storage_writer=FileSystemWriter(path), no_dist=True)
    files = {
        file.name: {"num_bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in sorted(path.iterdir())
    }
    about = {"version": 1, "step": 7, "world_size": 2, "model": "resnet18", "sync": {"strategy": "ddp"}, "files": files}
    (path / "manifest.json").write_text(json.dumps(about))


def bytes_of(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old" / "step-000000007"
    write_version_1(path)
    return path


def test_a_checkpoint_of_version_1_becomes_one_of_today(old: Path, tmp_path: Path) -> None:
    code, said = convert(old, tmp_path / "new", "--trust-pickle")
    path = tmp_path / "new" / "step-000000007"
    assert (code, said) == (0, f"{path}\n")
    assert newest_whole(tmp_path / "new", pytest.fail) == path
    checkpoint = Checkpoint(path)
    assert (checkpoint.step, checkpoint.world_size, checkpoint.sync) == (7, 2, {"strategy": "ddp"})
    assert read_manifest(path)["model"] == "resnet18"
    found = checkpoint.common()
    assert torch.equal(found["model"]["fc"], torch.arange(6.0).view(2, 3)) and found["best"] == math.inf
    assert found["groups"] == {(0, 5): torch.tensor(5)}
    assert [one["buffers"]["mean"].tolist() for one in checkpoint.of_all_ranks()] == [[0, 0], [1, 1]]
    assert {file.suffix for file in path.iterdir()} == {".json", ".safetensors"}
    again = f"augpipe: {path} exists. Remove it, or choose another folder."
    assert convert(old, tmp_path / "new", "--trust-pickle") == (2, f"{again}\n")


def test_a_pickle_is_read_by_those_who_ask_for_it_only(old: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ((old, tmp_path / "new"), "its author can run code on this machine. Add --trust-pickle if you trust"),
        ((old, tmp_path / "a.pt"), "is of version 1, and this augpipe reads 2. It may be whole: move"),
        ((old, tmp_path / "new", "--ema"), "--ema is for weights alone, and OUT="),
    ):
        code, said = convert(*arguments)
        assert code == 2 and message in said, said
    with pytest.raises(
        DamagedError, match="is of version 1, .* augpipe checkpoint convert BEFORE/step-.* writes it in today's form"
    ):
        newest_whole(old.parent, lambda _: None)
    assert list(tmp_path.iterdir()) == [old.parent]


def test_a_damaged_one_is_not_unpickled(old: Path, tmp_path: Path) -> None:
    data = bytearray((old / ".metadata").read_bytes())
    data[20] ^= 1
    (old / ".metadata").write_bytes(data)
    code, said = convert(old, tmp_path / "new", "--trust-pickle")
    assert code == 2 and f"{old / '.metadata'} differs from what was written" in said
    code, said = convert(write(tmp_path / "today", 3), tmp_path / "new", "--trust-pickle")
    assert code == 2 and "is of version 2, which needs no conversion" in said.replace("\n", " ")


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_weights_are_written_alone(name: str, tmp_path: Path) -> None:
    path, out = write(tmp_path / "run", 3), tmp_path / name
    code, said = convert(path, out)
    assert (code, said) == (0, f"{out}\n")
    found = load(out)
    assert found.keys() == {"fc", "bias"}
    assert all(torch.equal(found[key], common(3)["model"][key]) for key in found)
    code, said = convert(path, out)
    assert (code, said) == (2, f"augpipe: {out} exists. Remove it, or choose another name.\n")
    assert {one.name for one in tmp_path.iterdir()} == {"run", name}


def load(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".pt":
        found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    else:
        safetensors: Any = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
        found = safetensors.load_file(path)
    return found


@pytest.mark.slow
def test_the_mean_of_running_statistics_and_the_average_are_written(tmp_path: Path) -> None:
    """For a network's own `load_state_dict`, which wants all names."""
    networks = [build("resnet-18", num_classes=3) for _ in range(2)]
    for rank, network in enumerate(networks):
        for name, buffer in network.named_buffers():
            buffer.fill_(rank + 1 if "num_batches" not in name else 5)
    average = {f"module.{name}": value * 2 for name, value in networks[0].state_dict().items()}
    for step, num_averaged in ((1, 0), (2, 4)):
        files: dict[str, Any] = {}
        for rank, network in enumerate(networks):
            buffers = dict(network.named_buffers())
            of_average = {name: value * 10 for name, value in buffers.items()}
            shared = {"model": network.state_dict(), "ema": average | {"n_averaged": torch.tensor(num_averaged)}}
            copied = Copied(rank, shared, {"buffers": buffers, "ema_buffers": of_average})
            files |= copied.write(unfinished_path(tmp_path, step))
        finish_checkpoint(tmp_path, step, {"step": step, "world_size": 2}, 9, files)
    assert convert(tmp_path / "step-000000002", tmp_path / "model.pt")[0] == 0
    assert convert(tmp_path / "step-000000002", tmp_path / "ema.pt", "--ema")[0] == 0
    code, said = convert(tmp_path / "step-000000001", tmp_path / "other.pt", "--ema")
    assert code == 2 and "step-000000001 has no average of the weights. Leave --ema out." in said.replace("\n", " ")
    model, ema = load(tmp_path / "model.pt"), load(tmp_path / "ema.pt")
    build("resnet-18", num_classes=3).load_state_dict(model)
    build("resnet-18", num_classes=3).load_state_dict(ema)
    for name, value in networks[0].state_dict().items():
        if "running" in name:
            assert model[name].unique().tolist() == [1.5] and ema[name].unique().tolist() == [15]
        elif "num_batches" in name:
            assert int(model[name]) == 5 and int(ema[name]) == 10
        else:
            assert torch.equal(model[name], value) and torch.equal(ema[name], value * 2)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    code, said = convert(tmp_path / "gone", tmp_path / "a.pt")
    assert code == 2 and "gone/manifest.json cannot be read (No such file or directory)" in said.replace("\n", " ")


def test_what_needs_no_conversion_is_not_called_damaged(tmp_path: Path) -> None:
    """One of today's where a folder is asked for, a run's folder, and a file in a folder that is not there."""
    path = write(tmp_path / "run" / "checkpoints", 3)
    for source, out, said in (
        (path, tmp_path / "new", "is of version 2, which needs no conversion"),
        (tmp_path / "run", tmp_path / "a.pt", "is the folder of a run. Name one of the checkpoints in"),
        (path, tmp_path / "none" / "a.pt", "there is no folder"),
    ):
        code, told = convert(source, out, "--trust-pickle")
        assert code == 2 and said in told, told
