"""Loaders of masks and boxes next to a torch DataLoader, from files on disk (in the page cache) to float32 batches.

    python -m benchmarks.pipeline.targets                 # both of:
    python -m benchmarks.pipeline.targets segmentation    # a label map an image: next to OpenCV and albumentations
    python -m benchmarks.pipeline.targets detection       # boxes: next to torchvision's transforms of version 2

Label maps are drawn for photographs, PNG files of 21 classes; pictures with boxes are those of `augpipe sample
--targets`. A DataLoader runs one worker process a core. A peer that is not installed is left out.
"""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

from augpipe import Recipe
from augpipe.datasets.open import open_source
from augpipe.datasets.synthetic.generate import generate
from augpipe.ops import ColorJitter, Flip, Normalize, RandomCrop, RandomResize, RandomResizedCrop
from benchmarks.harness import Bench
from benchmarks.pipeline import peers
from benchmarks.pipeline.loader import NUM_THREADS, has, ours

CROP, SIDE, NUM_CLASSES, BATCH_SIZE = 512, 640, 21, 16
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
SEGMENTED = Recipe(ops=(RandomResizedCrop(size=CROP), Flip(), ColorJitter(**JITTER), Normalize()))
RESIZED = RandomResize(factor=(0.5, 1.5), within=SIDE)
DETECTED = Recipe(border="constant", ops=(RESIZED, RandomCrop(size=SIDE, pad_if_needed=True), Flip(), Normalize()))


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
    seconds = bench.in_turn(contenders)
    above, *others = contenders
    bench.report(
        name,
        what=f"images a second, {what}, batches of {BATCH_SIZE}, {NUM_THREADS} threads or workers",
        seconds=seconds,
        unit="rate",
        ratios={f"{above} over {below}": (below, above) for below in others},
        goals={f"{above} over {below}": " (goal: at least 3)" for below in others},
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


RUNS = {"segmentation": run_segmentation, "detection": run_detection}


def main() -> None:
    bench = Bench(__doc__, rounds=5, names=RUNS)
    for name in bench.names:
        RUNS[name](bench)


if __name__ == "__main__":
    main()
