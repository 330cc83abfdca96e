"""Writes the annotations of a COCO file as other formats have them: by their definitions, and not by our readers."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

Annotation = dict[str, Any]


def coco_images(file: Path) -> list[tuple[dict[str, Any], list[Annotation]]]:
    """Each image of a file with its annotations, by name."""
    content = json.loads(file.read_text())
    own = defaultdict(list)
    for annotation in content["annotations"]:
        own[annotation["image_id"]].append(annotation)
    return [(image, own[image["id"]]) for image in sorted(content["images"], key=lambda image: image["file_name"])]


def class_names(file: Path) -> dict[int, str]:
    """Category id -> name, in the order of the ids."""
    content = json.loads(file.read_text())
    return {one["id"]: one["name"] for one in sorted(content["categories"], key=lambda one: one["id"])}


def as_voc(file: Path, images: Path, root: Path) -> None:
    """`JPEGImages`, `Annotations` and two lists; boxes of whole pixels, counted from 1."""
    names = class_names(file)
    for folder in ("Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    (root / "JPEGImages").symlink_to(images)
    stems = []
    for image, annotations in coco_images(file):
        stem = Path(image["file_name"]).stem
        objects = ""
        for annotation in annotations:
            left, top, right, bottom = outer_pixels(annotation["bbox"], image)
            objects += (
                f"<object><name>{names[annotation['category_id']]}</name><pose>Left</pose><truncated>0</truncated>"
                f"<difficult>{annotation['iscrowd']}</difficult><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
                f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox>"
                "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
                "</object>"
            )
        size = f"<size><width>{image['width']}</width><height>{image['height']}</height><depth>3</depth></size>"
        text = f"<annotation><filename>{image['file_name']}</filename>{size}{objects}</annotation>"
        (root / "Annotations" / f"{stem}.xml").write_text(text)
        stems.append(stem)
    (root / "ImageSets/Main/train.txt").write_text("\n".join(stems[10:]) + "\n")
    (root / "ImageSets/Main/val.txt").write_text("\n".join(stems[:10]) + "\n")
    (root / "ImageSets/Main/dog_train.txt").write_text("\n".join(f"{stem} -1" for stem in stems))


def outer_pixels(bbox: list[float], image: dict[str, Any]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a COCO box, rounded outwards to whole pixels within its image."""
    left, top, width, height = bbox
    right, bottom = np.ceil([left + width, top + height]).astype(int).tolist()
    return int(left), int(top), min(right, image["width"]), min(bottom, image["height"])


def as_yolo(file: Path, images: Path, root: Path, kind: str) -> None:
    """`images/val`, `labels/val` and data.yaml; boxes, segments (of one polygon each) or poses."""
    numbers = {category: number for number, category in enumerate(class_names(file))}
    (root / "images").mkdir(parents=True)
    (root / "images/val").symlink_to(images)
    (root / "labels/val").mkdir(parents=True)
    for image, annotations in coco_images(file):
        width, height = image["width"], image["height"]
        lines = []
        for annotation in annotations:
            left, top, across, down = annotation["bbox"]
            box = [(left + across / 2) / width, (top + down / 2) / height, across / width, down / height]
            values = box
            if kind == "segments" and not annotation["iscrowd"]:
                values = (np.reshape(annotation["segmentation"][0], (-1, 2)) / (width, height)).ravel().tolist()
            elif kind == "pose":
                points = np.reshape(annotation["keypoints"], (-1, 3)) / (width, height, 1)
                values = box + points.ravel().tolist()
            lines.append(" ".join([str(numbers[annotation["category_id"]]), *(f"{value:.9f}" for value in values)]))
        if lines:
            (root / "labels/val" / f"{Path(image['file_name']).stem}.txt").write_text("\n".join(lines) + "\n")
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(class_names(file).values()))
    pose = "kpt_shape: [17, 3]\nflip_idx: [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]\n"
    text = f"path: .\ntrain: images/val\nval: images/val\ntest:\n{pose if kind == 'pose' else ''}names:\n{names}"
    (root / "data.yaml").write_text(text)


def as_masks(file: Path, images: Path, root: Path) -> None:
    """`images` and `masks`: PNG with a palette, the class numbers (from 1, 0 for none) of polygons, by Pillow."""
    numbers = {category: number + 1 for number, category in enumerate(class_names(file))}
    root.mkdir(parents=True)
    (root / "images").symlink_to(images)
    (root / "masks").mkdir()
    for image, annotations in coco_images(file):
        mask = Image.new("P", (image["width"], image["height"]))
        mask.putpalette([value for number in range(256) for value in (number, 255 - number, 7 * number % 256)])
        for annotation in annotations:
            if not annotation["iscrowd"]:
                for ring in annotation["segmentation"]:
                    ImageDraw.Draw(mask).polygon(ring, fill=numbers[annotation["category_id"]])
        mask.save(root / "masks" / f"{Path(image['file_name']).stem}.png")


def as_panoptic(file: Path, images: Path, root: Path, num: int) -> Path:
    """`images` and panoptic_val.json with its PNG files, of the first images: later polygons cover earlier ones."""
    root.mkdir(parents=True)
    (root / "images").symlink_to(images)
    (root / "panoptic_val").mkdir()
    rows, annotations = [], []
    for image, objects in coco_images(file)[:num]:
        drawn, segments = Image.new("RGB", (image["width"], image["height"])), []
        for number, annotation in enumerate(objects):
            colour = (7 * number % 256, number + 1, 200 - number)
            for ring in annotation["segmentation"] if not annotation["iscrowd"] else ():
                ImageDraw.Draw(drawn).polygon(ring, fill=colour)
            segment_id = colour[0] + 256 * colour[1] + 65536 * colour[2]
            segments.append({"id": segment_id, "category_id": annotation["category_id"], "iscrowd": number % 2})
        pixels = np.asarray(drawn).astype(np.int64)
        for segment in segments:
            y, x = np.nonzero(pixels @ (1, 256, 65536) == segment["id"])
            if len(y):
                corner, size = (int(x.min()), int(y.min())), (int(np.ptp(x)) + 1, int(np.ptp(y)) + 1)
                segment |= {"area": len(y), "bbox": [*corner, *size]}
        name = f"{Path(image['file_name']).stem}.png"
        drawn.save(root / "panoptic_val" / name)
        rows.append(image)
        shown = [segment for segment in segments if "bbox" in segment]
        annotations.append({"image_id": image["id"], "file_name": name, "segments_info": shown})
    categories = json.loads(file.read_text())["categories"]
    content = {"images": rows, "annotations": annotations, "categories": [one | {"isthing": 1} for one in categories]}
    (root / "panoptic_val.json").write_text(json.dumps(content))
    return root / "panoptic_val.json"
