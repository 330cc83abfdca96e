"""Exchange schedules as data: buckets, slices, and who sends which of them to whom; nothing here needs torch."""

from augpipe.trainer.exchange.layout import ALIGN, Bucket, Piece, cut, fill_buckets, pieces_within
from augpipe.trainer.exchange.schedule import MODES, Collective, Exchange, Transfer, butterfly, interleaved, lazy

__all__ = [
    "ALIGN",
    "MODES",
    "Bucket",
    "Collective",
    "Exchange",
    "Piece",
    "Transfer",
    "butterfly",
    "cut",
    "fill_buckets",
    "interleaved",
    "lazy",
    "pieces_within",
]
