"""On a CUDA device: how often a step makes the host wait for it; deterministic kernels for every network."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from augpipe.trainer.config import make_config
from augpipe.trainer.loop.precision import make_scaler
from augpipe.trainer.loop.run_network import check_input
from augpipe.trainer.loop.step import Step, UpdateBatches
from augpipe.trainer.models import build, names
from augpipe.trainer.strategies import strategy
from tests.trainer.models.test_models_deterministic import IMAGES, OPTIONS, SIZES

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)


class Batch(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.sample_ids)


def batch() -> Any:
    return Batch(
        images=torch.randn(8, 3, 16, 16, device=DEVICE),
        labels=torch.arange(8, device=DEVICE) % 3,
        sample_ids=np.arange(8),
    )


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"faults": {"on_nan": "skip"}},
        {"faults": {"on_nan": "ignore"}},
        {"optim": {"clip_norm": 0.1}},
        {"optim": {"clip_norm": 0.1, "amp": "fp16"}},
    ],
    ids=str,
)
def test_a_step_waits_for_the_device_once(tables: dict[str, Any]) -> None:
    """As torch itself finds; waiting for the event of a copy that has arrived is none of what it looks for."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 3)]
    model = nn.Sequential(*layers).to(DEVICE)
    config = make_config({"data": {"source": "x"}, **tables})
    world: Any = SimpleNamespace(device=DEVICE, size=1)
    clip_norm = config.optim.clip_norm
    synced = strategy("ddp", model, lambda given: torch.optim.SGD(given, lr=0.01), clip_norm=clip_norm)
    step = Step(config, world, synced.module, synced, make_scaler(config))
    for _ in range(3):  # the first one also sets up what CUDA's libraries want
        given = batch()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = step.run(iter([given]), UpdateBatches(num_batches=1, num_samples=8))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert result.loss_sum > 0 and not result.is_skipped
    assert len([one for one in caught if "synchronizing CUDA operation" in str(one.message)]) == 1


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name in names() for size in IMAGES.get(name, SIZES)], ids=str
)
def test_a_network_goes_back_deterministically(
    name: str, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(0)
    model = build(name, num_classes=3, **OPTIONS.get(name, {})).to(DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        model(torch.randn(2, *size, device=DEVICE)).sum().backward()
        if size[0] == 3:
            check_input(model, name, *size[1:], DEVICE)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(parameter.grad is not None for parameter in model.parameters())
