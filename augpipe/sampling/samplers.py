"""Samplers: which samples an epoch holds, and how often, where that is not each of them once.

A sampler is a description; `bind` makes it ready for one source, as the loader does. What it draws is a pure function
of (seed, epoch, position in the epoch), so ranks need no list, and a run resumes anywhere with any world size.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.permutation import MAX_SAMPLES, GroupOrders, permute
from augpipe.gpu_ops.random.philox import draws
from augpipe.recipes.recipe import Recipe
from augpipe.sampling.alias_table import AliasTable
from augpipe.sources.protocol import Ints, Source, classes_of
from augpipe.validation.arguments import as_count
from augpipe.validation.plural import count

__all__ = ["ClassBalanced", "Mixture", "Repeated", "Sampler", "Sampling", "Weighted"]


WEIGHTED_STREAM = zlib.crc32(b"augpipe.sampling.weighted")
"""The Philox op id under which positions draw by weight, with the position in the sample id's place."""

Floats = npt.NDArray[np.float64]


class Sampling(Protocol):
    """A sampler at work on one source."""

    num_positions: int
    """Samples in an epoch."""

    def sample_ids(self, positions: Ints, seed: int, epoch: int) -> Ints:
        """(B,) the samples that stand at (B,) positions, 0..num_positions - 1, of an epoch."""

    def groups_of(self, sample_ids: Ints) -> Ints:
        """(B,) numbers: a sample that cannot be used is replaced by one of the same number."""

    def fingerprint(self) -> str:
        """What tells it from a sampling that draws otherwise, in states; the same in every process."""


class Sampler(Protocol):
    """What `Loader(sampler=...)` takes."""

    def bind(self, source: Source) -> Sampling:
        """Make it ready for a source.

        Raises:
            ValueError: it does not suit the source; says what to change.
        """


def bind(sampler: Sampler, source: Source, shuffle: object) -> Sampling:
    """A loader's sampler at work on its source.

    Raises:
        ValueError: it is not a sampler, does not suit the source, or does not go with `shuffle`.
    """
    if isinstance(sampler, type):
        raise ValueError(f"sampler is the class {sampler.__name__}. Write {sampler.__name__}(...) for one of it.")
    if not hasattr(sampler, "bind"):
        raise ValueError(
            f"sampler is a {type(sampler).__name__}, and augpipe.sampling has them: Weighted, ClassBalanced, Repeated "
            "and Mixture. For another order, set shuffle; for some of the samples, give sources.Subset(source, ids)."
        )
    if shuffle == "sticky":
        raise ValueError(
            'shuffle="sticky" has ranks keep samples of their own, and a sampler draws from all of them. Leave one of '
            "the two out."
        )
    if shuffle is not True:
        raise ValueError(f"shuffle={shuffle!r} is an order, and the sampler draws one itself. Leave shuffle out.")
    return sampler.bind(source)


