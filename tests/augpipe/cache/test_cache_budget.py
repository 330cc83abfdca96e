"""How much a cache takes by itself: of the host's memory within its limits, and of a device's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe.cache import device_cache, host_cache
from augpipe.cache.budget import available_host_bytes

GIB = 2**30


# What the system says


def machine(folder: Path, groups: str = "", **files: str) -> Path:
    """A machine with 64 GiB available, these control groups, and files below sys/fs/cgroup; `__` stands for a slash."""
    (folder / "proc/self").mkdir(parents=True)
    meminfo = f"MemTotal: {128 * 2**20} kB\nMemFree: 5 kB\nMemAvailable: {64 * 2**20} kB\n"
    (folder / "proc/meminfo").write_text(meminfo)
    (folder / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        file = folder / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


def limited(most: int | str, taken: int, droppable: int) -> dict[str, str]:
    """A control group's files, version 2."""
    return {
        "memory_dot_max": f"{most}\n",
        "memory_dot_current": f"{taken}\n",
        "memory_dot_stat": f"anon 7\ninactive_file {droppable}\nactive_file 3\n",
    }


def below(group: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{group}__{name}": content for name, content in files.items()}


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert available_host_bytes(machine(tmp_path)) == 64 * GIB
    (tmp_path / "proc/self/cgroup").unlink()  # no control groups at all
    assert available_host_bytes(tmp_path) == 64 * GIB


@pytest.mark.parametrize(
    ("most", "taken", "droppable", "expected"),
    [
        (10 * GIB, 4 * GIB, GIB, 7 * GIB),
        (10 * GIB, 12 * GIB, GIB, 0),  # on its way to be killed
        (200 * GIB, 4 * GIB, 0, 64 * GIB),
        ("max", 4 * GIB, 0, 64 * GIB),
    ],
)
def test_a_containers_limit(tmp_path: Path, most: int | str, taken: int, droppable: int, expected: int) -> None:
    root = machine(tmp_path, "0::/\n", **limited(most, taken, droppable))
    assert available_host_bytes(root) == expected


def test_the_tightest_group_above_a_process_counts(tmp_path: Path) -> None:
    files = below("jobs", limited(9 * GIB, 6 * GIB, 0)) | below("jobs__mine", limited("max", 2 * GIB, 0))
    assert available_host_bytes(machine(tmp_path / "a", "0::/jobs/mine\n", **files)) == 3 * GIB
    files |= below("jobs__mine", limited(4 * GIB, 2 * GIB, 0))
    assert available_host_bytes(machine(tmp_path / "b", "0::/jobs/mine\n", **files)) == 2 * GIB
    assert available_host_bytes(machine(tmp_path / "c", "0::/others\n", **files)) == 64 * GIB


@pytest.mark.parametrize("place", ["memory", "memory__docker__12ab"])  # as seen inside and outside of a container
def test_the_limits_of_version_1(tmp_path: Path, place: str) -> None:
    files = {
        "memory_dot_limit_in_bytes": f"{10 * GIB}\n",
        "memory_dot_usage_in_bytes": f"{4 * GIB}\n",
        "memory_dot_stat": f"cache 1\ninactive_file 5\ntotal_inactive_file {GIB}\n",
    }
    unlimited = {"memory__memory_dot_limit_in_bytes": "9223372036854771712", "memory__memory_dot_usage_in_bytes": "5"}
    groups = "9:name=systemd:/x\n5:cpu,memory:/docker/12ab\n3:devices:/\n0::/x\n"
    others = {"memory__memory_dot_stat": ""} | unlimited if place != "memory" else {}
    root = machine(tmp_path, groups, **others, **below(place, files))
    assert available_host_bytes(root) == 7 * GIB


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cache_bytes=None takes a part of .* no MemAvailable .* Give cache_bytes\."):
        available_host_bytes(tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 5 kB\n")
    with pytest.raises(ValueError, match="no MemAvailable"):
        available_host_bytes(tmp_path)


def test_a_host_cache_takes_its_share_of_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cache, "available_host_bytes", lambda: 1_000_000)
    for num_sharing, budget_bytes in ((1, 500_000), (4, 125_000)):
        cache = host_cache.host_cache(5, None, num_sharing)
        assert cache.statistics().budget_bytes == budget_bytes
        assert cache.statistics().allocated_bytes == 0 and cache.is_on_host
    assert host_cache.host_cache(5, 77, 4).statistics().budget_bytes == 77, "what a user says is each cache's own"


@pytest.mark.parametrize(
    ("num_sharing", "limit", "words"),
    [
        (1, 900_000, "977 KiB of memory are available. The cache takes 879 KiB."),
        (4, 225_000, "977 KiB of memory are available, which 4 ranks share. The cache takes 220 KiB."),
    ],
)
def test_more_than_there_is_becomes_what_there_is(
    num_sharing: int, limit: int, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host_cache, "available_host_bytes", lambda: 1_000_000)
    assert host_cache.host_cache(5, limit, num_sharing).statistics().budget_bytes == limit
    assert caplog.records == []
    assert host_cache.host_cache(5, 2**50, num_sharing).statistics().budget_bytes == limit
    (record,) = caplog.records
    assert record.getMessage().startswith(f"cache_bytes={2**50} is more than this machine has: {words} Lower cache_by")


def test_a_user_is_believed_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> int:
        raise ValueError("no MemAvailable")

    monkeypatch.setattr(host_cache, "available_host_bytes", silent)
    assert host_cache.host_cache(5, 2**40).statistics().budget_bytes == 2**40


def test_this_machine_says() -> None:
    assert 0 < available_host_bytes() < 2**50


# A device, played by the CPU as under numba's simulator


def device_with(monkeypatch: pytest.MonkeyPatch, free: list[int]) -> torch.device:
    """The free bytes that it reports, one after another; the last for ever."""
    monkeypatch.setattr(device_cache, "available_host_bytes", lambda: free.pop(0) if len(free) > 1 else free[0])
    return torch.device("cpu")


def fill(cache: Any, num: int, side: int) -> list[bool]:
    found = []
    for sample_id in range(num):
        slot = cache.reserve(sample_id, 1, side, side, False)
        if slot is not None:
            cache.commit(slot)
        found.append(slot is not None)
    return found


def test_a_device_cache_lies_in_tensors() -> None:
    cache = device_cache.device_cache(3, 10_000, torch.device("cpu"))
    assert not cache.is_on_host
    assert fill(cache, 3, 32) == [True, True, False]
    (segment,) = cache.arena.segments
    assert isinstance(segment.memory, torch.Tensor) and segment.memory.dtype == torch.uint8
    assert segment.address == segment.memory.data_ptr() and segment.num_bytes == len(segment.memory) == 10_000
    assert cache.addresses_of(np.arange(3), np.ones(3, np.int64)).tolist() == [
        segment.address,
        segment.address + 4096,
        0,
    ]


@pytest.mark.parametrize(("free", "budget"), [(40 * GIB, 36 * GIB), (6 * GIB, 5 * GIB), (GIB // 2, 0)])
def test_a_device_cache_leaves_a_tenth_and_a_gibibyte_at_least(
    free: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = device_cache.device_cache(5, None, device_with(monkeypatch, [free]))
    assert cache.statistics().budget_bytes == budget


def test_a_device_cache_stops_where_a_model_took_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_cache, "SEGMENT_BYTES", 4096)
    # free when the cache is made, then before each segment: the reserve is the tenth that was free at first
    asked = [40 * GIB, 40 * GIB, 5 * GIB, 4 * GIB + 4095, 40 * GIB]
    cache = device_cache.device_cache(5, None, device_with(monkeypatch, asked))
    assert fill(cache, 5, 32) == [True, True, False, False, False]
    statistics = cache.statistics()
    assert statistics.budget_bytes == statistics.allocated_bytes == 8192
    assert caplog.records == []


def test_a_device_cache_leaves_the_last_memory_to_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_cache, "SEGMENT_BYTES", 4096)
    left = device_cache.LEAST_FREE_BYTES
    cache = device_cache.device_cache(5, 10**6, device_with(monkeypatch, [left + 4096, left + 4095]))
    assert fill(cache, 5, 32) == [True, False, False, False, False]
    assert f"({left + 4095} bytes of cpu are free, and others need some)" in caplog.text
    assert len(caplog.records) == 1
