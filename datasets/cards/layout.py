"""Which of a card's layouts a folder has, and what to say when it has none of them."""

import os
from typing import NoReturn

from augpipe.datasets.cards.card import AnyWay, Card
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.names import listed, printable


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
