"""Sets of many shards: more than a process may open files, opened at once, and no more memory than is handed out."""

import json
import os
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest

from augpipe.datasets.shards.index import index_path
from augpipe.datasets.shards.manifest import Manifest, Scale
from augpipe.datasets.shards.source import ShardSource
from augpipe.datasets.shards.writer import ShardWriter
from tests.augpipe.decoding.image_files import encoded, scene

ROOT = Path(__file__).resolve().parents[3]
NUM_SHARDS, PER_SHARD, NUM_CLASSES = 300, 10, 7
NUM = NUM_SHARDS * PER_SHARD
FEW_FILES = 64

READ_ALL = """
import json, os, pickle, resource, sys, zlib
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
from concurrent.futures import ThreadPoolExecutor
from augpipe.datasets.shards.source import ShardSource
from augpipe.order import rank_positions, sample_ids
source = ShardSource(sys.argv[1])
held_after_opening = len(os.listdir("/proc/self/fd"))
ids = sample_ids(rank_positions(0, len(source), len(source), 0, 1), len(source), 5, 0, True).tolist()
with ThreadPoolExecutor(4) as pool:
    sums = list(pool.map(lambda one: zlib.crc32(source.read(one)), ids))
other = pickle.loads(pickle.dumps(source))
report = {"held_after_opening": held_after_opening, "held": len(os.listdir("/proc/self/fd")), "ids": ids, "sums": sums}
print(json.dumps(report | {"labels": source.labels().tolist(), "names": [other.name(one) for one in ids[:3]]}))
"""


def jpeg_of(sample_id: int, picture: bytes) -> bytes:
    """The image with a comment that no other sample has."""
    comment = f"sample {sample_id}".encode()
    return picture[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + picture[2:]


@pytest.fixture(scope="module")
def picture() -> bytes:
    return encoded(scene(16, 16), "JPEG")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, picture: bytes) -> Path:
    folder = tmp_path_factory.mktemp("many")
    (folder / "16").mkdir()
    shards = []
    for number in range(NUM_SHARDS):
        with ShardWriter(folder / "16" / f"{number:06}.tar") as writer:
            for one in range(number * PER_SHARD, (number + 1) * PER_SHARD):
                note = {"height": 16, "width": 16, "name": f"{one}.jpg"}
                writer.add(f"{one:09}", jpeg_of(one, picture), one % NUM_CLASSES, note)
            shards.append(writer.close())
    counts = tuple(len(range(label, NUM, NUM_CLASSES)) for label in range(NUM_CLASSES))
    names = tuple(f"class {label}" for label in range(NUM_CLASSES))
    scale = Scale(name="16", shards=tuple(shards))
    Manifest(num_samples=NUM, scales=(scale,), classes=names, class_counts=counts).save(folder)
    return folder


def test_few_open_files_are_enough_for_many_shards(out: Path, picture: bytes) -> None:
    command = [sys.executable, "-c", READ_ALL, str(out), str(FEW_FILES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["held_after_opening"] < 16 and report["held"] < FEW_FILES
    assert sorted(report["ids"]) == list(range(NUM))
    assert report["sums"] == [zlib.crc32(jpeg_of(one, picture)) for one in report["ids"]]
    assert report["labels"] == [one % NUM_CLASSES for one in range(NUM)]
    assert report["names"] == [
        f"{out}/16/{one // PER_SHARD:06}.tar/{one:09}.jpg" for one in report["ids"][: len(report["names"])]
    ]


def test_all_labels_take_the_memory_that_they_are_returned_in(out: Path) -> None:
    source = ShardSource(out)
    source.labels()
    tracemalloc.start()
    labels = source.labels()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert labels.nbytes == 8 * NUM
    assert peak < 1.5 * labels.nbytes


def test_of_two_damaged_shards_the_first_is_named(out: Path) -> None:
    for order in ((3, 290), (290, 3)):  # whichever was damaged, or found, first
        kept = {number: Path(index_path(str(out / f"16/{number:06}.tar"))) for number in order}
        whole = {number: path.read_bytes() for number, path in kept.items()}
        try:
            for path in kept.values():
                path.unlink()  # a new file: the old one may be mapped
                path.write_bytes(b"AUGPIDX")
            with pytest.raises(ValueError, match=r"000003\.idx"):
                ShardSource(out)
        finally:
            for number, path in kept.items():
                path.write_bytes(whole[number])
