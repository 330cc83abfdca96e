"""Miniature trees of official datasets: the official names, formats and numbering, with few and tiny images."""

import struct
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

SYNSETS = ("n01440764", "n01443537", "n02123045", "n03126707")
ILSVRC_IDS = (3, 1, 4, 2)
"""ILSVRC2012_ID of each of SYNSETS: another order than theirs, as in the devkit."""


def jpeg(color: int = 0, size: tuple[int, int] = (24, 16)) -> bytes:
    """A small JPEG of one colour."""
    stream = BytesIO()
    Image.new("RGB", size, (color % 256, 99, 7)).save(stream, "JPEG")
    return stream.getvalue()


def put(root: Path, names: Iterable[str]) -> None:
    for index, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(index))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def devkit(root: Path, ground_truth: Sequence[int]) -> None:
    """meta.mat: an (N, 1) struct array with its high-level synsets at the end, and the validation's ids."""
    data = root / "ILSVRC2012_devkit_t12/data"
    data.mkdir(parents=True, exist_ok=True)
    fields = "ILSVRC2012_ID WNID words gloss num_children children wordnet_height num_train_images".split()
    entries = sorted(zip(ILSVRC_IDS, SYNSETS, strict=True))
    high = [(len(SYNSETS) + 1, "n00001740")]  # it has children: no class
    synsets = np.zeros((len(entries) + 1, 1), dtype=[(field, object) for field in fields])
    for row, (number, wnid) in enumerate(entries + high):
        num_children = 2.0 if row == len(entries) else 0.0
        children = np.array([1, 2], dtype=np.uint16) if num_children else np.zeros((1, 0))
        synsets[row, 0] = (
            np.uint8(number),
            wnid,
            f"words, of {wnid}",
            "a gloss",
            float(num_children),
            children,
            0.0,
            2.0,
        )
    savemat(data / "meta.mat", {"synsets": synsets})
    write_lines(data / "ILSVRC2012_validation_ground_truth.txt", map(str, ground_truth))


