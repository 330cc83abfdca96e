"""Weights in .safetensors files: the format written by hand, so that the reader is tested against its definition."""

import json
import struct
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from augpipe.trainer.models.weights import load_weights


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """A header's length as 8 bytes, the header in JSON, and the numbers."""
    header, body = {}, b""
    for name, tensor in tensors.items():
        content = tensor.numpy().tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(content)],
        }
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    weights = {"module.weight": torch.arange(6.0).reshape(2, 3), "module.bias": torch.tensor([7.0, 8.0])}
    write_safetensors(tmp_path / "weights.safetensors", weights)
    return tmp_path / "weights.safetensors"


def test_a_file_of_safetensors_is_loaded(path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    model = nn.Linear(3, 2)
    assert load_weights(model, path).loaded == ("weight", "bias")
    assert model.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and model.bias.tolist() == [7, 8]


def test_a_damaged_file_is_refused(path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"weights.safetensors cannot be read as safetensors, "):
        load_weights(nn.Linear(3, 2), path)


def test_safetensors_that_is_not_installed_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"weights.safetensors needs safetensors: pip install safetensors"):
        load_weights(nn.Linear(3, 2), path)
