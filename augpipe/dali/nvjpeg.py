"""Which nvJPEG this process has loaded: the library by which DALI, or nvImageCodec for it, decodes JPEGs on a GPU."""

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from augpipe.cuda.versions import DRIVER_RELEASES, Version, install_command, installed, parse, written

REGIONS_FROM: Version = (13, 2)
"""The first nvJPEG, of CUDA 13.3, that nvImageCodec has decode a region of an image with subsampled colours and
smooth upsampling. With an older one the region's outermost pixels might be wrong, so nvImageCodec (0.9) decodes it on
the CPU, and does not say so. Whole images, and those whose colours are not subsampled, any nvJPEG is given."""

_NAMES = ("libnvjpeg.so.13", "libnvjpeg.so.12")
_PACKAGES = {13: "nvidia-nvjpeg", 12: "nvidia-nvjpeg-cu12"}
_MAJOR_VERSION, _MINOR_VERSION = 0, 1  # libraryPropertyType


@dataclass(frozen=True, kw_only=True)
class Nvjpeg:
    """A library that is loaded."""

    path: str
    """The file, in the folder where it was found."""
    version: Version
    """In the library's own word."""

    @property
    def takes_regions(self) -> bool:
        """Whether regions of all images are decoded by it."""
        return self.version >= REGIONS_FROM


class Complaint(NamedTuple):
    """Why images are not decoded on the GPU as they might be."""

    text: str
    """What is wrong, and what to do."""
    command: str
    """What installs or mends it; empty where no command does."""

    def __str__(self) -> str:
        return f"{self.text}: {self.command}" if self.command else f"{self.text}."


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def loaded_nvjpeg() -> Nvjpeg | None:
    """The nvJPEG in this process's memory; None where there is none.

    DALI loads one with its first decoder, on the CPU too, and uses no other from then on. A file in a folder of
    LD_LIBRARY_PATH, such as a CUDA toolkit's, goes before the one that pip installed, so packages do not tell.

    Raises:
        OSError: it does not say its version.
    """
    for name in _NAMES:
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD)  # fails where it is not loaded
        except OSError:
            continue
        version = _property(library, _MAJOR_VERSION), _property(library, _MINOR_VERSION)
        return Nvjpeg(path=_file_of(library.nvjpegGetProperty), version=version)
    return None


def complaint(
    found: Nvjpeg | None,
    cuda_major: int,
    *,
    package: Callable[[str], str | None] = installed,
    environment: Mapping[str, str] = os.environ,
) -> Complaint | None:
    """What a user ought to know of the nvJPEG that decodes for a GPU; None where all is well.

    Args:
        found: what `loaded_nvjpeg` says.
        cuda_major: the major version of CUDA that DALI was built for.
        package: the version of an installed package, None where it is not.
        environment: where LD_LIBRARY_PATH is.
    """
    name = _PACKAGES.get(cuda_major, _PACKAGES[max(_PACKAGES)])
    if found is None:
        return Complaint(
            "DALI finds no nvJPEG, and decodes photographs on the CPU", f"pip install --force-reinstall {name}"
        )
    if found.takes_regions:
        return None
    wrong = (
        f"nvJPEG {written(found.version)} is loaded ({found.path}): with one before {written(REGIONS_FROM)} the loader "
        "has DALI decode photographs whole on the GPU instead of the regions that are looked at"
    )
    if cuda_major < REGIONS_FROM[0]:
        release = DRIVER_RELEASES[REGIONS_FROM[0]]
        mend = f"CUDA {cuda_major} has no newer one. Update the driver to release {release} or newer, and in a new"
        return Complaint(f"{wrong}. {mend} environment", install_command(REGIONS_FROM))
    folder = os.path.dirname(found.path)
    listed = [os.path.normpath(entry) for entry in environment.get("LD_LIBRARY_PATH", "").split(":") if entry]
    aside = f"Take {folder} out of LD_LIBRARY_PATH" if folder in listed else ""
    version = package(name)
    if version is not None and parse(version) >= REGIONS_FROM:
        aside = aside or f"Keep {found.path} from being loaded first, as LD_PRELOAD or another package does"
        return Complaint(f"{wrong}. {aside}: {name} {version}, which is installed, is taken then", "")
    newer = f"{aside}, and install a newer one" if aside else "Install a newer one"
    return Complaint(f"{wrong}. {newer}", f'pip install "{name}>={written(REGIONS_FROM)}"')


def _property(library: Any, which: int) -> int:
    number = ctypes.c_int()
    status = library.nvjpegGetProperty(which, ctypes.byref(number))
    if status != 0:
        raise OSError(f"nvjpegGetProperty answers with error {status}")
    return number.value


def _file_of(function: Any) -> str:
    info = _DlInfo()
    found = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    assert found, "a loaded function lies in a file"
    return os.path.normpath(os.fsdecode(info.file))
