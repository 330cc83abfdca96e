"""States of another seed, recipe or source: refused with what differs, and nothing changes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, Schedule
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.ops import CenterCrop, Flip, MixUp, Normalize
from augpipe.sources import Concat, Subset
from augpipe.sources.protocol import Source
from tests.augpipe.loader.loader_sources import arrays, ids_of, jpegs

NUM = 12
JPEGS = jpegs(NUM)
IMAGES = np.stack([image[:20, :20] for image in arrays(NUM)])
CROP = Recipe(ops=[CenterCrop(size=8), Flip(p=0.5), Normalize()])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, data in enumerate(JPEGS):
        path = tmp_path / "photos" / ("ant", "bee")[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "photos"


def make(source: Source | str | Path | None = None, recipe: Any = CROP, **options: Any) -> Loader:
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 1, "seed": 5} | options
    return Loader(ArraySource(IMAGES) if source is None else source, recipe, **settings)


def taken(loader: Loader) -> dict[str, Any]:
    """A state of after its first batch, through JSON."""
    next(iter(loader))
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def assert_refused(state: dict[str, Any], loader: Loader, message: str) -> None:
    running = iter(loader)
    next(running)
    before = loader.state_dict()
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)
    assert loader.state_dict() == before
    next(running)


def test_another_seed() -> None:
    message = r"^the state was taken with seed=5 and this loader has seed=6: samples would .* with seed=5"
    assert_refused(taken(make()), make(seed=6), message)


RECIPES: dict[str, tuple[Any, str]] = {
    "a field": (Recipe(ops=[CenterCrop(size=8), Flip(p=0.25), Normalize()]), "ops[1].p was 0.5 and is 0.25."),
    "an op": (
        Recipe(ops=[CenterCrop(size=8), Normalize()]),
        "ops[1] was flip and is normalize; ops[2] was normalize and is not there.",
    ),
    "mixing": (Recipe(ops=CROP.ops, mixing=[MixUp()]), "mixing[0] was not there and is mix_up."),
    "much": (
        Recipe(ops=[CenterCrop(size=9), Flip(p=0.25), Normalize(mean=(0.5, 0.5, 0.5))], border="edge"),
        'border was "context" and is "edge"; ops[0].size was 8 and is 9; ops[1].p was 0.5 and is 0.25; and more.',
    ),
    "another stage": (
        {0: CROP, 3: Recipe(ops=CROP.ops, border="edge")},
        "stages[1] was not there and is the recipe from epoch 3 on.",
    ),
}


@pytest.mark.parametrize("what", RECIPES)
def test_another_recipe(what: str) -> None:
    recipe, differs = RECIPES[what]
    message = rf"^the state was taken with another recipe: {re.escape(differs)} Resume with the same one.*or, to go on"
    assert_refused(taken(make()), make(recipe=recipe), message)


def test_the_same_recipe_by_another_name() -> None:
    same = Schedule.of({0: Recipe(name="mine", ops=CROP.ops)})
    make(recipe=same).load_state_dict(taken(make()))


def test_a_recipe_that_is_taken_over_on_purpose() -> None:
    """What the message says to do."""
    other = make(recipe=RECIPES["a field"][0])
    state = taken(make())
    other.load_state_dict(state | {"recipe": other.state_dict()["recipe"]})
    assert ids_of(other) == ids_of(make())[4:]


SOURCES: dict[str, tuple[Callable[[Path], Source], Callable[[Path], Source], str]] = {
    "arrays": (
        lambda _: ArraySource(IMAGES),
        lambda _: ArraySource(255 - IMAGES),
        "the same names and labels, but files of other content",
    ),
    "labels": (
        lambda _: ArraySource(IMAGES, np.arange(NUM) % 2),
        lambda _: ArraySource(IMAGES, np.arange(NUM) % 2 ^ 1),
        "other labels",
    ),
    "classes": (
        lambda _: ArraySource(IMAGES, np.arange(NUM) % 2, classes=("ant", "bee")),
        lambda _: ArraySource(IMAGES, np.arange(NUM) % 2, classes=("ant", "cat")),
        "other classes, or the same in another order",
    ),
    "a subset": (
        lambda folder: Subset(FolderSource(folder), range(6)),
        lambda folder: Subset(FolderSource(folder), range(6, 12)),
        "other names, or the same in another order",
    ),
    "an order": (
        lambda folder: Subset(FolderSource(folder), range(12)),
        lambda folder: Subset(FolderSource(folder), range(11, -1, -1)),
        "other names, or the same in another order",
    ),
    "one source and two": (
        lambda folder: FolderSource(folder),
        lambda folder: Concat([Subset(FolderSource(folder), range(6)), Subset(FolderSource(folder), range(6, 12))]),
        "other names, or the same in another order",
    ),
}


@pytest.mark.parametrize("what", SOURCES)
def test_another_source_of_the_same_length(what: str, folder: Path) -> None:
    before, after, differs = SOURCES[what]
    message = rf"^the state is of another source than this loader's: .*{differs}.*Resume with the source as it was"
    assert_refused(taken(make(before(folder), batch_size=2)), make(after(folder), batch_size=2), message)


def test_a_folder_of_which_one_file_was_replaced_by_one_of_another_name(folder: Path) -> None:
    state = taken(make(folder))
    (folder / "ant" / "04.jpg").rename(folder / "ant" / "new.jpg")
    assert_refused(state, make(folder), "^the state is of another source .*: other names")


def test_a_folder_with_one_more_file(folder: Path) -> None:
    state = taken(make(folder))
    (folder / "ant" / "new.jpg").write_bytes(JPEGS[0])
    assert_refused(state, make(folder), "the state is of a source of 12 photographs and this one holds 13")


def test_a_folder_that_was_moved_is_the_same(folder: Path, tmp_path: Path) -> None:
    state = taken(make(folder))
    expected = ids_of(make(folder))
    folder.rename(tmp_path / "elsewhere")
    loader = make(tmp_path / "elsewhere")
    loader.load_state_dict(state)
    assert ids_of(loader) == expected[4:]


def test_the_source_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    named = ArraySource.name

    def name(self: ArraySource, sample_id: int) -> str:
        asked.append(sample_id)
        return named(self, sample_id)

    monkeypatch.setattr(ArraySource, "name", name)
    loader = make()
    list(loader)
    assert asked == []
    state = loader.state_dict()
    num = len(asked)
    assert num >= NUM
    for _ in loader:
        loader.state_dict()
    loader.load_state_dict(state)
    assert len(asked) == num


def test_a_state_of_an_earlier_version_says_why() -> None:
    old = {"version": 1, "seed": 5, "epoch": 0, "samples_consumed": 4, "num_samples": NUM, "shuffle": True}
    message = r"^the state's version is 1, which does not say of which source and recipe it is, .* reads 2\."
    assert_refused(old, make(), message)


def test_a_state_of_another_releases_pixels() -> None:
    state = taken(make())
    assert state["pixels"] == 2
    del state["pixels"]  # as those were that did not say
    for old in (state, state | {"pixels": 1}):
        message = r"^the state says pixels = 1, and this augpipe makes pixels = 2: .* set state\['pixels'\] = loader"
        assert_refused(old, make(), message)
    loader = make()
    loader.load_state_dict(state | {"pixels": loader.state_dict()["pixels"]})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"source": {"num_samples": 3}}, "a source's identity holds num_samples, names"),
        ({"source": None}, "a source's identity holds num_samples, names"),
        ({"recipe": "x"}, "the state's recipe cannot be read"),
        ({"recipe": None}, "the state's recipe cannot be read"),
    ],
)
def test_a_state_with_a_broken_part(part: dict[str, Any], message: str) -> None:
    assert_refused(taken(make()) | part, make(), message)
