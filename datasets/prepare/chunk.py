"""The core: a chunk of a source's images becomes one shard of each scale. It knows no engine."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image
from pydantic import Field

from augpipe.datasets.metadata.names import printable
from augpipe.datasets.prepare.rendition import Rendition, keep_file, render_scale
from augpipe.datasets.prepare.sample_targets import FoundTargets, TargetsBuilder
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.prepare.tally import Tally, TallyBuilder
from augpipe.datasets.prepare.upright import UprightImage, open_upright
from augpipe.datasets.shards.manifest import ShardInfo, Written
from augpipe.datasets.shards.ustar import sample_key
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.errors import SampleError, SourceChangedError
from augpipe.sources.protocol import Labels, Source, label_width_of, labels_of
from augpipe.sources.targets import has_targets

_MACHINE_TROUBLE = frozenset(
    [
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.EPIPE),
        *(errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EHOSTUNREACH),
        *(errno.ENETUNREACH, errno.ENETDOWN, errno.ENOTCONN, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO),
    ]
)
"""Why a file may be unreadable today and readable tomorrow: to reject it would give other shards than a second run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkTask:
    """The images of one shard."""

    number: int
    """The shard's number, which names it: NUMBER.tar."""
    start: int
    """First sample id."""
    stop: int
    """One past the last."""
    folder: str
    """Holds a folder for each scale."""
    prefix: str
    """What names in the source begin with, and what is left out of the names that are noted."""
    settings: PrepareSettings
    raises: bool
    """Whether an image that cannot be used ends it."""


class Reject(Written):
    """An image that could not be used."""

    name: str
    reason: str


class ChunkResult(Written):
    """What became of a chunk; a function of the source and the settings alone."""

    number: int = Field(ge=0)
    start: int = Field(ge=0)
    stop: int = Field(ge=0)
    shards: dict[str, ShardInfo] = Field(default_factory=dict)
    """Scale -> its shard; empty where no image of the chunk could be used."""
    tally: Tally
    rejects: tuple[Reject, ...] = ()


def prepare_chunk(source: Source, task: ChunkTask, tick: Callable[[], None] = lambda: None) -> ChunkResult:
    """Write the shards of a chunk; none is there under its name before it is whole.

    Memory: one decoded image with its renditions, and some hundred bytes, the row index and the targets of each
    sample of the chunk.

    Args:
        source: where the images come from.
        task: which ones, and what to do with them.
        tick: called after each image; what it raises ends the chunk.

    Raises:
        SampleError: an image cannot be used, and `task.raises`.
        SourceChangedError: a file of the source is another one than when it was opened.
        OSError: a shard cannot be written, e.g. the disk is full; or reading fails for a reason that may pass.
    """
    scales = task.settings.scales
    tally, rejects = TallyBuilder(), []
    targets = TargetsBuilder(source) if has_targets(source) else None
    with ExitStack() as stack:
        writers = {
            scale: stack.enter_context(ShardWriter(os.path.join(task.folder, scale, f"{task.number:06}.tar")))
            for scale in scales
        }
        for sample_id in range(task.start, task.stop):
            name = short_name(source.name(sample_id), task.prefix)
            try:
                label = _label(source, sample_id)
                image, renditions = prepare_sample(source, sample_id, task.settings)
                size = image.image.height, image.image.width
                found = None if targets is None else _targets(targets, sample_id, size)
            except SourceChangedError:
                raise
            except ValueError as problem:
                if task.raises:
                    raise SampleError(name, str(problem)) from problem
                rejects.append(Reject(name=name, reason=printable(str(problem))))
            else:
                _add(writers, sample_key(sample_id, name), label, name, image, renditions)
                _count(tally, label, image, renditions, task.settings)
                if targets is not None and found is not None:
                    targets.add(sample_id, size, found, renditions)
            tick()
        shards = {}
        if any(writer.num_samples for writer in writers.values()):
            shards = {
                scale: writer.close(None if targets is None else targets.packed(scale))
                for scale, writer in writers.items()
            }
    return ChunkResult(
        number=task.number,
        start=task.start,
        stop=task.stop,
        shards=shards,
        tally=tally.build(),
        rejects=tuple(rejects),
    )


