"""Batches planned by the sizes in the index, each image read when it is decoded: nothing else changes by it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, SampleError, recipes
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.ops import CenterCrop
from augpipe.pipeline.held_images import HeldSource, hold
from augpipe.pipeline.samples import Samples
from augpipe.sources.protocol import Source
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.loader.loader_sources import PAPER, SEVERAL_VIEWS, MemorySource, samples
from tests.datasets.shards.shard_sets import NUM, NUM_SHARDS, PER_SHARD, build, flip, forge_index

WHOLE = recipes.none()
SMALL = Recipe(name="small", ops=(CenterCrop(size=8),))


class ReadFirst(ShardSource):
    """The same images, of which nothing is known before they are read."""

    knows_sizes = False


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return build(tmp_path / "out")


def spoil(out: Path, sample_id: int) -> None:
    """Damage the pixels of an image: its header and the index stay as they are."""
    record = ShardSource(out)._indices[sample_id // PER_SHARD][sample_id % PER_SHARD]
    path = out / f"32/{sample_id // PER_SHARD:06}.tar"
    data = path.read_bytes()
    middle = record.offset + record.length // 2
    path.write_bytes(data[:middle] + b"\xff\xd9" * 20 + data[middle + 40 :])


def lose(out: Path, sample_id: int) -> None:
    """Damage the beginning of an image: it is none any more."""
    record = ShardSource(out)._indices[sample_id // PER_SHARD][sample_id % PER_SHARD]
    flip(out / f"32/{sample_id // PER_SHARD:06}.tar", record.offset)


def run(source: Source, recipe: Recipe, batch_size: int, **options: Any) -> Any:
    """All samples of an epoch, or the error."""
    loader = Loader(source, recipe, batch_size=batch_size, num_threads=2, framework="numpy", seed=4, **options)
    try:
        return samples(loader)
    except (SampleError, ValueError) as problem:
        return type(problem), str(problem)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("recipe", [PAPER, SEVERAL_VIEWS, WHOLE, SMALL], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("damage", ["none", "pixels", "no picture", "both", "all"])
def test_batches_and_errors_are_those_of_reading_first(
    out: Path, damage: str, recipe: Recipe, batch_size: int, on_error: str
) -> None:
    for sample_id in {"pixels": (0, 3), "both": (1, 5)}.get(damage, ()):
        spoil(out, sample_id)
    for sample_id in {"no picture": (3, 4, 11), "both": (2, 8), "all": range(NUM)}.get(damage, ()):
        lose(out, sample_id)
    expected = run(ReadFirst(out), recipe, batch_size, on_error=on_error)
    found = run(ShardSource(out), recipe, batch_size, on_error=on_error)
    if damage == "both" and on_error == "raise" and batch_size > 1:
        # which of a batch's bad images is told depends on whether reading or decoding comes first
        assert issubclass(found[0], ValueError) and issubclass(expected[0], ValueError)
    elif damage == "all" or (damage != "none" and on_error == "raise") or (recipe is WHOLE and batch_size > 1):
        assert isinstance(expected, tuple) and found == expected
    else:
        assert len(expected) == NUM and found == expected


SIZES: dict[str, dict[str, int]] = {
    "smaller": {"height": 9, "width": 11},
    "larger": {"height": 640, "width": 480},
    "turned": {"height": 35, "width": 32},
    "empty": {"height": 0},
    "huge": {"height": 2**32 - 1, "width": 2**32 - 1},
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lie", SIZES)
@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("recipe", [PAPER, WHOLE, SMALL], ids=lambda recipe: recipe.name)
def test_an_index_that_lies_about_a_size_changes_nothing(out: Path, recipe: Recipe, batch_size: int, lie: str) -> None:
    expected = run(ReadFirst(out), recipe, batch_size)
    for shard in range(NUM_SHARDS):
        forge_index(out / f"32/{shard:06}.idx", 3, **SIZES[lie])
    assert ShardSource(out).size(3) != (32, 35)
    found = run(ShardSource(out), recipe, batch_size)
    assert isinstance(found, list) != (recipe is WHOLE and batch_size > 1) and found == expected


class Anything(MemorySource):
    """Whatever files and arrays, with sizes as some library gives them."""

    knows_sizes = True

    def size(self, sample_id: int) -> list[np.uint16]:
        assert len(self) == NUM
        return [np.uint16(300), np.uint16(300)]


@pytest.mark.parametrize("recipe", [PAPER, SMALL, WHOLE], ids=lambda recipe: recipe.name)
def test_what_is_no_jpeg_is_planned_for_what_it_is(recipe: Recipe) -> None:
    image = scene(300, 300)
    kinds = [encoded(image, "JPEG"), encoded(image, "PNG"), image, encoded(image, "JPEG", exif=exif(6))] * 3
    expected = run(MemorySource(kinds), recipe, 5)
    assert isinstance(expected, list) and run(Anything(kinds), recipe, 5) == expected


def test_sizes_that_are_known_save_looking_at_the_images(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a batch was opened before it was planned")

    monkeypatch.setattr(Samples, "open", fail)
    loader = Loader(ShardSource(out), PAPER, batch_size=5, num_threads=2, framework="numpy")
    assert sum(len(batch) for batch in loader) == NUM
    with pytest.raises(AssertionError, match="opened before"):
        next(iter(Loader(ReadFirst(out), PAPER, batch_size=5, num_threads=2, framework="numpy")))


def test_what_a_cache_holds_is_the_same(out: Path) -> None:
    loaders = [
        Loader(source, PAPER, batch_size=5, num_threads=2, framework="numpy", cache="host")
        for source in (ShardSource(out), ReadFirst(out))
    ]
    for _ in range(2):
        late, first = (samples(loader) for loader in loaders)
        assert late == first
    assert loaders[0].cache_statistics.hits == NUM


def test_what_the_benchmark_holds_is_read_as_its_source_is(out: Path) -> None:
    source = ShardSource(out)
    images, _ = hold(source, PAPER)
    held = HeldSource(images, 2 * NUM, source)
    assert held.knows_sizes and not HeldSource(images, 2 * NUM).knows_sizes
    assert [held.size(i) for i in range(2 * NUM)] == [source.size(each.sample_id) for each in images] * 2


def test_sizes_of_an_earlier_epoch_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [encoded(scene(40 + i, 60, i), "JPEG") for i in range(7)]
    contents[3] = encoded(scene(44, 50), "PNG")
    source = MemorySource(contents)
    options: dict[str, Any] = {"batch_size": 3, "num_threads": 2, "framework": "numpy", "seed": 4, "backend": "native"}
    loader = Loader(source, SMALL, **options)
    opened: list[int] = []
    open_all = Samples.open

    def spy(self: Samples, batch: Any, items: Any) -> None:
        opened.extend(item.wanted for item in items)
        open_all(self, batch, items)

    monkeypatch.setattr(Samples, "open", spy)
    for epoch in range(3):
        fresh = Loader(source, SMALL, **options)
        fresh.set_epoch(epoch)
        expected = [batch.images for batch in fresh]
        opened.clear()
        for batch, images in zip(loader, expected, strict=True):
            np.testing.assert_array_equal(batch.images, images)
        assert sorted(opened) == (list(range(7)) if epoch == 0 else [])
        source.contents[5] = encoded(scene(70 + epoch, 33, epoch), "JPEG")  # of another size than before
