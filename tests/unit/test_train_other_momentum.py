"""A resumed run may have momentum where it had none: the config's hyperparameters are used."""

from pathlib import Path

import pytest

from augpipe.trainer.loop import run
from tests.distributed.train_runs import config, write_photos


@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
@pytest.mark.parametrize("momenta", [(0.0, 0.9), (0.9, 0.0)])
def test_momentum_may_change(name: str, momenta: tuple[float, float], tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 8)
    for step, momentum in enumerate(momenta, 1):
        optim = {"name": name, "momentum": momentum}
        assert run(config(tmp_path / "run", photos, max_steps=step, optim=optim)).step == step