def prepare_sample(
    source: Source, sample_id: int, settings: PrepareSettings
) -> tuple[UprightImage, Mapping[str, Rendition]]:
    """One image at every scale; smaller ones are made from the original, not from larger ones.

    Raises:
        ValueError: it cannot be used; the reason, without its name.
        OSError: it cannot be read for a reason that may pass.
    """
    with _refusing_unreadable():
        content = source.read(sample_id)
    if settings.keep:
        image, rendition = keep_file(content, settings.max_pixels)
        return image, {settings.largest: rendition}
    image = open_upright(content, settings.max_pixels)
    return image, {scale: render_scale(image, scale, settings) for scale in settings.scales}


@contextmanager
def _refusing_unreadable() -> Iterator[None]:
    """Have a file that cannot be read end in a ValueError with the reason, unless it may be readable tomorrow."""
    try:
        yield
    except OSError as problem:
        if problem.errno in _MACHINE_TROUBLE:
            raise
        raise ValueError(problem.strerror or str(problem) or type(problem).__name__) from problem


def _targets(builder: TargetsBuilder, sample_id: int, size: tuple[int, int]) -> FoundTargets:
    with _refusing_unreadable():
        return builder.read(sample_id, size)


def short_name(name: str, prefix: str) -> str:
    """An image's name without the path of its source, so that the shards do not depend on where that lies."""
    return printable(name).removeprefix(prefix)


def _label(source: Source, sample_id: int) -> int | Labels:
    (row,) = labels_of(source, np.array([sample_id]))
    if label_width_of(source):
        if not np.isfinite(row).all():
            raise ValueError(f"its label {row.tolist()!r:.100} is not finite")
        return np.asarray(row)
    label = int(row)
    if not -1 <= label < len(source.classes):
        raise ValueError(f"its label {label} is none of the source's {len(source.classes)} classes")
    return label


def _add(
    writers: Mapping[str, ShardWriter],
    key: str,
    label: int | Labels,
    name: str,
    image: UprightImage,
    renditions: Mapping[str, Rendition],
) -> None:
    for scale, rendition in renditions.items():
        meta: dict[str, object] = {
            "name": name,
            "height": rendition.image.height,
            "width": rendition.image.width,
            "original_height": image.image.height,
            "original_width": image.image.width,
            "original_format": image.kind,
        }
        if rendition.is_kept:
            meta["is_original"] = True
        writers[scale].add(key, rendition.file, label, meta, rendition.row_index)


def _count(
    tally: TallyBuilder,
    label: int | Labels,
    picture: UprightImage,
    renditions: Mapping[str, Rendition],
    settings: PrepareSettings,
) -> None:
    image = picture.image
    notes = ["kept" for rendition in renditions.values() if rendition.is_kept]
    if image.mode == "L":
        notes.append("gray")
    if picture.kind == "array":
        notes.append("array")
    if picture.header is not None and picture.header.orientation != 1:
        notes.append("turned")
    if picture.profile != "none":
        notes.append(picture.profile)
    if any(rendition.image.height > image.height for rendition in renditions.values()):
        notes.append("enlarged")
    tally.add(
        label if isinstance(label, int) else -1,
        image.height,
        image.width,
        _channels(renditions[settings.largest].image),
        notes,
    )


def _channels(image: Image.Image) -> ChannelSums:
    if image.mode == "RGBX":
        pixels = np.asarray(image)
    else:
        rgb = image if image.mode == "RGB" else image.convert("RGB")
        pixels = np.frombuffer(rgb.tobytes("raw", "RGBX"), np.uint8)
    return ChannelSums.of(pixels.reshape(image.height, image.width, 4))
