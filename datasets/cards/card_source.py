"""The images of one split of a card, as a source."""

import os
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe.datasets.cards.card import AnyWay, Card
from augpipe.datasets.cards.classes import ClassEntry, read_classes
from augpipe.datasets.cards.readers import FileWay, read_rows
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.files.image_files import FileSource
from augpipe.datasets.metadata.names import NameTable, printable
from augpipe.sources.subset import check_id
from augpipe.validation.plural import count

_NO_BOX = (float("nan"),) * 4


class CardSource(FileSource):
    """The files of one split, in the official order.

    Images that the lists name and that are not there are left out; `num_missing` counts them.

    Raises:
        ValueError: a list cannot be used, a path or a link leads outside, a label is none of the classes, or no
            image is there.
        OSError: a folder or a file cannot be read.
    """

    def __init__(self, folder: str, tree: Tree, card: Card, split: str, way: FileWay) -> None:
        names, numbers, boxes = NameTable(), array("q"), array("f")
        classes = classes_of(tree, card, way)
        number_of = {} if classes is None else {getattr(entry, way.labels): n for n, entry in enumerate(classes)}
        self.num_missing = 0
        for row in read_rows(tree, way):
            if classes is None and row.label is not None:
                number_of.setdefault(row.label, len(number_of))
            elif row.label is not None and row.label not in number_of:
                raise ValueError(
                    f"{printable(tree.root)}/{printable(row.source)}: {printable(row.path)} has the label "
                    f"{printable(row.label)!r}, which is the {way.labels} of none of the {len(number_of)} classes. "
                    "Unpack the official files again, all of one version."
                )
            if not tree.is_file(row.path):
                self.num_missing += 1
                continue
            names.extend([os.fsencode(row.path)])
            numbers.append(-1 if row.label is None else number_of[row.label])
            if row.box is not None:
                boxes.extend(_NO_BOX * (len(names) - 1 - len(boxes) // 4))  # of those before it
                boxes.extend(row.box)
        if not len(names):
            raise ValueError(
                f"{printable(folder)} holds none of the {count(self.num_missing, 'photograph')} that card "
                f"{card.name!r} lists for its split {split!r}. Unpack {', '.join(card.archives)} there."
            )
        labels = np.array(numbers, dtype=np.int64)
        if classes is None:
            labels, shown = _sorted(labels, list(number_of))
        else:
            shown = [printable(entry.name) for entry in classes]
        super().__init__(folder, names, labels, shown)
        self.card = card
        self.split = split
        self._where = f"{card.name}/{split}"
        self._boxes: npt.NDArray[np.float32] | None = None
        if boxes:
            boxes.extend(_NO_BOX * (len(names) - len(boxes) // 4))
            self._boxes = np.array(boxes, dtype=np.float32).reshape(-1, 4)

    def boxes(self) -> npt.NDArray[np.float32] | None:
        """Bounding boxes: float32 of shape (N, 4), a copy, or None where the card has none.

        A row is left, top, width and height in pixels of the file as it is stored; NaN where an image has no box.
        """
        return None if self._boxes is None else self._boxes.copy()

    def box(self, sample_id: int) -> tuple[float, float, float, float] | None:
        """One bounding box (left, top, width, height in pixels), or None where there is none.

        Raises:
            IndexError: no such sample.
        """
        check_id(sample_id, len(self))
        if self._boxes is None or np.isnan(self._boxes[sample_id]).any():
            return None
        left, top, width, height = self._boxes[sample_id].tolist()
        return left, top, width, height


def classes_of(tree: Tree, card: Card, way: AnyWay) -> list[ClassEntry] | None:
    """The classes of a way; None where only its rows tell them, [] where it has none.

    Raises:
        ValueError, OSError: as `read_classes`.
    """
    spec = way.classes or card.classes
    if spec is None or getattr(way, "flat", False):
        return []
    return read_classes(tree, spec)


def _sorted(labels: npt.NDArray[np.int64], found: Sequence[str]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Labels that were numbered as they came, renumbered in the order of the names' bytes."""
    order = sorted(range(len(found)), key=lambda number: os.fsencode(found[number]))
    number_of = np.empty(len(found), dtype=np.int64)
    number_of[order] = np.arange(len(found))
    return number_of[labels], [printable(found[number]) for number in order]
