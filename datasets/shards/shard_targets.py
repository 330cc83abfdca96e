"""The targets of a shard's samples: objects and label maps in one file next to the tar file and its index."""

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.sources.targets import LabelMap, Outlines, Targets, ranges

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAGIC = b"AUGPTGT\0"
VERSION = 1
HEAD = struct.Struct("<8sIQ")
"""Magic, version, and bytes of the table, which follows; behind it come the label maps, one after the other."""
_FIELD, _TEXT = "field ", "text "
"""Prefixes of field names: of a field of numbers, and of a field of other values that JSON has."""
_KINDS = (
    ("labels", np.int64),
    ("boxes", np.float64),
    ("rotated_boxes", np.float32),
    ("keypoints", np.float32),
)
"""What is kept of objects in an array with a row each, by its name, and its dtype."""
DAMAGED = "augpipe verify lists all that is damaged."


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a sample's targets came from."""

    image_id: int | str | None
    """The image's own id, as COCO's; None where it has none."""
    orientation: int
    """EXIF's, by which the annotations' own places were turned; 1 for none."""
    size: tuple[int, int]
    """Height and width, upright, of the image that was annotated."""


def targets_path(shard: str) -> str:
    """The file that belongs to a tar file: `000003.targets` next to `000003.tar`."""
    return f"{os.path.splitext(shard)[0]}.targets"


def pack_targets(objects: Targets | None, origins: Sequence[Origin], maps: Sequence[bytes]) -> bytes:
    """The bytes of a shard's file.

    Args:
        objects: of its N samples, in their order; None where label maps only are known.
        origins: (N,).
        maps: (N,) of `pack_map`; empty where there are none.

    Raises:
        ValueError: a field holds what JSON has not.
    """
    arrays: dict[str, Any] = {
        "orientations": np.array([one.orientation for one in origins], np.int8),
        "origin_sizes": np.array([one.size for one in origins], np.int32).reshape(-1, 2),
        "map_ends": np.cumsum([len(one) for one in maps], dtype=np.int64) if maps else np.empty(0, np.int64),
    }
    if any(one.image_id is not None for one in origins):
        arrays[f"{_TEXT}image_id"] = _as_json("image_id", [one.image_id for one in origins])
    if objects is not None:
        arrays |= _object_arrays(objects)
    table = io.BytesIO()
    np.savez(table, **arrays)
    return b"".join([HEAD.pack(MAGIC, VERSION, table.tell()), table.getvalue(), *maps])


def _object_arrays(objects: Targets) -> dict[str, Any]:
    arrays: dict[str, Any] = {"counts": objects.counts}
    for name, kind in _KINDS:
        values = getattr(objects, name)
        if values is not None:
            arrays[name] = np.asarray(values, kind)
    if objects.polygons is not None:
        rings = [ring for own in objects.polygons for ring in own]
        arrays["ring_ends"] = np.cumsum([len(own) for own in objects.polygons], dtype=np.int64)
        arrays["corner_ends"] = np.cumsum([len(ring) for ring in rings], dtype=np.int64)
        arrays["corners"] = np.concatenate([np.empty((0, 2)), *rings]).astype(np.float32)
    for name, values in objects.fields.items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            arrays[_FIELD + name] = values
        else:
            arrays[_TEXT + name] = _as_json(name, values.tolist() if isinstance(values, np.ndarray) else list(values))
    return arrays


def _as_json(name: str, values: Sequence[Any]) -> npt.NDArray[np.uint8]:
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    try:
        text = json.dumps(plain, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"its objects' {name} cannot be kept: {error}. Give numbers, texts or lists of them"
        ) from error
    return np.frombuffer(text.encode("ascii"), np.uint8)


