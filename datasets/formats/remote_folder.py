"""Images that are remote files of their own, below a folder that can be listed."""

import hashlib
from collections.abc import Sequence

import numpy as np

from augpipe.datasets.files.image_files import EXTENSIONS, is_image_name
from augpipe.datasets.files.splits import chosen
from augpipe.datasets.formats.class_folders import (
    Unread,
    caution_of_numbers,
    left_beside,
    refuse_mixture,
    refuse_splits,
)
from augpipe.datasets.metadata.labelled_source import LabelledSource
from augpipe.datasets.metadata.names import NameTable, listed, printable
from augpipe.datasets.remote.blocks import RemoteFile, store_for
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown
from augpipe.sources.subset import check_id

MAX_IMAGE_BYTES = 2**31 - 1


class RemoteFolderSource(LabelledSource):
    """The images below `folder`, as FOLDER/CLASS/.../photo.jpg or as FOLDER/photo.jpg; labels as `FolderSource`.

    Each image is an object that is asked for by itself: that suits some thousands, and shards suit more. Listing
    takes a request a thousand objects; about 50 bytes and the name are kept of each.

    Args:
        folder: of S3, Google Cloud Storage, memory://, ...; HTTP has no folders.
        classes: the classes and their order, instead of the folders found.
        split: as of `FolderSource`.
        remote: limits and the cache; the environment's if left out.

    Raises:
        ValueError: no image, photographs next to class folders, a folder not in `classes`, several splits, or HTTP.
        RemoteError, FileNotFoundError, ImportError: it cannot be listed.
    """

    def __init__(
        self,
        folder: str,
        *,
        classes: Sequence[str] | None = None,
        split: str | None = None,
        remote: RemoteSettings | None = None,
    ) -> None:
        self._store = store_for(remote)
        root = folder.rstrip("/") + "/"
        listing = self._store.files.files_in(folder, deep=True)
        below = _below(root, listing)
        if split is not None:
            root += (
                chosen(shown(folder), sorted({name.split("/")[0] for name, _, _ in below if "/" in name}), split) + "/"
            )
            below = _below(root, listing)
        visible = [file for file in below if "/." not in f"/{file[0]}"]
        taken = [file for file in visible if is_image_name(file[0])]
        loose = [file[0] for file in taken if "/" not in file[0]]
        in_classes = [file for file in taken if "/" in file[0]] or taken
        unread = Unread()
        unread.add_all(name for name, _, _ in visible if not is_image_name(name))
        if not in_classes:
            raise ValueError(
                f"no photograph in {shown(root)}: looked for files that end with {', '.join(EXTENSIONS)}, and found "
                f"{len(below)} others{': ' + listed(file[0] for file in below) if below else ''}."
            )
        in_classes.sort(key=lambda file: [part.encode("utf-8", "surrogateescape") for part in file[0].split("/", 1)])
        folders = [file[0].partition("/")[0] if "/" in file[0] else None for file in in_classes]
        found = sorted({name for name in folders if name is not None}, key=lambda name: name.encode())
        self.left_out = unread.in_words()
        if found:
            refuse_splits(shown(root), found, classes)
            refuse_mixture(shown(root), loose, found, classes)
            self.left_out = [*left_beside(loose), *self.left_out]
            self.cautions = [] if classes is not None else caution_of_numbers(found)
        unknown = [name for name in found if classes is not None and name not in classes]
        if unknown:
            raise ValueError(f"{shown(root)} holds folders that are not among the classes given: {listed(unknown)}.")
        self.classes: Sequence[str] = tuple(classes if classes is not None else found)
        number = {name: label for label, name in enumerate(self.classes)}
        self._root = root
        self._where = printable(root)
        self._names, self._versions = NameTable(), NameTable()
        self._names.extend(file[0].encode("utf-8", "surrogateescape") for file in in_classes)
        self._versions.extend(file[2].encode("utf-8", "surrogateescape") for file in in_classes)
        self._lengths = np.array([file[1] for file in in_classes], np.int64)
        self._labels = np.array([-1 if name is None else number[name] for name in folders], np.int64)

    def __len__(self) -> int:
        return len(self._names)

    def read(self, sample_id: int) -> bytes:
        """The image's bytes.

        Raises:
            RemoteError: no usable answer came.
            FileNotFoundError: it is there no longer.
            ValueError: it is longer than an image may be.
        """
        check_id(sample_id, len(self))
        length = int(self._lengths[sample_id])
        if length > MAX_IMAGE_BYTES:
            raise ValueError(f"it has {length} bytes, and a photograph of more than {MAX_IMAGE_BYTES} is not read")
        url = self._root + self._names[sample_id]
        # the state is part of the key alone: some file systems write it differently in a listing
        file = RemoteFile(url, length, "", f"{url}\n{length}\n{self._versions[sample_id]}")
        return self._store.read(file, length, 0)

    @property
    def has_stored_names(self) -> bool:
        """True: an object's name stays when others come or go."""
        return True

    def stored_name(self, sample_id: int) -> str:
        """The object's name below the folder."""
        check_id(sample_id, len(self))
        return self._names[sample_id]

    def content_digest(self) -> str:
        """A digest of the objects' lengths."""
        return hashlib.blake2b(self._lengths.tobytes(), digest_size=16).hexdigest()

    def name(self, sample_id: int) -> str:
        """The URL, printable."""
        check_id(sample_id, len(self))
        return printable(self._root + self._names[sample_id])


def _below(root: str, files: Sequence[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """The files below a folder, by their names from there on."""
    return [(url.removeprefix(root), num_bytes, version) for url, num_bytes, version in files if url.startswith(root)]
