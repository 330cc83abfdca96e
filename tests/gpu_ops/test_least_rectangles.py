"""Rectangles of least area around points, compared with OpenCV's."""

import cv2
import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from augpipe.gpu_ops.image.least_rectangles import enclose

Float = npt.NDArray[np.float64]
points = st.tuples(st.integers(-200, 200), st.integers(-200, 200))
groups = st.lists(points, min_size=1, max_size=12).map(lambda some: np.array(some, np.float64) / 4.0)


def around(*of_each: Float) -> Float:
    corners = np.full((len(of_each), 4, 2), np.nan)
    enclose(np.concatenate([np.empty((0, 2)), *of_each]), np.cumsum([0, *map(len, of_each)]), corners)
    return corners


@given(first=groups, second=groups)
def test_they_hold_the_points_and_none_is_smaller(first: Float, second: Float) -> None:
    found = around(first, np.empty((0, 2)), second)
    assert not found[1].any()
    for group, corners in ((first, found[0]), (second, found[2])):
        along, down = corners[1] - corners[0], corners[3] - corners[0]
        width, height = np.linalg.norm(along), np.linalg.norm(down)
        np.testing.assert_allclose(corners[2] - corners[3], along, atol=1e-9)
        assert abs(along @ down) <= 1e-9 * max(width * height, 1.0)
        assert along[0] * down[1] - along[1] * down[0] >= 0.0  # clockwise as seen
        for side, length in ((along, width), (down, height)):
            if length > 1e-9:  # the points do not lie on a line
                shares = (group - corners[0]) @ side / length
                assert shares.min() >= -1e-9 and shares.max() <= length + 1e-9
        (_, (other_width, other_height), _) = cv2.minAreaRect(group.astype(np.float32))
        assert width * height <= other_width * other_height * (1.0 + 1e-4) + 1e-3


def test_no_number_leads_outside_memory() -> None:
    found = around(np.full((7, 2), np.nan), np.full((3, 2), 1e300), np.array([[0.0, 0.0], [np.inf, 1.0], [2.0, 3.0]]))
    assert found.shape == (3, 4, 2)
