"""A run does not go on with another seed: what was held out by the first one would be trained on, and the reverse."""

from pathlib import Path

import pytest

from augpipe.trainer.loop import run
from tests.distributed.train_runs import config, write_photos


def test_another_seed_is_refused(tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 16)
    data = {"eval_fraction": 0.25}
    run(config(tmp_path / "run", photos, max_steps=1, data=data))
    with pytest.raises(ValueError, match=r"is of a run with seed=0, and the config has seed=1: other photographs"):
        run(config(tmp_path / "run", photos, max_steps=2, data=data, seed=1))
