"""The scalar leaves: compiled and in plain Python alike, and what each of them computes."""

import inspect
import math
from typing import Any

import numpy as np
import pytest

from augpipe.gpu_ops.image import (
    affine,
    cells,
    clahe,
    compression,
    dct,
    dropouts,
    field,
    lab,
    lens,
    neighbours,
    sampling,
    scratch_rows,
    shadows,
    tone,
    weather,
)
from augpipe.gpu_ops.image.rows import REFLECT, REFLECT_101, WRAP
from augpipe.gpu_ops.image.sampling import (
    border_period,
    border_turn,
    clamp,
    continued,
    first_tap,
    is_inside,
    linear,
    sharp_gain,
    sharp_weight,
    tap_weight,
    where_it_meets,
)
from augpipe.gpu_ops.image.tone import cast, channel, normalise, to_uint8, vignette_gain
from augpipe.gpu_ops.random import philox

F = np.float32
LEAVES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": leaf
    for module in (
        cells,
        clahe,
        compression,
        dct,
        dropouts,
        field,
        lab,
        lens,
        neighbours,
        philox,
        sampling,
        scratch_rows,
        shadows,
        tone,
        weather,
    )
    for name, leaf in vars(module).items()
    if hasattr(leaf, "py_func") and leaf.py_func.__module__ == module.__name__ and not leaf.targetoptions.get("nogil")
    if not name.startswith("_")
}
RNG = np.random.default_rng(0)


def numbers(*ranges: tuple[float, float], count: int = 200) -> list[tuple[np.float32, ...]]:
    return [tuple(F(RNG.uniform(low, high)) for low, high in ranges) for _ in range(count)]


def whole_numbers(*ranges: tuple[int, int], count: int = 200) -> list[tuple[np.int32, ...]]:
    return [tuple(np.int32(RNG.integers(low, high, endpoint=True)) for low, high in ranges) for _ in range(count)]


