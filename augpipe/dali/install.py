"""Is DALI installed, and can this one run here? If not: which command puts it right."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from augpipe.cuda.driver import LIBRARY, driver_version
from augpipe.cuda.versions import Version, extra_for, install_command, parse, written

MIN_VERSION = (2, 0)
"""The oldest DALI that the extras ask for; what is used of it is used in 2.4, and nothing older was tried."""
CPU_COMMAND = 'pip install "augpipe[dali]"'


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What is asked of a machine; tests put in another one."""

    platform: str = sys.platform
    """As `sys.platform` has it."""
    load: Callable[[str], Any] = importlib.import_module
    """Imports a module by its name."""
    driver: Callable[[], Version] = driver_version
    """The newest CUDA that the NVIDIA driver runs, or OSError; asked for use on a GPU alone."""


THIS_MACHINE = Machine()


def require_dali(device_id: int | None, machine: Machine = THIS_MACHINE) -> Any:
    """The module `nvidia.dali`, imported.

    Args:
        device_id: the GPU that it is to be used on; None for the CPU, where neither a GPU nor a driver is needed.
        machine: for tests.

    Raises:
        ImportError: DALI is missing, cannot be loaded, is too old, or was built for a newer CUDA than the driver runs;
            or the system is not Linux. The message says what to do.
    """
    if machine.platform != "linux":
        raise ImportError(
            f'backend="dali" needs Linux, which DALI is built for alone, and this is {machine.platform!r}. '
            'Use backend="native".'
        )
    driver = None if device_id is None else _driver(machine)
    command = CPU_COMMAND if driver is None else install_command(driver)
    try:
        dali = machine.load("nvidia.dali")
    except ModuleNotFoundError as error:
        if error.name not in ("nvidia", "nvidia.dali"):
            raise _cannot_load(error, command) from error
        package = "nvidia-dali-cuda130, on the CPU without a GPU too" if driver is None else _package(driver)
        raise ImportError(f'backend="dali" needs NVIDIA DALI ({package}), which is not installed: {command}') from error
    except ImportError as error:
        raise _cannot_load(error, command) from error
    if parse(dali.__version__) < MIN_VERSION:
        raise ImportError(
            f"DALI {dali.__version__} is too old: {written(MIN_VERSION)} or newer is needed: "
            f"{command.replace('install', 'install --upgrade', 1)}"
        )
    built_for = int(str(dali.__cuda_version__)[:2])  # 13492 is 13.4.92
    if driver is not None and built_for > driver[0]:
        raise ImportError(
            f"DALI {dali.__version__} was built for CUDA {built_for}, and the NVIDIA driver knows CUDA up to "
            f"{written(driver)}. Update the driver, or put {_package(driver)} in its place: "
            f"pip uninstall -y nvidia-dali-cuda{built_for}0 && {command}"
        )
    return dali


def _driver(machine: Machine) -> Version:
    try:
        return machine.driver()
    except OSError as error:
        raise ImportError(
            f'backend="dali" on a GPU needs the NVIDIA driver, and {LIBRARY} cannot be used ({error}). Install the '
            'driver, or choose device="cpu".'
        ) from error


def _package(driver: Version) -> str:
    return f"nvidia-dali-{extra_for(driver)}0"


def _cannot_load(error: ImportError, command: str) -> ImportError:
    again = command.replace("install", "install --force-reinstall", 1)
    return ImportError(f"NVIDIA DALI is installed and cannot be loaded ({error}). Install it again: {again}")
