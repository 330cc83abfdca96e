"""The header of a JPEG, as far as its coefficients and colours depend on it: ITU-T T.81, annex B, and JFIF, Adobe.

It is taken only if libjpeg-turbo would decode it without a warning, by the rules that are written here; whatever is
rare or looks odd is left to libjpeg-turbo. Every length and number is checked before it is used.
"""

from numba import int64

from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.huffman import NATURAL_ORDER, NUM_TABLES

(
    WIDTH,
    HEIGHT,
    NUM_COMPONENTS,
    SCAN_START,
    RESTART_INTERVAL,
    HORIZONTAL,
    VERTICAL,
    IS_RGB,
    MAY_BE_TURNED,
    FIRST_COMPONENT,
) = range(10)
"""Where `frame` holds what: sizes in pixels; the first coded byte; MCUs between restart markers or 0; the sampling of
the first component (1 or 2; that of others is 1); whether colours are stored as they are; whether there is a
block of EXIF, or an orientation in XMP, which may turn the image; then the components."""

COMPONENT_ITEMS = 4
IDENTIFIER, QUANTIZATION, DC_TABLE, AC_TABLE = range(COMPONENT_ITEMS)
"""What is told of a component: its number in the file, and which of the tables it takes."""

FRAME_ITEMS = FIRST_COMPONENT + 3 * COMPONENT_ITEMS

MAX_SIDE = 65_500
"""The longest side of an image that libjpeg decodes, in pixels."""

TAKEN, LEFT = 0, 1
"""Whether a file, or a part of it, is decoded here or left to libjpeg-turbo."""

_SOF0, _SOF1, _DHT, _SOS, _DQT, _DRI, _APP0, _APP14, _COM = 0xC0, 0xC1, 0xC4, 0xDA, 0xDB, 0xDD, 0xE0, 0xEE, 0xFE
_APP1, _APP15 = 0xE1, 0xEF
_JFIF, _EXIF, _XMP, _ADOBE = (int.from_bytes(letters, "big") for letters in (b"JFIF\0", b"Exif\0", b"http:", b"Adobe"))
_ORIENTATION = int.from_bytes(b":Orient", "big")
_NONE, _YCC, _RGB = 0, 1, 2


@kernel()
def word_at(file, position):
    """Two bytes, the first one highest."""
    return int64(file[position]) << 8 | int64(file[position + 1])


@kernel()
def read_quantization(file, start, stop, quantization):
    """Take a DQT segment's tables, (4, 64) int32 in natural order; those that are there begin with no 0."""
    while start < stop:
        table = int64(file[start])
        if table > 3 or start + 65 > stop:  # 16 bits a value are not taken
            return LEFT
        for k in range(64):
            quantization[table, NATURAL_ORDER[k]] = file[start + 1 + k]
        if quantization[table, 0] == 0:
            return LEFT
        start += 65
    return TAKEN


