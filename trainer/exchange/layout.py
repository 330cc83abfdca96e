"""How parameters are laid one after another and cut into buckets, and buckets into slices; integers only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGN = 64
"""Cuts inside a parameter fall on multiples of this many elements, counted from the parameter's start, so that vector
loops see the same elements in their main part and in their tail as they would in the whole parameter."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Elements `start` to `stop` of a parameter, in the order of its memory, at `offset` in their bucket."""

    parameter: int
    start: int
    stop: int
    offset: int

    @property
    def num(self) -> int:
        """Elements."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """What is exchanged at once: pieces of parameters of one kind, which lie side by side in that kind's flat
    buffer."""

    kind: int
    start: int
    """Where the bucket begins in its kind's flat buffer, in elements."""
    pieces: tuple[Piece, ...]

    @property
    def num(self) -> int:
        """Elements."""
        return sum(piece.num for piece in self.pieces)

    @property
    def parameters(self) -> tuple[int, ...]:
        """The parameters that have a piece in it, in the order of their pieces."""
        return tuple(dict.fromkeys(piece.parameter for piece in self.pieces))


def fill_buckets(sizes: Sequence[int], kinds: Sequence[int], capacity: Mapping[int, int]) -> tuple[Bucket, ...]:
    """Buckets of at most `capacity[kind]` elements (at least ALIGN) over parameters of `sizes` elements.

    Parameters are taken from the last to the first, as backward finishes them. One that does not fit is cut, so that
    even one huge layer is exchanged in parts. Buckets come in the order in which backward completes them.
    """
    open_pieces: dict[int, list[Piece]] = {}
    filled: dict[int, int] = dict.fromkeys(kinds, 0)
    starts: dict[int, int] = dict.fromkeys(kinds, 0)
    done: list[Bucket] = []

    def close(kind: int) -> None:
        done.append(Bucket(kind=kind, start=starts[kind], pieces=tuple(open_pieces.pop(kind))))
        starts[kind] += filled[kind]
        filled[kind] = 0

    for parameter in reversed(range(len(sizes))):
        kind, start = kinds[parameter], 0
        room_at_most = max(capacity[kind] // ALIGN, 1) * ALIGN
        while start < sizes[parameter]:
            room = room_at_most - filled[kind]
            stop = min(sizes[parameter], start + room)
            if stop < sizes[parameter]:
                stop -= stop % ALIGN
            if stop > start:
                piece = Piece(parameter=parameter, start=start, stop=stop, offset=filled[kind])
                open_pieces.setdefault(kind, []).append(piece)
                filled[kind] += piece.num
                start = stop
            if start < sizes[parameter]:
                close(kind)
    for kind in list(open_pieces):
        close(kind)
    # a bucket is complete when the parameter that backward reaches last is; equal ones stay in the order of filling
    return tuple(sorted(done, key=lambda bucket: -min(piece.parameter for piece in bucket.pieces)))


def cut(bucket: Bucket, world_size: int) -> tuple[int, ...]:
    """`world_size` + 1 offsets in the bucket; rank k owns what lies between the k-th and the next.

    Slices differ by less than 2 ALIGN elements from an even share; in a small bucket some are empty.
    """
    return tuple(_snap(bucket, round(k * bucket.num / world_size)) for k in range(world_size + 1))


def _snap(bucket: Bucket, offset: int) -> int:
    for piece in bucket.pieces:
        if piece.offset <= offset < piece.offset + piece.num:
            inside = piece.start + offset - piece.offset
            aligned = (inside + ALIGN // 2) // ALIGN * ALIGN
            return piece.offset + min(aligned, piece.stop) - piece.start
    return offset  # the end


def pieces_within(bucket: Bucket, start: int, stop: int) -> list[Piece]:
    """The parts of the bucket's pieces that lie between two of its offsets; offsets stay the bucket's."""
    found = []
    for piece in bucket.pieces:
        low, high = max(start, piece.offset), min(stop, piece.offset + piece.num)
        if low < high:
            shift = piece.start - piece.offset
            found.append(Piece(parameter=piece.parameter, start=low + shift, stop=high + shift, offset=low))
    return found
