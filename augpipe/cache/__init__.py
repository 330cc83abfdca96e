"""Decoded images kept from one epoch to the next, in host or device memory."""

from augpipe.cache.arena import Arena, Segment
from augpipe.cache.pixels import PixelCache, Reservation, Sizes
from augpipe.cache.statistics import CacheStatistics

__all__ = ["Arena", "CacheStatistics", "PixelCache", "Reservation", "Segment", "Sizes"]
