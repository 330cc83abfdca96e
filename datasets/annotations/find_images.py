"""Where the images lie that an annotation file names."""

import os
from collections.abc import Iterator, Sequence

from augpipe.datasets.annotations.annotated_source import shown

_NUM_CHECKED = 100
"""How many of the first files are looked for; at least one must be there."""


def find_root(path: str, images: str | None, names: Sequence[str]) -> str:
    """The folder below which the files lie that an annotation file names.

    Args:
        path: the annotation file.
        images: where to look; around the file if it is None.
        names: what the file names.

    Raises:
        ValueError: none of the first files is in any of the folders; lists them.
    """
    places = list(dict.fromkeys(_places(path, images)))
    for place in places:
        if any(os.path.lexists(os.path.join(place, name)) for name in names[:_NUM_CHECKED]):
            return place
    looked = ", ".join(repr(shown(place)) for place in places)
    raise ValueError(
        f"{shown(path)} names {shown(names[0])!r} and others, and none of the first {min(len(names), _NUM_CHECKED)} is "
        f"there; looked in {looked}. Give the folder of the images: open_source(images, annotations=...)."
    )


def _places(path: str, images: str | None) -> Iterator[str]:
    below = os.path.dirname(path) or os.curdir
    above = os.path.dirname(os.path.abspath(path))
    # instances_val2017.json and lvis_v1_val.json lie next to the folder val2017/
    parts = os.path.splitext(os.path.basename(path))[0].split("_")
    splits = [part for part in dict.fromkeys((parts[-1], *parts)) if part not in ("", "instances")]
    roots = [images] if images is not None else [below, os.path.dirname(above)]
    for root in roots:
        yield root
        for inner in ("images", *splits, *(os.path.join("images", split) for split in splits)):
            if os.path.isdir(os.path.join(root, inner)):
                yield os.path.join(root, inner)
