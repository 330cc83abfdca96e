"""What a slow loader is staged with: folders of photographs, a slow disk, a server far away, contents in memory."""

import io
import multiprocessing
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.sources import Subset
from augpipe.sources.protocol import Source

Content = bytes | npt.NDArray[np.uint8]

ROUND_TRIP_S = 0.01
LARGE_PX, KEPT_PX = 2_000, 600
"""Photographs of a longer side than the first are held in about the size that a decoder gives them for small views."""
TILE_PX = 500, 375


class Disk(Subset):
    """A source as on a slow disk: each read takes `latency_s`, all share `bytes_per_s`, `at_once` are under way."""

    def __init__(self, source: Source, *, latency_s: float, bytes_per_s: float, at_once: int = 64) -> None:
        super().__init__(source, np.arange(len(source)))
        self._latency_s, self._bytes_per_s = latency_s, bytes_per_s
        self._heads, self._lock, self._free_at = threading.Semaphore(at_once), threading.Lock(), 0.0

    def read(self, sample_id: int) -> Content:
        """The sample's file, later."""
        content = super().read(sample_id)
        with self._heads:
            with self._lock:
                now = time.perf_counter()
                self._free_at = max(now, self._free_at) + len(content) / self._bytes_per_s
                until = self._free_at + self._latency_s
            time.sleep(until - now)
        return content


class Held(Subset):
    """A source whose contents are in memory, as files or pixels; `reads` has it read as before and use these."""

    def __init__(self, source: Source, contents: Sequence[Content], *, reads: bool) -> None:
        super().__init__(source, np.arange(len(source)))
        self._contents, self._reads = contents, reads
        self._row_indexes = [] if reads else [super(Held, self).row_index(i) for i in range(len(contents))]

    @property
    def knows_sizes(self) -> bool:
        """Of files what the source knows; pixels tell their size themselves."""
        return super().knows_sizes and isinstance(self._contents[0], bytes)

    def read(self, sample_id: int) -> Content:
        """What is held."""
        if self._reads:
            super().read(sample_id)
        return self._contents[sample_id % len(self._contents)]

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """That of what is held."""
        return self._row_indexes[sample_id % len(self._contents)] if self._row_indexes else b""


