"""From what a DALI graph says about a batch, ids and epochs and sizes, to its plan."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import MAX_WORD, whole_numbers
from augpipe.planning.plan import Plan, refusals
from augpipe.planning.plan import plan as draw_plan
from augpipe.recipes.recipe import Recipe

Numbers = npt.NDArray[Any]


class SampleNumbers:
    """The sample ids and epochs of one batch after the other, from the graph where it gives them.

    Calls must come in the order of the batches, one at a time, as those of a DALI operator do.
    """

    def __init__(self, has_ids: bool, epoch: int | None) -> None:
        """`has_ids`: the graph gives ids, else they count on from 0; `epoch`: of all samples, None where the graph
        gives it."""
        self._has_ids = has_ids
        self._epoch = epoch
        self._num_seen = 0

    def next(self, num: int, given: Sequence[Sequence[Numbers]]) -> tuple[Numbers, Numbers]:
        """(num,) int64 sample ids and epochs of the next batch, in memory of their own.

        Args:
            num: samples in the batch.
            given: what the graph gives, one array a sample: the ids, then the epochs, or one of them, or neither.

        Raises:
            ValueError: a number is not whole, out of range, or not one a sample.
        """
        rest = list(given)
        ids = _flat("sample_ids", rest.pop(0)) if self._has_ids else np.arange(self._num_seen, self._num_seen + num)
        epochs = _flat("epoch", rest.pop(0)) if self._epoch is None else np.full(num, self._epoch)
        self._num_seen += num
        return ids % 2**32, epochs


def plan_batch(recipe: Recipe, seed: int, ids: Numbers, epochs: Numbers, sizes: Sequence[tuple[int, int]]) -> Plan:
    """The plan of a batch whose samples may be of several epochs, as they are where a reader begins its next one.

    Args:
        recipe: the recipe.
        seed: 0..2^64 - 1.
        ids: (B,) sample ids.
        epochs: (B,) the epoch of each.
        sizes: height and width of each image, in pixels.

    Raises:
        ValueError: the recipe cannot use an image; the message names its sample id.
    """
    for sample_id, reason in zip(ids, refusals(recipe, sizes), strict=True):
        if reason:
            raise ValueError(f"sample {sample_id}: {reason}")
    shape = np.array(sizes, np.int64).reshape(-1, 2)
    views = tuple(np.zeros(len(ids), rows.dtype) for rows in draw_plan(recipe, [], sizes=[]).views)
    for epoch in np.unique(epochs):
        which = epochs == epoch
        drawn = draw_plan(recipe, ids[which], sizes=shape[which], epoch=int(epoch), seed=seed)
        for rows, some in zip(views, drawn.views, strict=True):
            rows[which] = some
    return Plan(recipe=recipe, seed=seed, views=views)


def _flat(name: str, arrays: Sequence[Numbers]) -> Numbers:
    for array in arrays:
        if array.size != 1:
            raise ValueError(f"{name} holds an array of shape {array.shape} for a sample. Give one whole number each.")
    joined = np.array([array.reshape(()) for array in arrays])
    return whole_numbers(name, joined, 0, MAX_WORD).astype(np.int64)
