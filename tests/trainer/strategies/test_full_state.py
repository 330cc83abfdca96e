"""Full optimizer states without ranks: they travel, and come back, by way of the CPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from augpipe.trainer.strategies.owned_slices import OwnedSlice, _sliced, load_shard
from augpipe.trainer.strategies.state import FORMAT, gather_states, load_full_state


class OfDevice(Tensor):
    """A tensor of a device in name: it is one of the CPU only once somebody brings it there, and refuses others."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.to and args[1:] == ("cpu",):
            return function(args[0].as_subclass(Tensor), "cpu", **(kwargs or {}))
        if function is torch.cat:
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().__torch_function__(function, types, args, kwargs or {})


def state_of_a_device() -> dict[str, Any]:
    """Tensors at every depth, among them in bfloat16 and of no dimension, plain numbers, keys that are no texts."""
    moments, step, rate = torch.arange(4.0, dtype=torch.bfloat16), torch.tensor(3.0), torch.tensor(0.1)
    moments, step, rate = (one.as_subclass(OfDevice) for one in (moments, step, rate))
    return {
        "state": {"w": {(0, 4): {"exp_avg": moments, "step": step}}},
        "groups": [{"lr": rate, "betas": (0.9, 0.99), "params": ["w"]}],
    }


def test_a_tensor_of_a_device_is_none_of_the_cpu() -> None:
    """What stands for one in this file."""
    moments = state_of_a_device()["state"]["w"][0, 4]["exp_avg"]
    for same in (moments, moments.detach(), moments.view(torch.uint8), moments.detach().clone().contiguous()):
        assert type(same) is OfDevice
        with pytest.raises(RuntimeError, match="on the same device"):
            torch.cat([same, torch.zeros(1)])
    brought = moments.detach().to("cpu", copy=True)
    assert type(brought) is Tensor and brought.data_ptr() != moments.data_ptr()


def test_states_of_other_ranks_come_as_json_and_bytes() -> None:
    """Tensors of a GPU by way of the CPU; nothing is pickled, so that nothing need be unpickled."""
    sent: list[Tensor] = []

    def gather(mine: Tensor) -> list[Tensor]:
        sent.append(mine)
        return [mine.clone(), mine.clone()]

    first, second = gather_states(state_of_a_device(), gather)
    assert sent[0].dtype == torch.uint8 and type(sent[0]) is Tensor
    for state in (first, second):
        assert state["groups"][0] == {"lr": torch.tensor(0.1), "betas": (0.9, 0.99), "params": ["w"]}
        found = state["state"]["w"][0, 4]
        assert torch.equal(found["exp_avg"], torch.arange(4.0, dtype=torch.bfloat16)) and found["step"] == 3.0


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("is_shard", [False, True])
def test_steps_that_a_device_counts_go_there(capturable: bool, is_shard: bool) -> None:
    """Of an optimizer that is fused or capturable; others count on the CPU."""
    weight = nn.Parameter(torch.zeros(4, device="meta"))
    optimizer = torch.optim.AdamW([weight], capturable=capturable)
    values = {"step": torch.tensor(3.0), "exp_avg": torch.ones(4), "exp_avg_sq": torch.ones(4)}
    options = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    state = {"format": FORMAT, "groups": [options | {"params": ["w"]}]}
    if is_shard:
        plan: Any = SimpleNamespace(names=("w",), parameters=(weight,))
        owned = [OwnedSlice(index=0, start=0, stop=4, offset=0, weight=weight)]
        load_shard(optimizer, plan, owned, [["w"]], state | {"kind": "shard", "state": {"w": {(0, 4): values}}})
    else:
        load_full_state(optimizer, {weight: "w"}, state | {"kind": "full", "state": {"w": values}})
    places = {key: value.device.type for key, value in optimizer.state[weight].items()}
    assert places == {"step": "meta" if capturable else "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}


def test_a_slice_has_what_is_no_tensor_as_it_is() -> None:
    """As optimizers of others keep their counts."""
    found = _sliced({"step": 3, "m": torch.arange(6.0).view(2, 3)}, nn.Parameter(torch.zeros(2, 3)), 2, 4)
    assert found["step"] == 3 and found["m"].tolist() == [2.0, 3.0]