ROOTS = [(0.2, 1.1)] * 3
ARGUMENTS = {
    "field.between": numbers((-9, 9), (-9, 9), (0, 1)),
    **{
        f"field.cell_{name}": [(np.int32(px),) for px in (0, 1, 2, 3, 51, 65_535)]
        for name in ("slope", "start", "jump")
    },
    "field.spline": numbers((-3, 3)),
    "field.triangular": [(word,) for word in (*RNG.integers(0, 2**32, 99, np.uint64), np.uint64(2**32 - 1))],
    "field.two_nodes": [(np.int64(i), np.int64(i * i), *RNG.integers(0, 2**32, 2, np.uint64)) for i in range(20)],
    "cells.edge": [(nth, num, length) for num in (1, 3, 16) for nth in range(num + 1) for length in (1, 7, 224)],
    "cells.cell_of": [(at, num, length) for num in (1, 3, 16) for length in (1, 7, 224) for at in range(length)],
    "cells.coarse": [(at, num, 40, F(40 / num)) for num in (1, 7, 13, 40) for at in range(40)],
    "dropouts.hole_cell": [(at, num, length) for num in (1, 3, 16) for length in (16, 224) for at in range(length)],
    "dropouts.cell_start": [
        (nth, num, length) for num in (1, 3, 32_768) for nth in (0, 1, num) for length in (7, 65_536)
    ],
    "dropouts.hole_side": [(both, cell, 9) for both in range(17) for cell in (9, 10)],
    "dropouts.hole_start": [(room, shift, np.uint64(2**31)) for room in (0, 1, 7) for shift in (-1, 0, 3, 9)],
    "dropouts.is_dropped": [(np.uint32(word), F(limit)) for word in (0, 2**31, 2**32 - 1) for limit in (0, 0.5, 2**24)],
    "shadows.end_x": [(np.uint32(word),) for word in (0, 7, 65_535, 65_536, 2**32 - 1)],
    "shadows.end_y": [(np.uint32(word),) for word in (0, 7, 65_535, 65_536, 2**32 - 1)],
    "shadows.edge_least": whole_numbers((-9, 9), (0, 9)),
    "shadows.edge_most": whole_numbers((-9, 9), (0, 9)),
    "shadows.edge_mark": [
        (np.int32(x), np.int64(along), np.int32(3), np.int32(-2), np.int32(3), np.int32(1), np.int32(5), crosses)
        for x in range(7)
        for along in range(-3, 20)
        for crosses in (0, 1)
    ],
    "shadows.joined": [(np.int32(marks), np.int32(mark)) for marks in range(4) for mark in range(4)],
    "shadows.chroma_gain": [*numbers((0, 510), (0, 1)), (F(0), F(0.5)), (F(510), F(0.5))],
    "shadows.shaded": numbers((0, 255), (0, 510), (0, 1), (0, 2)),
    "weather.chroma_in_hls": numbers((0, 510), (0, 1)),
    "weather.disc_place": [
        (np.uint64(word), F(first), room)
        for word in (0, 1, 2**31, 2**32 - 1)
        for first in (-99, 0, 40)
        for room in (1, 7, 500)
    ],
    "weather.half_chord": whole_numbers((-99, 99), (0, 99)),
    "weather.hazy": numbers((0, 255), (0, 1)),
    "weather.lighter": numbers((0, 510), (-4, 4), (0, 60), (0, 9)),
    "weather.ring_room": [(length, np.int32(start), F(9)) for length in (5, 80, 224) for start in (-50, 0, 39, 99)],
    "weather.ring_start": [(F(first), F(7), np.int32(ring)) for first in (-9, 60) for ring in range(4)],
    "weather.saturation_in_hls": [*numbers((0, 510), (0, 255)), (F(510), F(0)), (F(0), F(0))],
    "weather.turned_hue": numbers((-1, 5), (-4, 4), (0, 9)),
    "clahe.tile_side": [(length, num, other, 8) for length in (1, 7, 64, 65) for num in (1, 8) for other in (64, 65)],
    "clahe.most_counted": [(F(limit), area) for limit in (1, 2.5, 40) for area in (1, 100, 784)],
    "clahe.rounded": [(F(i) / 4,) for i in range(40)],
    "clahe.table_entry": [(num_seen, area) for area in (1, 100, 784) for num_seen in range(0, area + 1, 9)],
    "clahe.place_among": [(position, side) for position in range(9) for side in (1, 3, 28)],
    "clahe.between": numbers((0, 255), (0, 255), (0, 1)),
    "compression.step_at": [(place, quality) for place in (0, 9, 63, 64, 127) for quality in (1, 49, 50, 75, 99, 100)],
    "compression.rounded_to": [
        (np.int32(value), np.int32(step), F(1) / F(8 * step))
        for step in (1, 2, 17, 255)
        for value in range(-9000, 9000, 37)
    ],
    **{f"compression.{name}": whole_numbers((0, 255), (0, 255), (0, 255)) for name in ("luma", "blueness", "redness")},
    "compression.red_of": whole_numbers((0, 255), (-128, 127)),
    "compression.green_of": whole_numbers((0, 255), (-128, 127), (-128, 127)),
    "compression.blue_of": whole_numbers((0, 255), (-128, 127)),
    "compression.far_row": [(y, num) for num in (1, 2, 5) for y in range(2 * num)],
    **{f"dct.{name}": whole_numbers((-9999, 9999), (-9999, 9999)) for name in ("times", "plus", "minus")},
    "dct.forward_pass": whole_numbers((0, 2**14), *[(-4096, 4096)] * 8),
    "dct.inverse_pass": whole_numbers((0, 2**14), *[(-2048, 2048)] * 8),
    "dct.four_levels": whole_numbers(*[(-(2**28), 2**28)] * 4),
    "lab.linear_light": [*numbers((-10, 300)), *((F(level),) for level in range(256))],
    "lab.cube_root": numbers((0.003, 1.1)),
    "lab.root_of": numbers((0, 1.1)),
    "lab.light_of": numbers((0, 1.1)),
    "lab.roots": numbers(*[(0, 255)] * 3),
    "lab.brightness": [tuple(np.int32(light) for light in RNG.integers(0, lab.MOST_LIGHT + 1, 3)) for _ in range(100)],
    "lab.srgb": numbers((-0.1, 1.1)),
    "lab.relit": numbers(*ROOTS, (0, 255)),
    "neighbours.mirrored": [(index, length) for index in range(-9, 20) for length in (1, 2, 3, 9)],
    "neighbours.repeated": [(index, length) for index in range(-9, 20) for length in (1, 2, 3, 9)],
    "scratch_rows.centred": [(np.int32(i), np.int64(n)) for n in (1, 2, 223, 224) for i in (0, 1, n - 1)],
    "lens.radial_gain": numbers((0, 1), (-0.3, 0.3), (-0.1, 0.1), (-0.1, 0.1)),
    "lens.distort": numbers((-1, 1), (-1, 1), (0, 1), (0.7, 1.3), (-0.1, 0.1), (-0.1, 0.1)),
    "philox.philox_round": [tuple(RNG.integers(0, 2**32, 6, np.uint64)) for _ in range(100)],
    "philox.philox_block": [tuple(RNG.integers(0, 2**32, 6, np.uint64)) for _ in range(100)],
    "sampling.floor": [
        *numbers((-99, 99)),
        *((F(i) / 2,) for i in range(-9, 9)),
        (F(-1e-20),),
        (F(2**30),),
        (F(-0.0),),
    ],
    "sampling.linear": numbers((-200, 200), (-200, 200), (-3, 3), (-3, 3), (-9, 9)),
    "sampling.divisor": numbers((-200, 200), (-200, 200), (-0.01, 0.01), (-0.01, 0.01), (-1, 2)),
    "sampling.first_tap": [*numbers((-50, 50), (1, 8)), (F(3), F(1)), (F(-3), F(1)), (F(2.5), F(1)), (F(2.5), F(2.5))],
    "sampling.num_taps": numbers((0.1, 9)),
    "sampling.tap_weight": numbers((-9, 9), (-9, 9), (0.1, 1)),
    "sampling.filter_weight": [
        (np.int32(n), *x) for n, x in zip([1, 2, 3] * 99, numbers((-9, 9), (-9, 9), (0.1, 1)), strict=False)
    ],
    "sampling.border_period": [(np.int32(kind), F(n)) for kind in (1, 2, 3) for n in (1, 2, 7)],
    "sampling.border_turn": [(np.int32(kind), F(n)) for kind in (1, 2, 3) for n in (1, 2, 7)],
    "sampling.continued": [
        (F(RNG.integers(-99, 99)), F(low), F(2 * n), F(1) / F(2 * n), F(2 * n - 1)) for low in (-5, 3) for n in (1, 7)
    ],
    "sampling.sharp_weight": [
        (F(weight), F(at), F(-2), F(3)) for at in (-9, -2.5, -2.4, 3.4, 3.5, 9, math.nan) for weight in (0, 0.25, 1)
    ],
    "sampling.sharp_gain": [*numbers((0.1, 2), (0, 2)), (F(1), F(0.5)), (F(1), F(0))],
    "sampling.clamp": [*numbers((-9, 9), (-5, 0), (0, 5)), (F(math.nan), F(-2), F(3)), (F(math.inf), F(-2), F(3))],
    "sampling.where_it_meets": [
        *numbers((-9, 9), (-5, 0), (0, 5)),
        *((F(edge + moved), F(-2), F(3)) for edge in (-2.5, 3.5) for moved in (-0.01, -0.005, 0, 0.005, 0.01)),
    ],
    "sampling.is_inside": [(F(t), F(-2), F(3)) for t in range(-5, 7)],
    "tone.channel": [(np.uint32(RNG.integers(0, 2**32)), shift) for shift in (0, 8, 16) for _ in range(30)],
    "tone.vignette_gain": numbers((0, 1), (0, 0.9), (1, 9), (0, 1)),
    "tone.cast": numbers((0, 255), (0, 1), (-200, 200), (0, 1)),
    "tone.normalise": numbers((0, 255), (0.01, 0.02), (-3, 0)),
    "tone.kept_within": numbers((-300, 600)),
    "tone.combined": numbers(*[(0, 255)] * 3, *[(-1, 2)] * 3, (-200, 200)),
    "tone.gray": numbers(*[(0, 255)] * 3),
    "tone.hue_of": [(*p, max(p), max(p) - min(p)) for p in (*numbers(*[(0, 255)] * 3), (F(9), F(9), F(9)))],
    "tone.saturation_of": [*numbers((1, 255), (0, 255), (-1, 1), (0, 9)), (F(0), F(0), F(0.5), F(0))],
    "tone.of_hue": [(F(place), *rest) for place in (1, 3, 5) for rest in numbers((-4, 8), (0, 255), (0, 255))],
    "tone.nearest_level": [*numbers((-300, 600)), *((F(i) / 2,) for i in range(-3, 515))],
    "tone.away_from": numbers((0, 255), (0, 255), (0, 3)),
    "tone.noisy": numbers((0, 255), (-5, 5), (0, 50), (0, 1)),
    "tone.to_uint8": [*numbers((-300, 600)), *((F(i) / 2,) for i in range(-3, 515)), (F(1e30),), (F(-1e30),)],
}
CALLS_A_LEAF = {
    "sampling.where_it_meets",
    "tone.combined",
    "tone.away_from",
    "tone.noisy",
    "shadows.shaded",
    "lab.root_of",
    "lab.srgb",
    "clahe.table_entry",
}
"""Leaves whose plain function ends with a compiled one, which hands a Python float to it."""


