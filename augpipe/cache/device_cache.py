"""A cache in a CUDA device's memory; torch is loaded when one is made, and not before."""

from typing import TYPE_CHECKING

from augpipe.cache.arena import Arena, Segment
from augpipe.cache.budget import available_host_bytes, default_budget, device_reserve
from augpipe.cache.pixels import PixelCache

if TYPE_CHECKING:
    import torch

SEGMENT_BYTES = 2**28
"""So that little is asked for at once, while the first epoch runs and the model takes memory too."""

LEAST_FREE_BYTES = 2**28
"""Left to batches on their way and to the model, however much the cache was promised."""


def device_cache(num_samples: int, cache_bytes: int | None, device: "torch.device") -> PixelCache:
    """An empty cache in `device`'s memory, of torch's allocator; it grows while it fills.

    Without `cache_bytes` the budget is what is free now less a reserve, and the cache stops growing, without a warning,
    where another segment would leave less than the reserve: a loader makes its first batches before the model's first
    step, and what activations, gradients and the optimizer take is known only after it. With `cache_bytes` it goes on
    until next to nothing is free, and stops with a warning.

    Args:
        num_samples: of the source.
        cache_bytes: its budget; None for what is free.
        device: with its index; "cpu" under numba's CUDA simulator, where addresses are the host's.

    Raises:
        ValueError: `cache_bytes` is None under the simulator, and the system does not say what is available.
    """
    import torch

    is_promised, reserve_bytes = cache_bytes is not None, LEAST_FREE_BYTES
    if cache_bytes is None:
        free_bytes = _free_bytes(device)
        reserve_bytes = device_reserve(free_bytes)
        cache_bytes = default_budget(free_bytes, reserve_bytes)

    def allocate(num_bytes: int) -> Segment | None:
        free_bytes = _free_bytes(device)
        if free_bytes - num_bytes < reserve_bytes:
            if is_promised:
                raise torch.cuda.OutOfMemoryError(f"{free_bytes} bytes of {device} are free, and others need some")
            return None
        memory = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        return Segment(memory=memory, address=memory.data_ptr(), num_bytes=num_bytes)

    arena = Arena(cache_bytes, SEGMENT_BYTES, allocate, (torch.cuda.OutOfMemoryError,))
    return PixelCache(num_samples, arena, is_on_host=False)


def _free_bytes(device: "torch.device") -> int:
    import torch

    if device.type == "cpu":
        return available_host_bytes()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return free_bytes