def check_alternation(recipes: Iterable[Recipe]) -> None:
    """Raise ValueError where a recipe alternates by epoch, which a sampler leaves without meaning."""
    for recipe in recipes:
        for op in (op for view in recipe.all_views for op in view.ops if op.alternates):
            raise ValueError(
                f"{type(op).__name__}(alternate=True) changes a sample from each epoch to the next, and with a sampler "
                f"it may come several times an epoch, or not at all. Write {type(op).__name__}(), or leave the sampler "
                "out."
            )


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draw each position's sample by weight, with replacement: a sample comes more than once an epoch, or not at all.

    By an alias table (Walker 1977; Vose 1991), which takes 8 bytes a sample while a loader lives. Shares are exact to
    2^-32, and a weight below that share of the mean counts as 0.
    """

    weights: npt.ArrayLike
    """(N,) one a sample, at least 0, of any sum. A sample of weight 0 never comes, and replaces no other."""
    num: int | None = None
    """Samples in an epoch; None for as many as the source holds."""

    def bind(self, source: Source) -> Sampling:
        """See `Sampler`."""
        weights = np.asarray(self.weights)
        if weights.shape != (len(source),):
            raise ValueError(
                f"weights has shape {weights.shape}, and the source holds {count(len(source), 'photograph')}. Give one "
                f"weight each, as an array of shape ({len(source)},)."
            )
        return _ByWeight(AliasTable(_checked("weights", weights)), _num("num", self.num, len(source)))


@dataclass(frozen=True, eq=False)
class Repeated:
    """Each sample several times an epoch, every time with draws of its own."""

    times: int | Sequence[int]
    """How often; for a `sources.Concat` also one number for each of its sources, 0 to leave one out."""

    def bind(self, source: Source) -> Sampling:
        """See `Sampler`."""
        given = np.asarray(self.times)
        if given.ndim > 1 or given.dtype.kind not in "iu" or given.min(initial=0) < 0 or not given.any():
            raise ValueError(f"times={self.times!r} must be whole numbers from 0 on, one of them above 0.")
        lengths = _lengths(source, "times", len(given)) if given.ndim else [len(source)]
        quotas = [each * length for each, length in zip(given.reshape(-1).tolist(), lengths, strict=True)]
        if not 1 <= sum(quotas) <= MAX_SAMPLES:
            raise ValueError(f"times={self.times!r} makes epochs of {sum(quotas)} samples, which leaves 1..2^32.")
        return _ByQuota(lengths, np.array(quotas, np.int64))


@dataclass(frozen=True, eq=False)
class Mixture:
    """Draw from the sources of a `sources.Concat` by share, in epochs of a stated length.

    An epoch holds each source's share exactly, to a sample. A source's own samples come in passes, each a new order in
    which every sample comes once; a pass goes on in the next epoch where the last one ended. So at the end
    of any epoch, each of a source's samples has come as often as any other, or once more.
    """

    shares: Sequence[float]
    """One for each source, at least 0, of any sum; a source of share 0 is left out."""
    num: int | None = None
    """Samples in an epoch; None for as many as all sources hold."""

    def bind(self, source: Source) -> Sampling:
        """See `Sampler`."""
        shares = _checked("shares", np.asarray(self.shares))
        lengths = _lengths(source, "shares", len(shares))
        for number, (share, length) in enumerate(zip(shares.tolist(), lengths, strict=True)):
            if share > 0 and length == 0:
                raise ValueError(
                    f"shares[{number}]={share:g} is the share of an empty source. Set it to 0, or leave it out."
                )
        num = _num("num", self.num, len(source))
        quotas = _quotas(shares, num)
        for number in np.flatnonzero((shares > 0) & (quotas == 0)).tolist():
            raise ValueError(
                f"shares[{number}]={shares[number]:g} of {shares.sum():g} is less than one sample of num={num}. "
                "Raise num, or set the share to 0."
            )
        return _ByQuota(lengths, quotas)


@dataclass(frozen=True, eq=False)
class ClassBalanced:
    """Each class as often as any other, to a sample; those without a class (label -1) never.

    A class's own samples come in passes, as those of a source in a `Mixture`. It takes 4 bytes a sample.
    """

    num: int | None = None
    """Samples in an epoch; None for as many as the source holds."""

    def bind(self, source: Source) -> Sampling:
        """See `Sampler`."""
        labels = classes_of(source, np.arange(len(source), dtype=np.int64), "ClassBalanced")
        found, counts = np.unique(labels[labels >= 0], return_counts=True)
        if not len(found):
            raise ValueError("ClassBalanced needs labels, and the source has none. Use Weighted, or leave it out.")
        num = _num("num", self.num, len(source))
        if num < len(found):
            raise ValueError(f"num={num} leaves some of the {len(found)} classes without a sample. Raise num.")
        by_class = np.argsort(labels, kind="stable")[np.count_nonzero(labels < 0) :].astype(np.uint32)
        return _ByClass(source, by_class, counts, _quotas(np.ones(len(found)), num))


class _ByWeight:
    """Independent draws from an alias table."""

    def __init__(self, table: AliasTable, num_positions: int) -> None:
        self.num_positions = num_positions
        self._table = table

    def sample_ids(self, positions: Ints, seed: int, epoch: int) -> Ints:
        return self._table.find(draws(seed, epoch, positions, WEIGHTED_STREAM, 3))

    def groups_of(self, sample_ids: Ints) -> Ints:
        return self._table.may_come(sample_ids).astype(np.int64)

    def fingerprint(self) -> str:
        return f"weighted, {self.num_positions} of {len(self._table)}, {self._table.checksum():08x}"


class _ByQuota:
    """So many samples of each group an epoch; the groups' samples lie one group after the other."""

    kind = "quotas"

    def __init__(self, lengths: npt.ArrayLike, quotas: Ints) -> None:
        self.num_positions = int(quotas.sum())
        self._lengths = np.asarray(lengths, np.int64)
        self._quotas = quotas
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._ends = np.cumsum(quotas)  # of the slots of each group, over which positions are permuted
        self._orders = GroupOrders(self._lengths)

    def sample_ids(self, positions: Ints, seed: int, epoch: int) -> Ints:
        slots = permute(positions, self.num_positions, seed, epoch)
        groups = np.searchsorted(self._ends, slots, side="right")
        # uint64: an epoch's number times a quota is below 2^64, and what earlier epochs took must not be cut off
        taken, lengths = np.uint64(epoch) * self._quotas.astype(np.uint64), np.maximum(self._lengths, 1)
        first_pass, first_place = (part.astype(np.int64) for part in np.divmod(taken, lengths.astype(np.uint64)))
        numbers = first_place[groups] + slots - (self._ends - self._quotas)[groups]
        passes, places = np.divmod(numbers, lengths[groups])
        passes = (first_pass[groups] + passes) % 2**32
        return self._starts[groups] + self._orders.permute(places, groups, passes, seed)

    def groups_of(self, sample_ids: Ints) -> Ints:
        groups = np.searchsorted(self._starts + self._lengths, sample_ids, side="right")
        return np.asarray(self._quotas[groups] > 0, np.int64)  # which part one lies in, the source itself knows

    def fingerprint(self) -> str:
        checksum = zlib.crc32(np.stack([self._lengths, self._quotas]).tobytes())
        return f"{self.kind}, {self.num_positions} of {int(self._lengths.sum())}, {checksum:08x}"


