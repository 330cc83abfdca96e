"""Run-length masks: known answers of pycocotools 2.0.11, and masks there and back."""

import numpy as np
import pytest
import scipy.ndimage as ndimage
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.datasets.annotations.run_lengths import encode, read_counts
from augpipe.planning.targets.mask_rings import rings_of
from tests.datasets.annotations.annotated_sets import decoded, filled

KNOWN = [
    ((5, 7), "02200O03OM1122MM0000", "cf689b2b20"),
    ((1, 9), "11202", "4800"),
    ((9, 1), "3130N", "1100"),
    ((6, 6), "T1", "0000000000"),
    ((6, 6), "0T1", "fffffffff0"),
]
"""Size, text, and the mask's bits row by row, as pycocotools writes and reads them."""


@pytest.mark.parametrize(("size", "text", "bits"), KNOWN)
def test_pycocotools_texts_are_read_and_written(size: tuple[int, int], text: str, bits: str) -> None:
    mask = np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8))[: size[0] * size[1]].reshape(size)
    runs, height = read_counts({"size": list(size), "counts": text}, size)
    assert height == size[0]
    np.testing.assert_array_equal(decoded(runs.tolist(), size), mask == 1)
    assert encode(mask) == {"size": list(size), "counts": text}
    np.testing.assert_array_equal(read_counts({"size": list(size), "counts": text.encode()}, None)[0], runs)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.integers(1, 23), st.integers(1, 23), st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.5, 0.95]))
def test_masks_come_back_and_one_ring_covers_each_part(height: int, width: int, seed: int, share: float) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    runs, _ = read_counts(encode(mask), (height, width))
    np.testing.assert_array_equal(decoded(runs.tolist(), mask.shape), mask)
    rings = rings_of(runs, height)
    covered = sum((filled([ring], mask.shape).astype(int) for ring in rings), np.zeros(mask.shape, int))
    np.testing.assert_array_equal(covered, mask.astype(int))
    assert len(rings) == ndimage.label(mask)[1]  # one for each part that hangs together by its pixels' sides
    for ring in rings:
        steps = np.diff(ring, axis=0, append=ring[:1])
        assert (np.count_nonzero(steps, axis=1) == 1).all()  # along edges of pixels, and no corner twice
        turns = np.flatnonzero(steps[:, 0]) % 2
        assert (turns == turns[0]).all()  # and none on a straight line
        x, y = ring.T
        area = 0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))
        assert area == filled([ring], mask.shape).sum()


def test_a_disc_with_a_hole_is_one_ring() -> None:
    y, x = np.mgrid[:200, :300]
    mask = ((y - 90) ** 2 / 80**2 + (x - 150) ** 2 / 130**2 < 1) & ((y - 100) ** 2 + (x - 160) ** 2 >= 900)
    rings = rings_of(*read_counts(encode(mask), mask.shape))
    np.testing.assert_array_equal(filled(rings, mask.shape), mask)
    assert len(rings) == 1


def test_long_runs_take_no_memory() -> None:
    side = 1 << 20
    runs, height = read_counts({"size": [side, side], "counts": [5, side * side - 5]}, None)
    rings = rings_of(runs, height)
    assert [ring.tolist() for ring in rings] == [[[0, 5], [1, 5], [1, 0], [side, 0], [side, side], [0, side]]]


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ({"size": [4, 4]}, "its mask has no counts"),
        ([1, 2], "its mask has no counts"),
        ({"counts": [16]}, "its mask has the size None"),
        ({"size": [4, True], "counts": [16]}, r"its mask has the size \[4, True\]"),
        ({"size": [4, 0], "counts": []}, "its mask has the size 4x0. Sides are 1 to"),
        ({"size": [1 << 40, 4], "counts": []}, "Sides are 1 to"),
        ({"size": [4, 5], "counts": [20]}, "its mask is 5x4 pixels, and its image 4x4"),
        ({"size": [4, 4], "counts": [10]}, "the runs of its mask have 10 pixels together, and its size is 4x4"),
        ({"size": [4, 4], "counts": [10, -2, 8]}, "its mask has a run of -2 pixels"),
        ({"size": [4, 4], "counts": [1 << 39] * 3}, "the runs of its mask have 1,649,267,441,664 pixels"),
        ({"size": [4, 4], "counts": [16.0]}, "the counts of its mask are not a list of whole numbers"),
        ({"size": [4, 4], "counts": 16}, "the counts of its mask are not a list of whole numbers"),
        ({"size": [4, 4], "counts": "!"}, "the counts of its mask are not a text of run lengths"),
        ({"size": [4, 4], "counts": "é"}, "the counts of its mask are not a text of run lengths"),
        ({"size": [4, 4], "counts": "P"}, "the counts of its mask are not a text of run lengths"),  # cut short
        ({"size": [4, 4], "counts": "P" * 9 + "0"}, "a run of its mask is too long"),
        ({"size": [4, 4], "counts": ""}, "have 0 pixels together"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_counts(mask, (4, 4))
