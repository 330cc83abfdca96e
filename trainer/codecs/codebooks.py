"""The five 8-bit number types as sorted codebooks of 256 float32 in -1..1, and their sources.

"Dettmers" is T. Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, 2015 (arXiv:1511.04561). His types are
a sign bit and seven more; here a code is the place in the sorted codebook, so that codes have the order of the values.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Codebook = npt.NDArray[np.float32]

FIRST_SPLIT = 0.45
"""Where the paper's trees cut the interval (0.1, 1) first: its examples, 0.236719 and 0.000019, fit no other place."""

NUM_DECADES = 6
"""The dynamic tree's most zeros: with six zeros in front of the flag no bit is left for the tree."""


def _tree_edges(num_leaves: int) -> npt.NDArray[np.float64]:
    """Ends of the leaves of a bisection of (0.1, 1) that is cut at 0.45 first and in halves from there on."""
    half = num_leaves // 2
    return np.concatenate([np.linspace(0.1, FIRST_SPLIT, half + 1), np.linspace(FIRST_SPLIT, 1.0, half + 1)[1:]])


def _middles(edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (edges[:-1] + edges[1:]) / 2


def _mirrored(magnitudes: npt.NDArray[np.float64]) -> Codebook:
    """A symmetric codebook, zero twice in its middle; where magnitudes are fewer than 128 the last repeats."""
    distinct = np.unique(np.append(magnitudes[magnitudes <= 1.0], 0.0).astype(np.float32))
    assert len(distinct) <= 128 and distinct[-1] == 1.0
    side = np.append(distinct, np.ones(128 - len(distinct), np.float32))
    return np.concatenate([-side[::-1], side]).astype(np.float32)


def dynamic_tree() -> Codebook:
    """Dettmers' dynamic tree: n leading zeros mean 10^-n, a flag, and the bits left walk a tree over (0.1, 1).

    126 magnitudes over six decades, 64 in (0.1, 1) and half as many in each decade below; zero; and, as in the author's
    own code, the absmax itself.
    """
    decades = [_middles(_tree_edges(2 ** (NUM_DECADES - n))) * 10.0**-n for n in range(NUM_DECADES)]
    return _mirrored(np.concatenate([*decades, [1.0]]))


def dynamic_map() -> Codebook:
    """bitsandbytes' dynamic map (`functional.create_dynamic_map()`), equal to it to the last bit; not symmetric.

    127 magnitudes over seven decades, midpoints of even steps over (0.1, 1); zero; and 1 on the positive side alone.
    """
    levels = [0.0, 1.0]
    for n in range(7):
        edges = _float32_steps(2**n + 1)
        middles = (edges[:-1] + edges[1:]) / np.float32(2.0)
        # a Python float times a float32 tensor is float32 there
        levels += [sign * float(level) for level in np.float32(10 ** (n - 6)) * middles for sign in (1.0, -1.0)]
    return np.array(sorted(levels), np.float32)


def _float32_steps(num: int) -> npt.NDArray[np.float32]:
    """`num` even steps from 0.1 to 1 in float32, rounded as torch.linspace rounds: from either end to the middle."""
    low, high = np.float32(0.1), np.float32(1.0)
    step = np.float32((high - low) / np.float32(num - 1))
    count = np.arange(num)
    # a multiplication and an addition in one rounding, which float64 holds exactly up to its own
    up = (np.float64(low) + np.float64(step) * count).astype(np.float32)
    down = (np.float64(high) - np.float64(step) * (num - 1 - count)).astype(np.float32)
    return np.where(count < num // 2, up, down)


def linear() -> Codebook:
    """Even steps of 1/127 (Vanhoecke, Senior, Mao, 2011; Dettmers, section 3.1)."""
    return _mirrored(np.arange(128) / 127.0)


def mantissa() -> Codebook:
    """Dettmers' type with a 3-bit exponent and a 4-bit mantissa: 0..15 times 10^-1 .. 10^-8, those up to 1."""
    return _mirrored(np.array([whole / 10.0**n for n in range(1, 9) for whole in range(16)]))


def static_tree() -> Codebook:
    """Dettmers' type with a 3-bit exponent and a tree over (0.1, 1) in the four bits of the mantissa: eight decades.

    A number is where its leaf begins: his example, 0.2345678 to 0.23125, is such a place and no leaf's middle. The two
    smallest of the 128 give way to zero and to the absmax.
    """
    starts = _tree_edges(16)[:-1]
    places = np.sort(np.concatenate([starts * 10.0**-n for n in range(8)]))
    return _mirrored(np.append(places[2:], 1.0))


CODEBOOKS: dict[str, Callable[[], Codebook]] = {
    "dynamic-tree": dynamic_tree,
    "dynamic-map": dynamic_map,
    "linear": linear,
    "mantissa": mantissa,
    "static-tree": static_tree,
}
