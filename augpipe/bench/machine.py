"""What a rate was measured on."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from augpipe.native.workers import num_usable_cores

PACKAGES = ("augpipe", "numpy", "numba", "simplejpeg", "pillow")


def machine() -> dict[str, object]:
    """The processor's name, the cores that this process may use, and the versions of what does the work."""
    return {
        "cpu": cpu_name(),
        "cores": num_usable_cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def cpu_name() -> str:
    """The processor's name in the system's words; "unknown" where it has none."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def _version(package: str) -> str | None:
    if package == "augpipe":
        from augpipe import __version__

        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None
