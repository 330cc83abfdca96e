"""What a run is to do, fixed before the first image: so that a later run can finish it and get the same bytes."""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import simplejpeg
from PIL import features
from pydantic import Field

from augpipe import __version__
from augpipe.datasets.prepare.chunk import prepare_sample, short_name
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.manifest import Written
from augpipe.sources.protocol import Source
from augpipe.sources.targets import TargetSource, has_targets, targets_of

_NUM_TRIED = 32
"""Images that are prepared to see how long a shard gets: a few tenths of a second."""
_TAR_BYTES = 3_400
"""What a sample takes in a tar file in addition to its image: three headers, label and notes, padding."""
_FEWEST_SHARDS = 16
_SMALL_SHARD = 32
"""A small source is cut into up to 16 shards of at least so many images, so that all cores have work."""


class SourceIdentity(Written):
    """What a source is known by: which images it lists, not what they hold."""

    num_samples: int = Field(ge=1)
    names_sha256: str
    """The sum of all classes, names, labels and objects."""

    def noted(self) -> dict[str, Any]:
        """What the manifest's settings say of it."""
        return {"source_num_samples": self.num_samples, "source_names_sha256": self.names_sha256}


class RunPlan(Written):
    """OUT/.prepare/plan.json."""

    version: Literal[2] = 2
    settings: PrepareSettings
    source: SourceIdentity
    source_name: str
    """For people."""
    versions: dict[str, str]
    """The versions of what the bytes depend on."""
    num_shards: int = Field(ge=1)
    """The shards of each scale; those of which every image is rejected are left out."""
    estimated_bytes: int = Field(ge=0)
    """What all shards of all scales take, about."""

    def bounds(self, number: int) -> tuple[int, int]:
        """First sample id of a shard, and one past its last."""
        num = self.source.num_samples
        return number * num // self.num_shards, (number + 1) * num // self.num_shards

    def noted(self) -> dict[str, Any]:
        """What the manifest notes as its settings."""
        return {**self.settings.to_json(), "source_name": self.source_name, **self.source.noted()}


def make_plan(source: Source, settings: PrepareSettings, identity: SourceIdentity, name: str, prefix: str) -> RunPlan:
    """The plan for a new folder; looks at a few images.

    Args:
        source: where images come from.
        settings: what to make of them.
        identity: of the source.
        name: of the source, for people.
        prefix: as `ChunkTask.prefix`.
    """
    largest, all_scales = _mean_bytes(source, settings)
    num = identity.num_samples
    by_bytes = -(-num * largest // settings.shard_bytes)
    num_shards = min(max(by_bytes, min(_FEWEST_SHARDS, num // _SMALL_SHARD), 1), num)
    return RunPlan(
        settings=settings,
        source=identity,
        source_name=short_name(name, prefix),
        versions=versions(),
        num_shards=num_shards,
        estimated_bytes=num * all_scales,
    )


def identify(source: Source, prefix: str) -> SourceIdentity:
    """Go through the names, labels and objects of a source once.

    Args:
        source: the source.
        prefix: what names begin with and the shards leave out.
    """
    digest = hashlib.sha256()
    for name in [*source.classes, *(source.object_classes if has_targets(source) else ())]:
        digest.update(f"{len(name)}:".encode() + name.encode("utf-8", "surrogateescape"))
    for sample_id in range(len(source)):
        try:
            found = source.label(sample_id)
            label = str(found.tolist() if isinstance(found, np.ndarray) else found)
        except ValueError:
            label = "damaged"  # rejected later, with the reason
        name = short_name(source.name(sample_id), prefix)
        digest.update(f"{label}:{len(name)}:{name}".encode())
        if has_targets(source):
            digest.update(_objects_text(source, sample_id).encode("utf-8", "surrogateescape"))
    return SourceIdentity(num_samples=len(source), names_sha256=digest.hexdigest())


def _objects_text(source: TargetSource, sample_id: int) -> str:
    """All that is said of an image's objects."""
    try:
        found = targets_of(source, np.array([sample_id]))
    except (ValueError, OSError):
        return "damaged"  # rejected later, with the reason
    if found is None:
        return ""
    arrays = [None if one is None else np.asarray(one).tolist() for one in (found.labels, found.boxes, found.keypoints)]
    rings = [[np.asarray(ring).tolist() for ring in own] for own in found.polygons or ()]
    fields = {
        name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in found.fields.items()
    }
    rotated = [] if found.rotated_boxes is None else [found.rotated_boxes.tolist()]
    return repr([found.counts.tolist(), *arrays, rings, fields, *rotated])


def differences(
    noted: Mapping[str, Any], made_by: Mapping[str, str], settings: PrepareSettings, source: SourceIdentity
) -> list[str]:
    """`quality: 90 there, 80 asked for`, for each thing in which two runs must agree to make the same shards.

    Args:
        noted: what the plan or the manifest that is there notes as its settings.
        made_by: its versions.
        settings: what is asked for.
        source: what they are asked for of.
    """
    there = _identity(noted, made_by)
    asked = _identity({**settings.to_json(), **source.noted()}, versions())
    return [
        f"{name.replace('_', '-')}: {_shown(there.get(name))} there, {_shown(asked.get(name))} asked for"
        for name in dict.fromkeys([*asked, *there])
        if there.get(name) != asked.get(name)
    ]


def versions() -> dict[str, str]:
    """Program or library -> version, of those that the bytes depend on."""
    found = {"Pillow": features.version("pil"), "simplejpeg": getattr(simplejpeg, "__version__", None)}
    found |= {"libjpeg-turbo": features.version("libjpeg_turbo") or features.version("jpg")}
    found |= {"LittleCMS": features.version("littlecms2")}
    return {"augpipe": __version__, **{name: version or "unknown" for name, version in found.items()}}


def _identity(noted: Mapping[str, Any], made_by: Mapping[str, str]) -> dict[str, Any]:
    return {
        **{name: value for name, value in noted.items() if not name.startswith("source_")},
        "photographs in the source": noted.get("source_num_samples"),
        "names, labels and objects in the source (their SHA-256)": noted.get("source_names_sha256"),
        **{f"version of {name}": version for name, version in made_by.items()},
    }


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


def _mean_bytes(source: Source, settings: PrepareSettings) -> tuple[int, int]:
    """Bytes that an image takes at the largest scale, and at all of them; of a few from all over the source."""
    num = len(source)
    tried = sorted({place * num // _NUM_TRIED for place in range(_NUM_TRIED)})
    largest = everything = usable = 0
    for sample_id in tried:
        try:
            _, renditions = prepare_sample(source, sample_id, settings)
        except ValueError:
            continue
        usable += 1
        largest += len(renditions[settings.largest].file)
        everything += sum(len(rendition.file) + len(rendition.row_index) for rendition in renditions.values())
    per_sample = _TAR_BYTES, _TAR_BYTES * len(settings.scales)
    if not usable:
        return per_sample
    return largest // usable + per_sample[0], everything // usable + per_sample[1]
