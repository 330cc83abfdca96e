"""Photographs are not left out quietly: a stray folder or file is an error, other kinds are counted by name."""

import logging
import os
from pathlib import Path

import pytest

from augpipe import Loader, recipes
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.open import open_source
from augpipe.datasets.stats.collect import collect_statistics
from augpipe.decoding import MAX_PIXELS, probe
from tests.augpipe.cli.test_cli import run
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.formats.test_sources import contents, put


def test_a_stray_folder_in_a_flat_one_is_an_error_with_both_remedies(tmp_path: Path) -> None:
    put(tmp_path, *(f"{number}.jpg" for number in range(10)), "old/1.jpg")
    said = (
        r"holds 10 photographs \('0.jpg', '1.jpg', '2.jpg' and 7 more\) and next to them 1 folder of photographs "
        r"\('old'\)\. For class folders, move the photographs into them or away, or pass classes=\[...\], which leaves "
        r"them out; for a flat folder, move its folders away"
    )
    for make in (FolderSource, lambda path: Loader(path, recipes.none(), batch_size=1)):
        with pytest.raises(ValueError, match=said):
            make(tmp_path)


def test_a_stray_photograph_beside_class_folders_too(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    put(tmp_path, "cat/1.jpg", "dog/1.jpg", "loose.jpg", "README.md")
    with pytest.raises(ValueError, match=r"holds 1 photograph \('loose.jpg'\) and next to it 2 folders of photographs"):
        FolderSource(tmp_path)
    source = open_source(tmp_path, classes=["cat", "dog"])
    assert contents(source) == [("cat/1.jpg", 0), ("dog/1.jpg", 1)]
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith("; left out: 1 photograph next to the class folders ('loose.jpg')")


@pytest.mark.parametrize("folder", ["", "cat/"])
def test_photographs_of_other_kinds_are_counted(
    tmp_path: Path, folder: str, source_log: pytest.LogCaptureFixture
) -> None:
    names = ("1.jpg", "2.HEIC", "3.heic", "4.avif", "IMG_5", "notes.txt", "README", "a.xml", ".hidden.heic")
    put(tmp_path, *(f"{folder}{name}" for name in names))
    Loader(tmp_path, recipes.none(), batch_size=1)
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    first = next(name for name in FolderSource(tmp_path).left_out if "heic" in name).split("'")[1]
    assert first in (f"{folder}2.HEIC", f"{folder}3.heic")
    assert record.getMessage().endswith(
        f"; left out: 1 file without a suffix ('{folder}IMG_5'), 1 file of .avif ('{folder}4.avif'), "
        f"2 files of .heic ('{first}')"
    )


def test_stats_count_them_too(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "cat/2.heic"):
        put(tmp_path, name)
    (tmp_path / "cat/1.jpg").write_bytes(encoded(scene(8, 8), "JPEG"))
    found = collect_statistics(FolderSource(tmp_path), duplicates=False)
    assert found.to_json()["left_out"] == ["1 file of .heic ('cat/2.heic')"]
    said = run("stats", str(tmp_path), "--no-duplicates")
    assert "left out" in said and "1 file of .heic ('cat/2.heic')" in said


def test_a_folder_of_nothing_else_says_so(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "dog/1.heic", "dog/2.heic")
    with pytest.raises(ValueError, match=r"without a photograph: 'dog' \(not read: 2 files of .heic \('dog/"):
        FolderSource(tmp_path)
    with pytest.raises(ValueError, match=r"no photograph in .* \(not read: 2 files of .heic \('\d.heic'\)\)"):
        FolderSource(tmp_path / "dog")


@pytest.mark.parametrize(
    ("brand", "kind"), [(b"heic", "HEIC"), (b"mif1", "HEIC"), (b"heix", "HEIC"), (b"avif", "AVIF"), (b"avis", "AVIF")]
)
def test_heic_under_another_name_is_called_what_it_is(brand: bytes, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"a photograph in {kind}, .* which is not read; convert it to JPEG"):
        probe(b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1" + brand + bytes(50), max_pixels=MAX_PIXELS)


def test_a_jpeg_may_end_with_jfif_or_jpe(tmp_path: Path) -> None:
    for suffix in ("jfif", "jpe", "JFIF"):
        (tmp_path / f"a.{suffix}").write_bytes(encoded(scene(8, 8), "JPEG"))
        assert len(open_source(tmp_path / f"a.{suffix}")) == 1
    assert len(FolderSource(tmp_path)) == 3


@pytest.mark.parametrize(("images", "maps"), [("train", "train_masks"), ("img", "labels"), ("x_images", "x_Mask")])
def test_label_maps_that_are_taken_for_a_class_are_told(tmp_path: Path, images: str, maps: str) -> None:
    put(tmp_path, *(f"{images}/{name}.jpg" for name in ("1", "2", "3")), f"{maps}/2_mask.png", f"{maps}/3_mask.png")
    (told,) = FolderSource(tmp_path).cautions
    where = [str(tmp_path / folder) for folder in (images, maps)]
    assert told == (
        f"files of the class {maps!r} are named like those of {images!r}; if they are its label maps, give "
        f"open_source({where[0]!r}, annotations={where[1]!r})"
    )
    assert FolderSource(tmp_path, classes=sorted((images, maps))).cautions == []


def test_classes_called_mask_are_no_label_maps(tmp_path: Path) -> None:
    put(tmp_path / "faces", "with_mask/1.jpg", "without_mask/1.jpg", "hat/2.jpg")
    put(tmp_path / "masks", "mask/1.jpg", "hat/2.jpg", "hat/10.jpg")
    put(tmp_path / "numbered", "gas_mask/1.jpg", "balloon/1.jpg", "zebra/1.jpg")
    put(tmp_path / "partly", "gas_mask/1.jpg", "gas_mask/2.jpg", "gas_mask/3.jpg", "balloon/1.jpg", "balloon/2.jpg")
    for folder in ("faces", "masks", "numbered", "partly"):
        assert FolderSource(tmp_path / folder).cautions == []


@pytest.mark.parametrize("folder", ["", "benign/"])
def test_label_maps_among_the_photographs_are_told(tmp_path: Path, folder: str) -> None:
    put(tmp_path, *(f"{folder}{name}.png" for name in ("a (1)", "a (1)_mask", "a (1)_mask_1", "b", "x_mask")))
    (told,) = FolderSource(tmp_path).cautions
    first = os.path.join(folder, "a (1)_mask.png")
    assert told == (
        f"2 files named like a photograph with _mask behind it: read as photographs, as {first!r}; if they are label "
        "maps, move them away"
    )


def test_folders_of_label_maps_in_class_folders_are_told(tmp_path: Path) -> None:
    put(tmp_path, "cat/images/1.jpg", "cat/masks/1.png", "dog/images/1.jpg", "dog/masks/1.png", "dog/masks/2.png")
    (told,) = FolderSource(tmp_path).cautions
    images, maps = (str(tmp_path / "cat" / name) for name in ("images", "masks"))
    assert told == (
        "2 files in folders of label maps next to those of images: read as photographs, as 'cat/masks/1.png'; if they "
        f"are label maps, give open_source({images!r}, annotations={maps!r}), of each class by itself"
    )
