"""Other programs' readers open our shards: tarfile, tar, the webdataset package, DALI, Pillow and OpenCV."""

import importlib.util
import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from augpipe.datasets.shards.index import ShardIndex
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.decoding import MAX_PIXELS, decode, probe
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.jpeg_loaders import KINDS, of_kind
from tests.datasets.shards.shard_sets import NUM, NUM_SHARDS, PER_SHARD, build, jpeg, key, label, manifest_of, note

Pixels = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = build(tmp_path_factory.mktemp("shards") / "out")
    return sorted((out / "32").glob("*.tar"))


def test_tarfile_reads_them_as_files_and_as_streams(shards: list[Path]) -> None:
    for mode in ("r:", "r|"):
        names = []
        for path in shards:
            with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
                names += [member.name for member in archive]
        assert names == [f"{key(i)}.{extension}" for i in range(NUM) for extension in ("jpg", "cls", "json")]


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar program")
def test_the_tar_program_unpacks_them_without_a_word(shards: list[Path], tmp_path: Path) -> None:
    ended = subprocess.run(
        ["tar", "-x", "-f", str(shards[1]), "-C", str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == ended.stderr == ""
    assert len(list(tmp_path.iterdir())) == 3 * PER_SHARD
    assert (tmp_path / f"{key(PER_SHARD)}.jpg").read_bytes() == jpeg(PER_SHARD)


def by_pillow(data: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(data)))


def by_opencv(data: bytes) -> Pixels:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return pixels[..., ::-1].astype(np.uint8)


@pytest.mark.skipif(importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_iterates_them(shards: list[Path]) -> None:
    import webdataset

    urls = [str(path) for path in shards]
    raw = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert [sample["__key__"] for sample in raw] == [key(i) for i in range(NUM)]
    assert [sample["jpg"] for sample in raw] == [jpeg(i) for i in range(NUM)]
    decoded = list(webdataset.WebDataset(urls, shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls", "json"))
    assert len(decoded) == NUM
    for i, (pixels, number, meta) in enumerate(decoded):
        assert np.array_equal(pixels, by_pillow(jpeg(i)))
        assert (number, meta) == (label(i), note(i))


def test_offsets_of_the_index_are_those_of_tarfile(shards: list[Path]) -> None:
    assert len(shards) == NUM_SHARDS
    for path in shards:
        index = ShardIndex.open(path.with_suffix(".idx"))
        with tarfile.open(path) as archive:
            images = [member for member in archive if member.name.endswith(".jpg")]
        assert [(m.name, m.offset_data, m.size) for m in images] == [
            (f"{index.key(i)}.jpg", index[i].offset, index[i].length) for i in range(len(index))
        ]


# Images of each sampling, by other readers


WIDTHS = (131, 512, 683)


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image of each sampling and width."""
    out = tmp_path_factory.mktemp("kinds")
    (out / "97").mkdir()
    with ShardWriter(out / "97/000000.tar") as writer:
        for number, (kind, width) in enumerate((kind, width) for kind in KINDS for width in WIDTHS):
            data = of_kind(scene(97, width, number), kind)
            writer.add(f"{number:09}", data, number % 2, {"height": 97, "width": width})
        info = writer.close()
    num = info.num_samples
    manifest_of({"97": [info]}, num_samples=num, class_counts=(num // 2, num // 2)).save(out)
    return out


def assert_shows_the_image(pixels: Pixels, data: bytes, most: int) -> None:
    """Ours is what the other decoder shows."""
    ours = decode(data, probe(data, max_pixels=MAX_PIXELS))[..., :3]
    assert pixels.shape[:2] == ours.shape[:2]
    shown = pixels.reshape(*ours.shape[:2], -1)
    assert np.abs(shown.astype(int) - ours).max() <= most  # one channel stands for three


@pytest.mark.parametrize("read", [by_pillow, by_opencv])
def test_other_decoders_open_images_of_each_kind(every_kind: Path, read: Callable[[bytes], Pixels]) -> None:
    source = ShardSource(every_kind)
    for i in range(len(source)):
        assert_shows_the_image(read(source.read(i)), source.read(i), 2)


@pytest.mark.skipif(importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_decodes_images_of_each_kind(every_kind: Path) -> None:
    import webdataset

    source = ShardSource(every_kind)
    found = list(webdataset.WebDataset(str(every_kind / "97/000000.tar"), shardshuffle=False).decode("rgb8"))
    assert [(sample["cls"], sample["json"]["width"]) for sample in found] == [
        (source.label(i), source.size(i)[1]) for i in range(len(source))
    ]
    for i, sample in enumerate(found):
        assert_shows_the_image(sample["jpg"], source.read(i), 0)


@pytest.mark.skipif(importlib.util.find_spec("nvidia.dali") is None, reason="DALI is not installed")
def test_dali_decodes_images_of_each_kind(every_kind: Path) -> None:
    from nvidia.dali import fn, pipeline_def

    source = ShardSource(every_kind)

    @pipeline_def(batch_size=len(source), num_threads=2, device_id=None)
    def graph() -> Any:
        images, labels = fn.readers.webdataset(
            paths=str(every_kind / "97/000000.tar"), ext=["jpg", "cls"], missing_component_behavior="error"
        )
        return fn.decoders.image(images, device="cpu"), labels

    made = graph()
    made.build()
    images, labels = made.run()
    assert [int(bytes(labels.at(i))) for i in range(len(source))] == source.labels().tolist()
    for i in range(len(source)):
        assert_shows_the_image(images.at(i), source.read(i), 0)
