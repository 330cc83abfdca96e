"""The first line of the log about a source: how many samples and classes it holds, and which files were left out."""

import logging
from collections.abc import Sequence

from augpipe.sources.protocol import Source
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe")

_TOLD: set[str] = set()
"""What this process has logged: several loaders may read one source."""


def tell_source(source: Source) -> None:
    """Log one line about a source that was opened or handed to a loader, once a process: a source without `notes` none.

    It is a warning where something of the source is left out, its labels may be taken wrong, or some samples have a
    label and others none.
    """
    notes: Sequence[str] | None = getattr(source, "notes", None)
    if notes is None:
        return
    left_out: Sequence[str] = getattr(source, "left_out", ())
    cautions: Sequence[str] = getattr(source, "cautions", ())
    num_unlabelled: int = getattr(source, "num_unlabelled", 0)
    parts = [repr(source)]
    if num_unlabelled == len(source):
        parts.append("none has a label")
    elif num_unlabelled:
        parts.append(f"{count(num_unlabelled, 'photograph')} without a label (-1)")
    parts += [*notes, *cautions]
    if left_out:
        parts.append(f"left out: {', '.join(left_out)}")
    text = "; ".join(parts)
    if text not in _TOLD:
        _TOLD.add(text)
        is_partial = bool(left_out or cautions) or 0 < num_unlabelled < len(source)
        logger.log(logging.WARNING if is_partial else logging.INFO, "%s", text)
