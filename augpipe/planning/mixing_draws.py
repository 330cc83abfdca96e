"""Which sample is mixed with its partner, how and how much: drawn in a stream of its own, and written into plans."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.mix import MIX_JOB
from augpipe.gpu_ops.random.philox import draws, uniform
from augpipe.ops.mixing import BetaMix, CopyPaste, CutMix, Mix, beta_weights
from augpipe.ops.random_words import RandomWords, stream_id

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.void]

MIXED = np.dtype(
    [
        # 0 where the image stays as it is, else 1 + index into the recipe's `mixing`
        ("kind", np.int8),
        # the sample whose image is the other one; -1 where there is none
        ("partner", np.int64),
        # of the sample's own label
        ("weight", np.float64),
        # left, top, right, bottom of what changes, in output pixels
        ("region", np.int32, (4,)),
    ]
)
"""The field `mixing` of the plans of recipes that mix."""

MIX_DRAW = np.dtype([("kind", np.int8), ("weight", np.float64), ("centre", np.float64, (2,))])
"""What is drawn for a sample: `MIXED`'s kind, the weight of its own image, and where a rectangle's centre lies, in
parts of width and height."""

NUM_WORDS = 4


def draw_mixing(mixing: Sequence[Mix], seed: int, epoch: int, drawn_by: Ints, *, is_sampled: bool) -> Rows:
    """(B,) `MIX_DRAW`, drawn by sample id, or in epochs of a sampler by position."""
    stream = stream_id("mixing:sampled" if is_sampled else "mixing")
    words = RandomWords(draws(seed, epoch, drawn_by, stream, NUM_WORDS))
    drawn: Rows = np.zeros(len(words), MIX_DRAW)
    ends = np.cumsum([mix.p for mix in mixing])
    # probabilities of 1 together, as 0.1, 0.2 and 0.7, may add up to a bit less
    ends = np.where(ends > 1.0 - 1e-9, 1.0, ends)
    place = np.searchsorted(ends, words.uniform(0, 0.0, 1.0), side="right")
    drawn["kind"] = np.where(place < len(mixing), place + 1, 0)
    drawn["weight"] = 1.0
    for kind, mix in enumerate(mixing, start=1):
        chosen = drawn["kind"] == kind
        if isinstance(mix, BetaMix):
            drawn["weight"][chosen] = beta_weights(mix.alpha, words.uniform(1, 0.0, 1.0)[chosen])
    drawn["centre"] = np.stack([words.uniform(2, 0.0, 1.0), words.uniform(3, 0.0, 1.0)], axis=1)
    return drawn


def draw_objects(seed: int, epoch: int, drawn_by: Ints, num_objects: int, *, is_sampled: bool) -> Floats:
    """(n, num_objects) numbers in 0 <= u < 1, evenly distributed, by which `CopyPaste` takes objects of partners; drawn
    by sample id, or in epochs of a sampler by position."""
    stream = stream_id("mixing/objects:sampled" if is_sampled else "mixing/objects")
    return uniform(draws(seed, epoch, drawn_by, stream, num_objects))


def write_mixing(views: tuple[Rows, ...], mixing: Sequence[Mix], drawn: Rows, partners: Ints) -> None:
    """Fill in the field `mixing` of a plan's views; that of `CopyPaste` as if nothing were pasted yet.

    Args:
        views: (B,) records each.
        mixing: the recipe's.
        drawn: (B,) `MIX_DRAW`.
        partners: (B,) sample ids; -1 where there is none, and then nothing is mixed.
    """
    is_mixed = (drawn["kind"] > 0) & (partners >= 0)
    cuts, takes_objects = pastes(mixing, drawn["kind"]), pastes_objects(mixing, drawn["kind"])
    for rows in views:
        width, height = rows["out_width"].astype(np.int64), rows["out_height"].astype(np.int64)
        whole = np.stack([np.zeros_like(width), np.zeros_like(height), width, height], axis=1)
        cut = rectangles(drawn, width, height)
        area = (cut[:, 2] - cut[:, 0]) * (cut[:, 3] - cut[:, 1])
        weight = np.where(cuts, 1.0 - area / (width * height), drawn["weight"])
        mixed = rows["mixing"]
        mixed["kind"], mixed["partner"] = np.where(is_mixed, drawn["kind"], 0), np.where(is_mixed, partners, -1)
        mixed["weight"] = np.where(is_mixed, weight, 1.0)
        mixed["region"] = np.where((is_mixed & ~takes_objects)[:, None], np.where(cuts[:, None], cut, whole), 0)


def pastes(mixing: Sequence[Mix], kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """(B,) which kinds of `MIXED` put a rectangle of the partner in the place of what it covers."""
    return np.isin(kinds, [kind for kind, mix in enumerate(mixing, start=1) if isinstance(mix, CutMix)])


def pastes_objects(mixing: Sequence[Mix], kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """(B,) which kinds of `MIXED` put objects of the partner there."""
    return np.isin(kinds, [kind for kind, mix in enumerate(mixing, start=1) if isinstance(mix, CopyPaste)])


def rectangles(drawn: Rows, width: Ints, height: Ints) -> Ints:
    """(B, 4) left, top, right and bottom of what `CutMix` pastes, in pixels.

    As the code of CutMix's authors has them: whole sides rounded down and halved, then cut off.
    """
    part = np.sqrt(1.0 - drawn["weight"])
    sides = []
    for axis, length in enumerate((width, height)):
        half = np.floor(length * part).astype(np.int64) // 2
        centre = np.floor(length * drawn["centre"][:, axis]).astype(np.int64)
        sides.append((np.clip(centre - half, 0, length), np.clip(centre + half, 0, length)))
    (left, right), (top, bottom) = sides
    return np.stack([left, top, right, bottom], axis=1)


def mix_jobs(rows: Rows, mixing: Sequence[Mix], partner_places: Ints) -> Rows:
    """(n,) `gpu_ops.image.mix.MIX_JOB`: what is to be done to a batch's rendered images, in the order of their places.

    An image that objects are pasted on has a job whose region is empty: it says only which images belong together.

    Args:
        rows: (B,) plan records of a view, those of guests last.
        mixing: the recipe's.
        partner_places: (B,) where each sample's partner lies in the batch. Where two are each other's, one job is for
            both; any other partner is an image that no job changes.
    """
    mixed = rows["mixing"]
    places = np.arange(len(rows))
    is_mixed = mixed["kind"] > 0
    is_mutual = (partner_places >= 0) & (partner_places[partner_places] == places)
    both = is_mixed & is_mutual & is_mixed[partner_places]
    firsts = np.flatnonzero(is_mixed & ~(both & (partner_places < places)))
    jobs: Rows = np.zeros(len(firsts), MIX_JOB)
    seconds = partner_places[firsts]
    jobs["places"] = np.stack([firsts, seconds], axis=1)
    cuts = pastes(mixing, mixed["kind"])
    weights = np.where(cuts, 0.0, mixed["weight"])  # within a rectangle nothing is left of one's own
    jobs["weights"] = np.stack([weights[firsts], weights[seconds]], axis=1)
    jobs["regions"][:, 0] = mixed["region"][firsts]
    jobs["regions"][:, 1] = np.where(both[firsts, None], mixed["region"][seconds], 0)
    return jobs
