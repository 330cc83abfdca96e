"""JPEG: reading the frame header, and decoding by our own decoder or libjpeg-turbo, which give the same pixels."""

import re
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import simplejpeg

from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.compiled.declared import Overload, overloads

if TYPE_CHECKING:
    from augpipe.gpu_ops.jpeg.workspace import Workspace

_SOI, _EOI, _SOS, _APP0, _APP1, _APP14 = 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xEE
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"  # what these notes begin with, in APP1
_STANDALONE = frozenset([0x00, 0x01, *range(0xD0, 0xD8)])  # stuffed zero, TEM, RST0..7: no length follows
_FRAMES = frozenset([*range(0xC0, 0xD0)]) - {0xC4, 0xC8, 0xCC}  # SOF0..15 without DHT, JPG, DAC
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_MAX_SIDE = 65_500  # libjpeg's own limit
_MAX_SCANS = 100  # images have about ten, bombs thousands
_MARKER = re.compile(rb"\xff+([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)  # among codes: all except what belongs to them
_ODD_PROFILE = "bad ICC marker"  # some of a colour profile's parts are missing, or there twice
_EXTRANEOUS = re.compile("([0-9]+) extraneous bytes before marker 0xd9$")


class Frame(NamedTuple):
    """What stands before a JPEG's first scan."""

    height: int
    width: int
    num_components: int
    is_progressive: bool
    exif: bytes
    """The EXIF block, its parts joined; empty where there is none."""
    xmp: bytes
    """The XMP packet, as above."""
    kept: tuple[tuple[int, int], ...]
    """(start, stop) of the segments that the pixels depend on: all except the notes (EXIF, XMP, ICC, comments)."""
    scan_start: int
    """Where the first scan's marker stands."""


def read_frame(data: memoryview) -> Frame:
    """Walk the segments up to the first scan, as libjpeg's `next_marker` does (ITU-T T.81, annex B).

    Raises:
        ValueError: the reason, without the file's name.
    """
    position, end = 2, len(data)
    size: tuple[int, int, int] | None = None
    is_progressive = False
    exif = xmp = b""
    kept: list[tuple[int, int]] = []
    while True:
        while position < end and data[position] != 0xFF:
            position += 1
        start = position
        while position < end and data[position] == 0xFF:
            position += 1
        if position + 2 >= end:
            raise ValueError(f"truncated JPEG: its {end} bytes end before the first scan")
        marker = data[position]
        position += 1
        if marker in _STANDALONE:
            continue
        if marker in (_SOI, _EOI):
            raise ValueError(f"damaged JPEG: marker 0x{marker:02x} stands before the first scan")
        if marker == _SOS:
            if size is None:
                raise ValueError("damaged JPEG: a scan without a frame header")
            height, width, components = size
            if is_progressive:
                _check_num_scans(data, start)
            return Frame(
                height=height,
                width=width,
                num_components=components,
                is_progressive=is_progressive,
                exif=exif,
                xmp=xmp,
                kept=tuple(kept),
                scan_start=start,
            )
        stop = position + (data[position] << 8 | data[position + 1])
        if stop < position + 2:
            raise ValueError(f"damaged JPEG: segment 0x{marker:02x} has an impossible length")
        if stop > end:
            raise ValueError(f"truncated JPEG: its {end} bytes end before the first scan")
        if marker in _FRAMES:
            if size is not None:
                raise ValueError("damaged JPEG: two frame headers")
            size = _frame_size(marker, data[position:stop])
            is_progressive = marker == _PROGRESSIVE
        elif marker == _APP1 and data[position + 2 : position + 8] == _EXIF:
            exif = (exif or _EXIF) + bytes(data[position + 8 : stop])
        elif marker == _APP1 and data[position + 2 : position + 2 + len(_XMP)] == _XMP:
            xmp = bytes(data[position + 2 + len(_XMP) : stop])
        if marker in (_APP0, _APP14) or marker < _APP0:
            kept.append((start, stop))
        position = stop


def _frame_size(marker: int, segment: memoryview) -> tuple[int, int, int]:
    if len(segment) < 8:
        raise ValueError("damaged JPEG: its frame header is too short")
    if marker not in (_BASELINE, _EXTENDED, _PROGRESSIVE):
        raise ValueError(
            f"a JPEG of the kind SOF{marker - 0xC0} (lossless, hierarchical or arithmetic-coded), "
            "which is not decoded; save it as baseline or progressive"
        )
    if segment[2] != 8:
        raise ValueError(f"a JPEG of {segment[2]} bits a sample, which is not decoded; save it with 8")
    if segment[7] not in (1, 3, 4):
        raise ValueError(f"a JPEG of {segment[7]} components, which is not decoded; gray, colour and CMYK have 1, 3, 4")
    height, width = segment[3] << 8 | segment[4], segment[5] << 8 | segment[6]
    if max(height, width) > _MAX_SIDE:
        raise ValueError(f"claims {width}x{height} pixels, and a JPEG's sides are {_MAX_SIDE} at most")
    return height, width, segment[7]


def _check_num_scans(data: memoryview, start: int) -> None:
    scans = (at for marker, at in _markers(data, start) if marker == _SOS)
    if next(islice(scans, _MAX_SCANS, None), None) is not None:
        raise ValueError(f"a progressive JPEG of more than {_MAX_SCANS} scans: it may take minutes")


def _markers(data: memoryview, start: int) -> Iterator[tuple[int, int]]:
    """(marker, where it or the fills before it stand) from the first scan on, up to the mark that ends the image."""
    while found := _MARKER.search(data, start):
        marker = found[1][0]
        yield marker, found.start()
        if marker == _EOI:
            return
        start = found.end() + int.from_bytes(data[found.end() : found.end() + 2], "big")


def libjpeg_turbo_takes(data: memoryview, frame: Frame) -> bool:
    """Whether simplejpeg decodes this file to RGBX: not CMYK, nor chroma in a sampling that TurboJPEG does not know."""
    return frame.num_components != 4 and _is_known_sampling(data)


def _is_known_sampling(data: memoryview) -> bool:
    try:
        simplejpeg.decode_jpeg_header(data, strict=False)
    except KeyError:  # TurboJPEG knows it (4:4:1), simplejpeg's names do not, and only reading a header asks for them
        return True
    except ValueError:
        return False
    return True


def check_codes(data: memoryview) -> None:
    """Refuse a damaged JPEG of those that `libjpeg_turbo_takes` leaves: Pillow, which decodes them, hears no warning.

    libjpeg-turbo checks CMYK; codes in a sampling that TurboJPEG does not know are passed over one by one.

    Raises:
        ValueError: the reason, without the file's name.
    """
    if read_frame(data).num_components == 4 and _is_known_sampling(data):
        _strictly(data, "CMYK", 1, 1)
        return
    from augpipe.gpu_ops.jpeg.walk import DAMAGED, TRUNCATED, walk

    codes = np.frombuffer(data, np.uint8)
    verdict = walk(codes)
    if verdict == TRUNCATED:
        raise ValueError(f"truncated JPEG: its {len(data)} bytes end before its codes")
    if verdict == DAMAGED:
        raise ValueError("damaged JPEG: its codes make no sense, or are not as many as its header says")


def without_notes(data: memoryview, frame: Frame) -> bytes:
    """The same image without EXIF, XMP, ICC and comments, which Pillow would parse, and warn about."""
    segments = [data[start:stop] for start, stop in frame.kept]
    return b"".join([b"\xff\xd8", *segments, data[frame.scan_start :]])


def decode_stored(
    data: memoryview,
    height: int,
    width: int,
    dct_factor: int,
    out: npt.NDArray[np.uint8] | None,
) -> npt.NDArray[np.uint8]:
    """Decode to RGBX (ceil(height/f), ceil(width/f), 4) as stored, not yet turned; the GIL is released.

    Our own decoder takes most files, and leaves damaged ones to libjpeg-turbo, which says why.

    Args:
        data: the file.
        height: rows that the header claims.
        width: columns that the header claims.
        dct_factor: 1, 2, 4 or 8: the inverse DCT at 1/f of the size.
        out: flat bytes that exactly hold the result, or None for new memory.

    Raises:
        ValueError: the reason, without the file's name.
    """
    scaled_height, scaled_width = -(-height // dct_factor), -(-width // dct_factor)
    pixels = np.empty(scaled_height * scaled_width * 4, np.uint8) if out is None else out
    whole = 0, 0, scaled_width, scaled_height
    if not decode_region(data, height, width, dct_factor, whole, pixels):
        try:
            return decode_by_libjpeg(data, height, width, dct_factor, out)
        except ValueError:
            own_decoder()  # which may still have been compiled, and decides alike on a cold start and a warm one
            if not decode_region(data, height, width, dct_factor, whole, pixels):
                raise
    return pixels.reshape(scaled_height, scaled_width, 4)


def decode_by_libjpeg(
    data: memoryview,
    height: int,
    width: int,
    dct_factor: int,
    out: npt.NDArray[np.uint8] | None,
) -> npt.NDArray[np.uint8]:
    """`decode_stored` by libjpeg-turbo alone, as for files that our own decoder has left."""
    if dct_factor > 1 and _scale_is_ambiguous(height, width, dct_factor):
        small = _box_average(_decode(data, height, width, None), dct_factor)
        if out is None:
            return small
        np.copyto(out.reshape(small.shape), small)
        return out.reshape(small.shape)
    return _decode(data, -(-height // dct_factor), -(-width // dct_factor), out)


class _Local(threading.local):
    decoder: "Workspace | None" = None


_local = _Local()


def decode_region(
    data: bytes | memoryview,
    height: int,
    width: int,
    dct_factor: int,
    region: Sequence[int],
    out: npt.NDArray[np.uint8],
) -> bool:
    """Decode a region of a JPEG as stored to RGBX by our own decoder; the GIL is released.

    Codes above the region and next to it are read and checked, and those below it are not.

    Args:
        data: the file.
        height: rows that the header claims.
        width: columns that the header claims.
        dct_factor: 1, 2, 4 or 8.
        region: left, top, right, bottom in pixels at 1/`dct_factor`, right and bottom excluded; not empty and within
            the image.
        out: flat bytes that exactly hold the result.

    Returns:
        False where the file is damaged or of a kind that it does not decode, this CPU one on which libjpeg-turbo is as
        fast, or our decoder is still being compiled; what `out` holds then is undefined.
    """
    decoder = decoder_if_compiled()
    if decoder is None or out.ctypes.data % 4:
        return False
    left, top, right, bottom = region
    codes = np.frombuffer(data, np.uint8)
    return decoder.decode(codes, height, width, (left, top, right, bottom), out, factor=dct_factor)


def own_decoder() -> "Workspace | None":
    """The calling thread's decoder of JPEGs, waited for where another process compiles it.

    None where this CPU has none that is faster than libjpeg-turbo.
    """
    if _local.decoder is None:
        from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS, Workspace

        if HAS_WIDE_VECTORS:
            background.wait(_decoder_parts())
            _local.decoder = Workspace()
    return _local.decoder


def decoder_if_compiled() -> "Workspace | None":
    """`own_decoder`, or None while another process compiles it: libjpeg-turbo gives the same pixels meanwhile.

    None, too, where it can neither be found nor kept: compiling it here takes longer than most runs of the kind would
    gain by it.

    What libjpeg-turbo refuses then is for `own_decoder` to decide: of a file that is damaged below a region it may be
    able to decode that region.
    """
    if _local.decoder is None and any(
        background.is_coming(part) or background.compiles_here(part) for part in _decoder_parts()
    ):
        return None
    return own_decoder()


def decoder_overloads(rendered_as: str | None) -> list[Overload]:
    """What our decoder is compiled of, nothing where this CPU leaves JPEGs to libjpeg-turbo.

    Args:
        rendered_as: "float32" or "uint8", where it renders too; None where it does not.
    """
    from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS

    wanted = ("any", rendered_as)
    return [one for one in _decoder_parts() if one.variant in wanted] if HAS_WIDE_VECTORS else []


@lru_cache
def _decoder_parts() -> tuple[Overload, ...]:
    return tuple(one for one in overloads(["decoder"]) if one.function != "walk")


def _decode(data: memoryview, height: int, width: int, out: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.uint8]:
    pixels = _strictly(data, "RGBX", height, width, out)
    if pixels.shape != (height, width, 4):
        raise ValueError(
            f"damaged JPEG: its header claims {width}x{height} pixels, and {pixels.shape[1]}x{pixels.shape[0]} came out"
        )
    return pixels


def _strictly(
    data: bytes | memoryview, colours: str, height: int, width: int, out: npt.NDArray[np.uint8] | None = None
) -> npt.NDArray[np.uint8]:
    """Decode by libjpeg-turbo, at the smallest scale of so many rows and columns or more, and refuse what it warns of.

    It stops at the first warning. Where that is padding before the end mark, every block was decoded without one. One
    of a colour profile says nothing of the pixels: the file is decoded again without it.
    """
    strict = True
    while True:
        try:
            pixels: npt.NDArray[np.uint8] = simplejpeg.decode_jpeg(
                data,
                colours,
                fastdct=False,
                fastupsample=False,
                min_height=height,
                min_width=width,
                buffer=out,
                strict=strict,
            )
            return pixels
        except (ValueError, KeyError) as error:
            file, warning = memoryview(data), str(error)
            plain = without_notes(file, read_frame(file)) if warning.endswith(_ODD_PROFILE) else data
            if len(plain) < len(data):
                data = plain
            elif strict and _is_padded(file, warning):
                strict = False
            else:
                kind = "truncated" if "Premature end of JPEG file" in warning else "damaged"
                raise ValueError(f"{kind} JPEG: {error}") from error


def _is_padded(data: memoryview, warning: str) -> bool:
    """Whether a warning is of bytes before the end mark that are not codes: zeros, or one other value twice or more.

    libjpeg gives the same warning where it got lost in damaged codes and reached the last block too early. These bytes
    are codes, and any block before them may be wrong.
    """
    found = _EXTRANEOUS.search(warning)
    if found is None:
        return False
    num = int(found[1])  # less what libjpeg had loaded ahead
    for marker, end in _markers(data, read_frame(data).scan_start):
        if marker == _EOI:
            return (num == 1 and data[end - 1] == 0) or len(set(data[end - max(num, 2) : end])) == 1
    return False


def _scale_is_ambiguous(height: int, width: int, dct_factor: int) -> bool:
    """Whether the next larger scale gives the same size: libjpeg-turbo, asked for a size, would take that one.

    It scales by eighths, so this happens for images of a few pixels only.
    """
    eighths = 8 // dct_factor
    return all(-(-side * eighths // 8) == -(-side * (eighths + 1) // 8) for side in (height, width))


def _box_average(pixels: npt.NDArray[np.uint8], factor: int) -> npt.NDArray[np.uint8]:
    height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, -height % factor), (0, -width % factor), (0, 0)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // factor, factor, padded.shape[1] // factor, factor, 4)
    average: npt.NDArray[np.uint8] = np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)
    return average
