"""Exchange schedules as data: buckets, slices, and who sends which of them to whom; nothing here needs torch."""

from augpipe.trainer.schedule.exchange import MODES, Exchange, Transfer, butterfly, lazy
from augpipe.trainer.schedule.layout import ALIGN, Bucket, Piece, cut, fill_buckets, pieces_within

__all__ = [
    "ALIGN",
    "MODES",
    "Bucket",
    "Exchange",
    "Piece",
    "Transfer",
    "butterfly",
    "cut",
    "fill_buckets",
    "lazy",
    "pieces_within",
]
