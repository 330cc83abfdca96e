"""Pascal VOC: its folders and those of others, boxes that count from 1 or 0, and XML that is hostile or wrong."""

from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import pytest

from augpipe.datasets.annotations.voc import VocSource, _size
from augpipe.datasets.open import open_source
from augpipe.sources.targets import Targets
from tests.datasets.annotations.annotated_sets import SIZES, everything, put_image, put_images
from tests.datasets.annotations.conversions import as_voc, class_names, coco_images, outer_pixels
from tests.datasets.formats.source_checks import assert_keeps_the_protocol

BOX = "<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>"


def an_object(*box: float, name: str = "dog", further: str = "") -> str:
    return f"<object><name>{name}</name>{further}{BOX.format(*box)}</object>"


def put_xml(path: Path, *objects: str, size: tuple[int, int] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    told = "" if size is None else f"<size><height>{size[0]}</height><width>{size[1]}</width></size>"
    path.write_text(f"<annotation>{told}{''.join(objects)}</annotation>")
    return path


def boxes_of(found: Targets) -> list[list[float]]:
    assert found.boxes is not None
    boxes: list[list[float]] = found.boxes.tolist()
    return boxes


def test_images_with_xml_next_to_them(tmp_path: Path) -> None:
    put_images(tmp_path)
    put_xml(tmp_path / "a.xml", an_object(1, 2, 64, 48, further="<difficult>1</difficult>"), size=SIZES["a"])
    put_xml(tmp_path / "b.xml", size=(0, 0))
    put_xml(tmp_path / "d.xml")
    source = open_source(tmp_path)
    assert isinstance(source, VocSource) and source.object_classes == ("dog",)
    assert_keeps_the_protocol(source, [(tmp_path / f"{name}.jpg").read_bytes() for name in "ab"], [-1, -1])
    found = everything(source)
    assert found.counts.tolist() == [1, 0] and boxes_of(found) == [[0, 1, 64, 48]]
    assert {name: values.tolist() for name, values in found.fields.items()} == {
        "difficult": [1],
        "truncated": [0],
        "occluded": [0],
    }
    assert source.notes == ["boxes count pixels from 1 (no coordinate is 0)"]
    assert boxes_of(everything(VocSource(tmp_path, first_pixel=0))) == [[1, 2, 64, 48]]
    assert source.left_out == [
        f"1 image without an annotation (the first: {tmp_path}/c.jpg)",
        f"1 annotation without an image (the first: {tmp_path}/d.xml)",
    ]


def test_a_zero_anywhere_means_that_pixels_count_from_zero(tmp_path: Path) -> None:
    put_images(tmp_path / "images")
    put_xml(tmp_path / "xml/a.xml", an_object(0, 2, 20, 30))
    put_xml(tmp_path / "xml/b.xml", an_object(4.5, 2, 20, 30), an_object(4, 4, 8, 8, name="cat"))
    source = open_source(tmp_path / "images", annotations=tmp_path / "xml")
    assert boxes_of(everything(source)) == [[0, 2, 20, 30], [4.5, 2, 20, 30], [4, 4, 8, 8]]
    assert everything(VocSource(tmp_path / "images", tmp_path / "xml", classes=["dog", "cat"])).labels.tolist() == [
        0,
        0,
        1,
    ]  # type: ignore[union-attr]
    assert source.notes == [f"boxes count pixels from 0 (a coordinate is 0: {tmp_path}/xml/a.xml, object 0)"]
    given = VocSource(tmp_path / "images", tmp_path / "xml", first_pixel=1)
    assert boxes_of(everything(given))[1:] == [[3.5, 1, 20, 30], [3, 3, 8, 8]] and not given.notes[1:]
    with pytest.raises(ValueError, match="first_pixel=2, and pixels count from 0 or from 1"):
        VocSource(tmp_path / "images", tmp_path / "xml", first_pixel=2)  # type: ignore[arg-type]
    only = VocSource(tmp_path / "images", tmp_path / "xml", classes=["cat"])
    assert len(boxes_of(everything(only))) == 1
    assert only.left_out[-1].startswith("2 objects of classes that are not among those given (the first: ")


def numbered(*points: tuple[float, float]) -> str:
    return "".join(f"<x{nth}>{x}</x{nth}><y{nth}>{y}</y{nth}>" for nth, (x, y) in enumerate(points, 1))


def test_outlines_as_roboflow_and_labelme_write_them(tmp_path: Path) -> None:
    put_images(tmp_path)
    corners = [(5.0, 3.0), (21.0, 3.0), (21.0, 31.0), (5.0, 17.0)]
    listed = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in corners)
    ways = (f"<polygon>{numbered(*corners)}</polygon>", f"<polygon>{listed}</polygon>", "")
    put_xml(tmp_path / "a.xml", *(an_object(5, 3, 21, 31, further=further) for further in ways), size=SIZES["a"])
    pixels: tuple[tuple[Literal[0, 1], float], ...] = ((1, 0.5), (0, 0.0))
    for first, moved in pixels:  # a corner lies in the middle of its pixel, of those that count from 1
        found = everything(VocSource(tmp_path, first_pixel=first))
        assert found.polygons is not None
        rings = [[ring.tolist() for ring in one] for one in found.polygons]
        assert rings == [[[[x - moved, y - moved] for x, y in corners]]] * 2 + [[]]
        assert boxes_of(found) == [[5 - first, 3 - first, 21, 31]] * 3


