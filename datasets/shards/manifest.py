"""The manifest of a data set: what was made of which settings, and the sum of every shard."""

import json
import os
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, ValidationError, model_validator

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.files.descriptors import open_regular
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.remote.blocks import store_for
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import as_url, join, parent, shown

MANIFEST_NAME = "manifest.json"
FORMAT: Literal["augpipe shards"] = "augpipe shards"
VERSION: Literal[2] = 2
SHARD_NAME = r"^[0-9]{6,12}\.tar$"
_MAX_MANIFEST_BYTES = 1 << 28
_MAX_HEAD_BYTES = 1 << 32
_SNIFFED_BYTES = 256

Count = Annotated[int, Field(ge=0, lt=2**53)]  # what every reader of JSON can hold
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PerChannel = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
ScaleName = Annotated[str, Field(pattern=r"^(full|[1-9][0-9]{0,5})$")]


class Written(BaseModel):
    """What is written as JSON and read back: values of exactly these types, and no other field."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class ShardInfo(Written):
    """One shard: a tar file and its index."""

    name: str = Field(pattern=SHARD_NAME)
    """The tar file in its scale's folder, e.g. `000003.tar`; its index is `000003.idx`."""
    num_samples: Count
    num_bytes: Count
    """The tar file's length."""
    sha256: Sha256
    """The tar file's sum."""
    index_sha256: Sha256
    """The index file's sum."""
    index_bytes: Count
    """The index file's length."""
    head_bytes: int = Field(ge=0, le=_MAX_HEAD_BYTES)
    """Those of the index up to the row indexes: what a reader at a distance fetches first."""
    head_sha256: Sha256
    """Their sum."""
    targets_bytes: Count | None = None
    """The length of the targets' file, `000003.targets`; None in a data set without targets."""
    targets_sha256: Sha256 | None = None
    """Its sum."""


