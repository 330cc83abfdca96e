"""Other people's loaders, from JPEG files to float32 batches: DALI's CPU pipeline, and torch DataLoaders.

Each is a contender that goes through an epoch and returns how many images that was. torchvision and timm are looked for
and not installed with the other peers: their wheels go with one build of torch each.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from augpipe import ops

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEVELS = {"mean": [255.0 * value for value in MEAN], "std": [255.0 * value for value in STD]}
MAX_DEG = 10.0
NUM_CLASSES = 10
JITTER = ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
TIMM_ARGUMENTS: dict[str, Any] = {
    "input_size": 224,
    "is_training": True,
    "auto_augment": "rand-m9-mmax9-mstd0.5-inc1",  # at level 10 timm posterises to 0 bits, which Pillow 13 refuses
    "color_jitter": 0.4,  # which timm leaves out where there is a policy
    "re_prob": 0.25,
    "re_mode": "pixel",
}
Contender = Callable[[], int]


def dali(paths: Sequence[Path], batch_size: int, num_threads: int, work: Callable[[Any], Any]) -> Contender:
    """DALI's reader and `work`, two batches ahead, its default; batches are counted where they lie."""
    from nvidia.dali import Pipeline, fn

    running = Pipeline(batch_size, num_threads, device_id=None, prefetch_queue_depth=2, seed=1)
    with running:
        files = [str(path) for path in paths]
        encoded, _ = fn.readers.file(files=files, random_shuffle=True, initial_fill=len(files), name="files")
        running.set_outputs(work(encoded))
    running.build()

    def epoch() -> int:
        num = 0
        while num + batch_size <= max(len(paths), batch_size):
            (images,) = running.run()
            num += len(images)
        return num

    return epoch


def dali_decode(encoded: Any) -> Any:
    """Whole images, decoded."""
    from nvidia.dali import fn

    return fn.decoders.image(encoded)


def dali_crops(areas: tuple[float, float], ratios: tuple[float, float], *, turns: bool) -> Callable[[Any], Any]:
    """Random crops, which alone are decoded, at 224 pixels, turned perhaps, mirrored and normalised."""
    from nvidia.dali import fn

    def work(encoded: Any) -> Any:
        images = fn.decoders.image_random_crop(encoded, random_area=areas, random_aspect_ratio=ratios)
        return _finish(fn.resize(images, resize_x=224, resize_y=224, antialias=True), turns=turns)

    return work


def _finish(images: Any, *, turns: bool) -> Any:
    """What is turned in from outside is black; DALI knows no lens, vignette or colour cast."""
    from nvidia.dali import fn, types

    if turns:
        images = fn.rotate(images, angle=fn.random.uniform(range=(-MAX_DEG, MAX_DEG)), keep_size=True, fill_value=0)
    mirror = fn.random.coin_flip()
    return fn.crop_mirror_normalize(images, mirror=mirror, dtype=types.FLOAT, output_layout="CHW", **LEVELS)


class Files(torch.utils.data.Dataset[Any]):
    """JPEG files through a decoder and a chain of transforms; ten classes."""

    def __init__(self, paths: Sequence[Path], decode: Callable[[str], Any], chain: Callable[[Any], Any]) -> None:
        self.paths, self.decode, self.chain = [str(path) for path in paths], decode, chain

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.chain(self.decode(self.paths[index])), index % NUM_CLASSES


def data_loader(files: Files, batch_size: int, num_workers: int, collate: Any = None) -> Contender:
    """A DataLoader whose workers live on."""
    made = torch.utils.data.DataLoader(
        files, batch_size, shuffle=True, num_workers=num_workers, persistent_workers=True, collate_fn=collate
    )
    return lambda: sum(len(images) for images, _ in made)


class Albumentations:
    """deep_image by albumentations, as near as it comes: it shrinks by averaging, too, and has no vignette."""

    def __init__(self, scales: list[int]) -> None:
        import albumentations as a
        import cv2

        reflected = {"border_mode": cv2.BORDER_REFLECT, "p": 1}
        self.chain = a.Compose(
            [
                a.SmallestMaxSize(max_size=scales, area_for_downscale="image", p=1),
                a.RandomCrop(224, 224, p=1),
                a.RGBShift(20, 20, 20, p=1),
                a.OpticalDistortion(0.26, **reflected),
                a.Rotate(MAX_DEG, **reflected),
                a.HorizontalFlip(p=0.5),
                a.Normalize(p=1),
                a.ToTensorV2(p=1),
            ],
            seed=0,
        )

    def __call__(self, image: Any) -> Any:
        return self.chain(image=image)["image"]


def by_opencv(path: str) -> Any:
    """As many people's training loops read a file."""
    import cv2

    cv2.setNumThreads(1)
    return cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


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


def vision_decoder(path: Path) -> Callable[[str], torch.Tensor]:
    """torchvision's `decode_image` where its library loads and reads a file, else Pillow."""
    try:
        by_torchvision(str(path))
    except (ImportError, RuntimeError, AttributeError):  # AttributeError: torch.ops.image, without the library
        return by_pillow_as_tensor
    return by_torchvision


class Mixed:
    """Batches as usual, and then mixed."""

    def __init__(self, mix: Callable[..., Any]) -> None:
        self.mix = mix

    def __call__(self, batch: Any) -> Any:
        return self.mix(*torch.utils.data.default_collate(batch))


def torchvision_epochs(paths: Sequence[Path], batch_size: int, num_workers: int) -> tuple[Contender, Contender]:
    """torchvision's transforms of version 2, on tensors: crop and flip; and with what people train with today."""
    from torchvision.transforms import v2

    decode = vision_decoder(paths[0])
    before = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    after = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    jitter = v2.ColorJitter(JITTER.brightness, JITTER.contrast, JITTER.saturation, JITTER.hue)
    plain = v2.Compose([*before, *after])
    modern = v2.Compose([*before, v2.TrivialAugmentWide(), jitter, *after, v2.RandomErasing(0.25, value="random")])
    mix = Mixed(v2.RandomApply([v2.MixUp(alpha=0.2, num_classes=NUM_CLASSES)], p=0.5))
    return (
        data_loader(Files(paths, decode, plain), batch_size, num_workers),
        data_loader(Files(paths, decode, modern), batch_size, num_workers, mix),
    )


def timm_epochs(paths: Sequence[Path], batch_size: int, num_workers: int) -> Contender:
    """timm's `create_transform`, on Pillow's images, and its Mixup, in the workers."""
    from timm.data import Mixup, create_transform

    mix = Mixed(Mixup(mixup_alpha=0.2, prob=0.5, label_smoothing=0.0, num_classes=NUM_CLASSES))
    return data_loader(Files(paths, by_pillow, create_transform(**TIMM_ARGUMENTS)), batch_size, num_workers, mix)
