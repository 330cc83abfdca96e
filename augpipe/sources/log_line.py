"""The first line of the log about a source: how many samples and classes it holds, and which files were left out."""

import logging
from collections.abc import Iterator, Sequence

from augpipe.sources.protocol import Source
from augpipe.sources.subset import Subset
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe")

_MOST_SPELLED = 50_000
"""Class names of which it is looked for two spellings of one."""
_TOLD: set[str] = set()
"""What this process has logged: several loaders may read one source."""


def tell_source(source: Source) -> None:
    """Log one line about a source that was opened or handed to a loader, once a process: a source without `notes` none.

    It is a warning where something of the source is left out, its labels may be taken wrong, or some samples have a
    label and others none. Of a `Subset` the line is about its whole source.
    """
    is_whole = not isinstance(source, Subset)
    while isinstance(source, Subset):
        source = source.whole
    if getattr(source, "notes", None) is None:
        return
    level, text = _line(source, is_whole)
    if text not in _TOLD:
        _TOLD.update((text, _line(source, False)[1]))
        logger.log(level, "%s", text)


def _line(source: Source, is_whole: bool) -> tuple[int, str]:
    """The level of the line, and its text."""
    notes: Sequence[str] = getattr(source, "notes", ())
    left_out: Sequence[str] = getattr(source, "left_out", ())
    cautions: Sequence[str] = getattr(source, "cautions", ())
    if is_whole:
        cautions = [*cautions, *getattr(source, "cautions_of_whole", ())]
    cautions = [*cautions, *_spelled_twice((*source.classes, *getattr(source, "object_classes", ())))]
    num_unlabelled: int = getattr(source, "num_unlabelled", 0)
    parts = [repr(source)]
    if num_unlabelled == len(source):
        parts.append("none has a label")
    elif num_unlabelled:
        parts.append(f"{count(num_unlabelled, 'photograph')} without a label (-1)")
    parts += [*notes, *cautions]
    if left_out:
        parts.append(f"left out: {', '.join(left_out)}")
    is_partial = bool(left_out or cautions) or 0 < num_unlabelled < len(source)
    return logging.WARNING if is_partial else logging.INFO, "; ".join(parts)


def _spelled_twice(names: Sequence[str]) -> Iterator[str]:
    """A caution where names of classes, of more than a letter, differ only in capitals or blanks."""
    spellings: dict[str, dict[str, None]] = {}
    for name in names[:_MOST_SPELLED]:
        if len(name) > 1:
            spellings.setdefault(" ".join(name.split()).casefold(), {})[name] = None
    several = [" and ".join(map(repr, same)) for same in spellings.values() if len(same) > 1]
    if several:
        yield f"{several[0]} are two classes, which differ only in capitals or blanks"
