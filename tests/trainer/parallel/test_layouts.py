"""Layouts of features on a model axis: which splits cost least, and how many numbers an exchange sends."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe.trainer.parallel.layouts import ADJOINT, Hop, Widths, choose_kinds, even_cuts, volume

SIZES = st.integers(1, 6)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_cuts_are_even_and_whole(num: int, parts: int) -> None:
    cuts = even_cuts(num, parts)
    shares = [stop - start for start, stop in pairwise(cuts)]
    assert cuts[0] == 0 and sum(shares) == num and len(shares) == parts
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), SIZES, st.booleans())
def test_no_other_kinds_send_less(widths: list[int], size: int, split_logits: bool) -> None:
    layers = [Widths(inputs=before, outputs=after) for before, after in pairwise(widths)]
    last = "columns" if split_logits else "own"
    least = min(volume(layers, kinds, size, last) for kinds in product(("column", "row"), repeat=len(layers)))
    assert volume(layers, choose_kinds(layers, size, last), size, last) == least


def test_the_layers_of_alexnet() -> None:
    """Wide features are cheaper to cut than to gather; the middle layer's outputs meet a split by rows."""
    layers = [Widths(inputs=before, outputs=after) for before, after in ((9216, 4096), (4096, 4096), (4096, 1000))]
    assert choose_kinds(layers, 4, "own") == ("row", "column", "row")
    # by hand, in numbers an image: 3/4 of 9216; a sum and a gathering of 4096, three times each; three times 1000
    assert volume(layers, ("row", "column", "row"), 4, "own") / 4 == 0.75 * 9216 + 3 * 4096 + 3 * 4096 + 3 * 1000
    assert volume(layers, ("column",) * 3, 4, "own") / 4 == 3 * (9216 + 4096 + 4096) + 0.75 * 1000


@given(st.sampled_from(list(ADJOINT)), st.integers(1, 60), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_deltas_go_the_way_back(ways: tuple[str, str], width: int, rows: list[int]) -> None:
    """What a rank sends to another on the way forward, that one sends back as deltas."""
    size = len(rows)
    hop = Hop(source=ways[0], target=ways[1], cuts=even_cuts(width, size), depth=3)
    for sender, receiver in product(range(size), repeat=2):
        assert hop.num_values(sender, receiver, rows) == hop.adjoint.num_values(receiver, sender, rows)
    assert hop.adjoint.adjoint == hop
    assert hop.largest(rows) == max(hop.num_values(one, other, rows) for one, other in product(range(size), repeat=2))


@pytest.mark.parametrize("ways", ADJOINT)
def test_a_rank_alone_sends_nothing(ways: tuple[str, str]) -> None:
    hop = Hop(source=ways[0], target=ways[1], cuts=(0, 8))
    assert hop.bytes_sent(0, [5], lambda num: num) == 0
