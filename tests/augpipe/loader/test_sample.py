"""`Loader.sample`: one sample again, to the last bit as its batch held it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Batch, Loader, Recipe, SampleError, Schedule, View, ops, recipes, sampling
from augpipe.mixed_labels import MixedLabels
from augpipe.ops.mixing import CutMix, MixUp
from tests.augpipe.loader.target_sources import object_source

SIZE = 24
CROP = (ops.RandomResizedCrop(size=SIZE), ops.Flip(), ops.ColorCast(), ops.Normalize())
RECIPES: dict[str, Any] = {
    "plain": Recipe(ops=CROP),
    "views": Recipe(views=[View(ops=CROP, count=2), View(ops=[ops.RandomResizedCrop(size=16)])]),
    "mixed": Recipe(ops=CROP, mixing=[MixUp(p=0.5), CutMix(p=0.5)]),
    "schedule": Schedule.of({0: Recipe(ops=CROP), 1: Recipe(ops=[ops.RandomResizedCrop(size=16), ops.Normalize()])}),
    "deep_image": recipes.deep_image(size=SIZE, scales=(32, 40)),
}
LOADERS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "in order": {"shuffle": False},
    "sticky": {"shuffle": "sticky"},
    "a cache": {"cache": "host"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from augpipe.datasets.synthetic.generate import generate

    root = tmp_path_factory.mktemp("photographs") / "photos"
    generate(root, num=11, classes=2, seed=3, workers=1)
    return root


def parts(batch: Batch, position: int) -> list[Any]:
    """The images and labels of one place of a batch of numpy arrays."""
    views = batch.images if isinstance(batch.images, tuple) else (batch.images,)
    labels = batch.labels if isinstance(batch.labels, MixedLabels) else (batch.labels,)
    return [np.array(view[position]) for view in views] + [np.array(label[position]) for label in labels]


@pytest.mark.parametrize("how", LOADERS)
@pytest.mark.parametrize("name", RECIPES)
def test_it_is_what_the_batches_of_all_ranks_hold(folder: Path, name: str, how: str) -> None:
    num = 0
    for rank in range(2):
        options = {"seed": 5, "framework": "numpy", "rank": rank, "world_size": 2} | LOADERS[how]
        loader = Loader(folder, RECIPES[name], batch_size=3, **options)
        loader.set_epoch(1)
        for batch in loader:
            for position, sample_id in enumerate(batch.sample_ids.tolist()):
                alone = loader.sample(sample_id, epoch=1)
                assert len(alone) == 1 and alone.sample_ids.tolist() == [sample_id]
                for found, expected in zip(parts(alone, 0), parts(batch, position), strict=True):
                    np.testing.assert_array_equal(found, expected)
                assert alone.plan.views[0].tobytes() == batch.plan[position : position + 1].views[0].tobytes()
                num += 1
    assert num == 11


def test_no_pass_is_moved_on_or_ended(folder: Path) -> None:
    loader = Loader(folder, RECIPES["mixed"], batch_size=4, seed=5, framework="numpy")
    expected = [batch.sample_ids.tolist() for batch in loader]
    loader.set_epoch(0)
    found = []
    for batch in loader:
        state = loader.state_dict()
        assert loader.sample(2).plan.rows["epoch"] == 0 and loader.sample(2, epoch=9).plan.rows["epoch"] == 9
        assert loader.state_dict() == state
        found.append(batch.sample_ids.tolist())
    assert found == expected


def test_a_sampler_s_sample_is_the_first_one_that_it_drew(folder: Path) -> None:
    sampler = sampling.Weighted([1.0, 0.0, 4.0] + [1.0] * 8)
    loader = Loader(folder, RECIPES["plain"], batch_size=4, seed=5, framework="numpy", sampler=sampler)
    seen: dict[int, list[Any]] = {}
    for batch in loader:
        for position, sample_id in enumerate(batch.sample_ids.tolist()):
            seen.setdefault(sample_id, parts(batch, position))
    assert len(seen) < 11 and 1 not in seen
    for sample_id in range(11):
        if sample_id in seen:
            for found, expected in zip(parts(loader.sample(sample_id, 0), 0), seen[sample_id], strict=True):
                np.testing.assert_array_equal(found, expected)
        else:
            with pytest.raises(ValueError, match=rf"epoch 0 does not hold sample {sample_id}, as its sampler"):
                loader.sample(sample_id, 0)


def test_targets_come_with_it() -> None:
    loader = Loader(object_source(9), RECIPES["plain"], batch_size=4, seed=3)
    for batch in loader:
        for target, sample_id in zip(batch.targets, batch.sample_ids.tolist(), strict=True):
            (alone,) = loader.sample(sample_id, 0).targets
            assert alone["object_ids"].tolist() == target["object_ids"].tolist()
            assert alone["boxes"].equal(target["boxes"])


def test_a_damaged_one_is_replaced_as_in_its_batch_or_named(folder: Path, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "photos"
    shutil.copytree(folder, root)
    broken = sorted(root.rglob("*.jpg"))[4]
    broken.write_bytes(broken.read_bytes()[:300])
    loader = Loader(root, RECIPES["plain"], batch_size=11, seed=5, framework="numpy", on_error="skip")
    asked = Loader(folder, RECIPES["plain"], batch_size=11, seed=5, framework="numpy")
    (wanted,), (batch,) = list(asked), list(loader)
    assert list(loader.skipped) == [4]
    place = wanted.sample_ids.tolist().index(4)
    alone = loader.sample(4, 0)
    assert alone.sample_ids.tolist() == [batch.sample_ids[place]] != [4]
    np.testing.assert_array_equal(alone.images[0], batch.images[place])
    with pytest.raises(SampleError, match=broken.name):
        Loader(root, RECIPES["plain"], batch_size=4, framework="numpy").sample(4)


@pytest.mark.parametrize(
    ("sample_id", "epoch", "message"), [(11, 0, "0..10"), (-1, 0, "out of range"), (0, -1, "epoch")]
)
def test_what_there_is_not(folder: Path, sample_id: int, epoch: int, message: str) -> None:
    loader = Loader(folder, RECIPES["plain"], batch_size=4, framework="numpy")
    with pytest.raises(ValueError, match=message):
        loader.sample(sample_id, epoch)
