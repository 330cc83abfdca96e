"""How much memory a cache may take: what a user says, or a part of what is free."""

from pathlib import Path
from typing import Any

from augpipe.native.control_groups import group_folders, memory_limit_of
from augpipe.validation.arguments import as_whole

MIN_DEVICE_RESERVE_BYTES = 2**30
DEVICE_RESERVE_FRACTION = 0.1


def as_cache_bytes(value: Any) -> int | None:
    """A budget that a user gave, in bytes; None where they leave it to the cache.

    Raises:
        ValueError: it is not a whole number, or negative.
    """
    if value is None:
        return None
    num_bytes = as_whole("cache_bytes", value)
    if isinstance(value, bool):
        raise ValueError(f"cache_bytes={value} is not a number of bytes. Leave it out to take what is free.")
    if num_bytes < 0:
        raise ValueError(f"cache_bytes={num_bytes} must be at least 0. Leave it out to take what is free.")
    return num_bytes


def default_budget(free_bytes: int, reserve_bytes: int) -> int:
    """What a cache takes of `free_bytes`: all except the reserve."""
    return max(free_bytes - reserve_bytes, 0)


def device_reserve(free_bytes: int) -> int:
    """What a cache leaves of a device's free memory: a tenth, but 1 GiB at least.

    It is for what comes and goes: workspaces, fragmentation, a batch that is larger than those before it.
    """
    return max(int(free_bytes * DEVICE_RESERVE_FRACTION), MIN_DEVICE_RESERVE_BYTES)


def host_reserve(available_bytes: int, num_sharing: int = 1) -> int:
    """What a cache leaves of the host's available memory: half of it, and the shares of the machine's other caches.

    Half, as available memory is mostly the system's file cache: what it has no room for any more is read from disk.
    """
    return available_bytes - available_bytes // (2 * num_sharing)


def host_limit(available_bytes: int, num_sharing: int = 1) -> int:
    """The most that a cache takes of the host's available memory, whatever a user says: its share of nine tenths.

    Where memory ends the system kills the process, silently and hours into a run.
    """
    return (available_bytes - available_bytes // 10) // num_sharing


def available_host_bytes(root: Path = Path("/")) -> int:
    """What this process can still take without the machine swapping, or its container or job being killed.

    Linux's MemAvailable, or what the memory limits of its control groups leave, whichever is least. Files that the
    system could drop do not count as taken.

    Args:
        root: where /proc and /sys are.

    Raises:
        ValueError: the system does not say.
    """
    file = root / "proc/meminfo"
    found = _fields(file).get("MemAvailable:") if file.is_file() else None
    if found is None:
        raise ValueError(
            "cache_bytes=None takes a part of the memory that is available, and this system has no MemAvailable in "
            "/proc/meminfo. Give cache_bytes."
        )
    return min([found * 1024, *(max(room, 0) for room in _control_group_rooms(root))])


def _control_group_rooms(root: Path) -> list[int]:
    """What each limit on this process leaves."""
    rooms: list[int] = []
    for version, folder in group_folders("memory", root):
        usage, droppable = _USAGE[version]
        for most in memory_limit_of(version, folder):
            taken = int((folder / usage).read_text()) - _fields(folder / "memory.stat").get(droppable, 0)
            rooms.append(most - taken)
    return rooms


_USAGE = {
    1: ("memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.current", "inactive_file"),
}
"""By the version of control groups: the file with what is taken, and the field of memory.stat with files in it."""


def _fields(file: Path) -> dict[str, int]:
    """First word of a line -> the number after it."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
