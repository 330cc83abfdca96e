"""`augpipe replay`, `Loader.replay` and `batch[i]`: one image again, by the line that names it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Loader, Recipe, ops, sampling
from augpipe.cli.replay import replay
from augpipe.ops.mixing import CutMix
from augpipe.pipeline.item_line import ItemLine
from augpipe.trainer.config.load import load_config, make_config
from augpipe.trainer.loop.data import open_sources, order_of
from augpipe.trainer.loop.replayed import loader_on_cpu, sample_of_step
from augpipe.trainer.loop.run_data import RunData
from tests.augpipe.loader.loader_sources import MemorySource, jpegs
from tests.augpipe.loader.target_sources import TARGET_RECIPES, object_source
from tests.augpipe.loader.target_sources import loader_of as objects_loader

SEED = 4
RECIPE = Recipe(ops=[ops.RandomResizedCrop(size=40), ops.Rotate(max_deg=40), ops.ColorCast()])
MIXED = Recipe(ops=[ops.RandomResizedCrop(size=40), ops.Rotate()], mixing=[CutMix(p=1.0)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from augpipe.datasets.synthetic.generate import generate

    root = tmp_path_factory.mktemp("photographs") / "photos"
    generate(root, num=23, classes=2, seed=3, workers=1)
    return root


def loader_of(folder: Any, recipe: Recipe, **options: Any) -> Loader[Any]:
    return Loader(folder, recipe, **{"batch_size": 5, "seed": SEED, "framework": "numpy", "dtype": "uint8"} | options)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [None, sampling.Repeated(2)])
@pytest.mark.parametrize("recipe", [RECIPE, MIXED])
def test_the_line_of_an_image_makes_it_again(folder: Path, recipe: Recipe, sampler: Any) -> None:
    loader = loader_of(folder, recipe, sampler=sampler)
    loader.set_epoch(3)
    passed = list(loader)
    other = loader_of(folder, recipe, sampler=sampler, batch_size=8)
    seen: set[str] = set()
    for batch in passed:
        for position in range(len(batch)):
            line = batch.line(position)
            place = "" if sampler is None else f", position {len(seen)}"  # a sample that comes twice is two images
            assert line == f"seed {SEED}, epoch 3, sample {batch.sample_ids[position]}{place}"
            again = other.replay(f"what was odd: {line}")
            assert np.array_equal(again.images[0], batch.images[position])
            assert np.array_equal(batch[position].images, again.images)
            assert batch[position].line() == line == again.line()
            assert ItemLine.read(repr(again)) == ItemLine.read(line)
            seen.add(line)
    assert len(seen) == (23 if sampler is None else 46)


def test_a_stand_in_is_made_again_where_it_stood() -> None:
    source = MemorySource(jpegs(6))
    source.contents[2] = b"no image"
    options: dict[str, Any] = {"on_error": "skip", "sampler": sampling.Repeated(2)}
    loader = loader_of(source, RECIPE, **options)
    batches = list(loader)
    for batch in batches:
        for position in range(len(batch)):
            assert np.array_equal(loader.replay(batch.line(position)).images[0], batch.images[position])
    line = batches[0].line().replace("sample", "other sample").replace("position 0", "position 12")
    with pytest.raises(ValueError, match=r"position=12 is out of range: epoch 0 has the positions 0\.\.11"):
        loader.replay(line)
    other = batches[0].sample_ids[batches[0].sample_ids != batches[0].sample_ids[0]][0]
    with pytest.raises(ValueError, match=f"position 0 of epoch 0 holds sample .*, and not {other}"):
        loader.replay(f"epoch 0, sample {other}, position 0")
    with pytest.raises(ValueError, match="position 3 is for epochs of a sampler"):
        loader_of(source, RECIPE).replay("epoch 0, sample 1, position 3")


@pytest.mark.parametrize("recipe", [RECIPE, MIXED], ids=["alone", "mixed"])
def test_a_stand_in_is_mixed_again_with_the_partner_it_had(recipe: Recipe) -> None:
    source = MemorySource(jpegs(9))
    source.contents[2] = b"no image"
    loader = loader_of(source, recipe, on_error="skip")
    num_stood_in = 0
    for batch in list(loader):
        assert batch.asked_ids is not None
        for position, asked in enumerate(batch.asked_ids.tolist()):
            again = loader.replay(batch.line(position))
            np.testing.assert_array_equal(again.images[0], batch.images[position])
            assert again.sample_ids.tolist() == [batch.sample_ids[position]]
            assert again.line() == batch[position].line() == batch.line(position)
            assert ItemLine.read(repr(again)) == ItemLine.read(batch.line(position))
            num_stood_in += asked == 2 != batch.sample_ids[position]
    assert num_stood_in == 1


def as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_lists(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_lists(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("name", TARGET_RECIPES)
@pytest.mark.parametrize("form", ["list", "flat"])
def test_one_image_of_a_batch_keeps_its_targets(form: Any, name: str) -> None:
    loader = objects_loader(object_source(11), TARGET_RECIPES[name], targets=form)
    num_objects = 0
    for batch in loader:
        for position in range(len(batch)):
            alone = loader.sample(int(batch.sample_ids[position]))
            assert as_lists(batch[position].targets) == as_lists(alone.targets)
            assert as_lists(batch[position].dropped) == as_lists(alone.dropped)
            num_objects += sum(len(labels) for labels in of_name(alone.targets, ("labels", "cls")))
    assert num_objects > 11


def test_padded_targets_of_one_image_are_as_long_as_the_batch_s() -> None:
    batch = next(iter(objects_loader(object_source(11), TARGET_RECIPES["cropped"], targets="padded")))
    for position in range(len(batch)):
        for name, values in batch[position].targets.items():
            assert as_lists(values) == as_lists(batch.targets[name])[position : position + 1]


def of_name(targets: Any, names: tuple[str, ...]) -> Any:
    for one in targets if isinstance(targets, list | tuple) else [targets]:
        yield from of_name(one, names) if isinstance(one, list) else [one[name] for name in names if name in one]


def test_a_run_has_a_split_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ValueError, match="is a run, which has a source of its own. Leave --split out"):
        replay(tmp_path, "sample 0", split="val", out=tmp_path / "a.png")


def test_positions_count_from_either_end_and_end_there(folder: Path) -> None:
    batch = next(iter(loader_of(folder, RECIPE)))
    assert batch[-1].sample_ids.tolist() == [batch.sample_ids[4]] and len(batch[2]) == 1
    assert batch[1].labels.tolist() == [batch.labels[1]]
    assert np.array_equal(np.asarray(batch[0].show()), np.asarray(batch[-5].show()))
    assert not np.array_equal(np.asarray(batch[0].show()), np.asarray(batch[1].show()))
    with pytest.raises(IndexError, match=r"batch\[5\]: the batch has 5 images"):
        batch[5]
    with pytest.raises(ValueError, match="position='images' is a str"):
        batch["images"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sample 7, sample 8", "names sample 7 and sample 8"),
        ("hello", "does not name one image"),
        ("step 4", "does not name one image"),
        ("sample 1, step 4, item 3", "does not name one image"),
        ("step 4, item 3", "counts in steps"),
        ("seed 5, sample 3", "is of seed 5, and this loader's is 4"),
        ("sample 23", "23"),
    ],
)
def test_lines_that_name_nothing_here(folder: Path, line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        loader_of(folder, RECIPE).replay(line)


def test_a_sticky_order_that_mixes_is_replayed_with_as_many_ranks_only(folder: Path) -> None:
    """Who is mixed with whom depends on how many ranks there are: a line that is silent on it would guess."""
    loader = loader_of(folder, MIXED, shuffle="sticky", rank=1, world_size=2)
    batch = next(iter(loader))
    for line in (batch.line(2), f"{batch.line(2)}, rank 0 of 3"):
        with pytest.raises(ValueError, match="rank 0 of 2"):
            loader.replay(line)
    again = loader.replay(f"{batch.line(2)}, rank 1 of 2")
    assert np.array_equal(again.images[0], batch.images[2])
    unmixed = loader_of(folder, RECIPE, shuffle="sticky", rank=1, world_size=2)
    assert unmixed.replay(batch.line(2)).sample_ids.tolist() == [batch.sample_ids[2]]


def test_a_line_of_a_part_is_replayed_in_that_part_only(folder: Path, tmp_path: Path) -> None:
    """Ids count within the part, so that the same number is another image of the whole."""
    part = loader_of(folder, RECIPE, split="train", holdout=0.3)
    batch = next(iter(part))
    line = batch.line(2)
    assert line == f"seed {SEED}, epoch 0, sample {batch.sample_ids[2]} of 16"
    assert ItemLine.read(repr(batch[2])) == ItemLine.read(line)
    again = loader_of(folder, RECIPE, split="train", holdout=0.3).replay(line)
    assert np.array_equal(again.images[0], batch.images[2])
    whole = loader_of(folder, RECIPE)
    other = whole.source.name(int(batch.sample_ids[2]))
    message = f"counts in a part of 16 photographs, and here are 23, of which that sample is .*{Path(other).name}, an"
    with pytest.raises(ValueError, match=message):
        whole.replay(line)
    with pytest.raises(ValueError, match="counts in a part of 16 photographs, and here are 7, "):
        loader_of(folder, RECIPE, split="val", holdout=0.3).replay(line)
    with pytest.raises(ValueError, match=message):
        replay(folder, line, ["evaluation"], out=tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_words_are_found_in_any_text() -> None:
    assert ItemLine.read("epoch=2 step:14 (item 3, rank 1 of 4)") == ItemLine(epoch=2, step=14, item=3, rank=1, of=4)
    assert ItemLine.read("WARNING skipped sample 17, photos/9.jpg: truncated") == ItemLine(sample=17)


@pytest.mark.parametrize(("accumulate", "drop_last", "world_size"), [(1, True, 1), (2, False, 1), (2, False, 2)])
def test_an_item_of_a_step_is_the_one_that_was_trained_on(
    folder: Path, accumulate: int, drop_last: bool, world_size: int
) -> None:
    data = {"source": str(folder), "size": 40, "scales": [48], "batch_size": 4, "drop_last": drop_last}
    config = make_config(
        {"seed": 9, "epochs": 3, "data": data, "model": {"name": "small-cnn"}, "optim": {"accumulate": accumulate}}
    )
    source, _ = open_sources(config.data, config.seed)
    for rank in range(world_size):
        order = order_of(config, source)
        trained = Loader(source, RECIPE, framework="numpy", rank=rank, world_size=world_size, **order)
        looked_at = loader_on_cpu(config, rank, world_size)
        step = 0
        for epoch in range(3):
            batches = [batch.sample_ids.tolist() for batch in trained]
            for first in range(0, len(batches), accumulate):
                step += 1
                ids = [sample_id for batch in batches[first : first + accumulate] for sample_id in batch]
                found = [sample_of_step(config, looked_at, ItemLine(step=step, item=item)) for item in range(len(ids))]
                assert found == [(epoch, sample_id, None) for sample_id in ids]
                with pytest.raises(ValueError, match=rf"has no item .* the items 0\.\.{accumulate * 4 - 1},"):
                    sample_of_step(config, looked_at, ItemLine(step=step, item=accumulate * 4))
        with pytest.raises(ValueError, match=f"the run has steps 1..{step}"):
            sample_of_step(config, looked_at, ItemLine(step=step + 1, item=0))
        with pytest.raises(ValueError, match="is in epoch 0, and the line says epoch 1"):
            sample_of_step(config, looked_at, ItemLine(step=1, item=0, epoch=1))


@pytest.mark.slow
def test_an_item_of_a_sampler_s_run_is_the_one_that_was_drawn_there(folder: Path) -> None:
    """A sample that comes twice is augmented twice, and a step's item is one of the two."""
    data = {"source": str(folder), "size": 40, "scales": [48], "batch_size": 4}
    sampled = {"sampler": "repeated", "sampler_times": 3}
    config = make_config({"seed": 9, "epochs": 1, "data": data | sampled, "model": {"name": "small-cnn"}})
    loader = loader_on_cpu(config)
    for step, batch in enumerate(loader, start=1):
        for item in range(len(batch)):
            epoch, sample, position = sample_of_step(config, loader, ItemLine(step=step, item=item))
            again = loader.replay(f"epoch {epoch}, sample {sample}, position {position}")
            assert np.array_equal(again.images[0], batch.images[item])


