"""DALI pipelines that decode JPEGs or regions of them, and do nothing else."""

import ctypes
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.dali.install import require_dali
from augpipe.dali.nvjpeg import complaint, loaded_nvjpeg

Pixels = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

HW_DECODER_LOAD = 0.65
"""The part of a batch that a GPU's JPEG engines are given, where it has some; read when a decoder is made. DALI's own
default: 0.65, 0.9 and 1.0 are not measured yet."""


class DaliBuildError(RuntimeError):
    """A pipeline cannot be built, for example where the GPU's memory is full; the message is DALI's reason."""


class DaliDecodeError(RuntimeError):
    """A batch could not be decoded; the message is DALI's reason. The decoder and all it has in flight are lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """One batch of decoded regions: dense RGB, uint8, HWC, in DALI's memory."""

    images: list[Pixels]
    """On the CPU (h, w, 3) views, which own a share of the memory themselves; on a GPU empty."""
    addresses: npt.NDArray[np.int64]
    """(n,) of the first byte of each region, in the memory of the device."""
    shapes: npt.NDArray[np.int64]
    """(n, 2) height and width of each region, in pixels."""
    keep: Any
    """Owns the memory behind `addresses`, and on a GPU what the decoders may still read. On a GPU it must be kept until
    the stream that was given to `collect` has passed the last use of the pixels: once it is dropped, DALI may hand the
    memory to a later batch in the order of its own stream, which does not wait for the caller's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    """What is under way."""

    contents: list[Pixels]
    """The files, which DALI reads where they lie."""
    regions: npt.NDArray[np.int32]
    """(n, 4), as they were submitted."""
    parts: list[tuple[bool, npt.NDArray[np.int64]]]
    """Which pipeline decodes which positions: that of whole images (True), that of regions."""


class DaliDecoder:
    """Decodes regions of baseline and progressive JPEGs, batch after batch, in the order in which they were submitted.

    On the CPU by libjpeg-turbo on DALI's threads; the pixels of a region are those of the whole image there. On a
    GPU by nvJPEG and the hardware decoder, with the colours upsampled smoothly as on the CPU; pixels may differ by
    rounding. Images are never shuffled nor turned by their EXIF orientation.

    An nvJPEG that is too old for regions, and JPEG engines that have none, take images that are asked for as a
    whole, not as a region of that size. So these have a pipeline of their own on a GPU, built when the first one comes:
    the parts of a batch are decoded side by side and put back in order. Such a pipeline starts DALI's
    threads a second time, and holds buffers of its own: 16 MiB of the GPU's memory for each of them.

    To be used from one thread at a time. DALI prints errors of damaged files on stderr; its lowest log level does that.
    """

    def __init__(
        self,
        max_batch_size: int,
        num_threads: int,
        device_id: int | None,
        depth: int,
        *,
        as_on_gpu: bool | None = None,
    ) -> None:
        """Build the pipeline of regions; on the CPU in about 2 ms.

        Args:
            max_batch_size: the most regions in a batch.
            num_threads: CPU threads that DALI starts for a pipeline, on a GPU too.
            device_id: the GPU's index, or None for the CPU.
            depth: the most batches submitted and not yet collected.
            as_on_gpu: whether whole images have a pipeline of their own, and nvJPEG's version counts; None: where
                `device_id` is a GPU. For tests, which have none.

        Raises:
            ImportError: DALI cannot be used; see `install.require_dali`.
            DaliBuildError: the pipeline cannot be built.
        """
        assert max_batch_size > 0 and num_threads > 0 and depth > 0
        self._depth = depth
        self._max_batch_size = max_batch_size
        self._is_on_gpu = device_id is not None
        self._in_flight: deque[_Batch] = deque()
        self._process = os.getpid()
        self._pipelines: dict[bool, Any] = {}
        dali = require_dali(device_id)
        self._build = partial(_build, dali, max_batch_size, num_threads, device_id, depth)
        self._pipelines[False] = self._build(False)
        self.tells_whole = self._is_on_gpu if as_on_gpu is None else as_on_gpu
        """Whether `submit` minds which images are wanted whole."""
        nvjpeg = loaded_nvjpeg() if self.tells_whole else None
        self.takes_regions = nvjpeg is None or nvjpeg.takes_regions
        """Whether nothing is lost by asking for regions. Without nvJPEG nothing is: libjpeg-turbo decodes them."""
        self.complaint = complaint(nvjpeg, int(str(dali.__cuda_version__)[:2])) if self.tells_whole else None
        """What a user ought to know of the nvJPEG that is loaded."""

    def submit(
        self,
        encoded: Sequence[bytes | memoryview],
        regions: npt.NDArray[np.int32],
        whole: Bools | None = None,
    ) -> None:
        """Start decoding a batch and return; at most `depth` batches may be under way.

        Args:
            encoded: 1..max_batch_size whole files; they are kept alive until the batch is collected.
            regions: (n, 4) int32 left, top, right, bottom in pixels of each stored image, right and bottom
                excluded; not empty and within it.
            whole: (n,) whether that is all of it; None: nobody knows. It changes who decodes, and where `tells_whole`
                is False nothing.

        Raises:
            DaliDecodeError: an earlier batch failed.
            DaliBuildError: the pipeline of whole images cannot be built.
        """
        assert self._pipelines, "a decoder is thrown away once it is closed or has failed"
        assert 0 < len(encoded) <= self._max_batch_size and regions.shape == (len(encoded), 4)
        assert len(self._in_flight) < self._depth, "collect a batch before the next is submitted"
        contents = [np.frombuffer(content, np.uint8) for content in encoded]
        if whole is None or not self.tells_whole:
            whole = np.zeros(len(contents), np.bool_)
        parts = [(kind, positions) for kind in (True, False) if len(positions := np.flatnonzero(whole == kind))]
        for is_whole, _ in parts:
            if is_whole not in self._pipelines:
                self._pipelines[is_whole] = self._build(is_whole)
        self._in_flight.append(_Batch(contents=contents, regions=regions, parts=parts))
        try:
            for is_whole, positions in parts:
                pipeline = self._pipelines[is_whole]
                pipeline.feed_input("encoded", [contents[position] for position in positions])
                if not is_whole:
                    chosen = regions[positions]
                    start = chosen[:, 1::-1]
                    pipeline.feed_input("start", np.ascontiguousarray(start, np.int32))
                    pipeline.feed_input("shape", np.ascontiguousarray(chosen[:, :1:-1] - start, np.int32))
                pipeline.schedule_run()
        except Exception as error:
            raise self._failed(_reason(error)) from error

    def collect(self, stream: int | None = None) -> Decoded:
        """Wait for the oldest batch; other Python threads run meanwhile.

        Args:
            stream: on a GPU a cudaStream_t of the decoder's device. That stream is made to wait for the pixels, and the
                host is not. None: the host waits until they are there.

        Raises:
            DaliDecodeError: a file of the batch cannot be decoded, or a region lies outside its image. The caller
                decodes this batch and all others under way another way, and makes a new decoder.
        """
        assert self._pipelines and self._in_flight, "nothing is under way"
        assert stream is None or self._is_on_gpu
        batch = self._in_flight[0]
        outputs: list[Any] = []
        tensors: list[Any] = [None] * len(batch.contents)
        try:
            for is_whole, positions in batch.parts:
                (images,) = self._pipelines[is_whole].share_outputs(cuda_stream=stream)
                self._pipelines[is_whole].release_outputs()
                outputs.append(images)
                for number, position in enumerate(positions):
                    tensors[position] = images[number]
        except Exception as error:
            raise self._failed(_reason(error)) from error
        shapes = np.array([tensor.shape()[:2] for tensor in tensors], np.int64)
        if (shapes != batch.regions[:, 3:1:-1] - batch.regions[:, 1::-1]).any():
            raise self._failed("a photograph that is wanted whole is of another size")
        self._in_flight.popleft()
        return Decoded(
            images=[] if self._is_on_gpu else [np.asarray(tensor) for tensor in tensors],
            addresses=np.array([tensor.data_ptr() for tensor in tensors], np.int64),
            shapes=shapes,
            keep=(*outputs, batch.contents) if self._is_on_gpu else outputs,
        )

    def close(self) -> None:
        """Wait for what is under way, discard it, and end DALI's threads; what was collected stays good.

        In a forked process nothing is ended: the threads are the parent's, and waiting for them hangs or crashes.
        """
        if self._process != os.getpid():
            for pipeline in self._pipelines.values():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipeline))  # never destroyed
        self._pipelines.clear()  # their threads end here, and read the files until then
        self._in_flight.clear()

    def __del__(self) -> None:
        self.close()

    def _failed(self, reason: str) -> DaliDecodeError:
        self.close()
        return DaliDecodeError(reason)


def _build(dali: Any, max_batch_size: int, num_threads: int, device_id: int | None, depth: int, is_whole: bool) -> Any:
    types = dali.types
    options = {
        "device": "cpu" if device_id is None else "mixed",
        "output_type": types.RGB,
        "adjust_orientation": False,
        "jpeg_fancy_upsampling": True,
    }
    if device_id is not None:
        options["hw_decoder_load"] = HW_DECODER_LOAD
    # Without pipelining each schedule_run takes exactly the batch that was fed. The dynamic executor, which has to be
    # asked for by name then, leaves collected batches alone as long as Python holds them.
    pipeline = dali.Pipeline(
        max_batch_size, num_threads, device_id, exec_pipelined=False, exec_dynamic=True, prefetch_queue_depth=depth
    )
    with pipeline:
        encoded = dali.fn.external_source(name="encoded", dtype=types.UINT8, ndim=1, no_copy=True)
        if is_whole:
            pixels = dali.fn.decoders.image(encoded, **options)
        else:
            start = dali.fn.external_source(name="start", dtype=types.INT32, ndim=1)
            shape = dali.fn.external_source(name="shape", dtype=types.INT32, ndim=1)
            pixels = dali.fn.decoders.image_slice(encoded, start=start, shape=shape, axes=(0, 1), **options)
        pipeline.set_outputs(pixels)
    try:
        pipeline.build()
    except Exception as error:
        raise DaliBuildError(_reason(error)) from error
    return pipeline


def _reason(error: Exception) -> str:
    """What DALI's message says between its introduction, with a traceback, and its notes."""
    text = str(error).rpartition("encountered:")[2]
    lines = (line.strip() for line in text.splitlines())
    noise = ("Critical error in pipeline", "Current pipeline object is no longer valid", "C++ context:")
    told = " ".join(line for line in lines if line and not line.startswith(noise))
    return told.rstrip(" :") or type(error).__name__
