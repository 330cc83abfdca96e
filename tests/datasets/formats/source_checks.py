"""What every source has to keep of the protocol in `augpipe.sources.protocol`."""

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from augpipe.sources.protocol import is_source, label_width_of, labels_of


def assert_keeps_the_protocol(source: Any, contents: Sequence[Any], labels: Sequence[int]) -> None:
    """Samples and labels are these, also after pickling and read by several threads, and other ids are IndexErrors."""
    num = len(contents)
    assert is_source(source) and len(source) == num
    for one in (source, pickle.loads(pickle.dumps(source))):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(one.read, [*range(num)] * 4))
        for content, expected in zip(found, [*contents] * 4, strict=True):
            assert isinstance(content, type(expected))
            np.testing.assert_array_equal(content, expected, strict=isinstance(expected, np.ndarray))
        assert [one.label(i) for i in range(num)] == one.labels().tolist() == list(labels)
        assert all(type(one.label(i)) is int for i in range(num)) and one.labels().dtype == np.int64
        assert_gives_many_at_once(one, contents, labels)
        assert isinstance(one.classes, tuple) and one.classes == source.classes
        assert max(labels) < max(1, len(one.classes))
        assert [one.name(i) for i in range(num)] == [source.name(i) for i in range(num)]
    source.labels()[:] = 99  # a copy
    assert source.label(0) == labels[0]
    for method in (source.read, source.label, source.name):
        for sample_id in (-1, num, 2**40):
            with pytest.raises(IndexError, match=rf"sample_id={sample_id} is out of range: .* ids 0\.\.{num - 1}"):
                method(sample_id)


def assert_gives_many_at_once(source: Any, contents: Sequence[Any], labels: Sequence[int]) -> None:
    """Labels, and where the source has one array of all images, that."""
    num = len(contents)
    order = np.array([num - 1, *range(num), 0])
    found = labels_of(source, order)
    assert found.dtype == np.int64 and found.tolist() == [labels[i] for i in order]
    assert labels_of(source, order[:0]).shape == (0,)
    for outside in (-1, num):
        with pytest.raises(IndexError, match=f"sample_id={outside} is out of range"):
            labels_of(source, np.array([0, outside]))
    stack = getattr(source, "stack", None)
    if stack is not None:
        np.testing.assert_array_equal(stack, np.stack(contents), strict=True)


def assert_labels(source: Any, rows: Any, dtype: Any, names: tuple[str, ...]) -> None:
    """These rows, one at a time and many at once, before and after pickling."""
    for one in (source, pickle.loads(pickle.dumps(source))):
        expected = np.array(rows, dtype)
        assert label_width_of(one) == expected.shape[1] and one.classes == names
        for found in (np.stack([one.label(i) for i in range(len(one))]), labels_of(one, np.arange(len(one)))):
            np.testing.assert_array_equal(found, expected, strict=True)
        np.testing.assert_array_equal(labels_of(one, np.array([1, 0, 1])), expected[[1, 0, 1]], strict=True)
        assert labels_of(one, np.empty(0, np.int64)).shape == (0, expected.shape[1])
    source.label(0)[:] = 99  # a copy
    source.labels()[:] = 99
    np.testing.assert_array_equal(source.labels(), expected)
    with pytest.raises(IndexError, match="out of range"):
        source.label(len(source))
