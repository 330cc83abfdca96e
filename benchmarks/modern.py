"""Three recipes from JPEG files to float32 batches, beside DALI's CPU pipeline, torchvision and timm in DataLoaders.

A random resized crop with a flip, in a first epoch with opening the folder and with row indexes; what people train with
today, TrivialAugment, colour jitter, erasing and MixUp behind it; and timm's usual RandAugment, erasing and MixUp. Two
threads, or two workers. torchvision and timm are looked for and not installed with the other peers: their wheels go
with one build of torch each. torchvision decodes by its own `decode_image` where that loads, else Pillow does.

    python benchmarks/modern.py
    python benchmarks/modern.py --rounds 1 --copies 1 --no-save     # a trial
"""

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import in_turn, photographs, ratio, save, summary, touch_memory
from dali_loader import MEAN, STD, pipeline
from nvidia.dali import fn, types
from PIL import Image

from augpipe import Loader, Recipe, importers, ops, policies

SIZE, BATCH_SIZE, ROUNDS, COPIES, NUM_THREADS = 224, 128, 3, 4, 2
SETTLE_S, TOUCHED_BYTES = 2.0, 2**30
CROP = (ops.RandomResizedCrop(size=SIZE), ops.Flip())
PLAIN = Recipe(ops=(*CROP, ops.Normalize()))
JITTER = ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
MIXING, NUM_CLASSES = (ops.MixUp(alpha=0.2, p=0.5),), 10
MODERN = Recipe(
    ops=(*CROP, *policies.trivial_augment_wide(), JITTER, ops.Erase(), ops.Normalize()),
    mixing=MIXING,
)
TIMM_ARGUMENTS: dict[str, Any] = {
    "input_size": SIZE,
    "is_training": True,
    "auto_augment": "rand-m9-mmax9-mstd0.5-inc1",  # at level 10 timm posterises to 0 bits, which Pillow 13 refuses
    "color_jitter": 0.4,  # which timm leaves out where there is a policy
    "re_prob": 0.25,
    "re_mode": "pixel",
}
FIRST, INDEXED, TODAY = "augpipe, first epoch", "augpipe, row indexes", "augpipe, modern, row indexes"
DALI, VISION, VISION_TODAY = "DALI, image_random_crop", "torchvision", "torchvision, modern"
LIKE_TIMM, TIMM = "augpipe, timm's recipe, row indexes", "timm"
NO_DECODER = "Pillow"

Contenders = dict[str, Callable[[], int]]


def dali(encoded: Any) -> Any:
    """A random resized crop and a flip by DALI's own operators, which decode the crop alone."""
    images = fn.decoders.image_random_crop(encoded, random_area=(0.08, 1.0), random_aspect_ratio=(0.75, 4.0 / 3.0))
    images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, antialias=True)
    levels = {"mean": [255.0 * value for value in MEAN], "std": [255.0 * value for value in STD]}
    mirror = fn.random.coin_flip()
    return fn.crop_mirror_normalize(images, mirror=mirror, dtype=types.FLOAT, output_layout="CHW", **levels)


def vision_decoder(path: Path) -> str:
    """torchvision's `decode_image` where its library loads and reads a file, else Pillow."""
    try:
        from torchvision.io import ImageReadMode, decode_image, read_file

        decode_image(read_file(str(path)), ImageReadMode.RGB)
    except (ImportError, RuntimeError, AttributeError):  # AttributeError: torch.ops.image, without the library
        return NO_DECODER
    return "torchvision.io.decode_image"


class Files(torch.utils.data.Dataset):
    """JPEG files through a decoder and a chain of transforms; ten classes."""

    def __init__(self, paths: list[Path], decode: Callable[[str], Any], chain: Callable[[Any], torch.Tensor]) -> None:
        self.paths, self.decode, self.chain = [str(path) for path in paths], decode, chain

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.chain(self.decode(self.paths[index])), index % NUM_CLASSES


def by_pillow(path: str) -> Image.Image:
    """As timm's and torchvision's datasets read a file."""
    with Image.open(path) as image:
        return image.convert("RGB")


def by_pillow_as_tensor(path: str) -> torch.Tensor:
    """The same as uint8 (3, H, W)."""
    from torchvision.transforms.v2 import functional

    return functional.pil_to_tensor(by_pillow(path))


def by_torchvision(path: str) -> torch.Tensor:
    """uint8 (3, H, W) by torchvision's own decoder."""
    from torchvision.io import ImageReadMode, decode_image, read_file

    return decode_image(read_file(path), ImageReadMode.RGB)


