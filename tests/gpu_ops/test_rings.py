"""Outlines filled pixel by pixel, as points in polygons are told one by one; no coordinate leads outside memory."""

import cv2
import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from augpipe.planning.targets.masks import filled_rings

HEIGHT, WIDTH = 12, 17
coordinates = st.one_of(
    st.floats(-40.0, 60.0), st.integers(-2, 20).map(float), st.sampled_from([np.nan, np.inf, -np.inf, 1e300, -1e300])
)
rings = st.lists(st.tuples(coordinates, coordinates), min_size=3, max_size=9).map(np.array)


def filled(*of_objects: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.uint8]:
    """With pixels around the masks, which stay as they are."""
    return filled_rings(list(of_objects), (HEIGHT, WIDTH))


@given(corners=st.lists(st.tuples(st.floats(-20, 40), st.floats(-20, 40)), min_size=3, max_size=3).map(np.array))
def test_a_triangle_holds_the_pixels_whose_centres_lie_in_it(corners: npt.NDArray[np.float64]) -> None:
    (mask,) = filled([corners])
    assert set(np.unique(mask)) <= {0, 1}
    for y, x in np.ndindex(mask.shape):
        inside = cv2.pointPolygonTest(corners.astype(np.float32), (x + 0.5, y + 0.5), True)
        if abs(inside) > 1e-3:
            assert mask[y, x] == (inside > 0)


@given(first=rings, second=rings)
def test_each_object_has_its_own_mask_and_no_coordinate_leads_outside(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
) -> None:
    both, alone, other = filled([first], [], [second]), filled([first]), filled([second])
    assert (both[0] == alone[0]).all() and not both[1].any() and (both[2] == other[0]).all()
    assert (filled([first, second])[0] == (alone[0] | other[0])).all()


def test_pixels_are_counted_by_their_centres() -> None:
    square = np.array([[2.0, 3.0], [5.0, 3.0], [5.0, 7.0], [2.0, 7.0]])
    (mask,) = filled([square])
    assert mask[3:7, 2:5].all() and mask.sum() == 12
    (mask,) = filled([square + 0.49])
    assert mask[3:7, 2:5].all() and mask.sum() == 12
    (mask,) = filled([square + 0.51])
    assert mask[4:8, 3:6].all() and mask.sum() == 12
    bow = np.array([[0.0, 0.0], [10.0, 10.0], [10.0, 0.0], [0.0, 10.0]])  # crosses itself: two triangles
    (mask,) = filled([bow])
    assert mask[5, 1] and mask[5, 8] and not mask[1, 5] and not mask[8, 5]
    assert filled().shape == (0, HEIGHT, WIDTH) and not filled([]).any()