OF_OTHER_TYPES: dict[str, type[np.generic]] = {
    "tone.to_uint8": np.uint8,
    "tone.nearest_level": np.int32,
    "sampling.num_taps": np.int64,
}
NOT_OF_ONE_FLOAT = {
    *(
        name
        for name in ARGUMENTS
        if name.startswith(("philox", "cells", "compression", "dct", "neighbours", "field.two"))
    ),
    *("clahe.tile_side", "clahe.most_counted", "clahe.rounded", "clahe.table_entry", "lab.brightness"),
    *("lab.roots", "lab.relit"),
    *("dropouts.hole_cell", "dropouts.cell_start", "dropouts.hole_side", "dropouts.hole_start", "dropouts.is_dropped"),
    *(
        "shadows.end_x",
        "shadows.end_y",
        "shadows.edge_least",
        "shadows.edge_most",
        "shadows.edge_mark",
        "shadows.joined",
    ),
    *("weather.disc_place", "weather.half_chord", "weather.ring_room", "weather.ring_start"),
}
"""Leaves that give a whole number, or several numbers."""


@pytest.mark.slow
def test_several_numbers_are_in_single_precision() -> None:
    for leaf in (lab.roots, lab.relit):
        leaf(*[F(0.5)] * len(inspect.signature(leaf.py_func).parameters))
        assert {str(one.signature.return_type) for one in leaf.overloads.values()} == {"UniTuple(float32 x 3)"}


