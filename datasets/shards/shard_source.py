"""Our shards as a source: images by sample id, from as many shards as there are."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.descriptors import FileSet, absolute
from augpipe.datasets.metadata.labelled_source import find_sample
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import as_url, join, shown
from augpipe.datasets.shards.index import Record, ShardIndex, index_path
from augpipe.datasets.shards.manifest import Manifest, Scale, TargetsInfo
from augpipe.datasets.shards.open_files import index_files, open_indices, open_remote_indices, target_file_set
from augpipe.datasets.shards.remote_shards import (
    read_checked,
    remote_indices,
    remote_shards,
    remote_targets,
)
from augpipe.datasets.shards.shard_targets import targets_path
from augpipe.datasets.shards.target_files import TargetFiles
from augpipe.datasets.shards.ustar import BLOCK_BYTES, END, is_header_of
from augpipe.datasets.shards.writer import MAX_IMAGE_BYTES, MAX_NOTE_BYTES
from augpipe.sources.protocol import Labels, as_label_rows
from augpipe.sources.targets import LabelMap, Targets
from augpipe.validation.plural import count

_MAX_GROUP_BYTES = MAX_IMAGE_BYTES + MAX_NOTE_BYTES + 16 * BLOCK_BYTES
"""What a sample may take in a tar file."""
_NO_TARGETS = TargetsInfo(has_objects=False, has_label_maps=False)


class ShardSource:
    """One scale of a data set that `augpipe prepare` wrote; sample ids count through its shards in order.

    Opening it takes time and memory for the shards, not for the samples: indices are memory-mapped, and few tar files
    are open at once. Any number of threads may read; a copy made by pickle opens the shards again.

    Each read checks the index against the tar header before the image, which names it and its length, so that an
    index that lies gives an error and never another sample's bytes.

    At a URL, the manifest is asked for, and the indices' heads where they are not kept from an earlier time. A read
    asks for all that a sample takes in its shard at once, and compares it with the index's CRC-32.

    Args:
        folder: the data set's, which holds manifest.json; a path or a URL.
        scale: the scale's folder, e.g. 256 or "full"; the largest if left out.
        remote: limits and the cache for a URL; the environment's if left out.

    Raises:
        ValueError: the manifest or an index cannot be used, a shard has not the manifest's length, or no such scale.
        OSError: one of them cannot be read; `RemoteError` where no usable answer came.
        ImportError: a package for its URL is missing.
    """

    knows_sizes = True
    """That `size` is what the images show: a loader plans its batches without reading them."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        scale: str | int | None = None,
        *,
        remote: RemoteSettings | None = None,
    ) -> None:
        url = as_url(folder)
        self.folder = os.fspath(folder) if url is None else url
        self._place = absolute(self.folder) if url is None else url
        self.manifest = Manifest.load(self.folder, remote)
        chosen = self.manifest.scale(scale)
        self.scale = chosen.name
        """The scale's folder."""
        self.classes: Sequence[str] = self.manifest.classes
        self._remote: RemoteFileSet | None = None
        self._remote_rows: RemoteFileSet | None = None
        if url is None:
            self._paths = [os.path.join(self.folder, chosen.name, shard.name) for shard in chosen.shards]
            self._files = FileSet(self._paths)
            self._index_files = index_files(self._paths)
            self._indices = open_indices(self._paths, chosen.shards)
        else:
            self._settings = remote or RemoteSettings()
            urls = [join(url, chosen.name, shard.name) for shard in chosen.shards]
            self._paths = [shown(name) for name in urls]
            index_urls = [join(url, chosen.name, index_path(shard.name)) for shard in chosen.shards]
            self._indices = open_remote_indices(index_urls, chosen, self._settings)
            self._remote = remote_shards(urls, chosen.shards, self._settings)
            self._remote_rows = remote_indices(index_urls, chosen.shards, self._settings)
        self._targets = self._target_files(chosen)
        self._ends = list(accumulate(index.num_samples for index in self._indices))
        self._rows = [self._label_rows(path, index) for path, index in zip(self._paths, self._indices, strict=True)]

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, sample_id: int) -> bytes:
        """The image file's bytes, copied out of the shard.

        Raises:
            IndexError: no such sample.
            ValueError: the shard or its index is damaged there; the reason without the sample's name.
            OSError: the shard cannot be read.
        """
        shard, position = self._find(sample_id)
        index = self._indices[shard]
        record, name = index[position], index.name(position)
        end = record.offset + record.length
        if record.offset < BLOCK_BYTES or record.length > MAX_IMAGE_BYTES or end > index.shard_bytes:
            raise ValueError(
                f"the index is damaged: it places {record.length} bytes at {record.offset} of {index.shard_bytes}"
            )
        self._check_label(record)
        # header and image in one read: a second one would give the GIL away once more
        if self._remote is not None:
            found = self._fetch(self._remote, shard, position, record)
        else:
            found = self._files.read(shard, BLOCK_BYTES + record.length, record.offset - BLOCK_BYTES)
        if not is_header_of(found, name, record.length):
            self.check_unchanged()
            raise ValueError(
                f"the index and the shard differ: the index places {name} of {record.length} bytes at "
                f"{record.offset}, and the tar header before it says otherwise"
            )
        data = found[BLOCK_BYTES:]
        if len(data) != record.length:
            raise ValueError(f"the shard ends after {len(data)} of its {record.length} bytes")
        return data

    def _fetch(self, files: RemoteFileSet, shard: int, position: int, record: Record) -> bytes:
        """The header before an image, and the image, of a sample whose CRC-32 is right."""
        index = self._indices[shard]
        start = record.offset - BLOCK_BYTES
        end = index.shard_bytes - len(END)
        if position + 1 < index.num_samples:
            end = index[position + 1].offset - BLOCK_BYTES
        if not BLOCK_BYTES + record.length <= end - start <= _MAX_GROUP_BYTES or end > index.shard_bytes:
            raise ValueError(f"the index is damaged: it gives a sample the bytes {start} to {end}")
        group = read_checked(files, shard, start, end - start, record.crc)
        return group[: BLOCK_BYTES + record.length]

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """Where the rows of a JPEG begin (`augpipe.decoding.row_index`); empty for images that have none.

        It may be damaged, as it has sums of its own that say so: they are for whoever uses it to check.

        Raises:
            IndexError: no such sample.
            ValueError: the index is damaged there; the reason without the sample's name.
            RemoteError: no usable answer came.
        """
        shard, position = self._find(sample_id)
        if self._remote_rows is None:
            return self._indices[shard].row_index(position)
        start, stop = self._indices[shard].row_index_at(position)
        return self._remote_rows.read(shard, stop - start, start)

    @property
    def has_targets(self) -> bool:
        """Whether objects or label maps are known."""
        return self.manifest.targets is not None

    @property
    def object_classes(self) -> Sequence[str]:
        """Class number of an object -> name."""
        return self._known.object_classes

    @property
    def keypoint_names(self) -> Sequence[str]:
        """Of each key point of an object; empty where they have none."""
        return self._known.keypoint_names

    @property
    def keypoint_swaps(self) -> Sequence[tuple[int, int]]:
        """Pairs of key points that trade places where an image is mirrored."""
        return self._known.keypoint_swaps

    @property
    def category_ids(self) -> Sequence[int]:
        """Class number of an object -> its id in the COCO file that was prepared; empty where it was another source."""
        return self._known.category_ids

    @property
    def has_label_maps(self) -> bool:
        """Whether each sample has a label map."""
        return self._known.has_label_maps

    def targets_of(self, sample_ids: npt.NDArray[np.int64]) -> Targets | None:
        """The objects of samples, in pixels of this scale; None where label maps only are known.

        A shard's file is read when the first of its samples is asked for, and stays in memory.

        Raises:
            IndexError: no such sample.
            ValueError: a file is damaged; names it.
            OSError: one cannot be read; `RemoteError` where no usable answer came.
        """
        places = np.array([self._find(sample_id) for sample_id in sample_ids.tolist()], np.int64).reshape(-1, 2)
        return self._target_table.of(places[:, 0], places[:, 1]) if self._known.has_objects else None

    def label_map(self, sample_id: int) -> LabelMap:
        """The class of each pixel, at this scale.

        Raises:
            IndexError: no such sample.
            ValueError: there is none, or it is damaged; the reason alone.
            OSError: it cannot be read.
        """
        if not self.has_label_maps:
            raise ValueError("the data set has no label maps. Ask `has_label_maps` first.")
        return self._target_table.label_map(*self._find(sample_id))

    def columns_of(self, sample_ids: npt.NDArray[np.int64]) -> Mapping[str, Any]:
        """`image_id`, where the annotations that were prepared had ids of their own, as COCO's do."""
        if not self.has_targets or self._target_table.table(0).image_ids is None:
            return {}
        ids = [self.image_id(sample_id) for sample_id in sample_ids.tolist()]
        return {"image_id": np.array(ids, np.int64) if all(isinstance(one, int) for one in ids) else ids}

    def image_id(self, sample_id: int) -> Any:
        """The id of a sample's image in the annotations that were prepared; None where there are none."""
        shard, position = self._find(sample_id)
        ids = self._target_table.table(shard).image_ids
        return None if ids is None else ids[position]

    def turned(self, sample_id: int) -> tuple[int, tuple[int, int]]:
        """EXIF's orientation by which places in those annotations are turned (1 for none), and their upright size."""
        shard, position = self._find(sample_id)
        return self._target_table.table(shard).origin(position)

    @property
    def label_width(self) -> int:
        """How many numbers each label is; 0 where it is a class."""
        return self.manifest.label_width

    def label(self, sample_id: int) -> int | Labels:
        """The class, or -1 where there is none; (k,) numbers where labels are such.

        Raises:
            IndexError: no such sample.
            ValueError: the index is damaged there.
        """
        shard, position = self._find(sample_id)
        if self.label_width:
            return as_label_rows(self._rows[shard][position])
        record = self._indices[shard][position]
        self._check_label(record)
        return record.label

    def labels_of(self, sample_ids: npt.NDArray[np.int64]) -> Labels:
        """(B,) int64, or (B, k) numbers: what `label` says of each."""
        if not self.label_width:
            return np.array([self.label(sample_id) for sample_id in sample_ids.tolist()], np.int64)
        found = np.empty((len(sample_ids), self.label_width), self.manifest.label_dtype)
        for place, sample_id in enumerate(sample_ids.tolist()):
            shard, position = self._find(sample_id)
            found[place] = self._rows[shard][position]
        return found

    def labels(self) -> Labels:
        """All labels as the indices have them, unchecked; (N,) int64 or (N, k), a copy."""
        if self.label_width:
            return as_label_rows(np.concatenate(self._rows))
        labels = np.empty(len(self), np.int64)
        first = 0
        for index, end in zip(self._indices, self._ends, strict=True):  # joined at the end they would be there twice
            labels[first:end] = index.records["label"]
            first = end
        return labels

    def size(self, sample_id: int) -> tuple[int, int]:
        """(height, width) in pixels as the index has them, without reading the image.

        Raises:
            IndexError: no such sample.
        """
        shard, position = self._find(sample_id)
        record = self._indices[shard][position]
        return record.height, record.width

    def name(self, sample_id: int) -> str:
        """The path of the shard and the file's name in it; its place in the shard where the index is damaged.

        Raises:
            IndexError: no such sample.
        """
        shard, position = self._find(sample_id)
        try:
            member = self._indices[shard].name(position)
        except ValueError:
            member = f"sample {position}"
        return f"{printable(self._paths[shard])}/{member}"

    def check_unchanged(self) -> None:
        """Look whether shards and indices are those that were opened, by size and time of writing.

        At a URL, the sums of the manifest and of indices tell when a sample is read.

        Raises:
            SourceChangedError: one is not; names it.
        """
        if self._remote is None:
            self._files.check_unchanged()
            self._index_files.check_unchanged()
            if self._local_targets is not None:
                self._local_targets.check_unchanged()

    def content_digest(self) -> str:
        """A digest of the sums of the scale's shards, as the manifest has them."""
        shards = self.manifest.scale(self.scale).shards
        sums = "".join(shard.sha256 + (shard.targets_sha256 or "") for shard in shards)
        return hashlib.blake2b(sums.encode(), digest_size=16).hexdigest()

    @property
    def _known(self) -> TargetsInfo:
        return self.manifest.targets or _NO_TARGETS

    @property
    def _target_table(self) -> TargetFiles:
        if self._targets is None:
            raise ValueError(f"{shown(self.folder)} has no targets. Ask `has_targets` first.")
        return self._targets

    def _target_files(self, scale: Scale) -> TargetFiles | None:
        """The files with the shards' targets; none where the data set has none."""
        self._local_targets: FileSet | None = None
        if self.manifest.targets is None:
            return None
        names = [printable(targets_path(path)) for path in self._paths]
        if self._remote is None:
            self._local_targets = target_file_set(self._paths)
            return TargetFiles(names, scale.shards, self._local_targets.read)
        urls = [join(self.folder, scale.name, targets_path(shard.name)) for shard in scale.shards]
        return TargetFiles(names, scale.shards, remote_targets(urls, scale.shards, self._settings).read)

    def _find(self, sample_id: int) -> tuple[int, int]:
        """The shard that a sample lies in, and its place there."""
        return find_sample(sample_id, self._ends)

    def _label_rows(self, path: str, index: ShardIndex) -> Labels:
        """The shard's labels of several numbers, (N, k); (0, 0) where labels are classes."""
        if not self.label_width:
            return np.empty((0, 0), np.int64)
        try:
            return index.label_rows(self.label_width, self.manifest.label_dtype)
        except ValueError as error:
            raise ValueError(f"{path}: {error}. augpipe verify lists all that is damaged.") from error

    def _check_label(self, record: Record) -> None:
        if not -1 <= record.label < len(self.classes):
            raise ValueError(
                f"the index is damaged: label {record.label} is none of the manifest's {len(self.classes)} classes"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._remote is not None:
            return partial(type(self), remote=self._settings), (self.folder, self.scale)
        shown = {"folder": self.folder, "_paths": self._paths}
        return type(self), (self._place, self.scale), shown

    def __repr__(self) -> str:
        return (
            f"ShardSource({shown(self.folder)!r}, {self.scale!r}: {count(len(self), 'photograph')} in "
            f"{count(len(self._paths), 'shard')}, {count(len(self.classes), 'class')})"
        )
