"""Crops that are chosen among others, or that have a chance: one look-up shows whichever is drawn."""

import numpy as np
import pytest

from augpipe import Augment, Recipe, importers, ops, plan


def read(text: str, version: str | None = None) -> tuple[ops.Op, ...]:
    return importers.from_text(text, version=version).recipe.ops


def test_one_of_several_crops() -> None:
    crops = "A.RandomSizedCrop((50, 101), height=64, width=64, p=0.5), A.PadIfNeeded(64, 64, border_mode=0, p=0.5)"
    (made,) = read(f"A.OneOf([{crops}], p=1)", "1")
    sized, padded = ops.RandomResizedCrop(size=64, height_px=(50, 101), ratio=(1.0, 1.0)), ops.Pad(size=64)
    assert made == ops.OneCrop(
        chains=[[sized.model_copy(update={"size": (64, 64)})], [padded.model_copy(update={"size": (64, 64)})]]
    )
    (made,) = read(f"A.OneOf([{crops}, A.NoOp()])", "1")
    assert isinstance(made, ops.OneCrop) and made.weights == pytest.approx((1 / 6, 1 / 6, 1 / 6, 0.5))
    assert made.chains[2:] == ((), ())


def test_a_chain_of_crops_is_a_choice() -> None:
    chain = "A.Compose([A.SmallestMaxSize(80), A.RandomCrop(64, 64)])"
    (made,) = read(f"A.OneOf([{chain}, A.Resize(64, 64)], p=1.0)", "2")
    whole = [ops.ResizeShortest(size=80, rounding="nearest"), ops.RandomCrop(size=(64, 64))]
    assert made == ops.OneCrop(chains=[whole, [ops.Resize(size=(64, 64))]])
    whole[0] = ops.ResizeShortest(size=80)
    choice = "transforms.RandomChoice([transforms.Compose([transforms.Resize(80), transforms.RandomCrop(64)]), {}], {})"
    (made,) = read(choice.format("transforms.Resize((64, 64))", "[0.3, 0.7]"))
    assert made == ops.OneCrop(chains=[whole, [ops.Resize(size=(64, 64))]], weights=(0.3, 0.7))


@pytest.mark.parametrize(
    "text",
    [
        "A.Compose([A.RandomCrop(32, 32, p=0.25), A.Resize(48, 48)])",
        "A.Compose([A.Compose([A.RandomCrop(32, 32)], p=0.25), A.Resize(48, 48)])",
        "A.Compose([A.OneOf([A.RandomCrop(32, 32)], p=0.25), A.Resize(48, 48)])",
        "A.Compose([A.OneOrOther(A.RandomCrop(32, 32), A.NoOp(), p=0.25), A.Resize(48, 48)])",
        "T.Compose([T.RandomApply([T.RandomCrop(32)], p=0.25), T.Resize((48, 48))])",
    ],
)
def test_a_crop_that_has_a_chance(text: str) -> None:
    made = read(text)
    assert made == (
        ops.OneCrop(chains=[[ops.RandomCrop(size=(32, 32))], []], weights=(0.25, 0.75)),
        ops.Resize(size=(48, 48)),
    )


SHIFTED = "A.ShiftScaleRotate(0.1, 0.2, 30, p=0.5)"


def test_a_crop_is_chosen_among_flips_and_affine_maps() -> None:
    crop, flip = ops.RandomResizedCrop(size=(64, 64)), ops.Flip(p=1.0)
    resize, made = read(f"A.Compose([A.Resize(64, 64), A.OneOf([A.RandomResizedCrop((64, 64)), {SHIFTED}])])", "2")
    assert isinstance(made, ops.OneCrop) and made.chains[0] == (crop,) and made.weights is not None
    assert {inner.op for op in made.chains[1] for inner in op.flat} == {"stretch", "rotate", "translate"}
    assert resize.op == "resize"
    (made, _) = read("A.Compose([A.OneOf([A.HorizontalFlip(p=1), A.RandomCrop(32, 32)], p=1), A.Resize(48, 48)])", "2")
    assert made == ops.OneCrop(chains=[[flip], [ops.RandomCrop(size=(32, 32))]])
    both = "transforms.RandomHorizontalFlip(1), transforms.RandomVerticalFlip(0.5)"
    choice = "transforms.Compose([transforms.RandomChoice([transforms.RandomChoice([{}]), {}]), {}])"
    (made, _) = read(choice.format(both, "transforms.CenterCrop(32)", "transforms.Resize((48, 48))"))
    assert isinstance(made, ops.OneCrop) and [op.op for chain in made.chains for op in chain] == [
        "one_of",
        "center_crop",
    ]


