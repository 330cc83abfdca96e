"""What the last stages share: an item's pixels, from wherever they are, as RGBX in memory."""

from collections.abc import Callable
from functools import partial

from augpipe.cache import PixelCache
from augpipe.cache.row_indexes import RowIndexes
from augpipe.cpu.render import pack_into
from augpipe.errors import SampleError
from augpipe.located import LocatedPixels
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.planner import Planner
from augpipe.pipeline.samples import Samples
from augpipe.pipeline.stored_image import Decodable
from augpipe.source import Pixels


class Decoder:
    """Decodes an item at a time, into a cache on the host where that has room; safe from several threads."""

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
                raise SampleError(self._settings.source.name(image.sample_id), str(problem)) from problem
            raise
        if cache is not None and reserved is not None:
            cache.commit(reserved)
        image.content = None  # of no more use

    def _decodable(self, item: Item, *, may_crop: bool) -> Decodable:
        if item.pixels is not None:
            return _packed(item.pixels)  # as DALI gave it
        image, cache = item.opened, self._cache
        may_be_cached = cache is not None and not cache.has_no_room_for(image.sample_id, item.factor)
        if image.may_crop(item.factor) and may_crop and (cache is None or cache.is_on_host or not may_be_cached):
            assert item.region is not None
            return image.region(item.region, self._row_indexes)
        return image.whole(item.factor)

    def read(self, batch: BatchInProgress, item: Item) -> None:
        """Read an image whose size alone was known, and plan it anew where the source was wrong about it.

        Raises:
            SampleError: it cannot be read, or used.
        """
        if item.pixels is not None or item.opened.content is not None:
            return
        known, found = item.opened, self._samples.read(item.opened.sample_id)
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
        decode=partial(_pack, pixels.array),
    )


def _pack(pixels: Pixels, memory: Pixels) -> Pixels:
    return pack_into(memory, pixels)
