"""What a second run changed: which images, how sure, and McNemar's test as scipy and a plain count have it."""

import csv
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.trainer.evaluation import Comparison, Views, changes_of, mcnemar, measure
from augpipe.trainer.evaluation.changes import GAINED, LOST
from augpipe.trainer.evaluation.ensemble import TOGETHER, RunResult
from augpipe.trainer.evaluation.files import change_summary, change_table, write_files

LABELS = np.array([0, 1, 2, 0, 1, 2, 0])
FIRST = [0, 1, 1, 2, 1, 2, 1]
SECOND = [0, 0, 2, 0, 1, 1, 2]
SURE = [[0.9, 0.8, 0.7, 0.5, 0.6, 0.9, 0.4], [0.9, 0.6, 0.9, 0.4, 0.6, 0.8, 0.7]]


def result(name: str, named: list[int], sure: list[float], step: int | None = 5) -> RunResult:
    """A network that names each image with a probability, and shares out the rest evenly."""
    probabilities = np.repeat([[(1 - share) / 2] for share in sure], 3, axis=1)
    probabilities[np.arange(len(named)), named] = sure
    log_probs = np.log(probabilities).astype(np.float32)
    return RunResult(
        name=name, weight=0.5, step=step, weights="last", metrics=measure(log_probs, LABELS), log_probs=log_probs
    )


def comparison(*results: RunResult) -> Comparison:
    source = ArraySource(np.zeros((7, 4, 4, 3), np.uint8), LABELS.tolist(), ["a", "b", "c"])
    return Comparison(
        views=Views(),
        results=results,
        classes=("a", "b", "c"),
        names=tuple(f"folder/{number}.jpg" for number in range(7)),
        labels=LABELS,
        source=source,
        sample_ids=np.arange(7),
        left_out={},
    )


TWO = comparison(
    result("one", FIRST, SURE[0]), result("two", SECOND, SURE[1]), result(TOGETHER, FIRST, SURE[0], step=None)
)


def test_images_that_changed() -> None:
    found = changes_of(TWO)
    assert (found.before, found.after, found.both_right, found.both_wrong, found.num) == ("one", "two", 2, 1, 7)
    lost = [(one.place, one.kind, one.before.named, one.after.named) for one in found.lost]
    assert lost == [(5, LOST, 2, 1), (1, LOST, 1, 0)]  # the surest mistake of the second run first
    gained = [(one.place, one.kind, one.before.named, one.after.named) for one in found.gained]
    assert gained == [(2, GAINED, 1, 2), (3, GAINED, 2, 0)]  # and of the first
    assert [one.mistake.probability for one in (*found.lost, *found.gained)] == pytest.approx([0.8, 0.6, 0.7, 0.5])
    assert found.gained[0].after.probability == pytest.approx(0.9)
    top1 = [one.metrics.top1.value for one in TWO.results]
    assert found.difference == pytest.approx(top1[1] - top1[0]) and found.p_value == 1.0
    worse = changes_of(comparison(TWO.results[0], result("two", [1, 2, 1, 2, 2, 1, 1], SURE[1])))
    assert worse.difference == pytest.approx(-4 / 7) and len(worse.lost) == 4
    assert "changes by -57.1 points" in change_summary(worse) and "p = 0.12 (chance may" in change_summary(worse)


@pytest.mark.parametrize(
    ("lost", "gained"), [(0, 0), (0, 1), (3, 3), (1, 8), (8, 1), (12, 25), (40, 41), (0, 30), (700, 900), (9000, 9500)]
)
def test_mcnemar_is_scipys(lost: int, gained: int) -> None:
    expected = binomtest(lost, lost + gained, 0.5).pvalue if lost + gained else 1.0
    assert mcnemar(lost, gained) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_is_a_count_of_all_ways_that_coins_fall() -> None:
    """1 of 8 changed for the worse: of 256 ways, those with at most 1, or at least 7."""
    ways = [sum(coins) for coins in product((0, 1), repeat=8)]
    assert mcnemar(1, 7) == sum(way <= 1 or way >= 7 for way in ways) / 256


def test_what_is_written(tmp_path: Path) -> None:
    found = changes_of(TWO)
    paths = {path.name: path for path in write_files(TWO, tmp_path, found)}
    rows = list(csv.DictReader(paths["changes.csv"].read_text().splitlines()))
    assert rows[0] == {
        "image": "folder/5.jpg",
        "class": "c",
        "change": "right to wrong",
        "before": "c",
        "before_probability": "0.9",
        "after": "b",
        "after_probability": "0.8",
    }
    assert [row["change"] for row in rows] == [LOST, LOST, GAINED, GAINED]
    data = json.loads(paths["evaluation.json"].read_text())["changes"]
    assert data["right_to_wrong"] == ["folder/5.jpg", "folder/1.jpg"] and data["both_right"] == 2
    assert data["wrong_to_right"] == ["folder/2.jpg", "folder/3.jpg"] and data["mcnemar_p"] == 1.0
    table = change_table(found)
    assert table.columns == ("photographs", "right in two", "wrong in two")
    assert table.rows == (("right in one", "2", "2"), ("wrong in one", "2", "1"))
    assert "changes.csv" not in {path.name for path in write_files(TWO, tmp_path / "other")}


def test_other_than_two_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="two runs, and here is 1"):
        changes_of(comparison(TWO.results[0]))
    with pytest.raises(ValueError, match="two runs, and here are 3"):
        changes_of(comparison(*TWO.results[:2], TWO.results[0], TWO.results[2]))
