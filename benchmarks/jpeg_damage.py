"""What becomes of photographs with one changed byte in the scan: which ones libjpeg-turbo refuses, and the loader.

libjpeg-turbo decodes them whole and stops at its first warning. The loader decodes them whole, as for a cache, or the
rectangle that a RandomResizedCrop looks at.
"""

import random
from collections import Counter

import numpy as np
from common import photographs, save
from jpeg_regions import Region, regions_of, whole_by_libjpeg

from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.decoding.jpeg import decode_by_libjpeg, decode_region
from augpipe.ops import RandomResizedCrop

NUM_CHANGED = 80
"""Copies of each photograph, with one changed byte each."""


def strictly(data: bytes) -> np.ndarray | None:
    """What libjpeg-turbo decodes without a warning."""
    try:
        return whole_by_libjpeg(data)
    except ValueError:
        return None


def loaded_whole(data: bytes) -> np.ndarray | None:
    """What the loader decodes, None where it refuses the file."""
    try:
        return decode(data, probe(data, max_pixels=MAX_PIXELS))
    except ValueError:
        return None


def loaded_part(data: bytes, height: int, width: int, region: Region) -> np.ndarray | None:
    """What the loader decodes of a region, None where it refuses the file; without a row index."""
    left, top, right, bottom = region
    out = np.empty((bottom - top, right - left, 4), np.uint8)
    if decode_region(data, height, width, 1, region, out.reshape(-1)):
        return out
    try:
        return decode_by_libjpeg(memoryview(data), height, width, 1, None)[top:bottom, left:right]
    except ValueError:
        return None


def said(found: np.ndarray | None, sound: np.ndarray) -> str:
    """What became of a file or a part of it."""
    if found is None:
        return "refused"
    return "taken as before" if np.array_equal(found, sound) else "taken with other pixels"


def main() -> None:
    files, origin = photographs()
    sounds = [whole_by_libjpeg(data) for data in files]
    sizes = [sound.shape[:2] for sound in sounds]
    regions = regions_of((RandomResizedCrop(size=224),), sizes)
    chance, whole, parts = random.Random(0), Counter[str](), Counter[str]()
    for data, sound, (height, width), region in zip(files, sounds, sizes, regions, strict=True):
        left, top, right, bottom = region
        coded = data.rindex(b"\xff\xda")
        coded += 2 + int.from_bytes(data[coded + 2 : coded + 4], "big")
        for _ in range(NUM_CHANGED):
            copy = bytearray(data)
            copy[chance.randrange(coded, len(data) - 2)] ^= chance.randrange(1, 256)
            changed = bytes(copy)
            by_libjpeg, by_loader = strictly(changed), loaded_whole(changed)
            verdict = "refused by libjpeg-turbo" if by_libjpeg is None else "taken by libjpeg-turbo"
            whole[f"{verdict}, by the loader {said(by_loader, sound)}"] += 1
            part = loaded_part(changed, height, width, region)
            parts[f"{verdict}, rectangle {said(part, sound[top:bottom, left:right])}"] += 1
    save(
        "jpeg_damage",
        {
            "what": f"{NUM_CHANGED} copies of each of {origin}, with one changed byte in the scan each",
            "whole": dict(sorted(whole.items())),
            "rectangle of a RandomResizedCrop": dict(sorted(parts.items())),
        },
    )


if __name__ == "__main__":
    main()
