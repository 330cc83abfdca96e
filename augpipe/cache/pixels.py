"""Which decoded images are held where: looked up by sample and DCT factor, written in two steps, never dropped.

First come, first kept. An epoch is a permutation of all samples, so whatever was dropped to make room would be wanted
again just as soon; and with the least recently used one dropped, nothing would be there when its turn comes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.cache.arena import Arena, Place, aligned
from augpipe.cache.label_maps import HeldLabelMaps
from augpipe.cache.statistics import CacheStatistics
from augpipe.decoding.decoded_pixels import LocatedPixels

Pixels = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NUM_FACTORS = 4
"""DCT factors 1, 2, 4 and 8; an image at 1/factor of its size is called by the factor's logarithm below."""
CLAIMED = 1 << 0
"""Flag of an image that is held, or that somebody is about to write; shifted by its factor's logarithm."""
DID_NOT_FIT = 1 << NUM_FACTORS
"""Flag of an image that found no room; shifted in the same way."""
MAY_SCALE = 1 << 2 * NUM_FACTORS
"""Flag of a sample."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sizes:
    """What the cache remembers of some samples; zeros and False for those it does not know."""

    heights: Ints
    """Upright and whole, in pixels; 0 for a sample that the cache does not know."""
    widths: Ints
    may_scale: Bools
    """Whether a plan may have it decoded at a DCT scale."""


class SeenSizes:
    """Sizes by sample id; 9 bytes each. Safe from several threads: who reads while another writes finds a size or none.

    Args:
        num_samples: of the source.
    """

    def __init__(self, num_samples: int) -> None:
        # zeroed memory is not touched before it is used
        self._sizes = np.zeros((num_samples, 2), np.int32)
        self._may_scale = np.zeros(num_samples, np.bool_)
        self._notes = True

    def read_only(self) -> "SeenSizes":
        """The same, which remembers nothing more."""
        same = copy(self)
        same._notes = False
        return same

    def note(self, sample_id: int, size: tuple[int, int], may_scale: bool) -> None:
        """Remember the size of an image that a recipe can use.

        Args:
            sample_id: which it is.
            size: height and width, upright, in pixels.
            may_scale: whether a plan may have it decoded at a DCT scale.
        """
        if not self._notes:
            return
        self._may_scale[sample_id] = may_scale
        self._sizes[sample_id] = size

    def find(self, sample_ids: Ints) -> Sizes:
        """The sizes of (B,) samples, 0 for those not seen yet."""
        heights, widths = self._sizes[sample_ids].T.astype(np.int64)
        return Sizes(heights=heights, widths=widths, may_scale=self._may_scale[sample_ids])


@dataclass(kw_only=True, slots=True, eq=False)
class Reservation:
    """Room for an image, which its taker writes and then hands to `PixelCache.commit`."""

    pixels: LocatedPixels
    """The room, (height, width) at 1/`factor`, its content arbitrary."""
    place: Place
    """The same as a piece of the arena."""
    sample_id: int
    factor: int
    size: tuple[int, int]
    """Height and width of the whole image."""
    may_scale: bool


class PixelCache:
    """Decoded RGBX pixels by (sample id, DCT factor), for one source and recipe.

    Safe from several threads: they wait for each other only while tables of a few numbers are read or written, and in
    `reserve` while the arena grows; pixels are never copied here. In addition to its arena it takes 10
    bytes for each sample of the source, and 8 more for each of the four DCT factors that occurs.

    Args:
        num_samples: of the source.
        arena: where the pixels go; it belongs to the cache from now on.
        is_on_host: whether the arena's segments are uint8 arrays of numpy.
    """

    def __init__(self, num_samples: int, arena: Arena, *, is_on_host: bool) -> None:
        self.is_on_host = is_on_host
        self.written: Any = None
        """In device memory, the event after the last write; of the cache, as each recipe has a writer of its own."""
        self.label_maps = HeldLabelMaps(num_samples, arena)
        """Those of its samples, in the same memory."""
        self._arena = arena
        self._num_samples = num_samples
        # zeroed memory is not touched before it is used, so a source of which little is held takes less
        self._heights = np.zeros(num_samples, np.int32)
        self._widths = np.zeros(num_samples, np.int32)
        self._flags = np.zeros(num_samples, np.uint16)
        self._addresses: list[Ints | None] = [None] * NUM_FACTORS
        self._hits = self._misses = 0
        self._num_held = self._held_bytes = 0
        self._num_did_not_fit = self._did_not_fit_bytes = 0
        self._lock = threading.Lock()

    @property
    def arena(self) -> Arena:
        """Whoever reads from its memory keeps it alive."""
        return self._arena

    def size_of(self, sample_id: int) -> tuple[int, int, bool] | None:
        """Height and width of the whole image, upright, and whether it may be decoded at a DCT scale.

        None where the sample is held at no factor. What is known is not always held at the factor that a plan asks for.
        """
        with self._lock:
            height, width = int(self._heights[sample_id]), int(self._widths[sample_id])
            may_scale = bool(self._flags[sample_id] & MAY_SCALE)
        return (height, width, may_scale) if height else None

    def sizes_of(self, sample_ids: Ints) -> Sizes:
        """`size_of` for (B,) samples at once."""
        with self._lock:
            heights, widths = self._heights[sample_ids], self._widths[sample_ids]
            may_scale = (self._flags[sample_ids] & MAY_SCALE) != 0
        return Sizes(heights=heights.astype(np.int64), widths=widths.astype(np.int64), may_scale=may_scale)

    def find(self, sample_id: int, factor: int) -> LocatedPixels | None:
        """RGBX pixels that nobody changes any more, or None where they are not held; statistics are kept by `count`."""
        addresses = self._addresses[_logarithm(factor)]
        if addresses is None:
            return None
        with self._lock:
            address = int(addresses[sample_id])
            whole = int(self._heights[sample_id]), int(self._widths[sample_id])
        if not address:
            return None
        height, width = _shape(whole, factor)
        for segment in self._arena.segments:
            if 0 <= address - segment.address < segment.num_bytes:
                return LocatedPixels(address=address, height=height, width=width, owner=segment.memory)
        raise AssertionError(f"no segment holds the address {address}")

    def find_all(self, sample_ids: Ints, factors: Ints) -> dict[int, LocatedPixels]:
        """`find` for (B,) samples at (B,) factors: position -> the pixels, for those that are held."""
        addresses = self.addresses_of(sample_ids, factors)
        positions = np.flatnonzero(addresses)
        if not len(positions):
            return {}
        sizes, divisors = self.sizes_of(sample_ids[positions]), factors[positions]
        heights, widths = -(-sizes.heights // divisors), -(-sizes.widths // divisors)
        segments = sorted(self._arena.segments, key=lambda segment: segment.address)  # asked for after the addresses
        firsts = np.array([segment.address for segment in segments])
        which = np.searchsorted(firsts, addresses[positions], side="right") - 1
        columns = (column.tolist() for column in (positions, which, addresses[positions], heights, widths))
        return {
            position: LocatedPixels(address=address, height=height, width=width, owner=segments[number].memory)
            for position, number, address, height, width in zip(*columns, strict=True)
        }

    def addresses_of(self, sample_ids: Ints, factors: Ints) -> Ints:
        """(B,) int64: where the pixels of (B,) samples at (B,) factors begin, 0 where they are not held.

        Rows follow each other without a gap, and are ceil(width / factor) pixels of 4 bytes.
        """
        found = np.zeros(len(sample_ids), np.int64)
        with self._lock:
            for logarithm, addresses in enumerate(self._addresses):
                if addresses is not None:
                    found = np.where(factors == 1 << logarithm, addresses[sample_ids], found)
        return found

    def has_no_room_for(self, sample_id: int, factor: int) -> bool:
        """Whether the image was found not to fit."""
        return bool(self._flags[sample_id] & (DID_NOT_FIT << _logarithm(factor)))

    def reserve(self, sample_id: int, factor: int, height: int, width: int, may_scale: bool) -> Reservation | None:
        """Room for an image, its content arbitrary; None where it is held, being written, or does not fit.

        Nobody finds it before `commit`, and each goes to either `commit` or `cancel`.

        Args:
            sample_id, factor: what is to be written.
            height, width: of the whole image, upright.
            may_scale: what `size_of` shall say of it.
        """
        logarithm = _logarithm(factor)
        held_height, held_width = _shape((height, width), factor)
        num_bytes = held_height * held_width * 4
        with self._lock:
            if self._flags[sample_id] & (CLAIMED << logarithm):
                return None
            self._flags[sample_id] |= CLAIMED << logarithm
        place = self._arena.take(num_bytes)
        with self._lock:
            if place is None:
                self._flags[sample_id] ^= CLAIMED << logarithm
            # each counts once: not again in the next epoch, and no longer once another's room was cancelled for it
            if (place is None) != bool(self._flags[sample_id] & (DID_NOT_FIT << logarithm)):
                self._flags[sample_id] ^= DID_NOT_FIT << logarithm
                sign = 1 if place is None else -1
                self._num_did_not_fit += sign
                self._did_not_fit_bytes += sign * aligned(num_bytes)
        if place is None:
            return None
        pixels = LocatedPixels(address=place.address, height=held_height, width=held_width, owner=place.segment.memory)
        return Reservation(
            pixels=pixels, place=place, sample_id=sample_id, factor=factor, size=(height, width), may_scale=may_scale
        )

    def commit(self, room: Reservation) -> None:
        """Let everybody find what was written: whoever does may read it at once.

        In device memory that holds on the stream that wrote it, and elsewhere once that stream has come so far.
        """
        logarithm = _logarithm(room.factor)
        with self._lock:
            addresses = self._addresses[logarithm]
            if addresses is None:
                addresses = self._addresses[logarithm] = np.zeros(self._num_samples, np.int64)
            assert not addresses[room.sample_id], "this room is committed already"
            self._heights[room.sample_id], self._widths[room.sample_id] = room.size
            if room.may_scale:
                self._flags[room.sample_id] |= MAY_SCALE
            addresses[room.sample_id] = room.place.address
            self._num_held += 1
            self._held_bytes += room.place.num_bytes

    def cancel(self, room: Reservation) -> None:
        """Give the room of an image that was not written to others; the image may be reserved again."""
        with self._lock:
            self._flags[room.sample_id] ^= CLAIMED << _logarithm(room.factor)
        self._arena.give_back(room.place)

    def count(self, *, hits: int, misses: int) -> None:
        """Add a finished batch to the statistics: how many of its samples were found, and how many were decoded.

        Lookups are not counted where they happen: a pass makes batches ahead that nobody may ever take, and looks for
        another image where one is damaged, so the numbers would not be those of the samples handed out.
        """
        with self._lock:
            self._hits += hits
            self._misses += misses

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Batches that are finished meanwhile are left out of the statistics: nobody gets them."""
        before = self._hits, self._misses
        try:
            yield
        finally:
            with self._lock:
                self._hits, self._misses = before

    def statistics(self) -> CacheStatistics:
        """The numbers of this moment."""
        with self._lock:
            return CacheStatistics(
                hits=self._hits,
                misses=self._misses,
                num_held=self._num_held,
                held_bytes=self._held_bytes + self.label_maps.held_bytes,
                budget_bytes=self._arena.budget_bytes,
                allocated_bytes=self._arena.allocated_bytes,
                num_did_not_fit=self._num_did_not_fit,
                did_not_fit_bytes=self._did_not_fit_bytes + self.label_maps.did_not_fit_bytes,
                num_label_maps=self.label_maps.num_held,
                num_label_maps_did_not_fit=self.label_maps.num_did_not_fit,
            )


def _logarithm(factor: int) -> int:
    logarithm = factor.bit_length() - 1
    assert 0 <= logarithm < NUM_FACTORS and factor == 1 << logarithm, f"{factor} is not a DCT factor"
    return logarithm


def _shape(whole: tuple[int, int], factor: int) -> tuple[int, int]:
    return -(-whole[0] // factor), -(-whole[1] // factor)