class Scale(Written):
    """One rendition of all images: a folder of shards."""

    name: ScaleName
    """The folder: the short side in pixels, or `full`."""
    shards: tuple[ShardInfo, ...] = Field(min_length=1)
    """In the order of the samples."""

    @property
    def num_samples(self) -> int:
        """Samples of all its shards."""
        return sum(shard.num_samples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Bytes of all its tar files."""
        return sum(shard.num_bytes for shard in self.shards)


class Histogram(Written):
    """How many values lie between neighbouring edges."""

    edges: tuple[FiniteFloat, ...] = Field(min_length=2)
    """Rising; bin i holds edges[i] <= value < edges[i + 1], the last one its upper edge too."""
    counts: tuple[Count, ...]
    """One less than edges."""

    @model_validator(mode="after")
    def _check(self) -> "Histogram":
        if len(self.edges) != len(self.counts) + 1 or any(
            a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)
        ):
            raise ValueError(
                f"{len(self.edges)} edges and {len(self.counts)} counts: the edges must rise, one more than counts."
            )
        return self


class TargetsInfo(Written):
    """What is known of the objects and label maps of a data set."""

    has_objects: bool
    """Whether its samples have objects; False where label maps only are known."""
    has_label_maps: bool
    object_classes: tuple[str, ...] = ()
    """Class number of an object -> name."""
    category_ids: tuple[int, ...] = ()
    """Class number of an object -> the id in the COCO file that it came from; empty where it came from none."""
    keypoint_names: tuple[str, ...] = ()
    keypoint_swaps: tuple[tuple[int, int], ...] = ()
    """Pairs of key points that trade places where an image is mirrored."""


class Manifest(Written):
    """What OUT/manifest.json says; written last, so that a data set with a manifest is whole."""

    format: Literal["augpipe shards"] = FORMAT
    version: Literal[2] = VERSION
    """The version of this file's form and of the shards'."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Program or library -> its version, of those that the bytes depend on."""
    num_samples: Count
    """The samples of each scale: all scales hold the same ones under the same ids."""
    num_rejected: Count = 0
    """Images of the source that could not be used; rejects.csv lists them."""
    scales: tuple[Scale, ...] = Field(min_length=1)
    classes: tuple[str, ...] = ()
    """Label -> class name."""
    class_counts: tuple[Count, ...] = ()
    """Label -> samples; those without a label are in none."""
    label_width: Count = 0
    """How many numbers each label is; 0: labels are classes. Else `classes` names the numbers, where they have names,
    and no sample counts in `class_counts`."""
    label_dtype: Literal["int64", "float32"] = "int64"
    """The type of those numbers, as the indexes hold them."""
    targets: TargetsInfo | None = None
    """What the files of targets next to the shards hold; None of a data set without targets."""
    mean: PerChannel | None = None
    """The mean of red, green and blue over all pixels, in 0..1 as `normalize` takes it."""
    std: PerChannel | None = None
    """Standard deviation, as above."""
    histograms: dict[str, Histogram] = Field(default_factory=dict)
    """What was measured -> how it is spread, e.g. `height` and `width` of the originals in pixels."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """What `augpipe prepare` was asked for."""

    @model_validator(mode="after")
    def _check(self) -> "Manifest":
        names = [scale.name for scale in self.scales]
        if len(set(names)) != len(names):
            raise ValueError(f"scales are {', '.join(names)}: each may be there once.")
        shards = [shard for scale in self.scales for shard in scale.shards]
        if any((shard.targets_bytes is None) != (self.targets is None) for shard in shards):
            raise ValueError("targets must be told of all shards and of the data set, or of none.")
        for scale in self.scales:
            if scale.num_samples != self.num_samples:
                raise ValueError(
                    f"the shards of scale {scale.name} hold {scale.num_samples} samples, and num_samples is "
                    f"{self.num_samples}."
                )
            if len({shard.name for shard in scale.shards}) != len(scale.shards):
                raise ValueError(f"scale {scale.name} names a shard twice.")
        if len(self.class_counts) != len(self.classes) or sum(self.class_counts) > self.num_samples:
            raise ValueError(
                f"{len(self.classes)} classes have {len(self.class_counts)} class_counts of {sum(self.class_counts)} "
                f"samples, and there are {self.num_samples}: one count a class, and no sample in two."
            )
        return self

    @classmethod
    def load(cls, folder: str | os.PathLike[str], remote: RemoteSettings | None = None) -> "Manifest":
        """Read FOLDER/manifest.json.

        Args:
            folder: a path or a URL.
            remote: limits for a URL; the environment's if left out.

        Raises:
            ValueError: there is none, it is none of ours, is damaged, or contradicts itself; says where.
            OSError: it cannot be read; `RemoteError` where no usable answer came.
            ImportError: a package for its URL is missing.
        """
        url = as_url(folder)
        if url is not None:
            path = shown(join(url, MANIFEST_NAME))
            text = _fetch(url, remote)
            if text is None:
                raise _no_manifest(shown(url))
            return cls._parse(path, text)
        path = os.path.join(os.fspath(folder), MANIFEST_NAME)
        if not os.path.lexists(path):
            if not os.path.isdir(folder):
                what = "is a file" if os.path.lexists(folder) else "does not exist"
                here = printable(os.getcwd())
                raise ValueError(
                    f"{printable(os.fspath(folder))} {what} (the current folder is {here}). Give the folder that "
                    "augpipe prepare wrote, its OUT."
                )
            raise _no_manifest(printable(os.fspath(folder)))
        with open(open_regular(path), "rb") as file:
            text = file.read(_MAX_MANIFEST_BYTES + 1)
        return cls._parse(path, text)

    @classmethod
    def _parse(cls, path: str, text: bytes) -> "Manifest":
        if len(text) > _MAX_MANIFEST_BYTES:
            raise ValueError(f"{printable(path)} has more than {_MAX_MANIFEST_BYTES} bytes: it is not our manifest.")
        _check_version(path, text)
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(f"{printable(path)} cannot be used: {_first_problem(error)}") from error

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write FOLDER/manifest.json, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_atomically(os.path.join(os.fspath(folder), MANIFEST_NAME), self.to_json())

    def to_json(self) -> bytes:
        """The file's bytes: the same for the same values, in whatever order settings and histograms came."""
        # a data set of classes, without targets, is written as it was before there were others
        data = self.model_dump(mode="json")
        if not self.label_width:
            del data["label_width"], data["label_dtype"]
        if self.targets is None:
            del data["targets"]
            for shard in (shard for scale in data["scales"] for shard in scale["shards"]):
                del shard["targets_bytes"], shard["targets_sha256"]
        for name in ("versions", "histograms", "settings"):
            data[name] = json.loads(json.dumps(data[name], sort_keys=True))
        return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def scale(self, name: str | int | None = None) -> Scale:
        """The scale of this name; the largest one where none is named.

        Raises:
            ValueError: there is none such.
        """
        if name is None:
            return max(self.scales, key=lambda scale: float("inf") if scale.name == "full" else float(scale.name))
        for scale in self.scales:
            if scale.name == str(name):
                return scale
        raise ValueError(f"scale={name} is not there. The scales: {', '.join(scale.name for scale in self.scales)}.")


def locate(path: str) -> tuple[str, str | None] | None:
    """(folder of the manifest, scale) for the folder of a data set (scale None) or of one of its scales; else None."""
    if _holds_manifest(path):
        return path, None
    absolute = os.path.abspath(path)
    above, name = os.path.split(absolute)
    if (name == "full" or name.isdecimal()) and _holds_manifest(above):
        return above, name
    return None


def locate_url(url: str, remote: RemoteSettings | None = None) -> tuple[str, str | None] | None:
    """The same as `locate`, for the URL of the folder, of one of its scales, or of the manifest itself.

    Raises:
        RemoteError: no usable answer came.
        ImportError, ValueError: the URL cannot be read.
    """
    above, name = parent(url)
    if name == MANIFEST_NAME:
        return above, None
    for folder, scale in ((url, None), (above, name)):
        if scale is not None and not (scale == "full" or scale.isdecimal()):
            continue
        text = _fetch(folder, remote)
        if text is not None and _is_ours(text):
            return folder, scale
    return None


def _fetch(url: str, remote: RemoteSettings | None) -> bytes | None:
    """The manifest's bytes; None where the folder holds none.

    Raises:
        RemoteError: no usable answer came.
        ImportError, ValueError: the URL cannot be read.
    """
    try:
        return store_for(remote).files.whole(join(url, MANIFEST_NAME), _MAX_MANIFEST_BYTES).data
    except FileNotFoundError:
        return None


def _no_manifest(folder: str) -> ValueError:
    return ValueError(
        f"{folder} holds no {MANIFEST_NAME}: it is not a data set that augpipe prepare wrote, or not a finished one. "
        "Give the folder that was its OUT, or finish it with --resume; of a folder of images, augpipe stats lists what "
        "cannot be used."
    )


def _check_version(path: str, text: bytes) -> None:
    """Refuse a data set of an earlier form with the command that makes it again; what else is wrong is found later."""
    try:
        found = json.loads(text)
        is_old = found["format"] == FORMAT and type(found["version"]) is int and found["version"] < VERSION
        scales = ",".join(str(scale["name"]) for scale in found["scales"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return
    if is_old:
        raise ValueError(
            f"{printable(path)} is of version {found['version']}, and this augpipe reads version {VERSION}. Make the "
            f"data set again from its source: augpipe prepare SOURCE OUT --scales {printable(scales)}"
        )


def _is_ours(start: bytes) -> bool:
    return f'"{FORMAT}"'.encode() in start[:_SNIFFED_BYTES]


def _holds_manifest(folder: str) -> bool:
    # not by the file's name alone: a folder of images may hold a manifest.json of another program
    path = os.path.join(folder, MANIFEST_NAME)
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return _is_ours(file.read(_SNIFFED_BYTES))


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
    message = problem["msg"].removeprefix("Value error, ")
    found = (
        "" if problem["type"] in ("value_error", "json_invalid", "missing") else f" (found {problem['input']!r:.100})"
    )
    return f"{place}: {message}{found}" if place else f"{message}{found}"
