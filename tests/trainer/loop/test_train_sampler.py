"""The sampler of a run, as its config names it: what an epoch holds, what is refused, and resuming."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.sampling import Weighted
from augpipe.trainer.config import make_config
from augpipe.trainer.config.tables import DataConfig
from augpipe.trainer.loop import run
from augpipe.trainer.loop.data import open_sources, training_loader
from augpipe.trainer.loop.sampler import training_sampler
from augpipe.trainer.loop.world import World
from tests.distributed.train_runs import checkpoints, config, contents, sample_ids, write_photos

NUM = 8
"""Photographs of each of the two classes."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data"), 2 * NUM)


def drawn(photos: Path, world: World, **data: Any) -> tuple[Counter[int], Counter[int], int]:
    """How often each sample and each class came in one epoch, and the samples of the source."""
    settings = config(Path("unused"), photos, data={"drop_last": False, **data})
    source, _ = open_sources(settings.data, settings.seed)
    batches = list(training_loader(settings, source, world))
    ids = Counter(int(i) for batch in batches for i in batch.sample_ids)
    return ids, Counter(int(label) for batch in batches for label in batch.labels), len(source)


def test_repeated(photos: Path, alone: World) -> None:
    ids, _, num = drawn(photos, alone, sampler="repeated", sampler_times=3)
    assert ids == dict.fromkeys(range(num), 3)


def test_class_balanced(photos: Path, alone: World) -> None:
    ids, classes, num = drawn(photos, alone, sampler="class-balanced", sampler_num=10)
    assert sum(ids.values()) == 10 and len(set(classes.values())) == 1 and len(classes) == 2
    assert sum(drawn(photos, alone, sampler="class-balanced")[0].values()) == num


def test_weights_of_classes(photos: Path, alone: World) -> None:
    source, _ = open_sources(config(Path("unused"), photos).data, 0)
    first, last = source.classes[0], source.classes[-1]
    _, classes, _ = drawn(photos, alone, sampler="weighted", sampler_weights={first: 0.0}, sampler_num=40)
    assert set(classes) == {1}
    _, classes, _ = drawn(photos, alone, sampler="weighted", sampler_weights={last: 9.0}, sampler_num=200)
    assert 160 < classes[1] < 200 and classes[0] + classes[1] == 200


def test_images_without_a_class_never_come() -> None:
    source = ArraySource(np.zeros((4, 8, 8), np.uint8), [0, -1, 1, -1], ("a", "b"))
    made = training_sampler(DataConfig(source="x", sampler="weighted", sampler_weights={"b": 3.0}), source)
    assert isinstance(made, Weighted) and np.asarray(made.weights).tolist() == [1.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("form", ["txt", "npy"])
@pytest.mark.parametrize("held_out", [0.0, 0.5])
def test_weights_of_images_are_those_of_the_whole_source(
    photos: Path, tmp_path: Path, alone: World, form: str, held_out: float
) -> None:
    source, _ = open_sources(config(Path("unused"), photos).data, 0)
    settings = config(Path("unused"), photos, data={"eval_fraction": held_out})
    trained, _ = open_sources(settings.data, settings.seed)
    names = [source.name(i) for i in range(len(source))]
    chosen = [trained.name(1), trained.name(3)]
    weights = np.array([float(name in chosen) for name in names])
    path = tmp_path / f"weights.{form}"
    np.save(path, weights) if form == "npy" else path.write_text("".join(f"{weight:g}\n" for weight in weights))
    ids, _, _ = drawn(photos, alone, sampler="weighted", sampler_weights=str(path), eval_fraction=held_out)
    assert set(ids) == {1, 3} and sum(ids.values()) == len(trained)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sampler": "balanced"}, r"data.sampler='balanced' must be 'off', 'weighted', 'class-balanced' or 'repeated'"),
        (
            {"sampler": "repeated", "sampler_times": 2, "shuffle": "off"},
            r"sampler='repeated' sets the order, and shuffle=",
        ),
        ({"sampler": "repeated"}, r"sampler='repeated' needs sampler_times. Add it"),
        ({"sampler": "weighted"}, r"sampler='weighted' needs sampler_weights. Add it"),
        ({"sampler_num": 3}, r"sampler_num=3 is for sampler='weighted' and 'class-balanced', and sampler is 'off'"),
        (
            {"sampler": "class-balanced", "sampler_times": 2},
            r"sampler_times=2 is for sampler='repeated', and sampler is",
        ),
        (
            {"sampler": "weighted", "sampler_weights": [1.0]},
            r"data.sampler_weights=\[1.0\] must be a file of numbers or",
        ),
    ],
)
def test_impossible_samplers(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config({"data": {"source": "x", **data}})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            {"c00": 2.0},
            r"data.sampler_weights names 'c00', which is none of the 2 classes of data.source. Did you mean 'c0'",
        ),
        ("nowhere.txt", r"data.sampler_weights='nowhere.txt' does not exist; a relative path is seen from"),
        ("1\nb\n", r"cannot be read \(.*\). Write a number a line, or an .npy file"),
        ("1\n2\n", r"has shape \(2,\), and data.source holds 16 photographs. Write one number for each"),
        ("0\n" * 2 * NUM, r"weights are all 0, so there is nothing to draw"),
    ],
)
def test_weights_that_do_not_fit(photos: Path, tmp_path: Path, alone: World, weights: Any, message: str) -> None:
    if isinstance(weights, str) and "\n" in weights:
        (tmp_path / "weights.txt").write_text(weights)
        weights = str(tmp_path / "weights.txt")
    with pytest.raises(ValueError, match=message):
        drawn(photos, alone, sampler="weighted", sampler_weights=weights)


def test_weights_on_the_command_line() -> None:
    table = make_config({"data": {"source": "x", "sampler": "weighted"}}, ["data.sampler_weights={cat=2.0}"])
    assert table.data.sampler_weights == {"cat": 2.0}
    file = make_config({"data": {"source": "x", "sampler": "weighted"}}, ["data.sampler_weights=2026.txt"])
    assert file.data.sampler_weights == "2026.txt"


def test_a_run_goes_on_as_one_that_was_never_stopped(photos: Path, tmp_path: Path) -> None:
    tables: dict[str, Any] = {"data": {"sampler": "class-balanced", "sampler_num": 26}, "epochs": 2}
    run(config(tmp_path / "whole", photos, **tables))
    run(config(tmp_path / "parts", photos, **tables, max_steps=2))
    run(config(tmp_path / "parts", photos, **tables))
    assert sample_ids(tmp_path / "whole", 0) == sample_ids(tmp_path / "parts", 0)
    whole, parts = (contents(tmp_path / name, checkpoints(tmp_path / name)[-1]) for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() and all(torch.equal(whole[key], parts[key]) for key in whole)
    with pytest.raises(ValueError, match="taken with another sampler"):
        run(config(tmp_path / "parts", photos, epochs=3))
