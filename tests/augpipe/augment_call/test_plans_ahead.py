"""Calls with one image each, which plan ahead: the draws of each id are what they are by themselves."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, augment, ops
from augpipe.augment_call import host_images, plans_ahead
from augpipe.ops import KeepObjects
from augpipe.planning.planned_view import PlannedView
from tests.augpipe.decoding.image_files import encoded, scene
from tests.parity.images import noise

RECIPE = Recipe(ops=[ops.RandomResizedCrop(size=24), ops.Flip(), ops.Invert(p=0.3), ops.Noise(p=0.3)])
SIZES = [(40, 50), (50, 40), (33, 33)]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ids each plan was of."""
    numbers: list[int] = []

    def counted(draw: Any) -> Any:
        def count_and_draw(recipe: Recipe, ids: Any, **how: Any) -> Any:
            numbers.append(len(ids))
            return draw(recipe, ids, **how)

        return count_and_draw

    for name in ("draw_plan", "plan_ahead"):
        monkeypatch.setattr(augment, name, counted(getattr(augment, name)))
    return numbers


@pytest.mark.parametrize("pattern", ["0", "01", "0012", "000000012"])
def test_one_image_a_call_gives_the_pixels_of_its_id(pattern: str, planned: list[int]) -> None:
    photographs, ahead, apart = [noise(*size, seed=1) for size in SIZES], Augment(RECIPE, 7), Augment(RECIPE, 7)
    for epoch in (0, 3):
        ahead.set_epoch(epoch)
        for number in range(40):
            photograph = photographs[int(pattern[number % len(pattern)])]
            assert np.array_equal(ahead(photograph), apart(photograph, [number], epoch))
            if number == 20:
                ahead.next_id = number + 5  # others come from elsewhere
                assert np.array_equal(ahead(photograph), apart(photograph, [number + 5], epoch))
                ahead.next_id = number + 1
    own = [num for num in planned if num > 1]
    assert max(own) >= 4 and sum(planned) < 4 * 84 + 84


def test_another_recipe_is_planned_from_the_next_call_on() -> None:
    call, other, photograph = Augment(RECIPE, 7), Recipe(ops=[ops.RandomCrop(size=16)]), noise(40, 50, seed=1)
    for _ in range(4):
        call(photograph)
    call.recipe = other
    assert np.array_equal(call(photograph), Augment(other, 7)(photograph, [4]))


def test_images_of_one_size_are_planned_in_ever_longer_blocks(planned: list[int]) -> None:
    call, photograph = Augment(RECIPE), noise(40, 50, seed=1)
    for _ in range(800):
        call(photograph)
    assert planned == [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256]


def test_images_of_ever_other_sizes_are_too(planned: list[int]) -> None:
    call = Augment(RECIPE)
    for side in range(30, 60):
        call(noise(side, 40, seed=1))
    assert planned == [1, 2, 4, 8, 16]


def test_a_block_is_fitted_once_to_a_size_that_comes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, resized = list[int](), PlannedView.resized

    def counted(view: PlannedView, own: slice, sizes: Any) -> Any:
        fitted.append(own.stop - own.start)
        return resized(view, own, sizes)

    monkeypatch.setattr(PlannedView, "resized", counted)
    monkeypatch.setattr(plans_ahead, "MOST_AHEAD", 64)
    call, photographs = Augment(RECIPE, 7), [noise(*size, seed=1) for size in SIZES]
    apart = [Augment(RECIPE, 7)(photographs[number % 3], [number]) for number in range(150)]
    assert all(np.array_equal(call(photographs[number % 3]), apart[number]) for number in range(150))
    assert fitted.count(1) < 30 and fitted.count(64) == 4  # two sizes in two blocks, whose own is the third


def test_batches_are_planned_ahead_for_their_own_sizes(planned: list[int]) -> None:
    call, apart = Augment(RECIPE, 7), Augment(RECIPE, 7)
    for number in range(0, 160, 8):
        photographs = [noise(30 + (number + nth) % 5, 40, seed=1) for nth in range(8)]
        assert np.array_equal(call(photographs), apart(photographs, range(number, number + 8)))
    assert [num for num in planned if num != 8] == [16, 32, 64, 128]


def test_they_are_planned_alone_where_all_depends_on_the_size(planned: list[int]) -> None:
    call, apart = (Augment(Recipe(ops=[ops.Translate(), ops.Erase(p=1.0)])) for _ in range(2))
    for number in range(12):
        photograph = noise(30 + number, 40, seed=1)
        assert np.array_equal(call(photograph), apart(photograph, [number]))
    assert planned.count(1) > 8 and sum(planned) < 3 * 12


