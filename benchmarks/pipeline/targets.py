"""Loaders of masks and boxes next to a torch DataLoader, from files on disk (in the page cache) to float32 batches.

    python -m benchmarks.pipeline.targets                 # both of:
    python -m benchmarks.pipeline.targets segmentation    # a label map an image: next to OpenCV and albumentations
    python -m benchmarks.pipeline.targets detection       # boxes: next to torchvision's transforms of version 2
    python -m benchmarks.pipeline.targets mosaic          # four images in one, with boxes: albumentations, Ultralytics

Label maps are drawn for photographs, PNG files of 21 classes; pictures with boxes are those of `augpipe sample
--targets`, and for mosaics 80 photographs of COCO, five times, where $AUGPIPE_DATA has them. A DataLoader runs one
worker process a core. A peer that is not installed is left out. What mosaics of four show is decoded by itself, too:
what our loader would reach if all else took no time.
"""

import json
import os
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image

from augpipe import Loader, Recipe
from augpipe.datasets.open import open_source
from augpipe.datasets.synthetic.generate import generate
from augpipe.ops import (
    CenterCrop,
    ColorJitter,
    Flip,
    HueSaturationValue,
    Mosaic,
    Normalize,
    RandomCrop,
    RandomResize,
    RandomResizedCrop,
    Translate,
    Zoom,
)
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.items import Item
from augpipe.pipeline.stored_image import Decodable
from benchmarks.harness import Bench
from benchmarks.pipeline import peers
from benchmarks.pipeline.jpeg_regions import whole_by_libjpeg
from benchmarks.pipeline.loader import NUM_THREADS, has, ours

DECODING = "augpipe, decoding only"
CROP, SIDE, NUM_CLASSES, BATCH_SIZE = 512, 640, 21, 16
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
SEGMENTED = Recipe(ops=(RandomResizedCrop(size=CROP), Flip(), ColorJitter(**JITTER), Normalize()))
RESIZED = RandomResize(factor=(0.5, 1.5), within=SIDE)
DETECTED = Recipe(border="constant", ops=(RESIZED, RandomCrop(size=SIDE, pad_if_needed=True), Flip(), Normalize()))

ZOOMS, SHIFTS, GRAY = (0.5, 1.5), (-0.1, 0.1), 114
COLOURS = HueSaturationValue(hue=(-0.0075, 0.0075), saturation=(-90, 90), value=(-50, 50), p=1.0)
TILED = {
    num: Recipe(
        mosaic=Mosaic(size=SIDE, num_images=num),
        ops=(Zoom(factor=ZOOMS), Translate(horizontal=SHIFTS, vertical=SHIFTS), CenterCrop(size=SIDE), Flip(), COLOURS),
    )
    for num in (4, 9)
}
"""By their number of images; otherwise as Ultralytics trains detectors by default, and as uint8."""


class Segmented(torch.utils.data.Dataset[Any]):
    """Photographs and their label maps by OpenCV, through albumentations."""

    def __init__(self, folder: Path) -> None:
        import albumentations as a

        self.paths = sorted((folder / "images").iterdir())
        self.chain = a.Compose(
            [
                a.RandomResizedCrop((CROP, CROP), p=1),
                a.HorizontalFlip(p=0.5),
                a.ColorJitter(**JITTER, p=1),
                a.Normalize(p=1),
                a.ToTensorV2(p=1),
            ],
            seed=0,
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        import cv2

        path = self.paths[index]
        mask = cv2.imread(str(path.parents[1] / "masks" / f"{path.stem}.png"), cv2.IMREAD_UNCHANGED)
        made = self.chain(image=peers.by_opencv(str(path)), mask=mask)
        return made["image"], made["mask"]


class Detected(torch.utils.data.Dataset[Any]):
    """Pictures and their boxes through torchvision's transforms, as its references train Faster R-CNN."""

    def __init__(self, folder: Path) -> None:
        from torchvision.transforms import v2

        told = json.loads((folder / "annotations.json").read_text())
        boxes: dict[int, list[Any]] = {image["id"]: [] for image in told["images"]}
        for one in told["annotations"]:
            boxes[one["image_id"]].append((one["bbox"], one["category_id"]))
        self.samples = [(str(folder / image["file_name"]), boxes[image["id"]]) for image in told["images"]]
        self.decode = peers.vision_decoder(Path(self.samples[0][0]))
        self.chain = v2.Compose(
            [
                v2.ScaleJitter((SIDE, SIDE), (0.5, 1.5), antialias=True),
                v2.RandomCrop(SIDE, pad_if_needed=True),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(peers.MEAN, peers.STD),
                v2.SanitizeBoundingBoxes(),
            ]
        )

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        from torchvision import tv_tensors

        path, objects = self.samples[index]
        image = self.decode(path)
        corners = torch.tensor([[x, y, x + width, y + height] for (x, y, width, height), _ in objects]).reshape(-1, 4)
        boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=tuple(image.shape[-2:]))
        return self.chain(image, {"boxes": boxes, "labels": torch.tensor([label for _, label in objects])})


