"""Splits by the names of folders and files: training and test data in one place are two data sets."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from augpipe.datasets.files.descriptors import absolute
from augpipe.datasets.metadata.names import listed, printable

_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("unlabeled", "unlabelled", "unsup"), "unlabeled"),
    "extra": "extra",
}
"""A word in a name -> the split that it stands for."""
_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHARD = re.compile(r"(.+?)-\d{5,}-of-\d{5,}(-[0-9a-f]+)?\.\w+")


def split_of(name: str) -> tuple[str, str] | None:
    """(split, what else the name says) of a name that has a split's word in it, as `images_val2017`; else None."""
    words = [word.lower() for word in _LETTERS.findall(name)]
    found = [word for word in words if word in _WORDS]
    if len(found) != 1:
        return None
    return _WORDS[found[0]], "".join(word for word in words if word != found[0])


def splits_among(folders: Sequence[str]) -> list[str]:
    """Those of several folders that are splits of one data set, as `images_train` and `images_test`.

    One name is not enough, as there are classes called `train` or `test_tube`, unless it is the only folder.
    """
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        if (found := split_of(folder)) is not None:
            groups[found[1]][found[0]].append(folder)
    least = 1 if len(folders) == 1 else 2
    return [name for kinds in groups.values() if len(kinds) >= least for names in kinds.values() for name in names]


def remedy(splits: Sequence[str]) -> str:
    """`split="train"`: how one of several is asked for."""
    kinds = [found[0] if (found := split_of(name)) is not None else name for name in splits]
    first = max(range(len(splits)), key=lambda at: kinds[at] == "train")
    return f'split="{kinds[first] if kinds.count(kinds[first]) == 1 else splits[first]}"'


def chosen(where: str, names: Sequence[str], split: str) -> str:
    """The name among several that is the one asked for, or else that stands for this split.

    Raises:
        ValueError: none does, or several do.
    """
    if split in names:
        return split
    kind = _WORDS.get(split.lower())
    kinds = {name: found[0] for name in names if (found := split_of(name)) is not None}
    fitting = sorted(name for name in kinds if kinds[name] == kind)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(
            f"{printable(where)} holds several that split={split!r} may mean: {listed(fitting)}. Name one as it stands "
            "there."
        )
    if kinds:
        there = listed(sorted(kinds), most=8)
        raise ValueError(f"{printable(where)} holds no split {split!r}, but {there}. Name one of these.")
    drawn = kind if kind in ("train", "val") else "val"
    raise ValueError(
        f'{printable(where)} holds no split {split!r}, nor any other. split="{drawn}", holdout=0.1 draws one: "val" is '
        'a tenth of the images then, and "train" the others. Or sort them into folders train/ and val/.'
    )


def other_splits(folder: str) -> list[str]:
    """Folders of the other splits: for `train/labels` `val/labels`, for `labels/train` `labels/val`.

    Raises:
        OSError: a folder cannot be listed.
    """
    above, inner = absolute(folder).rstrip(os.sep), ""
    for _ in range(2):
        above, name = os.path.split(above)
        if (own := split_of(name)) is not None:
            splits = {name: kind for name in os.listdir(above) if (kind := split_of(name)) is not None}
            others = [name for name, (kind, rest) in splits.items() if kind != own[0] and rest == own[1]]
            places = [os.path.join(above, name, inner) for name in sorted(others, key=os.fsencode)]
            return [place for place in places if os.path.isdir(place)]
        inner = name
    return []


def files_of_split(folder: str, names: Iterable[str], split: str | None = None) -> list[str]:
    """The files of one split, by their names; those of several do not make one data set.

    Args:
        folder: where they lie, for messages.
        names: of the files.
        split: which is wanted; without one there must be no more than one.

    Raises:
        ValueError: there are several, or none of this name; gives an example of each.
    """
    everything = sorted(names, key=os.fsencode)
    found: dict[str, list[str]] = defaultdict(list)
    for name in everything:
        match = _SHARD.fullmatch(name)
        words = [match[1]] if match else [word for word in re.split(r"[^a-z]+", name.lower()) if word in _WORDS]
        for word in words:
            found[word].append(name)
    if split is not None:
        return found[chosen(folder, sorted(found), split)]
    if len(found) > 1:
        raise ValueError(
            f"{printable(folder)} holds {len(found)} splits: {', '.join(sorted(found))}. Give one of them by "
            f"{remedy(sorted(found))}, or by a pattern that ends with * for the numbers; its files are named like "
            f"{listed(files[0] for files in found.values())}."
        )
    return everything
