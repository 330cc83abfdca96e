"""Groups in which a step stands before a look-up: they finish in turn, as in their library, or say that they do not."""

import numpy as np
import pytest

from augpipe import Augment, importers

STRIPE = "A.CoarseDropout(num_holes_range=(1, 1), hole_height_range=(64, 64), hole_width_range=(8, 8), fill=0, p=1)"
TURN = "A.Rotate(limit=(40, 40), border_mode=cv2.BORDER_REFLECT_101, p=1)"
TOLD = "stands before Rotate, and acts after it here."


def has_upright_stripe(group: str) -> bool:
    """Whether what it makes of a white image has a column that is dark."""
    recipe = importers.from_text(f"A.Compose([A.Resize(64, 64), {group}])", version="2").recipe
    shown = Augment(recipe, dtype="uint8", layout="NHWC")(np.full((80, 90, 3), 255, np.uint8))
    dark = np.asarray(shown).max(axis=2) < 128
    assert 0.05 < dark.mean() < 0.3
    return bool((dark.mean(axis=0) > 0.95).any())


@pytest.mark.parametrize(
    "group",
    [
        f"A.Sequential([{STRIPE}, {TURN}], p=0.9999)",
        f"A.OneOf([A.Sequential([A.NoOp(), {STRIPE}, {TURN}, A.HorizontalFlip(p=1)])], p=1)",
        f"A.Compose([A.ToGray(p=1), A.Blur(blur_limit=(3, 3), p=1), {STRIPE}, A.VerticalFlip(p=1), {TURN}], p=0.9999)",
    ],
)
def test_a_hole_before_a_turn_is_turned(group: str) -> None:
    assert not has_upright_stripe(group)
    rows = importers.from_text(f"A.Compose([A.Resize(64, 64), {group}])", version="2").rows
    assert {row.verdict for row in rows} <= {"exact"}
    assert all(any(own is op for op in rows[-1].ops) for own in rows[-1].ops)


def test_a_group_with_nothing_to_wait_for_stays_in_one_look_up() -> None:
    behind = f"A.Sequential([{TURN}, {STRIPE}], p=1)"
    assert has_upright_stripe(behind)
    for group in (behind, f"A.Sequential([A.ToGray(p=1), {TURN}], p=1)", f"A.OneOf([{STRIPE}, {TURN}], p=1)"):
        assert importers.from_text(f"A.Compose([A.Resize(64, 64), {group}])", version="2").recipe.num_passes == 1


@pytest.mark.parametrize(
    "group",
    [
        f"A.SomeOf([{STRIPE}, {TURN}], n=2)",
        f"A.OneOf([A.NoOp(), A.OneOf([A.Sequential([{STRIPE}, {TURN}], p=1)], p=1)], p=1)",
        f"A.Sequential([{', '.join([STRIPE, TURN] * 5)}], p=0.9)",
    ],
)
def test_a_group_that_cannot_act_in_turn_says_so(group: str) -> None:
    found = importers.from_text(f"A.Compose([A.Resize(64, 64), {group}])", version="2")
    assert f"CoarseDropout: {TOLD}" in found.notes and "CoarseDropout" not in found.exact
    assert found.recipe.num_passes == 1


def test_functions_of_torchvision_that_are_applied_together_act_in_turn() -> None:
    erased = "T.RandomErasing(p=1, scale=(0.1, 0.1), ratio=(9, 9), value=0)"
    turned = "T.RandomRotation((40, 40), interpolation=InterpolationMode.BILINEAR)"
    found = importers.from_text(f"T.Compose([T.Resize((64, 64)), T.RandomApply([{erased}, {turned}], p=0.5)])")
    assert found.recipe.num_passes == 3 and found.rows[-1].name == "RandomApply" and "RandomApply" in found.exact
    order = importers.from_text(f"T.Compose([T.Resize((64, 64)), T.RandomOrder([{erased}, {turned}])])")
    assert order.recipe.num_passes == 3 and "RandomOrder" not in order.exact


RIGHT = "A.Affine(translate_px={'x': (20, 20), 'y': (0, 0)}, p=1)"
LEFT = "A.Affine(translate_px={'x': (-20, -20), 'y': (0, 0)}, p=1)"


@pytest.mark.parametrize(
    "text",
    [
        f"{RIGHT}, A.OneOf([{LEFT}, A.HorizontalFlip(p=1)], p=1)",
        f"{RIGHT}, A.OneOf([A.HorizontalFlip(p=1), A.Sequential([A.VerticalFlip(p=1), {LEFT}])], p=1)",
        f"A.Sequential([{RIGHT}, {LEFT}], p=0.9999)",
        f"A.Sequential([{LEFT}, {RIGHT}, A.HorizontalFlip(p=1)], p=1), A.NoOp()",
        f"A.OneOf([A.Sequential([{RIGHT}, {LEFT}])], p=1)",
        f"{RIGHT}, A.Sequential([A.VerticalFlip(p=1), {LEFT}, {RIGHT}, {LEFT}], p=0.9999)",
        f"{RIGHT}, A.OneOf([A.Sequential([A.CenterCrop(64, 64), {LEFT}]), A.CenterCrop(64, 64, p=0)], p=1)",
        f"A.OneOf([A.Sequential([A.CenterCrop(64, 64), {RIGHT}])], p=1), {LEFT}",
    ],
)
def test_what_a_map_moves_out_no_map_in_a_group_brings_back(text: str) -> None:
    found = importers.from_text(f"A.Compose([A.Resize(64, 64), {text}])", version="2")
    assert not any("earlier map" in note for note in found.notes)
    shown = np.asarray(Augment(found.recipe, dtype="uint8", layout="NHWC")(np.full((80, 90, 3), 255, np.uint8)))
    assert shown[:, :43].min() == 255 and shown[:, 45:].max() == 0


def test_a_group_that_chooses_a_flip_or_a_map_looks_as_its_map_does() -> None:
    text = "T.Compose([T.Resize((64, 64)), {}([T.RandomHorizontalFlip(p=1), T.RandomRotation(9)])])"
    for group in ("T.RandomChoice", "T.RandomApply"):
        found = importers.from_text(text.format(group))
        assert len(found.exact) == 4 and found.recipe.num_passes == 2


def test_maps_that_meet_in_a_choice_among_crops_are_told_of() -> None:
    text = f"A.Compose([A.Resize(64, 64), A.OneOf([A.Sequential([A.CenterCrop(64, 64), {RIGHT}, {LEFT}])], p=1)])"
    rows = [row for row in importers.from_text(text, version="2").rows if row.name == "Affine"]
    assert ["earlier map" in row.note for row in rows] == [False, True] and rows[1].verdict == "near"
