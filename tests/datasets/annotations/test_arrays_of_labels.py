"""Arrays of labels where label maps are read: the code that is told writes them as PNG files of the same labels."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from augpipe.datasets.annotations.label_map_source import LabelMapSource
from augpipe.datasets.open import open_source
from tests.datasets.annotations.annotated_sets import SIZES, put_images


def put_arrays(folder: Path, dtype: DTypeLike) -> dict[str, NDArray[Any]]:
    """An array of labels for each image, as large as the type holds; name -> labels."""
    found = {}
    for number, (name, size) in enumerate(SIZES.items()):
        labels = np.arange(size[0] * size[1]).reshape(size) * (number + 200) % 65536
        found[name] = labels.astype(dtype)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", found[name])
    return found


def told_code(folder: Path) -> str:
    with pytest.raises(ValueError, match="holds arrays") as told:
        open_source(folder)
    return str(told.value).partition("Write each as one:\n")[2]


@pytest.mark.parametrize("others", [(), ("cats",)], ids=["alone", "with other folders"])
def test_arrays_in_place_of_label_maps_are_refused(tmp_path: Path, others: tuple[str, ...]) -> None:
    for folder in ("images", *others):
        put_images(tmp_path / folder)
    put_arrays(tmp_path / "masks", np.uint8)
    with pytest.raises(ValueError, match=r"masks holds arrays \('a.npy', .*\), and label maps are "):
        open_source(tmp_path)
    with pytest.raises(ValueError, match=r"masks holds arrays \('a.npy', .*\), and label maps are "):
        open_source(tmp_path / "images", annotations=tmp_path / "masks")


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.uint8, np.bool_])
def test_the_code_told_writes_maps_of_the_same_labels(tmp_path: Path, dtype: DTypeLike) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    put_images(data / "images")
    elsewhere.mkdir()
    expected = put_arrays(data / "masks", dtype)
    run = subprocess.run([sys.executable, "-c", told_code(data)], cwd=elsewhere, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    source = open_source(data)
    assert isinstance(source, LabelMapSource) and len(source) == len(expected)
    for sample_id in range(len(source)):
        labels = expected[Path(source.name(sample_id)).stem]
        np.testing.assert_array_equal(source.label_map(sample_id), labels)


@pytest.mark.parametrize("wrong", [-1, 1 << 16, 0.5, np.nan])
def test_the_code_told_refuses_labels_that_a_map_does_not_hold(tmp_path: Path, wrong: float) -> None:
    put_images(tmp_path / "images")
    put_arrays(tmp_path / "masks", np.uint8)
    np.save(tmp_path / "masks/b.npy", np.full(SIZES["b"], wrong))
    run = subprocess.run([sys.executable, "-c", told_code(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 1 and "AssertionError" in run.stderr and "b.npy" in run.stderr
    assert not (tmp_path / "masks/b.png").exists()
