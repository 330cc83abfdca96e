"""NVIDIA DALI: which one there is, and whether its pipelines decode here, on the CPU and on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.cuda.driver import driver_version
from augpipe.cuda.versions import Version, install_command, written
from augpipe.dali.install import require_dali
from augpipe.dali.nvjpeg import Nvjpeg, complaint, loaded_nvjpeg
from augpipe.doctor.decoders import SHAPE, jpeg_bytes, tried
from augpipe.doctor.finding import Finding

BRINGS = 'backend="dali": JPEGs decode on the GPU'
BRINGS_REGIONS = "only what is looked at of a photograph is decoded on the GPU"


@dataclass(frozen=True, kw_only=True)
class DaliFacts:
    """Where the report on DALI comes from; tests put other answers in their place."""

    driver: Callable[[], Version] = driver_version
    """OSError where there is no driver."""
    require: Callable[[int | None], Any] = require_dali
    """The module, for the CPU (None) or a GPU; ImportError with what to do."""
    decode: Callable[[bytes, int | None], npt.NDArray[np.uint8] | None] = lambda data, device: decode(data, device)
    """Decodes a JPEG; on a GPU the pixels stay there, and None comes back."""
    nvjpeg: Callable[[], Nvjpeg | None] = loaded_nvjpeg
    """What DALI has loaded to decode with on a GPU."""


def dali(facts: DaliFacts | None = None) -> list[Finding]:
    """One line for the CPU; where there is a driver, one for the GPU and one for the library that decodes there."""
    facts = facts or DaliFacts()
    try:
        driver: Version | None = facts.driver()
    except OSError:
        driver = None
    try:
        module = facts.require(None if driver is None else 0)
    except ImportError as error:
        return [_unfit(error, driver)]
    built_for = _cuda_version(module)
    by = f"DALI {module.__version__}, built for CUDA {built_for}"
    found = tried("DALI", by, jpeg_bytes(), lambda data: _pixels(facts, data))
    data = {"version": module.__version__, "cuda": built_for}
    cpu = Finding(name=found.name, status=found.status, text=f"{found.text} on the CPU", data=data)
    return [cpu] if driver is None else [cpu, _on_gpu(facts), _nvjpeg(facts, module)]


def decode(data: bytes, device_id: int | None) -> npt.NDArray[np.uint8] | None:
    """A `image()` through the decoder that the loader uses."""
    from augpipe.dali.decoder import DaliDecoder

    decoder = DaliDecoder(1, 1, device_id, 1)
    try:
        decoder.submit([data], np.array([[0, 0, SHAPE[1], SHAPE[0]]], np.int32))
        decoded = decoder.collect()
        return decoded.images[0].copy() if device_id is None else None
    finally:
        decoder.close()


def _pixels(facts: DaliFacts, data: bytes) -> npt.NDArray[np.uint8]:
    pixels = facts.decode(data, None)
    assert pixels is not None
    return pixels


def _on_gpu(facts: DaliFacts) -> Finding:
    name = "DALI on GPU"
    try:
        facts.decode(jpeg_bytes(), 0)
    except Exception as error:  # DALI's own kinds; whatever it is, the line says it
        return Finding(name=name, status="broken", text=str(error).strip().splitlines()[0], brings=BRINGS)
    return Finding(name=name, status="ok", text="decoded a test picture on cuda:0")


def _nvjpeg(facts: DaliFacts, module: Any) -> Finding:
    """Which nvJPEG is loaded, once images were decoded: a toolkit's may go before that of pip."""
    name, found = "nvJPEG", facts.nvjpeg()
    wrong = complaint(found, int(str(module.__cuda_version__)[:2]))
    if found is None:
        assert wrong is not None
        return Finding(name=name, status="missing", text=wrong.text, brings=BRINGS, command=wrong.command)
    data = {"path": found.path, "version": written(found.version), "takes_regions": found.takes_regions}
    if wrong is not None:
        return Finding(
            name=name, status="broken", text=wrong.text, brings=BRINGS_REGIONS, command=wrong.command, data=data
        )
    return Finding(name=name, status="ok", text=f"{written(found.version)}, loaded from {found.path}", data=data)


def _unfit(error: ImportError, driver: Version | None) -> Finding:
    cause = error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or cause.name not in ("nvidia", "nvidia.dali"):
        return Finding(name="DALI", status="broken", text=str(error), brings=BRINGS if driver else "")
    if driver is None:
        return Finding(name="DALI", status="none", text='not installed; on the CPU backend="native" does the same')
    return Finding(name="DALI", status="missing", text="not installed", brings=BRINGS, command=install_command(driver))


def _cuda_version(module: Any) -> str:
    digits = str(module.__cuda_version__)  # 13492 is 13.4.92
    return f"{digits[:2]}.{digits[2]}"
