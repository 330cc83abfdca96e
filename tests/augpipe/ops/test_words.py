"""Which of its words an op's draws are made of."""

from typing import Any

import numpy as np
import pytest

from augpipe import ops
from augpipe.gpu_ops.random.philox import seed_key
from augpipe.ops.bends import MAX_CELLS
from augpipe.ops.frame import Frame
from augpipe.ops.groups import Group
from augpipe.ops.op import KINDS
from augpipe.ops.random_words import RandomWords, Stream

NUM = 200
HARD: dict[str, Any] = {"scale": (0.5, 1.0), "ratio": (0.1, 10.0)}
"""Rectangles of which most do not fit, so that every attempt counts."""
ASKED: dict[str, list[tuple[dict[str, Any], set[int]]]] = {
    "brown_conrady": [({"k1": (0.0, 0.1), "k2": (0.0, 0.1), "k3": (0.0, 0.1)}, set())],
    "channel_dropout": [({"max_channels": 2}, set())],
    "color_jitter": [({"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}, set())],
    "erase": [(HARD, set())],
    "grid_distortion": [({"num_steps": MAX_CELLS}, set())],
    "grid_dropout": [({}, {1, 2, 3}), ({"unit_px": (9, 40), "place": "shared"}, set())],
    "motion_blur": [({}, {6, 7, 8, 9}), ({"line": "ends"}, set())],
    "multi_resolution_crop": [({}, set()), ({"step": None}, set())],
    "noise": [({"speckle": (0.0, 1.0)}, set())],
    "perspective": [({}, {9}), ({"inner_std": (0.1, 0.2)}, set())],
    "pixel_dropout": [({"share": (0.0, 1.0), "fill": "random"}, set())],
    "random_resize": [({}, {2}), ({"size": (100, 900)}, {1})],
    "random_resized_crop": [(HARD, {1, 2, 3}), ({"height_px": (50, 90)}, {1, 2, 3, *range(8, 44)})],
    "some_of": [({"num": (1, 3)}, set())],
    "solarize": [({"threshold": (0, 256)}, set())],
}
"""Fields with which ops ask for other words than with their defaults, and those that they do not ask for then."""


def values(op: ops.Op, words: np.ndarray) -> list[bytes]:
    """What an op draws, or whom a group chooses."""
    stream = Stream(seed_key(0), 0, np.arange(NUM, dtype=np.uint32), op.op)
    drawn: Any = op.draw(RandomWords(words, stream), Frame(np.full(NUM, 200), np.full(NUM, 300)))
    return [drawn["applied"].tobytes()] if isinstance(op, Group) else [value.tobytes() for value in drawn.values()]


def changed(words: np.ndarray, word: int, *, above: int = 0) -> np.ndarray:
    """The same with other numbers in one word, from `above` on."""
    made = words.copy()
    made[:, word] = np.random.default_rng(1).integers(above, above + 2**31, NUM)
    return made


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if "p" in kind.model_fields])
def test_each_word_is_asked_for_and_the_first_decides_only_whether(kind: type[ops.Op]) -> None:
    """Two numbers from one word would move together, and the word that one of them should be from would do nothing."""
    inner = {"ops": [ops.Invert(), ops.Flip(), ops.Rotate()]} if issubclass(kind, Group) else {}
    for fields, left_out in ASKED.get(kind.model_fields["op"].default, [({}, set())]):
        op = kind(**inner, **fields).model_copy(update={"p": 0.5})
        words = np.random.default_rng(0).integers(0, 2**32, (NUM, op.num_words), np.uint32)
        words[:, 0] >>= 1  # below a half it acts
        drawn = values(op, words)
        asked = {word for word in range(1, op.num_words) if values(op, changed(words, word)) != drawn}
        assert asked == set(range(1, op.num_words)) - left_out
        assert values(op, changed(words, 0)) == drawn != values(op, changed(words, 0, above=2**31))


def drawn_of(op: ops.Op, num: int) -> Any:
    stream = Stream(seed_key(3), 0, np.arange(num, dtype=np.uint32), op.op)
    return op.draw(RandomWords(stream.words(op.num_words), stream), Frame(np.full(num, 200), np.full(num, 300)))


def test_lines_begin_and_end_at_each_two_pixels_as_often_as_said() -> None:
    """Three columns and a row are drawn apart; the other row too, unless both ends would be one pixel."""
    num = 40_000
    drawn = drawn_of(ops.MotionBlur(line="ends", sizes=(3, 3), p=1.0), num)
    pairs, counts = np.unique(drawn["ends"], axis=0, return_counts=True)
    assert len(pairs) == 72 and not (pairs[:, :2] == pairs[:, 2:]).all(axis=1).any()
    is_upright = pairs[:, 0] == pairs[:, 2]
    assert is_upright.sum() == 18
    expected = num * np.where(is_upright, 1 / 54, 1 / 81)
    assert (np.abs(counts - expected) < 5.0 * np.sqrt(expected)).all()


@pytest.mark.parametrize(("step", "half"), [(10.0, 3), (15.0, 2), (30.0, 1)])
def test_rotations_in_steps_are_all_but_none_as_often(step: float, half: int) -> None:
    num = 20_000
    degrees, counts = np.unique(
        drawn_of(ops.Rotate(max_deg=30.0, step=step, p=1.0), num)["degrees"], return_counts=True
    )
    assert degrees.tolist() == [step * number for number in range(-half, half + 1) if number]
    expected = num / (2 * half)
    assert (np.abs(counts - expected) < 5.0 * np.sqrt(expected)).all()


def test_each_number_of_a_function_is_of_a_word_of_its_own() -> None:
    op = ops.Custom(np.flipud, num_draws=3, p=0.5)
    words = np.random.default_rng(0).integers(0, 2**32, (NUM, op.num_words), np.uint32)
    for word in range(1, op.num_words):
        other = changed(words, word)
        stream = Stream(seed_key(0), 0, np.arange(NUM, dtype=np.uint32), op.op)
        before, after = (
            op.draw(RandomWords(one, stream), Frame(np.full(NUM, 9), np.full(NUM, 9))) for one in (words, other)
        )
        moved = (before["draws"] != after["draws"]).any(axis=0)
        assert moved.tolist() == [word == 1 + number for number in range(3)]
        assert (before["applied"] == after["applied"]).all()