def test_a_crop_that_has_a_chance_together_with_affine_maps() -> None:
    group = "T.RandomApply([T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.RandomRotation(20)], p=0.25)"
    (_, made) = read(f"T.Compose([T.Resize((48, 48)), {group}])")
    turn = ops.Rotate(max_deg=(-20.0, 20.0), step=None)
    assert made == ops.OneCrop(
        chains=[[ops.RandomResizedCrop(size=(48, 48)), ops.Flip(), turn], []], weights=(0.25, 0.75)
    )


def test_look_ups_that_follow_each_other_in_a_group_are_said_to_be_one() -> None:
    turned = "T.RandomRotation(20, interpolation=InterpolationMode.BILINEAR)"
    told = "RandomResizedCrop, RandomRotation: one look-up here, less blurred than by torchvision, which interpolates"
    for group in (f"T.RandomApply([T.RandomResizedCrop(48), {turned}])", f"T.RandomResizedCrop(48), {turned}"):
        found = importers.from_text(f"T.Compose([{group}, T.Resize((48, 48))])")
        assert any(note.startswith(told.replace(":", ", Resize:", 1)) for note in found.notes)
    found = importers.from_text(f"T.Compose([T.RandomChoice([T.RandomResizedCrop(48), {turned}])])")
    assert not any("one look-up" in note for note in found.notes)


