"""Crops of 224 from images of 512 pixels: from tiles alone, beside whole decodes and what other libraries do.

Images at 512 pixels on the short side, quality 90, 4:2:0, once as plain JPEGs and once as tile-addressable ones of
the same pixels. One thread decodes a crop and the whole. Then loaders go from files on disk (in the page cache) to
float32 batches of 224x224 with the deep_image recipe, on all cores. Ours read tile-addressable images from a shard
and plain ones from a tar file, and both from folders of files, too; the peers read the folder of plain ones. The torch
DataLoader decodes with OpenCV, one worker process a core, and its albumentations chain has no vignette. The plain DALI
pipeline decodes the crop alone, turns, mirrors and normalises it: it knows no lens, vignette or colour cast, what it
turns in from outside the crop is black, and its batches are counted where they lie. A peer that is not installed is
left out.
"""

import io
import os
import random
import statistics
import tarfile
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import in_turn, photographs, ratio, save, summary
from tiles import CROP, QUALITY, SHORT_SIDE, plain_jpeg, resized, tiles_of

from augpipe import Loader, recipes
from augpipe.datasets.shards.encode import encode_tiled
from augpipe.datasets.shards.manifest import Manifest, Scale
from augpipe.datasets.shards.ustar import sample_key
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.decoding.jpeg import decode_stored

BATCH_SIZE = 256
ROUNDS = 7
SETTLE_S = 1.0
COPIES = 8
"""How often each image is in the source: an epoch's start and end weigh less then."""
NUM_THREADS = len(os.sched_getaffinity(0))
PREFETCH = 2
"""Batches that DALI works ahead: its default."""
MAX_DEG = 10.0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHOLE, WHOLE_TILED, TILES = "whole, plain file", "whole, tiled file", "tiles of the crop"
OURS, OURS_DALI = "augpipe, shard", "augpipe, shard, dali on the CPU"
UNMARKED, UNMARKED_DALI = "augpipe, tar of plain JPEGs", "augpipe, tar of plain JPEGs, dali on the CPU"
OURS_ONE, UNMARKED_ONE = "augpipe, shard, one thread", "augpipe, tar of plain JPEGs, one thread"
OURS_FILES, UNMARKED_FILES = "augpipe, folder of tiled JPEGs", "augpipe, folder of plain JPEGs"
TORCH, DALI = "torch DataLoader", "plain DALI pipeline"
NEEDED = {
    TORCH: ("torch", "cv2", "albumentations"),
    DALI: ("nvidia.dali",),
    OURS_DALI: ("nvidia.dali",),
    UNMARKED_DALI: ("nvidia.dali",),
}
"""Modules of each contender that may be left out."""


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


def decoders(plain: list[bytes], tiled: list[bytes]) -> tuple[dict[str, Callable[[], int]], float]:
    """Contenders that decode one image after the other, and the mean share of pixels that a crop's tiles are."""
    headers = [[probe(data, max_pixels=MAX_PIXELS) for data in files] for files in (plain, tiled)]
    tiles = [tiles_of(data) for data in tiled]
    rng = random.Random(0)
    crops = []
    for one in tiles:
        left, top = rng.randint(0, one.width - CROP), rng.randint(0, one.height - CROP)
        crops.append((left, top, left + CROP, top + CROP))

    def whole(files: list[bytes], of: int) -> Callable[[], int]:
        def contender() -> int:
            for data, header in zip(files, headers[of], strict=True):
                decode(data, header)
            return len(files)

        return contender

    def crop_only() -> int:
        for data, one, crop in zip(tiled, tiles, crops, strict=True):
            cut = one.extract(data, *crop)
            decode_stored(cut.jpeg, cut.height, cut.width, 1, None)
        return len(tiled)

    regions = [one.region(*crop) for one, crop in zip(tiles, crops, strict=True)]
    share = statistics.mean(
        (region.right - region.left) * (region.bottom - region.top) / (one.width * one.height)
        for region, one in zip(regions, tiles, strict=True)
    )
    return {WHOLE: whole(plain, 0), WHOLE_TILED: whole(tiled, 1), TILES: crop_only}, share


