"""Prepare takes every kind of source, also after a journey to a worker: same order, labels and images."""

import gzip
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from augpipe.datasets.open import open_source
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from augpipe.decoding import MAX_PIXELS, decode, probe
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.formats.test_source_hugging_face import standard
from tests.datasets.prepare.prepare_sources import InlineEngine

NUM = 5
LABELS = [1, 0, 2, 1, 0]
IMAGES = [scene(32, 32, number) for number in range(NUM)]
GRAY = np.stack([picture[..., 0] for picture in IMAGES])
JPEGS = [encoded(picture, "JPEG", quality=95, subsampling=0) for picture in IMAGES]


def write_list(folder: Path) -> Any:
    for number, data in enumerate(JPEGS):
        (folder / f"{number}.jpg").write_bytes(data)
    (folder / "list.csv").write_text("".join(f"{number}.jpg,{label}\n" for number, label in enumerate(LABELS)))
    return folder / "list.csv"


def write_tar(folder: Path) -> Any:
    with tarfile.open(folder / "set.tar", "w") as archive:
        for number, data in enumerate(JPEGS):
            for name, content in ((f"{number}.jpg", data), (f"{number}.cls", b"%d" % LABELS[number])):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return folder / "set.tar"


def write_parquet(folder: Path) -> Any:
    rows = [{"bytes": data, "path": None} for data in JPEGS]
    pq.write_table(pa.table({"image": rows, "label": LABELS}), folder / "set.parquet", row_group_size=2)
    return folder / "set.parquet"


def write_idx(folder: Path) -> Any:
    head = struct.pack(">BBBB3I", 0, 0, 8, 3, *GRAY.shape)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + GRAY.tobytes()))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, NUM) + bytes(LABELS))
    return folder / "train-images-idx3-ubyte.gz"


def write_cifar(folder: Path) -> Any:
    planes = [image.transpose(2, 0, 1).tobytes() for image in IMAGES]
    records = (bytes([label]) + plane for label, plane in zip(LABELS, planes, strict=True))
    (folder / "data_batch_1.bin").write_bytes(b"".join(records))
    return folder / "data_batch_1.bin"


def of_hugging_face(folder: Path) -> Any:
    dataset = standard(NUM)
    for row, data, label in zip(dataset.rows, JPEGS, LABELS, strict=True):
        row |= {"image": {"bytes": data, "path": None}, "label": label % 2}
    return dataset


@pytest.mark.parametrize("make", [write_list, write_tar, write_parquet, write_idx, write_cifar, of_hugging_face])
def test_every_kind_of_source(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    (tmp_path / "in").mkdir()
    source = pickle.loads(pickle.dumps(open_source(make(tmp_path / "in"))))
    settings = PrepareSettings(scales=("full",), quality=95, subsampling="4:4:4", originals="never")
    manifest = prepare(source, tmp_path / "out", settings, engine=InlineEngine())
    made = ShardSource(tmp_path / "out")
    assert len(made) == NUM and manifest.num_rejected == 0 and verify(tmp_path / "out", deep=True) == []
    assert made.labels().tolist() == source.labels().tolist()
    assert tuple(made.classes) == tuple(source.classes)
    for number in range(NUM):
        data = made.read(number)
        pixels = decode(data, probe(data, max_pixels=MAX_PIXELS))[..., :3].astype(int)
        expected = [gray[..., None] for gray in GRAY] if make is write_idx else IMAGES
        errors = [np.abs(pixels - image).mean() for image in expected]
        assert np.argmin(errors) == number and errors[number] < 5
