"""Subsets and concatenations of sources: what the wrapped ones know is known of them, too."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.sources import Concat, Subset
from augpipe.sources.protocol import is_sized, is_source, labels_of, num_parts_of, parts_of, sizes_of, stack_of
from tests.augpipe.loader.loader_sources import PAPER, MemorySource, arrays, jpegs, samples
from tests.datasets.shards.shard_sets import build

NUM = 12
STACK = np.stack(arrays(NUM))
CLASSES = ("cat", "dog", "owl")
LABELS = [i % 3 for i in range(NUM)]
IDS = [7, 2, 2, 11, 0]


def stacked() -> ArraySource:
    return ArraySource(STACK, LABELS, CLASSES)


def bits(source: Any, **options: Any) -> Any:
    """What a loader makes of it, in its order, with the labels."""
    loader = Loader(source, PAPER, batch_size=3, framework="numpy", shuffle=False, **options)
    return samples(loader), [int(label) for batch in loader for label in batch.labels]


def test_a_subset_gives_its_samples_under_new_numbers() -> None:
    subset = Subset(stacked(), IDS)
    assert is_source(subset) and len(subset) == 5 and subset.classes == CLASSES
    assert subset.ids.tolist() == IDS
    for number, sample_id in enumerate(IDS):
        assert np.array_equal(subset.read(number), STACK[sample_id])
        assert subset.name(number) == f"images[{sample_id}]" and subset.label(number) == LABELS[sample_id]
    assert labels_of(subset, np.array([3, 0])).tolist() == [LABELS[11], LABELS[7]]
    assert bits(subset) == bits(ArraySource([STACK[i] for i in IDS], [LABELS[i] for i in IDS], CLASSES))


def test_a_concatenation_numbers_on() -> None:
    both = Concat([Subset(stacked(), [4, 5]), Subset(stacked(), IDS), MemorySource(list(STACK[:3]), labels=[-1] * 3)])
    order = [4, 5, *IDS, 0, 1, 2]
    assert is_source(both) and len(both) == 10 and tuple(both.classes) == CLASSES and both.lengths == (2, 5, 3)
    assert [np.array_equal(both.read(i), STACK[sample_id]) for i, sample_id in enumerate(order)] == [True] * 10
    assert both.name(2) == "images[7]" and both.name(9) == "photo 2.jpg"
    expected = [LABELS[i] for i in order[:7]] + [-1] * 3
    assert [both.label(i) for i in range(10)] == expected
    assert labels_of(both, np.array([9, 0, 3, 0])).tolist() == [expected[i] for i in (9, 0, 3, 0)]
    assert bits(both) == bits(MemorySource([STACK[i] for i in order], labels=expected))


@pytest.mark.parametrize("row_index_bytes", [0, 2**20])
def test_files_are_decoded_as_by_their_own_source(row_index_bytes: int) -> None:
    files = jpegs(NUM)
    plain = Loader(MemorySource(files), PAPER, batch_size=3, framework="numpy", row_index_bytes=row_index_bytes)
    wrapped = Concat([Subset(MemorySource(files[:5]), range(5)), MemorySource(files[5:])])
    loader = Loader(wrapped, PAPER, batch_size=3, framework="numpy", row_index_bytes=row_index_bytes)
    for _ in range(3):
        assert samples(loader) == samples(plain)


def test_they_name_what_they_are_made_of() -> None:
    whole = "ArraySource(12 photographs, 3 classes)"
    assert repr(Concat([Subset(stacked(), [3]), stacked()])) == f"Concat(Subset(1 photograph of {whole}), {whole})"


class WrongSizes(MemorySource):
    """Knows one size of three."""

    knows_sizes = True

    def size(self, sample_id: int) -> tuple[int, int]:
        if sample_id == 1:
            raise OSError("not there")
        return (40, 52) if sample_id == 0 else (40, 2**70)


def test_a_size_that_a_source_cannot_say_is_looked_up_in_the_file() -> None:
    files = jpegs(3)
    source = WrongSizes(files)
    assert (sizes_of(source, np.array([2, 0, 1])) > 0).all(axis=1).tolist() == [False, True, False]
    assert bits(source) == bits(MemorySource(files))


def test_parts_of_sources_within_sources_are_counted_through() -> None:
    plain = Subset(stacked(), range(4))
    assert num_parts_of(plain) == 1 and parts_of(plain, np.arange(4)).tolist() == [0] * 4
    two = Concat([plain, Subset(stacked(), [1])])
    assert num_parts_of(two) == 2 and parts_of(two, np.array([4, 0, 3])).tolist() == [1, 0, 0]
    deep = Concat([Subset(two, [4, 0, 1]), stacked(), two])
    assert num_parts_of(deep) == 5
    assert parts_of(deep, np.arange(len(deep))).tolist() == [1, 0, 0] + [2] * NUM + [3] * 4 + [4]


@pytest.mark.parametrize("ids", [range(12), range(3, 12, 4), [5], [0, 1]])
def test_a_subset_in_even_steps_is_a_view_of_the_array(ids: Any) -> None:
    source = stacked()
    stack = stack_of(Subset(source, ids))
    assert stack is not None and np.shares_memory(stack, STACK) and np.array_equal(stack, STACK[list(ids)])
    assert bits(Subset(source, ids)) == bits(ArraySource(list(STACK[list(ids)]), [LABELS[i] for i in ids], CLASSES))


@pytest.mark.parametrize("ids", [[0, 1, 3], [3, 2, 1], [2, 2]])
def test_any_other_subset_is_none(ids: list[int]) -> None:
    assert stack_of(Subset(stacked(), ids)) is None and stack_of(Subset(MemorySource(list(STACK)), [0, 1])) is None


def test_sizes_and_row_indexes_come_through(tmp_path: Path) -> None:
    shards = ShardSource(build(tmp_path / "out"))
    subset, plain = Subset(shards, [3, 1]), Subset(MemorySource(list(STACK)), [0])
    assert is_sized(subset) and subset.size(0) == shards.size(3)
    assert not is_sized(plain)
    both = Concat([subset, shards])
    assert is_sized(both) and both.size(1) == shards.size(1) and both.size(5) == shards.size(3)
    assert not is_sized(Concat([subset, plain]))
    assert bytes(subset.row_index(1)) == bytes(shards.row_index(1)) == bytes(both.row_index(1))
    assert bytes(both.row_index(2)) == bytes(shards.row_index(0)) and plain.row_index(0) == b""
    again = pickle.loads(pickle.dumps(both))
    assert samples(Loader(again, PAPER, batch_size=4, framework="numpy")) == samples(
        Loader(both, PAPER, batch_size=4, framework="numpy")
    )


@pytest.mark.parametrize("source", [Subset(stacked(), [1, 2]), Concat([stacked()])], ids=["subset", "concat"])
def test_ids_that_there_are_none_of(source: Any) -> None:
    for ask in (source.read, source.label, source.name, source.row_index):
        for wrong in (-1, len(source)):
            with pytest.raises(IndexError, match=f"sample_id={wrong} is out of range: this source holds"):
                ask(wrong)
    with pytest.raises(IndexError, match="out of range"):
        source.labels_of(np.array([0, len(source)]))


ANYTHING: Any = ("folder", 3, stacked())
WRONG = [
    (
        lambda: Subset(stacked(), [0, 12]),
        "ids holds 12, and the source holds 12 photographs, with the ids 0..11. Leave",
    ),
    (lambda: Subset(stacked(), [-1]), "ids holds -1"),
    (
        lambda: Subset(stacked(), []),
        r"ids has shape \(0,\), and \(N,\) with at least one sample id is needed. Give some",
    ),
    (lambda: Subset(stacked(), [0.5]), "ids has dtype float64, and sample ids are integers. Convert them"),
    (lambda: Subset(stacked(), np.ones(12, bool)), r"a mask was given. Pass np.flatnonzero\(mask\)"),
    (lambda: Subset(ANYTHING[0], [0]), r"source is a str, and must be a source. .*open_source\(path\) opens one"),
    (lambda: Concat([]), "sources must be a list of one or more sources"),
    (lambda: Concat(ANYTHING[2]), "sources must be a list"),
    (lambda: Concat([stacked(), ANYTHING[1]]), r"sources\[1\] is a int, and must be a source"),
    (
        lambda: Concat([stacked(), MemorySource([]), ArraySource(STACK, LABELS, ("cat", "owl", "dog"))]),
        r"sources\[0\] and sources\[2\] have different classes.* Open both with the same classes",
    ),
]


@pytest.mark.parametrize(("build_it", "message"), WRONG)
def test_what_is_refused(build_it: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_it()