def data_loader(files: Files, collate: Callable[[Any], Any] | None = None) -> Callable[[], int]:
    """A contender: epochs of a DataLoader whose workers live on."""
    made = torch.utils.data.DataLoader(
        files,
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=NUM_THREADS,
        persistent_workers=True,
        collate_fn=collate,
    )
    return lambda: sum(len(images) for images, _ in made)


def torchvision_epochs(paths: list[Path], decoder: str) -> Contenders:
    """torchvision's transforms of version 2, on tensors."""
    from torchvision.transforms import v2

    before = [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]
    after = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    jitter = v2.ColorJitter(JITTER.brightness, JITTER.contrast, JITTER.saturation, JITTER.hue)
    plain = v2.Compose([*before, *after])
    modern = v2.Compose([*before, v2.TrivialAugmentWide(), jitter, *after, v2.RandomErasing(0.25, value="random")])
    mix = v2.RandomApply([v2.MixUp(alpha=0.2, num_classes=NUM_CLASSES)], p=0.5)

    def mixed(batch: Any) -> Any:
        return mix(*torch.utils.data.default_collate(batch))

    decode = by_pillow_as_tensor if decoder == NO_DECODER else by_torchvision
    return {
        VISION: data_loader(Files(paths, decode, plain)),
        VISION_TODAY: data_loader(Files(paths, decode, modern), mixed),
    }


def timm_epochs(paths: list[Path]) -> Contenders:
    """timm's `create_transform`, on Pillow's images, and its Mixup, in the workers."""
    from timm.data import Mixup, create_transform

    mix = Mixup(mixup_alpha=0.2, prob=0.5, label_smoothing=0.0, num_classes=NUM_CLASSES)

    def mixed(batch: Any) -> Any:
        return mix(*torch.utils.data.default_collate(batch))

    return {TIMM: data_loader(Files(paths, by_pillow, create_transform(**TIMM_ARGUMENTS)), mixed)}


def like_timm() -> Recipe:
    """timm's chain as a recipe of ours."""
    imported = importers.from_timm(**TIMM_ARGUMENTS).recipe
    return Recipe(border=imported.border, fill=imported.fill, ops=imported.ops, mixing=MIXING)


def loader(folder: str, recipe: Recipe, *, is_new: bool) -> Callable[[], int]:
    """A contender: an epoch of our loader, of a new one each time or always of the same."""

    def make() -> Loader:
        return Loader(folder, recipe, batch_size=BATCH_SIZE, num_threads=NUM_THREADS, backend="native")

    kept = make()
    return lambda: sum(len(batch) for batch in (make() if is_new else kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--copies", type=int, default=COPIES, help="how often each image is in an epoch")
    parser.add_argument("--no-save", action="store_true", help="print and keep nothing: for a trial")
    chosen = parser.parse_args()
    encoded, origin = photographs()
    has_torchvision, has_timm = (importlib.util.find_spec(name) is not None for name in ("torchvision", "timm"))
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, data in enumerate(encoded * chosen.copies):
            paths.append(Path(folder) / f"{number:05}.jpg")
            paths[-1].write_bytes(data)
        decoder = vision_decoder(paths[0]) if has_torchvision else ""
        contenders: Contenders = {
            FIRST: loader(folder, PLAIN, is_new=True),
            INDEXED: loader(folder, PLAIN, is_new=False),
            TODAY: loader(folder, MODERN, is_new=False),
            LIKE_TIMM: loader(folder, like_timm(), is_new=False),
            DALI: pipeline(paths, dali),
            **(torchvision_epochs(paths, decoder) if has_torchvision else {}),
            **(timm_epochs(paths) if has_timm else {}),
        }
        seconds = in_turn(contenders, chosen.rounds, settle_s=SETTLE_S, before=lambda: touch_memory(TOUCHED_BYTES))
    pairs = [(FIRST, DALI), (INDEXED, DALI), (TODAY, INDEXED), (LIKE_TIMM, INDEXED), (FIRST, INDEXED)]
    pairs += [(FIRST, VISION), (INDEXED, VISION), (TODAY, VISION_TODAY)] if has_torchvision else []
    pairs += [(LIKE_TIMM, TIMM)] if has_timm else []
    result = {
        "what": f"{chosen.copies}x {origin}, batches of {BATCH_SIZE}, {NUM_THREADS} threads or workers",
        "torchvision's decoder": decoder or "torchvision is not installed",
        "milliseconds_an_image": summary(seconds),
        "rate over the other's": {f"{ours} over {peer}": round(ratio(seconds, peer, ours), 3) for ours, peer in pairs},
        "load_average": os.getloadavg()[0],
    }
    if chosen.no_save:
        print(result)
    else:
        save("modern", result)


if __name__ == "__main__":
    main()
