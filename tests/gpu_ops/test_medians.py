"""The network that finds medians."""

import numpy as np
import pytest

from augpipe.gpu_ops.image.medians import exchanges


@pytest.mark.parametrize("num", [9, 25, 49])
@pytest.mark.parametrize("num_levels", [2, 256])
def test_exchanges_sort(num: int, num_levels: int) -> None:
    rows = np.random.default_rng(num).integers(0, num_levels, (num, 5000))
    found = rows.copy()
    for low, high in exchanges(num):
        assert low < high
        found[low], found[high] = np.minimum(found[low], found[high]), np.maximum(found[low], found[high])
    np.testing.assert_array_equal(found, np.sort(rows, axis=0))
