"""`augpipe.show`, and sheets of chosen samples, step by step and without an op."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import augpipe
from augpipe import Loader, Recipe, ops, sampling
from augpipe.cli.preview import preview
from augpipe.ops.mixing import CutMix
from augpipe.preview import by_op, by_step, over_epochs
from augpipe.preview.show import _of_loader, of_batch
from augpipe.recipes.parts import without_ops
from augpipe.recipes.recipe import Recipe as AnyRecipe

SEED = 4
RECIPE = Recipe(
    name="steps",
    ops=[ops.RandomResizedCrop(size=40), ops.Rotate(max_deg=40), ops.ColorCast(), ops.Rotate(), ops.Normalize()],
)
MIXED = Recipe(ops=[ops.RandomResizedCrop(size=40), ops.Normalize()], mixing=[CutMix(p=1.0)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from augpipe.datasets.synthetic.generate import generate

    root = tmp_path_factory.mktemp("photographs") / "photos"
    generate(root, num=7, classes=2, seed=3, workers=1)
    return root


def levels(folder: Path, recipe: AnyRecipe, sample_id: int, epoch: int) -> Any:
    stripped = Recipe(ops=[op for op in recipe.ops if op.op != "normalize"], mixing=recipe.mixing)
    loader = Loader(folder, stripped, batch_size=3, seed=SEED, framework="numpy", dtype="uint8", layout="NHWC")
    return loader.sample(sample_id, epoch).images[0]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_a_batch_s_levels_come_back(folder: Path, dtype: Any, layout: Any) -> None:
    recipe = RECIPE if dtype != "uint8" else Recipe(ops=[op for op in RECIPE.ops if op.op != "normalize"])
    batch = next(iter(Loader(folder, recipe, batch_size=5, seed=SEED, dtype=dtype, layout=layout)))
    cells = [cell for row in of_batch(batch, 2, 2).rows for cell in row.cells]
    assert len(cells) == 4
    for cell, sample_id in zip(cells, batch.sample_ids, strict=False):
        expected = levels(folder, RECIPE, int(sample_id), 0)
        off = np.abs(cell.image.astype(int) - expected).max()
        assert off == 0 if dtype != "bfloat16" else off <= 2  # of its 8 bits, two are left of -2..2
        assert cell.captions[0] == f"sample {sample_id}" and cell.captions[1] in ("label 0", "label 1")
    with pytest.raises(ValueError, match="a Batch comes with its own seed"):
        augpipe.show(batch, seed=1)


def test_one_channel_and_views_of_a_batch(folder: Path) -> None:
    views = [{"ops": [ops.RandomResizedCrop(size=24)]}, {"ops": [ops.RandomResizedCrop(size=16)]}]
    gray = Recipe(views=views, channels=1)
    batch = next(iter(Loader(folder, gray, batch_size=3, framework="numpy")))
    cells = [cell for row in of_batch(batch, 4, 4).rows for cell in row.cells]
    assert [cell.image.shape for cell in cells] == [(24, 24, 3), (16, 16, 3)] * 3
    np.testing.assert_array_equal(cells[0].image[:, :, 0], np.rint(batch.images[0][0, 0]))


def test_a_loader_s_sheet_holds_its_own_images_and_partners(folder: Path) -> None:
    loader = Loader(folder, MIXED, batch_size=3, seed=SEED, shuffle=False)
    loader.set_epoch(2)
    contents = _of_loader(loader, 3, 2, None)
    assert [row.sample_id for row in contents.rows] == [0, 1, 2]
    stripped = Recipe(ops=MIXED.ops[:1], mixing=MIXED.mixing)
    plain = Loader(
        folder, stripped, batch_size=3, seed=SEED, shuffle=False, framework="numpy", dtype="uint8", layout="NHWC"
    )
    for row in contents.rows:
        for epoch, cell in zip((2, 3), row.cells, strict=True):
            np.testing.assert_array_equal(cell.image, plain.sample(row.sample_id, epoch).images[0])
    drawn = Loader(folder, RECIPE, batch_size=3, seed=SEED, sampler=sampling.ClassBalanced())
    assert {len(row.cells) for row in _of_loader(drawn, 3, 4, None).rows} == {1}


def test_show_gives_an_image(folder: Path) -> None:
    loader = Loader(folder, RECIPE, batch_size=4, seed=SEED)
    for made in (
        augpipe.show(loader, rows=2, cols=2),
        augpipe.show(next(iter(loader))),
        augpipe.show(RECIPE, folder, rows=2, cols=2, seed=SEED, epoch=3),
        augpipe.show("deep_image", loader.source, rows=1, cols=1),
    ):
        assert isinstance(made, Image.Image) and made.mode == "RGB" and min(made.size) > 100
    with pytest.raises(ValueError, match=r'show\(recipe, "photos/"\)'):
        augpipe.show(RECIPE)


def test_steps_add_one_op_after_the_other(folder: Path) -> None:
    source = Loader(folder, RECIPE, batch_size=2).source
    contents = by_step(source, RECIPE, rows=2, seed=SEED, epoch=1)
    for row in contents.rows:
        assert row.headings == ("original", "random_resized_crop", "rotate", "color_cast", "rotate_2")
        for num, cell in enumerate(row.cells, start=1):
            alone = [
                op if place < num else op.model_copy(update={"p": 0.0}) for place, op in enumerate(RECIPE.ops[:-1])
            ]
            expected = levels(folder, Recipe(ops=alone), row.sample_id, 1)
            np.testing.assert_array_equal(cell.image, expected)
    mixed = by_step(source, MIXED, rows=1, seed=SEED)
    assert mixed.rows[0].headings == ("original", "random_resized_crop", "all together")


def test_without_an_op_the_others_draw_as_before(folder: Path) -> None:
    source = Loader(folder, RECIPE, batch_size=2).source
    left = without_ops(RECIPE, ["rotate"])
    (row,) = over_epochs(source, left, cols=1, seed=SEED, epoch=1, samples=[5]).rows
    never = [op.model_copy(update={"p": 0.0}) if place == 1 else op for place, op in enumerate(RECIPE.ops)]
    np.testing.assert_array_equal(row.cells[0].image, levels(folder, Recipe(ops=never), 5, 1))
    with pytest.raises(ValueError, match="no blur that could be left out. Choose from rotate, color_cast, rotate_2"):
        without_ops(RECIPE, ["blur"])
    assert without_ops(MIXED, []).mixing == MIXED.mixing


def test_samples_are_chosen_by_their_ids(folder: Path) -> None:
    source = Loader(folder, RECIPE, batch_size=2).source
    for contents in (over_epochs(source, RECIPE, samples=[6, 2, 6]), by_op(source, RECIPE, samples=[6, 2])):
        assert [row.sample_id for row in contents.rows] == [6, 2] and "first" not in contents.note
    with pytest.raises(ValueError, match="sample 7 is out of range: the source holds 7 photographs, with the ids 0..6"):
        over_epochs(source, RECIPE, samples=[7])


def test_the_command(folder: Path, tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "sheet.png"
    RECIPE.dump(recipe)
    preview(str(folder), recipe=[str(recipe)], out=out, sample=[3], steps=True, without=["color_cast"], seed=SEED)
    with Image.open(out) as sheet:
        assert sheet.width > 400
    with pytest.raises(ValueError, match="--by-op and --steps are two sheets"):
        preview(str(folder), recipe=[str(recipe)], out=out, steps=True, by_op=True)
