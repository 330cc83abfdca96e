"""From a source's file to an upright sRGB image, and from that to the JPEG of a scale."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from augpipe.datasets.prepare.rendition import check_length, render_scale, resize, target_size
from augpipe.datasets.prepare.settings import PrepareSettings, parse_scales
from augpipe.datasets.prepare.upright import open_upright
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.validation.arguments import parse_bytes
from tests.augpipe.decoding.image_files import (
    bad_files,
    encoded,
    exif,
    jpeg_kinds,
    odd_files,
    other_kinds,
    png_16_bit_rgb,
    scene,
    tiff,
)
from tests.datasets.prepare.prepare_sources import cmyk_profile, red_is_green_profile, srgb_profile

KINDS = {**jpeg_kinds(), **other_kinds(), **{name: data for name, (data, _) in odd_files().items()}}


def pixels_of(image: Image.Image) -> npt.NDArray[np.int16]:
    return np.asarray(image.convert("RGB"), np.int16)


def opened(data: bytes) -> Image.Image:
    return open_upright(data, MAX_PIXELS).image


@pytest.mark.parametrize("name", KINDS)
def test_an_image_has_the_pixels_that_the_loader_would_see(name: str) -> None:
    data = KINDS[name]
    header = probe(data, max_pixels=MAX_PIXELS)
    image = opened(data)
    assert image.mode in ("RGB", "L") and (image.height, image.width) == (header.height, header.width)
    np.testing.assert_array_equal(pixels_of(image), decode(data, header)[..., :3])
    stored = Image.open(io.BytesIO(data)).mode
    assert (image.mode == "L") == (stored in ("1", "L", "LA", "I;16")), stored


@pytest.mark.parametrize("name", bad_files())
def test_what_is_no_image_is_refused_with_its_reason(name: str) -> None:
    data, reason = bad_files()[name]
    with pytest.raises(ValueError, match=reason):
        open_upright(data, 1_000_000)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_arrays_are_images(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    image = open_upright(array, MAX_PIXELS)
    assert image.image.mode == ("RGB" if shape[-1:] in [(3,), (4,)] and len(shape) == 3 else "L")
    channels = array.reshape(5, 7, -1)[..., :3]
    np.testing.assert_array_equal(pixels_of(image.image), np.broadcast_to(channels, (5, 7, 3)))
    with pytest.raises(ValueError, match="float64, and must be uint8"):
        open_upright(np.zeros((4, 4)), MAX_PIXELS)


def test_sixteen_bits_become_eight() -> None:
    deep = scene(20, 30).astype(np.uint16) * 257
    np.testing.assert_array_equal(pixels_of(opened(png_16_bit_rgb(deep))), scene(20, 30))
    for order in "<>":
        gray = opened(tiff(deep[..., :1], order=order))
        assert gray.mode == "L"
        np.testing.assert_array_equal(np.asarray(gray), scene(20, 30)[..., 0])


@pytest.mark.parametrize(
    ("kind", "options"), [("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True}), ("JPEG", {"quality": 100})]
)
def test_profiles_are_converted_to_srgb(kind: str, options: dict[str, Any]) -> None:
    # what red was is green where the primaries are exchanged; gray keeps its place
    flat = np.zeros((16, 32, 3), np.uint8)
    flat[:, :16] = (200, 30, 30)
    flat[:, 16:] = 128
    image = open_upright(encoded(flat, kind, icc_profile=red_is_green_profile(), **options), MAX_PIXELS)
    assert image.profile == "converted" and image.original is None
    red, green, blue = pixels_of(image.image)[8, 8]
    assert abs(green - 200) < 12 and red < 60 and blue < 60
    np.testing.assert_allclose(pixels_of(image.image)[8, 24], 128, atol=3)


def test_a_profile_that_is_srgb_changes_nothing() -> None:
    data = encoded(scene(30, 40), "JPEG", icc_profile=srgb_profile())
    image = open_upright(data, MAX_PIXELS)
    assert image.profile == "srgb" and image.original == data
    np.testing.assert_array_equal(pixels_of(image.image), decode(data, probe(data, max_pixels=10**6))[..., :3])


def test_a_long_profile_in_several_parts_is_joined() -> None:
    profile = red_is_green_profile() + bytes(150_000)  # padding after the last tag: two more segments
    profile = len(profile).to_bytes(4, "big") + profile[4:]
    image = open_upright(encoded(scene(20, 20), "JPEG", icc_profile=profile), MAX_PIXELS)
    assert image.profile == "converted"


@pytest.mark.parametrize("profile", [b"no profile", srgb_profile()[:200], b"\0" * 500])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_a_damaged_profile_is_ignored(kind: str, profile: bytes) -> None:
    image = open_upright(encoded(scene(20, 20), kind, icc_profile=profile), MAX_PIXELS)
    assert image.profile == "ignored"
    plain = opened(encoded(scene(20, 20), kind))
    np.testing.assert_array_equal(pixels_of(image.image), pixels_of(plain))


def test_a_profile_for_colour_in_a_gray_file_is_ignored() -> None:
    gray = Image.fromarray(scene(20, 20)).convert("L")
    image = open_upright(encoded(gray, "JPEG", icc_profile=srgb_profile()), MAX_PIXELS)
    assert image.profile == "ignored" and image.image.mode == "L"


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_goes_through_its_profile(kind: str) -> None:
    inks = np.zeros((16, 32, 4), np.uint8)
    inks[:, :16, 0] = 255  # cyan, which in this profile is a dark gray
    image = Image.frombytes("CMYK", (32, 16), inks.tobytes())
    options: dict[str, Any] = {"quality": 100} if kind == "JPEG" else {}
    picture = open_upright(encoded(image, kind, icc_profile=cmyk_profile(), **options), MAX_PIXELS)
    assert picture.profile == "converted" and picture.image.mode == "RGB"
    dark, paper = pixels_of(picture.image)[8, 8], pixels_of(picture.image)[8, 24]
    assert np.ptp(dark) <= 3 and dark.max() < 90, dark
    assert paper.min() > 245, paper
    naive = pixels_of(opened(encoded(image, kind, **options)))[8, 8]
    assert naive[0] < 10 and naive[2] > 240, naive  # without a profile cyan is cyan


def test_a_turned_cmyk_with_a_profile_is_upright() -> None:
    image = Image.fromarray(scene(16, 32)).convert("CMYK")
    data = encoded(image, "JPEG", icc_profile=cmyk_profile(), exif=exif(6))
    picture = open_upright(data, MAX_PIXELS)
    assert picture.image.size == (16, 32) and picture.profile == "converted"


@pytest.mark.parametrize(
    ("size", "scale", "upscale", "expected"),
    [
        ((480, 640), "256", False, (256, 341)),
        ((640, 480), "256", False, (341, 256)),
        ((480, 640), "full", True, (480, 640)),
        ((200, 640), "256", False, (200, 640)),
        ((200, 640), "256", True, (256, 819)),
        ((256, 999), "256", True, (256, 999)),
        ((3, 2), "1", False, (2, 1)),  # half a pixel is rounded up
    ],
)
def test_the_short_side_is_the_scale(
    size: tuple[int, int], scale: str, upscale: bool, expected: tuple[int, int]
) -> None:
    assert target_size(*size, scale, upscale=upscale) == expected


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 2000), st.booleans())
def test_sizes_keep_their_shape(height: int, width: int, scale: int, upscale: bool) -> None:
    tall, wide = target_size(height, width, str(scale), upscale=upscale)
    if (tall, wide) != (height, width):
        assert min(tall, wide) == scale
        assert abs(tall * width - wide * height) <= max(height, width) // 2 + 1
    else:
        assert min(height, width) == scale or (min(height, width) < scale and not upscale)


def test_resizing_is_lanczos() -> None:
    image = Image.fromarray(scene(90, 120))
    expected = image.resize((60, 45), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(pixels_of(resize(image, 45, 60, linear_light=False)), pixels_of(expected))
    assert resize(image, 90, 120, linear_light=True) is image


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_linear_light_keeps_the_light_of_fine_details(mode: str) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[::2] = 255
    image = Image.fromarray(stripes).convert(mode)
    light = pixels_of(resize(image, 16, 16, linear_light=True))[4:12, 4:12]
    np.testing.assert_allclose(light, 188, atol=1)  # half the light; sRGB level 188
    np.testing.assert_allclose(pixels_of(resize(image, 16, 16, linear_light=False))[4:12, 4:12], 127.5, atol=1)
    smooth = Image.fromarray(np.full((40, 40, 3), (7, 99, 250), np.uint8)).convert(mode)
    np.testing.assert_array_equal(
        pixels_of(resize(smooth, 13, 13, linear_light=True)), np.broadcast_to(pixels_of(smooth)[0, 0], (13, 13, 3))
    )


def test_linear_light_is_rounded_to_the_nearest_level() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (90, 120), dtype=np.uint8)
    level = noise / 255
    light = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4).astype(np.float32)
    light = np.asarray(Image.fromarray(light).resize((60, 45), Image.Resampling.LANCZOS)).clip(0, 1)
    expected = 255 * np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    found = pixels_of(resize(Image.fromarray(noise), 45, 60, linear_light=True))[..., 0]
    assert abs((found - expected).mean()) < 0.1 and np.abs(found - expected).max() < 0.51


def settings(**options: Any) -> PrepareSettings:
    return PrepareSettings(**options)


def test_a_rendition_decodes_to_its_size() -> None:
    image = open_upright(encoded(scene(300, 401), "PNG"), MAX_PIXELS)
    made = render_scale(image, "256", settings())
    header = probe(made.file, max_pixels=MAX_PIXELS)
    assert (header.height, header.width) == (256, 342) and header.may_crop and not made.is_kept
    decoded = decode(made.file, header)[..., :3].astype(np.int16)
    assert np.abs(decoded - pixels_of(made.image)).mean() < 4


def test_gray_stays_gray() -> None:
    gray = Image.fromarray(scene(300, 400)).convert("L")
    made = render_scale(open_upright(encoded(gray, "JPEG"), MAX_PIXELS), "128", settings())
    assert Image.open(io.BytesIO(made.file)).mode == "L"


@pytest.mark.parametrize("originals", ["auto", "always", "never"])
def test_originals_are_kept_where_a_new_encoding_would_only_lose(originals: str) -> None:
    def is_kept(data: bytes, scale: str = "full") -> bool:
        made = render_scale(open_upright(data, MAX_PIXELS), scale, settings(originals=originals))
        assert (made.file == data) == made.is_kept
        return made.is_kept

    ordinary = encoded(scene(200, 256), "JPEG", quality=90)
    assert is_kept(ordinary) == (originals != "never")
    for gaining in (
        encoded(scene(200, 256), "JPEG", quality=96),
        encoded(scene(200, 256), "JPEG", quality=90, progressive=True),
    ):
        assert is_kept(gaining) == (originals == "always")
    for changed in (
        encoded(scene(60, 80), "PNG"),
        encoded(scene(60, 80), "JPEG", exif=exif(3)),
        encoded(scene(60, 80), "JPEG", icc_profile=red_is_green_profile()),
        encoded(Image.fromarray(scene(60, 80)).convert("CMYK"), "JPEG"),
    ):
        assert not is_kept(changed)
    assert not is_kept(ordinary, "100")


def test_what_no_jpeg_can_hold_is_refused_before_the_work() -> None:
    line = open_upright(np.zeros((1, 5000), np.uint8), MAX_PIXELS)
    with pytest.raises(ValueError, match=r"would have 1280000x256 pixels at its scale; a JPEG has at most 65500"):
        render_scale(line, "256", settings(upscale=True))


def test_a_file_may_have_all_the_bytes_that_a_shard_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.datasets.prepare.rendition.MAX_IMAGE_BYTES", 3)
    check_length(b"abc")
    with pytest.raises(ValueError, match="its 4 bytes are more than the 3"):
        check_length(b"abcd")


def test_settings_say_what_is_wrong() -> None:
    assert parse_scales("512, 256") == ("512", "256") and settings(scales=("512", "full", "64")).scales[0] == "64"
    assert [parse_bytes(text) for text in ("256MB", "1.5 kb", "64MiB", "7")] == [256_000_000, 1500, 64 << 20, 7]
    for text in ("", "MB", "-3MB", "3 bananas", "1e9"):
        with pytest.raises(ValueError, match="is not a number of bytes. Write it as 256MB"):
            parse_bytes(text)
    for scales, reason in (
        (("0",), "scale '0' is none"),
        (("64", "64"), "give each once"),
        ((), "must be a list of short sides"),
    ):
        with pytest.raises(ValueError, match=reason):
            settings(scales=scales)
