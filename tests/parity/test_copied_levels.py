"""Levels in uint8 are looked up in tables: the same bits as rendering levels and taking the steps."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Augment, Loader, Recipe, ops
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.native import cpu_render
from tests.parity.images import noise

BY_CHANNEL: tuple[ops.Op, ...] = (
    ops.Brightness(factor=(0.3, 1.7), p=0.7),
    ops.Contrast(factor=(0.0, 3.0), p=0.7),
    ops.Gamma(gamma=(0.3, 3.0), p=0.7),
    ops.Invert(p=0.7),
    ops.Posterize(bits=(1, 8), p=0.7),
    ops.Solarize(threshold=(0, 256), p=0.7),
    ops.SolarizeAdd(addition=(0, 110), p=0.7),
    ops.ToneCurve(scale=0.3, p=0.7),
)
OTHERS: tuple[ops.Op, ...] = (
    ops.CoarseDropout(p=1.0),
    ops.Equalize(p=1.0),
    ops.GaussianBlur(p=1.0),
    ops.Noise(p=1.0),
    ops.Rotate(p=1.0),
    ops.Saturation(factor=(0.5, 0.5), p=1.0),
)
MOVES: tuple[ops.Op, ...] = (
    ops.Flip(p=0.5),
    ops.Flip(direction="vertical", p=0.5),
    ops.Transpose(swaps_sides=True, p=0.5),
    ops.QuarterTurn(p=0.8),
    ops.Translate(horizontal=(-9, 9), vertical=(-3, 3), unit="px", step=1, p=0.8),
)
SAMPLED: tuple[ops.Op, ...] = (
    ops.RandomResizedCrop(size=(66, 130)),
    ops.Rotate(p=0.7),
    ops.ElasticTransform(p=0.5),
    ops.Vignette(p=0.5),
    ops.ColorCast(p=0.5),
)
INVERT, DARKEN = ops.Invert(p=1.0), ops.Brightness(factor=(0.3, 0.5), p=1.0)
PADDED = ops.RandomCrop(size=(7, 70), padding=2, fill=(9.0, 0.0, 255.0))


def rendered(recipe: Recipe, width: int, worth: int, **options: Any) -> tuple[list[np.ndarray], list[int]]:
    """Images of eight noisy ones of two heights, and how many of each call were looked up in tables."""
    images = [noise(9 - nth % 2, width, seed=nth) for nth in range(8)]
    nums: list[int] = []

    def counted(*given: Any, kernel: Any = cpu_render.copy_levels) -> None:
        nums.append(len(given[2]))
        kernel(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_render, "WORTH_TABLES", worth)
        patch.setattr(cpu_render, "BLOCK", 1)
        patch.setattr(cpu_render, "copy_levels", counted)
        made = Augment(recipe, dtype="uint8", framework="numpy", num_threads=1, **options)(images, range(8))
    return list(made), nums


@settings(max_examples=40)
@given(
    moves=st.lists(st.sampled_from(MOVES), max_size=3),
    colours=st.lists(st.sampled_from([*BY_CHANNEL, *BY_CHANNEL, *OTHERS]), max_size=3),
    width=st.sampled_from([5, 40, 63, 64, 65, 130]),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    border=st.sampled_from(["context", "constant", "edge", "reflect_101", "wrap"]),
    fill=st.sampled_from([0.0, 100.0, 99.5]),
)
def test_tables_give_the_bits_of_the_steps(
    moves: list[ops.Op], colours: list[ops.Op], width: int, layout: str, border: Any, fill: float
) -> None:
    recipe = Recipe(ops=(*moves, *colours), border=border, fill=(fill, 255.0, 3.0))
    by_tables, _ = rendered(recipe, width, 0, layout=layout)
    by_steps, nums = rendered(recipe, width, 2**62, layout=layout)
    assert nums == []
    for one, other in zip(by_tables, by_steps, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=25)
@given(
    moves=st.lists(st.sampled_from(SAMPLED), min_size=1, max_size=2, unique_by=id),
    table=st.sampled_from(BY_CHANNEL[2:]),
    colours=st.lists(st.sampled_from([*BY_CHANNEL, *BY_CHANNEL, *OTHERS]), max_size=2),
    width=st.sampled_from([5, 64, 65, 130]),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    border=st.sampled_from(["context", "constant"]),
)
def test_tables_behind_a_look_up_give_the_bits_of_the_steps(
    moves: list[ops.Op], table: ops.Op, colours: list[ops.Op], width: int, layout: str, border: Any
) -> None:
    recipe = Recipe(ops=(*moves, table, *colours), border=border, fill=(99.5, 255.0, 3.0))
    by_tables, _ = rendered(recipe, width, 0, layout=layout)
    by_steps, _ = rendered(recipe, width, 2**62, layout=layout)
    for one, other in zip(by_tables, by_steps, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("colours", "expected"),
    [((INVERT, DARKEN), 4), ((ops.Posterize(p=0.5),), 4), ((DARKEN, INVERT), 0), ((), 0)],
    ids=["a table first", "or nothing", "a matrix first", "no program"],
)
def test_programs_that_begin_with_a_table_are_looked_up_last(
    colours: tuple[ops.Op, ...], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nums, kernel = [], cpu_render.look_up_levels
    monkeypatch.setattr(cpu_render, "look_up_levels", lambda *given: (nums.append(len(given[0])), kernel(*given)))
    images = [noise(80, 90, seed=nth) for nth in range(4)]
    Augment(Recipe(ops=(SAMPLED[0], *colours)), dtype="uint8", framework="numpy", num_threads=1)(images, range(4))
    assert sum(nums) == expected


@pytest.mark.parametrize("moves", [(), MOVES[:3], MOVES[4:6], (PADDED,)], ids=["none", "turns", "moved", "padded"])
def test_channels_changed_by_themselves_are_looked_up(moves: tuple[ops.Op, ...]) -> None:
    border: Any = {} if PADDED in moves else {"border": "constant", "fill": (9.0, 0.0, 255.0)}
    recipe = Recipe(ops=(*moves, *BY_CHANNEL), **border)
    found, nums = rendered(recipe, 70, 0)
    for one, other in zip(found, rendered(recipe, 70, 2**62)[0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert sum(nums) == 8 and len({image.tobytes() for image in found}) == 8


@pytest.mark.parametrize("op", OTHERS, ids=lambda op: op.op)
def test_what_needs_more_than_a_level_is_not_looked_up(op: ops.Op) -> None:
    _, nums = rendered(Recipe(ops=(BY_CHANNEL[0], op)), 70, 0)
    assert nums == []


def test_a_fill_between_two_levels_is_not_looked_up() -> None:
    _, nums = rendered(Recipe(ops=(MOVES[4], BY_CHANNEL[0]), border="constant", fill=(9.0, 99.5, 255.0)), 70, 0)
    assert nums == []


def test_part_of_a_batch_may_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a loader, which renders several images in one call."""
    images, kernel, nums = [noise(20, 70, seed=nth) for nth in range(16)], cpu_render.copy_levels, []
    monkeypatch.setattr(cpu_render, "copy_levels", lambda *given: (nums.append(len(given[2])), kernel(*given)))
    recipe = Recipe(ops=(ops.Gamma(), ops.Noise(p=0.3)))
    source = ArraySource(np.stack(images))
    (batch,) = Loader(source, recipe, batch_size=16, dtype="uint8", framework="numpy", shuffle=False)
    assert 0 < sum(nums) < 16 and max(nums) > 1
    for image, sample_id, found in zip(images, batch.sample_ids, batch.images, strict=True):
        alone = Augment(recipe, dtype="uint8", framework="numpy")(image, [sample_id])
        np.testing.assert_array_equal(found, alone)
