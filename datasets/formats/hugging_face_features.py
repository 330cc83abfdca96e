"""What the columns of a table are, from the features that Hugging Face writes next to its schema."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from augpipe.datasets.metadata.label_names import as_list, label_like, unread, unusable
from augpipe.datasets.metadata.names import listed

IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp")


class Columns(NamedTuple):
    """Which columns hold the images and the labels."""

    image: str
    label: str | None
    classes: tuple[str, ...] | None
    """Label -> class name, where the features say it."""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Kind(NamedTuple):
    """What a column holds that is not an image."""

    holds: str
    """Its type, for messages."""
    is_class: bool
    """Whether it holds integers or texts."""
    is_number: bool
    """Whether it is read as numbers where `label=` names it."""


def parse_features(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Column -> its feature, from the schema's metadata; empty where there is none that can be read."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}  # written by something else: the columns themselves tell what they are
    return features if isinstance(features, dict) else {}


def kind_of(feature: Any) -> str:
    """`Image`, `ClassLabel`, `Value` and so on; "" for a nested feature."""
    return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""


def choose_columns(
    features: Mapping[str, Any],
    pictures: Sequence[str],
    others: Mapping[str, Kind],
    *,
    image: str | None,
    label: str | Literal[False] | None,
) -> Columns:
    """Pick the columns of a table.

    Args:
        features: column -> Hugging Face's feature, as JSON; may be empty.
        pictures: the columns that could hold encoded images, by their type.
        others: all other columns.
        image: the column that the user named, or None.
        label: as above; False for none.

    Raises:
        ValueError: there is no such column, none for images, or more than one; or one that looks like the label cannot
            be used. Lists them.
    """
    chosen = _image(features, pictures, image)
    classes_of = {name: _class_names(feature) for name, feature in features.items() if kind_of(feature) == "ClassLabel"}
    usable = [name for name, kind in others.items() if kind.is_class]
    if label is False:
        return Columns(chosen, None, None)
    if label is not None:
        if label not in usable:
            raise ValueError(
                f"label={label!r} is not a column of integers or of text. Those are {listed(usable, most=20) or 'none'}"
            )
        return Columns(chosen, label, classes_of.get(label))
    looks = label_like(list(others))
    if looks and looks[0] not in usable:
        kind = others[looks[0]]
        raise ValueError(unusable(f"column {looks[0]!r}", kind.holds, kind.is_number))
    known = [name for name in usable if name in classes_of]
    found = label_like(known or usable) or known
    if not found:
        return Columns(chosen, None, None, left_out=_unread(list(others)))
    label = found[0]
    if len(known) > 1:
        rest = [name for name in known if name != label]
        warnings.warn(
            f"several columns hold classes: {label!r} is taken, and {listed(rest)} left out. Pass label= to choose.",
            stacklevel=2,
        )
    notes = [] if label == "label" else [f"labels are column {label!r}"]
    notes += [f"not read: {text}" for text in _unread([name for name in looks if name != label])]
    return Columns(chosen, label, classes_of.get(label), tuple(notes))


def _unread(columns: Sequence[str]) -> tuple[str, ...]:
    if not columns:
        return ()
    remedy = f"label={columns[0]!r} reads {'one' if columns[1:] else 'it'}"
    several = f", label={as_list(columns)} several as numbers" if columns[1:] else ""
    return (unread(columns, "column of the table", remedy + several),)


def _image(features: Mapping[str, Any], pictures: Sequence[str], image: str | None) -> str:
    shown = listed(pictures, most=20) or "none"
    if image is not None:
        if image not in pictures:
            raise ValueError(
                f"image={image!r} is not a column of encoded images (struct<bytes, path> or binary). Those are {shown}"
            )
        return image
    if not pictures:
        raise ValueError(
            "no column holds encoded images: struct<bytes: binary, path: string> as Hugging Face writes it, or binary"
        )
    known = [name for name in pictures if kind_of(features.get(name)) == "Image"]
    named = [name for name in IMAGE_NAMES if name in (known or pictures)]
    found = known if len(known) == 1 else named[:1] or known or list(pictures)
    if len(found) > 1:
        raise ValueError(f"several columns could hold the images: {shown}. Pass image= to choose")
    return found[0]


def _class_names(feature: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = feature.get("names")
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)