class Tiled(torch.utils.data.Dataset[Any]):
    """Mosaics of four by OpenCV and albumentations, whose three partners the data set reads."""

    def __init__(self, folder: Path) -> None:
        import albumentations as a

        self.samples = [(path, np.array(boxes, np.float32).reshape(-1, 5)) for path, boxes in boxes_of(folder).items()]
        self.chain = a.Compose(
            [
                a.Mosaic(
                    target_size=(SIDE, SIDE),
                    cell_shape=(SIDE, SIDE),
                    center_range=(0.25, 0.75),
                    fill=GRAY,
                    fit_mode="contain",
                    p=1,
                ),
                a.Affine(scale=ZOOMS, translate_percent=SHIFTS, fill=GRAY, p=1),
                a.HorizontalFlip(p=0.5),
                a.HueSaturationValue(1, 90, 50, p=1),
                a.ToTensorV2(p=1),
            ],
            bbox_params=a.BboxParams(format="coco", label_fields=["labels"]),
            seed=0,
        )

    def __len__(self) -> int:
        return len(self.samples)

    def sample(self, index: int) -> dict[str, Any]:
        path, boxes = self.samples[index]
        return {"image": peers.by_opencv(path), "bboxes": boxes[:, :4], "labels": boxes[:, 4]}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        others = [self.sample(number) for number in torch.randint(len(self), (3,)).tolist()]
        made = self.chain(**self.sample(index), mosaic_metadata=others)
        return made["image"], {name: torch.as_tensor(np.asarray(made[name])) for name in ("bboxes", "labels")}


def ultralytics_loader(folder: Path, num_images: int) -> Callable[[], int]:
    """Ultralytics' own data set and batches, in torch's DataLoader: its own goes on working between the turns.

    It takes the partners from the photographs that it has resized last, and decodes one photograph a mosaic.
    """
    from ultralytics.cfg import get_cfg
    from ultralytics.data.augment import Mosaic as TheirMosaic
    from ultralytics.data.build import build_yolo_dataset

    config = get_cfg(overrides={"task": "detect", "imgsz": SIDE, "workers": NUM_THREADS, "augmentations": []})
    names = {number: str(number) for number in range(100)}
    data = {"path": str(folder), "names": names, "nc": len(names), "channels": 3}
    files = build_yolo_dataset(config, str(folder / "images"), BATCH_SIZE, data, mode="train", rect=False, stride=32)
    for step in files.transforms.transforms:
        for inner in getattr(step, "transforms", [step]):
            if isinstance(inner, TheirMosaic):
                inner.n = num_images

    def batch(samples: list[Any]) -> tuple[Any, Any]:
        made = files.collate_fn(samples)
        return made["img"], made

    return peers.data_loader(files, BATCH_SIZE, NUM_THREADS, batch)