@pytest.mark.parametrize(
    "polygon", ["", numbered((1, 1), (3, 3)), numbered((1, 1), (3, 3)) + "<x3>4</x3>", "<x1>a</x1>"]
)
def test_an_object_stays_whose_outline_cannot_be_one(tmp_path: Path, polygon: str) -> None:
    put_images(tmp_path)
    put_xml(tmp_path / "a.xml", an_object(1, 2, 8, 9), an_object(1, 1, 9, 9, further=f"<polygon>{polygon}</polygon>"))
    source = VocSource(tmp_path)
    assert len(boxes_of(everything(source))) == 2 and everything(source).polygons is None
    told = (
        f"1 object with a <polygon> that has no x and y of three corners, read without it (the first: {tmp_path}/a.xml"
    )
    assert [line for line in source.notes if line.startswith(told)]


def test_lists_may_name_files_with_their_ends(tmp_path: Path) -> None:
    put_images(tmp_path / "JPEGImages")
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    put_xml(tmp_path / "Annotations/a.xml", an_object(1, 2, 64, 48))
    put_xml(tmp_path / "Annotations/b.xml", an_object(1, 2, 64, 48))
    (tmp_path / "ImageSets/Main/train.txt").write_text("b.jpg\na  1\n")
    assert len(VocSource(tmp_path)) == 2
    (tmp_path / "ImageSets/Main/train.txt").write_text("d.jpg\n")
    with pytest.raises(ValueError, match=r"the split's list names 'd\.jpg', which has no image"):
        VocSource(tmp_path)


@pytest.mark.parametrize("size", [(48, 0), (0, 64), (48, 1 << 31), (1 << 31, 64), ("nan", 64), ("high", 64)])
def test_a_side_that_cannot_be_leaves_the_size_open(size: tuple[Any, int]) -> None:
    made = ElementTree.fromstring("<a><size><height>{}</height><width>{}</width></size></a>".format(*size))
    assert _size(made) == (0, 0)


def test_the_size_tells_whether_a_turned_image_was_annotated_upright(tmp_path: Path) -> None:
    put_image(tmp_path / "a.jpg", (48, 64), orientation=6)
    put_xml(tmp_path / "a.xml", an_object(5, 7, 24, 16), size=(48, 64))
    assert boxes_of(everything(VocSource(tmp_path))) == [[48 - 16, 4, 48 - 6, 24]]
    put_xml(tmp_path / "a.xml", an_object(5, 7, 24, 16), size=(64, 48))
    assert boxes_of(everything(VocSource(tmp_path))) == [[4, 6, 24, 16]]
    put_xml(tmp_path / "a.xml", an_object(5, 7, 24, 16), size=(60, 48))
    with pytest.raises(ValueError, match="a.jpg has 48x64 pixels, and .* was made for an image of 48x60"):
        VocSource(tmp_path).read(0)


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "lol">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    + "]><annotation><object><name>&j;</name></object></annotation>"
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BOMB, "declares a document type, or is not UTF-8"),
        (BOMB.encode("utf-16"), "declares a document type, or is not UTF-8"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "declares a document type"),
        ("", "is not XML: no element found"),
        ("<annotation>", "is not XML: no element found"),
        (b"<annotation>\xff</annotation>", "is not XML: not well-formed"),
        ('<?xml version="1.0" encoding="x"?><annotation/>', "is not XML: unknown encoding"),
        ("<html/>", "begins with <html>, and VOC's files with <annotation>"),
        ("<annotation><object/></annotation>", "object 0: it has no name"),
        (f"<annotation>{an_object(1, 1, 2, 2)}<object><name>x</name></object></annotation>", "object 1: its bndbox is"),
        (f"<annotation>{an_object(float('nan'), 1, 2, 2)}</annotation>", "object 0: its box is not finite"),
        (f"<annotation>{an_object(9, 1, 2, 2)}</annotation>", "object 0: its box has a negative size"),
        ("<a>" * 100_000 + "</a>" * 100_000, "begins with <a>"),
    ],
    ids=range(13),
)
def test_wrong_files_are_refused_by_name(tmp_path: Path, content: str | bytes, reason: str) -> None:
    put_images(tmp_path)
    (tmp_path / "a.xml").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=f"a.xml.*{reason}"):
        VocSource(tmp_path)


