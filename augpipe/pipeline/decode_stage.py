"""What the last stages share: an item's pixels, from wherever they are, as RGBX in memory."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from augpipe.cache import PixelCache
from augpipe.cache.row_indexes import RowIndexes
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.decoding.jpeg import decoder_if_compiled
from augpipe.decoding.row_index import FileSum
from augpipe.errors import SampleError
from augpipe.gpu_ops.jpeg.workspace import File, View
from augpipe.native.cpu_render import pack_into
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.planner import Planner
from augpipe.pipeline.samples import Samples
from augpipe.pipeline.stored_image import Decodable
from augpipe.sources.protocol import Pixels


class Decoder:
    """Decodes items, into a cache on the host where that has room; safe from several threads."""

    def __init__(self, settings: Settings, samples: Samples, planner: Planner, cache: PixelCache | None) -> None:
        self._settings = settings
        self._samples = samples
        self._planner = planner
        self._cache = cache
        self._row_indexes = settings.row_indexes or RowIndexes(settings.source, settings.row_index_bytes)

    def decode(self, batch: BatchInProgress, item: Item, memory: Callable[[int], Pixels]) -> None:
        """Give an item its RGBX pixels on the host, unless the cache holds them already.

        Args:
            batch: a planned batch.
            item: one of its items, whose pixels DALI has not left on a device.
            memory: gives (num_bytes,) uint8 to decode into; not called where the pixels lie in the cache.

        Raises:
            SampleError: it cannot be read, or is damaged.
        """
        if item.is_cached:
            return
        self.read(batch, item)
        image, cache = item.opened, self._cache
        reserved = None
        if cache is not None and cache.is_on_host and _is_whole(item):
            height, width = image.size
            reserved = cache.reserve(image.sample_id, item.factor, height, width, image.may_scale)
        try:
            decodable = self._decodable(item, may_crop=reserved is None)
            room = memory(decodable.num_bytes) if reserved is None else reserved.pixels.array.reshape(-1)
            item.pixels = decodable.decode_into(room)
        except BaseException as problem:
            if cache is not None and reserved is not None:
                cache.cancel(reserved)
            if isinstance(problem, ValueError):
                raise self._sample_error(item, problem) from problem
            raise
        if cache is not None and reserved is not None:
            cache.commit(reserved)
        image.content = None  # of no more use

    def render(
        self, items: Sequence[Item], views: Sequence[View], memory: Callable[[int], Pixels], *, planar: bool
    ) -> list[Item]:
        """Decode and render, in one compiled call, those items that our own decoder takes.

        Args:
            items: `gpu_ops.jpeg.workspace.MAX_FILES` at most that were read; one whose row index cannot be had carries
                an error then.
            views: of their batch.
            memory: see `decode`; it is used for one item after the other.
            planar: see `gpu_ops.image.fused.run_jobs`.

        Returns:
            The others, which are to be decoded by themselves; `decode` names the reason of those that are damaged.
        """
        workspace = decoder_if_compiled()
        if workspace is None:
            return list(items)
        found: list[tuple[Item, File, FileSum | None]] = []
        for item in items:
            if self._is_region_of_file(item):
                try:
                    found.append((item, *self._file_of(item)))
                except BaseException as problem:
                    item.error = problem
        finished: set[Item] = set()
        if found:
            files = [file for _, file, _ in found]
            room, max_points = memory(max(file.region_bytes for file in files)), self._row_indexes.max_points
            are_taken = workspace.render(files, views, room, planar=planar, max_points=max_points)
            for nth, ((item, file, file_sum), is_taken) in enumerate(zip(found, are_taken, strict=True)):
                if is_taken:
                    self._row_indexes.keep(item.opened.sample_id, file_sum, file.known, workspace.points(nth))
                    item.opened.content = None  # of no more use
                    finished.add(item)
        return [item for item in items if item.error is None and item not in finished]

    def _file_of(self, item: Item) -> tuple[File, FileSum | None]:
        image = item.opened
        assert item.region is not None and image.content is not None and not isinstance(image.content, np.ndarray)
        try:
            known, file_sum = self._row_indexes.find(image.sample_id, image.content)
        except ValueError as problem:
            raise self._sample_error(item, problem) from problem
        content = np.frombuffer(image.content, np.uint8)
        return File(content, image.size, item.factor, item.region, item.position, known), file_sum

    def _decodable(self, item: Item, *, may_crop: bool) -> Decodable:
        if item.pixels is not None:
            return _packed(item.pixels)  # as DALI gave it
        image, cache = item.opened, self._cache
        goes_alone = may_crop and (cache is None or cache.is_on_host or not self._may_be_cached(item))
        if goes_alone and image.may_crop:
            assert item.region is not None
            return image.region(item.factor, item.region, self._row_indexes)
        return image.whole(item.factor)

    def _is_region_of_file(self, item: Item) -> bool:
        """Whether a region of it is decoded, and out of a file."""
        return item.pixels is None and item.opened.may_crop and not self._may_be_cached(item)

    def _may_be_cached(self, item: Item) -> bool:
        return self._cache is not None and not self._cache.has_no_room_for(item.opened.sample_id, item.factor)

    def _sample_error(self, item: Item, reason: ValueError) -> SampleError:
        return SampleError(self._settings.source.name(item.opened.sample_id), str(reason))

    def read(self, batch: BatchInProgress, item: Item) -> None:
        """Read an image whose size alone was known, and plan it again where the source was wrong about it.

        Raises:
            SampleError: it cannot be read, or used.
        """
        if item.pixels is not None or item.opened.content is not None:
            return
        known, start = item.opened, time.perf_counter()
        found = self._samples.read(item.opened.sample_id)
        batch.note_read(found.num_bytes, time.perf_counter() - start)
        if self._cache is not None:
            if found.size != known.size:
                raise SampleError(
                    self._settings.source.name(known.sample_id),
                    f"it was {known.size[1]}x{known.size[0]} pixels when it was cached, and is "
                    f"{found.size[1]}x{found.size[0]} now. Sources must not change while a loader lives.",
                )
            found.may_scale = known.may_scale
        item.image = found
        if found.size != known.size or (item.factor > 1 and not found.may_scale):
            self._planner.plan_again(batch, [item])


def _is_whole(item: Item) -> bool:
    return item.pixels is None or (item.pixels.height, item.pixels.width) == item.opened.size


def _packed(pixels: LocatedPixels) -> Decodable:
    """Pixels of three bytes, to be packed to four."""
    return Decodable(
        height=pixels.height,
        width=pixels.width,
        first_x=pixels.first_x,
        first_y=pixels.first_y,
        decode=lambda memory: pack_into(memory, pixels.array),
    )
