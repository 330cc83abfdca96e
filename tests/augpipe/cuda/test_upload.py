"""Tables arrive whole and aligned by one copy, and a slot is lent to one batch at a time."""

import ctypes

import numpy as np
import pytest

from augpipe.cuda.upload import ALIGNMENT_BYTES, MIN_SLOT_BYTES, UploadRing
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from tests.augpipe.cuda.fakes import LaterStreams


@pytest.fixture
def ring() -> UploadRing:
    return UploadRing(LaterStreams())


def test_tables_arrive_as_they_were_at_aligned_addresses(ring: UploadRing) -> None:
    generator = np.random.default_rng(0)
    rows = np.frombuffer(generator.bytes(3 * KERNEL_ROW.itemsize), KERNEL_ROW)
    tables = [generator.integers(0, 2**60, (3, 5)), rows, generator.integers(0, 2**60, (6, 5))[::2]]
    slot = ring.take(tables)
    addresses = slot.upload(tables)
    for table, address in zip(tables, addresses, strict=True):
        assert (address - addresses[0]) % ALIGNMENT_BYTES == 0
        assert ctypes.string_at(address, table.nbytes) == table.tobytes()


def test_a_lent_slot_is_not_lent_again_until_it_is_back(ring: UploadRing) -> None:
    tables = [np.arange(5)]
    first, second = ring.take(tables), ring.take(tables)
    assert first is not second
    ring.give_back(first)
    assert ring.take(tables) is first
    assert ring.take(tables) not in (first, second)


def test_a_slot_that_is_too_small_makes_way_for_a_larger_one(ring: UploadRing) -> None:
    small, large = [np.zeros(5, np.int64)], [np.zeros(MIN_SLOT_BYTES, np.int64)]
    slot = ring.take(small)
    assert slot.num_bytes == MIN_SLOT_BYTES
    ring.give_back(slot)
    larger = ring.take(large)
    assert larger.num_bytes == MIN_SLOT_BYTES * 8
    ring.give_back(larger)
    assert ring.take(small) is larger