def test_every_leaf_is_tried() -> None:
    assert set(ARGUMENTS) == set(LEAVES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARGUMENTS)
def test_compiled_and_plain_leaves_agree(name: str) -> None:
    """The plain function is the oracle of the device code, so both must give the same bits."""
    leaf = LEAVES[name]
    assert len(inspect.signature(leaf.py_func).parameters) == len(ARGUMENTS[name][0])
    with np.errstate(over="ignore"):
        for arguments in ARGUMENTS[name]:
            compiled, plain = leaf(*arguments), leaf.py_func(*arguments)
            assert np.array_equal(np.asarray(compiled), np.asarray(plain)), arguments


@pytest.mark.slow  # each is compiled, for its types
@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name not in NOT_OF_ONE_FLOAT])
def test_leaves_stay_in_single_precision(name: str) -> None:
    """A float64 within a leaf would halve the width of the CPU's vectors, and crawl on a GPU."""
    expected = OF_OTHER_TYPES.get(name, np.float32)
    leaf = LEAVES[name]
    leaf(*ARGUMENTS[name][0])
    results = {str(overload.signature.return_type) for overload in leaf.overloads.values()}
    assert results <= {np.dtype(expected).name}
    if name not in CALLS_A_LEAF:
        assert type(leaf.py_func(*ARGUMENTS[name][0])) is expected


def test_a_pixel_s_centre_counts_from_the_middle() -> None:
    assert [scratch_rows.centred(np.int32(i), 4) for i in range(4)] == [-1.5, -0.5, 0.5, 1.5]
    assert [scratch_rows.centred(np.int32(i), 3) for i in range(3)] == [-1.0, 0.0, 1.0]


def test_floor() -> None:
    for value in (*RNG.uniform(-1e6, 1e6, 500), *range(-5, 6), 0.99999994, -0.99999994, -1e-30, 2.0**30, -(2.0**30)):
        assert sampling.floor(F(value)) == math.floor(F(value))


