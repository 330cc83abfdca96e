"""Decoded photographs kept from one epoch to the next, in host or device memory."""

from augpipe.cache.arena import Arena, Segment
from augpipe.cache.pixels import Held, PixelCache, Sizes, Slot
from augpipe.cache.statistics import CacheStatistics

__all__ = ["Arena", "CacheStatistics", "Held", "PixelCache", "Segment", "Sizes", "Slot"]
