"""Batches in a CUDA device's memory: one launch a view, on the stream that is current where the batch is handed out."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from augpipe.backends.assembly import Assembly, DevicePixels, Settings
from augpipe.cache import PixelCache
from augpipe.cuda.insertion import CacheWriter, Picture
from augpipe.cuda.render import DeviceRenderer
from augpipe.cuda.staging import StagingBatch, StagingPool
from augpipe.cuda.streams import streams_of
from augpipe.source import Pixels


@dataclass(kw_only=True)
class _Target:
    """Where the pixels of a batch lie."""

    staging: StagingBatch
    rooms: dict[int, Pixels] = field(default_factory=dict)
    """Position -> what was last handed out for it; written by one thread a position, as the next."""
    staged: dict[int, tuple[int, int, tuple[int, int]]] = field(default_factory=dict)
    """Position -> height and width of what lies there, and which column and row of the photograph it starts at."""
    table: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    """(B, 5): the kernel's pixel table, once all pixels are on their way."""
    new: list[Picture] = field(default_factory=list)
    """What the cache may take."""


class DeviceOutput:
    """Renders on one device; one instance serves a loader over all its epochs.

    Args:
        settings: the loader's.
        device: as `require_device` gives it.
        cache: filled here where it lies in the device's memory; one on the host is the engine's.
    """

    def __init__(self, settings: Settings, device: torch.device, cache: PixelCache | None) -> None:
        self._settings = settings
        self._streams = streams_of(device)
        self._renderer = DeviceRenderer(device, settings.recipe, settings.form, streams=self._streams)
        self._pool = StagingPool(device, streams=self._streams)
        self._writer = CacheWriter(cache, self._streams) if cache is not None and not cache.is_on_host else None

    def begin(self, assembly: Assembly) -> None:
        """Give a planned batch its staging memory."""
        assembly.target = _Target(staging=self._pool.take())

    def room(self, assembly: Assembly, position: int, num_bytes: int) -> Pixels:
        """(num_bytes,) of page-locked memory, from which the device copies."""
        target: _Target = assembly.target
        room = target.staging.room(position, num_bytes)
        target.rooms[position] = room
        return room

    def put(self, assembly: Assembly, position: int, pixels: Pixels, first: tuple[int, int] = (0, 0)) -> None:
        """Take (H, W, 4) RGBX pixels: those that lie in the position's room as they are, others by copying them."""
        target: _Target = assembly.target
        room = target.rooms.get(position)
        if room is None or room.ctypes.data != pixels.ctypes.data:
            self.room(assembly, position, pixels.nbytes)[:] = pixels.reshape(-1)
        target.staged[position] = pixels.shape[0], pixels.shape[1], first

    def flush(self) -> None:
        """Nothing waits for it: a batch is copied and rendered as one."""

    def ready(self, assembly: Assembly) -> None:
        """Start the copy to the device; little more than the launch is left to the thread that asked for the batch."""
        target: _Target = assembly.target
        target.staging.copy()
        decoded = {
            position: DevicePixels(
                address=target.staging.address(position),
                height=height,
                width=width,
                first_x=first[0],
                first_y=first[1],
                channels=4,
            )
            for position, (height, width, first) in target.staged.items()
        } | assembly.on_device
        rows = {position: (held.place.address, held.width, 0, 0, 4) for position, held in assembly.held.items()} | {
            position: (pixels.address, pixels.width, pixels.first_x, pixels.first_y, pixels.channels)
            for position, pixels in decoded.items()
        }
        target.table = np.zeros((len(assembly.photographs), 5), np.int64)
        target.table[np.array([*rows], np.int64)] = np.array([*rows.values()], np.int64).reshape(-1, 5)
        if self._writer is not None:
            target.new = self._whole(assembly, decoded)

    def finish(self, assembly: Assembly) -> list[Any]:
        """The images of each view, ready on the calling thread's current stream.

        Raises:
            KernelError: a CUDA error of this batch or of an earlier one.
            torch.OutOfMemoryError: the device is full.
        """
        target: _Target = assembly.target
        keep: list[Any] = [target.staging, *assembly.owners]
        assert assembly.plan is not None
        ids = assembly.plan.sample_ids
        with self._renderer.launching(ids) as stream:
            target.staging.wait()
            if self._writer is not None:
                self._writer.wait()
                keep.append(self._writer.memory)
                keep += self._writer.write(target.new, stream)
            return list(self._renderer.render(target.table, assembly.tables, assembly.sizes, keep, ids))

    def labels(self, labels: npt.NDArray[np.int64]) -> Any:
        """(B,) int64 on the device, copied without waiting."""
        with self._streams.on_current():
            pinned = self._streams.pinned(labels.nbytes).view(torch.int64)
            pinned.numpy()[:] = labels
            return pinned.to(self._streams.device, non_blocking=True)

    def close(self) -> None:
        """Batches that were handed out keep what they need until the device has passed them."""

    def _whole(self, assembly: Assembly, decoded: dict[int, DevicePixels]) -> list[Picture]:
        """Those photographs that were decoded whole."""
        assert assembly.factors is not None
        photographs, pictures = assembly.opened(), []
        for position, pixels in decoded.items():
            photograph, factor = photographs[position], int(assembly.factors[position])
            is_whole = (pixels.first_x, pixels.first_y, pixels.height, pixels.width) == (
                0,
                0,
                *photograph.shape(factor)[:2],
            )
            if is_whole and position not in assembly.held:
                pictures.append(
                    Picture(
                        sample_id=photograph.sample_id,
                        factor=factor,
                        height=photograph.size[0],
                        width=photograph.size[1],
                        may_scale=photograph.may_scale,
                        address=pixels.address,
                        channels=pixels.channels,
                    )
                )
        return pictures
