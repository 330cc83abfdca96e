"""From what a user types or holds, a URL too, to a source."""

import difflib
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from augpipe.datasets.annotations.faults import OnError
from augpipe.datasets.annotations.next_to import NUM_LOOKED_AT, caution_of_annotations
from augpipe.datasets.annotations.open_annotated import (
    YAML_EXTENSIONS,
    open_annotated_folder,
    open_coco,
    open_with_annotations,
)
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.detect import Options, made, open_container, open_container_folder, open_pattern
from augpipe.datasets.files.image_files import SingleSource, is_image_name
from augpipe.datasets.files.patterns import expand, is_pattern
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.file_list import LIST_EXTENSIONS, FileListSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.hugging_face import HuggingFaceSource, is_hugging_face
from augpipe.datasets.formats.list_columns import column_names
from augpipe.datasets.formats.pairs import (
    MapStyleSource,
    PairSource,
    is_image_folder,
    is_map_style,
    is_pairs,
    open_image_folder,
)
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource
from augpipe.datasets.formats.remote_folder import RemoteFolderSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.metadata.label_names import LabelArgument
from augpipe.datasets.metadata.names import listed, printable
from augpipe.datasets.remote.blocks import store_for
from augpipe.datasets.remote.patterns import is_remote_pattern
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import as_url, is_http, name_of, shown
from augpipe.datasets.shards.half_made import refuse_lost_manifest, refuse_lost_manifest_at, refuse_unfinished
from augpipe.datasets.shards.manifest import MANIFEST_NAME, locate, locate_url
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.schedule import Schedule
from augpipe.sources import Concat, Subset
from augpipe.sources.combined import hold_out
from augpipe.sources.log_line import tell_source
from augpipe.sources.protocol import Source, is_source

_MOST_NAMES = 1_000
"""Next to a path that does not exist, among which one like it is looked for."""
_ARCHIVES = (".zip", ".7z", ".rar")
_ACCEPTED = (
    "Accepted: folders of photographs or of class folders, shards, lists, tar, Parquet, URLs and more; augpipe preview "
    "--help and docs/sources.md have them all."
)
_ACCEPTED_URLS = (
    "Accepted: prepared data sets, tar and Parquet files, patterns of those, and where files can be listed (not over "
    "HTTP) folders of them or of photographs: docs/remote.md."
)

_URL_FILES = (
    "csv",
    "tsv",
    "txt",
    "tgz",
    "gz",
    "zip",
    "bin",
    "jpg",
    "jpeg",
    "jpe",
    "jfif",
    "png",
    "webp",
    "gif",
    "bmp",
    "tif",
    "tiff",
)


