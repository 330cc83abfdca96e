"""Parts of split parameters, without ranks: boxes of slices, and which place of a state is of which parameter."""

import math
from itertools import combinations

import pytest
import torch

from augpipe.trainer.checkpoint import Box
from augpipe.trainer.loop.split_state import box_at, box_of, boxes_in_span
from augpipe.trainer.parallel.layers import Part


@pytest.mark.parametrize("shape", [(7,), (3, 4), (1, 5), (5, 1), (3, 2, 4)])
def test_a_slice_is_a_few_boxes(shape: tuple[int, ...]) -> None:
    """Of every slice: each element in one box, at its place, in the order of memory."""
    whole = torch.arange(math.prod(shape)).view(shape)
    for start, stop in combinations(range(math.prod(shape) + 1), 2):
        boxes = list(boxes_in_span(shape, start, stop))
        values = []
        for offsets, sizes, before in boxes:
            assert before == sum(map(len, values))
            box = Box(shape=shape, offsets=offsets, sizes=sizes)
            values.append(box.within(whole, Box.all_of(shape)).reshape(-1))
        assert torch.equal(torch.cat(values), torch.arange(start, stop))
        assert len(boxes) <= 2 * len(shape) - 1


def test_boxes_have_in_common_what_both_hold() -> None:
    rows, columns = (Part(shape=(4, 6), dim=dim, cuts=cuts) for dim, cuts in ((0, (0, 1, 4)), (1, (0, 3, 6))))
    found = box_of(rows, 1).common_with(box_of(columns, 0))
    assert found == Box(shape=(4, 6), offsets=(1, 0), sizes=(3, 3))
    assert box_of(rows, 0).common_with(box_of(rows, 1)) is None
    whole = torch.arange(24).view(4, 6)
    assert found is not None
    assert torch.equal(found.within(rows.of(whole, 1), box_of(rows, 1)), whole[1:4, 0:3])


def test_a_place_tells_the_parameter() -> None:
    box = Box.all_of((2, 3))
    find = box_at({"fc.weight": box, "module.bias": box})
    for place in (
        "/model/fc.weight",
        "/model/module.bias",
        "/ema/module.fc.weight",
        "/ema/module.module.bias",
        "/optimizer/state/fc.weight/exp_avg",
        "/optimizer/state/module.bias/exp_avg",
    ):
        assert find(place) is box, place
    for place in ("/model/bias", "/ema/n_averaged", "/optimizer/groups", "/loader/fc.weight", "/.json", ""):
        assert find(place) is None, place