def lacks(name: str) -> str:
    """The first module that a contender needs and that is not installed; empty where there is none."""
    for module in NEEDED.get(name, ()):
        if find_spec(module.split(".")[0]) is None or find_spec(module) is None:
            return module
    return ""


def main() -> None:
    encoded, origin = photographs()
    images = resized(encoded)
    plain, tiled = [plain_jpeg(image) for image in images], [encode_tiled(image, QUALITY) for image in images]
    del images
    decoding, share = decoders(plain, tiled)
    with tempfile.TemporaryDirectory() as folder:
        plain_paths, tiled_paths = (written(Path(folder) / name, of) for name, of in (("p", plain), ("t", tiled)))
        tar, shards = tar_of(Path(folder) / "plain.tar", plain), shards_of(Path(folder) / "shards", tiled)
        makers: dict[str, Callable[[], Callable[[], int]]] = {
            OURS: lambda: our_loader(shards, "native"),
            UNMARKED: lambda: our_loader(tar, "native"),
            OURS_ONE: lambda: our_loader(shards, "native", 1),
            UNMARKED_ONE: lambda: our_loader(tar, "native", 1),
            OURS_FILES: lambda: our_loader(tiled_paths[0].parent, "native"),
            UNMARKED_FILES: lambda: our_loader(plain_paths[0].parent, "native"),
            OURS_DALI: lambda: our_loader(shards, "dali"),
            UNMARKED_DALI: lambda: our_loader(tar, "dali"),
            TORCH: lambda: torch_loader(plain_paths),
            DALI: lambda: dali_pipeline(plain_paths),
        }
        left_out = {name: f"{lacks(name)} is not installed" for name in makers if lacks(name)}
        for name, reason in left_out.items():
            print(f"left out: {name}, for {reason}")
        loaders = {name: make() for name, make in makers.items() if name not in left_out}
        decode_seconds = in_turn(decoding, ROUNDS)
        seconds = in_turn(loaders, ROUNDS, settle_s=SETTLE_S)
    goals = {UNMARKED: 2.0, TORCH: 3.0, DALI: 2.5}
    rates = {name: {k: round(1e6 / v, 1) for k, v in row.items()} for name, row in summary(seconds, 1e6).items()}
    save(
        "crop_only",
        {
            "what": f"{origin} at {SHORT_SIDE} pixels on the short side, quality {QUALITY}; crops of {CROP}x{CROP}; "
            f"loaders: {COPIES} copies of each, batches of {BATCH_SIZE}, {NUM_THREADS} threads or processes, or one",
            "left_out": left_out,
            "decoding, milliseconds a photograph, one thread": summary(decode_seconds),
            "pixels decoded for a crop over the photograph's": round(share, 3),
            "images_per_second": {
                name: {"slowest": row["max"], "median": row["median"], "fastest": row["min"]}
                for name, row in rates.items()
            },
            "ratios": {
                f"{TILES} over {WHOLE} (goal: at least 3)": round(ratio(decode_seconds, WHOLE, TILES), 3),
                f"{TILES} over {WHOLE_TILED}": round(ratio(decode_seconds, WHOLE_TILED, TILES), 3),
            }
            | {
                f"{OURS} over {name} (goal: at least {goal:g})": round(ratio(seconds, name, OURS), 3)
                for name, goal in goals.items()
                if name in loaders
            }
            | {
                f"{ours} over {other}": round(ratio(seconds, other, ours), 3)
                for ours, other in (
                    (OURS_ONE, UNMARKED_ONE),
                    (OURS_FILES, UNMARKED_FILES),
                    (OURS, UNMARKED_FILES),
                    (OURS_DALI, UNMARKED_DALI),
                    (OURS_DALI, DALI),
                )
                if ours in loaders and other in loaders
            }
            | {
                "bytes of tiled files over plain ones (goal: at most 1.03)": round(
                    sum(map(len, tiled)) / sum(map(len, plain)), 4
                ),
            },
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
