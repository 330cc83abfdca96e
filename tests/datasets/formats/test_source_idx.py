"""MNIST's IDX files as a source."""

import gzip
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from augpipe import Loader
from augpipe.datasets.formats.idx import IdxArray, IdxSource
from augpipe.datasets.open import open_source
from augpipe.recipes import evaluation
from tests.datasets.formats.source_checks import assert_keeps_the_protocol


def idx(array: Any, kind: int = 0x08) -> bytes:
    """The official layout: 0, 0, type, dimensions, each dimension as a big-endian integer, the items."""
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def put(folder: Path, pixels: Any, labels: Any, *, packed: bool = False, split: str = "train") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    suffix = ".gz" if packed else ""
    pack = gzip.compress if packed else bytes
    (folder / f"{split}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))
    path = folder / f"{split}-images-idx3-ubyte{suffix}"
    path.write_bytes(pack(idx(pixels)))
    return path


PIXELS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
LABELS = np.array([3, 0, 2, 2, 1], np.uint8)


@pytest.mark.parametrize("packed", [False, True])
def test_images_and_labels(tmp_path: Path, packed: bool) -> None:
    path = put(tmp_path, PIXELS, LABELS, packed=packed)
    for given_path in (path, tmp_path):
        source = open_source(given_path)
        assert isinstance(source, IdxSource) and source.classes == ("0", "1", "2", "3")
        assert_keeps_the_protocol(source, PIXELS, LABELS.tolist())
        assert source.name(4) == f"{path}, image 4"
        assert (source.stack is not None) == packed
    assert len(pickle.dumps(source)) < 1000
    with pytest.raises(ValueError, match="read-only"):
        source.read(0)[0, 0] = 1


def test_labels_are_found_given_or_left_out(tmp_path: Path) -> None:
    path = put(tmp_path, PIXELS, LABELS)
    alone = tmp_path / "digits"
    alone.write_bytes(path.read_bytes())
    assert open_source(alone).label(0) == -1
    given_labels = IdxSource(alone, tmp_path / "train-labels-idx1-ubyte", classes=["a", "b", "c", "d"])
    for source in (given_labels, pickle.loads(pickle.dumps(given_labels))):
        assert (source.label(0), source.classes) == (3, ("a", "b", "c", "d"))
    dotted = tmp_path / "t10k-images.idx3-ubyte"
    dotted.write_bytes(path.read_bytes())
    (tmp_path / "t10k-labels.idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS)))
    assert open_source(dotted).label(0) == 3


def test_folder_of_both_splits_is_refused(tmp_path: Path) -> None:
    put(tmp_path, PIXELS, LABELS)
    put(tmp_path, PIXELS, LABELS, split="t10k", packed=True)
    with pytest.raises(ValueError, match=r"several files of images: 't10k-images-idx3-ubyte', 'train-images-idx3-u"):
        open_source(tmp_path)
    put(tmp_path / "both", PIXELS, LABELS)
    put(tmp_path / "both", PIXELS, LABELS, packed=True)  # the same, packed and not
    assert len(open_source(tmp_path / "both")) == 5


@pytest.mark.slow
@given(array=hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=6)), packed=st.booleans())
def test_any_array_comes_back(tmp_path_factory: pytest.TempPathFactory, array: Any, packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "any.idx"
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    found = IdxArray(str(path))
    assert found.shape == array.shape
    np.testing.assert_array_equal(found.whole(), array)
    np.testing.assert_array_equal(found[array.shape[0] - 1], array[-1])


def test_what_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, PIXELS, LABELS)
    whole = path.read_bytes()

    def refuse(content: bytes, message: str) -> None:
        for data in (content, gzip.compress(content)):
            path.write_bytes(data)
            with pytest.raises(ValueError, match=message):
                IdxSource(path)

    refuse(whole[:-1], "train-images-idx3-ubyte is not an IDX file of uint8, or damaged: .*header speaks of")
    refuse(whole + b"x", "not an IDX file of uint8, or damaged: .*header speaks of")
    refuse(whole[:10], "it ends within its header")
    refuse(b"", "it begins with b'', and not with 0, 0, a type")
    refuse(b"\x89PNG\r\n\x1a\n", r"it begins with b'\\x89PNG', and not with 0, 0, a type and 1 to 4 dimensions")
    refuse(idx(PIXELS.astype(np.float32), 0x0D), "it holds float32")
    refuse(idx(PIXELS[:4]), r"labels of shape \(5,\), and .* has 4 images. Give the two files that belong together")
    refuse(idx(LABELS), r"holds an array of shape \(5,\), and images are \(N, H, W\). Labels alone\?")
    refuse(idx(PIXELS[:0]), r"holds an array of shape \(0, 4, 3\), and images are \(N, H, W\) or .* each at least 1")
    absurd = bytes([0, 0, 8, 3]) + b"\xff" * 12
    refuse(absurd, r"damaged: (16 bytes are there|its header speaks of \d+ bytes, and only 0 are there)")
    path.write_bytes(gzip.compress(whole)[:-12])
    with pytest.raises(ValueError, match="not an IDX file of uint8, or damaged"):
        IdxSource(path)
    path.write_bytes(gzip.compress(whole)[:-8] + bytes(8))  # a wrong checksum
    with pytest.raises(ValueError, match="not an IDX file of uint8, or damaged: .*CRC"):
        IdxSource(path)
    with pytest.raises(ValueError, match="nowhere is not a regular file; an IDX file is wanted"):
        IdxSource(tmp_path / "nowhere")


def test_file_that_was_cut_short_meanwhile(tmp_path: Path) -> None:
    path = put(tmp_path, PIXELS, LABELS)
    source = IdxSource(path)
    np.testing.assert_array_equal(source.read(0), PIXELS[0])
    os.truncate(path, 50)
    with pytest.raises(ValueError, match="has changed since it was opened: it had 76 bytes and has 50"):
        source.read(4)
    np.testing.assert_array_equal(source.read(0), PIXELS[0])


def test_images_as_narrow_as_colours_are_gray(tmp_path: Path) -> None:
    for width in (1, 3, 4):
        pixels = np.full((2, 9, width), 200, np.uint8)
        path = put(tmp_path / str(width), pixels, LABELS[:2])
        batch = next(iter(Loader(str(path), evaluation(1, 1), batch_size=2, shuffle=False, framework="numpy")))
        assert batch.images.shape == (2, 3, 1, 1)
