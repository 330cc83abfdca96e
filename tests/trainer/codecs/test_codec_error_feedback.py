"""Error feedback: residuals by key, kept over a checkpoint, and untouched by what is not finite."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from augpipe.trainer.codecs import ErrorFeedback, codec


def gradients(num: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(num).astype(np.float32)


def encoded(feedback: ErrorFeedback, key: str, x: np.ndarray) -> np.ndarray:
    payload = np.empty(feedback.codec.num_bytes(len(x)), np.uint8)
    feedback.encode_into(key, x, payload)
    return payload


def test_the_residual_is_what_decoding_left_out() -> None:
    feedback, x = ErrorFeedback(codec("dynamic-tree")), gradients(600)
    payload = encoded(feedback, "a", x)
    np.testing.assert_array_equal(payload, feedback.codec.encode(x))
    np.testing.assert_array_equal(feedback.residual("a"), x - feedback.codec.decode(payload))
    owed = feedback.residual("a")
    second = encoded(feedback, "a", x)
    np.testing.assert_array_equal(second, feedback.codec.encode(x + owed))
    encoded(feedback, "b", x)  # a key of its own starts at zero
    np.testing.assert_array_equal(feedback.residual("b"), x - feedback.codec.decode(payload))


@pytest.mark.parametrize("name", ["nf4", "one-bit"])
def test_the_mean_arrives_with_feedback_alone(name: str) -> None:
    """Repeating one gradient: its mean arrives with error feedback, and the same few levels for ever without."""
    tested, x = codec(name), gradients(512)
    feedback, steps = ErrorFeedback(tested), 200
    received = np.zeros(512)
    for _ in range(steps):
        received += tested.decode(encoded(feedback, "a", x))
    with_feedback = np.abs(received / steps - x).mean()
    without = np.abs(tested.decode(tested.encode(x)) - x).mean()
    assert with_feedback < without / 10


@pytest.mark.parametrize("name", ["dynamic-tree", "bf16", "nf4", "one-bit"])
def test_a_block_that_is_not_finite_leaves_its_residual(name: str) -> None:
    feedback, x = ErrorFeedback(codec(name, block=64)), gradients(256)
    encoded(feedback, "a", x)
    before = feedback.residual("a")
    broken = x.copy()
    broken[70], broken[75] = np.nan, np.inf
    payload = np.empty(feedback.codec.num_bytes(256), np.uint8)
    assert feedback.encode_into("a", broken, payload) == 2
    after, decoded = feedback.residual("a"), feedback.codec.decode(payload)
    left = ~np.isfinite(decoded)
    assert left.sum() == (2 if name == "bf16" else 64) and left[70] and left[75]
    np.testing.assert_array_equal(after[left], before[left])
    np.testing.assert_array_equal(after[~left], (x + before - decoded)[~left])
    assert np.isfinite(after).all()


def test_a_state_restored_goes_on_as_if_nothing_had_been() -> None:
    first, x = ErrorFeedback(codec("dynamic-tree")), gradients(300)
    encoded(first, "a", x)
    state = first.state_dict()
    second = ErrorFeedback(codec("dynamic-tree"))
    encoded(second, "old", x)
    second.load_state_dict(state)
    assert set(second.state_dict()) == {"a"}
    expected = encoded(first, "a", x)
    np.testing.assert_array_equal(encoded(second, "a", x), expected)
    np.testing.assert_array_equal(second.residual("a"), first.residual("a"))
    np.testing.assert_array_equal(state["a"], x - first.codec.decode(first.codec.encode(x)))  # a copy: it stays


def test_tensors_have_tensor_residuals() -> None:
    torch = pytest.importorskip("torch")
    feedback, arrays = ErrorFeedback(codec("linear")), ErrorFeedback(codec("linear"))
    x = gradients(300)
    for _ in range(3):
        payload = torch.empty(feedback.codec.num_bytes(300), dtype=torch.uint8)
        assert feedback.encode_into(0, torch.from_numpy(x).reshape(30, 10), payload) == 0
        np.testing.assert_array_equal(payload.numpy(), encoded(arrays, "a", x))
    broken = torch.from_numpy(x).clone()
    broken[3] = float("nan")
    before = feedback.residual(0)
    assert feedback.encode_into(0, broken, payload) == 1
    assert torch.equal(feedback.residual(0)[:256], before[:256]) and feedback.residual(0).isfinite().all()
    assert isinstance(feedback.state_dict()[0], torch.Tensor)


def test_another_size_for_a_key_and_an_unknown_key() -> None:
    feedback = ErrorFeedback(codec("linear"))
    encoded(feedback, "a", gradients(300))
    with pytest.raises(ValueError, match="x for key 'a' has 301 numbers, and its residual 300"):
        encoded(feedback, "a", gradients(301))
    with pytest.raises(KeyError):
        feedback.residual("b")


def test_threads_with_keys_of_their_own() -> None:
    feedback, alone = ErrorFeedback(codec("dynamic-tree")), ErrorFeedback(codec("dynamic-tree"))

    def work(nth: int) -> None:
        for step in range(10):
            encoded(feedback, str(nth), gradients(3000, 100 * nth + step))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8), timeout=60))
    for nth in range(8):
        for step in range(10):
            encoded(alone, str(nth), gradients(3000, 100 * nth + step))
        np.testing.assert_array_equal(feedback.residual(str(nth)), alone.residual(str(nth)))