def open_source(
    path_or_source: Any,
    *,
    classes: Sequence[str] | None = None,
    split: str | None = None,
    holdout: float | None = None,
    split_seed: int = 0,
    columns: Sequence[str] | None = None,
    label: LabelArgument = None,
    annotations: str | os.PathLike[str] | None = None,
    on_error: OnError | None = None,
) -> Source:
    """The source for a path, by its content, for arrays, (path, label) pairs or a data set of torch or Hugging Face.

    A source is returned as it is, and a list's rows of `split`.

    One line of the log (logger "augpipe") says what it holds: see `tell_source`.

    Args:
        path_or_source: any of these.
        classes: label -> class name, for a kind of source that takes them, as `classes` of its own: those of the
            training set make the labels of another set agree with them.
        split: "train", "val" or another, where a folder holds those of several, or the column `split` of a list; or a
            folder's name in it.
        holdout: draw a split of one's own instead: split="val" is this share of all samples, drawn by their ids, and
            split="train" the others; see `sources.hold_out`.
        split_seed: another one, 0..2^64 - 1, draws other samples.
        columns: further columns, by their names, for a kind of source that has them: what goes along as
            `Batch.columns`. Of a list those that its header names, and of a folder "path".
        label: which column, field or feature is the label, or which several, for a kind of source that takes it, as
            `label` of its own; False to read none.
        annotations: where objects or label maps of the images in the folder `path_or_source` are: a JSON file of COCO
            or LVIS, a folder of XML files (Pascal VOC), of text files (YOLO), or of images (label maps). Left out, they
            are found in the folder where they lie as usual; see docs/annotations.md.
        on_error: of annotations: "skip" leaves out objects that cannot be used, and counts them in the log line;
            "raise", the default, refuses the file.

    Raises:
        ImportError: Parquet, and pyarrow is not installed; YAML, and PyYAML is not; a URL, and a package for its
            protocol is not.
        ValueError: it is none of these, it is damaged, or it holds several splits; says what to give.
        OSError: a folder or a file cannot be read; `RemoteError` where remote storage gave no usable answer.
    """
    if holdout is not None:
        whole = open_source(
            path_or_source, classes=classes, columns=columns, label=label, annotations=annotations, on_error=on_error
        )
        return _part(whole, split, holdout, split_seed)
    if split_seed:
        raise ValueError(
            f'split_seed={split_seed} draws a split, and none is drawn. Give split="train", holdout=0.1, too.'
        )
    further = list(column_names(columns or ())) or None
    options = {"classes": classes, "split": split, "columns": further, "label": label, "on_error": on_error}
    if isinstance(classes, str):
        raise ValueError(f"classes={classes!r} is one text. Give the names in their order: classes=[{classes!r}, ...].")
    if annotations is not None:
        source: Source = open_with_annotations(_folder_of(path_or_source), os.fspath(annotations), options)
    else:
        source = path_or_source if is_source(path_or_source) else _open(path_or_source, options)
    if source is path_or_source:
        for name, value in options.items():
            if value is not None and not (name == "split" and isinstance(source, FileListSource)):
                raise ValueError(
                    f"{name}={value!r:.100} is for a path, and a {type(source).__name__} is given, which is open "
                    f"already. Pass it there, if that takes {name}."
                )
        if split is not None and isinstance(source, FileListSource):
            source = source.part(split)
    tell_source(source)
    return source


def _folder_of(images: Any) -> str:
    """The folder of images for which annotations are given."""
    if not isinstance(images, (str, os.PathLike)) or not os.path.isdir(images):
        raise ValueError(f"annotations=... takes a folder of images, and {images!r:.100} is none.")
    return os.fspath(images)


def _part(source: Source, split: str | None, holdout: float, seed: int) -> Source:
    if split not in ("train", "val"):
        raise ValueError(
            f'split={split!r} with holdout={holdout!r:.20} is not known. Choose "val", which is that share of the '
            'samples, or "train", the others.'
        )
    return hold_out(source, holdout, seed)[split == "val"]


def _open(path_or_source: Any, options: Options) -> Source:
    if isinstance(path_or_source, (str, os.PathLike)):
        return _open_path(os.fspath(path_or_source), options)
    if isinstance(path_or_source, np.ndarray) and path_or_source.dtype.kind not in "OUS":
        return made(ArraySource, path_or_source, options=options)
    if _is_images_and_labels(path_or_source):
        raise ValueError(
            "a pair is not a source of photographs. For images and labels give "
            "augpipe.datasets.formats.arrays.ArraySource(images, labels)."
        )
    if isinstance(path_or_source, (list, tuple)) and all(isinstance(item, np.ndarray) for item in path_or_source):
        return made(ArraySource, path_or_source, options=options)
    if is_hugging_face(path_or_source):
        return made(HuggingFaceSource, path_or_source, options=options)
    if is_pairs(path_or_source):
        return made(PairSource, path_or_source, options=options)
    if is_image_folder(path_or_source):
        return made(open_image_folder, path_or_source, options=options)
    hint = _is_something_else(path_or_source)
    if is_map_style(path_or_source) and not hint:
        whole, indices = getattr(path_or_source, "dataset", None), getattr(path_or_source, "indices", None)
        if whole is not None and indices is not None:  # torch.utils.data.Subset: as of random_split
            return Subset(whole if is_source(whole) else _open(whole, options), indices)
        kind = type(path_or_source)
        if kind.__name__ == "ConcatDataset" and kind.__module__.startswith("torch.") and len(path_or_source):
            return _joined([part for part in path_or_source.datasets if len(part)], options)
        if not isinstance(path_or_source, (list, tuple)) or _is_pair_of_image(path_or_source):
            return made(MapStyleSource, path_or_source, options=options)
    if hint:
        raise ValueError(f"a {type(path_or_source).__name__} is not a source of photographs. {hint}")
    raise ValueError(
        f"a {type(path_or_source).__name__} is not a source of photographs. Accepted: a path or URL, a list of (path, "
        "label), uint8 arrays (N, H, W, C) or a list of (H, W, C), a data set with a length that gives (image, "
        "label), a datasets.Dataset, or an object with classes, __len__, read, label and name (augpipe.Source)."
    )


