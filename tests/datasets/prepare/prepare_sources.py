"""Small sources for tests of prepare, an engine without processes, and colour profiles made on the spot."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image, ImageCms

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.chunk import ChunkTask
from augpipe.datasets.prepare.engine_protocol import Watcher
from augpipe.datasets.prepare.journal import complete_chunk
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.manifest import Manifest
from augpipe.sources.protocol import Source
from tests.augpipe.decoding.image_files import encoded, scene, write_files

SETTINGS = PrepareSettings(scales=("32", "48"))


class InlineEngine:
    """Chunks in this process, last first if `backwards`; stops by an error before chunk `stop_before` of the run."""

    def __init__(self, *, backwards: bool = False, stop_before: int | None = None) -> None:
        self.backwards = backwards
        self.stop_before = stop_before
        self.done: list[int] = []

    def run(self, source: Source, tasks: Iterable[ChunkTask], watcher: Watcher) -> None:
        for task in reversed(list(tasks)) if self.backwards else tasks:
            if len(self.done) == self.stop_before:
                raise KeyboardInterrupt
            complete_chunk(source, task, lambda: watcher.progress(1))
            self.done.append(task.number)


def prepare_inline(photos: Path, out: Path, settings: PrepareSettings = SETTINGS, **options: Any) -> Manifest:
    """Prepare a folder in this process, unless another engine is given."""
    options.setdefault("engine", InlineEngine())
    return prepare(FolderSource(photos), out, settings, source_path=str(photos), **options)


def write_photos(folder: Path, num: int, height: int = 60, width: int = 80) -> Path:
    """`num` JPEGs of a few sizes in three class folders; one of them gray, one turned, one a PNG."""
    files = {}
    for number in range(num):
        image = Image.fromarray(scene(height + number % 7, width + number % 5, number))
        if number == 1:
            image = image.convert("L")
        kind = "PNG" if number == 2 else "JPEG"
        options = {"exif": _turned()} if number == 3 else {}
        files[f"class {number % 3}/{number:04}.{kind.lower()}"] = encoded(image, kind, **options)
    write_files(folder, files)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too: its path there -> its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def red_is_green_profile() -> bytes:
    """sRGB's profile with its red and green primaries exchanged."""
    return _with_tags(_srgb(), {b"rXYZ": b"gXYZ", b"gXYZ": b"rXYZ"})


def srgb_profile() -> bytes:
    return _srgb()


def cmyk_profile() -> bytes:
    """A printer whose inks do what no ink does: cyan alone darkens, and paper is L*=100."""
    grid = b"".join(bytes([255 - 204 * (corner >> 3 & 1), 128, 128]) for corner in range(16))
    ramp = bytes(range(256))
    lut = b"mft1" + bytes(4) + bytes([4, 3, 2, 0])
    lut += struct.pack(">9l", *(0x10000 if place % 4 == 0 else 0 for place in range(9)))
    lut += ramp * 4 + grid + ramp * 3
    lut += bytes(-len(lut) % 4)
    white = b"XYZ " + bytes(4) + struct.pack(">3L", 0xF6D6, 0x10000, 0xD32D)
    start = 128 + 4 + 2 * 12
    tags = struct.pack(">L", 2) + b"A2B0" + struct.pack(">LL", start, len(lut))
    tags += b"wtpt" + struct.pack(">LL", start + len(lut), len(white))
    body = tags + lut + white
    head = struct.pack(">L4sL4s4s4s", 128 + len(body), b"lcms", 0x02100000, b"prtr", b"CMYK", b"Lab ")
    head += struct.pack(">6H", 2020, 1, 1, 0, 0, 0) + b"acsp" + bytes(28)
    head += struct.pack(">3L", 0xF6D6, 0x10000, 0xD32D)
    return head + bytes(128 - len(head)) + body


def _srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def _turned() -> Image.Exif:
    notes = Image.Exif()
    notes[0x0112] = 6
    return notes


def _with_tags(profile: bytes, renamed: dict[bytes, bytes]) -> bytes:
    data = bytearray(profile)
    (num,) = struct.unpack_from(">L", data, 128)
    for at in range(132, 132 + 12 * num, 12):
        name = bytes(data[at : at + 4])
        data[at : at + 4] = renamed.get(name, name)
    return bytes(data)
