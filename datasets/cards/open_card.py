"""From a card's name and a folder, laid out in one of the card's ways, to a source."""

import os
import warnings
from typing import NoReturn

from augpipe.datasets.cards.card import AnyWay, Card, CifarWay, IdxWay, load_card
from augpipe.datasets.cards.card_source import CardSource, classes_of
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.formats.cifar import CifarSource
from augpipe.datasets.formats.idx import IdxSource
from augpipe.datasets.metadata.names import listed, printable
from augpipe.sources.protocol import Source
from augpipe.validation.plural import count


def open_card(
    name: str | os.PathLike[str] | Card, folder: str | os.PathLike[str], *, split: str | None = None
) -> Source:
    """One split of an official dataset, unpacked in `folder`.

    A part of it is fine, with a warning that gives both numbers: images that the lists name and that are not
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
        said.append(f"{count(len(source), 'photograph')}, and {expected:,} are official")
    if card.num_classes is not None and source.classes and len(source.classes) != card.num_classes:
        said.append(f"{count(len(source.classes), 'class')}, and {card.num_classes:,} are official")
    if num_missing:
        said.append(f"{num_missing} of {num_missing + len(source)} listed photographs are not there and are left out")
    if said:
        warnings.warn(
            f"{printable(folder)}, card {card.name!r}, split {split!r}: {'; '.join(said)}. "
            "Fine for a part of the dataset; otherwise unpack the archives again.",
            stacklevel=3,
        )


def open_arrays(tree: Tree, card: Card, way: IdxWay | CifarWay) -> IdxSource | CifarSource:
    """The images of a split, as arrays.

    Raises:
        ValueError: a file is not there or is damaged, or a label is none of the classes.
        OSError: a file cannot be read.
    """
    if isinstance(way, CifarWay):  # the classes' names lie next to the batches
        return CifarSource([tree.path(file) for file in way.files], kind="cifar10")
    classes = [entry.name for entry in classes_of(tree, card, way) or ()]
    return IdxSource(tree.path(way.images), tree.path(way.labels_file), classes=classes)


def find_way(card: Card, split: str, folder: str) -> tuple[Tree, str, AnyWay]:
    """The tree to read in, its place below `folder` ("" for `folder` itself), and how to read it.

    Raises:
        ValueError: there is no such folder, or it has none of the card's layouts; shows what is missing.
        OSError: a folder cannot be listed.
    """
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "does not exist"
        raise ValueError(
            f"{printable(folder)} {what}; card {card.name!r} takes the folder that the official archives were "
            f"unpacked in: {', '.join(card.archives)}."
        )
    outer = Tree(folder)
    best: tuple[int, str, AnyWay, Tree] | None = None
    for below in card.folders:
        if not outer.is_folder(below):
            continue
        tree = Tree(os.path.join(outer.root, below))
        for way in card.splits[split].ways:
            num_missing = sum(not tree.has(need) for need in way.needs)
            if num_missing == 0:
                return tree, below, way
            if best is None or num_missing < best[0]:
                best = (num_missing, below, way, tree)
    _refuse(card, split, folder, outer, best)


def _refuse(card: Card, split: str, folder: str, outer: Tree, best: tuple[int, str, AnyWay, Tree] | None) -> NoReturn:
    entries = [f"{name}/" for name in outer.names("", "folder")] + outer.names("", "file")
    text = [f"{printable(folder)} is not laid out as card {card.name!r} needs it for its split {split!r}."]
    if best is not None:
        _, below, way, tree = best
        where = f"{printable(folder)}/{below}" if below else printable(folder)
        text.append(f"Looked for, in {where}:")
        text += [f"  {need:<40} {'found' if tree.has(need) else 'not there'}" for need in way.needs]
    text += [
        f"The folder holds: {listed(entries, most=8) or 'nothing'}.",
        f"The official layout, once {', '.join(card.archives)} are unpacked:",
        *(f"  {line}" for line in card.layout.strip("\n").splitlines()),
        "Unpack the archives so, or give the folder that holds these files.",
    ]
    raise ValueError("\n".join(text))
