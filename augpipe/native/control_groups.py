"""The control groups of this process (Linux): how a container or a batch job is limited in cores and memory."""

from collections.abc import Iterator
from pathlib import Path


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[tuple[int, Path]]:
    """Folders of this process's groups, inner before outer; the limits of a group hold for those below it too.

    Args:
        controller: "cpu" or "memory".
        root: where /proc and /sys are.

    Yields:
        The version of control groups, 1 or 2, and a folder, which need not exist.
    """
    listing = root / "proc/self/cgroup"
    for line in listing.read_text().splitlines() if listing.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, mount = 2, root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            version, mount = 1, root / "sys/fs/cgroup" / controller
        else:
            continue
        # a container often sees its own group as the root, whatever its path outside is called
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            yield version, mount / part


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores whose time this process may use, by the tightest quota on it (as `docker run --cpus` sets); None: no quota.

    Args:
        root: where /proc and /sys are.
    """
    try:
        quotas = [quota for version, folder in group_folders("cpu", root) for quota in _quota(version, folder)]
    except (OSError, ValueError):  # files that we may not read, or do not understand, hold up no loader
        return None
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that this process and those in its groups may take, by the tightest limit on it; None: no limit.

    Args:
        root: where /proc and /sys are.
    """
    try:
        limits = [
            most for version, folder in group_folders("memory", root) for most in memory_limit_of(version, folder)
        ]
    except (OSError, ValueError):
        return None
    return min(limits, default=None)


def memory_limit_of(version: int, folder: Path) -> list[int]:
    """The limit of one group in bytes; empty where it has none."""
    file = folder / {1: "memory.limit_in_bytes", 2: "memory.max"}[version]
    most = file.read_text().strip() if file.is_file() else "max"
    return [] if most == "max" or int(most) >= _UNLIMITED_BYTES else [int(most)]


_UNLIMITED_BYTES = 2**62
"""From here on version 1 means no limit: it writes the largest whole number of pages that it can count."""


def _quota(version: int, folder: Path) -> list[float]:
    """The quota of one group in cores; empty where it has none."""
    if version == 2:
        file = folder / "cpu.max"
        quota, period = file.read_text().split() if file.is_file() else ("max", "1")
    else:
        files = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
        quota, period = (file.read_text().strip() for file in files) if files[0].is_file() else ("-1", "1")
    return [] if quota in ("max", "-1") else [int(quota) / int(period)]
