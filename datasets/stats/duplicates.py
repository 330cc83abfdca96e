"""Images that a source holds more than once: the same bytes, the same pixels, or nearly the same image."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from augpipe.datasets.stats.fingerprints import MAX_DISTANCE, NUM_BITS, Fingerprints
from augpipe.sources.protocol import Source

Kind = Literal["same_bytes", "same_pixels", "look_alike"]
PixelDigests = Callable[[Sequence[int]], npt.NDArray[np.uint64]]
"""From n sample ids to (n, 2): 128 bits of each one's size and pixels."""
Indices = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """An image of a group."""

    sample_id: int
    name: str
    label: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Images that are the same in one of three ways."""

    kind: Kind
    """`same_pixels` has at least two different files in it, `look_alike` two different sets of pixels."""
    members: tuple[Member, ...]
    """In the source's order."""

    @property
    def contradicts(self) -> bool:
        """Whether its members have different labels; -1, which is none, does not count."""
        return len({member.label for member in self.members} - {-1}) > 1

    def to_json(self, classes: Sequence[str]) -> dict[str, Any]:
        """Members by sample id, name and class."""
        return {
            "kind": self.kind,
            "contradicts": self.contradicts,
            "members": [
                {"sample_id": member.sample_id, "name": member.name, "class": class_name(classes, member.label)}
                for member in self.members
            ],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Duplicates:
    """Every group of every kind, and how many images could go."""

    groups: tuple[Group, ...]
    """Same bytes, same pixels, then look-alikes; each kind by its groups' first members."""
    num_extra: dict[Kind, int]
    """Images beyond one of each group that no stricter kind counts already."""
    has_look_alikes: bool
    """Whether look-alikes were looked for: that needs ImageHash."""

    def of(self, kind: Kind) -> list[Group]:
        """The groups of one kind."""
        return [group for group in self.groups if group.kind == kind]


def find_duplicates(
    source: Source, prints: Fingerprints, pixel_digests: PixelDigests, *, has_perceptual: bool
) -> Duplicates:
    """The groups among images of `source`.

    Args:
        source: where names and labels come from.
        prints: (n,) `FINGERPRINT` of its usable images, in the source's order.
        pixel_digests: decodes images again; asked only for different files of equal size and sums.
        has_perceptual: whether perceptual hashes were made.
    """
    itself = np.arange(len(prints))
    first_of: dict[Kind, Indices] = {"same_bytes": _first_equal(prints["content"])}
    first_of["same_pixels"] = _first_of_same_pixels(prints, first_of["same_bytes"], pixel_digests)
    if has_perceptual:
        first_of["look_alike"] = _first_of_look_alikes(prints, first_of["same_pixels"])
    groups: list[Group] = []
    num_extra: dict[Kind, int] = {}
    stricter = itself
    for kind, firsts in first_of.items():
        num_extra[kind] = int(np.count_nonzero(stricter == itself) - np.count_nonzero(firsts == itself))
        for members in _groups(firsts, stricter):
            ids = prints["sample_id"][members].tolist()
            groups.append(
                Group(
                    kind=kind,
                    members=tuple(
                        Member(sample_id=id_, name=source.name(id_), label=int(source.label(id_))) for id_ in ids
                    ),
                )
            )
        stricter = firsts
    return Duplicates(groups=tuple(groups), num_extra=num_extra, has_look_alikes=has_perceptual)


def class_name(classes: Sequence[str], label: int) -> str | None:
    """None for no label; the number where the source has no name for it."""
    if label < 0:
        return None
    return classes[label] if label < len(classes) else str(label)


def _first_equal(digests: npt.NDArray[np.uint64]) -> Indices:
    """(n,): for each of the (n, 2) digests the lowest index that holds the same one."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: among equals the lowest index stays first
    ordered = digests[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    firsts = np.empty(len(order), np.int64)
    firsts[order] = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return firsts


def _first_of_same_pixels(prints: Fingerprints, same_bytes: Indices, pixel_digests: PixelDigests) -> Indices:
    firsts = np.arange(len(prints))
    files = np.flatnonzero(same_bytes == firsts)
    same_sums = _first_equal(prints["sums"][files])
    shared = np.bincount(same_sums, minlength=len(files))[same_sums] > 1
    doubtful = files[shared]
    if len(doubtful):
        firsts[doubtful] = doubtful[_first_equal(pixel_digests(prints["sample_id"][doubtful].tolist()))]
    return firsts[same_bytes]


def _first_of_look_alikes(prints: Fingerprints, same_pixels: Indices) -> Indices:
    firsts = np.arange(len(prints))
    images = np.flatnonzero((same_pixels == firsts) & prints["has_perceptual"])
    firsts[images] = images[near_groups(prints["perceptual"][images], NUM_BITS, MAX_DISTANCE)]
    return firsts[same_pixels]


def _groups(firsts: Indices, stricter: Indices) -> Iterator[Indices]:
    """The members of each group that a stricter kind does not hold together already, by first member."""
    together = np.unique(firsts[stricter != stricter[firsts]])
    members = np.flatnonzero(np.isin(firsts, together))
    members = members[np.argsort(firsts[members], kind="stable")]
    begins = np.flatnonzero(np.diff(firsts[members])) + 1
    yield from np.split(members, begins) if len(members) else ()


def near_groups(hashes: Hashes, num_bits: int, max_distance: int) -> Indices:
    """Number the (n,) hashes' groups, int64 (n,): in one group are those that a chain of near ones connects.

    A group's number is the lowest index in it. Two hashes are near where at most `max_distance` bits differ: of
    `max_distance` + 1 pieces one is then the same in both, so only hashes that share a piece are compared. Memory goes
    with n, time with the number of pairs that share a piece: about n^2 / 2^12 for 64 random bits and a distance of 4.
    """
    distinct, numbers = np.unique(hashes, return_inverse=True)
    parents = np.arange(len(distinct))
    for left, right in _near_pairs(distinct, num_bits, max_distance):
        _join(parents, left, right)
    roots = _roots(parents, np.arange(len(distinct)))[numbers]
    first = np.full(len(distinct), len(hashes))
    np.minimum.at(first, roots, np.arange(len(hashes)))
    groups: Indices = first[roots]
    return groups


def _near_pairs(hashes: Hashes, num_bits: int, max_distance: int) -> Iterator[tuple[Indices, Indices]]:
    """Index pairs of (n,) distinct hashes that are near, in portions of at most n, each pair once."""
    cuts = [num_bits * piece // (max_distance + 1) for piece in range(max_distance + 2)]
    masks = [np.uint64((1 << stop) - (1 << start)) for start, stop in pairwise(cuts)]
    for piece, mask in enumerate(masks):
        order = np.argsort(hashes & mask, kind="stable")
        ordered = hashes[order]  # so that what is compared lies side by side
        keys = ordered & mask
        stops = np.searchsorted(keys, keys, side="right")
        here = np.arange(len(keys))
        step = 1
        while len(here := here[here + step < stops[here]]):
            differing = ordered[here] ^ ordered[here + step]
            near = np.flatnonzero(np.bitwise_count(differing) <= max_distance)
            for earlier in masks[:piece]:  # a pair that shares an earlier piece was met there
                near = near[(differing[near] & earlier) != 0]
            if len(near):
                yield order[here[near]], order[here[near] + step]
            step += 1


def _join(parents: Indices, left: Indices, right: Indices) -> None:
    """Unite the groups of each pair; `parents` is a forest whose roots point to themselves."""
    for side in (left, right):
        parents[side] = _roots(parents, side)  # keeps the paths short
    a, b = parents[left], parents[right]
    apart = a != b
    for pair in zip(a[apart], b[apart], strict=True):
        low, high = sorted(_roots(parents, np.array(pair)))
        parents[high] = low


def _roots(parents: Indices, indices: Indices) -> Indices:
    while not np.array_equal(above := parents[indices], indices):
        indices = above
    return indices
