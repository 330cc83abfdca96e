"""What every backend works with: its settings, the request for a batch, and a batch in the making."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.backends.photograph import Photograph
from augpipe.cache import Held, PixelCache
from augpipe.output import OutputFormat
from augpipe.planning.plan import Plan
from augpipe.recipe import Recipe
from augpipe.source import Pixels, Source

Rows = npt.NDArray[np.void]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a backend needs to know; see `Loader`."""

    source: Source
    recipe: Recipe
    seed: int
    form: OutputFormat
    num_threads: int
    prefetch: int
    skips_bad: bool
    max_pixels: int
    pins_memory: bool = False
    """Whether batches on the CPU lie in page-locked memory."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One batch to make."""

    number: int
    """Its place in the epoch: lower ones are made first."""
    epoch: int
    sample_ids: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """Decoded pixels that another decoder than ours gave: a rectangle of a photograph."""

    pixels: Pixels
    """(h, w, 3) uint8."""
    first_x: int
    """Which column of the photograph the first one is."""
    first_y: int
    """Which row of the photograph the first one is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DevicePixels:
    """Pixels in device memory: a rectangle of a photograph in dense rows."""

    address: int
    """Of the first byte."""
    height: int
    width: int
    first_x: int
    """Which column of the photograph the first one is."""
    first_y: int
    """Which row of the photograph the first one is."""
    channels: int
    """3 for RGB, 4 for RGBX."""


@dataclass(kw_only=True)
class Assembly:
    """A batch in the making; each position is written by one task at a time."""

    request: Request
    cache: PixelCache | None
    photographs: list[Photograph | None]
    is_unread: bool = False
    """Whether it was planned by sizes that the source knew: then photographs are read as they are put."""
    problems: dict[int, BaseException] = field(default_factory=dict)
    """Position -> what ends the run."""
    skipped: dict[int, str] = field(default_factory=dict)
    """Sample id -> why another one stands in its place."""
    plan: Plan | None = None
    tables: tuple[Rows, ...] = ()
    """For each view, (B,) `gpu_ops.rows.KERNEL_ROW`."""
    factors: npt.NDArray[np.int64] | None = None
    """(B,) the DCT factor that each photograph is decoded at."""
    sizes: tuple[tuple[int, int], ...] = ()
    """For each view, height and width of its images."""
    rectangles: npt.NDArray[np.int32] | None = None
    """(B, 4) left, top, right, bottom of what the views look at; None where no photograph was known to have tiles."""
    held: dict[int, Held] = field(default_factory=dict)
    """Position -> pixels that the cache holds."""
    regions: dict[int, Region] = field(default_factory=dict)
    """Position -> pixels in host memory that the DALI stage decoded."""
    on_device: dict[int, DevicePixels] = field(default_factory=dict)
    """Position -> pixels that the DALI stage decoded on the device."""
    owners: list[Any] = field(default_factory=list)
    """Whatever owns the memory of `regions` and `on_device`."""
    labels: npt.NDArray[np.int64] | None = None
    """(B,), once every photograph was put."""
    target: Any = None
    """Where the output puts the batch; its own business."""
    remaining: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def is_on_device(self) -> bool:
        """Whether a cache on the device holds every photograph: then nothing is left to be decoded or put."""
        return self.cache is not None and not self.cache.is_on_host and len(self.held) == len(self.photographs)

    def opened(self) -> list[Photograph]:
        """The photographs, once every position has one."""
        return [photograph for photograph in self.photographs if photograph is not None]


Proceed = Callable[[Assembly], None]
"""Called with a batch when a stage is through with it."""
