"""PNG: leaving out what makes a picture an animation."""

import struct

_SIGNATURE_BYTES = 8
_ANIMATION = (b"acTL", b"fcTL", b"fdAT")


def without_animation(data: bytes) -> bytes:
    """The still picture of an animated PNG; `data` itself where it is still.

    Readers that know no animation show the same picture: the first frame, or a stand-in for the whole. Pillow warns
    of damaged animation chunks, and a warning cannot be silenced for one thread alone.
    """
    kept = []
    kept_from = 0
    stop = _SIGNATURE_BYTES
    while stop + 8 <= len(data):
        start = stop
        length, kind = struct.unpack_from(">L4s", data, start)
        stop = start + 12 + length  # length, kind, content, checksum (PNG specification, section 5.3)
        if kind in _ANIMATION:
            kept.append(data[kept_from:start])
            kept_from = stop
    return b"".join([*kept, data[kept_from:]]) if kept else data
