"""A cache in host memory."""

import logging

import numpy as np

from augpipe.cache.arena import Arena, Segment
from augpipe.cache.budget import available_host_bytes, default_budget, host_limit, host_reserve
from augpipe.cache.pixels import PixelCache
from augpipe.cache.statistics import shown_bytes

logger = logging.getLogger("augpipe")


def host_cache(num_samples: int, cache_bytes: int | None, num_sharing: int = 1) -> PixelCache:
    """An empty cache in this process's memory, which the system gives to it page by page as it fills.

    Args:
        num_samples: of the source.
        cache_bytes: its budget; None for half of what is available now. More than there is becomes what there is, with
            a warning in the log.
        num_sharing: processes that each hold such a cache on this machine, and share that half.

    Raises:
        ValueError: `cache_bytes` is None and the system does not say what is available.
    """
    if cache_bytes is None:
        available = available_host_bytes()
        cache_bytes = default_budget(available, host_reserve(available, num_sharing))
    else:
        cache_bytes = _what_there_is(cache_bytes, num_sharing)
    # one segment: pages that nobody wrote to take no memory, and no room is lost at the ends of several
    return PixelCache(num_samples, Arena(cache_bytes, max(cache_bytes, 1), host_segment), is_on_host=True)


def _what_there_is(cache_bytes: int, num_sharing: int) -> int:
    try:
        available = available_host_bytes()
    except ValueError:  # the system does not say: a user who gave a number is believed
        return cache_bytes
    limit = host_limit(available, num_sharing)
    if cache_bytes <= limit:
        return cache_bytes
    sharing = f", which {num_sharing} ranks share" if num_sharing > 1 else ""
    logger.warning(
        "cache_bytes=%d is more than this machine has: %s of memory are available%s. The cache takes %s. Lower "
        "cache_bytes, or leave it out for half of what is available.",
        cache_bytes,
        shown_bytes(available),
        sharing,
        shown_bytes(limit),
    )
    return limit


def host_segment(num_bytes: int) -> Segment:
    """A segment whose memory is an (num_bytes,) uint8 array.

    Raises:
        MemoryError: the system refuses it.
    """
    memory = np.empty(num_bytes, np.uint8)
    return Segment(memory=memory, address=memory.ctypes.data, num_bytes=num_bytes)
