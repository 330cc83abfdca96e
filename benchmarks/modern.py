"""Two recipes from JPEG files to float32 batches, beside DALI's CPU pipeline and torch DataLoaders with torchvision.

A random resized crop with a flip, in a first epoch with opening the folder and with row indexes; and what people train
with today: TrivialAugment, colour jitter, erasing and MixUp behind it. Two threads, or two workers. torchvision is
looked for and not installed with the other peers: its wheels go with one build of torch each.
"""

import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import in_turn, photographs, ratio, save, summary
from dali_loader import MEAN, STD, pipeline
from nvidia.dali import fn, types
from PIL import Image

from augpipe import Loader, Recipe, ops, policies

SIZE, BATCH_SIZE, ROUNDS, COPIES, NUM_THREADS = 224, 128, 3, 4, 2
CROP = (ops.RandomResizedCrop(size=SIZE), ops.Flip())
PLAIN = Recipe(ops=(*CROP, ops.Normalize()))
JITTER = ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
MODERN = Recipe(
    ops=(*CROP, *policies.trivial_augment_wide(), JITTER, ops.Erase(), ops.Normalize()),
    mixing=(ops.MixUp(alpha=0.2, p=0.5),),
)
FIRST, INDEXED, TODAY = "augpipe, first epoch", "augpipe, row indexes", "augpipe, modern, row indexes"
DALI, VISION, VISION_TODAY = "DALI, image_random_crop", "torchvision", "torchvision, modern"


def dali(encoded: Any) -> Any:
    """A random resized crop and a flip by DALI's own operators, which decode the crop alone."""
    images = fn.decoders.image_random_crop(encoded, random_area=(0.08, 1.0), random_aspect_ratio=(0.75, 4.0 / 3.0))
    images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, antialias=True)
    levels = {"mean": [255.0 * value for value in MEAN], "std": [255.0 * value for value in STD]}
    mirror = fn.random.coin_flip()
    return fn.crop_mirror_normalize(images, mirror=mirror, dtype=types.FLOAT, output_layout="CHW", **levels)


class Files(torch.utils.data.Dataset):
    """JPEG files through Pillow, as torchvision's ImageFolder reads them, and a chain of its transforms."""

    def __init__(self, paths: list[Path], *more: Any) -> None:
        from torchvision.transforms import v2

        before = [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(), *more[:-1]]
        after = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), *more[-1:]]
        self.paths, self.chain = [str(path) for path in paths], v2.Compose([*before, *after])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from torchvision.transforms.v2 import functional

        with Image.open(self.paths[index]) as image:
            return self.chain(functional.pil_to_tensor(image.convert("RGB"))), index % 10


def torchvision_epochs(paths: list[Path]) -> dict[str, Callable[[], int]]:
    """Contenders: epochs of DataLoaders whose workers live on."""
    from torchvision.transforms import v2

    mix = v2.RandomApply([v2.MixUp(alpha=0.2, num_classes=10)], p=0.5)
    jitter = v2.ColorJitter(JITTER.brightness, JITTER.contrast, JITTER.saturation, JITTER.hue)
    chains = {VISION: (), VISION_TODAY: (v2.TrivialAugmentWide(), jitter, v2.RandomErasing(0.25, value="random"))}
    options = {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": NUM_THREADS, "persistent_workers": True}
    plain = torch.utils.data.DataLoader(Files(paths), **options)

    def mixed(batch: Any) -> Any:
        return mix(*torch.utils.data.default_collate(batch))

    modern = torch.utils.data.DataLoader(Files(paths, *chains[VISION_TODAY]), collate_fn=mixed, **options)
    return {
        name: lambda loader=loader: sum(len(images) for images, _ in loader)
        for name, loader in ((VISION, plain), (VISION_TODAY, modern))
    }


def loader(folder: str, recipe: Recipe, *, is_new: bool) -> Callable[[], int]:
    """A contender: an epoch of our loader, of a new one each time or always of the same."""

    def make() -> Loader:
        return Loader(folder, recipe, batch_size=BATCH_SIZE, num_threads=NUM_THREADS, backend="native")

    kept = make()
    return lambda: sum(len(batch) for batch in (make() if is_new else kept))


def main() -> None:
    encoded, origin = photographs()
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, data in enumerate(encoded * COPIES):
            paths.append(Path(folder) / f"{number:05}.jpg")
            paths[-1].write_bytes(data)
        has_torchvision = importlib.util.find_spec("torchvision") is not None
        contenders = {
            FIRST: loader(folder, PLAIN, is_new=True),
            INDEXED: loader(folder, PLAIN, is_new=False),
            TODAY: loader(folder, MODERN, is_new=False),
            DALI: pipeline(paths, dali),
            **(torchvision_epochs(paths) if has_torchvision else {}),
        }
        seconds = in_turn(contenders, ROUNDS)
    pairs = [(FIRST, DALI), (INDEXED, DALI), (TODAY, INDEXED)]
    pairs += [(FIRST, VISION), (INDEXED, VISION), (TODAY, VISION_TODAY)] if has_torchvision else []
    save(
        "modern",
        {
            "what": f"{COPIES}x {origin}, batches of {BATCH_SIZE}, {NUM_THREADS} threads or workers",
            "milliseconds_an_image": summary(seconds),
            "rate over the other's": {
                f"{ours} over {peer}": round(ratio(seconds, peer, ours), 3) for ours, peer in pairs
            },
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
