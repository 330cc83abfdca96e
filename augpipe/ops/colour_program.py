"""The colour steps of a view, from what ops asked for to the short program of each row."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.program_rows import COLOUR_STEP, MATRIX, NONE, STEP_BYTES, TABLE, TABLE_BYTES

Float = npt.NDArray[np.float64]

ROUNDING = 1e-3
"""Levels by which a matrix may leave 0..255 and still count as one that saturates nothing."""


@dataclass(kw_only=True)
class ColourStep:
    """What one step of the program does to each of n images."""

    kinds: npt.NDArray[np.int32]
    """(n,) of `finish_rows`' kinds; NONE where it does nothing."""
    numbers: Float
    """(n, 12)."""
    tables: npt.NDArray[np.uint8] | None = field(default=None)
    """(n, 256), where any image may take a table."""
    keys: npt.NDArray[np.uint32] | None = None
    """(n, 2) the seeds of the pixels' noise, where any image may have some."""

    @classmethod
    def of(
        cls,
        kind: int,
        numbers: Float,
        applied: npt.NDArray[np.bool_],
        keys: npt.NDArray[np.uint32] | None = None,
    ) -> "ColourStep":
        """A step of one kind where it is `applied`, with (n, k) numbers."""
        padded = np.zeros((len(numbers), 12))
        padded[:, : numbers.shape[1]] = numbers
        return cls(kinds=np.where(applied, kind, NONE).astype(np.int32), numbers=padded, keys=keys)

    @classmethod
    def none(cls, num: int) -> "ColourStep":
        """A step that does nothing to any of `num` images."""
        return cls(kinds=np.full(num, NONE, np.int32), numbers=np.zeros((num, 12)))

    def of_rows(self, rows: npt.NDArray[np.int64]) -> "ColourStep":
        """Its effect on some of its images."""
        kept: dict[str, Any] = {name: None if one is None else one[rows] for name, one in vars(self).items()}
        return ColourStep(**kept)

    def put(self, rows: npt.NDArray[np.int64], step: "ColourStep") -> None:
        """Make this step another one's for some of its images, `rows`, which are all of the other one's."""
        for name, theirs in vars(step).items():
            if theirs is not None:
                ours = getattr(self, name)
                if ours is None:
                    ours = np.zeros((len(self.kinds), *theirs.shape[1:]), theirs.dtype)
                    setattr(self, name, ours)
                ours[rows] = theirs


def num_tables(steps: list[ColourStep]) -> int:
    """How many tables a row needs room for."""
    return sum(step.tables is not None for step in steps)


def in_fewer_places(steps: list[ColourStep], most: int) -> list[ColourStep]:
    """The steps in as many places as any image takes, `most`; as they are where that needs no less room."""
    tables = num_tables(steps)
    room = most * (STEP_BYTES + (TABLE_BYTES if tables else 0))
    if room >= len(steps) * STEP_BYTES + tables * TABLE_BYTES:
        return steps
    kinds = np.stack([step.kinds for step in steps], axis=1)
    taken = np.argsort(kinds == NONE, axis=1, kind="stable")[:, :most]
    rows = np.arange(len(kinds))[:, None]

    def moved(name: str) -> list[Any]:
        of_steps = [getattr(step, name) for step in steps]
        some = next((values for values in of_steps if values is not None), None)
        if some is None:
            return [None] * most
        all_of_them = np.stack([np.zeros_like(some) if values is None else values for values in of_steps], axis=1)
        return list(np.moveaxis(all_of_them[rows, taken], 1, 0))

    names = ("kinds", "numbers", "tables", "keys")
    return [ColourStep(**dict(zip(names, values, strict=True))) for values in zip(*map(moved, names), strict=True)]


