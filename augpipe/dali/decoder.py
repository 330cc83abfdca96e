"""A DALI pipeline that decodes regions of JPEGs, and does nothing else."""

import ctypes
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.dali.install import require_dali

Pixels = npt.NDArray[np.uint8]


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
    """Owns the memory behind `addresses`, and on a GPU what the decoder may still read. On a GPU it must be kept until
    the stream that was given to `collect` has passed the last use of the pixels: once it is dropped, DALI may hand the
    memory to a later batch in the order of its own stream, which does not wait for the caller's."""


class DaliDecoder:
    """Decodes regions of baseline and progressive JPEGs, batch after batch, in the order in which they were submitted.

    On the CPU by libjpeg-turbo on DALI's threads; the pixels of a region are those of the whole photograph there. On a
    GPU by nvJPEG and the hardware decoder, with the colours upsampled smoothly as on the CPU; pixels may differ by
    rounding. Photographs are never shuffled nor turned by their EXIF orientation.

    To be used from one thread at a time. DALI prints errors of damaged files on stderr; its lowest log level does that.
    """

    def __init__(self, max_batch_size: int, num_threads: int, device_id: int | None, depth: int) -> None:
        """Build the pipeline; on the CPU in about 2 ms.

        Args:
            max_batch_size: the most regions in a batch.
            num_threads: CPU threads that DALI starts, on a GPU too.
            device_id: the GPU's index, or None for the CPU.
            depth: the most batches submitted and not yet collected.

        Raises:
            ImportError: DALI cannot be used; see `install.require_dali`.
            DaliDecodeError: the pipeline cannot be built, for example where the GPU's memory is full.
        """
        assert max_batch_size > 0 and num_threads > 0 and depth > 0
        self._depth = depth
        self._max_batch_size = max_batch_size
        self._is_on_gpu = device_id is not None
        self._in_flight: deque[list[Pixels]] = deque()
        self._process = os.getpid()
        self._pipeline: Any = None
        self._pipeline = _build(require_dali(device_id), max_batch_size, num_threads, device_id, depth)

    def submit(self, encoded: Sequence[bytes | memoryview], regions: npt.NDArray[np.int32]) -> None:
        """Start decoding a batch and return; at most `depth` batches may be under way.

        Args:
            encoded: 1..max_batch_size whole files; they are kept alive until the batch is collected.
            regions: (n, 4) int32 left, top, right, bottom in pixels of each stored photograph, right and bottom
                excluded; not empty and within it.

        Raises:
            DaliDecodeError: an earlier batch failed.
        """
        assert self._pipeline is not None, "a decoder is thrown away once it is closed or has failed"
        assert 0 < len(encoded) <= self._max_batch_size and regions.shape == (len(encoded), 4)
        assert len(self._in_flight) < self._depth, "collect a batch before the next is submitted"
        contents = [np.frombuffer(content, np.uint8) for content in encoded]
        start = regions[:, 1::-1]
        try:
            self._pipeline.feed_input("encoded", contents)
            self._pipeline.feed_input("start", np.ascontiguousarray(start, np.int32))
            self._pipeline.feed_input("shape", np.ascontiguousarray(regions[:, :1:-1] - start, np.int32))
            self._in_flight.append(contents)
            self._pipeline.schedule_run()
        except Exception as error:
            raise self._failed(error) from error

    def collect(self, stream: int | None = None) -> Decoded:
        """Wait for the oldest batch; other Python threads run meanwhile.

        Args:
            stream: on a GPU a cudaStream_t of the decoder's device. That stream is made to wait for the pixels, and the
                host is not. None: the host waits until they are there.

        Raises:
            DaliDecodeError: a file of the batch cannot be decoded, or a region lies outside its photograph. The caller
                decodes this batch and all others under way another way, and makes a new decoder.
        """
        assert self._pipeline is not None and self._in_flight, "nothing is under way"
        assert stream is None or self._is_on_gpu
        try:
            (regions,) = self._pipeline.share_outputs(cuda_stream=stream)
            self._pipeline.release_outputs()
        except Exception as error:
            raise self._failed(error) from error
        contents = self._in_flight.popleft()
        tensors = [regions[i] for i in range(len(contents))]
        return Decoded(
            images=[] if self._is_on_gpu else [np.asarray(tensor) for tensor in tensors],
            addresses=np.array([tensor.data_ptr() for tensor in tensors], np.int64),
            shapes=np.array([tensor.shape()[:2] for tensor in tensors], np.int64),
            keep=(regions, contents) if self._is_on_gpu else regions,
        )

    def close(self) -> None:
        """Wait for what is under way, discard it, and end DALI's threads; what was collected stays good.

        In a forked process nothing is ended: the threads are the parent's, and waiting for them hangs or crashes.
        """
        if self._pipeline is not None and self._process != os.getpid():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._pipeline))  # never destroyed
        self._pipeline = None  # its threads end here, and read the files until then
        self._in_flight.clear()

    def __del__(self) -> None:
        self.close()

    def _failed(self, error: Exception) -> DaliDecodeError:
        self.close()
        return DaliDecodeError(_reason(error))


def _build(dali: Any, max_batch_size: int, num_threads: int, device_id: int | None, depth: int) -> Any:
    types = dali.types
    # Without pipelining each schedule_run takes exactly the batch that was fed. The dynamic executor, which has to be
    # asked for by name then, leaves collected batches alone as long as Python holds them.
    pipeline = dali.Pipeline(
        max_batch_size, num_threads, device_id, exec_pipelined=False, exec_dynamic=True, prefetch_queue_depth=depth
    )
    with pipeline:
        encoded = dali.fn.external_source(name="encoded", dtype=types.UINT8, ndim=1, no_copy=True)
        start = dali.fn.external_source(name="start", dtype=types.INT32, ndim=1)
        shape = dali.fn.external_source(name="shape", dtype=types.INT32, ndim=1)
        pixels = dali.fn.decoders.image_slice(
            encoded,
            start=start,
            shape=shape,
            axes=(0, 1),
            device="cpu" if device_id is None else "mixed",
            output_type=types.RGB,
            adjust_orientation=False,
            jpeg_fancy_upsampling=True,
        )
        pipeline.set_outputs(pixels)
    try:
        pipeline.build()
    except Exception as error:
        raise DaliDecodeError(_reason(error)) from error
    return pipeline


def _reason(error: Exception) -> str:
    """What DALI's message says between its introduction, with a traceback, and its notes."""
    text = str(error).rpartition("encountered:")[2]
    lines = (line.strip() for line in text.splitlines())
    noise = ("Critical error in pipeline", "Current pipeline object is no longer valid", "C++ context:")
    told = " ".join(line for line in lines if line and not line.startswith(noise))
    return told.rstrip(" :") or type(error).__name__
