"""What a user is told when CUDA fails: which batch of which recipe, and what to do."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

SampleIds = Sequence[int] | npt.NDArray[np.int64]

MAX_IDS_IN_TEXT = 16


class KernelError(RuntimeError):
    """A CUDA error; `recipe` and `sample_ids` are of the oldest batch that was unfinished when it was seen."""

    def __init__(self, cause: str, recipe: str, sample_ids: SampleIds) -> None:
        ids = [int(sample_id) for sample_id in sample_ids]
        listed = ", ".join(map(str, ids[:MAX_IDS_IN_TEXT]))
        more = f" and {len(ids) - MAX_IDS_IN_TEXT} more" if len(ids) > MAX_IDS_IN_TEXT else ""
        super().__init__(
            f"{cause}. CUDA reports an error late; the oldest batch that was unfinished then is of the recipe "
            f"{recipe or 'unnamed'!r}, sample ids {listed}{more}. This process cannot use the device any more. Run it "
            "again with CUDA_LAUNCH_BLOCKING=1 in its environment: the error then arises where it is made, which may "
            "be another library's kernel."
        )
        self.cause = cause
        self.recipe = recipe
        self.sample_ids = ids

    def __reduce__(self) -> tuple[type["KernelError"], tuple[str, str, list[int]]]:
        return type(self), (self.cause, self.recipe, self.sample_ids)


def is_cuda_error(error: BaseException) -> bool:
    """Whether the CUDA driver or runtime reported `error`, through torch or numba; out of memory does not count."""
    if isinstance(error, torch.OutOfMemoryError | KernelError):
        return False
    kinds = {kind.__name__ for kind in type(error).__mro__}  # by name: torch 2.6 has no AcceleratorError
    return bool(kinds & {"AcceleratorError", "CudaAPIError", "CUDAError"}) or (
        isinstance(error, RuntimeError) and "CUDA error:" in str(error)
    )


def first_line(error: BaseException) -> str:
    """What happened, without torch's advice on environment variables and without a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip().removesuffix(".")


def allocate(shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, purpose: str) -> torch.Tensor:
    """A tensor of arbitrary content, from torch's caching allocator on the current stream.

    Raises:
        torch.OutOfMemoryError: the device is full; the message says what the memory was for.
    """
    try:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    except torch.OutOfMemoryError as error:
        size = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
        raise torch.OutOfMemoryError(
            f"out of device memory for {purpose}: {size}. Lower the batch size, or a cache's cache_bytes. "
            f"torch says: {error}"
        ) from error
