"""Cases: weights and states of networks whose layers are split, in files that hold them whole."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from augpipe.trainer.loop.run_network import set_dropout
from augpipe.trainer.models.finetune import trainable
from augpipe.trainer.models.weights import load_weights
from augpipe.trainer.parallel import Split, build_split, make_mesh, split
from tests.distributed.largest_storage import noting
from tests.trainer.models.test_weights_safetensors import write_safetensors

WIDTHS = (200, 300, 200, 11)
WHOLE = 300 * 200 * 4
"""Bytes of each of the two large layers; no part of them, and nothing else, is larger than half of that."""


def network(seed: int = 0, dropout: float = 0.5) -> nn.Sequential:
    """Something before the split layers, and three of them, of widths that two and four do not divide alike."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Sequential(nn.Linear(5, WIDTHS[0], bias=False), nn.BatchNorm1d(WIDTHS[0])),
        nn.ReLU(),
        nn.Sequential(
            nn.Linear(*WIDTHS[0:2]),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(*WIDTHS[1:3]),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(*WIDTHS[2:4]),
        ),
    )


def split_network(model_size: int, *, dropout: float = 0.5, **options: Any) -> Split:
    """The network with its classifier split."""
    return build_split(lambda: network(dropout=dropout), make_mesh(model_size), layers="2.*", timeout_s=20.0, **options)


def shared_folder() -> Path:
    """A folder that rank 0 makes for all."""
    found = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, 0)
    assert found[0] is not None
    return Path(found[0])


def images(rank: int, num: int = 6) -> Tensor:
    return torch.randn(num, 5, generator=torch.Generator().manual_seed(70 + rank))


def weights_are_loaded_by_parts(rank: int, world_size: int) -> None:
    """From files of torch.save and safetensors; a whole split layer lies in the file alone."""
    whole = network(seed=1)
    folder = shared_folder()
    paths = [folder / "weights.pt", folder / "weights.safetensors"]
    if rank == 0:
        torch.save({"state_dict": {f"module.{name}": value for name, value in whole.state_dict().items()}}, paths[0])
        floats = {name: value for name, value in whole.state_dict().items() if value.is_floating_point()}
        write_safetensors(paths[1], floats)
    dist.barrier()
    paths = paths if _has_safetensors() else paths[:1]
    for path in paths:
        found = split_network(world_size)
        with noting(WHOLE):
            report = load_weights(found.model, path)
        assert report.is_complete and len(report.loaded) in (12, 11)
        for name, value in found.whole_state_dict().items():
            if value.is_floating_point():
                assert torch.equal(value, whole.state_dict()[name]), name
        found.close()


def _has_safetensors() -> bool:
    try:
        import safetensors  # noqa: F401
    except ImportError:
        return False
    return True


def whole_shapes_are_compared(rank: int, world_size: int) -> None:
    """A file of a part's shape does not fit, and reports name whole shapes; a new head is left alone."""
    found = split_network(world_size)
    path = shared_folder() / "weights.pt"
    if rank == 0:
        other = network(seed=1).state_dict()
        other["2.0.weight"] = other["2.0.weight"][: WIDTHS[1] // world_size].clone()
        torch.save(other, path)
    dist.barrier()
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    with pytest.raises(ValueError, match=rf"2\.0\.weight: 300×200 here, {300 // world_size}×200 in the file"):
        load_weights(found.model, path)
    assert all(torch.equal(value, before[name]) for name, value in found.model.state_dict().items())
    dist.barrier()
    if rank == 0:
        other = network(seed=1).state_dict()
        other["2.6.weight"], other["2.6.bias"] = torch.zeros(7, 200), torch.zeros(7)
        torch.save(other, path)
    dist.barrier()
    report = load_weights(found.model, path, new_head=True)
    assert report.is_complete and report.new_head == ("2.6.weight", "2.6.bias")
    assert torch.equal(found.model.state_dict()["2.6.weight"], before["2.6.weight"])
    assert torch.equal(found.whole_state_dict()["2.3.weight"], network(seed=1).state_dict()["2.3.weight"])
    found.close()


def layers_are_chosen_to_train(rank: int, world_size: int) -> None:
    """By last-fc:N and by last; dropout's probability is set where layers are split, too."""
    found = split_network(world_size)
    model = found.model
    assert trainable(model, "last-fc:2").layers == ("2.3", "2.6")
    assert sorted(found.parameters.values()) == ["2.3.bias", "2.3.weight", "2.6.bias", "2.6.weight"]
    assert trainable(model, "last").layers == ("2.6",)
    trainable(model, "all")
    model.train()
    torch.manual_seed(0)
    set_dropout(model, 0.0)
    mine = model(images(rank))
    whole = split(network(), make_mesh(world_size), layers="2.*")
    set_dropout(whole.model, 0.0)
    assert torch.equal(mine, whole.model(images(rank)))
    set_dropout(model, 0.99)
    assert not torch.equal(mine, model(images(rank)))
    found.close()
    whole.close()


CASES = {
    2: [
        "weights_are_loaded_by_parts",
        "whole_shapes_are_compared",
        "layers_are_chosen_to_train",
    ],
}
