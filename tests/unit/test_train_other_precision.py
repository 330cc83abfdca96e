"""A run that goes on in fp16 begins with the scaler's own scale, not with the 1 that other precisions work with."""

from pathlib import Path

import pytest
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.loop import run
from augpipe.trainer.loop.step import Step
from tests.distributed.train_runs import config, write_photos


def test_fp16_after_full_precision_has_its_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scales = []
    inner = Step.__init__

    def noting(self: Step, *arguments: object) -> None:
        scaler = arguments[-1]
        assert isinstance(scaler, GradScaler)
        scales.append(scaler.get_scale())
        inner(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Step, "__init__", noting)
    photos = write_photos(tmp_path, 8)
    run(config(tmp_path / "run", photos, max_steps=1))
    run(config(tmp_path / "run", photos, max_steps=2, optim={"amp": "fp16"}))
    run(config(tmp_path / "run", photos, max_steps=3))
    assert scales[:2] == [1.0, GradScaler("cpu").get_scale()]