def write_program(
    steps: list[ColourStep], rows: npt.NDArray[np.void], tables: npt.NDArray[np.uint8] | None
) -> npt.NDArray[np.int32]:
    """Fill (n, S) `COLOUR_STEP` and (n, T, 256) with the steps in order; returns how many each image has.

    Steps that do nothing are left out, and neighbours become one where that is the same: two tables, and two matrices
    of which the first cannot leave 0..255.
    """
    kinds = np.stack([step.kinds for step in steps], axis=1)
    numbers = np.stack([step.numbers for step in steps], axis=1)
    which = np.zeros(kinds.shape, np.int32)
    keys = np.zeros((*kinds.shape, 2), np.uint32)
    nth = 0
    for place, step in enumerate(steps):
        if step.tables is not None:
            assert tables is not None
            tables[:, nth], which[:, place] = step.tables, nth
            nth += 1
        if step.keys is not None:
            keys[:, place] = step.keys
    _close_up(kinds, numbers, which, keys)
    for place in range(len(steps) - 1):
        _unite(place, kinds, numbers, which, tables)
    _close_up(kinds, numbers, which, keys)
    rows["kind"], rows["table"], rows["numbers"], rows["key"] = kinds, which, numbers, keys
    num_steps: npt.NDArray[np.int32] = (kinds != NONE).sum(axis=1).astype(np.int32)
    return num_steps


def _close_up(kinds: npt.NDArray[np.int32], *others: npt.NDArray[Any]) -> None:
    """Move the steps that do nothing behind the others."""
    if kinds.shape[1] < 2 or (kinds != NONE).all():
        return
    order = np.argsort(kinds == NONE, axis=1, kind="stable")
    for array in (kinds, *others):
        array[:] = np.take_along_axis(array, order.reshape(order.shape + (1,) * (array.ndim - 2)), axis=1)


def _unite(
    place: int,
    kinds: npt.NDArray[np.int32],
    numbers: Float,
    which: npt.NDArray[np.int32],
    tables: npt.NDArray[np.uint8] | None,
) -> None:
    """Make one step of a step and the next, where that is the same."""
    alike = kinds[:, place] == kinds[:, place + 1]
    first = numbers[:, place].reshape(-1, 3, 4)
    united = np.flatnonzero(alike & (kinds[:, place] == MATRIX) & _saturates_nothing(first))
    if len(united):
        matrix, shift = first[united, :, :3], first[united, :, 3:]
        second = numbers[united, place + 1].reshape(-1, 3, 4)
        product = np.concatenate([second[:, :, :3] @ matrix, second[:, :, :3] @ shift + second[:, :, 3:]], axis=2)
        numbers[united, place + 1] = product.reshape(-1, 12)
        kinds[united, place] = NONE
    looked_up = np.flatnonzero(alike & (kinds[:, place] == TABLE))
    if len(looked_up):
        assert tables is not None
        one, other = which[looked_up, place], which[looked_up, place + 1]
        tables[looked_up, other] = tables[looked_up[:, None], other[:, None], tables[looked_up, one]]
        kinds[looked_up, place] = NONE


def _saturates_nothing(matrices: Float) -> npt.NDArray[np.bool_]:
    """(n,): whether levels in 0..255 stay within."""
    reach = 255.0 * matrices[:, :, :3]
    least = np.minimum(reach, 0.0).sum(axis=2) + matrices[:, :, 3]
    most = np.maximum(reach, 0.0).sum(axis=2) + matrices[:, :, 3]
    inside: npt.NDArray[np.bool_] = ((least >= -ROUNDING) & (most <= 255.0 + ROUNDING)).all(axis=1)
    return inside


def program_fields(steps: list[ColourStep]) -> list[tuple[str, object, tuple[int, ...]]]:
    """The fields that a plan's record has for the program, none without steps."""
    if not steps:
        return []
    fields: list[tuple[str, object, tuple[int, ...]]] = [
        ("num_steps", np.int32, ()),
        ("steps", COLOUR_STEP, (len(steps),)),
    ]
    if num := num_tables(steps):
        fields.append(("tables", np.uint8, (num, TABLE_BYTES)))
    return fields
