"""Blocks of numba's CUDA simulator, run in a fraction of the time."""

from threading import current_thread
from typing import Any

import numpy as np


def make_blocks_quick() -> None:
    """The simulator starts a thread for each of a block's, and asks all the time whether they live: we wait a little.

    Those of an image's kernels never wait for each other, but for those that look at a finished image, and so run one
    after another on the thread that launches them. One that did would fail there: only the simulator's threads have a
    `syncthreads`.
    """
    from numba.cuda.simulator.kernel import BlockManager, BlockThread, Dim3

    is_alive, run = BlockThread.is_alive, BlockManager.run

    def is_alive_soon(self: BlockThread) -> bool:
        if not self.syncthreads_blocked:
            self.join(0.001)
        return is_alive(self)

    def run_block(self: BlockManager, grid_point: tuple[int, ...], *arguments: object) -> None:
        module = self._f.__module__
        if not module.startswith("augpipe.gpu_ops.image.") or module.endswith(".program"):
            return run(self, grid_point, *arguments)
        thread: Any = current_thread()
        thread.blockIdx = Dim3(*grid_point)
        for block_point in np.ndindex(*self._block_dim):
            thread.threadIdx = Dim3(*block_point)
            self._f(*arguments)

    BlockThread.is_alive, BlockManager.run = is_alive_soon, run_block