class ShardTargets:
    """What a shard's file says of its N samples, in memory.

    Args:
        name: of the file, for messages.
        table: the bytes behind its head.
        num_samples: N.

    Raises:
        ValueError: it is damaged, or of another number of samples; names the file.
    """

    def __init__(self, name: str, table: bytes, num_samples: int) -> None:
        try:
            with np.load(io.BytesIO(table), allow_pickle=False) as arrays:
                self._arrays: Mapping[str, Any] = {key: arrays[key] for key in arrays.files}
            self._texts = {
                key.removeprefix(_TEXT): json.loads(values.tobytes())
                for key, values in self._arrays.items()
                if key.startswith(_TEXT)
            }
            self.image_ids: Sequence[Any] | None = self._texts.pop("image_id", None)
            """(N,) the images' own ids; None where they have none."""
            self.map_ends: Ints = self._arrays["map_ends"]
            """(N,) where each label map ends, behind the table; empty where there are none."""
            self._orientations, self._sizes = self._arrays["orientations"], self._arrays["origin_sizes"]
            counts: Ints = self._arrays.get("counts", np.zeros(num_samples, np.int64))
            if not len(self._orientations) == len(self._sizes) == len(counts) == num_samples:
                raise ValueError(f"it is of {len(counts)} samples, and the shard has {num_samples}")
            self._starts = np.concatenate([[0], np.cumsum(counts)])
            self._check()
        except (ValueError, KeyError, EOFError, OSError, RecursionError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{name} is damaged: {error}. {DAMAGED}") from error

    def _check(self) -> None:
        """Refuse arrays that do not fit together, before a number in them is trusted."""
        total = int(self._starts[-1])
        fields = {key: values for key, values in self._arrays.items() if key.startswith(_FIELD)}
        names = (*(name for name, _ in _KINDS), "ring_ends")
        known = [self._arrays[key] for key in names if key in self._arrays]
        if any(len(values) != total for values in [*known, *fields.values(), *self._texts.values()]):
            raise ValueError("its arrays are of different numbers of objects")
        for ends, held in (("ring_ends", "corner_ends"), ("corner_ends", "corners")):
            if ends in self._arrays:
                steps = np.diff(self._arrays[ends], prepend=0)
                if (steps < 0).any() or steps.sum() != len(self._arrays[held]):
                    raise ValueError(f"its {ends} do not fit its {held}")
        if (np.diff(self.map_ends, prepend=0) < 0).any():
            raise ValueError("its label maps do not follow each other")

    @property
    def has_objects(self) -> bool:
        """Whether objects are known."""
        return "counts" in self._arrays

    def origin(self, position: int) -> tuple[int, tuple[int, int]]:
        """EXIF's orientation of the annotations of a sample, and the upright size of the annotated image."""
        height, width = self._sizes[position].tolist()
        return int(self._orientations[position]), (height, width)

    def of(self, positions: Ints) -> Targets:
        """The objects of samples of the shard, in their order."""
        counts = self._starts[positions + 1] - self._starts[positions]
        rows = ranges(self._starts[positions], counts)
        arrays = self._arrays
        fields: dict[str, Any] = {
            key.removeprefix(_FIELD): values[rows] for key, values in arrays.items() if key.startswith(_FIELD)
        }
        return Targets(
            counts=counts,
            labels=arrays["labels"][rows] if "labels" in arrays else None,
            boxes=arrays["boxes"][rows] if "boxes" in arrays else None,
            polygons=Outlines(len(rows), lambda: [self._rings_of(row) for row in rows.tolist()])
            if "ring_ends" in arrays
            else None,
            rotated_boxes=arrays["rotated_boxes"][rows].astype(np.float64) if "rotated_boxes" in arrays else None,
            keypoints=arrays["keypoints"][rows].astype(np.float64) if "keypoints" in arrays else None,
            fields=fields | {name: [values[row] for row in rows.tolist()] for name, values in self._texts.items()},
        )

    def _rings_of(self, row: int) -> list[Floats]:
        ring_ends, corner_ends = self._arrays["ring_ends"], self._arrays["corner_ends"]
        first, last = int(ring_ends[row - 1]) if row else 0, int(ring_ends[row])
        ends = [int(corner_ends[first - 1]) if first else 0, *corner_ends[first:last].tolist()]
        return [self._arrays["corners"][begin:end].astype(np.float64) for begin, end in pairwise(ends)]


def table_bytes_of(name: str, head: bytes) -> int:
    """How long the table is, as the file's first bytes say.

    Raises:
        ValueError: it is not such a file, or of another version; names it.
    """
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise ValueError(f"{name} holds no targets of a shard: it begins with {head[:8]!r}. {DAMAGED}")
    _, version, num_bytes = HEAD.unpack_from(head)
    if version != VERSION:
        raise ValueError(
            f"{name} has version {version}, and this augpipe reads version {VERSION}. Read it with the augpipe that "
            "wrote it, or make the data set again: augpipe prepare SOURCE OUT."
        )
    return int(num_bytes)


def scaled(objects: Targets, before: Ints, after: Ints) -> Targets:
    """Objects in pixels of images of another size; areas in a field `area` change with it.

    Args:
        objects: of N images.
        before: (N, 2) heights and widths that they are given in.
        after: (N, 2) the ones that they are wanted in.
    """
    if (before == after).all():
        return objects
    factors = np.repeat((after / before)[:, ::-1], objects.counts, axis=0)  # along x and y
    boxes, keypoints, polygons, fields = objects.boxes, objects.keypoints, objects.polygons, dict(objects.fields)
    if boxes is not None:
        boxes = boxes * np.tile(factors, 2)
    rotated = objects.rotated_boxes
    if rotated is not None:
        rotated = rotated * factors[:, None]
    if keypoints is not None:
        keypoints = keypoints * np.concatenate([factors, np.ones((len(factors), 1))], axis=1)[:, None]
    if polygons is not None:
        polygons = [[ring * factor for ring in rings] for rings, factor in zip(polygons, factors, strict=True)]
    if isinstance(fields.get("area"), np.ndarray):
        fields["area"] = fields["area"] * factors.prod(axis=1)
    return replace(objects, boxes=boxes, polygons=polygons, rotated_boxes=rotated, keypoints=keypoints, fields=fields)


def resized_map(labels: LabelMap, height: int, width: int) -> LabelMap:
    """A label map at another size: each pixel has the label of the one that its centre lies in."""
    if labels.shape[:2] == (height, width):
        return labels
    rows = ((2 * np.arange(height) + 1) * labels.shape[0]) // (2 * height)
    columns = ((2 * np.arange(width) + 1) * labels.shape[1]) // (2 * width)
    resized: LabelMap = labels[rows[:, None], columns]
    return resized


def pack_map(labels: LabelMap) -> bytes:
    """A label map in few bytes."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(labels), allow_pickle=False)
    return zlib.compress(file.getvalue(), 6)


def unpack_map(data: bytes) -> LabelMap:
    """What `pack_map` was given.

    Raises:
        ValueError: it is damaged; the reason alone.
    """
    try:
        labels: LabelMap = np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False)
    except (zlib.error, EOFError, OSError, ValueError) as error:
        raise ValueError(f"its label map is damaged ({error})") from error
    return labels