def _joined(datasets: Sequence[Any], options: Options) -> Concat:
    """The sources of data sets as one; those whose classes are numbers have the classes of the one that has most."""
    parts = [part if is_source(part) else _open(part, options) for part in datasets]
    classes = [list(part.classes) for part in parts if len(part.classes)]
    most = max(classes, key=len, default=[])
    if any(one != most for one in classes) and all(one == [*map(str, range(len(one)))] for one in classes):
        parts = [part if is_source(part) else _open(part, {**options, "classes": most}) for part in datasets]
    for part in parts:
        tell_source(part)
    return Concat(parts)


def _is_something_else(value: Any) -> str:
    """What to write, where it is known what is given instead of a source."""
    kind, library = type(value).__name__, type(value).__module__.partition(".")[0]
    if isinstance(value, Recipe | Schedule) or kind == "Compose" or library in ("albumentations", "kornia"):
        return "The source comes first, and what is done to its images second: Loader(source, recipe, batch_size=64)."
    if library == "torch" and kind == "DataLoader":
        return "Give its data set, loader.dataset, or a path: a Loader makes batches itself."
    if library in ("pandas", "polars"):
        return "Give pairs, list(zip(frame.path, frame.label)), or save it as CSV and give that file."
    if isinstance(value, np.ndarray):
        return "Give it as a list: array.tolist()."
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (str, os.PathLike)):
        return "Give pairs: [(path, -1) for path in paths] where photographs have no label."
    return ""


def _is_pair_of_image(items: Sequence[Any]) -> bool:
    return bool(items) and isinstance(items[0], (list, tuple)) and len(items[0]) == 2


def _is_images_and_labels(value: Any) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (np.ndarray, list))
    return is_pair and isinstance(value[1], (np.ndarray, list)) and np.ndim(value[1]) == 1


def _open_path(path: str, options: Options) -> Source:
    url = as_url(path)
    if url is not None:
        return _open_url(url, RemoteSettings(), options)
    if os.path.isdir(path):
        shards = locate(path)
        if shards is not None:
            return made(ShardSource, *shards, options=options)
        refuse_unfinished(path)
        refuse_lost_manifest(path)
        return (
            open_container_folder(path, options)
            or open_annotated_folder(path, options)
            or _open_plain_folder(path, options)
        )
    if not os.path.lexists(path):
        if is_pattern(path):
            return open_pattern(path, expand(path), options)
        here = printable(os.getcwd())
        raise ValueError(
            f"{printable(path)!r} does not exist (the current folder is {here}).{_hint(path)}\n{_ACCEPTED}"
        )
    extension = os.path.splitext(path)[1].lower()
    if extension in LIST_EXTENSIONS:
        listing = made(FileListSource, path, options={**options, "split": None})
        assert isinstance(listing, FileListSource)
        return listing if options["split"] is None else listing.part(options["split"])
    if is_image_name(path):
        return made(SingleSource, path, options=options)
    if extension == ".json" and os.path.basename(path) != MANIFEST_NAME:
        return open_coco(path, options)
    if extension in YAML_EXTENSIONS:
        return made(YoloSource, path, options=options)
    source = open_container(path, options) if os.path.isfile(path) else None  # a pipe would be waited for
    if source is not None:
        return source
    if not extension:
        return made(SingleSource, path, options=options)
    if os.path.basename(path) == MANIFEST_NAME or extension == ".idx":
        above = os.path.dirname(os.path.abspath(path))
        out = above if extension != ".idx" else os.path.dirname(above)
        raise ValueError(
            f"{printable(path)!r} is a part of a data set of augpipe prepare. Give its folder: {printable(out)!r}."
        )
    if extension == ".toml":
        raise ValueError(
            f"{printable(path)!r} is a recipe or a config, by its name, and not a source of photographs. The source "
            'comes first, as in Loader("photos/", "mine.toml") or augpipe preview photos/ --recipe mine.toml.'
        )
    if extension in _ARCHIVES:
        raise ValueError(f"{printable(path)!r} is an archive, which is not read. Unpack it, and give the folder.")
    raise ValueError(
        f"{printable(path)!r} is neither a photograph nor a list, by its name, nor a file of many images, by its "
        "content; if it is a photograph all the same, make augpipe.datasets.files.image_files.SingleSource(path).\n"
        f"{_ACCEPTED}"
    )


