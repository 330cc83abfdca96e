"""The whole loader beside libjpeg-turbo's decoding alone and a torch DataLoader with OpenCV and albumentations.

From JPEG files on disk (in the page cache) to 224x224 float32 batches, the deep_image recipe, all cores. The DataLoader
runs one worker process a core; its chain shrinks by averaging, as ours does, but has no vignette. A first epoch is that
of a loader made for it; row indexes are those of `augpipe index`, as with the loader that has no other name.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import albumentations
import cv2
import numpy as np
import simplejpeg
import torch
from common import in_turn, photographs, ratio, save, summary

from augpipe import Loader, Recipe, recipes
from augpipe.datasets.prepare.index_folder import index_folder
from augpipe.native.workers import num_usable_cores
from augpipe.ops import Flip, Normalize, RandomResizedCrop

SIZE = 224
BATCH_SIZE = 256
ROUNDS = 5
COPIES = 4
"""How often each image is in the source: an epoch's start and end weigh less then."""
MORE_COPIES = 5
"""How often these are in a first epoch, in which the batches' memory is new, too."""


class Files(torch.utils.data.Dataset):
    """JPEG files through OpenCV and albumentations, as many people's training loops have it."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.chain = albumentations.Compose(
            [
                albumentations.SmallestMaxSize(max_size=[256, 512], area_for_downscale="image", p=1),
                albumentations.RandomCrop(SIZE, SIZE, p=1),
                albumentations.RGBShift(20, 20, 20, p=1),
                albumentations.OpticalDistortion(0.26, border_mode=cv2.BORDER_REFLECT, p=1),
                albumentations.Rotate(10, border_mode=cv2.BORDER_REFLECT, p=1),
                albumentations.HorizontalFlip(p=0.5),
                albumentations.Normalize(p=1),
                albumentations.ToTensorV2(p=1),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        cv2.setNumThreads(1)
        image = cv2.cvtColor(cv2.imread(str(self.paths[index]), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        return self.chain(image=image)["image"], 0


def main() -> None:
    encoded, origin = photographs()
    threads = num_usable_cores()
    with tempfile.TemporaryDirectory() as temporary:
        folder, indexed, many = f"{temporary}/plain", f"{temporary}/indexed", f"{temporary}/many"
        os.mkdir(folder)
        paths = []
        for number, data in enumerate(encoded * COPIES):
            paths.append(Path(folder) / f"{number:05}.jpg")
            paths[-1].write_bytes(data)

        pool = ThreadPoolExecutor(threads)

        memory = threading.local()

        def decode_one(path: Path) -> None:
            """Into memory that is used again."""
            data = path.read_bytes()
            height, width, *_ = simplejpeg.decode_jpeg_header(data)
            if getattr(memory, "out", np.empty(0)).size < height * width * 4:
                memory.out = np.empty(height * width * 4, np.uint8)
            simplejpeg.decode_jpeg(data, "RGBX", fastdct=False, fastupsample=False, buffer=memory.out)

        def decode_only() -> int:
            list(pool.map(decode_one, paths))
            return len(paths)

        shutil.copytree(folder, indexed)
        for copy in range(MORE_COPIES):
            shutil.copytree(folder, f"{many}/{copy}", copy_function=os.link)
        index_folder(indexed)
        paper = recipes.deep_image(SIZE)
        crops = Recipe(ops=(RandomResizedCrop(size=SIZE), Flip(), Normalize()))

        def first_epoch(recipe: Recipe, batch_size: int) -> Callable[[], int]:
            return lambda: sum(map(len, Loader(many, recipe, batch_size=batch_size, num_threads=threads)))

        def by_index(recipe: Recipe, batch_size: int, num_threads: int = threads) -> Callable[[], int]:
            loader = Loader(indexed, recipe, batch_size=batch_size, num_threads=num_threads)
            return lambda: sum(map(len, loader))

        peer_loader = torch.utils.data.DataLoader(
            Files(paths), batch_size=BATCH_SIZE, shuffle=True, num_workers=threads, persistent_workers=True
        )

        def peer() -> int:
            return sum(len(labels) for _, labels in peer_loader)

        contenders = {
            "decode only": decode_only,
            "augpipe.Loader": by_index(paper, BATCH_SIZE),
            "augpipe.Loader, batches of 64": first_epoch(paper, 64),
            "augpipe.Loader, batches of 64, row indexes": by_index(paper, 64),
            "augpipe.Loader, RandomResizedCrop, batches of 64": first_epoch(crops, 64),
            "augpipe.Loader, RandomResizedCrop, batches of 64, row indexes": by_index(crops, 64),
            "augpipe.Loader, RandomResizedCrop, batches of 64, row indexes, one thread": by_index(crops, 64, 1),
            "torch DataLoader": peer,
        }
        seconds = in_turn(contenders, ROUNDS)
    indexes = "augpipe.Loader, RandomResizedCrop, batches of 64, row indexes"
    rates = {name: {k: round(1e6 / v, 1) for k, v in row.items()} for name, row in summary(seconds, 1e6).items()}
    save(
        "loader",
        {
            "what": f"photographs a second, {COPIES}x {origin}, batches of {BATCH_SIZE}, {threads} threads",
            "images_per_second": {
                name: {"slowest": row["max"], "median": row["median"], "fastest": row["min"]}
                for name, row in rates.items()
            },
            "over libjpeg-turbo's decode only": {
                name: round(ratio(seconds, "decode only", name), 3) for name in contenders if name.startswith("augpipe")
            },
            "ratios": {
                "loader over torch DataLoader": round(ratio(seconds, "torch DataLoader", "augpipe.Loader"), 3),
                "two threads over one": round(ratio(seconds, f"{indexes}, one thread", indexes), 3),
            },
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
