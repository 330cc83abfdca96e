"""The page of an evaluation: all of it is there, names are text, and the pictures show the numbers."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.reports.figures import BLUE, ORANGE
from augpipe.trainer.evaluation import Comparison, Views, changes_of, measure, plots
from augpipe.trainer.evaluation.ensemble import RunResult
from augpipe.trainer.evaluation.mistakes import surest_mistakes
from augpipe.trainer.evaluation.page import write_page
from augpipe.trainer.evaluation.plots import confusion_png, most_mistaken, reliability_png

NUM, CLASSES = 60, ("<b>cat</b>", "$x_1$ dog", "鳥", "d", "e", "f", "g")


class Page(HTMLParser):
    """The text of a page, its tags, and its images, decoded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.images: list[tuple[str, Any]] = []
        self.bars: list[tuple[str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "img":
            kind, _, content = (given["src"] or "").partition(";base64,")
            image = Image.open(io.BytesIO(base64.b64decode(content)))
            assert kind == f"data:image/{str(image.format).lower()}"
            self.images.append((given["alt"] or "", image.convert("RGB")))
        if "--share" in (given.get("style") or ""):
            self.bars.append((given["class"] or "", given["style"] or ""))

    def handle_data(self, data: str) -> None:
        self.text += data


def comparison(num_runs: int, classes: tuple[str, ...] = CLASSES, num: int = NUM) -> Comparison:
    """Networks that know something; image i is of one colour, which says which one it is."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, len(classes), num)
    results = []
    for number in range(num_runs):
        logits = rng.normal(0, 2, (num, len(classes)))
        logits[np.arange(num), labels] += 2.5 + number
        shifted = logits - logits.max(1, keepdims=True)
        log_probs = (shifted - np.log(np.exp(shifted).sum(1, keepdims=True))).astype(np.float32)
        metrics = measure(log_probs, labels)
        name = f"runs/{number}"
        results.append(RunResult(name=name, weight=1.0, step=3, weights="last", metrics=metrics, log_probs=log_probs))
    pixels = np.zeros((num, 20, 30, 3), np.uint8) + (np.arange(num, dtype=np.uint8) * 4)[:, None, None, None]
    return Comparison(
        views=Views(),
        results=tuple(results),
        classes=classes,
        names=tuple(f"photos/{number:03}.jpg" for number in range(num)),
        labels=labels,
        source=ArraySource(pixels, labels.tolist(), list(classes)),
        sample_ids=np.arange(num),
        left_out={},
    )


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    found = comparison(2)
    changes = changes_of(found)
    page = Page(write_page(found, tmp_path / "new", changes))
    assert "<b>cat</b>" in page.text and "鳥" in page.text
    for heading in ("What changed", "The surest mistakes", "Confusion", "Calibration", "Classes, the worst first"):
        assert page.text.count(heading) == 1
    top1 = found.last.metrics.top1
    assert f"{top1.value:.1%} ({100 * top1.low:.1f} to {100 * top1.high:.1f})" in page.text
    assert f"p = {changes.p_value:.2g}" in page.text
    wrong = surest_mistakes(found)
    assert 3 < len(wrong) <= 24  # all of them are shown
    changed = [one.place for one in (*changes.lost[:12], *changes.gained[:12])]
    photos = [(alt, image) for alt, image in page.images if ".jpg" in alt]
    assert page.tags.count("b") == len(photos)  # a caption's class each: names are text, in tables too
    assert [alt.partition(",")[0] for alt, _ in photos] == [f"{place:03}.jpg" for place in (*changed, *wrong)]
    for (alt, image), place in zip(photos, (*changed, *wrong), strict=True):
        assert alt.endswith(found.classes[found.labels[place]])
        assert np.abs(np.asarray(image)[10, 15].astype(int) - 4 * place).max() <= 2 and image.size == (30, 20)


@pytest.mark.slow
def test_the_surest_mistakes_come_first_with_their_bars(tmp_path: Path) -> None:
    found = comparison(1)
    probabilities = np.exp(found.log_probs.astype(np.float64))
    wrong = sorted(
        (number for number in range(NUM) if probabilities[number].argmax() != found.labels[number]),
        key=lambda number: -probabilities[number].max(),
    )
    assert surest_mistakes(found).tolist() == wrong
    page = Page(write_page(found, tmp_path))
    assert "What changed" not in page.text
    expected = []
    for place in wrong[:24]:
        order = np.argsort(-probabilities[place], kind="stable")
        kinds = ["right" if one == found.labels[place] else "" if row else "wrong" for row, one in enumerate(order[:5])]
        shares = [f"--share: {100 * probabilities[place, one]:.1f}%" for one in order[:5]]
        if "right" not in kinds:
            kinds.append("right")
            shares.append(f"--share: {100 * probabilities[place, found.labels[place]]:.1f}%")
        expected += list(zip(kinds, shares, strict=True))
    assert page.bars == expected


@pytest.mark.slow
def test_a_page_without_mistakes(tmp_path: Path) -> None:
    log_probs = np.log(np.array([[0.9, 0.1], [0.2, 0.8]], np.float32))
    labels = np.array([0, 1])
    result = RunResult(
        name="one", weight=1.0, step=1, weights="last", metrics=measure(log_probs, labels), log_probs=log_probs
    )
    source = ArraySource(np.zeros((2, 8, 8, 3), np.uint8), [0, 1], ["a", "b"])
    found = Comparison(
        views=Views(),
        results=(result,),
        classes=("a", "b"),
        names=("0", "1"),
        labels=labels,
        source=source,
        sample_ids=np.arange(2),
        left_out={},
    )
    page = Page(write_page(found, tmp_path))
    assert "surest mistakes" not in page.text and len(page.images) == 2


def opened(content: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)


def num_pixels(image: Any, colour: str) -> int:
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return int((np.abs(image - wanted).max(2) <= 3).sum())


@pytest.mark.parametrize("num", [2, 12, pytest.param(100, marks=pytest.mark.deep)])
def test_a_matrix_shows_right_ones_blue_and_mistakes_orange(num: int) -> None:
    """Each class but the last is named rightly, and that as the first."""
    confusion = 7 * np.eye(num, dtype=np.int64)
    confusion[-1] = np.roll(confusion[-1], 1)
    image = opened(confusion_png(confusion, [f"class number {number}" for number in range(num)]))
    blue, orange = num_pixels(image, BLUE), num_pixels(image, ORANGE)
    assert 0.7 < blue / (num - 1) / orange < 1.4
    assert orange >= 0.6 * 12 * 12  # a name of 7 points fits beside a row
    assert max(image.shape) < 2300


def test_a_matrix_s_columns_are_parted_as_its_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "png", lambda figure, dpi: figure)
    figure: Any = confusion_png(np.eye(3, dtype=np.int64), ["a", "b", "c"])
    rows, columns = (np.array(lines.get_segments()) for lines in figure.axes[0].collections)
    assert rows.tolist() == [[[-0.5, edge], [2.5, edge]] for edge in (0.5, 1.5)]
    assert columns.tolist() == rows[:, :, ::-1].tolist()


def test_of_many_classes_those_with_mistakes_are_drawn() -> None:
    confusion = 5 * np.eye(130, dtype=np.int64)
    confusion[[3, 20, 129], [3, 20, 129]] = 0
    confusion[20, 129] = 2
    confusion[3, 20] = 1
    shown = most_mistaken(confusion).tolist()
    assert len(shown) == 100 and {3, 20, 129} <= set(shown) and shown == sorted(shown)


@pytest.mark.slow
def test_reliability_stands_where_it_should() -> None:
    """Answers that are sure and wrong have low bars, and counts at the right; right ones have high bars."""
    log_probs = np.log(np.tile(np.array([[0.97, 0.03]], np.float32), (40, 1)))
    heights = {}
    for label in (0, 1):
        metrics = measure(log_probs, np.full(40, label))
        image = opened(reliability_png(metrics.bins, metrics.ece))
        pale = np.argwhere((image[:, :, 2] > image[:, :, 0] + 30) & (image[:, :, 0] > 120))
        heights[label] = len(pale)
        rust = np.argwhere(np.abs(image - [211, 131, 75]).max(2) <= 8)
        assert len(rust) and rust[:, 1].min() > 0.8 * image.shape[1]
    assert heights[0] > 5 * heights[1]


@pytest.mark.slow
def test_intervals_of_empty_classes_are_dashes(tmp_path: Path) -> None:
    found = comparison(1, (*CLASSES, "nothing"))
    labels = np.minimum(found.labels, 6)
    metrics = measure(found.log_probs, labels)
    result = RunResult(name="one", weight=1.0, step=1, weights="last", metrics=metrics, log_probs=found.log_probs)
    changed = Comparison(**{**vars(found), "labels": labels, "results": (result,)})
    text = Page(write_page(changed, tmp_path)).text
    assert re.search(r"nothing0–", text) and "nan" not in text