class Sized(Subset):
    """A source whose sizes are known, so that a thousand samples are planned at once."""

    knows_sizes = True

    def __init__(self, source: Source, sizes: Sequence[tuple[int, int]]) -> None:
        super().__init__(source, np.arange(len(source)))
        self._sizes = sizes

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width in pixels."""
        return self._sizes[sample_id % len(self._sizes)]


class PillowDataset:
    """A map-style data set that decodes its items itself."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.rglob("*.jpg"))
        self.targets = [0] * len(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.open(self._paths[index]).convert("RGB"), self.targets[index]


@dataclass(frozen=True)
class Files:
    """A folder of class folders that all hold the same images: sample i is content i modulo their number."""

    folder: Path
    contents: Sequence[bytes]

    @cached_property
    def pixels(self) -> list[npt.NDArray[np.uint8]]:
        """(H, W, 4) RGBX of each."""
        return [_pixels(content) for content in self.contents]

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """Height and width of each, in pixels."""
        return [Image.open(io.BytesIO(content)).size[::-1] for content in self.contents]


class Staging:
    """Sets of files in a temporary folder, each made when it is first asked for.

    Args:
        folder: where.
        photographs: encoded ones.
        ends: what ends a server, where one is asked for.
        share: of the copies that make an epoch longer than any measurement.
    """

    def __init__(self, folder: Path, photographs: Sequence[bytes], ends: ExitStack, share: float = 1.0) -> None:
        self.folder, self._photographs, self._ends, self._share = folder, photographs, ends, share
        self._images = [Image.open(io.BytesIO(content)).convert("RGB") for content in photographs]

    @cached_property
    def photographs(self) -> Files:
        """As they are."""
        return self._write("photographs", self._photographs, copies=36)

    @cached_property
    def few(self) -> Files:
        """The same, in a shorter epoch, for what reads slowly."""
        return self._write("few", self._photographs, copies=24)

    @cached_property
    def unread(self) -> Files:
        """The same, each copy a file of its own."""
        return self._write("unread", self._photographs, copies=16, are_links=False)

    @cached_property
    def pngs(self) -> Files:
        """PNGs of 500x375."""
        contents = [_encoded(image.resize(TILE_PX), "png") for image in self._images[:100]]
        return self._write("pngs", contents, copies=12, suffix="png")

    @cached_property
    def large(self) -> Files:
        """JPEGs of 7 megapixels."""
        return self._write("large", [self._large(first) for first in range(8)], copies=600)

    @cached_property
    def few_large(self) -> Files:
        """Photographs, and one in 32 of 7 megapixels."""
        contents = list(self._photographs[:64])
        contents[5::32] = [self._large(first) for first in range(len(contents[5::32]))]
        return self._write("few_large", contents, copies=150)

    @cached_property
    def small(self) -> Files:
        """JPEGs of 32x32."""
        return self._write("small", [_encoded(image.resize((32, 32)), "jpeg") for image in self._images], copies=80)

    @cached_property
    def shards(self) -> Files:
        """Photographs in shards, as they are."""
        files, out = self._write("to_pack", self._photographs, copies=4), self.folder / "shards"
        run_command(f"augpipe prepare {shlex.quote(str(files.folder))} {shlex.quote(str(out))} --keep", self.folder)
        return Files(out, files.contents)

    @cached_property
    def url(self) -> str:
        """Where another process serves the shards."""
        return self._ends.enter_context(_serving(self.shards.folder))

    def _write(
        self, name: str, contents: Sequence[bytes], *, copies: int, suffix: str = "jpg", are_links: bool = True
    ) -> Files:
        for copy in range(max(1, round(self._share * copies))):
            folder = self.folder / name / f"class{copy:03}"
            folder.mkdir(parents=True)
            for number, content in enumerate(contents):
                path = folder / f"{number:04}.{suffix}"
                if copy and are_links:
                    path.hardlink_to(self.folder / name / "class000" / path.name)
                else:
                    path.write_bytes(content)
        return Files(self.folder / name, contents)

    def _large(self, first: int) -> bytes:
        """Several photographs side by side: as much detail as a camera's."""
        whole = Image.new("RGB", (6 * TILE_PX[0], 6 * TILE_PX[1]))
        for place in range(36):
            tile = self._images[(36 * first + place) % len(self._images)].resize(TILE_PX)
            whole.paste(tile, (place % 6 * TILE_PX[0], place // 6 * TILE_PX[1]))
        return _encoded(whole, "jpeg", quality=90)


def _encoded(image: Image.Image, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def _pixels(content: bytes) -> npt.NDArray[np.uint8]:
    image = Image.open(io.BytesIO(content))
    if max(image.size) > LARGE_PX:
        image.draft("RGB", (KEPT_PX, KEPT_PX))
    return np.dstack([np.array(image.convert("RGB")), np.zeros(image.size[::-1], np.uint8)])


def run_command(line: str, folder: Path) -> None:
    """Carry out `augpipe ...` in a folder, with this Python."""
    program, *arguments = shlex.split(line)
    assert program == "augpipe", line
    subprocess.run([sys.executable, "-m", program, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


class _Handler(BaseHTTPRequestHandler):
    """Files and parts of them, each answer a round trip later."""

    protocol_version = "HTTP/1.1"
    root: Path

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        time.sleep(ROUND_TRIP_S)
        path = self.root / self.path.lstrip("/")
        content = path.read_bytes() if path.is_file() else b""
        headers = {"ETag": f'"{path.name}"'}
        status = 200 if path.is_file() else 404
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last, whole = int(asked[1]), int(asked[2]), len(content)
            status, content = 206, content[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{first + len(content) - 1}/{whole}"
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _serve(root: Path, told: Connection) -> None:
    _Handler.root = root
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        told.send(server.server_port)
        server.serve_forever()


@contextmanager
def _serving(root: Path) -> Iterator[str]:
    """The URL of a folder that another process serves, `ROUND_TRIP_S` away."""
    spawned = multiprocessing.get_context("spawn")
    here, there = spawned.Pipe()
    process = spawned.Process(target=_serve, args=(root, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()
