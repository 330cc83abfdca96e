"""Dropout of split layers: Philox by image and feature, whichever rank holds them."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.gpu_ops.random.philox import draws
from augpipe.trainer.parallel.dropout import STREAM, SplitDropout, random_words

WORDS = st.integers(0, 2**32 - 1)


@given(
    st.lists(WORDS, min_size=1, max_size=4),
    st.integers(0, 30),
    st.integers(1, 30),
    st.integers(0, 50),
    WORDS,
    st.integers(0, 2**64 - 1),
)
@settings(deadline=None)
def test_words_are_those_of_philox(images: list[int], start: int, num: int, layer: int, number: int, seed: int) -> None:
    """Against the compiled generator, which is checked against Random123's known answers."""
    found = random_words(torch.tensor(images), (start, start + num), layer=layer, number=number, seed=seed)
    expected = draws(seed, number, np.array(images), (STREAM + layer) % 2**32, start + num)[:, start:]
    np.testing.assert_array_equal(found.numpy(), expected.astype(np.int64))


def test_a_share_is_dropped_and_the_rest_scaled() -> None:
    dropout = SplitDropout(0.3, layer=2, seed=1)
    x = torch.ones(200, 501)
    dropped = dropout.drop(x, torch.arange(200), 0, 7)
    assert set(dropped.unique().tolist()) == {0.0, np.float32(1 / 0.7)}
    share = float((dropped == 0).double().mean())
    assert abs(share - 0.3) < 5 * (0.3 * 0.7 / x.numel()) ** 0.5
    other = SplitDropout(0.3, layer=3, seed=1).drop(x, torch.arange(200), 0, 7)
    # two layers agree by chance alone
    agreed = float((other == dropped).double().mean())
    assert abs(agreed - (0.3**2 + 0.7**2)) < 0.01


def test_channels_of_a_place_are_cut_with_it() -> None:
    dropout = SplitDropout(0.5, layer=0, seed=1)
    x, images = torch.ones(4, 3, 10), torch.arange(4)
    whole = dropout.drop(x, images, 0, 1)
    parts = [dropout.drop(x[..., start:stop], images, start, 1) for start, stop in ((0, 3), (3, 10))]
    assert torch.equal(torch.cat(parts, -1), whole)
    assert 0 < whole.eq(0).sum() < whole.numel()


def test_nothing_is_dropped_in_evaluation() -> None:
    dropout = SplitDropout(0.5, layer=0, seed=1).eval()
    x = torch.ones(4, 5)
    assert torch.equal(dropout.drop(x, torch.arange(4), 0, 1), x)
