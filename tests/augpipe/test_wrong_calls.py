"""Calls that a new user gets wrong: each is answered by what to write."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Augment, Loader, Recipe, Schedule, ops, plan, recipes
from augpipe.cli.bench import _ratio
from augpipe.planning.output_format import dtype_name
from augpipe.recipes.names import load_recipe
from tests.augpipe.loader.loader_sources import CENTRE, arrays

IMAGES = arrays(4)

WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    'recipes.evaluation("large")': (
        lambda: recipes.evaluation("large"),  # type: ignore[arg-type]
        ValueError,
        "size='large' must be a whole number of pixels",
    ),
    "recipes.evaluation(300.5)": (
        lambda: recipes.evaluation(300.5),  # type: ignore[arg-type]
        ValueError,
        "size=300.5 must be a whole number of pixels",
    ),
    "recipes.deep_image(300)": (
        lambda: recipes.deep_image(300),
        ValueError,
        r"size=300 is larger than 256, the smallest of scales=\[256, 512\].*raise scales to at least 300",
    ),
    "recipes.none(224)": (
        lambda: recipes.none(224),
        TypeError,
        r"recipes.none keeps each image at its own size.*recipes.evaluation\(224\)",
    ),
    "recipes.none(size=224)": (
        lambda: recipes.none(size=224),
        TypeError,
        r"recipes.none keeps each image at its own size.*recipes.evaluation\(224\)",
    ),
    "Loader(source, recipe, 32)": (
        lambda: Loader(IMAGES, CENTRE, 32),  # type: ignore[call-arg]
        TypeError,
        "batch_size",
    ),
    "Loader(source, recipe, 32, batch_size=32)": (
        lambda: Loader(IMAGES, CENTRE, 32, batch_size=32),  # type: ignore[arg-type]
        TypeError,
        r"Loader takes a source and a recipe without names, and 32 as well. Name the rest, as batch_size=32",
    ),
    'Loader(source, "deep_image", batch_size=32, size=64)': (
        lambda: Loader(IMAGES, "deep_image", batch_size=32, size=64),  # type: ignore[arg-type]
        TypeError,
        r"Loader has no size: a recipe has it, as recipes.deep_image\(size=64\)",
    ),
    'Augment("deep_image", size=64)': (
        lambda: Augment("deep_image", size=64),  # type: ignore[arg-type]
        TypeError,
        r"Augment has no size: a recipe has it, as recipes.deep_image\(size=64\)",
    ),
    'Augment("deep_image", num_thread=2)': (
        lambda: Augment("deep_image", num_thread=2),  # type: ignore[arg-type]
        TypeError,
        "Augment has no argument num_thread. Did you mean num_threads?",
    ),
    'dtype="double"': (
        lambda: Loader(IMAGES, CENTRE, batch_size=2, dtype="double"),  # type: ignore[arg-type]
        ValueError,
        "dtype='double' is not known. Choose one of .*'float16'.*, or of fp32, fp16, bf16, half",
    ),
    "a text file object": (
        lambda: Augment(CENTRE)(io.StringIO("text")),
        ValueError,
        'image 0 is a StringIO that gives text. Open it in binary mode, "rb"',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_answered_by_what_to_write(name: str) -> None:
    call, kind, answer = WRONG[name]
    with pytest.raises(kind, match=answer):
        call()


def test_a_size_that_is_whole_is_taken() -> None:
    assert recipes.evaluation(np.int64(300)) == recipes.evaluation(300)  # type: ignore[arg-type]
    assert recipes.evaluation("300") == recipes.evaluation(300)  # type: ignore[arg-type]  # alike
    assert recipes.evaluation(300.0) == recipes.evaluation(300)  # type: ignore[arg-type]  # as every field of an op


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    for load in (Recipe.load, Schedule.load):
        with pytest.raises(ValueError, match="is a folder, and a recipe is a TOML file"):
            load(tmp_path)


def test_only_a_name_that_is_near_is_named() -> None:
    for text, near in (("nope", None), ("non", "none"), ("None", "none"), ("evalution", "evaluation")):
        with pytest.raises(ValueError, match="there is no recipe") as caught:
            load_recipe(text)
        assert ("Did you mean" in str(caught.value)) == (near is not None)
        assert near is None or f"Did you mean {near}?" in str(caught.value)


def test_half_is_float16() -> None:
    assert dtype_name("half") == "float16"


def test_a_file_object_is_a_file() -> None:
    """As of a zip archive, an upload or a cloud's client."""
    file = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(file, "PNG")
    transform = Augment(CENTRE)
    expected = transform(file.getvalue(), sample_ids=[3])
    file.seek(0)
    np.testing.assert_array_equal(transform(file, sample_ids=[3]), expected)
    file.seek(0)
    np.testing.assert_array_equal(transform([file], sample_ids=[3])[0], expected)


def test_a_batch_and_its_plan_say_in_a_line_what_they_are() -> None:
    unnamed = Recipe(ops=[ops.CenterCrop(size=16), ops.Normalize()])
    (batch,) = Loader(IMAGES, unnamed, batch_size=4, framework="numpy")
    assert "epoch 0, samples 2, 0, 1, 3, an unnamed recipe: images" in repr(batch)
    assert repr(replace(batch, columns={"caption": ["a"] * 4, "path": ["b"] * 4})).endswith(
        ", columns caption and path"
    )
    assert repr(batch.plan) == "Plan of 4 samples, epoch 0, an unnamed recipe, seed 0"
    two = plan(Recipe(name="mine", ops=[ops.Flip()]), [1, 2], sizes=[(30, 40)] * 2, epoch=3, seed=7)
    assert repr(two) == "Plan of 2 samples, epoch 3, recipe 'mine', seed 7"
    assert repr(plan(unnamed, [], sizes=[])) == "Plan of 0 samples, an unnamed recipe, seed 0"


def test_a_small_ratio_is_shown_by_its_digits() -> None:
    """A folder of three small images gave 0.00x."""
    assert [_ratio(a, 1000, "x") for a in (2.34, 234.0, 2340.0)] == ["0.0023x", "0.23x", "2.34x"]