def decoding_only(source: Any, recipe: Recipe) -> dict[str, Callable[[], int]]:
    """What our loader decodes for an epoch once row indexes are known, decoded as it does that and by libjpeg-turbo."""
    loader = Loader(source, recipe, batch_size=BATCH_SIZE, num_threads=NUM_THREADS, dtype="uint8")
    num, noted, files = sum(map(len, loader)), [], []
    decodable = Decoder._decodable

    def noting(self: Decoder, item: Item, *, may_crop: bool) -> Decodable:
        files.append(item.opened.content)
        noted.append(decodable(self, replace(item, image=replace(item.opened)), may_crop=may_crop))
        return decodable(self, item, may_crop=may_crop)

    with mock.patch.object(Decoder, "_decodable", noting):
        sum(map(len, loader))
    print(f"  {len(noted) / num:.2f} photographs are decoded for a mosaic")

    def of_thread(decode: Callable[[int, Any], object], nth: int) -> None:
        room = np.empty(max(one.num_bytes for one in noted), np.uint8)
        for number in range(nth, len(noted), NUM_THREADS):
            decode(number, room)

    def contender(decode: Callable[[int, Any], object]) -> Callable[[], int]:
        def work() -> int:
            with ThreadPoolExecutor(NUM_THREADS) as pool:
                list(pool.map(partial(of_thread, decode), range(NUM_THREADS)))
            return num

        return work

    return {
        DECODING: contender(lambda number, room: noted[number].decode_into(room)),
        "libjpeg-turbo, the same photographs whole": contender(lambda number, room: whole_by_libjpeg(files[number])),
    }


def boxes_of(folder: Path) -> dict[str, list[Any]]:
    """File -> left, top, width, height and class of its objects, of a COCO file."""
    told = json.loads((folder / "annotations.json").read_text())
    files = {image["id"]: str(folder / "images" / image["file_name"]) for image in told["images"]}
    boxes: dict[str, list[Any]] = {file: [] for file in files.values()}
    for one in told["annotations"]:
        boxes[files[one["image_id"]]].append((*one["bbox"], one["category_id"]))
    return boxes


