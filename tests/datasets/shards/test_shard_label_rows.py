"""Labels of several numbers each in shards: what prepare writes, what is read back, what verify finds."""

import hashlib
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.index import HEADER, HEADER_BYTES, RECORD, ShardIndex
from augpipe.datasets.shards.manifest import Manifest
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from augpipe.datasets.shards.writer import ShardWriter
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import MemorySource
from tests.datasets.formats.source_checks import assert_labels
from tests.datasets.prepare.prepare_sources import InlineEngine
from tests.datasets.shards.shard_sets import jpeg, key, note

NUM = 70
IMAGES = [scene(20, 24 + i % 3, i) for i in range(NUM)]
SOFT = np.random.default_rng(1).standard_normal((NUM, 3)).astype(np.float32)
HOT = np.random.default_rng(2).integers(-5, 2**40, (NUM, 2))
SETTINGS = PrepareSettings(scales=("16", "18"))


def prepared(out: Path, labels: Any, classes: Any = (), **options: Any) -> Manifest:
    source = ArraySource(IMAGES, labels, classes)
    return prepare(source, out, SETTINGS, engine=InlineEngine(), **options)


@pytest.mark.parametrize(
    ("labels", "classes"), [(SOFT, ("a", "b", "c")), (HOT, ()), (SOFT[:, :1] > 0, ())], ids=["soft", "whole", "bool"]
)
def test_what_was_given_is_read_back(tmp_path: Path, labels: Any, classes: Any) -> None:
    manifest = prepared(tmp_path / "out", labels, classes)
    dtype = np.int64 if labels.dtype == np.int64 else np.float32
    assert (manifest.label_width, manifest.label_dtype) == (labels.shape[1], np.dtype(dtype).name)
    assert len(manifest.scales[0].shards) > 1 and sum(manifest.class_counts) == 0
    for scale in ("16", "18"):
        assert_labels(ShardSource(tmp_path / "out", scale), labels, dtype, classes)
    tars = [tmp_path / "out" / "16" / shard.name for shard in manifest.scales[0].shards]
    np.testing.assert_array_equal(TarSource(tars).labels(), labels.astype(dtype), strict=True)
    (batch,) = Loader(tmp_path / "out", recipes.evaluation(8, 10), batch_size=NUM, framework="numpy", seed=3)
    np.testing.assert_array_equal(batch.labels, labels.astype(dtype)[batch.sample_ids], strict=True)
    assert verify(tmp_path / "out", deep=True) == []
    assert "numbers in a label" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_rejected_images_take_their_labels_along(tmp_path: Path) -> None:
    class Vectors(MemorySource):
        label_width = 3

        def label(self, sample_id: int) -> Any:
            return SOFT[sample_id] if sample_id != 9 else np.array([1, np.nan, 0], np.float32)

    source = Vectors([b"no image" if i in (0, 5, 40) else IMAGES[i] for i in range(NUM)])
    manifest = prepare(source, tmp_path / "out", SETTINGS, engine=InlineEngine(), on_error="skip")
    kept = [i for i in range(NUM) if i not in (0, 5, 9, 40)]
    assert (manifest.num_samples, manifest.num_rejected) == (len(kept), 4)
    np.testing.assert_array_equal(ShardSource(tmp_path / "out").labels(), SOFT[kept])
    assert "is not finite" in (tmp_path / "out" / "rejects.csv").read_text()


def test_a_run_goes_on_to_the_same_bytes_and_other_labels_are_another_source(tmp_path: Path) -> None:
    prepared(tmp_path / "whole", SOFT)
    source = ArraySource(IMAGES, SOFT)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "parts", SETTINGS, engine=InlineEngine(stop_before=1))
    with pytest.raises(ValueError, match="names, labels and objects in the source"):
        prepared(tmp_path / "parts", SOFT + np.float32(1e-6), resume=True)
    prepared(tmp_path / "parts", SOFT, resume=True)
    for path in sorted((tmp_path / "whole").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "parts" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_the_head_alone_holds_them(tmp_path: Path) -> None:
    """What a reader at a distance fetches first."""
    shard = prepared(tmp_path / "out", HOT).scales[0].shards[0]
    path = tmp_path / "out" / "16" / "000000.idx"
    head = path.read_bytes()[: shard.head_bytes]
    (tmp_path / "head").write_bytes(head)
    rows = ShardIndex.open(tmp_path / "head", is_head=True).label_rows(2, "int64")
    np.testing.assert_array_equal(rows, HOT[: shard.num_samples])
    assert not rows.flags.writeable


def test_an_index_of_other_labels_is_refused(tmp_path: Path) -> None:
    manifest = prepared(tmp_path / "out", SOFT)
    manifest.model_copy(update={"label_width": 4}).save(tmp_path / "out")
    message = r"000000.tar: the index is damaged: its labels take \d+ bytes, and \d+ of 4 numbers of float32 take"
    with pytest.raises(ValueError, match=message):
        ShardSource(tmp_path / "out", "16")
    assert any("its labels take" in fault.reason for fault in verify(tmp_path / "out"))


def test_verify_compares_them_with_the_tar_file(tmp_path: Path) -> None:
    manifest = prepared(tmp_path / "out", HOT)
    path = tmp_path / "out" / "16" / "000001.idx"
    data = bytearray(path.read_bytes())
    fields = list(HEADER.unpack_from(data))
    num, end = fields[3], HEADER_BYTES + fields[3] * RECORD.size + fields[4]
    data[end - num * 16 + 3 * 16] ^= 1  # the first number of the fourth sample
    fields[8] = zlib.crc32(data[HEADER_BYTES:end])
    header = HEADER.pack(*fields)
    data[:HEADER_BYTES] = header + struct.pack("<I", zlib.crc32(header))
    path.write_bytes(data)
    text = json.loads((tmp_path / "out" / "manifest.json").read_text())
    shard = text["scales"][0]["shards"][1]
    shard["index_sha256"] = hashlib.sha256(data).hexdigest()
    shard["head_sha256"] = hashlib.sha256(data[:end]).hexdigest()
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(text))
    (fault,) = verify(tmp_path / "out")
    assert fault.sample_id == manifest.scales[0].shards[0].num_samples + 3
    assert fault.reason.startswith("label is [") and "in the tar file's .json" in fault.reason


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (np.ones((1, 2)), r"label has shape \(1, 2\) and dtype float64, and labels of several numbers are \(k,\)"),
        (np.ones(2), r"dtype float64"),
        (np.empty(0, np.float32), r"shape \(0,\)"),
        (np.array([1, np.inf], np.float32), r"label=\[1.0, inf\] is not finite"),
        (np.ones(3, np.float32), r"label is of another kind than those before it"),
        (np.ones(2, np.int64), r"label is of another kind"),
        (1, r"label is of another kind"),
    ],
)
def test_labels_that_a_shard_does_not_take(tmp_path: Path, label: Any, message: str) -> None:
    with ShardWriter(tmp_path / "000000.tar") as writer:
        writer.add(key(0), jpeg(0), np.ones(2, np.float32), note(0))
        with pytest.raises(ValueError, match=message):
            writer.add(key(1), jpeg(1), label, note(1))
        assert writer.num_samples == 1
    with ShardWriter(tmp_path / "000001.tar") as writer:
        writer.add(key(0), jpeg(0), 3, note(0))
        with pytest.raises(ValueError, match="another kind"):
            writer.add(key(1), jpeg(1), np.ones(2, np.float32), note(1))
