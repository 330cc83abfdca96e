"""Which images are shown in one batch: all, or those that are of one size once they are resized."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from augpipe.decoding import MAX_PIXELS
from augpipe.errors import SampleError
from augpipe.ops.op import MAX_SIDE_PX
from augpipe.pipeline.stored_image import open_image
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Source, is_sized, sizes_of, stack_of
from augpipe.trainer.evaluation.views import Views, centre_recipe, usual_scale_of, whole_recipe
from augpipe.trainer.loop.data import output_size
from augpipe.validation.arguments import as_count

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Images that can be in one batch."""

    sample_ids: Ints
    """(N,) rising."""
    recipe: Recipe
    """A view for each scale."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What batches may take, by an estimate: images of all scales, and twice the largest layer's input and output.

    What libraries take to compute a layer is not counted, nor are the weights.
    """

    limit_mb: int
    """In MB, 10^6 bytes."""
    bytes_per_pixel: float
    """The largest layer's, for each pixel of the image that the network is shown."""
    num_held: int
    """Batches of images that are there at once: those made ahead, and the one in use."""

    def image_bytes(self, sizes: tuple[tuple[int, int], ...], shown_px: int | None = None) -> float:
        """Bytes of an image with views of these sizes; `shown_px` pixels of one are shown at a time, by default all."""
        pixels = [height * width for height, width in sizes]
        return 12.0 * sum(pixels) * self.num_held + self.bytes_per_pixel * (shown_px or max(pixels))

    def batch_size(self, image_bytes: float, most: int) -> int:
        """Images of a batch; at least 1."""
        return max(1, min(most, int(self.limit_mb * 1e6 / image_bytes)))


def as_memory(network: nn.Module, images: Tensor, limit_mb: int, prefetch: int) -> Memory:
    """Measure a network, in evaluation mode, on (1, C, H, W) images."""
    most = 0

    def note(_: nn.Module, given: tuple[object, ...], made: object) -> None:
        nonlocal most
        most = max(most, sum(one.nbytes for one in (*given, made) if isinstance(one, Tensor)))

    leaves = [module for module in network.modules() if not list(module.children())]
    hooks = [module.register_forward_hook(note) for module in leaves]
    try:
        with torch.no_grad():
            network(images)
    finally:
        for hook in hooks:
            hook.remove()
    pixels = images.shape[2] * images.shape[3]
    return Memory(limit_mb=as_count("memory_mb", limit_mb), bytes_per_pixel=2.0 * most / pixels, num_held=prefetch + 2)


def groups_of(
    source: Source, recipe: Recipe, views: Views, memory: Memory, *, skips_bad: bool, left_out: dict[int, str]
) -> Iterator[Group]:
    """The groups of a source's images, those of the smallest ones first.

    Args:
        source: of the images.
        recipe: of the run's evaluation.
        views: how they are shown.
        memory: what an image may take.
        skips_bad: whether an image that cannot be used goes to `left_out` (sample id -> "name: reason").
        left_out: filled before the first group is given.

    Raises:
        SampleError: an image cannot be used and is not to be skipped.
        ValueError: a scale is too small for the network.
    """
    centre = centre_recipe(recipe, () if views.dense else views.scales)  # ten crops need the same room
    if not views.takes_whole:
        yield Group(sample_ids=np.arange(len(source), dtype=np.int64), recipe=centre)
        return
    scales = views.scales or (usual_scale_of(recipe),)
    out_px = None if views.dense else output_size(recipe)[0] * output_size(recipe)[1]
    sizes = _stored_sizes(source, recipe, skips_bad, left_out)
    keys = _resized(sizes, scales)
    for sample_id in np.flatnonzero(sizes[:, 0]).tolist():
        reason = _refusal(keys[sample_id], memory, out_px)
        if reason is not None:
            _bad(SampleError(source.name(sample_id), reason), sample_id, skips_bad, left_out)
    kept = np.array([number for number in range(len(source)) if number not in left_out], np.int64)
    if not len(kept):
        return
    found, which = np.unique(keys[kept].reshape(len(kept), -1), axis=0, return_inverse=True)
    for number, key in enumerate(found.reshape(-1, len(scales), 2).tolist()):
        whole = whole_recipe(recipe, tuple((height, width) for height, width in key))
        yield Group(sample_ids=kept[which.reshape(-1) == number], recipe=whole)


def _stored_sizes(source: Source, recipe: Recipe, skips_bad: bool, left_out: dict[int, str]) -> Ints:
    """(N, 2) heights and widths; 0 of those that are left out. Headers alone are looked at."""
    stack = stack_of(source)
    if stack is not None:
        return np.tile(np.array(stack.shape[1:3], np.int64), (len(source), 1))
    ids = np.arange(len(source), dtype=np.int64)
    sizes = sizes_of(source, ids) if is_sized(source) else np.zeros((len(source), 2), np.int64)
    for sample_id in np.flatnonzero(sizes.min(axis=1) == 0).tolist():
        try:
            sizes[sample_id] = open_image(source, recipe, sample_id, MAX_PIXELS).size
        except SampleError as problem:
            _bad(problem, sample_id, skips_bad, left_out)
            sizes[sample_id] = 0
    return sizes


def _resized(sizes: Ints, scales: tuple[int, ...]) -> Ints:
    """(N, S, 2) heights and widths with each scale as the short side; the long one is rounded down, as in crops."""
    short = np.maximum(sizes.min(axis=1), 1)
    return np.stack([sizes * scale // short[:, None] for scale in scales], axis=1)


def _refusal(key: Ints, memory: Memory, out_px: int | None) -> str | None:
    """Why an image of these sizes is too large; None where it is not."""
    height, width = key[-1].tolist()
    if key.max() > MAX_SIDE_PX:
        return f"resized it has {height}x{width} pixels, and {MAX_SIDE_PX} a side are the most"
    needed = memory.image_bytes(tuple((h, w) for h, w in key.tolist()), out_px)
    if needed <= memory.limit_mb * 1e6:
        return None
    return (
        f"resized to {height}x{width} pixels it takes about {needed / 1e6:,.0f} MB, and batches may take "
        f"{memory.limit_mb:,}. Raise memory_mb, or lower scales"
    )


def _bad(problem: SampleError, sample_id: int, skips_bad: bool, left_out: dict[int, str]) -> None:
    if not skips_bad:
        raise problem
    left_out[sample_id] = str(problem)
