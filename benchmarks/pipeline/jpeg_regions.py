"""What a region of a JPEG costs by our own decoder beside a whole decode by libjpeg-turbo.

Into RGBX, on one thread: whole, and what a RandomResizedCrop, and crops of 224 at a random place of scales 256 and 512
that are turned by up to ten degrees, look at; all that with the photograph's row index, too, and making that. Whole and
the first of these rectangles at half the size, too, over libjpeg-turbo's whole decode at half the size.
"""

from collections.abc import Callable

import numpy as np
import simplejpeg

from augpipe import Recipe, plan
from augpipe.decoding.row_index import FileSum, row_index_of, unpack
from augpipe.gpu_ops.jpeg.workspace import Workspace
from augpipe.ops import MultiResolutionCrop, Op, RandomResizedCrop, Rotate
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.regions import source_regions
from benchmarks.harness import Bench

Region = tuple[int, int, int, int]


def whole_by_libjpeg(data: bytes, buffer: object | None = None, *, strict: bool = True) -> np.ndarray:
    pixels: np.ndarray = simplejpeg.decode_jpeg(
        data, "RGBX", fastdct=False, fastupsample=False, buffer=buffer, strict=strict
    )
    return pixels


def whole_at_half(data: bytes, height: int, width: int, out: np.ndarray) -> None:
    least = {"min_height": -(-height // 2), "min_width": -(-width // 2)}
    num_bytes = least["min_height"] * least["min_width"] * 4
    simplejpeg.decode_jpeg(
        data, "RGBX", fastdct=False, fastupsample=False, buffer=out[:num_bytes], strict=True, **least
    )


def regions_of(ops: tuple[Op, ...], sizes: list[tuple[int, int]], factor: int = 1) -> list[Region]:
    """What a recipe for 224 pixels a side, or 224/`factor`, looks at of each image at 1/`factor`."""
    drawn = plan(Recipe(ops=ops), range(len(sizes)), sizes=sizes)
    tables = [kernel_rows(drawn.rows, np.full(len(sizes), factor))]
    boxes = source_regions(tables, [(224 // factor, 224 // factor)]).tolist()
    return [(left, top, right, bottom) for left, top, right, bottom in boxes]


def main() -> None:
    bench = Bench(__doc__, rounds=15)
    files, origin = bench.photographs()
    sizes = [whole_by_libjpeg(data).shape[:2] for data in files]
    scales = {
        f"224 of {scale}": (Rotate(max_deg=10), MultiResolutionCrop(size=224, scales=(scale,))) for scale in (256, 512)
    }
    ops: dict[str, tuple[Op, ...]] = {"RandomResizedCrop": (RandomResizedCrop(size=224),)} | scales
    regions = {"whole": [(0, 0, width, height) for height, width in sizes]}
    regions |= {name: regions_of(of, sizes) for name, of in ops.items()}
    decoder, out = Workspace(), np.empty(max(height * width for height, width in sizes) * 4, np.uint8)
    arrays = [np.frombuffer(data, np.uint8) for data in files]

    def libjpegs() -> int:
        for data, (height, width) in zip(files, sizes, strict=True):
            whole_by_libjpeg(data, out[: height * width * 4])
        return len(files)

    def libjpegs_halves() -> int:
        for data, size in zip(files, sizes, strict=True):
            whole_at_half(data, *size, out)
        return len(files)

    def ours(boxes: list[Region], factor: int = 1) -> Callable[[], int]:
        def contender() -> int:
            for file, size, box in zip(arrays, sizes, boxes, strict=True):
                decoder.decode(file, *size, box, out, factor=factor)
            return len(files)

        return contender

    def by_index(boxes: list[Region], factor: int = 1) -> Callable[[], int]:
        def contender() -> int:
            for data, file, index, size, box in zip(files, arrays, indexes, sizes, boxes, strict=True):
                decoder.decode(file, *size, box, out, unpack(index, FileSum.of(data)), factor=factor)
            return len(files)

        return contender

    def indexing() -> int:
        for data, size in zip(files, sizes, strict=True):
            row_index_of(data, *size)
        return len(files)

    indexes = [row_index_of(data, *size) for data, size in zip(files, sizes, strict=True)]
    contenders = {"libjpeg-turbo, whole": libjpegs, "row indexes": indexing}
    contenders |= {name: ours(boxes) for name, boxes in regions.items()}
    contenders |= {f"{name}, by row index": by_index(boxes) for name, boxes in regions.items() if name != "whole"}
    half = regions_of((RandomResizedCrop(size=112),), sizes, 2)
    halves = {
        "whole at 1/2": ours([(0, 0, -(-width // 2), -(-height // 2)) for height, width in sizes], 2),
        "RandomResizedCrop at 1/2": ours(half, 2),
        "RandomResizedCrop at 1/2, by row index": by_index(half, 2),
    }
    seconds = bench.in_turn(contenders | halves | {"libjpeg-turbo, whole at 1/2": libjpegs_halves})
    areas = {
        name: sum((right - left) * (bottom - top) for left, top, right, bottom in boxes)
        for name, boxes in regions.items()
    }
    pairs = {"libjpeg-turbo, whole": contenders, "libjpeg-turbo, whole at 1/2": halves}
    bench.report(
        "jpeg_regions",
        what=f"milliseconds an image into RGBX on one thread, {origin}",
        seconds=seconds,
        unit="ms",
        ratios={f"{name} over {base}": (name, base) for base, names in pairs.items() for name in names if name != base},
        **{
            "bytes of a row index": round(sum(map(len, indexes)) / len(indexes)),
            "share of the pixels": {name: round(area / areas["whole"], 3) for name, area in areas.items()},
        },
    )


if __name__ == "__main__":
    main()
