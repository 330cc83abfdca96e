"""Verdicts of an import follow from what was measured, and from nothing else."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from augpipe import importers, ops
from augpipe.recipes.importers import measured
from augpipe.recipes.importers.measured import Case, Figures, Library, forms, judged
from augpipe.recipes.importers.rows import Look, Row
from tests.augpipe.importers.recipes import SEEN, published

Keep = Callable[..., None]

ROW = Row(name="Rotate", ops=(ops.Rotate(max_deg=(-5, 5), step=None),), look=Look(interpolation="bilinear"))
CASE = Case(library="one", call="", form=forms(ROW)[0], ops="", mean=0.4, largest=9.0, apart=0.02, p=0.3)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    """Has only these cases be measured."""

    def keep(*cases: Case) -> None:
        figures = Figures(libraries={"one": Library(date="2026-01-01", versions={}, num_tests=100)}, cases=cases)
        monkeypatch.setattr(measured, "figures", lambda: figures)
        measured._of_form.cache_clear()

    yield keep
    measured._of_form.cache_clear()


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([CASE], "exact"),
        ([replace(CASE, mean=1.0)], "exact"),
        ([replace(CASE, mean=1.01)], "near"),
        ([replace(CASE, p=1e-5)], "near"),
        ([replace(CASE, p=1e-3)], "exact"),
        ([replace(CASE, p=None)], "exact"),
        ([replace(CASE, mean=None)], "near"),
        ([replace(CASE, mean=None), CASE], "exact"),
        ([CASE, replace(CASE, mean=2.0)], "near"),
        ([replace(CASE, library="another")], "not measured"),
        ([replace(CASE, form="another")], "not measured"),
        ([], "not measured"),
    ],
)
def test_a_verdict_follows_from_the_figures(kept: Keep, cases: list[Case], verdict: str) -> None:
    kept(*cases)
    assert judged(ROW, ("one",)).verdict == verdict
    row = replace(ROW, note="differs.")
    other = judged(row, ("one",))  # another form, which was not measured
    assert (other.verdict, other.note, other.forms) == ("near", "differs.", forms(row))
    kept(*(replace(case, form=forms(row)[0]) for case in cases if case.form == CASE.form))
    noted = judged(row, ("one",))
    assert (noted.verdict == "exact") == (verdict == "exact") and noted.note == "differs."


def test_what_no_note_says_is_said_by_the_figures(kept: Keep) -> None:
    kept(replace(CASE, mean=2.34))
    assert judged(ROW, ("one",)).note == "pixels differ by 2.3 of 255 levels in the mean."
    kept(replace(CASE, p=1e-9))
    assert judged(ROW, ("one",)).note == "what is drawn is distributed otherwise."


def test_a_version_that_is_not_known_must_be_exact_in_each(kept: Keep) -> None:
    kept(CASE, replace(CASE, library="two", mean=3.0))
    assert judged(ROW, ("one",)).verdict == "exact"
    assert judged(ROW, ("one", "two")).verdict == "near"
    assert judged(ROW, ("one", "three")).verdict == "exact"  # it is not in the other one


def test_a_form_is_the_ops_and_the_look_whatever_the_numbers() -> None:
    turned = replace(ROW, ops=(ops.Rotate(max_deg=(10, 90), step=None, p=0.3),))
    assert forms(turned) == forms(ROW)
    others = (
        replace(ROW, look=Look(interpolation="nearest")),
        replace(ROW, beyond=("edge", (0.0, 0.0, 0.0))),
        replace(ROW, ops=(ops.Rotate(max_deg=(10, 90), step=1.0),)),
        replace(ROW, name="RandomRotation"),
        replace(ROW, note="differs."),
        replace(ROW, ops=(*ROW.ops, ops.Translate(whole_px="nearest"))),
    )
    assert all(not set(forms(other)) & set(forms(ROW)) for other in others)


def test_what_is_switched_off_is_a_form_of_its_own_that_may_count_as_the_whole(kept: Keep) -> None:
    def jitter(hue: float) -> Row:
        return Row(name="ColorJitter", ops=(ops.ColorJitter(brightness=0.4, hue=hue),))

    off, on = jitter(0.0), jitter(0.1)
    assert forms(off)[0] != forms(on)[0] and forms(off)[1] == forms(on)[1]
    kept(replace(CASE, form=forms(on)[0]))
    assert judged(on, ("one",)).verdict == "exact"
    kept(replace(CASE, form=forms(off)[0]))
    assert judged(off, ("one",)).verdict == "exact" and judged(on, ("one",)).verdict == "not measured"


def test_nothing_is_exact_where_nothing_was_measured(kept: Keep) -> None:
    kept()
    for entry in published(SEEN):
        found = importers.from_text(entry.recipe, strict=False)
        assert [row.name for row in found.rows if row.verdict == "exact" and "p=0" not in row.note] == []


def test_a_row_says_how_far_it_is_off() -> None:
    (row,) = importers.from_text("A.HorizontalFlip(p=0.5)", version="2").rows
    assert row.verdict == "exact" and row.levels == (0.0, 0.0)


def test_a_map_with_another_border_looks_alone() -> None:
    text = "A.Compose([A.Rotate(10, border_mode=4), A.ShiftScaleRotate(border_mode=0, fill=9)])"
    found = importers.from_text(text, version="2")
    assert [row.verdict for row in found.rows] == ["exact", "exact"]
    (group,) = found.rows[1].ops
    assert isinstance(group, ops.AllOf) and group.own_beyond == ("constant", (9.0, 9.0, 9.0))
    assert found.recipe.border == "reflect_101" and not [note for note in found.notes if "border" in note]


def test_a_border_that_a_choice_has_not_makes_a_row_near() -> None:
    held = "A.OneOf([A.Affine(rotate=9, border_mode=0), A.ShiftScaleRotate(border_mode=1)])"
    rows = importers.from_text(f"A.Compose([A.Rotate(10, border_mode=4), {held}])", version="2").rows
    assert [row.note for row in rows if row.beyond] == ["", *2 * ("beyond the image it shows reflect_101.",)]


@pytest.mark.parametrize(
    ("listed", "raised"),
    [
        ("A.RandomBrightnessContrast(), A.CLAHE()", "RandomBrightnessContrast"),
        ("A.Resize(64, 60), A.OneOf([A.CLAHE(), A.RandomGamma()])", "Resize"),
        ("A.OneOf([A.Sequential([A.RandomGamma(), A.CLAHE()]), A.NoOp()])", "RandomGamma"),
        ("A.CLAHE(), A.RandomGamma()", ""),
        ("A.HorizontalFlip(), A.RandomCrop(64, 60), A.CLAHE()", ""),
        ("A.OneOf([A.RandomGamma(), A.CLAHE()])", ""),
    ],
)
def test_clahe_raises_what_steps_before_it_leave_a_level_off(listed: str, raised: str) -> None:
    """The library's own differs by 1.3 to 2.4 levels where half of the numbers that it is given are a level lower."""
    found = importers.from_text(f"A.Compose([{listed}])", version="2")
    (row,) = (row for row in found.rows if row.name == "CLAHE")
    told = f"raises what {raised} leaves a level off: by about 1.6 levels in the mean."
    assert row.verdict == ("near" if raised else "exact")
    assert [note for note in found.notes if "raises" in note] == [f"CLAHE: {told}"] * bool(raised)
