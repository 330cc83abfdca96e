"""Crops of 224 from images of 512 pixels: our loader beside other libraries.

Images at 512 pixels on the short side, quality 90, 4:2:0. Loaders go from files on disk (in the page cache) to float32
batches of 224x224 with the deep_image recipe, on all cores. Ours read a shard, a tar file and a folder; the peers read
the folder. The torch DataLoader decodes with OpenCV, one worker process a core, and its albumentations chain has no
vignette. The plain DALI pipeline decodes the crop alone, turns, mirrors and normalises it: it knows no lens, vignette
or colour cast, what it turns in from outside the crop is black, and its batches are counted where they lie. A peer that
is not installed is left out. What decoding alone takes is `jpeg_regions.py`'s to say.
"""

import io
import os
import tarfile
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import in_turn, photographs, ratio, save, summary
from PIL import Image

from augpipe import Loader, recipes
from augpipe.datasets.shards.encode import encode_jpeg
from augpipe.datasets.shards.manifest import Manifest, Scale
from augpipe.datasets.shards.ustar import sample_key
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.native.workers import num_usable_cores

SHORT_SIDE, CROP, QUALITY = 512, 224, 90
BATCH_SIZE = 256
ROUNDS = 7
SETTLE_S = 1.0
COPIES = 8
"""How often each image is in the source: an epoch's start and end weigh less then."""
NUM_THREADS = num_usable_cores()
PREFETCH = 2
"""Batches that DALI works ahead: its default."""
MAX_DEG = 10.0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, OURS_ONE, OURS_DALI = "augpipe, shard", "augpipe, shard, one thread", "augpipe, shard, dali on the CPU"
OURS_TAR, OURS_FILES = "augpipe, tar", "augpipe, folder"
TORCH, DALI = "torch DataLoader", "plain DALI pipeline"
NEEDED = {
    TORCH: ("torch", "cv2", "albumentations"),
    DALI: ("nvidia.dali",),
    OURS_DALI: ("nvidia.dali",),
}
"""Modules of each contender that may be left out."""


def resized(encoded: list[bytes]) -> list[Image.Image]:
    """RGB at `SHORT_SIDE`; gray images come out as colour, so that all files have the same kind of MCU."""
    images = []
    for data in encoded:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        scale = SHORT_SIDE / min(image.size)
        size = round(image.width * scale), round(image.height * scale)
        images.append(image.resize(size, Image.Resampling.LANCZOS))
    return images


