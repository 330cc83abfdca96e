"""The look-up of label maps: rows and columns by themselves where the output is not slanted, and classes by pixels."""

from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, ops, plan
from augpipe.gpu_ops.image.nearest import nearest_pixels, take_classes
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.recipes.recipe import Border
from tests.parity import strategies

CHAINS: tuple[tuple[ops.Op, ...], ...] = (
    (ops.RandomResizedCrop(size=(33, 50)), ops.Flip(), ops.Flip(direction="vertical")),
    (ops.QuarterTurn(), ops.Zoom(factor=(0.3, 2.0)), ops.Translate(), ops.Resize(size=(40, 31))),
    (ops.Stretch(horizontal=(0.4, 1.5)), ops.Translate(horizontal=(-0.9, 0.9)), ops.CenterCrop(size=20)),
)


@pytest.mark.parametrize("fills", [True, False])
@pytest.mark.parametrize("border", strategies.BORDERS)
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: " ".join(op.op for op in chain))
def test_columns_and_rows_by_themselves(chain: tuple[Any, ...], border: Border, fills: bool) -> None:
    for height, width in ((60, 45), (25, 31)):
        rows = plan(Recipe(border=border, ops=chain), range(8), sizes=[(height, width)] * 8).rows
        table = kernel_rows(rows)
        slanted = table.copy()
        slanted["has_lens"] = slanted["before_xx"] = slanted["before_yy"] = slanted["before_w0"] = 1  # of no effect
        slanted["before_xy"] = slanted["before_yx"] = 0
        for item, row in enumerate(rows):
            found, expected = np.empty((2, row["out_height"], row["out_width"]), np.int32)
            nearest_pixels(table, item, fills, width, found, None, False)
            nearest_pixels(slanted, item, fills, width, expected, None, False)
            np.testing.assert_array_equal(found, expected)


def test_classes_are_those_of_the_pixels() -> None:
    labels = np.arange(12, dtype=np.uint8) * 20
    out = np.empty((2, 3), np.int64)
    take_classes(labels, np.array([[3, -1, 0], [11, 5, -1]], np.int32), 255, out)
    assert out.tolist() == [[60, 255, 0], [220, 100, 255]]
