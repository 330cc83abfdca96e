"""Make the index of a folder: every JPEG in it is read once, and its codes passed over."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from augpipe.datasets.files.atomic import sync_folder
from augpipe.datasets.files.image_files import read_file
from augpipe.datasets.files.lock import lock_file
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.folder_index import INDEX_NAME, Entry, end_of_index, map_whole, read_entries
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.stats.collect import map_chunks
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.decoding.row_index import row_index_of
from augpipe.native.workers import num_usable_cores
from augpipe.validation.arguments import as_num_threads

PARTIAL_NAME = f"{INDEX_NAME}.partial"
"""What a run that was stopped has left, and the next one goes on with."""


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """What a run has done."""

    path: str
    """The index."""
    num_images: int
    num_indexed: int
    """Images that have a row index."""
    num_kept: int
    """Images that were not read again, since an earlier run had."""
    num_bytes: int
    """How long the index is."""


def index_folder(
    folder: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Indexed:
    """Write the index of a folder of images into it, for every source that opens the folder from then on.

    The same images give the same bytes, however many threads there are and however often a run was stopped. An image
    that has not changed since an earlier run is not read again.

    Args:
        folder: of images or class folders, as `FolderSource` takes it.
        num_threads: None for one a core.
        progress: told how many images are done, and of how many.

    Raises:
        ValueError: it is not such a folder, or another run is at work there.
        OSError: the index cannot be written.
    """
    root = os.fspath(folder)
    threads = as_num_threads(num_threads, num_usable_cores())
    lock = os.path.join(root, f"{INDEX_NAME}.lock")
    source = FolderSource(root)
    with lock_file(lock, lambda holder: f"another run is indexing {printable(root)}{holder}. Wait for its end."):
        try:
            return _write(root, source, threads, progress)
        finally:
            os.unlink(lock)


def _write(root: str, source: FolderSource, threads: int, progress: Callable[[int, int], None]) -> Indexed:
    path, partial = os.path.join(root, INDEX_NAME), os.path.join(root, PARTIAL_NAME)
    total, written = len(source), _Written()
    end = _go_on(source, partial, written)
    num_kept = len(written.lengths)
    earlier, since = {}, 0
    if os.path.exists(path):
        earlier, since = {entry.name: entry for entry in read_entries(map_whole(path))}, os.stat(path).st_mtime_ns

    def made(sample_ids: Sequence[int], tick: Callable[[], None]) -> list[tuple[Entry, bool]]:
        entries = []
        for sample_id in sample_ids:
            name, file = os.fsencode(source.names[sample_id]), source.path(sample_id)
            known = earlier.get(name)
            if known is None or not _is_older(file, since):
                entries.append((_entry_of(name, file), False))
            else:
                entries.append((known, True))
            tick()
        return entries

    with open(partial, "ab") as file:
        file.truncate(end)
        rest = range(num_kept, total)
        for chunk in map_chunks(made, rest, threads, lambda done: progress(total - len(rest) + done, total)):
            for entry, is_kept in chunk:
                file.write(written.add(entry))
                num_kept += is_kept
            file.flush()  # what a run that is stopped now has done
        file.write(end_of_index(written.sizes, written.lengths, source.names.digest()))
        file.flush()
        os.fsync(file.fileno())
        num_bytes = file.tell()
    os.replace(partial, path)
    sync_folder(root)
    return Indexed(path=path, num_images=total, num_indexed=written.num_indexed, num_kept=num_kept, num_bytes=num_bytes)


class _Written:
    """What the table at the end says of the entries before it."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.lengths: list[int] = []
        self.num_indexed = 0

    def add(self, entry: Entry) -> bytes:
        """Count an entry, and give its bytes."""
        data = entry.to_bytes()
        self.sizes.append((entry.height, entry.width))
        self.lengths.append(len(data))
        self.num_indexed += len(entry.row_index) > 0
        return data


def _go_on(source: FolderSource, partial: str, written: _Written) -> int:
    """Where in a file that a stopped run has left the next entry comes: behind those that still hold."""
    if not os.path.exists(partial):
        return 0
    since = os.stat(partial).st_mtime_ns
    for sample_id, entry in enumerate(read_entries(map_whole(partial))):
        is_next = sample_id < len(source) and entry.name == os.fsencode(source.names[sample_id])
        if not is_next or not _is_older(source.path(sample_id), since):
            break
        written.add(entry)
    return sum(written.lengths)


def _is_older(file: str, since: int) -> bool:
    try:
        return os.stat(file).st_mtime_ns < since
    except OSError:
        return False


def _entry_of(name: bytes, file: str) -> Entry:
    """The entry of an image, read now; one without a row index where there is none, or the image cannot be read."""
    try:
        content = read_file(file)
        header = probe(content, max_pixels=MAX_PIXELS)
    except (OSError, ValueError):
        return Entry(name, 0, 0, b"")
    index = row_index_of(content, header.height, header.width) if header.may_crop else b""
    return Entry(name, header.height, header.width, index) if index else Entry(name, 0, 0, b"")
