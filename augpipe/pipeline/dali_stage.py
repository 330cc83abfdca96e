"""The stage that has DALI decode what it decodes as we do; all else is left to our own decoder.

DALI is given the JPEGs that libjpeg-turbo takes, at full size and not turned by EXIF, and of each only the region that
the plan looks at. A batch in which DALI fails goes through our own decoder whole, which finds the images that are
to blame and treats them as `on_error` says; nothing is looked at twice as long as all is well.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from augpipe.cache import PixelCache
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.native.workers import WorkerPool
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.samples import Samples

if TYPE_CHECKING:
    from augpipe.dali.decoder import DaliDecoder, Decoded

logger = logging.getLogger("augpipe")

END_OF_IMAGE = b"\xff\xd9"

MAX_FAILURES = 2
"""How often DALI may fail in a batch with a certain sample before it is no longer given that one; as batches are mixed
again each epoch, a sound image hardly ever stands next to a bad one twice."""

_FEED, _COLLECT = 0, 1


@dataclass(frozen=True, kw_only=True)
class _InFlight:
    """A batch that DALI is decoding."""

    batch: BatchInProgress
    items: list[Item]
    regions: npt.NDArray[np.int32]
    """(n, 4): left, top, right, bottom."""


class DaliStage:
    """Feeds DALI from one thread of its own; as many batches are under way as are made at a time."""

    def __init__(
        self,
        settings: Settings,
        samples: Samples,
        cache: PixelCache | None,
        *,
        batch_size: int,
        device_id: int | None,
    ) -> None:
        self._settings = settings
        self._samples = samples
        self._cache = cache
        self._batch_size = batch_size
        self._device_id = device_id
        self._decoder: DaliDecoder | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._failures: Counter[int] = Counter()
        self._pool: WorkerPool | None = None
        self._proceed: Callable[[BatchInProgress], None] | None = None
        self._has_complained = False

    def start(self, proceed: Callable[[BatchInProgress], None]) -> None:
        """Begin a pass; `proceed` is called with every batch that was submitted, from any thread."""
        self._proceed = proceed
        self._pool = WorkerPool(1)

    def submit(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Queue a planned batch, to give those of its items pixels that DALI decodes as we do."""
        pool = self._pool
        if pool is None:
            return  # the pass was closed while a thread still read this batch
        # all that is planned is fed before anything is waited for, so that DALI never idles
        pool.submit((_FEED, batch.request.number), partial(self._guarded, self._feed, batch))

    def close(self) -> None:
        """End the pass: what DALI still decodes is waited for and dropped."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._proceed = None
        if self._in_flight:
            self._in_flight.clear()
            self._discard_decoder()

    def _guarded(self, step: Callable[[BatchInProgress], None], batch: BatchInProgress) -> None:
        try:
            step(batch)
        except BaseException as problem:
            for lost in [batch, *(each.batch for each in self._in_flight)]:
                lost.error = problem
                lost.done.set()
            self._in_flight.clear()
            self._discard_decoder()  # what it has in flight belongs to nobody any more

    def _feed(self, batch: BatchInProgress) -> None:
        from augpipe.dali.decoder import DaliDecodeError

        assert self._pool is not None and self._proceed is not None
        items = [item for item in batch.items if self._takes(item)]
        if not items:
            self._proceed(batch)
            return
        if self._decoder is None:
            self._decoder = self._build()
            self._complain(self._decoder)
        regions, whole = self._regions(items, self._decoder.takes_regions)
        encoded = [content for item in items if isinstance(content := item.opened.content, bytes)]
        self._in_flight.append(_InFlight(batch=batch, items=items, regions=regions))
        try:
            self._decoder.submit(encoded, regions, whole)
        except DaliDecodeError as problem:
            self._start_anew(problem)
            return
        self._pool.submit((_COLLECT, batch.request.number), partial(self._guarded, self._collect, batch))

    def _takes(self, item: Item) -> bool:
        image = item.opened
        return (
            item.pixels is None
            and isinstance(image.content, bytes)
            and image.content.endswith(END_OF_IMAGE)  # else it may be cut off, beyond the region that is decoded
            and image.may_scale  # a JPEG for libjpeg-turbo, not turned
            and item.factor == 1
            and image.sample_id not in self._samples.unusable
            and self._failures[image.sample_id] < MAX_FAILURES
            and not self._is_for_host(image.sample_id)
        )

    def _is_for_host(self, sample_id: int) -> bool:
        """Whether a cache in host memory may take the image: what DALI decodes on a device does not come back to it."""
        if self._device_id is None or self._cache is None or not self._cache.is_on_host:
            return False
        return not self._cache.has_no_room_for(sample_id, 1)

    def _regions(
        self, items: Sequence[Item], takes_regions: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """(n, 4): what the plan looks at of each image, or all of it where the cache may take it or the decoder should
        not be asked for less; and (n,) whether an image is decoded as it is stored, whole."""
        images = [item.opened for item in items]
        heights, widths = np.array([image.size for image in images], np.int32).T
        everything = np.stack([np.zeros_like(widths), np.zeros_like(heights), widths, heights], axis=1)
        regions = np.array([item.region for item in items], np.int32)
        wanted = np.full(len(items), not takes_regions)
        if self._cache is not None:
            wanted |= [not self._cache.has_no_room_for(image.sample_id, 1) for image in images]
        regions[wanted] = everything[wanted]
        return regions, (regions == everything).all(axis=1)

    def _collect(self, _: BatchInProgress) -> None:
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
        self._proceed(oldest.batch)

    def _attach(self, oldest: _InFlight, decoded: "Decoded") -> None:
        oldest.batch.owners.append(decoded.keep)
        for number, (item, (left, top, right, bottom)) in enumerate(
            zip(oldest.items, oldest.regions.tolist(), strict=True)
        ):
            if self._device_id is None:
                item.pixels = LocatedPixels.of(decoded.images[number], left, top)
            else:
                item.pixels = LocatedPixels(
                    address=int(decoded.addresses[number]),
                    height=bottom - top,
                    width=right - left,
                    first_x=left,
                    first_y=top,
                    channels=3,
                    owner=decoded,
                )

    def _start_anew(self, problem: Exception) -> None:
        """Send all that DALI was given to our own decoder, and build a new pipeline when the next batch comes."""
        assert self._proceed is not None
        failed = list(self._in_flight)
        self._in_flight.clear()
        self._failures.update(item.opened.sample_id for item in failed[0].items)
        self._discard_decoder()
        logger.info("DALI failed: our own decoder takes what was under way (batches: %d). %s", len(failed), problem)
        for lost in failed:
            self._proceed(lost.batch)

    def _discard_decoder(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None

    def _complain(self, decoder: "DaliDecoder") -> None:
        """Say once, not for each decoder, where nvJPEG is not what it could be."""
        if decoder.complaint is not None and not self._has_complained:
            self._has_complained = True
            logger.warning("%s", decoder.complaint)

    def _build(self) -> "DaliDecoder":
        from augpipe.dali.decoder import DaliDecoder

        return DaliDecoder(
            max_batch_size=self._batch_size,
            num_threads=self._settings.num_threads,
            device_id=self._device_id,
            depth=self._settings.prefetch + 1,
        )
