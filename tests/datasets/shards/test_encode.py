"""`encode_jpeg`: what a file holds, and what cannot be encoded."""

import io
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.shards.encode import encode_jpeg
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.jpeg_loaders import KINDS, header_of, noise, of_kind


@pytest.mark.parametrize("kind", KINDS)
def test_all_samplings(kind: str) -> None:
    data = of_kind(noise(20, 24), kind)
    assert header_of(data).may_crop
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == ("L" if kind == "gray" else "RGB")


def test_a_file_is_pillow_s_plain_jpeg() -> None:
    image = scene(100, 160)
    assert encode_jpeg(image, 71, subsampling="4:2:2") == encoded(image, "JPEG", quality=71, subsampling="4:2:2")


def test_pillow_s_image_an_array_and_one_with_notes_give_the_same_bytes(tmp_path: Any) -> None:
    image = scene(50, 353)
    expected = encode_jpeg(image, 85)
    noted = Image.fromarray(image)
    noted.save(tmp_path / "noted.png")
    noted.info.update(comment=b"a comment", icc_profile=b"p" * 100, exif=b"Exif\0\0MM", dpi=(72, 72))
    assert encode_jpeg(noted, 85) == expected
    assert encode_jpeg(Image.fromarray(image), 85) == expected
    with Image.open(tmp_path / "noted.png") as opened:
        assert encode_jpeg(opened, 85) == expected
    assert encode_jpeg(np.asfortranarray(image), 85) == expected


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (noise(8, 8), {"quality": 0}, "quality=0 is not within 1..100"),
        (noise(8, 8), {"subsampling": "4:1:1"}, "subsampling='4:1:1' is none of 4:2:0, 4:2:2, 4:4:4"),
        (np.zeros((8, 8), np.float32), {}, "an array must be uint8 (H, W, 3) or (H, W), and is float32 (8, 8)"),
        (np.zeros((8, 8, 4), np.uint8), {}, "and is uint8 (8, 8, 4)"),
        (np.zeros((0, 8, 3), np.uint8), {}, "a picture of 8x0 has no pixels"),
        (Image.new("CMYK", (8, 8)), {}, "mode 'CMYK' is neither RGB nor L; convert the picture first"),
        (np.zeros((65_501, 1), np.uint8), {}, "1x65501 pixels: a JPEG has at most 65500 along each side"),
        (np.zeros((1, 65_501, 3), np.uint8), {}, "65501x1 pixels: a JPEG has at most 65500 along each side"),
    ],
)
def test_what_cannot_be_encoded(image: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        encode_jpeg(image, **options)