def _open_plain_folder(path: str, options: Options) -> Source:
    """A folder of images without annotations, with a caution where annotations of them lie next to it."""
    source = made(FolderSource, path, options=options)
    assert isinstance(source, FolderSource)
    images = [source.name(sample_id) for sample_id in range(min(len(source), NUM_LOOKED_AT))]
    source.cautions = [*source.cautions, *caution_of_annotations(source.root, images)]
    return source


def _hint(path: str) -> str:
    """The name next to it that is written most like it."""
    above, name = os.path.split(path.rstrip(os.sep))
    try:
        with os.scandir(above or os.curdir) as entries:
            beside = [entry.name for entry in itertools.islice(entries, _MOST_NAMES)]
    except OSError:
        return ""
    near = difflib.get_close_matches(name, beside, n=1)
    return f" Did you mean {printable(os.path.join(above, near[0]))!r}?" if near else ""


def open_url(url: str, remote: RemoteSettings | None = None) -> Source:
    """The source for a URL, by its name where it is a file, else by what the folder holds.

    Args:
        url: with its protocol, as `urls.as_url` gives it.
        remote: limits and the cache; the environment's if left out.

    Raises:
        ImportError: a package for the protocol is missing; says how to install it.
        ValueError: it is none of what is read; or it is damaged.
        RemoteError: no usable answer came.
        FileNotFoundError: there is no such file.
    """
    return _open_url(url, remote or RemoteSettings(), {"classes": None, "split": None, "columns": None})


def _open_url(url: str, remote: RemoteSettings, options: Options) -> Source:
    name = name_of(url).lower()
    if name.endswith(".tar"):
        return made(TarSource, url, options=options, remote=remote)
    if name.endswith(".parquet"):
        return made(ParquetSource, url, options=options, remote=remote)
    if is_remote_pattern(url) or (name != MANIFEST_NAME and name.rpartition(".")[2] in _URL_FILES):
        raise ValueError(f"{shown(url)} is nothing that is read from a URL. {_ACCEPTED_URLS}")
    shards = locate_url(url, remote)
    if shards is not None:
        return made(ShardSource, *shards, options=options, remote=remote)
    if is_http(url):
        raise ValueError(
            f"{shown(url)} holds no {MANIFEST_NAME} of ours, and HTTP has no folders to look into. {_ACCEPTED_URLS}"
        )
    return _open_url_folder(url, remote, options)


def _open_url_folder(url: str, remote: RemoteSettings, options: Options) -> Source:
    files = [name_of(file) for file, _, _ in store_for(remote).files.files_in(url, deep=False)]
    refuse_lost_manifest_at(url, files, store_for(remote))
    kinds = [kind for kind in (".tar", ".parquet") if any(name.lower().endswith(kind) for name in files)]
    if len(kinds) > 1:
        raise ValueError(f"{shown(url)} holds tar files and Parquet files ({listed(files)}). Give a pattern: *.tar")
    if kinds:
        kind = TarSource if kinds == [".tar"] else ParquetSource
        return made(kind, url, options=options, remote=remote)
    return made(RemoteFolderSource, url, options=options, remote=remote)
