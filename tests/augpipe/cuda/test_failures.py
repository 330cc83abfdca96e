"""What is a CUDA error, and what its message says."""

import pickle

import pytest
import torch

from augpipe.cuda.failures import KernelError, first_line, is_cuda_error


class CudaAPIError(Exception):
    """As numba's, by name."""


class AcceleratorError(RuntimeError):
    """As torch's, by name."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (AcceleratorError("an illegal memory access was encountered"), True),
        (CudaAPIError("[700] Call to cuLaunchKernel results in CUDA_ERROR_ILLEGAL_ADDRESS"), True),
        (torch.OutOfMemoryError("CUDA out of memory."), False),
        (torch.OutOfMemoryError("CUDA error: out of memory"), False),
        (KernelError("CUDA error: told already", "", [1]), False),
        (RuntimeError("the linker failed"), False),
        (ValueError("CUDA error: of a user's"), False),
    ],
)
def test_what_is_a_cuda_error(error: Exception, expected: bool) -> None:
    assert is_cuda_error(error) is expected


def test_the_message_says_what_failed_where_and_what_to_do() -> None:
    error = KernelError("CUDA error: unspecified launch failure", "", range(20))
    assert str(error) == (
        "CUDA error: unspecified launch failure. CUDA reports an error late; the oldest batch that was unfinished then "
        "is of the recipe 'unnamed', sample ids 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more. This "
        "process cannot use the device any more. Run it again with CUDA_LAUNCH_BLOCKING=1 in its environment: the "
        "error then arises where it is made, which may be another library's kernel."
    )
    assert error.sample_ids == list(range(20))
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.sample_ids == error.sample_ids


def test_the_first_line_is_never_empty() -> None:
    assert first_line(RuntimeError("CUDA error: x.\nAdvice.")) == "CUDA error: x"
    assert first_line(AcceleratorError()) == "AcceleratorError"
