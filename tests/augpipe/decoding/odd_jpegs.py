"""Sound JPEGs of kinds that no encoder at hand writes: any sampling, in scans of one component each."""

import re
from collections.abc import Sequence

from PIL import Image

from tests.augpipe.decoding.image_files import encoded, scene

Sampling = tuple[int, int]
_SCAN = re.compile(rb"\xff\xda\x00\x08\x01\x01", re.DOTALL)


def jpeg_of_scans(
    height: int, width: int, samplings: Sequence[Sampling], seed: int = 0, *, progressive: bool = False, rows: int = 0
) -> tuple[bytes, list[bytes]]:
    """A JPEG whose components are gray ones, and these.

    Args:
        height: in pixels.
        width: likewise.
        samplings: of each component, along x and y, 1 to 4.
        seed: of what is seen on it.
        progressive: whether each component comes in several scans.
        rows: of blocks from restart marker to restart marker; 0 for none.
    """
    most_x, most_y = (max(sampling[axis] for sampling in samplings) for axis in (0, 1))
    image = Image.fromarray(scene(height, width, seed))
    restart = {"restart_marker_rows": rows} if rows else {}
    grays = []
    for channel, (x, y) in zip(
        image.convert("YCbCr" if len(samplings) == 3 else "CMYK").split(), samplings, strict=True
    ):
        size = -(-width * x // most_x), -(-height * y // most_y)
        grays.append(encoded(channel.resize(size), "JPEG", quality=85, progressive=progressive, **restart))
    frame = grays[0].index(b"\xff\xc2" if progressive else b"\xff\xc0")
    components = b"".join(bytes([nth + 1, x << 4 | y, 0]) for nth, (x, y) in enumerate(samplings))
    sizes = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    length = (8 + len(components)).to_bytes(2, "big")
    head = grays[0][: frame + 2] + length + b"\x08" + sizes + bytes([len(samplings)]) + components
    scans = [
        _SCAN.sub(b"\xff\xda\x00\x08\x01" + bytes([nth + 1]), gray[frame + 2 + 11 : -2])
        for nth, gray in enumerate(grays)
    ]
    return head + b"".join(scans) + b"\xff\xd9", grays


def resampled_jpeg(height: int, width: int, samplings: Sequence[Sampling], interval: int = 0) -> tuple[bytes, bytes]:
    """A sound JPEG of one scan, and one of RGB without subsampling that has the same codes: its blocks lie elsewhere.

    Args:
        height: in pixels, a multiple of an MCU's.
        width: likewise.
        samplings: of the three components; all MCUs together have a multiple of three blocks.
        interval: MCUs from restart marker to restart marker; 0 for none.
    """
    most_x, most_y = (max(sampling[axis] for sampling in samplings) for axis in (0, 1))
    num_mcus = height // (8 * most_y) * (width // (8 * most_x))
    num_blocks = num_mcus * sum(x * y for x, y in samplings)
    assert num_blocks % 3 == 0 and len(samplings) == 3
    options = {"restart_marker_blocks": interval * sum(x * y for x, y in samplings) // 3} if interval else {}
    plain = encoded(scene(8, num_blocks // 3 * 8), "JPEG", quality=85, keep_rgb=True, **options)
    data = bytearray(plain)
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    for nth, (x, y) in enumerate(samplings):
        data[at + 11 + 3 * nth] = x << 4 | y
    if interval:
        at = data.index(b"\xff\xdd\0\4") + 4
        data[at : at + 2] = interval.to_bytes(2, "big")
    return bytes(data), plain