@kernel()
def read_huffman(file, start, stop, counts, symbols):
    """Take a DHT segment's codes: (8, 17) how many of each length, and (8, 256) their symbols; AC behind DC."""
    while start < stop:
        table_class, table = int64(file[start]) >> 4, int64(file[start]) & 15
        if table_class > 1 or table > 3 or start + 17 > stop:
            return LEFT
        table += table_class * (NUM_TABLES // 2)
        num = 0
        for length in range(1, 17):
            counts[table, length] = file[start + length]
            num += int64(file[start + length])
        start += 17
        if num == 0 or num > 256 or start + num > stop:
            return LEFT
        for nth in range(num):
            symbols[table, nth] = file[start + nth]
        counts[table, 0] = 1
        start += num
    return TAKEN


@kernel()
def read_frame(file, start, stop, frame):
    """Take a frame header: 1 or 3 components; the first may be sampled twice along an axis, others are once."""
    num = int64(file[start + 5]) if stop - start > 6 else 0
    if (num != 1 and num != 3) or stop - start != 6 + 3 * num or file[start] != 8:
        return LEFT
    frame[HEIGHT], frame[WIDTH], frame[NUM_COMPONENTS] = word_at(file, start + 1), word_at(file, start + 3), num
    if not 0 < frame[HEIGHT] <= MAX_SIDE or not 0 < frame[WIDTH] <= MAX_SIDE:
        return LEFT
    for component in range(num):
        at, to = start + 6 + 3 * component, FIRST_COMPONENT + component * COMPONENT_ITEMS
        horizontal, vertical = int64(file[at + 1]) >> 4, int64(file[at + 1]) & 15
        if component == 0:
            frame[HORIZONTAL], frame[VERTICAL] = horizontal, vertical
            if horizontal < 1 or horizontal > 2 or vertical < 1 or vertical > 2:
                return LEFT
        elif horizontal != 1 or vertical != 1:
            return LEFT
        if file[at + 2] > 3:
            return LEFT
        frame[to + IDENTIFIER], frame[to + QUANTIZATION] = file[at], file[at + 2]
        for other in range(component):
            if frame[FIRST_COMPONENT + other * COMPONENT_ITEMS + IDENTIFIER] == file[at]:
                return LEFT
    if num == 1:  # one component is not interleaved, however it says it is sampled
        frame[HORIZONTAL] = frame[VERTICAL] = 1
    return TAKEN


@kernel()
def read_scan(file, start, stop, frame, quantization, counts):
    """Take the header of a scan that holds all components in the frame's order, every table of which is there."""
    num = frame[NUM_COMPONENTS]
    if stop - start != 4 + 2 * num or file[start] != num:
        return LEFT
    for component in range(num):
        at, to = start + 1 + 2 * component, FIRST_COMPONENT + component * COMPONENT_ITEMS
        dc, ac = int64(file[at + 1]) >> 4, int64(file[at + 1]) & 15
        if file[at] != frame[to + IDENTIFIER] or dc > 3 or ac > 3:
            return LEFT
        frame[to + DC_TABLE], frame[to + AC_TABLE] = dc, NUM_TABLES // 2 + ac
        if quantization[frame[to + QUANTIZATION], 0] == 0:
            return LEFT
        if counts[dc, 0] == 0 or counts[NUM_TABLES // 2 + ac, 0] == 0:
            return LEFT
    return TAKEN if file[stop - 3] == 0 and file[stop - 2] == 63 and file[stop - 1] == 0 else LEFT


@kernel()
def starts_with(file, start, stop, letters):
    """Whether a segment begins with five letters, given as one number."""
    if stop - start < 5:
        return False
    found = int64(0)
    for i in range(5):
        found = found << 8 | int64(file[start + i])
    return found == letters


@kernel()
def has_orientation(file, start, stop):
    """Whether ":Orient" stands in a segment, as in `tiff:Orientation` of XMP."""
    found = int64(0)
    for i in range(start, stop):
        found = (found & 0xFFFFFFFFFFFF) << 8 | int64(file[i])
        if found == _ORIENTATION:
            return True
    return False


@kernel()
def colours_of(frame, has_jfif, adobe):
    """What three components are, by libjpeg's rules; those numbered R, G, B are that."""
    if has_jfif:
        return _YCC
    if adobe >= 0:
        return _RGB if adobe == 0 else _YCC if adobe == 1 else _NONE
    for component, letter in ((0, 82), (1, 71), (2, 66)):
        if frame[FIRST_COMPONENT + component * COMPONENT_ITEMS + IDENTIFIER] != letter:
            return _YCC
    return _RGB


@kernel()
def read_header(file, frame, quantization, counts, symbols):
    """Read the segments up to the first scan's coded bytes; TAKEN, or LEFT with what was read so far.

    Args:
        file: (n,) uint8, a whole file.
        frame: (FRAME_ITEMS,) int64, filled.
        quantization: (4, 64) int32 in natural order, filled.
        counts: (NUM_TABLES, 17) uint8, filled: whether the table is there, and its number of codes of 1 to 16 bits.
        symbols: (NUM_TABLES, 256) uint8, filled.
    """
    num, position = len(file), 2
    frame[:] = 0
    quantization[:, 0] = 0
    counts[:, 0] = 0
    has_jfif, adobe = False, -1
    if num < 4 or file[0] != 0xFF or file[1] != 0xD8:
        return LEFT
    while position + 4 <= num and file[position] == 0xFF:
        marker = int64(file[position + 1])
        if marker == 0xFF:  # fills
            position += 1
            continue
        start, stop = position + 4, position + 2 + word_at(file, position + 2)
        if stop < start or stop > num:
            return LEFT
        result = TAKEN
        if marker == _DQT:
            result = read_quantization(file, start, stop, quantization)
        elif marker == _DHT:
            result = read_huffman(file, start, stop, counts, symbols)
        elif marker in (_SOF0, _SOF1):
            result = read_frame(file, start, stop, frame) if frame[WIDTH] == 0 else LEFT
        elif marker == _DRI:
            result = TAKEN if stop - start == 2 else LEFT
            frame[RESTART_INTERVAL] = word_at(file, start) if stop - start == 2 else 0
        elif marker == _APP0 and starts_with(file, start, stop, _JFIF):
            has_jfif = True
            result = TAKEN if stop - start >= 14 and file[start + 5] == 1 else LEFT
        elif marker == _APP1 and (
            starts_with(file, start, stop, _EXIF)
            or (starts_with(file, start, stop, _XMP) and has_orientation(file, start, stop))
        ):
            frame[MAY_BE_TURNED] = 1
        elif marker == _APP14 and starts_with(file, start, stop, _ADOBE):
            adobe = int64(file[start + 11]) if stop - start >= 12 else 2
        elif marker == _SOS:
            if frame[WIDTH] == 0 or read_scan(file, start, stop, frame, quantization, counts) == LEFT:
                return LEFT
            frame[SCAN_START] = stop
            colours = colours_of(frame, has_jfif, adobe) if frame[NUM_COMPONENTS] == 3 else _YCC
            frame[IS_RGB] = colours == _RGB
            is_subsampled = frame[HORIZONTAL] * frame[VERTICAL] > 1
            return LEFT if colours == _NONE or (frame[IS_RGB] and is_subsampled) else TAKEN
        elif not (_APP0 <= marker <= _APP15 or marker == _COM):
            return LEFT
        if result == LEFT:
            return LEFT
        position = stop
    return LEFT
