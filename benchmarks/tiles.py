"""What a tile-addressable JPEG costs and saves: bytes, reading its table, cutting a crop out, decoding it.

Images at 512 pixels on the short side, quality 90, 4:2:0; crops of 224x224 at random places; one thread.
"""

import io
import random
import statistics
from collections.abc import Callable

from common import in_turn, photographs, ratio, save, summary
from PIL import Image

from augpipe.datasets.shards.encode import TILE, encode_tiled
from augpipe.decoding import MAX_PIXELS, Tiles, decode, probe

NUM_IMAGES = 120
SHORT_SIDE, CROP, QUALITY = 512, 224, 90
ROUNDS = 15
TILE_WIDTHS = (48, 64, 96, 128, 192)
"""At 16 rows each; 64 is the default."""


def resized(encoded: list[bytes]) -> list[Image.Image]:
    """RGB at `SHORT_SIDE`; gray images come out as colour, so that all files have the same kind of MCU."""
    images = []
    for data in encoded:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        scale = SHORT_SIDE / min(image.size)
        size = round(image.width * scale), round(image.height * scale)
        images.append(image.resize(size, Image.Resampling.LANCZOS))
    return images


def plain_jpeg(image: Image.Image, **options: bool) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, subsampling="4:2:0", **options)
    return file.getvalue()


def each(work: Callable[[int], object]) -> Callable[[], int]:
    """A contender that does its work for every image."""

    def contender() -> int:
        for number in range(NUM_IMAGES):
            work(number)
        return NUM_IMAGES

    return contender


def tiles_of(data: bytes) -> Tiles:
    tiles = probe(data, max_pixels=MAX_PIXELS).tiles
    assert tiles is not None
    return tiles


def main() -> None:
    encoded, origin = photographs()
    images = resized((encoded * NUM_IMAGES)[:NUM_IMAGES])
    rng = random.Random(0)
    corners = [(rng.randint(0, image.width - CROP), rng.randint(0, image.height - CROP)) for image in images]
    crops = [(left, top, left + CROP, top + CROP) for left, top in corners]
    plain = [plain_jpeg(image) for image in images]
    headers = [probe(data, max_pixels=MAX_PIXELS) for data in plain]
    plain_bytes = sum(map(len, plain))

    contenders = {
        "probe plain": each(lambda i: probe(plain[i], max_pixels=MAX_PIXELS)),
        "whole plain": each(lambda i: decode(plain[i], headers[i])),
        "encode plain": each(lambda i: plain_jpeg(images[i])),
        "encode tiled": each(lambda i: encode_tiled(images[i], QUALITY)),
    }
    sizes: dict[str, dict[str, float]] = {}
    for tile_width in TILE_WIDTHS:
        files = [encode_tiled(image, QUALITY, tile=(tile_width, TILE[1])) for image in images]
        found = [probe(data, max_pixels=MAX_PIXELS) for data in files]
        tiles = [tiles_of(data) for data in files]
        cuts = [one.extract(data, *crop) for one, data, crop in zip(tiles, files, crops, strict=True)]
        cut_headers = [probe(cut.jpeg, max_pixels=MAX_PIXELS) for cut in cuts]
        name = f"{tile_width}x{TILE[1]}"

        def extract(i: int, files: list[bytes] = files, tiles: list[Tiles] = tiles) -> object:
            return tiles[i].extract(files[i], *crops[i])

        contenders |= {
            f"probe {name}": each(lambda i, files=files: probe(files[i], max_pixels=MAX_PIXELS)),
            f"extract {name}": each(extract),
            f"whole {name}": each(lambda i, files=files, found=found: decode(files[i], found[i])),
            f"region {name}": each(lambda i, cuts=cuts, of=cut_headers: decode(cuts[i].jpeg, of[i])),
        }
        padding = [one.stored_width - one.width for one in tiles]
        sizes[name] = {
            "file over plain": round(sum(map(len, files)) / plain_bytes, 4),
            "read over file": round(sum(len(cut.jpeg) for cut in cuts) / sum(map(len, files)), 3),
            "pixels decoded over crop": round(
                statistics.mean(cut.height * cut.width for cut in cuts) / CROP**2,
                3,
            ),
            "columns padded, mean": round(statistics.mean(padding), 2),
            "columns padded, most": max(padding),
            "files padded": sum(columns > 0 for columns in padding),
        }
    seconds = in_turn(contenders, ROUNDS)
    default = f"{TILE[0]}x{TILE[1]}"
    of_crop = {
        name: [sum(times) for times in zip(seconds[f"extract {name}"], seconds[f"region {name}"], strict=True)]
        for name in sizes
    }
    save(
        "tiles",
        {
            "what": f"microseconds a photograph: {NUM_IMAGES} of {origin}, {SHORT_SIDE} pixels on the short side, "
            f"quality {QUALITY}, 4:2:0; crops of {CROP}x{CROP}",
            "default": default,
            "sizes": sizes,
            "bytes, plain with optimised tables over plain": round(
                sum(len(plain_jpeg(image, optimize=True)) for image in images) / plain_bytes, 4
            ),
            "microseconds": summary(seconds, 1e6),
            "ratios": {
                "encode tiled over plain": round(ratio(seconds, "encode tiled", "encode plain"), 3),
                "probe tiled over plain": round(ratio(seconds, f"probe {default}", "probe plain"), 2),
            }
            | {
                f"{whole} over extract and region, {name}": round(
                    ratio({"above": seconds[above], "below": of_crop[name]}, "above", "below"), 2
                )
                for name in sizes
                for whole, above in {"whole plain": "whole plain", "whole tiled": f"whole {name}"}.items()
            },
        },
    )


if __name__ == "__main__":
    main()