def imagenet(root: Path) -> None:
    put(root, [f"train/{synset}/{synset}_{number}.JPEG" for synset in SYNSETS for number in (18, 9)])
    put(root, [f"val/ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 6)])
    put(root, [f"test/ILSVRC2012_test_{number:08d}.JPEG" for number in range(1, 4)])
    devkit(root, [1, 2, 3, 4, 1])


def cub200(root: Path) -> None:
    """Ids from 1; class folders that carry their number; boxes as floats."""
    classes = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
    stems = ["Black_Footed_Albatross", "Laysan_Albatross", "Sooty_Albatross"]
    images = [f"{classes[c]}/{stems[c]}_{n:04d}_{n + 790}.jpg" for c in range(3) for n in (1, 2, 3)]
    put(root / "images", images)
    write_lines(root / "images.txt", [f"{i} {image}" for i, image in enumerate(images, 1)])
    write_lines(root / "image_class_labels.txt", [f"{i} {(i - 1) // 3 + 1}" for i in range(1, 10)])
    write_lines(root / "train_test_split.txt", [f"{i} {int(i % 3 != 0)}" for i in range(1, 10)])
    write_lines(root / "bounding_boxes.txt", [f"{i} {i}.0 27.0 325.5 304.0" for i in range(1, 10)])
    write_lines(root / "classes.txt", [f"{i} {name}" for i, name in enumerate(classes, 1)])


def flowers102(root: Path) -> None:
    """labels: (1, N) uint8 of 1..102; trnid, valid, tstid: (1, n) uint16, not sorted."""
    put(root, [f"jpg/image_{number:05d}.jpg" for number in range(1, 9)])
    savemat(root / "imagelabels.mat", {"labels": np.array([[77, 77, 1, 1, 102, 102, 5, 5]], dtype=np.uint8)})
    sets = {"trnid": [[7, 1, 3]], "valid": [[2, 5]], "tstid": [[8, 4, 6]]}
    savemat(root / "setid.mat", {name: np.array(ids, dtype=np.uint16) for name, ids in sets.items()})


def pets(root: Path) -> None:
    breeds = ["Abyssinian", "american_bulldog", "Egyptian_Mau"]
    rows = [f"{breed}_{n} {c} {1 + breed[0].islower()} {c}" for c, breed in enumerate(breeds, 1) for n in (100, 2, 34)]
    put(root, [f"images/{row.split()[0]}.jpg" for row in rows])
    header = [
        "#Image CLASS-ID SPECIES BREED ID",
        "#ID: 1:37 Class ids",
        "#SPECIES: 1:Cat 2:Dog",
        "#BREED ID: 1-25:Cat 1:12:Dog",
        "#All images with 1st letter as captial are cat images",
        "#images with small first letter are dog images",
    ]
    write_lines(root / "annotations/list.txt", header + rows)
    write_lines(root / "annotations/trainval.txt", [rows[4], rows[0], rows[7], rows[8]])
    write_lines(root / "annotations/test.txt", [rows[1], rows[2], rows[3], rows[5], rows[6]])


def aircraft(root: Path) -> None:
    """Variants whose names hold blanks and slashes; boxes of corners, the first pixel being (1, 1)."""
    variants = ["707-320", "Boeing 717", "F/A-18"]
    images = [f"{1025794 + n:07d}" for n in range(8)]
    put(root, [f"data/images/{image}.jpg" for image in images])
    rows = [f"{image} {variants[n % 3]}" for n, image in enumerate(images)]
    parts = {"train": rows[:3], "val": rows[3:5], "trainval": rows[:5], "test": rows[5:]}
    for split, part in parts.items():
        write_lines(root / f"data/images_variant_{split}.txt", part)
    write_lines(root / "data/images_box.txt", [f"{image} 3 5 22 14" for image in images])
    write_lines(root / "data/variants.txt", variants)


def indoor67(root: Path) -> None:
    """One list ends without a line break, and one file name holds a blank."""
    images = [f"{name}.jpg" for name in ("airport_inside/airport_inside_0001", "kitchen/int474", "kitchen/cocina 05")]
    images.append("tv_studio/a.jpg")
    put(root / "Images", [*images, "kitchen/not_listed.jpg"])
    (root / "TrainImages.txt").write_text("\n".join([images[1], images[0], images[3]]), encoding="utf-8")
    write_lines(root / "TestImages.txt", [images[2]])


def mvso(root: Path) -> None:
    """A header, then pair and address; two of the addresses were not fetched."""
    flickr = "https://farm9.staticflickr.com/8012"
    rows = [("old_house", "3_c.jpg"), ("happy_baby", "1_a.jpg"), ("happy_baby", "2_b.jpg"), ("clear_sky", "4_d.jpg")]
    put(root, ["images/old_house/3_c.jpg", "images/happy_baby/1_a.jpg"])
    write_lines(
        root / "image_url_mappings/english.csv", ["ANP,url", *(f"{pair},{flickr}/{name}" for pair, name in rows)]
    )


def _idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def mnist(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for stem, num in (("train", 5), ("t10k", 3)):
        (root / f"{stem}-images-idx3-ubyte").write_bytes(_idx(rng.integers(0, 256, (num, 28, 28), dtype=np.uint8)))
        (root / f"{stem}-labels-idx1-ubyte").write_bytes(_idx(np.arange(num, dtype=np.uint8) * 2))


def cifar10(root: Path) -> None:
    """Records of one label and 3,072 pixels, red first; batches.meta.txt ends with an empty line."""
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    write_lines(root / "batches.meta.txt", [*names, ""])
    for number, file in enumerate([*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]):
        records = [bytes([(number + k) % 10, *[number] * 1024, *[k] * 1024, *[255] * 1024]) for k in range(2)]
        (root / file).write_bytes(b"".join(records))


TREES: dict[str, Callable[[Path], None]] = {
    "aircraft": aircraft,
    "cifar10": cifar10,
    "cub200": cub200,
    "flowers102": flowers102,
    "imagenet": imagenet,
    "indoor67": indoor67,
    "mnist": mnist,
    "mvso": mvso,
    "pets": pets,
}