def test_huge_files_are_refused(tmp_path: Path) -> None:
    put_images(tmp_path)
    (tmp_path / "a.xml").write_bytes(b" " * (17 << 20))
    with pytest.raises(ValueError, match="a.xml has more than 16 MB"):
        VocSource(tmp_path)


def test_real_annotations_in_vocs_layout(coco80: Path, tmp_path: Path) -> None:
    file = coco80 / "annotations/instances.json"
    as_voc(file, coco80 / "images", tmp_path / "voc")
    with pytest.raises(ValueError, match=r"voc has 2 splits \('train', 'val'\). Open one: split=\"train\""):
        open_source(tmp_path / "voc")
    names = class_names(file)
    every = coco_images(file)
    for split, images in (("val", every[:10]), ("train", every[10:])):
        source = open_source(tmp_path / "voc", split=split)
        found = everything(source)
        assert isinstance(source, VocSource) and found.labels is not None
        assert [Path(source.name(i)).name for i in range(len(source))] == [image["file_name"] for image, _ in images]
        objects = [(image, one) for image, annotations in images for one in annotations]
        assert boxes_of(found) == [list(outer_pixels(one["bbox"], image)) for image, one in objects]
        assert [source.object_classes[label] for label in found.labels] == [
            names[one["category_id"]] for _, one in objects
        ]
        assert found.fields["difficult"].tolist() == [one["iscrowd"] for _, one in objects]
        assert np.array_equal(found.counts, [len(annotations) for _, annotations in images])


def test_splits_number_classes_and_pixels_alike(tmp_path: Path) -> None:
    """A class that only the other split has, and a coordinate 0 that only the other has; a damaged file of the
    other split is not this one's fault."""
    put_images(tmp_path / "JPEGImages")
    put_xml(tmp_path / "Annotations/a.xml", an_object(3, 4, 20, 30, name="zebra"))
    put_xml(tmp_path / "Annotations/b.xml", an_object(0, 2, 20, 30, name="cat"), an_object(1, 1, 9, 9, name="zebra"))
    (tmp_path / "Annotations/c.xml").write_text("<annotation>")
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    for split, stem in (("train", "a"), ("val", "b")):
        (tmp_path / f"ImageSets/Main/{split}.txt").write_text(stem)
    train, val = (VocSource(tmp_path, split=split) for split in ("train", "val"))
    assert train.object_classes == val.object_classes == ("cat", "zebra")
    assert everything(train).labels.tolist() == [1] and everything(val).labels.tolist() == [0, 1]  # type: ignore[union-attr]
    assert boxes_of(everything(train)) == [[3, 4, 20, 30]] and boxes_of(everything(val))[0] == [0, 2, 20, 30]


def test_an_object_that_is_wrong_in_another_split_is_told_where_that_is_opened(tmp_path: Path) -> None:
    put_images(tmp_path / "JPEGImages")
    put_xml(tmp_path / "Annotations/a.xml", an_object(3, 4, 20, 30, name="zebra"))
    put_xml(tmp_path / "Annotations/b.xml", "<object/>", an_object(1, 2, 20, 30, name="cat"))
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    for split, stem in (("train", "a"), ("val", "b")):
        (tmp_path / f"ImageSets/Main/{split}.txt").write_text(stem)
    assert VocSource(tmp_path, split="train").object_classes == ("cat", "zebra")
    with pytest.raises(ValueError, match=r"b\.xml, object 0: it has no name"):
        VocSource(tmp_path, split="val")


def test_without_lists_of_splits_all_images_are_samples(tmp_path: Path) -> None:
    put_images(tmp_path / "JPEGImages")
    put_xml(tmp_path / "Annotations/a.xml", an_object(1, 1, 5, 5))
    with pytest.raises(ValueError, match="split='train' needs lists in .*ImageSets/Main, and there is no such folder"):
        VocSource(tmp_path, split="train")
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    (tmp_path / "ImageSets/Main/dog_train.txt").write_text("b -1\n")  # of a class, not of a split
    source = VocSource(tmp_path)
    assert len(source) == 1 and source.left_out[0].startswith("2 images without an annotation (the first: ")
    (tmp_path / "Annotations/a.xml").rename(tmp_path / "Annotations/d.xml")
    with pytest.raises(ValueError, match="holds 3 images and 1 annotation, and none have the same name"):
        VocSource(tmp_path)


def test_a_list_that_names_what_is_not_there(tmp_path: Path) -> None:
    put_images(tmp_path / "JPEGImages")
    put_xml(tmp_path / "Annotations/a.xml", an_object(1, 1, 5, 5))
    lists = tmp_path / "ImageSets/Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match="the split's list names 'b', which has no annotation"):
        open_source(tmp_path)
    source = VocSource(tmp_path, on_error="skip")
    assert len(source) == 1 and source.left_out == [f"1 image that cannot be used (the first: {tmp_path})"]
    with pytest.raises(ValueError, match="holds no split 'test', but 'train'"):
        open_source(tmp_path, split="test")
