"""The formats of images in shards: how each is counted in an index, and its files' extension in a tar file."""

from augpipe.decoding.header import Format

EXTENSIONS: dict[Format, str] = {"JPEG": "jpg", "PNG": "png", "WebP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif"}
"""In the order of their codes, from 0; a new one comes last."""
_CODES = {name: code for code, name in enumerate(EXTENSIONS)}
_EXTENSIONS = tuple(EXTENSIONS.values())


def format_code(name: Format) -> int:
    """What an index says for a format."""
    return _CODES[name]


def extension_of(code: int) -> str:
    """The extension of a format's files, without the dot.

    Raises:
        ValueError: no format has this code; the reason alone.
    """
    if code >= len(_EXTENSIONS):
        raise ValueError(f"the index is damaged: format {code} is none of the {len(_EXTENSIONS)} that there are")
    return _EXTENSIONS[code]
