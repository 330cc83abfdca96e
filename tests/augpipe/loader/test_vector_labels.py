"""Labels that are several numbers: from sources to batches, and by consumers that need classes refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Loader, SampleError, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.preview.contents import over_epochs
from augpipe.sampling import ClassBalanced, Weighted
from augpipe.sources import Concat, Subset
from augpipe.sources.protocol import as_label_rows, label_width_of, labels_of
from augpipe.trainer.config import make_config
from augpipe.trainer.loop.data import open_sources
from tests.augpipe.loader.loader_sources import CENTRE, MemorySource, arrays, truncated

NUM = 7
IMAGES = arrays(NUM)
SOFT = np.linspace(0.0, 1.0, 3 * NUM).reshape(NUM, 3)
MULTI_HOT = np.arange(NUM)[:, None] % np.array([2, 3]) == 0
COUNTS = np.arange(2 * NUM).reshape(NUM, 2)
KINDS = {"soft": (SOFT, np.float32), "multi-hot": (MULTI_HOT, np.float32), "counts": (COUNTS, np.int64)}


class Vectors(MemorySource):
    """A source of a user's own, whose labels are what it is given."""

    def __init__(self, contents: Sequence[Any], rows: Any) -> None:
        super().__init__(contents)
        self.rows = rows
        self.label_width = len(rows[0]) if np.ndim(rows[0]) else 0

    def label(self, sample_id: int) -> Any:
        return self.rows[sample_id]


def load(source: Any, **options: Any) -> Any:
    """Labels and sample ids of an epoch."""
    settings = {"batch_size": 3, "framework": "numpy", "num_threads": 1} | options
    batches = list(Loader(source, CENTRE, **settings))
    return np.concatenate([batch.labels for batch in batches]), np.concatenate([batch.sample_ids for batch in batches])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [ArraySource, Vectors])
def test_labels_reach_batches_as_they_are(kind: str, make: Any) -> None:
    rows, dtype = KINDS[kind]
    source = make(IMAGES, rows)
    assert label_width_of(source) == rows.shape[1]
    for wrapped, whose in (
        (source, np.arange(NUM)),
        (Subset(source, [4, 2]), np.array([4, 2])),
        (Concat([source, Subset(source, [5])]), np.array([*range(NUM), 5])),
    ):
        labels, ids = load(wrapped)
        assert labels.dtype == dtype and label_width_of(wrapped) == rows.shape[1]
        np.testing.assert_array_equal(labels, rows[whose[ids]].astype(dtype))
    batch = next(iter(Loader(source, CENTRE, batch_size=3)))
    assert batch.labels.dtype == {np.float32: torch.float32, np.int64: torch.int64}[dtype]
    assert tuple(batch.labels.shape) == (3, rows.shape[1])
    weighted, ids = load(source, sampler=Weighted(np.arange(NUM)))
    np.testing.assert_array_equal(weighted, rows[ids].astype(dtype))


@pytest.mark.parametrize("make", [ArraySource, Vectors])
def test_an_empty_batch_has_labels_of_the_same_kind(make: Any) -> None:
    *_, last = Loader(make(IMAGES, SOFT), CENTRE, batch_size=3, rank=1, world_size=2, framework="numpy")
    assert last.labels.shape == (0, 3) and last.labels.dtype == np.float32


def test_a_replaced_sample_brings_its_label() -> None:
    source = Vectors([truncated(), *IMAGES[1:]], SOFT)
    labels, ids = load(source, on_error="skip")
    np.testing.assert_array_equal(labels, SOFT[ids].astype(np.float32))
    assert sorted(ids) == [1, 1, 2, 3, 4, 5, 6]


def test_what_a_subclass_says_of_its_labels_is_not_cut_off() -> None:
    class Halved(ArraySource):
        def label(self, sample_id: int) -> Any:
            return np.asarray(super().label(sample_id)) / 2

    np.testing.assert_array_equal(labels_of(Halved(IMAGES, SOFT), np.arange(NUM)), (SOFT / 2).astype(np.float32))


def test_whole_numbers_stay_whole() -> None:
    for given, dtype in ((np.uint8, np.int64), (np.int32, np.int64), (np.float64, np.float32), (np.bool_, np.float32)):
        assert as_label_rows(np.ones((2, 2), given)).dtype == dtype


# What is refused

