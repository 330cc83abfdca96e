"""WebDataset tar files as they are: images by sample id, nothing unpacked."""

import os
from collections.abc import Sequence
from typing import Literal

import numpy as np

from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.files.image_files import EXTENSIONS
from augpipe.datasets.formats.container import ContainerSource, Paths, container_files, refuse_compressed
from augpipe.datasets.formats.tar.index import TarIndexer
from augpipe.datasets.formats.tar.labels import FOLDER, folder_labels, left_out, refuse_unread_labels
from augpipe.datasets.metadata.names import listed, printable
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.patterns import remote_files
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown
from augpipe.validation.plural import count


class TarSource(ContainerSource):
    """The images of one tar file or of many; sample ids count through the files, and in each in its own order.

    Members that follow one another and whose names agree up to the first dot are one sample, as in WebDataset. Its
    image is the member with an extension of `files.EXTENSIONS`. Its label is its `.cls` member, else the field `label`
    of its `.json` member, else none: integers, or class names, which are then sorted by their bytes. A tar file of
    nothing but images is taken as well, all with label -1, unless something looks like their labels: they lie in
    several folders, or members and fields have such names.

    Opening reads every header once, and keeps 24 bytes a sample in addition to the image's name. Any number of threads
    may read; a copy made by pickle takes the index along. All this holds for URLs too, where opening fetches most of
    each file, as its headers lie all over it.

    Args:
        paths: a tar file, a folder whose tar files are taken sorted by name, a pattern such as
            `shard-{000000..000009}.tar` or `shard-*.tar`, or a sequence of tar files; paths or URLs.
        extension: which member is the image, where a sample has several: "jpg", "left.png".
        label: the member, by its extension, or else the field of the JSON member that holds the label; "folder" takes
            the folders below those that all images have in common; False reads none.
        classes: label -> class name.
        split: "train" or another, for a folder that holds the files of several, as their names say.
        remote: limits and the cache of files at URLs; the environment's if left out.

    Raises:
        ValueError: no such file; one that is not a tar file, is compressed, truncated or damaged, holds a link, a
            device or a name that leads out of a folder, or a key twice; no image in it; labels that do not fit, lie
            apart from their images, or that are not read by themselves. Says where.
        OSError: a file cannot be read; `RemoteError` where no usable answer came.
        ImportError: a package for its URL is missing.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        extension: str | None = None,
        label: str | Literal[False] | None = None,
        classes: Sequence[str] | None = None,
        split: str | None = None,
        remote: RemoteSettings | None = None,
    ) -> None:
        if label and not isinstance(label, str):
            raise ValueError(
                f"label={label!r:.100} names several fields, and a tar file's label is one: a member, or a field of "
                'its .json, which may hold a list. Name one: label="target".'
            )
        urls = remote_files(paths, ".tar", remote, split)
        super().__init__(container_files(paths, "tar", ".tar", split) if urls is None else [shown(url) for url in urls])
        self._files = FileSet(self._paths) if urls is None else RemoteFileSet(urls, remote)
        indexer = TarIndexer(extension, False if label == FOLDER else label)
        for number, path in enumerate(self._paths):
            with self._files.open(number) as file:
                refuse_compressed(path, file.read(6))
                indexer.add(path, file)
        if not indexer.offsets:
            raise ValueError(_nothing_found(self._paths, extension, indexer))
        self._offsets = np.frombuffer(indexer.offsets, np.uint64)
        self._lengths = np.frombuffer(indexer.lengths, np.uint32)
        self._names = indexer.names
        self._ends = indexer.ends
        labels = indexer.labels
        try:
            if label == FOLDER:
                labels.texts = folder_labels(self._names)
            elif label is not False and not indexer.num_labelled:
                refuse_unread_labels(indexer, label)
        except ValueError as error:
            raise ValueError(f"{self._where}: {error}.") from error
        self._labels, self.classes = labels.numbered(classes, self.name)
        self.notes, self.left_out, self.cautions = labels.texts.notes, left_out(indexer), labels.texts.cautions

    def read(self, sample_id: int) -> bytes:
        """The image's bytes, copied out of the tar file.

        Raises:
            ValueError: the tar file has become shorter; the reason alone.
            OSError: it cannot be read.
        """
        file, _ = self._find(sample_id)
        length = int(self._lengths[sample_id])
        data = self._files.read(file, length, int(self._offsets[sample_id]))
        if len(data) != length:
            raise ValueError(f"the tar file ends after {len(data)} of its {length} bytes: it was cut short meanwhile")
        return data

    def name(self, sample_id: int) -> str:
        """The tar file's path and the image's name in it."""
        file, _ = self._find(sample_id)
        return printable(f"{self._paths[file]}/{self._names[sample_id]}")

    @property
    def has_stored_names(self) -> bool:
        """True: a member's name stays when others come or go."""
        return True

    def stored_name(self, sample_id: int) -> str:
        """The member's name behind that of its tar file."""
        file, _ = self._find(sample_id)
        return f"{os.path.basename(self._paths[file])}/{self._names[sample_id]}"

    def _known_content(self) -> bytes:
        return self._offsets.tobytes() + self._lengths.tobytes()


def _nothing_found(paths: Sequence[str], extension: str | None, indexer: TarIndexer) -> str:
    wanted = f".{extension.lstrip('.')}" if extension else ", ".join(EXTENSIONS)
    found = "no samples at all"
    if indexer.num_without_image:
        extensions = listed(sorted(indexer.found_extensions))
        found = f"{count(indexer.num_without_image, 'sample')} of other members ({extensions})"
    return (
        f"no image in {listed(paths)}: looked for members that end with {wanted}, and found {found}. "
        "Pass extension=, the one of the images, if they are there under another name."
    )
