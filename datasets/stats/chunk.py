"""The core: a chunk of a source's images, read and decoded once, becomes sums."""

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from augpipe import recipes
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.datasets.stats.fingerprints import FINGERPRINT, fingerprint, perceptual_hash
from augpipe.datasets.stats.sums import FormatSums, Sums, Unusable, merge_all
from augpipe.decoding import MAX_PIXELS
from augpipe.errors import SampleError
from augpipe.native.cpu_render import Scratch
from augpipe.pipeline.stored_image import StoredImage, open_image
from augpipe.sources.protocol import Pixels, Source

_NOTHING = recipes.none()
"""Every image can be used with it."""


def measure_chunk(
    source: Source,
    sample_ids: Iterable[int],
    *,
    fingerprints: bool = True,
    perceptual: bool = True,
    scratch: Scratch | None = None,
    max_pixels: int = MAX_PIXELS,
    tick: Callable[[], None] = lambda: None,
) -> Sums:
    """The sums of some images; safe to call from several threads, each with other samples.

    Args:
        source: where they come from.
        sample_ids: which ones, in the order that `Sums` list them.
        fingerprints: whether what finds duplicates is made.
        perceptual: whether that includes the perceptual hash, which needs ImageHash.
        scratch: memory to decode into, if the caller has some.
        max_pixels: larger images are unusable.
        tick: called after each image; what it raises ends the chunk.
    """
    memory = scratch or Scratch()

    def each() -> Iterable[Sums]:
        for sample_id in sample_ids:
            yield _measure(source, sample_id, fingerprints, perceptual, memory, max_pixels)
            tick()

    return merge_all(each())


def decode_sample(source: Source, sample_id: int, scratch: Scratch, max_pixels: int) -> tuple[StoredImage, Pixels]:
    """An image and its (H, W, 4) uint8 RGBX pixels, which lie in `scratch`.

    Raises:
        SampleError: it cannot be read or decoded.
    """
    image = open_image(source, _NOTHING, sample_id, max_pixels)
    try:
        return image, image.decode(scratch)
    except ValueError as problem:
        raise SampleError(source.name(sample_id), str(problem)) from problem


def _measure(
    source: Source, sample_id: int, fingerprints: bool, perceptual: bool, scratch: Scratch, max_pixels: int
) -> Sums:
    labels = Counter({int(source.label(sample_id)): 1})
    try:
        image, pixels = decode_sample(source, sample_id, scratch, max_pixels)
    except SampleError as problem:
        unusable = Unusable(sample_id=sample_id, name=problem.name, reason=problem.reason)
        return Sums(num=1, labels=labels, num_unusable=1, unusable=(unusable,))
    content = image.content
    assert content is not None
    channels = ChannelSums.of(pixels)
    header = image.header
    num_bytes = content.nbytes if isinstance(content, np.ndarray) else len(content)
    prints = np.zeros(0, FINGERPRINT)
    if fingerprints:
        hashed = perceptual_hash(pixels, channels) if perceptual else None
        prints = fingerprint(sample_id, content, image.shape(), channels, hashed)
    return Sums(
        num=1,
        labels=labels,
        sizes=Counter({image.size: 1}),
        formats={
            header.format if header else "array": FormatSums(
                num=1, total_bytes=num_bytes, least_bytes=num_bytes, most_bytes=num_bytes
            )
        },
        num_gray=int(channels.is_gray),
        num_turned=int(header is not None and header.orientation != 1),
        channels=channels,
        fingerprints=prints,
    )
