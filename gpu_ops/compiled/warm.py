"""Compile all kernels for this machine, on all its cores."""

import time
from collections.abc import Iterator

from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.compiled.cache import find
from augpipe.gpu_ops.compiled.declared import Overload, overloads
from augpipe.gpu_ops.compiled.lock import POLL_S


def warm(num_processes: int) -> Iterator[Overload]:
    """Compile what is missing; yields each kernel once it lies where it is found, those that did already first.

    Args:
        num_processes: how many compile at the same time.

    Raises:
        Exception: numba's, of a kernel that cannot be compiled.
    """
    wanted = sorted(overloads(), key=lambda one: one.group != "decoder")  # these take longest
    missing = [one for one in wanted if find(one) is None]
    yield from (one for one in wanted if one not in missing)
    background.start([missing[nth::num_processes] for nth in range(num_processes)])
    for one in missing:
        while background.is_coming(one):
            time.sleep(POLL_S)
        if find(one) is None:
            one.compile()  # its process has ended without it: here the reason shows
        yield one
