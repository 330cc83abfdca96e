"""The line of the log that says what a source holds."""

import logging
from pathlib import Path

import numpy as np
import pytest

from augpipe import Loader, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.open import open_source
from tests.augpipe.loader.loader_sources import MemorySource

STACK = np.zeros((3, 8, 8, 3), np.uint8)


def test_a_source_is_told_once_whether_opened_or_handed_over(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").touch()
    said = f"FolderSource({str(tmp_path)!r}: 2 photographs, 2 classes)"
    source = open_source(tmp_path)
    for given in (tmp_path, source):
        Loader(given, recipes.none(), batch_size=1, framework="numpy", dtype="uint8")
    assert source_log.record_tuples == [("augpipe", logging.INFO, said)]


@pytest.mark.parametrize(
    ("labels", "said", "level"),
    [
        ([0, 2, 1], "ArraySource(3 photographs, 3 classes)", logging.INFO),
        (None, "ArraySource(3 photographs, 0 classes); none has a label", logging.INFO),
        ([0, -1, -1], "ArraySource(3 photographs, 1 class); 2 photographs without a label (-1)", logging.WARNING),
        ([[0.5, 1], [2, 3], [4, -1]], "ArraySource(3 photographs, labels of 2 numbers)", logging.INFO),
    ],
)
def test_samples_without_a_label_are_counted(
    labels: list[int] | None, said: str, level: int, source_log: pytest.LogCaptureFixture
) -> None:
    source = ArraySource(STACK, labels if labels is None else np.array(labels))
    Loader(source, recipes.none(), batch_size=1, framework="numpy", dtype="uint8")
    assert source_log.record_tuples == [("augpipe", level, said)]


def test_notes_are_said_and_what_is_left_out_is_a_warning(source_log: pytest.LogCaptureFixture) -> None:
    source = ArraySource(STACK, [0, 1, 0])
    source.notes = ("labels are those of column 'x'",)
    open_source(source)
    source.left_out = ("3 files of .heic", "1 file without a suffix")
    open_source(source)
    first, second = source_log.records
    assert (first.levelno, second.levelno) == (logging.INFO, logging.WARNING)
    assert second.getMessage() == f"{first.getMessage()}; left out: 3 files of .heic, 1 file without a suffix"
    assert "; labels are those of column 'x'" in first.getMessage()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("Big cat", "big  Cat", "dog"),
            "'Big cat' and 'big  Cat' are two classes, which differ only in capitals or blanks",
        ),
        (("Cat ", "dog", "DOG", "Dog", "cat"), "'Cat ' and 'cat' are two classes"),
        (("A", "B", "a", "b"), None),  # letters
        (("cat", "cats"), None),
    ],
)
def test_class_names_that_are_spelled_in_two_ways_are_warned_of(
    names: tuple[str, ...], said: str | None, source_log: pytest.LogCaptureFixture
) -> None:
    open_source(ArraySource(STACK, [0, 1, 0], classes=names))
    (record,) = source_log.records
    assert record.levelno == (logging.INFO if said is None else logging.WARNING)
    assert said is None or said in record.getMessage()


def test_a_source_of_ones_own_is_not_asked(source_log: pytest.LogCaptureFixture) -> None:
    Loader(MemorySource(STACK), recipes.none(), batch_size=1, framework="numpy", dtype="uint8")
    assert not source_log.records