class _ByClass(_ByQuota):
    """So many samples of each class an epoch."""

    kind = "classes"

    def __init__(self, source: Source, by_class: npt.NDArray[np.uint32], counts: Ints, quotas: Ints) -> None:
        super().__init__(counts, quotas)
        self._source = source
        self._by_class = by_class

    def sample_ids(self, positions: Ints, seed: int, epoch: int) -> Ints:
        return self._by_class[super().sample_ids(positions, seed, epoch)].astype(np.int64)

    def groups_of(self, sample_ids: Ints) -> Ints:
        return classes_of(self._source, sample_ids, "ClassBalanced")

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}, {zlib.crc32(self._by_class.tobytes()):08x}"


def _checked(name: str, weights: npt.NDArray[np.generic]) -> Floats:
    """Float64 weights that can be drawn by."""
    if weights.ndim != 1 or weights.dtype.kind not in "iufb":
        raise ValueError(f"{name} has shape {weights.shape} and dtype {weights.dtype}, and must be a list of numbers.")
    found = weights.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        raise ValueError(
            f"{name}[{bad[0]}]={found[bad[0]]:g}: {name} are finite and at least 0. Replace it, by 0 maybe."
        )
    if not found.any():
        raise ValueError(f"{name} are all 0, so there is nothing to draw. Make at least one larger.")
    if found.max() > np.finfo(np.float64).max / len(found):
        raise ValueError(f"the sum of {name} is too large for a float. Divide them by {found.max():g}.")
    return found


def _num(name: str, num: int | None, default: int) -> int:
    given = default if num is None else as_count(name, num)
    if given > MAX_SAMPLES:
        raise ValueError(f"{name}={given} leaves 1..2^32. Make epochs shorter.")
    return given


def _lengths(source: Source, name: str, num: int) -> Sequence[int]:
    """How many samples each part of a source holds."""
    lengths: Sequence[int] | None = getattr(source, "lengths", None)
    if lengths is None:
        raise ValueError(
            f"{name} are those of several sources, and this is one, {type(source).__name__}. Give the loader "
            "augpipe.sources.Concat([first, second])."
        )
    if num != len(lengths):
        raise ValueError(f"{name} holds {num} numbers, and there are {count(len(lengths), 'source')}. Give one each.")
    return lengths


def _quotas(shares: Floats, num: int) -> Ints:
    """Whole numbers that add up to `num`, by largest remainder, the first of equal ones."""
    exact = shares / shares.sum() * num
    quotas: Ints = np.floor(exact).astype(np.int64)
    largest_first = np.argsort(-(exact - quotas), kind="stable")
    quotas[largest_first[: num - int(quotas.sum())]] += 1
    return quotas