def test_of_is_said_of_a_rank_alone() -> None:
    assert ItemLine.read("step 7 of 18, item 2") == ItemLine(step=7, item=2)
    assert ItemLine.read("Batch of 1, epoch 0, sample 3") == ItemLine(epoch=0, sample=3)


def test_the_command_draws_the_image_of_a_run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(
        f'seed = 9\nepochs = 2\n[data]\nsource = "{folder}"\nsize = 40\nscales = [48]\nbatch_size = 4\n'
        '[model]\nname = "small-cnn"\n'
    )
    sheets = {}
    for name, options in (("plain", {}), ("steps", {"steps": True}), ("without", {"without": ["rotate"]})):
        out = tmp_path / f"{name}.png"
        replay(run, "step 7, item 2", out=out, **options)
        sheets[name] = np.asarray(Image.open(out).convert("RGB"))
    assert sheets["steps"].shape[1] > sheets["plain"].shape[1]
    assert not np.array_equal(sheets["plain"], sheets["without"])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{tmp_path / 'plain.png'}: seed 9, epoch 1, sample ")
    with pytest.raises(ValueError, match="a recipe of its own"):
        replay(run, "sample 3", ["deep_image"], out=tmp_path / "a.png")
    with pytest.raises(ValueError, match="of seed 1, and"):
        replay(run, "seed 1, sample 3", out=tmp_path / "a.png")
    with pytest.raises(ValueError, match="is not a run's folder"):
        replay(folder, "step 3, item 3", out=tmp_path / "a.png")


