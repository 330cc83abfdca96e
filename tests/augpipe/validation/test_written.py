"""What `repr` says of ops, recipes, loaders and batches."""

import numpy as np
import pytest
import torch

from augpipe import Loader, Recipe, Schedule, View, ops, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.recipes.schedule import Stage

PIXELS = np.zeros((5, 40, 40, 3), np.uint8)
NAMES = vars(ops) | {"Recipe": Recipe, "View": View, "Schedule": Schedule, "Stage": Stage}
VIEWS = Recipe(name="two", views=(View(ops=(ops.CenterCrop(size=8),), count=2), View(ops=(ops.CenterCrop(size=4),))))


@pytest.mark.parametrize(
    "made",
    [
        *(
            ops.Flip(p=0.25),
            ops.OneOf(ops=(ops.Rotate(), ops.Identity()), weights=(1, 2)),
            ops.MixUp(),
            VIEWS,
            Recipe(),
        ),
        *(build() for build in recipes.BY_NAME.values()),
        recipes.progressive(recipes.evaluation(), {0: 96, 3: 224}),
        Recipe(ops=(ops.CenterCrop(),), mixing=(ops.CutMix(p=0.5),), border="constant", fill=(1, 2, 3)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_descriptions_are_written_as_the_python_that_makes_them(made: ops.Op | Recipe | Schedule) -> None:
    assert eval(repr(made), dict(NAMES)) == made
    assert str(made) == repr(made) and "op=" not in repr(made)


def test_a_recipe_has_a_line_for_each_op() -> None:
    assert repr(ops.Flip()) == "Flip()" and repr(ops.Flip(p=1.0)) == "Flip(p=1.0)"
    assert repr(Recipe(ops=(ops.Identity(),))) == "Recipe(ops=[Identity()])"
    assert repr(recipes.evaluation()) == "Recipe(name='evaluation', ops=[CenterCrop(scale=256), Normalize()])"
    made = Recipe(name="mine", ops=[ops.CenterCrop(scale=256), ops.Normalize(mean=0.5, std=0.25), ops.Flip(p=0.25)])
    lines = repr(made).splitlines()
    assert lines == [
        "Recipe(",
        "    name='mine',",
        "    ops=[",
        "        CenterCrop(scale=256),",
        "        Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),",
        "        Flip(p=0.25),",
        "    ],",
        ")",
    ]


def test_a_loader_is_a_small_table() -> None:
    loader = Loader(ArraySource(PIXELS), recipes.evaluation(16, 20), batch_size=2, seed=3, dtype="float16")
    assert repr(loader).splitlines() == [
        "Loader: 3 batches of 2 an epoch",
        f"  source  {loader.source!r}",
        "  recipe  evaluation: center_crop, normalize",
        "  images  16x16, float16 NCHW, torch on cpu",
        "  now     epoch 0 of seed 3, rank 0 of 1",
    ]
    loader = Loader(ArraySource(PIXELS), VIEWS, batch_size=2, framework="numpy", dtype="uint8", layout="NHWC")
    assert "  images  8x8 and 4x4, uint8 NHWC, numpy on cpu" in repr(loader)
    assert "  recipe  two: center_crop; center_crop" in repr(loader)


def test_a_batch_shows_no_numbers_of_its_images() -> None:
    source = ArraySource(PIXELS, np.arange(5) % 2)
    batch = next(iter(Loader(source, "evaluation", batch_size=2, num_threads=1)))
    assert batch.images.dtype == torch.float32
    assert repr(batch) == (
        "Batch of 2, seed 0, epoch 0, samples 2, 0, recipe 'evaluation': images float32 (2, 3, 224, 224), "
        "labels int64 (2,)"
    )
    numpys = {"batch_size": 2, "framework": "numpy", "dtype": "uint8", "num_threads": 1}
    batch = next(iter(Loader(source, VIEWS, **numpys)))
    assert "images uint8 (2, 3, 8, 8) and uint8 (2, 3, 8, 8) and uint8 (2, 3, 4, 4)" in repr(batch)
    mixing = Recipe(ops=(ops.CenterCrop(size=8),), mixing=(ops.MixUp(),))
    batch = next(iter(Loader(source, mixing, **numpys)))
    assert repr(batch).endswith("labels MixedLabels of int64 (2,)")
