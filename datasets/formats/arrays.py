"""Images that are in memory already."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.metadata.labelled_source import LabelledSource
from augpipe.sources.protocol import Labels, Pixels, as_label_rows
from augpipe.sources.subset import check_id

_NUM_DIGESTED = 64


class ArraySource(LabelledSource):
    """Decoded images in memory; nothing is copied, so do not write to them while a loader reads.

    Args:
        images: uint8, one array of shape (N, H, W, C) or (N, H, W), or a sequence of arrays of shape (H, W, C) or
            (H, W), each of its own size; C is 1, 3 (RGB) or 4 (RGBA).
        labels: N integers, -1 where there is none; or (N, k) numbers, k an image, for several classes at once, soft
            labels or regression. All -1 if left out.
        classes: label -> class name; "0", "1", ... if left out where there are labels. For k numbers a label: what each
            stands for.

    Raises:
        ValueError: another dtype or shape, no image, or labels and classes that do not fit.
    """

    def __init__(
        self,
        images: Pixels | Sequence[Pixels],
        labels: npt.ArrayLike | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        if isinstance(images, np.ndarray):
            _check_stack(images)
        else:
            for index, image in enumerate(images):
                _check_image(image, f"images[{index}]")
        if len(images) == 0:
            raise ValueError("images is empty: a source holds at least one image. Pass at least one.")
        self._images = images
        self._labels = _checked_labels(labels, len(images), len(classes))
        num_classes = 0 if self.label_width else int(self._labels.max()) + 1
        self.classes: Sequence[str] = tuple(classes) or tuple(str(label) for label in range(num_classes))

    def __len__(self) -> int:
        return len(self._images)

    @property
    def stack(self) -> Pixels | None:
        """What was given, where that is one array and no subclass reads it otherwise."""
        is_read_here = type(self).read is ArraySource.read
        return self._images if isinstance(self._images, np.ndarray) and is_read_here else None

    def read(self, sample_id: int) -> Pixels:
        """The image: a view of what was given, uint8 of shape (H, W, C) or (H, W)."""
        check_id(sample_id, len(self))
        image: Pixels = self._images[sample_id]
        return image

    def name(self, sample_id: int) -> str:
        """`images[7]` and the like."""
        check_id(sample_id, len(self))
        return f"images[{sample_id}]"

    def content_digest(self) -> str:
        """Of shapes and of the pixels of 64 images from all over: enough to tell one data set from another."""
        made = hashlib.blake2b(digest_size=16)
        for sample_id in sorted({place * len(self) // _NUM_DIGESTED for place in range(_NUM_DIGESTED)}):
            pixels = np.ascontiguousarray(self.read(sample_id))
            made.update(f"{pixels.shape}".encode())
            made.update(pixels.data)
        return made.hexdigest()


_OF_INTEGERS = "(images / 257).round().astype(np.uint8) from values of 16 bits"
_REMEDIES = {
    "f": "(255 * images).round().astype(np.uint8) from floats in 0..1",
    "b": "255 * images.astype(np.uint8)",
}
"""Kind of numbers -> how they become levels."""


def _check_dtype(images: npt.NDArray[Any], name: str) -> None:
    if images.dtype != np.uint8:
        raise ValueError(
            f"{name} has dtype {images.dtype}, and only uint8 is taken, with values in 0..255. Convert it: "
            f"{_REMEDIES.get(images.dtype.kind, _OF_INTEGERS)}."
        )


def _check_stack(images: npt.NDArray[Any]) -> None:
    _check_dtype(images, "images")
    shape = images.shape
    if images.ndim == 3 and shape[-1] in (1, 3, 4):
        raise ValueError(
            f"images of shape {shape} looks like one (H, W, C) image, and a batch of them is needed. "
            "Pass images[None], or images[..., None] if these are gray images of that width."
        )
    if not (images.ndim == 3 or (images.ndim == 4 and shape[-1] in (1, 3, 4))):
        remedy = "Pass an array of that shape, or a list of images of different sizes."
        if images.ndim == 4 and shape[1] in (1, 3, 4):
            remedy = "Its channels come first: pass images.transpose(0, 2, 3, 1)."
        raise ValueError(f"images has shape {shape}, and (N, H, W, 1 | 3 | 4) or (N, H, W) is taken. {remedy}")
    if 0 in shape[1:3]:
        raise ValueError(f"images has shape {shape}: each image needs at least one pixel. Pass larger ones.")


def _check_image(image: Any, name: str) -> None:
    if not isinstance(image, np.ndarray):
        raise ValueError(f"{name} is a {type(image).__name__}, and only numpy arrays are taken. Use np.asarray on it.")
    _check_dtype(image, name)
    if not (image.ndim == 2 or (image.ndim == 3 and image.shape[-1] in (1, 3, 4))):
        remedy = "Pass an array of that shape."
        if image.ndim == 3 and image.shape[0] in (1, 3, 4):
            remedy = "Its channels come first: pass image.transpose(1, 2, 0)."
        raise ValueError(f"{name} has shape {image.shape}, and (H, W, 1 | 3 | 4) or (H, W) is taken. {remedy}")
    if 0 in image.shape[:2]:
        raise ValueError(f"{name} has shape {image.shape}: an image needs at least one pixel. Leave it out.")


def _checked_labels(labels: npt.ArrayLike | None, num_images: int, num_classes: int) -> Labels:
    if labels is None:
        return np.full(num_images, -1, dtype=np.int64)
    given = np.asarray(labels)
    if given.ndim == 2 and given.dtype.kind in "iufb" and len(given) == num_images and given.shape[1]:
        if num_classes not in (0, given.shape[1]):
            raise ValueError(
                f"labels has {given.shape[1]} numbers an image, and classes {num_classes} names. Give one name each, "
                "or none."
            )
        return as_label_rows(given)
    if given.shape != (num_images,) or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(
            f"labels has shape {given.shape} and dtype {given.dtype}, and {num_images} integers are needed, one an "
            f"image, or ({num_images}, k) numbers. Pass class numbers (not names), or labels[:, None] to regress one."
        )
    checked = given.astype(np.int64)
    low, high = int(checked.min()), int(checked.max())
    if low < -1:
        raise ValueError(f"labels holds {low}, and a label is a class number from 0, or -1 for none. Renumber them.")
    if num_classes and high >= num_classes:
        raise ValueError(
            f"labels holds {high}, and classes has {num_classes} names (labels 0..{num_classes - 1}). "
            "Add the missing names, or renumber the labels."
        )
    return checked