def write_objects(folder: Path, num: int, data: Path | None) -> str:
    """Write pictures, drawn or of the folder `data`, a COCO file of their objects and Ultralytics' files of labels.

    Returns:
        What they are.
    """
    images = folder / "images"
    if data is None:
        generate(images, num=num, targets=True)
        told, copies, name = json.loads((images / "annotations.json").read_text()), 1, f"{num} drawn pictures"
        (images / "annotations.json").unlink()
    else:
        images.mkdir(parents=True)
        with tarfile.open(data / "coco80.tar") as tar:
            told, copies = json.loads(_content(tar, "annotations/instances.json")), -(-num // 80)
            for image in told["images"]:
                for copy in range(copies):
                    (images / f"{copy}_{image['file_name']}").write_bytes(_content(tar, f"images/{image['file_name']}"))
        name = f"{copies}x 80 COCO photographs"
    objects = [one for one in told["annotations"] if not one.get("iscrowd")]
    sizes = {image["id"]: (image["width"], image["height"]) for image in told["images"]}
    numbers = {kind["id"]: nth for nth, kind in enumerate(told["categories"])}
    written: dict[str, Any] = {"images": [], "annotations": [], "categories": told["categories"]}
    for copy in range(copies):
        for image in told["images"]:
            file = image["file_name"] if data is None else f"{copy}_{image['file_name']}"
            written["images"].append({**image, "id": image["id"] * copies + copy, "file_name": file})
            labels = (folder / "labels" / file).with_suffix(".txt")
            labels.parent.mkdir(parents=True, exist_ok=True)
            labels.touch()
        for one in objects:
            parent = one["image_id"] * copies + copy
            written["annotations"].append({**one, "id": one["id"] * copies + copy, "image_id": parent})
    (folder / "annotations.json").write_text(json.dumps(written))
    for path, boxes in boxes_of(folder).items():
        image_id = next(i["id"] for i in written["images"] if path.endswith("/images/" + i["file_name"])) // copies
        width, height = sizes[image_id]
        lines = [
            f"{numbers[kind]} {(x + w / 2) / width:.6f} {(y + h / 2) / height:.6f} {w / width:.6f} {h / height:.6f}"
            for x, y, w, h, kind in boxes
        ]
        labels = (folder / "labels" / Path(path).relative_to(images)).with_suffix(".txt")
        labels.write_text("\n".join(lines))
    return f"{name} with {len(written['annotations']) / len(written['images']):.0f} boxes each"


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(f"coco80/{name}")
    assert file is not None
    return file.read()


def as_lists(samples: list[Any]) -> tuple[Any, list[Any]]:
    """A batch as torchvision's detection models take it."""
    return torch.stack([image for image, _ in samples]), [target for _, target in samples]


def draw_label_maps(folder: Path, encoded: list[bytes]) -> None:
    """Photographs, and for each a PNG file of regions that follow its brightness."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    for number, data in enumerate(encoded):
        path = folder / "images" / f"{number:04}.jpg"
        path.write_bytes(data)
        with Image.open(path) as image:
            soft = image.convert("L").resize((24, 18)).resize(image.size, Image.Resampling.BICUBIC)
        labels = np.asarray(soft).astype(np.int64) * NUM_CLASSES // 256
        Image.fromarray(labels.astype(np.uint8)).save(folder / "masks" / f"{number:04}.png")


def contest(bench: Bench, name: str, what: str, contenders: dict[str, Callable[[], int]]) -> None:
    """Ours, and what there is of theirs, in turn."""
    above, *others = contenders
    report(bench, name, what, contenders, [(above, below) for below in others])


def report(
    bench: Bench, name: str, what: str, contenders: dict[str, Callable[[], int]], pairs: list[tuple[str, str]]
) -> None:
    """Contenders in turn, and how many times as fast the first one of each pair is as the second."""
    seconds = bench.in_turn(contenders)
    bench.report(
        name,
        what=f"images a second, {what}, batches of {BATCH_SIZE}, {NUM_THREADS} threads or workers",
        seconds=seconds,
        unit="rate",
        ratios={f"{above} over {below}": (below, above) for above, below in pairs},
        goals={f"{above} over {below}": " (goal: at least 3)" for above, below in pairs if above != DECODING},
    )


def run_segmentation(bench: Bench) -> None:
    encoded, origin = bench.photographs()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draw_label_maps(folder, encoded)
        contenders = {"augpipe": ours(open_source(folder), SEGMENTED, BATCH_SIZE)}
        if has("albumentations", "cv2"):
            theirs = Segmented(folder)
            contenders["DataLoader with albumentations"] = peers.data_loader(theirs, BATCH_SIZE, NUM_THREADS)
        contest(bench, "segmentation", f"{origin} with label maps, crops of {CROP}", contenders)


def run_detection(bench: Bench) -> None:
    num = bench.pick(400, 32)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "drawn")
        generate(folder, num=num, targets=True)
        contenders = {"augpipe": ours(open_source(folder), DETECTED, BATCH_SIZE)}
        if has("torchvision"):
            contenders["DataLoader with torchvision"] = peers.data_loader(
                Detected(folder), BATCH_SIZE, NUM_THREADS, as_lists
            )
        contest(bench, "detection", f"{num} drawn pictures with boxes, resized and cropped to {SIDE}", contenders)


def run_mosaic(bench: Bench) -> None:
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        what = write_objects(
            folder, bench.pick(400, 32), bench.data("coco80.tar") if "AUGPIPE_DATA" in os.environ else None
        )
        source = open_source(folder)
        contenders = {
            "augpipe": ours(source, TILED[4], BATCH_SIZE, dtype="uint8"),
            "augpipe, in memory": ours(source, TILED[4], BATCH_SIZE, dtype="uint8", cache="host"),
            "augpipe, nine": ours(source, TILED[9], BATCH_SIZE, dtype="uint8"),
        } | decoding_only(source, TILED[4])
        pairs = []
        if has("albumentations", "cv2"):
            their = "DataLoader with albumentations"
            contenders[their] = peers.data_loader(Tiled(folder), BATCH_SIZE, NUM_THREADS, as_lists)
            pairs.append(("augpipe", their))
        if has("ultralytics"):
            contenders |= {
                "Ultralytics": ultralytics_loader(folder, 4),
                "Ultralytics, nine": ultralytics_loader(folder, 9),
            }
            pairs += [
                ("augpipe", "Ultralytics"),
                ("augpipe, in memory", "Ultralytics"),
                ("augpipe, nine", "Ultralytics, nine"),
                (DECODING, "Ultralytics"),
            ]
        report(
            bench,
            "mosaic",
            f"{what}, mosaics zoomed, moved, cropped to {SIDE}, flipped and coloured",
            contenders,
            pairs,
        )


RUNS = {"segmentation": run_segmentation, "detection": run_detection, "mosaic": run_mosaic}


def main() -> None:
    bench = Bench(__doc__, rounds=5, names=RUNS)
    for name in bench.names:
        RUNS[name](bench)


if __name__ == "__main__":
    main()
