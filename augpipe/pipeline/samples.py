"""The stages that find out what the samples of a batch are: looked up, opened, or replaced by others."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from augpipe.cache import PixelCache, Sizes
from augpipe.cache.file_stamps import REMEDY
from augpipe.cache.pixels import SeenSizes
from augpipe.errors import SampleError
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.stored_image import StoredImage, open_image
from augpipe.planning.plan import refusals
from augpipe.sources.protocol import Ints, is_sized, num_parts_of, parts_of, sizes_of, stack_of
from augpipe.validation.arguments import MAX_INDEXABLE_PIXELS

MAX_REPLACEMENTS = 1_000
"""How many neighbours of an unusable image are tried before giving up."""


class Samples:
    """A source's images as the settings want them; safe from several threads."""

    def __init__(self, settings: Settings, cache: PixelCache | None) -> None:
        self._settings = settings
        self._cache = cache
        self._seen = settings.seen or SeenSizes(len(settings.source))
        self.unusable: set[int] = set()
        """Samples that an item could not be made of so far."""

    def look_up_sizes(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Find out what the cache, or else the source or an earlier epoch, knows of the batch's block."""
        block = batch.request.block
        with block.lock:
            if block.sizes is None:
                ids = block.sample_ids
                known = self._cache.sizes_of(ids) if self._cache is not None else self._known_to_the_source(ids)
                block.sizes = self._that_suit(known) if self._settings.recipes_differ else known

    def look_up(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Give the items an image without content where its size is known: `look_up_sizes`.

        Reading is little but Python, and decoding is not: threads that read at the same time wait for each other. So
        what need not be read before the batch is planned is read by the thread that decodes it.
        """
        self.look_up_sizes(batch, items)
        sizes, cut = batch.request.block.sizes, batch.request.cut
        assert sizes is not None
        columns = (column[cut].tolist() for column in (sizes.heights, sizes.widths, sizes.may_scale))
        for item, height, width, may_scale in zip(items, *columns, strict=True):
            if height:
                item.image = _unread(item.wanted, height, width, may_scale)

    def open(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Read the items, and look at their headers."""
        for item in items:
            try:
                known = self._cache.size_of(item.sample_id) if self._cache is not None else None
                if known is not None and self._settings.recipes_differ and not self._suits(np.array([known[:2]]))[0]:
                    known = None  # another recipe took it; reading it says why this one does not
                item.image = self.read(item.sample_id) if known is None else _unread(item.sample_id, *known)
                batch.note_read(item.image.num_bytes)
                self._seen.note(item.sample_id, item.image.size, item.image.may_scale)
            except BaseException as problem:
                item.error = problem

    def read(self, sample_id: int) -> StoredImage:
        """An image, read now.

        Raises:
            SampleError: it cannot be read or used, or is another file than the cache has seen.
        """
        settings = self._settings
        if settings.stamps is not None:
            changed = settings.stamps.note(sample_id)
            if changed:
                raise SampleError(settings.source.name(sample_id), f"{changed}. {REMEDY}")
        return open_image(settings.source, settings.recipe, sample_id, settings.max_pixels)

    def replace(
        self,
        batch: BatchInProgress,
        items: Sequence[Item],
        again: Sequence[Callable[[BatchInProgress, Sequence[Item]], None]],
    ) -> None:
        """Put the next sample that can be used in the place of each that cannot.

        Args:
            batch: the batch.
            items: those that carry an error.
            again: the stages that the batch has passed so far, for an item alone.

        Raises:
            SampleError: nothing is skipped, or nothing near a sample can be used either.
            BaseException: an error that does not lie with the sample.
        """
        for item in items:
            while item.error is not None:
                if not isinstance(item.error, SampleError) or not self._settings.skips_bad:
                    raise item.error
                self.unusable.add(item.sample_id)
                batch.skipped[item.sample_id] = str(item.error)
                item.num_replaced += 1
                item.sample_id = self._next_alike(item.sample_id)
                if item.sample_id == item.wanted or item.num_replaced == MAX_REPLACEMENTS:
                    raise self._nothing_left(batch, item)
                item.image = item.pixels = item.error = None
                item.is_cached = False
                for stage in again:
                    if item.error is None:
                        stage(batch, [item])

    def _next_alike(self, sample_id: int) -> int:
        """The next sample, the first after the last, that may stand in a sample's place; itself if there is none."""
        num, num_looked_at = len(self._settings.source), 16
        if self._settings.groups_of is None and num_parts_of(self._settings.source) == 1:
            return (sample_id + 1) % num
        kind = self._kinds_of(np.array([sample_id], np.int64))
        first = 1
        while first < num:
            ids = (sample_id + np.arange(first, min(first + num_looked_at, num), dtype=np.int64)) % num
            alike = np.flatnonzero((self._kinds_of(ids) == kind).all(axis=0))
            if len(alike):
                return int(ids[alike[0]])
            first, num_looked_at = first + num_looked_at, 4 * num_looked_at
        return sample_id

    def _kinds_of(self, sample_ids: Ints) -> Ints:
        """(2, B) numbers: samples replace each other where both are the same."""
        groups_of = self._settings.groups_of
        groups = np.zeros(len(sample_ids), np.int64) if groups_of is None else groups_of(sample_ids)
        return np.stack([parts_of(self._settings.source, sample_ids), groups])

    def _known_to_the_source(self, sample_ids: Ints) -> Sizes:
        """An image whose size does not suit is looked at before the batch is planned, as if it were not known."""
        settings, stack = self._settings, stack_of(self._settings.source)
        if stack is not None:
            sizes, limit = np.array([stack.shape[1:3]], np.int64), MAX_INDEXABLE_PIXELS
        elif is_sized(settings.source):
            sizes, limit = sizes_of(settings.source, sample_ids), settings.max_pixels
        else:
            return self._seen.find(sample_ids)
        suits = ((sizes > 0) & (sizes <= limit)).all(axis=1)
        suits &= sizes.prod(axis=1) <= limit
        suits[suits] = self._suits(sizes[suits])
        heights, widths = np.where(suits, sizes.T, 0)
        columns = np.broadcast_arrays(heights, widths, suits & (stack is None), sample_ids)
        return Sizes(heights=columns[0], widths=columns[1], may_scale=columns[2])

    def _suits(self, sizes: Ints) -> npt.NDArray[np.bool_]:
        """(B,) whether the recipe can use images of (B, 2) heights and widths."""
        shapes, which = np.unique(sizes, axis=0, return_inverse=True)
        usable = [reason is None for reason in refusals(self._settings.recipe, shapes.tolist())]
        return np.array(usable, np.bool_)[which]

    def _that_suit(self, known: Sizes) -> Sizes:
        """Sizes that another recipe was content with, without those that this one cannot use."""
        suits = known.heights > 0
        suits[suits] = self._suits(np.stack([known.heights[suits], known.widths[suits]], axis=1))
        heights, widths = np.where(suits, known.heights, 0), np.where(suits, known.widths, 0)
        return Sizes(heights=heights, widths=widths, may_scale=known.may_scale & suits)

    def _nothing_left(self, batch: BatchInProgress, item: Item) -> SampleError:
        others = item.num_replaced - 1
        few = {0: "and it is the only photograph", 1: "nor can the one after it"}
        after = few.get(others, f"nor can any of the {others:,} photographs after it")
        name = self._settings.source.name(item.wanted)
        reason = batch.skipped[item.wanted].removeprefix(f"{name}: ")
        return SampleError(name, f"it cannot be used, {after}. The first reason: {reason}")


def may_read_late(settings: Settings) -> bool:
    """Whether a batch may be planned by the sizes that the source knows, or that an earlier epoch has found.

    Not where several whole images are kept in a batch, as one that proves damaged may be replaced by one of another
    size.
    """
    if stack_of(settings.source) is not None:
        return True
    keeps_whole = any(view.out_size is None for view in settings.recipe.all_views)
    return not keeps_whole


def _unread(sample_id: int, height: int, width: int, may_scale: bool) -> StoredImage:
    """An image of which the size alone is known."""
    return StoredImage(sample_id=sample_id, content=None, size=(height, width), may_scale=may_scale, header=None)
