"""How many batches, and pictures of all ranks, the next update takes: accumulation, and the epoch's end."""

from dataclasses import dataclass

from augpipe import order


@dataclass(frozen=True, kw_only=True)
class Group:
    """The batches of one update."""

    num_batches: int
    """That each rank takes."""
    num_samples: int
    """In all of them, over all ranks."""


def next_group(*, consumed: int, num_samples: int, per_batch: int, accumulate: int, drop_last: bool) -> Group | None:
    """The next update's batches; None at the epoch's end.

    Args:
        consumed: samples of the epoch that all ranks have taken.
        num_samples: in the source.
        per_batch: batch size times world size.
        accumulate: batches of an update; the epoch's last one takes what there is.
        drop_last: whether the loader leaves out a last batch that is cut short.
    """
    left = num_samples - consumed
    num = min(accumulate, order.num_batches(left, per_batch, 1, drop_last))
    if num <= 0:
        return None
    return Group(num_batches=num, num_samples=min(num * per_batch, left))
