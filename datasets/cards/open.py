"""From a card's name and a folder to a source."""

import os
import warnings

from augpipe.datasets.cards.card import Card, CifarWay, IdxWay
from augpipe.datasets.cards.layout import find_way
from augpipe.datasets.cards.load import load_card
from augpipe.datasets.cards.memory import open_arrays
from augpipe.datasets.cards.source import CardSource
from augpipe.datasets.names import printable
from augpipe.source import Source


def open_card(
    name: str | os.PathLike[str] | Card, folder: str | os.PathLike[str], *, split: str | None = None
) -> Source:
    """One split of an official dataset, unpacked in `folder`.

    A part of it is fine, with a warning that gives both numbers: photographs that the lists name and that are not
    there are left out. Nothing outside `folder` is read, whatever lists and links say.

    Args:
        name: a card's name (`list_cards()`), the path of a card of your own (.toml), or a card.
        folder: where the archives were unpacked; what the card shows as its layout may also lie one of its
            `folders` deeper.
        split: one of the card's splits; the first one if left out.

    Returns:
        A `CardSource`, which knows bounding boxes where the card has them; decoded images in memory for MNIST and
        CIFAR-10.

    Raises:
        ValueError: no such card or split, the folder is laid out otherwise (the message shows what is missing, and
            the official layout), a list cannot be used, or a path or a link leads outside.
        OSError: something cannot be read.
    """
    card = name if isinstance(name, Card) else load_card(name)
    chosen = next(iter(card.splits)) if split is None else split
    if chosen not in card.splits:
        raise ValueError(f"card {card.name!r} has no split {chosen!r}. Its splits: {', '.join(card.splits)}.")
    text = os.fspath(folder)
    tree, below, way = find_way(card, chosen, text)
    place = os.path.join(text, below) if below else text
    source: Source
    if isinstance(way, (IdxWay, CifarWay)):
        source = open_arrays(tree, card, way)
        _warn_of_counts(card, chosen, text, source, num_missing=0)
    else:
        source = CardSource(place, tree, card, chosen, way)
        _warn_of_counts(card, chosen, text, source, num_missing=source.num_missing)
    return source


def _warn_of_counts(card: Card, split: str, folder: str, source: Source, *, num_missing: int) -> None:
    """One warning for all counts that are not the official ones."""
    said = []
    expected = card.splits[split].num_samples
    if expected is not None and len(source) != expected:
        said.append(f"{len(source)} photographs, and {expected} are official")
    if card.num_classes is not None and source.classes and len(source.classes) != card.num_classes:
        said.append(f"{len(source.classes)} classes, and {card.num_classes} are official")
    if num_missing:
        said.append(f"{num_missing} of {num_missing + len(source)} listed photographs are not there and are left out")
    if said:
        warnings.warn(
            f"{printable(folder)}, card {card.name!r}, split {split!r}: {'; '.join(said)}. "
            "Fine for a part of the dataset; otherwise unpack the archives again.",
            stacklevel=3,
        )