def test_linear() -> None:
    assert linear(F(2), F(3), F(10), F(100), F(7)) == 327


def test_a_divisor_stays_above_its_least() -> None:
    assert sampling.divisor(F(2), F(3), F(10), F(100), F(7)) == 327
    for at_centre in (-1e30, -1.0, 0.0, 0.12, 0.125):
        assert sampling.divisor(F(2), F(3), F(0), F(0), F(at_centre)) == sampling.LEAST_DIVISOR == 0.125


@pytest.mark.parametrize(
    ("coordinate", "support", "taps"),
    [
        (5.0, 1.0, [5]),
        (5.25, 1.0, [5, 6]),
        (-0.5, 1.0, [-1, 0]),
        (5.0, 2.0, [4, 5, 6]),
        (5.0, 2.5, [3, 4, 5, 6, 7]),
        (4.5, 2.5, [3, 4, 5, 6]),
        (0.1, 1.7, [-1, 0, 1]),
    ],
)
def test_taps(coordinate: float, support: float, taps: list[int]) -> None:
    """They are the pixels nearer than the support, and ceil(2 * support) of them are enough."""
    first = first_tap(F(coordinate), F(support))
    weights = {
        int(first) + i: tap_weight(first + F(i), F(coordinate), F(1) / F(support))
        for i in range(math.ceil(2 * support))
    }
    assert [tap for tap, weight in weights.items() if weight > 1e-6] == taps
    for tap, weight in weights.items():
        assert weight == pytest.approx(max(0.0, 1 - abs(tap - coordinate) / support), abs=1e-6)
    # none is left out on either side
    assert tap_weight(first - F(1), F(coordinate), F(1) / F(support)) == 0
    assert tap_weight(first + F(len(weights)), F(coordinate), F(1) / F(support)) == 0


@pytest.mark.parametrize("low", [-300, -4, 0, 17])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 49, 333])
@pytest.mark.parametrize(("kind", "mode"), [(REFLECT, "symmetric"), (REFLECT_101, "reflect"), (WRAP, "wrap")])
def test_what_stands_beyond_a_border_is_numpy_s_padding(kind: int, mode: Any, low: int, length: int) -> None:
    reach = 1000
    expected = np.pad(np.arange(low, low + length), reach, mode=mode)
    period, turn = border_period.py_func(kind, F(length)), border_turn.py_func(kind, F(length))
    for tap, mirrored in zip(range(low - reach, low + length + reach, 1), expected, strict=True):
        index = continued.py_func(F(tap), F(low), period, F(1) / period, turn)
        assert clamp.py_func(index, F(low), F(low + length - 1)) == mirrored


def test_clamp() -> None:
    assert [clamp(F(x), F(-2), F(5)) for x in (-9, -2, 0, 5, 6)] == [-2, -2, 0, 5, 5]
    assert clamp(F(math.nan), F(-2), F(5)) == -2
    assert [is_inside(F(x), F(-2), F(5)) for x in (-3, -2, 5, 6)] == [0, 1, 1, 0]


def test_a_sharp_edge_keeps_what_is_seen_in_the_image() -> None:
    weights = [float(sharp_weight.py_func(F(0.25), F(at), F(-2.5), F(3.5))) for at in (-2.6, -2.5, -2.4, 3.4, 3.5, 3.6)]
    assert weights == [0, 0, 0.25, 0.25, 0, 0]
    gains = [float(sharp_gain.py_func(F(4), F(inside))) for inside in (4, 3, 2.5, 1, 0)]
    assert gains == pytest.approx([1, 4 / 3, 1.6, 4, 0])


def test_channels() -> None:
    pixel = np.frombuffer(bytes([10, 250, 77, 200]), np.uint32)[0]
    assert [channel(pixel, shift) for shift in (0, 8, 16)] == [10, 250, 77]


def test_vignette_gain() -> None:
    inner, strength = 0.25, 0.6  # squared radius
    gain = [vignette_gain(F(r2), F(inner), F(1 / (1 - inner)), F(strength)) for r2 in (0, 0.25, 0.625, 1)]
    assert gain == pytest.approx([1.0, 1.0, 1 - 0.6 / 4, 1 - 0.6])


