"""What is said where an epoch's images come again with the same draws, as without `set_epoch`."""

import logging
from ctypes import c_uint64
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.recipes.recipe import Recipe

logger = logging.getLogger("augpipe")

_LEAST = 8
"""So many images lie between the two: who draws one image twice to compare does not hear of it."""
_TOLD, _EPOCH, _FIRST, _NUM = range(4)


class Repeats:
    """The first id of an epoch, in memory that worker processes share; they may all write, and one of them counts."""

    def __init__(self, shared: Any = None) -> None:
        self._shared = RawArray(c_uint64, 4) if shared is None else shared

    @property
    def are_told(self) -> bool:
        """Whether it was said, which is done once, or need not be."""
        return bool(self._shared[_TOLD])

    def begin(self) -> None:
        """Epochs are set: nothing has to be said."""
        self._shared[_TOLD] = 1

    def look(self, ids: npt.NDArray[np.int64], epoch: int, recipe: Recipe) -> None:
        """Warn if the first image of this epoch is among these, and many were since, and the recipe draws anything."""
        shared = self._shared
        if shared[_TOLD] or not len(ids):
            return
        if shared[_NUM] == 0 or shared[_EPOCH] != epoch:
            shared[_EPOCH], shared[_FIRST], shared[_NUM] = epoch, int(ids[0]), 0
        elif shared[_NUM] >= _LEAST and (ids == shared[_FIRST]).any() and recipe.num_variants != 1:
            shared[_TOLD] = 1
            logger.warning(
                "sample %d comes again in epoch %d, with the same draws as before. Unless that is meant, call "
                "augment.set_epoch(epoch) before each epoch; if a sampler repeats samples, give ids that differ.",
                shared[_FIRST],
                epoch,
            )
        shared[_NUM] += len(ids)

    def __reduce__(self) -> Any:
        """A copy sees images of its own; a process that is started shares this one's memory."""
        is_copy = get_spawning_popen() is None
        return Repeats, () if is_copy else (self._shared,)