VECTOR = ArraySource(IMAGES, SOFT)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (SOFT[:, 0], (), r"labels has shape \(7,\) and dtype float64.*or labels\[:, None\] to regress one"),
        (SOFT[:3], (), r"labels has shape \(3, 3\)"),
        (SOFT, ("cat", "dog"), "labels has 3 numbers an image, and classes 2 names. Give one name each, or none"),
    ],
)
def test_arrays_of_labels_that_cannot_be(labels: Any, classes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArraySource(IMAGES, labels, classes)


def test_a_label_of_another_width_is_named() -> None:
    for wrong in (np.ones(2), 1.0, np.array(["a", "b", "c"])):
        with pytest.raises(
            ValueError, match=r"photo 4.jpg: its label has shape .* says 3 numbers. Return an array of sh"
        ):
            load(Vectors(IMAGES, [*SOFT[:4], wrong, *SOFT[5:]]))


@pytest.mark.parametrize("wrong", [0.5, None, "cat", np.ones(2, np.int64), torch.tensor(0.5)])
def test_a_label_that_is_no_class_is_named(wrong: Any) -> None:
    class Changed(ArraySource):
        def label(self, sample_id: int) -> Any:
            return wrong

    source = Vectors(IMAGES, [*range(4), wrong, 5, 6])
    told = r": its label is .* gives a class, an int. Return one; or set label_width"
    with pytest.raises(ValueError, match=rf"^photo 4.jpg{told}"):
        load(source)
    if np.ndim(wrong) == 0:
        with pytest.raises(ValueError, match=told):
            load(Changed(IMAGES))


@pytest.mark.parametrize("wrong", [np.zeros(2, np.int64), np.full(3, 0.5), np.zeros((3, 2), np.int64)])
def test_labels_that_a_source_gives_at_once_are_one_a_sample(wrong: Any) -> None:
    source: Any = MemorySource(IMAGES)
    source.labels_of = lambda sample_ids: wrong
    with pytest.raises(ValueError, match=r"^labels_of of the MemorySource gives shape .* and 3 classes are needed"):
        load(source)
    source.labels_of = lambda sample_ids: [0] * len(sample_ids)
    assert load(source)[0].tolist() == [0] * NUM
    for dtype in (np.int32, np.uint8, np.bool_):
        source.labels_of = lambda sample_ids, dtype=dtype: (sample_ids % 2).astype(dtype)
        labels, ids = load(source)
        assert labels.dtype == np.int64 and labels.tolist() == (np.array(ids) % 2).tolist()
    source.label_width, source.labels_of = 2, lambda sample_ids: np.full((len(sample_ids), 2), 0.5)
    assert load(source)[0].dtype == np.float32


def test_classes_of_other_types_are_ints() -> None:
    labels, ids = load(Vectors(IMAGES, [0, np.int32(1), np.True_, True, torch.tensor(4), np.array(5), -1]))
    assert labels.dtype == np.int64 and labels.tolist() == np.array([0, 1, 1, 1, 4, 5, -1])[ids].tolist()


def test_no_batch_holds_two_kinds_of_labels() -> None:
    for other, words in (
        (ArraySource(IMAGES, list(range(NUM))), "classes"),
        (ArraySource(IMAGES, MULTI_HOT), "2 numbers of float32 each"),
        (ArraySource(IMAGES, SOFT.astype(np.int64)), "3 numbers of int64 each"),
    ):
        with pytest.raises(
            ValueError, match=rf"sources\[0\] are 3 numbers of float32 each, .*sources\[1\] {words}, so"
        ):
            Concat([VECTOR, other])


def test_a_sampler_of_classes_refuses_numbers() -> None:
    message = r"needs one class an image, and labels here are 3 numbers each \(images\[0\] is one such image\)\. "
    with pytest.raises(ValueError, match=f"ClassBalanced {message}Give a source"):
        Loader(VECTOR, CENTRE, batch_size=2, sampler=ClassBalanced())


def test_the_trainer_refuses_numbers(tmp_path: Path) -> None:
    for name, header in (("rows", "path,label_a,label_b"), ("classes", "path,label,other")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\na.jpg,0,1\nb.jpg,1,0\n")
    (tmp_path / "a.jpg").touch()
    rows, classes = str(tmp_path / "rows.csv"), str(tmp_path / "classes.csv")
    for data, begins in (
        ({"source": rows}, "data.source=.*: training"),
        ({"source": classes, "eval_source": rows}, "data.eval_source=.*: evaluation"),
    ):
        with pytest.raises(
            ValueError, match=f"{begins} needs one class an image.*a loop of your own over augpipe.Loader"
        ):
            open_sources(make_config({"data": data}).data, 0)


def test_a_sheet_shows_the_first_of_them() -> None:
    source = ArraySource(IMAGES, np.tile([0.25, 0.0, 1.0, 2.0, 3.0], (NUM, 1)))
    sheet = over_epochs(source, recipes.none(), rows=1, cols=1)
    assert sheet.rows[0].class_name == "0.25 0 1 2 ..."


def test_labels_of_numbers_do_not_hide_a_bad_image() -> None:
    with pytest.raises(SampleError, match=r"photo 0\.jpg"):
        load(Vectors([truncated(), *IMAGES[1:]], SOFT))
