"""Images and tables arrive where their addresses say, whole and aligned, in copies beside the consumer's work."""

import ctypes
import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest
import torch

from augpipe.cuda import upload
from augpipe.cuda.staging import ALIGNMENT_BYTES, StagingPool
from augpipe.cuda.upload import MIN_SLOT_BYTES, UploadRing
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from tests.augpipe.cuda.fakes import LaterStreams
from tests.augpipe.loader.loader_sources import together

CPU = torch.device("cpu")


def pool(streams: LaterStreams, segment_bytes: int = 4096) -> StagingPool:
    return StagingPool(CPU, segment_bytes=segment_bytes, streams=streams)


def test_threads_fill_rooms_of_any_size() -> None:
    generator = np.random.default_rng(0)
    contents = [generator.bytes(int(size)) for size in generator.integers(1, 6000, 40)]
    streams = LaterStreams()
    batch = pool(streams).take()

    def fill(first: int) -> None:
        for position in range(first, 40, 4):
            room = batch.room(position, len(contents[position]))
            assert room.dtype == np.uint8 and room.shape == (len(contents[position]),)
            room[:] = np.frombuffer(contents[position], np.uint8)

    together(4, fill)
    batch.copy()
    for position, content in enumerate(contents):
        assert ctypes.string_at(batch.address(position), len(content)) == content
    assert max(map(len, contents)) > 4096 and streams.num_pinned < 40


@pytest.mark.parametrize("segment_bytes", [4096, 1 << 20])
def test_rooms_do_not_overlap_and_are_aligned(segment_bytes: int) -> None:
    batch, sizes = pool(LaterStreams(), segment_bytes).take(), [1, 127, 128, 129, 4096, 4097, 5]
    for position, num_bytes in enumerate(sizes):
        batch.room(position, num_bytes)
    batch.copy()
    spans = sorted((batch.address(position), num_bytes) for position, num_bytes in enumerate(sizes))
    assert all(first + num_bytes <= following for (first, num_bytes), (following, _) in pairwise(spans))
    if segment_bytes > sum(sizes) + len(sizes) * ALIGNMENT_BYTES:  # all in one segment
        assert {(address - spans[0][0]) % ALIGNMENT_BYTES for address, _ in spans} == {0}


def test_a_large_image_leaves_the_open_segment_to_the_others() -> None:
    streams = LaterStreams()
    batch = pool(streams).take()
    for position, num_bytes in enumerate([1000, 8192, 1000, 1000]):
        batch.room(position, num_bytes)
    assert streams.num_pinned == 2


def test_a_position_that_asks_again_gets_another_room() -> None:
    batch = pool(LaterStreams()).take()
    first, second = batch.room(0, 8), batch.room(0, 16)
    first[:] = 5
    second[:] = 7
    batch.copy()
    assert ctypes.string_at(batch.address(0), 16) == b"\x07" * 16


def test_the_copies_run_aside_and_the_consumer_waits_for_them() -> None:
    streams = LaterStreams()
    batch = pool(streams).take()
    batch.room(0, 8)
    batch.copy()
    batch.wait()
    assert streams.calls == ["aside", "record", "back", "wait for 0"]
    assert streams.events[0].num_waits == 0


def test_an_empty_batch_is_copied_too() -> None:
    streams = LaterStreams()
    batch = pool(streams).take()
    batch.copy()
    batch.wait()
    assert streams.num_pinned == 0 and streams.calls[-1] == "wait for 0"


def test_it_is_filled_before_it_is_copied_and_copied_once() -> None:
    batch = pool(LaterStreams()).take()
    batch.room(0, 8)
    with pytest.raises(AssertionError, match="have not been started"):
        batch.wait()
    with pytest.raises(AssertionError, match="have not been started"):
        batch.address(0)
    batch.copy()
    with pytest.raises(AssertionError, match="on its way already"):
        batch.room(1, 8)
    with pytest.raises(AssertionError, match="copied once"):
        batch.copy()


@pytest.mark.slow
def test_pinned_memory_is_given_up_with_the_copy_and_device_memory_with_the_batch() -> None:
    kept = []

    class Watched(LaterStreams):
        def pinned(self, num_bytes: int) -> torch.Tensor:
            tensor = super().pinned(num_bytes)
            kept.append(weakref.ref(tensor))
            return tensor

    batch = pool(Watched()).take()
    batch.room(0, 8)
    assert kept[0]() is not None
    batch.copy()
    gc.collect()
    assert kept[0]() is None
    assert batch.address(0)


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
        assert (address - addresses[0]) % upload.ALIGNMENT_BYTES == 0
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
