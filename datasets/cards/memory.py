"""Cards whose archives hold decoded pixels: MNIST's IDX files and CIFAR-10's binary batches."""

from augpipe.datasets.cards.card import Card, CifarWay, IdxWay
from augpipe.datasets.cards.source import classes_of
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.cifar import CifarSource
from augpipe.datasets.idx import IdxSource


def open_arrays(tree: Tree, card: Card, way: IdxWay | CifarWay) -> IdxSource | CifarSource:
    """The images of a split, as arrays.

    Raises:
        ValueError: a file is not there or is damaged, or a label is none of the classes.
        OSError: a file cannot be read.
    """
    if isinstance(way, CifarWay):  # the classes' names lie beside the batches
        return CifarSource([tree.path(file) for file in way.files], kind="cifar10")
    classes = [entry.name for entry in classes_of(tree, card, way) or ()]
    return IdxSource(tree.path(way.images), tree.path(way.labels_file), classes=classes)
