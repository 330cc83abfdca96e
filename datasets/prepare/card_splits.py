"""Which splits of an official dataset are prepared: each becomes a data set of its own, in OUT/SPLIT."""

import os
from collections.abc import Callable, Sequence

from augpipe.datasets.cards.card import Card
from augpipe.datasets.cards.open_card import find_way, open_card
from augpipe.datasets.files.image_files import FileSource
from augpipe.datasets.metadata.names import listed, printable
from augpipe.sources.protocol import Source


def open_splits(
    card: Card, folder: str, wanted: Sequence[str] = (), notice: Callable[[str], None] = lambda text: None
) -> dict[str, Source]:
    """Open splits of a card, all before the work on the first begins: so that a mistake shows at once.

    Args:
        card: says where the files lie.
        folder: where the archives were unpacked.
        wanted: the splits; if left out, all of the card whose files are there, but those that repeat images of
            splits before them (aircraft's trainval is train and val again).
        notice: told, in a line each, which splits are left out, and why.

    Returns:
        Split -> source, in the card's order, or that of `wanted`.

    Raises:
        ValueError, ImportError, OSError: as `open_card`; of splits that are not wanted by name, the files of none are
            there.
    """
    if wanted:
        return {split: open_card(card, folder, split=split) for split in wanted}
    sources: dict[str, Source] = {}
    absent: dict[str, ValueError] = {}
    for split in card.splits:
        try:
            find_way(card, split, folder)
        except ValueError as error:
            absent[split] = error
            continue
        source = open_card(card, folder, split=split)
        shared = [other for other in sources if _share_images(sources[other], source)]
        if shared:
            notice(f"split {split!r} is left out: it repeats photographs of {listed(shared)}. --split {split} makes it")
        else:
            sources[split] = source
    if not sources:
        raise next(iter(absent.values()))
    for split in absent:
        notice(f"split {split!r} is left out: its files are not there. --split {split} says what is missing")
    return sources


def check_parent(card: Card, out: str) -> None:
    """Refuse an OUT that holds anything but splits of the card.

    Raises:
        ValueError: it does, or is a file; says what to do.
        OSError: it cannot be listed.
    """
    shown = printable(out)
    if not os.path.lexists(out):
        return
    if not os.path.isdir(out):
        raise ValueError(f"{shown} is a file, and shards go to a folder. Name another one.")
    others = sorted(set(os.listdir(out)) - set(card.splits))
    if others:
        raise ValueError(
            f"{shown} holds {listed(others)}, and the splits of card {card.name!r} go there, a folder each. Name a new "
            "or an empty folder."
        )


def _share_images(first: Source, second: Source) -> bool:
    """Whether any file is in both; decoded arrays have no names to compare, and no card gives them twice."""
    if not (isinstance(first, FileSource) and isinstance(second, FileSource)):
        return False
    names = {first.name(sample_id) for sample_id in range(len(first))}
    return any(second.name(sample_id) in names for sample_id in range(len(second)))
