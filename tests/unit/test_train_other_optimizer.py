"""A checkpoint of another optimizer is refused by name, not by the optimizer's own KeyError or not at all."""

from itertools import permutations
from pathlib import Path

import pytest

from augpipe.trainer.loop import run
from tests.distributed.train_runs import config, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data"), 8)


@pytest.mark.parametrize(("before", "after"), list(permutations(("sgd", "rmsprop", "adagrad", "adamw"), 2)))
def test_another_optimizer_is_refused(photos: Path, tmp_path: Path, before: str, after: str) -> None:
    run(config(tmp_path, photos, max_steps=1, optim={"name": before}))
    with pytest.raises(ValueError, match=r"the state is of an optimizer with the options .* use the one that it was"):
        run(config(tmp_path, photos, max_steps=2, optim={"name": after}))


def test_other_options_of_the_same_optimizer_are_the_configs(photos: Path, tmp_path: Path) -> None:
    run(config(tmp_path, photos, max_steps=1, optim={"name": "sgd", "momentum": 0.0}))
    assert run(config(tmp_path, photos, max_steps=2, optim={"name": "sgd", "momentum": 0.9})).step == 2
