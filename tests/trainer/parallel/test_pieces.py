"""Messages cut into pieces: every byte is in one, in order, and pieces are as even as they can be."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from augpipe.trainer.parallel.pieces import MOST_PIECES, PIECE_BYTES, AllToAll, cut, join, num_pieces

Sizes = list[list[int]]
"""[sender][receiver]: bytes of a message."""


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    ranks = draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 40), min_size=ranks, max_size=ranks)
    return draw(st.lists(row, min_size=ranks, max_size=ranks))


def exchanged(every: list[list[AllToAll]]) -> None:
    """All ranks' all-to-alls, as a backend carries them out."""
    for pieces in zip(*every, strict=True):
        sent = [torch.split(piece.sent, piece.sent_bytes) for piece in pieces]
        for receiver, piece in enumerate(pieces):
            parts = [of_sender[receiver] for of_sender in sent]
            assert [len(part) for part in parts] == piece.received_bytes
            piece.received.copy_(torch.cat(parts))


@given(sizes(), st.integers(1, MOST_PIECES))
def test_what_was_cut_is_joined_again(of_messages: Sizes, num: int) -> None:
    ranks = range(len(of_messages))
    messages = [[torch.randint(0, 256, (size,), dtype=torch.uint8) for size in row] for row in of_messages]
    every = [cut(messages[rank], [of_messages[other][rank] for other in ranks], num) for rank in ranks]
    exchanged(every)
    for rank in ranks:
        assert len(every[rank]) == num
        joined = join(every[rank])
        assert all(torch.equal(joined[other], messages[other][rank]) for other in ranks)
        for receiver in ranks:
            shares = [piece.sent_bytes[receiver] for piece in every[rank]]
            assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    ("largest_bytes", "device", "num"),
    [
        (0, "cpu", 1),
        (2 * PIECE_BYTES - 1, "cpu", 1),
        (2 * PIECE_BYTES, "cpu", 2),
        (10**9, "cpu", MOST_PIECES),
        (10**9, "cuda", 1),
    ],
)
def test_large_messages_are_cut_where_gloo_carries_them(largest_bytes: int, device: str, num: int) -> None:
    assert num_pieces(largest_bytes, torch.device(device)) == num