def test_images_of_several_sizes_are_refused_where_nothing_makes_them_one() -> None:
    told = "RandomCrop: leaves each image at its own size; put RandomCrop, or another crop or Resize, behind it"
    with pytest.raises(ValueError, match=told):
        read("A.Compose([A.Resize(64, 64), A.RandomCrop(32, 32, p=0.5)])")
    assert read("A.Compose([A.Resize(32, 32), A.RandomCrop(32, 32, p=0.5)])", "2")[1].op == "one_crop"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A.RandomSizedBBoxSafeCrop(48, 64, p=0.5)", "p=0.5: a crop that looks at boxes is always applied; set p=1"),
        ("A.OneOf([A.AtLeastOneBBoxRandomCrop(9, 9), A.Resize(9, 9)])", "OneOf: holds AtLeastOneBBoxRandomCrop, which"),
        ("A.SomeOf([A.CenterCrop(9, 9), A.Resize(9, 9)], n=1)", "SomeOf: chooses several crops, resizes or paddings"),
        ("A.Resize(64, 64), A.OneOf([A.HorizontalFlip(), A.RandomCrop(9, 9)])", "OneOf: leaves each image at its own"),
        (
            "A.OneOf([A.RandomCrop(9, 9), A.Perspective()])",
            "OneOf: holds RandomCrop, which .* and Perspective: one look",
        ),
        (
            "A.OneOf([A.NoOp(), A.Sequential([A.Rotate(), A.PadIfNeeded(9, 9, border_mode=0)])])",
            "OneOf: PadIfNeeded pads what Rotate has moved, .* Put PadIfNeeded before Rotate",
        ),
        (
            "A.OneOf([A.PadIfNeeded(9, 9, border_mode=0), A.PadIfNeeded(9, 9, border_mode=4)])",
            "OneOf: a view has one border, and the group has several: PadIfNeeded",
        ),
        ("A.Normalize(p=0.5)", "Normalize: p=0.5: some images of a batch would stay in levels; set p=1"),
    ],
)
def test_crops_that_are_not_chosen_are_refused_by_their_own_names(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read(f"A.Compose([{text}])", "2")


def test_what_is_drawn_is_the_crop_that_it_would_be_alone() -> None:
    image = np.random.default_rng(5).integers(0, 256, (60, 80, 3), np.uint8)
    chains = [[ops.CenterCrop(size=32)], [ops.Resize(size=32)], [ops.ResizeShortest(size=40), ops.CenterCrop(size=32)]]
    recipe = Recipe(ops=[ops.OneCrop(chains=chains), ops.Flip(p=1.0)])
    ids = range(40)
    drawn = plan(recipe, ids, sizes=[image.shape[:2]] * 40)
    chosen = drawn.rows["drawn"]["one_crop"]["chosen"]
    assert set(chosen) == {0, 1, 2}
    images = Augment(recipe, dtype="uint8", layout="NHWC")([image] * 40, plan=drawn)
    for nth, chain in enumerate(chains):
        alone = Augment(Recipe(ops=[*chain, ops.Flip(p=1.0)]), dtype="uint8", layout="NHWC")(image)
        assert (images[chosen == nth] == alone).all()
    one_by_one = Augment(recipe, dtype="uint8", layout="NHWC")
    assert all((one_by_one(image, sample_ids=[nth]) == images[nth]).all() for nth in ids)
    assert Recipe.model_validate(recipe.model_dump()) == recipe


def test_a_replay_compose_is_a_compose() -> None:
    found = importers.from_text("A.ReplayCompose([A.HorizontalFlip(p=0.5)], save_key='kept')", version="1")
    assert found.recipe.ops == (ops.Flip(),)
    assert "ReplayCompose: what it draws is kept by a plan here, which replays it: augpipe.plan." in found.notes
    (made,) = read("A.OneOrOther(A.HorizontalFlip(), A.VerticalFlip(), p=0.3)", "2")
    both = (ops.Flip(p=1.0), ops.Flip(direction="vertical", p=1.0))
    assert made == ops.OneOf(ops=both, weights=(0.3, 0.7))


FLIP, INVERT = ops.Flip(p=1.0), ops.Invert(p=1.0)


@pytest.mark.parametrize(
    ("version", "group", "made"),
    [
        *(
            (version, f"A.{outer}(A.OneOrOther(A.HorizontalFlip(), A.InvertImg(), p=0.3)", inner)
            for version in "12"
            for outer, inner in (("OneOrOther", ops.OneOf(ops=(FLIP, INVERT), weights=(0.3, 0.7))),)
        ),
        (
            "2",
            "A.OneOrOther(A.SomeOf([A.HorizontalFlip(p=1), A.InvertImg(p=1)], n=1, p=0.3)",
            ops.SomeOf(ops=(FLIP, INVERT), num=(1, 1), p=0.3),
        ),
        (
            "2",
            "A.OneOrOther(A.OneOf([A.HorizontalFlip(), A.InvertImg()], p=0.3)",
            ops.OneOf(ops=(FLIP, INVERT), weights=(0.5, 0.5)),
        ),
        ("2", "A.OneOrOther(A.HorizontalFlip(p=0)", ops.Flip(p=0.0)),
        ("1", "A.OneOrOther(A.HorizontalFlip(p=0)", FLIP),
    ],
)
def test_what_a_choice_forces_has_no_chance_but_where_the_library_looks_at_it(
    version: str, group: str, made: ops.Op
) -> None:
    """Version 2's SomeOf and either version's OneOrOther draw by their p also where something chooses them."""
    (chosen,) = read(f"{group}, A.ToGray(), p=0.6)", version)
    assert chosen == ops.OneOf(ops=(made, ops.Grayscale(p=1.0)), weights=(0.6, 0.4))
    held = group.partition("(")[2]
    if "p=0)" not in group:  # which is never chosen there
        (chosen,) = read(f"A.OneOf([A.NoOp(p=0.5), {held}], p=0.9)", version)
        assert isinstance(chosen, ops.OneOf) and chosen.ops[1] == made


def test_version_1_forces_the_first_of_a_sequence_that_is_chosen() -> None:
    """Its Sequential hands on what forces it, which the first of its transforms takes."""
    held = "A.Sequential([A.HorizontalFlip(p=0.3), A.InvertImg(p=0.3)], p=0.5)"
    chosen = {version: read(f"A.OneOf([A.NoOp(p=0.5), {held}], p=0.9)", version)[0] for version in "12"}
    for version, first in (("1", 1.0), ("2", 0.3)):
        inner = ops.AllOf(ops=(ops.Flip(p=first), ops.Invert(p=0.3)))
        assert isinstance(made := chosen[version], ops.OneOf) and made.ops[1] == inner
    (alone,) = read(held, "1")
    assert alone == ops.AllOf(ops=(ops.Flip(p=0.3), ops.Invert(p=0.3)))


def test_what_a_compose_applies_where_it_leaves_out_the_rest_is_told() -> None:
    listed = "[A.InvertImg(p=0.5), A.HorizontalFlip(always_apply=True)], p=0.5"
    found = importers.from_text(f"A.Compose([A.Compose({listed})])", version="1")
    assert [row.verdict for row in found.rows] == ["exact", "exact", "near"]
    assert found.notes == (
        "Compose: applies HorizontalFlip to all images there, as always_apply=True says, and here with the others.",
    )
    assert not importers.from_text(f"A.Compose([A.Sequential({listed})])", version="1").notes