def config_text(source: Path, recipe: Path) -> str:
    model = 'seed = 9\nepochs = 2\nmodel.name = "small-cnn"\n'
    return f'{model}[data]\nsource = "{source}"\nrecipe = "{recipe}"\nbatch_size = 4\n'


@pytest.mark.parametrize("change", ["recipe", "photographs"])
def test_a_run_whose_data_changed_since_is_not_replayed_with_other_images(
    folder: Path, tmp_path: Path, change: str
) -> None:
    photos, run, recipe = tmp_path / "photos", tmp_path / "run", tmp_path / "mine.toml"
    shutil.copytree(folder, photos)
    run.mkdir()
    recipe.write_text(RECIPE.to_toml())
    (run / "config.toml").write_text(config_text(photos, recipe))
    config = load_config(run / "config.toml")
    RunData.of(config, *open_sources(config.data, config.seed)).write(run, None)
    replay(run, "epoch 1, sample 3", out=tmp_path / "item.png")
    if change == "recipe":
        recipe.write_text(RECIPE.to_toml().replace("max_deg = 40", "max_deg = 20"))
    else:
        next(photos.rglob("*.jpg")).unlink()
    with pytest.raises(ValueError, match="Put it back"):
        replay(run, "epoch 1, sample 3", out=tmp_path / "item.png")


def test_the_ranks_of_a_run_that_mixes_in_a_sticky_order_have_to_be_said(folder: Path, tmp_path: Path) -> None:
    """A sample's partner depends on them there."""
    recipe = tmp_path / "mixed.toml"
    recipe.write_text(MIXED.to_toml())
    (tmp_path / "config.toml").write_text(config_text(folder, recipe) + 'shuffle = "sticky"\n')
    with pytest.raises(ValueError, match="rank 0 of 4"):
        replay(tmp_path, "epoch 1, sample 3", out=tmp_path / "item.png")
    replay(tmp_path, "epoch 1, sample 3, rank 1 of 2", out=tmp_path / "item.png")
