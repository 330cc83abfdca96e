"""From the bytes of an image file and its header to upright RGBX pixels."""

import numpy as np
import numpy.typing as npt

from augpipe.decoding import jpeg, pillow
from augpipe.decoding.header import Header
from augpipe.decoding.orientation import swaps_sides, upright
from augpipe.decoding.png import check_pixel_sums

DCT_FACTORS = (1, 2, 4, 8)


def decode(
    data: bytes | memoryview, header: Header, *, dct_factor: int = 1, buffer: npt.NDArray[np.uint8] | None = None
) -> npt.NDArray[np.uint8]:
    """Decode the first frame to upright 8-bit RGBX; safe to call from many threads.

    The pixels are a function of the bytes and the factor alone. Alpha and transparency are dropped, as Pillow's
    `convert("RGB")` does: the colours that stand under transparent places show. Of 16 bits a channel the high byte is
    kept. A JPEG that libjpeg warns of is refused, even where other readers show a part of it; padding before its
    end mark (zeros, or another byte twice or more), or anything after that mark, is not a reason.

    Args:
        data: the whole file.
        header: what `probe` said of the same bytes.
        dct_factor: 1, 2, 4 or 8: decode at 1/f of the size within the JPEG's inverse transform, which is nearly the
            average of f x f pixels (of 4:2:2 files the colours have half that resolution along the rows). The grid of
            these squares starts at the first pixel as stored: an orientation that mirrors or turns the image may put
            the square that is cut short, where f does not divide the size, at the upright top or left. Only 1 where
            `header.is_jpeg` is False.
        buffer: C-contiguous bytes to decode into, at least `prod(header.shape(dct_factor))`; the result is then a view
            of it, so it is good until the buffer is used again. None: the result owns its memory.

    Returns:
        uint8 (ceil(height/f), ceil(width/f), 4), C-contiguous; the fourth byte of every pixel is 255.

    Raises:
        ValueError: the reason, without the file's name.
    """
    if dct_factor not in DCT_FACTORS:
        raise ValueError(f"dct_factor={dct_factor} is none of {DCT_FACTORS}")
    if dct_factor > 1 and not header.is_jpeg:
        raise ValueError(
            f"dct_factor={dct_factor} needs a JPEG that libjpeg-turbo decodes; use 1 for this {header.format}"
        )
    view = memoryview(data).cast("B")
    shape = header.shape(dct_factor)
    out = None if buffer is None else _flat(buffer, shape)
    if header.is_jpeg:
        height, width = header.height, header.width
        if swaps_sides(header.orientation):
            height, width = width, height
        if header.orientation == 1:
            return jpeg.decode_stored(view, height, width, dct_factor, out)
        stored = jpeg.decode_stored(view, height, width, dct_factor, None)
    else:
        if header.format == "JPEG":
            jpeg.check_codes(view)
        elif header.format == "PNG":
            check_pixel_sums(view)
        image, _ = pillow.open_pillow(bytes(view), header.format, header.height * header.width)
        stored = pillow.decode_stored(image)
    turned = upright(stored, header.orientation)
    if turned.shape != shape:
        raise ValueError(
            f"damaged {header.format}: its header claims {shape[1]}x{shape[0]} pixels, and "
            f"{turned.shape[1]}x{turned.shape[0]} came out"
        )
    result = np.empty(shape, np.uint8) if out is None else out.reshape(shape)
    # Whole pixels at a time: four times fewer strided reads than byte by byte.
    np.copyto(result.view(np.uint32), turned.view(np.uint32))
    return result


def _flat(buffer: npt.NDArray[np.uint8], shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    needed = shape[0] * shape[1] * shape[2]
    if buffer.dtype != np.uint8 or not buffer.flags.c_contiguous or buffer.size < needed:
        raise ValueError(
            f"buffer must be C-contiguous uint8 of at least {needed} bytes, and is {buffer.dtype} of {buffer.size}"
        )
    return buffer.reshape(-1)[:needed]
