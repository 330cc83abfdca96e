"""Limits of a container or job, read from files as Linux has them."""

import os
from pathlib import Path

import pytest
import torch

from augpipe.native import control_groups
from augpipe.native.control_groups import cpu_quota, memory_limit
from augpipe.native.workers import num_usable_cores
from augpipe.trainer.launch import keep_torch_to_quota

V2, V1 = "0::/jobs/mine\n", "9:name=systemd:/x\n5:cpu,cpuacct:/docker/12ab\n4:memory:/docker/12ab\n0::/x\n"


def machine(folder: Path, groups: str, files: dict[str, str]) -> Path:
    """A root with these control groups of the process, and files below sys/fs/cgroup."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        file = folder / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        (V2, {"jobs/mine/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"jobs/mine/cpu.max": "max 100000\n"}, None),
        (V2, {"jobs/mine/cpu.max": "max 100000\n", "jobs/cpu.max": "25000 50000\n"}, 0.5),
        (V2, {"jobs/mine/cpu.max": "400000 100000\n", "jobs/cpu.max": "300000 100000\n"}, 3.0),
        (V2, {"others/cpu.max": "100000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),  # a container, from inside
        (V1, {"cpu/docker/12ab/cpu.cfs_quota_us": "50000\n", "cpu/docker/12ab/cpu.cfs_period_us": "100000\n"}, 0.5),
        (V1, {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),  # from inside
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        (V1, {"memory/cpu.max": "100000 100000\n"}, None),
        ("", {"cpu.max": "100000 100000\n"}, None),
        (V2, {"jobs/mine/cpu.max": "a new format\n"}, None),
    ],
)
def test_the_tightest_quota_counts(tmp_path: Path, groups: str, files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(machine(tmp_path, groups, files)) == quota


def test_a_system_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None and memory_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "num"),
    [("0 100000", 1), ("50000 100000", 1), ("150000 100000", 2), ("400000 100000", 4), ("9900000 100000", 8)],
)
def test_cores_that_can_be_kept_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, num: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert num_usable_cores(machine(tmp_path, "0::/\n", {"cpu.max": quota})) == num
    assert num_usable_cores(tmp_path / "nowhere") == 8


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        (V2, {"jobs/mine/memory.max": "max\n", "jobs/memory.max": "4096\n"}, 4096),
        (V2, {"jobs/mine/memory.max": "max\n"}, None),
        (V1, {"memory/docker/12ab/memory.limit_in_bytes": "8192\n"}, 8192),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_the_tightest_memory_limit_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    assert memory_limit(machine(tmp_path, groups, files)) == limit


def test_torch_is_kept_to_a_quota_and_left_as_it_is_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    keep_torch_to_quota(tmp_path)
    keep_torch_to_quota(machine(tmp_path / "a", "0::/\n", {"cpu.max": "800000 100000"}))
    assert given == []
    keep_torch_to_quota(machine(tmp_path / "b", "0::/\n", {"cpu.max": "200000 100000"}))
    assert given == [2]


def test_files_that_may_not_be_read_hold_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object) -> list[float]:
        raise PermissionError("cpu.max")

    root = machine(tmp_path, "0::/\n", {"cpu.max": "200000 100000"})
    monkeypatch.setattr(control_groups, "_quota", denied)
    assert cpu_quota(root) is None