def test_cast() -> None:
    assert cast(F(100), F(0.5), F(20), F(0.1)) == pytest.approx(7.0)
    assert cast(F(200), F(1), F(100), F(0.5)) == pytest.approx(127.5)
    assert cast(F(20), F(1), F(-100), F(0.5)) == 0
    assert normalise(F(255), F(1 / 255 / 0.25), F(-0.5 / 0.25)) == pytest.approx(2.0)


def test_rounding_to_levels() -> None:
    """The nearest level; halves upwards; nothing wraps around."""
    values = [0, 0.49, 0.5, 1.49, 1.5, 2.5, 254.5, 254.49, 255, 256, 1e9, -0.4, -7]
    assert [to_uint8(F(x)) for x in values] == [0, 0, 1, 1, 2, 3, 255, 254, 255, 255, 255, 0, 0]


def test_lens_formula() -> None:
    """OpenCV's documentation, written out."""
    k1, k2, k3, p1, p2 = 0.1, -0.2, 0.3, 0.01, 0.02
    for x, y in RNG.uniform(-0.7, 0.7, (50, 2)):
        r2 = x * x + y * y
        radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
        gain = lens.radial_gain(F(r2), F(k1), F(k2), F(k3))
        assert gain == pytest.approx(radial, abs=1e-6)
        found = (
            lens.distort(F(x), F(y), F(r2), gain, F(p2), F(p1)),
            lens.distort(F(y), F(x), F(r2), gain, F(p1), F(p2)),
        )
        expected = (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
        )
        assert found == pytest.approx(expected, abs=1e-6)


def test_linear_maps() -> None:
    """Each matrix takes a point of the result to the point that it shows; y points down."""
    assert np.array_equal(affine.identity(2), [np.eye(2)] * 2)
    # turned anticlockwise by 90 degrees, the top shows what was at the right
    np.testing.assert_allclose(affine.rotation(np.array([90.0]))[0] @ [0, -1], [1, 0], atol=1e-15)
    np.testing.assert_allclose(
        affine.rotation(np.array([30.0, -30.0]))[1] @ [0, -1], [-0.5, -np.sqrt(0.75)], atol=1e-15
    )
    assert np.array_equal(affine.magnification(np.array([2.0]), np.array([-1.0]))[0] @ [4, 3], [2, -3])
    turned, wide = affine.rotation(np.array([90.0])), affine.magnification(np.array([2.0]), np.array([1.0]))
    # first turned, then widened: a point is looked up in the wide image first
    np.testing.assert_allclose(affine.compose(turned, wide)[0] @ [4, 0], turned[0] @ [2, 0], atol=1e-15)


def test_an_index_beyond_the_image() -> None:
    padded = np.pad(np.arange(5), 12, mode="reflect")
    assert [neighbours.mirrored(i, 5) for i in range(-12, 17)] == padded.tolist()
    assert [neighbours.mirrored(i, 1) for i in range(-3, 4)] == [0] * 7
    assert [neighbours.repeated(i, 5) for i in range(-3, 8)] == np.pad(np.arange(5), 3, mode="edge").tolist()


def test_powers_of_lab() -> None:
    """Beside the standard library's."""
    for value in np.linspace(0.003, 1.1, 999):
        assert abs(lab.cube_root(F(value)) / F(value) ** (1 / 3) - 1) < 3e-6
    for level in range(256):
        value = level / 255
        light = value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        assert abs(lab.linear_light(F(level)) - light) < 2e-5 * max(light, 0.05)
        assert abs(lab.srgb(F(light)) - level) < 2e-3


def test_a_coordinate_next_to_an_edge_is_moved_into_the_image() -> None:
    """Of pixels -2..3, which reach from -2.5 to 3.5; all others stay where they are."""
    edge = 2.0**-7
    for given, becomes in (
        *((-2.5, -2.5 + edge), (-2.505, -2.5 + edge), (-2.495, -2.5 + edge), (3.5, 3.5 - edge), (3.505, 3.5 - edge)),
        *((-2.51, -2.51), (-2.49, -2.49), (0.25, 0.25), (3.51, 3.51), (-99.0, -99.0)),
    ):
        assert float(where_it_meets.py_func(F(given), F(-2), F(3))) == F(becomes)
