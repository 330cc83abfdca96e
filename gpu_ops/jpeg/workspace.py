"""What a thread decodes JPEGs with: its memory, and the points that it notes on the way."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite.binding import get_host_cpu_features

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.jpeg.decode_and_render import RESULT, render_files
from augpipe.gpu_ops.jpeg.decode_region import SMALL, decode_region
from augpipe.gpu_ops.jpeg.entropy import READER_ITEMS
from augpipe.gpu_ops.jpeg.header import FRAME_ITEMS, HEIGHT, LEFT, MAY_BE_TURNED, TAKEN, WIDTH, read_header
from augpipe.gpu_ops.jpeg.huffman import NUM_TABLES, PAIR_BITS, SKIP_BITS, SYMBOL_BITS
from augpipe.gpu_ops.jpeg.layout import (
    COEFFICIENTS,
    COLUMNS,
    EXTENT_ITEMS,
    INTERVALS,
    LAYER_ITEMS,
    PLANES,
    POINTS,
    STREAM,
    STUFFED,
)
from augpipe.gpu_ops.jpeg.points import KNOWN_ITEMS, POINTS_A_ROW
from augpipe.gpu_ops.jpeg.transform import BETWEEN_ITEMS

HAS_WIDE_VECTORS = bool(get_host_cpu_features().get("avx2"))
"""Whether this CPU decodes so faster than libjpeg-turbo does; measured with AVX2 alone."""

MAX_FILES = 8
"""How many one call renders: their points lie side by side until it is over."""


_ROW = np.zeros(1, KERNEL_ROW)


class Points(NamedTuple):
    """What is known of where a file's MCUs begin; see `points`."""

    row_step: int
    """Rows of MCUs from one that has points to the next."""
    column_step: int
    """MCUs from a point to the next one of its row."""
    num_rows: int
    """For how many rows of MCUs, from the first one on, all points are here."""
    positions: npt.NDArray[np.uint32]
    """(n,) bits of the scan."""
    predictors: npt.NDArray[np.int16]
    """(n, 3) levels of DC, one for each component."""


NO_POINTS = Points(0, 0, 0, np.empty(0, np.uint32), np.empty((0, 3), np.int16))


class File(NamedTuple):
    """A JPEG that becomes an image of a batch."""

    content: npt.NDArray[np.uint8]
    """(n,) uint8, the whole file."""
    size: tuple[int, int]
    """Height and width in pixels, as another reader of the header found."""
    factor: int
    """The DCT factor that it is decoded at: 1, 2, 4 or 8."""
    region: Sequence[int]
    """Left, top, right, bottom of what its views look at, at 1/`factor`."""
    position: int
    """Its place in the batch."""
    known: Points
    """The file's own points."""

    @property
    def region_bytes(self) -> int:
        """What its region takes as RGBX."""
        left, top, right, bottom = self.region
        return (right - left) * (bottom - top) * 4


class View(NamedTuple):
    """One of the images that a batch has of each of its samples."""

    rows: npt.NDArray[np.void]
    """(B,) of a type that begins with a `gpu_ops.image.rows.KERNEL_ROW`; what follows it is not looked at."""
    batch: npt.NDArray[Any]
    """(B * height * width * 3,) float32 or uint8, written."""
    height: int
    """Height and width of an image, in pixels."""
    width: int