@pytest.mark.parametrize("pattern", ["01", "0012", "000000012"])
def test_sizes_that_come_often_are_planned_ahead_all_the_same(pattern: str, planned: list[int]) -> None:
    recipe = Recipe(ops=[ops.Translate(p=1.0), ops.Erase(p=1.0)])
    photographs, ahead, apart = [noise(*size, seed=1) for size in SIZES], Augment(recipe, 7), Augment(recipe, 7)
    expected = [apart(photographs[int(pattern[number % len(pattern)])], [number]) for number in range(200)]
    planned.clear()
    for number in range(200):
        assert np.array_equal(ahead(photographs[int(pattern[number % len(pattern)])]), expected[number])
    assert max(planned) >= 64 and len(planned) < 40
    ahead.set_epoch(1)
    assert np.array_equal(ahead(photographs[1]), apart(photographs[1], [0], 1))


def test_so_are_many_sizes_that_come_again_and_again(planned: list[int]) -> None:
    call = Augment(Recipe(ops=[ops.Translate(p=1.0), ops.Erase(p=1.0)]))
    photographs = [noise(30 + nth, 40, seed=1) for nth in range(12)]
    for number in range(600):
        call(photographs[number % 12])
    assert planned.count(1) < 150 and sum(num == 256 for num in planned) > 12


def test_the_last_ids_begin_again_from_0() -> None:
    call, apart, photograph = Augment(RECIPE), Augment(RECIPE), noise(40, 50, seed=1)
    call.next_id = 2**32 - 6
    for nth in range(12):
        assert np.array_equal(call(photograph), apart(photograph, [(2**32 - 6 + nth) % 2**32]))


def test_threads_share_what_was_planned() -> None:
    call, apart, photographs = Augment(RECIPE), Augment(RECIPE), [noise(*size, seed=1) for size in SIZES[:2]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: (number % 2, call(photographs[number % 2])), range(100)))
    expected = {(which, apart(photographs[which], [number]).tobytes()) for number in range(100) for which in (0, 1)}
    given = {(which, image.tobytes()) for which, image in found}
    assert given <= expected and len(given) > 90


def test_files_and_targets_are_planned_ahead_too(planned: list[int]) -> None:
    content, photograph = encoded(scene(96, 128, 3), "JPEG"), noise(96, 128, seed=3)
    recipe = Recipe(ops=[ops.RandomResizedCrop(size=24), ops.Flip()])
    call, apart = Augment(recipe), Augment(recipe)
    for number in range(0, 30, 3):
        assert np.array_equal(call(content), apart(content, [number]))
        assert np.array_equal(call(photograph), apart(photograph, [number + 1]))
        boxes = np.array([[5.0, 6.0, 70.0, 80.0]])
        given = {"image": photograph, "bboxes": boxes, "labels": [1], "bbox_format": "pascal_voc"}
        found, expected = call(**given), apart(**given, sample_ids=[number + 2])
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert max(planned) >= 16


@pytest.mark.parametrize("recipe", [RECIPE, Recipe(ops=[ops.Rotate(p=1.0), ops.CenterCrop(size=90)]), Recipe(ops=())])
def test_of_arrays_what_is_seen_is_packed(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    photographs, call = [noise(100, 120, seed=seed) for seed in range(6)], Augment(recipe, num_threads=1)
    whole = call(photographs, range(6))
    monkeypatch.setattr(host_images, "WORTH_A_REGION", 0)
    assert np.array_equal(call(photographs, range(6)), whole)
    assert np.array_equal(np.stack([call(one, [nth]) for nth, one in enumerate(photographs)]), whole)


def test_a_seed_that_is_set_between_calls_counts() -> None:
    call, photograph = Augment(RECIPE, 7), noise(40, 50, seed=1)
    call(photograph)
    call.seed = 8
    assert np.array_equal(call(photograph), Augment(RECIPE, 8)(photograph, [1]))


def test_a_call_that_keeps_objects_is_not_planned_ahead(planned: list[int]) -> None:
    keeping = ops.RandomResizedCrop(size=24, keep_objects=KeepObjects(rule="center"))
    call, apart = Augment(Recipe(ops=[keeping])), Augment(Recipe(ops=[keeping]))
    for number in range(6):
        boxes = np.array([[5.0 * number, 6.0, 9.0, 9.0]])
        given = {"image": noise(40, 50, seed=1), "bboxes": boxes, "bbox_format": "coco"}
        assert np.array_equal(call(**given)["image"], apart(**given, sample_ids=[number])["image"])
    assert planned == [1] * 12
