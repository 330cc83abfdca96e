"""The stage that has DALI decode what it decodes as we do; all else is left to our own decoder.

DALI is given the JPEGs that libjpeg-turbo takes, at full size and not turned by EXIF, and of each only the region that
the plan looks at. A batch in which DALI fails goes through our own decoder whole, which finds the photographs that are
to blame and treats them as `on_error` says; nothing is looked at twice as long as all is well.
"""

import logging
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from augpipe.backends.assembly import Assembly, DevicePixels, Proceed, Region, Settings
from augpipe.backends.samples import Samples
from augpipe.planning.regions import source_regions
from augpipe.workers import WorkerPool

if TYPE_CHECKING:
    from augpipe.dali.decoder import DaliDecoder, Decoded

logger = logging.getLogger("augpipe")

END_OF_IMAGE = b"\xff\xd9"

MAX_FAILURES = 2
"""How often DALI may fail in a batch with a certain sample before it is no longer given that one; as batches are mixed
anew each epoch, a sound photograph hardly ever stands beside a bad one twice."""

_FEED, _COLLECT = 0, 1


@dataclass(frozen=True, kw_only=True)
class _InFlight:
    """A batch that DALI is decoding."""

    assembly: Assembly
    positions: list[int]
    regions: npt.NDArray[np.int32]
    """(n, 4): left, top, right, bottom."""


class DaliStage:
    """Feeds DALI from one thread of its own; as many batches are under way as the engine works on."""

    def __init__(self, settings: Settings, samples: Samples, *, batch_size: int, device_id: int | None) -> None:
        self._settings = settings
        self._samples = samples
        self._batch_size = batch_size
        self._device_id = device_id
        self._decoder: DaliDecoder | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._failures: Counter[int] = Counter()
        self._pool: WorkerPool | None = None
        self._proceed: Proceed | None = None

    def start(self, proceed: Proceed) -> None:
        """Begin a pass; see `DecodeStage`."""
        self._proceed = proceed
        self._pool = WorkerPool(1)

    def submit(self, assembly: Assembly) -> None:
        """Queue a planned batch; see `DecodeStage`."""
        pool = self._pool
        if pool is None:
            return  # the pass was closed while a thread still read this batch
        # all that is planned is fed before anything is waited for, so that DALI never idles
        pool.submit((_FEED, assembly.request.number), partial(self._guarded, self._feed, assembly))

    def close(self) -> None:
        """End the pass: what DALI still decodes is waited for and dropped."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._proceed = None
        if self._in_flight:
            self._in_flight.clear()
            self._discard_decoder()

    def _guarded(self, step: Proceed, assembly: Assembly) -> None:
        try:
            step(assembly)
        except BaseException as problem:
            for lost in [assembly, *(batch.assembly for batch in self._in_flight)]:
                lost.problems[0] = problem
                lost.done.set()
            self._in_flight.clear()
            self._discard_decoder()  # what it has in flight belongs to nobody any more

    def _feed(self, assembly: Assembly) -> None:
        from augpipe.dali.decoder import DaliDecodeError

        assert self._pool is not None and self._proceed is not None
        positions = [position for position in range(len(assembly.photographs)) if self._takes(assembly, position)]
        if not positions:
            self._proceed(assembly)
            return
        regions = self._regions(assembly, positions)
        photographs = assembly.opened()
        encoded, cuts = [], regions.copy()
        for number, position in enumerate(positions):
            content, first_x, first_y = photographs[position].cut(regions[number])
            encoded.append(content)
            cuts[number] -= np.array([first_x, first_y, first_x, first_y], np.int32)
        if self._decoder is None:
            self._decoder = self._build()
        self._in_flight.append(_InFlight(assembly=assembly, positions=positions, regions=regions))
        try:
            self._decoder.submit(encoded, cuts)
        except DaliDecodeError as problem:
            self._start_anew(problem)
            return
        self._pool.submit((_COLLECT, assembly.request.number), partial(self._guarded, self._collect, assembly))

    def _takes(self, assembly: Assembly, position: int) -> bool:
        photograph = assembly.photographs[position]
        assert photograph is not None and assembly.factors is not None
        return (
            position not in assembly.held
            and isinstance(photograph.content, bytes)
            and photograph.content.endswith(END_OF_IMAGE)  # else it may be cut off, beyond the region that is decoded
            and photograph.may_scale  # a JPEG for libjpeg-turbo, not turned
            and assembly.factors[position] == 1
            and photograph.sample_id not in self._samples.undecodable
            and self._failures[photograph.sample_id] < MAX_FAILURES
        )

    def _regions(self, assembly: Assembly, positions: list[int]) -> npt.NDArray[np.int32]:
        """(n, 4): what the plan looks at of each photograph, or all of it where the cache may take it."""
        opened = assembly.opened()
        photographs = [opened[position] for position in positions]
        heights, widths = np.array([photograph.size for photograph in photographs], np.int64).T
        regions = source_regions([table[positions] for table in assembly.tables], assembly.sizes)
        if assembly.cache is not None:
            for number, photograph in enumerate(photographs):
                if not assembly.cache.has_no_room_for(photograph.sample_id, 1):
                    regions[number] = 0, 0, widths[number], heights[number]
        return regions

    def _collect(self, assembly: Assembly) -> None:
        from augpipe.dali.decoder import DaliDecodeError

        assert self._proceed is not None
        if not self._in_flight:
            return  # it was sent to our own decoder after a failure
        assert self._decoder is not None
        oldest = self._in_flight[0]
        try:
            decoded = self._decoder.collect()
        except DaliDecodeError as problem:
            self._start_anew(problem)
            return
        self._in_flight.popleft()
        self._attach(oldest, decoded)
        self._proceed(oldest.assembly)

    def _attach(self, batch: _InFlight, decoded: "Decoded") -> None:
        assembly = batch.assembly
        assembly.owners.append(decoded.keep)
        for number, (position, (left, top, right, bottom)) in enumerate(
            zip(batch.positions, batch.regions.tolist(), strict=True)
        ):
            if self._device_id is None:
                assembly.regions[position] = Region(pixels=decoded.images[number], first_x=left, first_y=top)
            else:
                assembly.on_device[position] = DevicePixels(
                    address=int(decoded.addresses[number]),
                    height=bottom - top,
                    width=right - left,
                    first_x=left,
                    first_y=top,
                    channels=3,
                )

    def _start_anew(self, problem: Exception) -> None:
        """Send all that DALI was given to our own decoder, and build a new pipeline when the next batch comes."""
        assert self._proceed is not None
        failed = list(self._in_flight)
        self._in_flight.clear()
        opened = failed[0].assembly.opened()
        self._failures.update(opened[position].sample_id for position in failed[0].positions)
        self._discard_decoder()
        logger.info("DALI failed: our own decoder takes what was under way (batches: %d). %s", len(failed), problem)
        for batch in failed:
            self._proceed(batch.assembly)

    def _discard_decoder(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None

    def _build(self) -> "DaliDecoder":
        from augpipe.dali.decoder import DaliDecoder

        return DaliDecoder(
            max_batch_size=self._batch_size,
            num_threads=self._settings.num_threads,
            device_id=self._device_id,
            depth=self._settings.prefetch + 1,
        )