class Workspace:
    """What one thread decodes with; it grows with the images that it meets.

    Args:
        empty: makes its memory, (num,) of a dtype with any content; for tests.
    """

    def __init__(self, empty: Callable[[int, type[np.generic]], npt.NDArray[Any]] = np.empty) -> None:
        self._empty = empty
        self._region, self._size = np.zeros(4, np.int64), np.zeros(3, np.int64)
        self._needed, self._known = np.zeros(7, np.int64), np.zeros((MAX_FILES, KNOWN_ITEMS), np.int64)
        self._tables = (
            np.zeros(FRAME_ITEMS, np.int64),
            np.zeros(EXTENT_ITEMS, np.int64),
            np.zeros(READER_ITEMS, np.int64),
            np.zeros((NUM_TABLES, 17), np.uint8),
            np.zeros((NUM_TABLES, 256), np.uint8),
            np.zeros((4, 64), np.int32),
            np.zeros(NUM_TABLES << SYMBOL_BITS, np.uint32),
            np.zeros((NUM_TABLES, 2, 17), np.int64),
            np.zeros(NUM_TABLES // 2 << PAIR_BITS, np.uint64),
            np.zeros(NUM_TABLES // 2 << SKIP_BITS, np.uint16),
            np.zeros((6, 6), np.int64),
            np.zeros((4, LAYER_ITEMS), np.int64),
            np.zeros(BETWEEN_ITEMS, np.int32),
        )
        frame, _, _, counts, values, quantization, *_ = self._tables
        self._header = frame, quantization, counts, values
        self._sizes = [1 << 14] * len(self._needed)
        self._memory, self._positions, self._predictors = self._of_sizes()

    def size(self, file: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
        """Height and width of a JPEG that may be decoded and that nothing in it says to turn, by its header; else None.

        Args:
            file: (n,) uint8, the whole file.
        """
        if read_header(*self._to_read(_read_only(file))) == LEFT:
            return None
        frame = self._header[0].tolist()
        return None if frame[MAY_BE_TURNED] else (frame[HEIGHT], frame[WIDTH])

    def decode(
        self,
        file: npt.NDArray[np.uint8],
        height: int,
        width: int,
        region: tuple[int, int, int, int],
        out: npt.NDArray[np.uint8],
        known: Points = NO_POINTS,
        max_points: int = 0,
        factor: int = 1,
    ) -> bool:
        """Decode a region to RGBX as libjpeg-turbo would, without the GIL, from one thread at a time.

        Args:
            file: (n,) uint8, the whole file.
            height: in pixels, as another reader of the header found; one that says otherwise is not decoded.
            width: as above.
            region: left, top, right, bottom in pixels at 1/`factor`, right and bottom excluded. Where it is empty all
                codes are read, and nothing is written.
            out: (4 * pixels of the region,) uint8 or more, C-contiguous, filled; its address is a multiple of 4.
            known: points of this very file, which are made use of.
            max_points: how many points may be noted of a file of which none are known.
            factor: 1, 2, 4 or 8: the inverse DCT at 1/`factor` of the size.

        Returns:
            False where the file is to be left to libjpeg-turbo, since it is of another kind, or damaged; what `out`
            holds then is undefined.
        """
        self._region[:], self._size[:] = region, (height, width, factor)
        pixels = out[: len(out) // 4 * 4].view(np.uint32)
        file = _read_only(file)
        while True:
            self._set_known([known], max_points)
            result = decode_region(*self._to_decode(file, pixels))
            if result != SMALL:
                return bool(result == TAKEN)
            self._grow(self._needed.tolist())

    def render(
        self,
        files: Sequence[File],
        views: Sequence[View],
        pixels: npt.NDArray[np.uint8],
        *,
        planar: bool,
        max_points: int = 0,
    ) -> list[bool]:
        """Decode files as `decode` does, one after the other, and render each one's views into a batch, in one call.

        Args:
            files: `MAX_FILES` of them at most, and one at least.
            views: of the batch.
            pixels: (4 * pixels of the largest region,) uint8, overwritten; its address is a multiple of 4.
            planar: see `gpu_ops.image.fused.run_jobs`.
            max_points: see `decode`.

        Returns:
            For each file whether its images are finished. Else nothing was rendered, as it is to be left to
            libjpeg-turbo, or takes more memory than this thread's has grown to: `decode` says which.
        """
        self._set_known([file.known for file in files], max_points)
        jobs = np.array(
            [
                (content.ctypes.data, len(content), *size, factor, *region, position, LEFT)
                for content, size, factor, region, position, _ in files
            ],
            np.int64,
        )
        assert all(view.rows.flags.c_contiguous and view.batch.flags.c_contiguous for view in views)
        targets = np.array(
            [(rows.ctypes.data, rows.itemsize, batch.ctypes.data, *size) for rows, batch, *size in views], np.int64
        )
        like = _read_only(files[0].content), _ROW, views[0].batch
        render_files(jobs, targets, planar, like, pixels.view(np.uint32), *self._to_render())
        are_taken: list[bool] = (jobs[:, RESULT] == TAKEN).tolist()
        return are_taken

    def points(self, nth: int = 0) -> Points:
        """What is known of the nth file of those that were decoded last, with success; valid until the next ones."""
        row_step, column_step, num_rows, _, points_a_row = self._known[nth, : POINTS_A_ROW + 1].tolist()
        num = -(-num_rows // row_step) * points_a_row if row_step else 0
        return Points(row_step, column_step, num_rows, self._positions[nth][:num], self._predictors[nth][:num])

    def _to_read(self, file: npt.NDArray[np.uint8]) -> tuple[Any, ...]:
        """The arguments of `read_header`."""
        return file, *self._header

    def _to_decode(self, file: npt.NDArray[np.uint8], pixels: npt.NDArray[np.uint32]) -> tuple[Any, ...]:
        """The arguments of `decode_region`."""
        points = self._known[0], self._positions[0], self._predictors[0]
        return file, self._region, self._size, pixels, *points, *self._tables, self._needed, *self._memory

    def _to_render(self) -> tuple[Any, Any]:
        """The last arguments of `render_files`."""
        points = self._known, self._positions, self._predictors
        return points, (*self._tables, self._needed, *self._memory)

    def _set_known(self, known: Sequence[Points], max_points: int) -> None:
        """Lay the points of files side by side where they are known, and else say how many there may be."""
        nums = [len(points.positions) for points in known]
        if max(nums) > self._sizes[POINTS]:
            self._grow([*self._sizes[:POINTS], max(nums)])
        self._known[: len(known)] = [
            ((*points[:3], num) if num else (0, 0, 0, max_points)) + (0,) * (KNOWN_ITEMS - 4)
            for points, num in zip(known, nums, strict=True)
        ]
        for nth, (points, num) in enumerate(zip(known, nums, strict=True)):
            self._positions[nth][:num], self._predictors[nth][:num] = points.positions, points.predictors

    def _grow(self, needed: Sequence[int]) -> None:
        """A quarter more of what is too small: the next image may be a little larger."""
        self._sizes = [held if held >= need else need * 5 // 4 for held, need in zip(self._sizes, needed, strict=True)]
        self._memory, self._positions, self._predictors = self._of_sizes()

    def _of_sizes(self) -> tuple[tuple[Any, ...], ...]:
        """The stream, intervals, coefficients, planes as words of 1, 2, 4 and 8 bytes, sums, doubled columns as words
        and bytes, and stuffed zeros; the positions of each file; the predictors of each."""
        sizes = self._sizes
        planes, doubled = self._empty(sizes[PLANES], np.uint64), self._empty(2 * sizes[COLUMNS], np.uint16)
        memory = (
            self._empty(sizes[STREAM], np.uint8),
            self._empty(sizes[INTERVALS], np.int64),
            self._empty(sizes[COEFFICIENTS], np.int16),
            tuple(planes.view(dtype) for dtype in (np.uint8, np.uint16, np.uint32, np.uint64)),
            self._empty(sizes[COLUMNS], np.int16),
            doubled.reshape(2, -1),
            doubled.view(np.uint8).reshape(2, -1),
            self._empty(sizes[STUFFED], np.uint32),
        )
        positions = [self._empty(sizes[POINTS], np.uint32) for _ in range(MAX_FILES)]
        predictors = [self._empty(3 * sizes[POINTS], np.int16).reshape(-1, 3) for _ in range(MAX_FILES)]
        return memory, tuple(positions), tuple(predictors)


def _read_only(file: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The same bytes as numba compiles for, which takes memory that may be written for another type."""
    file = file.view()
    file.flags.writeable = False
    return file


def _a_file() -> npt.NDArray[np.uint8]:
    return _read_only(np.zeros(1, np.uint8))


def _rendering(dtype: type[np.generic]) -> tuple[Any, ...]:
    like = _a_file(), np.zeros(1, KERNEL_ROW), np.zeros(1, dtype)
    jobs, targets = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    return jobs, targets, True, like, np.zeros(1, np.uint32), *Workspace()._to_render()


declare(__name__, read_header, any=lambda: Workspace()._to_read(_a_file()))
declare(__name__, decode_region, any=lambda: Workspace()._to_decode(_a_file(), np.zeros(1, np.uint32)))
declare(__name__, render_files, float32=lambda: _rendering(np.float32), uint8=lambda: _rendering(np.uint8))
