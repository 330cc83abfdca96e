"""Weights are loaded by name, what does not match is listed, and nothing in a file is run."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from augpipe.trainer.models import build
from augpipe.trainer.models.weights import load_weights


def network(seed: int, num_classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    model = build("small-cnn", num_classes=num_classes)
    nn.init.uniform_(model.get_buffer("features.1.running_mean"))
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(model: nn.Module, state: dict[str, Tensor]) -> None:
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


def wrapped(model: nn.Module) -> dict[str, dict[str, Any]]:
    """How others write the same weights."""
    plain = model.state_dict()
    averaged = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    return {
        "plain": plain,
        "data parallel": {f"module.{name}": tensor for name, tensor in plain.items()},
        "compiled": {f"_orig_mod.{name}": tensor for name, tensor in plain.items()},
        "compiled, then data parallel": {f"module._orig_mod.{name}": tensor for name, tensor in plain.items()},
        "a compiled part": {name.replace("features.", "features._orig_mod."): tensor for name, tensor in plain.items()},
        "averaged": averaged.state_dict(),
        "checkpoint": {"epoch": 3, "state_dict": plain, "optimizer": {"state": {}}},
        "model in a checkpoint": {"model": plain, "args": {"lr": 0.1}},
        "a module's extra state": plain | {"features._extra_state": {"scale": 2}},
        "half precision": {name: t.half() if t.is_floating_point() else t for name, t in plain.items()},
        "without counters": {name: t for name, t in plain.items() if not name.endswith("num_batches_tracked")},
    }


@pytest.mark.parametrize("form", list(wrapped(build("small-cnn", num_classes=2))))
def test_weights_are_loaded_from_every_usual_form(form: str, path: Path) -> None:
    source, model = network(0), network(1)
    torch.save(wrapped(source)[form], path)
    report = load_weights(model, path)
    assert report.is_complete and len(report.loaded) == len(source.state_dict()) - 4 * (form == "without counters")
    expected = source.half().float() if form == "half precision" else source
    assert_same(model, expected.state_dict())


def test_a_wrapped_model_takes_plain_weights(path: Path) -> None:
    source, model = network(0), network(1)
    torch.save(source.state_dict(), path)
    assert load_weights(torch.optim.swa_utils.AveragedModel(model), path).is_complete
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    assert load_weights(compiled, path).is_complete
    assert_same(model, source.state_dict())


def test_what_does_not_match_is_listed_and_refused(path: Path) -> None:
    model = network(1)
    before, state = copied(model), copied(network(0))
    state["features.0.weight"] = torch.zeros(1, 2, 3, 4)
    state["extra"] = state.pop("features.4.weight")
    torch.save(state, path)
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        load_weights(model, path)
    assert str(raised.value).splitlines() == [
        f"{path}: 24 of the model's 26 tensors match",
        "  the model has, the file has not (1):",
        "    features.4.weight",
        "  the file has, the model has not (1):",
        "    extra",
        "  of another shape (1):",
        "    features.0.weight: 24×3×5×5 here, 1×2×3×4 in the file",
        "The model is as before. Give strict=False to load what matches, or new_head=True if only num_classes differs.",
    ]
    assert_same(model, before)
    report = load_weights(model, path, strict=False)
    assert not report.is_complete
    assert report.missing == ("features.4.weight",)
    assert report.unexpected == ("extra",)
    assert report.mismatched == (("features.0.weight", (24, 3, 5, 5), (1, 2, 3, 4)),)
    after = copied(model)
    assert set(report.loaded) == set(before) - {"features.4.weight", "features.0.weight"}
    assert all(torch.equal(after[name], state[name]) for name in report.loaded)
    assert torch.equal(after["features.0.weight"], before["features.0.weight"])


def test_a_long_list_is_cut(path: Path) -> None:
    torch.save(copied(network(0)) | {f"extra.{index}": torch.zeros(1) for index in range(12)}, path)
    lines = str(load_weights(network(1), path, strict=False)).splitlines()
    assert lines[1] == "  the file has, the model has not (12):" and lines[-1] == "    and 2 more" and len(lines) == 13


@pytest.mark.parametrize("has_head", [True, False])
def test_a_new_head_is_left_as_it_is_on_request(path: Path, has_head: bool) -> None:
    source, model = network(0, num_classes=5), network(1, num_classes=3)
    state, before = copied(source), copied(model)
    if not has_head:
        del state["classifier.1.weight"], state["classifier.1.bias"]
    torch.save(state, path)
    with pytest.raises(ValueError, match="or new_head=True if only num_classes differs"):
        load_weights(model, path)
    assert_same(model, before)
    report = load_weights(model, path, new_head=True)
    assert report.is_complete
    assert report.new_head == ("classifier.1.weight", "classifier.1.bias")
    assert str(report).endswith("  a new head, as before loading (2):\n    classifier.1.weight\n    classifier.1.bias")
    assert torch.equal(model.get_parameter("classifier.1.weight"), before["classifier.1.weight"])
    assert torch.equal(model.get_parameter("features.0.weight"), state["features.0.weight"])


def test_a_head_that_fits_is_loaded_and_a_trunk_that_does_not_is_refused(path: Path) -> None:
    source, model = network(0), network(1)
    torch.save(source.state_dict(), path)
    assert load_weights(model, path, new_head=True).new_head == ()
    assert_same(model, source.state_dict())
    torch.save(build("small-cnn", num_classes=5, width=8).state_dict(), path)
    with pytest.raises(ValueError, match="nothing in .* matches the model"):
        load_weights(model, path, new_head=True)


def test_a_prefix_and_a_key_are_taken_away(path: Path) -> None:
    source, model = network(0), network(1)
    lightning = {"state_dict": {f"model.{name}": tensor for name, tensor in source.state_dict().items()}}
    lightning["state_dict"]["loss.weight"] = torch.zeros(3)
    torch.save({"ema": lightning["state_dict"]} | lightning, path)
    load_weights(model, path, prefix="model.")
    assert_same(model, source.state_dict())
    load_weights(network(1), path, key="ema", prefix="model.")
    with pytest.raises(ValueError, match=re.escape("no entry key='emma'. It has a dict of ema, state_dict.")):
        load_weights(model, path, key="emma")
    with pytest.raises(ValueError, match=re.escape("has no name that begins with prefix='net.'. It has a dict of mod")):
        load_weights(model, path, prefix="net.")
    message = (
        "The file has model.features.0.weight, model.features.1.weight, model.features.1.bias, ...; the model has fe"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        load_weights(model, path, strict=False)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["HARM"],)


def test_no_code_in_a_file_is_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARM", str(path.parent / "harm"))
    torch.save(copied(network(0)) | {"harm": Harmful()}, path)
    with pytest.raises(ValueError, match=r"holds more than tensors: it asks for posix.mkdir. Loading it could run"):
        load_weights(network(1), path)
    assert not (path.parent / "harm").exists()
    torch.load(path, weights_only=False)
    assert (path.parent / "harm").exists()  # a reader that trusts it is harmed


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([torch.zeros(1)], "a list"),
        (torch.zeros(2), "a Tensor"),
        ({}, "an empty dict"),
        ({"epoch": 3, "loss": 0.1}, "a dict of epoch, loss"),
        ({1: torch.zeros(1)}, "a dict of 1"),
        ({"weight": torch.zeros(1), "name": "x"}, "a dict of weight, name"),
    ],
)
def test_what_is_no_state_dict_is_refused(path: Path, content: object, found: str) -> None:
    torch.save(content, path)
    with pytest.raises(
        ValueError, match=f"weights.pt holds no weights by name: it is {found}. Give a file that torch.sa"
    ):
        load_weights(network(1), path)


def test_two_sets_of_weights_need_a_key(path: Path) -> None:
    state = network(0).state_dict()
    torch.save({"model": state, "state_dict": state}, path)
    with pytest.raises(ValueError, match="holds weights under state_dict, model. Say which by key"):
        load_weights(network(1), path)


def test_damaged_files_are_refused_and_change_nothing(path: Path) -> None:
    model = network(1)
    before = copied(model)
    torch.save(network(0).state_dict(), path)
    whole = path.read_bytes()
    for content in (b"", b"\x00" * 100, b"hello, world", whole[:2000], whole[:50_000], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=re.escape(f"{path} is not a file of torch.save, or is damaged or cut short.")
        ):
            load_weights(model, path)
    assert_same(model, before)


def test_names_that_become_one_are_refused(path: Path) -> None:
    torch.save({"a": torch.zeros(1), "module.a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="holds a twice, with and without a prefix"):
        load_weights(network(1), path)


def test_no_file_a_folder_and_a_model_without_memory(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_weights(network(1), path)
    with pytest.raises(ValueError, match="is a folder. Give the file of weights in it"):
        load_weights(network(1), path.parent)
    with torch.device("meta"):
        model = build("small-cnn", num_classes=3)
    with pytest.raises(ValueError, match=re.escape('Call model.to_empty(device="cpu") first')):
        load_weights(model, path)
    torch.save(network(0).state_dict(), path)
    model.to_empty(device="cpu")
    assert load_weights(model, path).is_complete
    assert_same(model, network(0).state_dict())


def test_a_new_head_is_whole(path: Path) -> None:
    source, model = network(0), network(1)
    state, before = copied(source), copied(model)
    state["classifier.1.bias"] = torch.ones(3)
    del state["classifier.1.weight"]
    torch.save(state, path)
    assert load_weights(model, path, new_head=True).new_head == ("classifier.1.weight", "classifier.1.bias")
    assert torch.equal(model.get_parameter("classifier.1.bias"), before["classifier.1.bias"])  # not half a head
