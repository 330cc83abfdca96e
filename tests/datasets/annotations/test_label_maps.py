"""Folders of images and label maps: which belong together, what files hold, and sizes that do not fit."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from augpipe.datasets.annotations.annotated_source import check_annotations
from augpipe.datasets.annotations.label_map_source import LabelMapSource
from augpipe.datasets.annotations.open_annotated import open_to_check
from augpipe.datasets.annotations.voc import VocSource
from augpipe.datasets.open import open_source
from tests.datasets.annotations.annotated_sets import SIZES, everything, put_image, put_images
from tests.datasets.annotations.conversions import as_masks
from tests.datasets.formats.source_checks import assert_keeps_the_protocol


def put_map(path: Path, labels: npt.NDArray[np.integer], mode: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(labels)
    if mode == "P":
        image = Image.frombytes("P", image.size, labels.tobytes())
        image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0] + [9] * 759)
    elif mode is not None:
        image = image.convert(mode)
    image.save(path)
    return path


def some_labels(name: str) -> npt.NDArray[np.uint8]:
    height, width = SIZES[name]
    return (np.arange(height * width) % 21).astype(np.uint8).reshape(height, width)


def put_set(root: Path, maps: str = "masks", suffix: str = "") -> Path:
    put_images(root / "images")
    for name in SIZES:
        put_map(root / maps / f"{name}{suffix}.png", some_labels(name), "P")
    return root


@pytest.mark.parametrize(
    ("maps", "suffix"), [("masks", ""), ("masks", "_mask"), ("annotations", ""), ("labels", "-seg")]
)
def test_folders_side_by_side(tmp_path: Path, maps: str, suffix: str) -> None:
    source = open_source(put_set(tmp_path, maps, suffix))
    assert isinstance(source, LabelMapSource) and source.has_label_maps and source.has_targets
    assert source.targets_of(np.arange(3)) is None
    contents = [(tmp_path / f"images/{name}.jpg").read_bytes() for name in SIZES]
    assert_keeps_the_protocol(source, contents, [-1] * 3)
    for sample, name in enumerate(SIZES):
        np.testing.assert_array_equal(source.label_map(sample), some_labels(name), strict=True)
    with pytest.raises(IndexError):
        source.label_map(3)


def test_verify_names_maps_of_another_kind(tmp_path: Path) -> None:
    """The others are numbers of 8 and 16 bits, which is one kind."""
    put_set(tmp_path)
    first, second, third = SIZES
    put_map(tmp_path / f"masks/{second}.png", some_labels(second).astype(np.uint16))
    assert check_annotations(open_to_check(str(tmp_path))) == []
    put_map(tmp_path / f"masks/{third}.png", some_labels(third), "RGB")
    (fault,) = check_annotations(open_to_check(str(tmp_path)))
    names = [tmp_path / f"images/{name}.jpg" for name in (third, first)]
    assert str(fault) == f"{names[0]}: its label map holds colours, and that of {names[1]} holds numbers"


def test_the_ending_of_maps_is_that_of_most_images(tmp_path: Path) -> None:
    """1.jpg and 1_2.jpg: the map 1_2_mask.png is not that of 1.jpg with the ending _2_mask."""
    names = ("1", "1_2", "2")
    for level, name in enumerate(names):
        put_image(tmp_path / f"images/{name}.jpg", (4, 6))
        put_map(tmp_path / f"masks/{name}_mask.png", np.full((4, 6), level, np.uint8))
    source = LabelMapSource(tmp_path / "images", tmp_path / "masks")
    assert [Path(source.name(i)).stem for i in range(len(source))] == list(names)
    assert [source.label_map(i).max() for i in range(len(source))] == [0, 1, 2]
    put_map(tmp_path / "masks/2_cells.png", np.full((4, 6), 7, np.uint8))
    (left_out,) = LabelMapSource(tmp_path / "images", tmp_path / "masks").left_out
    assert left_out.startswith("1 label map of another ending than '_mask' (the first: ")


def test_maps_next_to_their_images_need_their_ending(tmp_path: Path) -> None:
    for name in ("1", "2"):
        put_image(tmp_path / f"{name}.jpg", (4, 6))
        put_map(tmp_path / f"{name}_mask.png", np.full((4, 6), 5, np.uint8))
    with pytest.raises(
        ValueError, match="lie in one folder, where each image would be its own map. Give .*map_suffix="
    ):
        open_source(tmp_path, annotations=tmp_path)
    source = LabelMapSource(tmp_path, tmp_path, map_suffix="_mask")
    assert [Path(source.name(i)).name for i in range(len(source))] == ["1.jpg", "2.jpg"]
    assert source.label_map(1).max() == 5 and source.left_out == []


def test_links_are_followed_but_not_in_circles_and_pipes_are_left_alone(tmp_path: Path) -> None:
    put_set(tmp_path / "real")
    for kind in ("images", "masks"):
        (tmp_path / "linked" / kind).mkdir(parents=True)
        (tmp_path / "linked" / kind / "one").symlink_to(tmp_path / "real" / kind)
        (tmp_path / "linked" / kind / "two").symlink_to(tmp_path / "linked" / kind)
        os.mkfifo(tmp_path / "linked" / kind / "z.png")
    assert len(LabelMapSource(tmp_path / "linked/images", tmp_path / "linked/masks")) == 3


def test_ade20k_and_cityscapes_have_splits(tmp_path: Path) -> None:
    for split in ("training", "validation"):
        put_images(tmp_path / "ade/images" / split)
        for name in SIZES:
            put_map(tmp_path / "ade/annotations" / split / f"{name}.png", some_labels(name))
    with pytest.raises(ValueError, match="ade holds 2 splits"):
        open_source(tmp_path / "ade")
    assert len(open_source(tmp_path / "ade", split="val")) == 3
    for split, city in (("train", "aachen"), ("train", "bochum"), ("val", "lindau")):
        stem = f"{city}/{city}_000000_000019"
        put_image(tmp_path / f"city/leftImg8bit/{split}/{stem}_leftImg8bit.png", SIZES["a"])
        put_map(tmp_path / f"city/gtFine/{split}/{stem}_gtFine_labelIds.png", some_labels("a"))
        put_map(tmp_path / f"city/gtFine/{split}/{stem}_gtFine_instanceIds.png", some_labels("a").astype(np.uint16))
    source = open_source(tmp_path / "city", split="train")
    assert [Path(source.name(i)).parent.name for i in range(len(source))] == ["aachen", "bochum"]
    assert isinstance(source, LabelMapSource)
    np.testing.assert_array_equal(source.label_map(1), some_labels("a"))
    with pytest.raises(ValueError, match="city holds 2 splits"):
        open_source(tmp_path / "city")


def test_vocs_classes_of_pixels(tmp_path: Path) -> None:
    put_images(tmp_path / "JPEGImages")
    for name in "ab":
        put_map(tmp_path / f"SegmentationClass/{name}.png", some_labels(name), "P")
    lists = tmp_path / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("b\n")
    (lists / "val.txt").write_text("a\n")
    source = VocSource(tmp_path, split="train", label_maps=True, classes=["background", "aeroplane"])
    assert len(source) == 1 and source.object_classes == ("background", "aeroplane")
    np.testing.assert_array_equal(source.label_map(0), some_labels("b"))
    found = open_source(tmp_path, split="val")
    assert isinstance(found, VocSource) and found.has_label_maps


def test_what_maps_may_hold(tmp_path: Path) -> None:
    put_images(tmp_path / "images", {"a": SIZES["a"]})
    maps = tmp_path / "maps"
    labels = some_labels("a")
    deep = labels.astype(np.uint16) * 1000
    colours = np.stack([labels, labels // 2, np.full_like(labels, 3)], axis=2)

    def read(**options: object) -> npt.NDArray[np.integer]:
        return LabelMapSource(tmp_path / "images", maps, **options).label_map(0)  # type: ignore[arg-type]

    for mode in (None, "P", "LA"):
        put_map(maps / "a.png", labels, mode)
        np.testing.assert_array_equal(read(), labels, strict=True)
    put_map(maps / "a.png", deep)
    np.testing.assert_array_equal(read(), deep, strict=True)
    put_map(maps / "a.png", labels, "1")
    assert set(np.unique(read()).tolist()) <= {0, 1}
    with pytest.raises(ValueError, match='a.png: it holds numbers, .* reads numbers with encoding="labels"'):
        read(encoding="ids")
    put_map(maps / "a.png", colours)
    np.testing.assert_array_equal(read(), colours, strict=True)
    ids = labels.astype(np.int32) + 256 * (labels // 2).astype(np.int32) + 65536 * 3
    np.testing.assert_array_equal(read(encoding="ids"), ids, strict=True)
    known = [(label, label // 2, 3) for label in range(21)][::-1]
    np.testing.assert_array_equal(read(encoding="colours", colours=known), 20 - labels, strict=True)
    with pytest.raises(ValueError, match=r"a.png: the colour \(20, 10, 3\) is none of the 20 given"):
        read(encoding="colours", colours=known[1:])
    with pytest.raises(ValueError, match="go together"):
        read(encoding="colours")
    with pytest.raises(ValueError, match="encoding='x'"):
        read(encoding="x")


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_gray_levels_of_few_bits(tmp_path: Path, bits: int) -> None:
    labels = (np.arange(64).reshape(8, 8) % 2**bits).astype(np.uint8)
    packed = np.packbits(np.unpackbits(labels[:, :, None], axis=2)[:, :, -bits:].reshape(8, -1), axis=1)
    rows = b"".join(b"\0" + row.tobytes() for row in packed)
    header = struct.pack(">IIBBBBB", 8, 8, bits, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks:
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    put_images(tmp_path / "images", {"a": (8, 8)})
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps/a.png").write_bytes(content)
    source = LabelMapSource(tmp_path / "images", tmp_path / "maps")
    np.testing.assert_array_equal(source.label_map(0), labels, strict=True)


@pytest.mark.parametrize("mode", ["F", "CMYK"])
def test_modes_that_no_map_has_are_refused_by_name(tmp_path: Path, mode: str) -> None:
    put_images(tmp_path / "images", {"a": (8, 8)})
    (tmp_path / "maps").mkdir()
    Image.new(mode, (8, 8)).save(tmp_path / "maps/a.tif")
    source = LabelMapSource(tmp_path / "images", tmp_path / "maps")
    with pytest.raises(ValueError, match=f"a.tif: its mode '{mode}' is not one of label maps"):
        source.label_map(0)


def test_maps_that_do_not_fit_are_refused_when_they_are_read(tmp_path: Path) -> None:
    root = put_set(tmp_path)
    put_map(root / "masks/a.png", some_labels("b"))
    whole = (root / "masks/b.png").read_bytes()
    (root / "masks/b.png").write_bytes(whole[:60])
    Image.new("L", SIZES["c"]).save(root / "masks/c.png", format="JPEG")
    source = open_source(root)
    assert isinstance(source, LabelMapSource)
    for sample, reason in enumerate(
        ["a.png: it has 30x40 pixels, and its image 64x48", "b.png: ", "c.png: labels in a JPEG are not those"]
    ):
        with pytest.raises(ValueError, match=reason):
            source.label_map(sample)
    (root / "masks/b.png").write_bytes(whole[:-30])
    with pytest.raises(ValueError, match=r"b\.png: damaged PNG: image file is truncated"):
        source.label_map(1)
    (root / "masks/a.png").unlink()
    with pytest.raises(FileNotFoundError, match="a.png"):
        source.label_map(0)
    (root / "images/b.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="b.jpg: the file is empty"):
        LabelMapSource(root / "images", root / "masks").label_map(0)


def test_a_map_whose_pixels_do_not_fit_their_checksum_is_refused(tmp_path: Path) -> None:
    source = open_source(put_set(tmp_path))
    assert isinstance(source, LabelMapSource)
    path = tmp_path / "masks/a.png"
    data = path.read_bytes()
    begin = data.index(b"IDAT")
    (length,) = struct.unpack_from(">L", data, begin - 4)
    for place in range(begin + 4, begin + 4 + length):
        damaged = bytearray(data)
        damaged[place] ^= 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="a.png: damaged PNG: "):
            source.label_map(0)


def test_folders_without_pairs_are_refused_and_single_files_counted(tmp_path: Path) -> None:
    root = put_set(tmp_path)
    os.rename(root / "masks/b.png", root / "masks/z.png")
    source = LabelMapSource(root / "images", root / "masks")
    assert len(source) == 2
    assert [phrase.partition(" (")[0] for phrase in source.left_out] == [
        "1 image without a label map",
        "1 label map without an image",
    ]
    with pytest.raises(ValueError, match="no image in .*images .* has a map in .*Names must be alike"):
        LabelMapSource(root / "images", root / "masks", map_suffix="_x")
    put_map(root / "masks/a.tif", some_labels("a"))
    with pytest.raises(ValueError, match="a.png and a.tif have the same name except for its end"):
        LabelMapSource(root / "images", root / "masks")
    with pytest.raises(ValueError, match="there is no folder .*nowhere"):
        LabelMapSource(root / "images", root / "nowhere")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("is_stored", [True, False])
def test_maps_lie_as_the_stored_pixels_unless_their_size_says_otherwise(
    tmp_path: Path, orientation: int, is_stored: bool
) -> None:
    put_image(tmp_path / "images/a.jpg", (48, 64), orientation)
    stored = some_labels("a")
    if not is_stored and orientation >= 5:
        upright = np.ascontiguousarray(some_labels("a").T)
        put_map(tmp_path / "masks/a.png", upright)
    else:
        turned = Image.fromarray(stored)
        exif = turned.getexif()
        exif[0x0112] = orientation
        turned.save(tmp_path / "turned.png", exif=exif)
        from PIL import ImageOps

        upright = np.asarray(ImageOps.exif_transpose(Image.open(tmp_path / "turned.png")))
        put_map(tmp_path / "masks/a.png", stored)
    source = open_source(tmp_path)
    assert isinstance(source, LabelMapSource)
    np.testing.assert_array_equal(source.label_map(0), upright, strict=True)


@pytest.mark.slow
def test_real_masks(coco80: Path, tmp_path: Path) -> None:
    as_masks(coco80 / "annotations/instances.json", coco80 / "images", tmp_path / "set")
    source, known = open_source(tmp_path / "set"), open_source(coco80)
    assert isinstance(source, LabelMapSource) and len(source) == 80
    found = everything(known)
    assert found.labels is not None
    names = [Path(known.name(i)).name for i in range(80)]
    of_image = np.split(
        found.labels[found.fields["iscrowd"] == 0],
        np.cumsum(
            [
                int((found.fields["iscrowd"][a:b] == 0).sum())
                for a, b in zip(np.cumsum(found.counts) - found.counts, np.cumsum(found.counts), strict=True)
            ]
        )[:-1],
    )
    for sample in range(80):
        labels = source.label_map(sample)
        own = of_image[names.index(Path(source.name(sample)).name)]
        assert labels.dtype == np.uint8 and set(np.unique(labels).tolist()) <= {0, *(own + 1).tolist()}
        with Image.open(tmp_path / "set/masks" / f"{Path(source.name(sample)).stem}.png") as mask:
            np.testing.assert_array_equal(labels, np.asarray(mask))


def test_colours_are_told_of_unless_their_encoding_is_chosen(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    """Panoptic files and label maps in colours look like any others, and a loss would take them for numbers."""
    put_images(tmp_path / "images")
    for name in SIZES:
        put_map(tmp_path / "masks" / f"{name}.png", np.dstack([some_labels(name)] * 3))
    folders = tmp_path / "images", tmp_path / "masks"
    open_source(tmp_path)
    (told,) = [record for record in source_log.records if "colours" in record.message]
    assert told.levelname == "WARNING"
    assert 'masks hold colours: LabelMapSource(images, maps, encoding="ids") or encoding="colours"' in told.message
    assert 'encoding="labels" keeps' in told.message
    assert LabelMapSource(*folders).cautions and not LabelMapSource(*folders, encoding="labels").cautions
    assert not LabelMapSource(*folders, encoding="ids").cautions
    (tmp_path / "masks/a.png").write_bytes(b"")  # told of where it is read
    assert LabelMapSource(*folders).cautions == ()
    for name in SIZES:
        put_map(tmp_path / "masks" / f"{name}.png", some_labels(name), "P")
    assert LabelMapSource(*folders).cautions == ()
