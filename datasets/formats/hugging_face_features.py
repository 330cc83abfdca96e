"""What the columns of a table are, from the features that Hugging Face writes beside its schema."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from augpipe.datasets.metadata.names import listed

IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp")
LABEL_NAMES = ("label", "labels", "cls", "class", "target", "fine_label")


class Columns(NamedTuple):
    """Which columns hold the images and the labels."""

    image: str
    label: str | None
    classes: tuple[str, ...] | None
    """Label -> class name, where the features say it."""


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
    numbers_or_texts: Sequence[str],
    *,
    image: str | None,
    label: str | None,
) -> Columns:
    """Pick the columns of a table.

    Args:
        features: column -> Hugging Face's feature, as JSON; may be empty.
        images: the columns that could hold encoded images, by their type.
        numbers_or_texts: those that could hold labels, by their type.
        image: the column that the user named, or None.
        label: likewise.

    Raises:
        ValueError: there is no such column, none for images, or more than one; lists them.
    """
    chosen = _image(features, pictures, image)
    classes_of = {name: _class_names(feature) for name, feature in features.items() if kind_of(feature) == "ClassLabel"}
    if label is not None and label not in numbers_or_texts:
        raise ValueError(
            f"label={label!r} is no column of integers or of text. Those are "
            f"{listed(numbers_or_texts, most=20) or 'none'}"
        )
    if label is None:
        known = [name for name in numbers_or_texts if name in classes_of]
        named = [name for name in LABEL_NAMES if name in (known or numbers_or_texts)]
        found = named or known
        label = found[0] if found else None
        if len(known) > 1:
            others = [name for name in known if name != label]
            warnings.warn(
                f"several columns hold classes: {label!r} is taken, and {listed(others)} left out. "
                "Pass label= to choose.",
                stacklevel=2,
            )
    return Columns(chosen, label, None if label is None else classes_of.get(label))


def _image(features: Mapping[str, Any], pictures: Sequence[str], image: str | None) -> str:
    shown = listed(pictures, most=20) or "none"
    if image is not None:
        if image not in pictures:
            raise ValueError(
                f"image={image!r} is no column of encoded images (struct<bytes, path> or binary). Those are {shown}"
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