class Files:
    """JPEG files through OpenCV and albumentations, for a torch DataLoader."""

    def __init__(self, paths: list[Path]) -> None:
        import albumentations
        import cv2

        self.paths = paths
        self.chain = albumentations.Compose(
            [
                # nothing is left to be shrunk: the files have this size already
                albumentations.SmallestMaxSize(max_size=SHORT_SIDE, area_for_downscale="image", p=1),
                albumentations.RandomCrop(CROP, CROP, p=1),
                albumentations.RGBShift(20, 20, 20, p=1),
                albumentations.OpticalDistortion(0.26, border_mode=cv2.BORDER_REFLECT, p=1),
                albumentations.Rotate(MAX_DEG, border_mode=cv2.BORDER_REFLECT, p=1),
                albumentations.HorizontalFlip(p=0.5),
                albumentations.Normalize(p=1),
                albumentations.ToTensorV2(p=1),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import cv2

        cv2.setNumThreads(1)
        image = cv2.cvtColor(cv2.imread(str(self.paths[index]), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        return self.chain(image=image)["image"], 0


def torch_loader(paths: list[Path]) -> Callable[[], int]:
    """A contender: an epoch of a torch DataLoader."""
    import torch

    peer = torch.utils.data.DataLoader(
        Files(paths), batch_size=BATCH_SIZE, shuffle=True, num_workers=NUM_THREADS, persistent_workers=True
    )
    return lambda: sum(len(labels) for _, labels in peer)


def dali_pipeline(paths: list[Path]) -> Callable[[], int]:
    """A contender: an epoch by DALI's own reader and operators."""
    from nvidia.dali import Pipeline, fn, types

    running = Pipeline(BATCH_SIZE, NUM_THREADS, device_id=None, prefetch_queue_depth=PREFETCH, seed=1)
    with running:
        encoded, _ = fn.readers.file(files=[str(path) for path in paths], random_shuffle=True, initial_fill=len(paths))
        place = {f"crop_pos_{axis}": fn.random.uniform(range=(0.0, 1.0)) for axis in "xy"}
        images = fn.decoders.image_crop(encoded, crop=(CROP, CROP), **place)
        angle = fn.random.uniform(range=(-MAX_DEG, MAX_DEG))
        images = fn.rotate(images, angle=angle, keep_size=True, fill_value=0)
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(),
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255.0 * value for value in MEAN],
            std=[255.0 * value for value in STD],
        )
        running.set_outputs(images)
    running.build()

    def epoch() -> int:
        num = 0
        while num + BATCH_SIZE <= len(paths):
            (batch,) = running.run()
            num += len(batch)
        return num

    return epoch


def our_loader(source: Path, backend: str, num_threads: int = NUM_THREADS) -> Callable[[], int]:
    """A contender: an epoch of our loader over a data set."""
    made = Loader(
        source,
        recipes.deep_image(CROP, (SHORT_SIDE,)),
        batch_size=BATCH_SIZE,
        num_threads=num_threads,
        backend=backend,  # type: ignore[arg-type]
    )
    return lambda: sum(len(batch) for batch in made)


def written(folder: Path, contents: list[bytes]) -> list[Path]:
    """Files of `contents`, each as often as `COPIES` says."""
    folder.mkdir()
    paths = [folder / f"{number:05}.jpg" for number in range(COPIES * len(contents))]
    for path, data in zip(paths, contents * COPIES, strict=True):
        path.write_bytes(data)
    return paths


def tar_of(path: Path, contents: list[bytes]) -> Path:
    """A WebDataset tar file of `contents`, each as often as `COPIES` says."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for number, data in enumerate(contents * COPIES):
            for name, content in ((f"{number:05}.jpg", data), (f"{number:05}.cls", b"0")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))
    return path


def shards_of(folder: Path, contents: list[bytes]) -> Path:
    """A data set of one shard with `contents`, each as often as `COPIES` says."""
    scale = folder / str(SHORT_SIDE)
    scale.mkdir(parents=True)
    with ShardWriter(scale / "000000.tar") as writer:
        for number, data in enumerate(contents * COPIES):
            header = probe(data, max_pixels=MAX_PIXELS)
            name = f"{number:05}.jpg"
            note = {"name": name, "height": header.height, "width": header.width}
            writer.add(sample_key(number, name), data, 0, note)
        info = writer.close()
    num = info.num_samples
    scales = (Scale(name=str(SHORT_SIDE), shards=(info,)),)
    Manifest(num_samples=num, scales=scales, classes=("photograph",), class_counts=(num,)).save(folder)
    return folder


def lacks(name: str) -> str:
    """The first module that a contender needs and that is not installed; empty where there is none."""
    for module in NEEDED.get(name, ()):
        if find_spec(module.split(".")[0]) is None or find_spec(module) is None:
            return module
    return ""


def main() -> None:
    encoded, origin = photographs()
    contents = [encode_jpeg(image, QUALITY) for image in resized(encoded)]
    with tempfile.TemporaryDirectory() as folder:
        paths = written(Path(folder) / "files", contents)
        tar, shards = tar_of(Path(folder) / "files.tar", contents), shards_of(Path(folder) / "shards", contents)
        makers: dict[str, Callable[[], Callable[[], int]]] = {
            OURS: lambda: our_loader(shards, "native"),
            OURS_ONE: lambda: our_loader(shards, "native", 1),
            OURS_TAR: lambda: our_loader(tar, "native"),
            OURS_FILES: lambda: our_loader(paths[0].parent, "native"),
            OURS_DALI: lambda: our_loader(shards, "dali"),
            TORCH: lambda: torch_loader(paths),
            DALI: lambda: dali_pipeline(paths),
        }
        left_out = {name: f"{lacks(name)} is not installed" for name in makers if lacks(name)}
        for name, reason in left_out.items():
            print(f"left out: {name}, for {reason}")
        loaders = {name: make() for name, make in makers.items() if name not in left_out}
        seconds = in_turn(loaders, ROUNDS, settle_s=SETTLE_S)
    goals = {TORCH: 8.0, DALI: 2.5}
    rates = {name: {k: round(1e6 / v, 1) for k, v in row.items()} for name, row in summary(seconds, 1e6).items()}
    save(
        "crop_only",
        {
            "what": f"{origin} at {SHORT_SIDE} pixels on the short side, quality {QUALITY}; crops of {CROP}x{CROP}; "
            f"{COPIES} copies of each, batches of {BATCH_SIZE}, {NUM_THREADS} threads or processes, or one",
            "left_out": left_out,
            "images_per_second": {
                name: {"slowest": row["max"], "median": row["median"], "fastest": row["min"]}
                for name, row in rates.items()
            },
            "ratios": {
                f"{OURS} over {name} (goal: at least {goal:g})": round(ratio(seconds, name, OURS), 3)
                for name, goal in goals.items()
                if name in loaders
            }
            | {
                f"{OURS} over {name}": round(ratio(seconds, name, OURS), 3)
                for name in (OURS_ONE, OURS_TAR, OURS_FILES, OURS_DALI)
                if name in loaders
            },
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
