"""Whether training with an imported recipe is as good as with the library's own transforms.

CIFAR-10, whose images Pillow enlarges to 96 px so that recipes shrink them as they do photographs; a small network at
64 px sees each training image once. One run gets its batches from the library's transforms, one image a call, and one
from augpipe's import of the same object. For one seed both have the same first weights and the same order of images.

    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.training_parity --kept KEPT
    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.training_parity --kept KEPT --report-only   # of the runs there are

Each finished run is kept; started again, only what is missing is run. It needs torchvision and albumentations 2.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from augpipe import Augment, importers
from benchmarks.harness import Bench, each, half_width
from benchmarks.papers.training import cifar10_files
from benchmarks.parity.theirs import names_of, seed_all, seed_each

FROM_SIZE, SIZE = 96, 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES = {
    "torchvision": (
        "T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.RandAugment(), T.ToTensor(), "
        f"T.Normalize({MEAN}, {STD})])"
    ),
    "albumentations": (
        "A.Compose([A.Transpose(p=0.5), A.VerticalFlip(p=0.5), A.HorizontalFlip(p=0.5), "
        "A.RandomBrightnessContrast(brightness_limit=0.2, contrast_limit=0, p=0.75), "
        "A.RandomBrightnessContrast(brightness_limit=0, contrast_limit=0.2, p=0.75), "
        "A.OneOf([A.MotionBlur(blur_limit=5), A.MedianBlur(blur_limit=5), A.GaussianBlur(blur_limit=5), "
        "A.GaussNoise(std_range=(0.0088, 0.0215))], p=0.7), "
        "A.OneOf([A.OpticalDistortion(distort_limit=1.0), A.GridDistortion(num_steps=5, distort_limit=1.0), "
        "A.ElasticTransform(alpha=3)], p=0.7), A.CLAHE(clip_limit=4.0, p=0.7), "
        "A.HueSaturationValue(hue_shift_limit=10, sat_shift_limit=20, val_shift_limit=10, p=0.5), "
        "A.ShiftScaleRotate(shift_limit=0.1, scale_limit=0.1, rotate_limit=15, border_mode=0, p=0.85), "
        "A.Resize(64, 64), A.CoarseDropout(num_holes_range=(1, 1), hole_height_range=(0.375, 0.375), "
        "hole_width_range=(0.375, 0.375), p=0.7), A.Normalize()])"
    ),
}
"""The first is torchvision's reference recipe for training; the second that of the first place in Kaggle's SIIM-ISIC
Melanoma Classification (haqishen, dataset.py), in the words of version 2, and its 512 px are `SIZE` here."""
RESIZES = {"torchvision": f"T.Resize(({SIZE}, {SIZE}))", "albumentations": f"A.Compose([A.Resize({SIZE}, {SIZE})])"}
"""How both recipes' authors shrink what they test with."""
THEIRS, OURS = "the library's own", "augpipe's import"
LOSS, BY_PILLOW = "loss of the last quarter", "accuracy, shrunk by Pillow"
WIDTHS = (16, 32, 64, 128)
"""Channels at strides 2, 4, 8 and 16."""

Images = npt.NDArray[np.uint8]
Batches = Callable[[npt.NDArray[np.int64]], torch.Tensor]
"""Positions of training images -> (B, 3, SIZE, SIZE) float32."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What every run takes."""

    num_train: int = 40_000
    num_test: int = 10_000
    batch_size: int = 64
    lr: float = 0.006
    weight_decay: float = 0.01

    @property
    def what(self) -> str:
        """The setting in words."""
        return (
            f"CIFAR-10 enlarged to {FROM_SIZE} px, {self.num_train:,} training images seen once at {SIZE} px, "
            f"{self.num_test:,} test images resized to {SIZE} px by the library's own Resize; convolutions of widths "
            f"{WIDTHS} in bfloat16, batches of {self.batch_size}, adamw lr {self.lr:g}, decay {self.weight_decay:g}, "
            "one cycle"
        )


def cifar10(data: Path, kept: Path, budget: Budget) -> dict[str, npt.NDArray[Any]]:
    """Images (N, 32, 32, 3) and labels of both parts, the first ones in a fixed mixed order; read once into a file."""
    path = kept / f"cifar10-{budget.num_train}-{budget.num_test}.npz"
    if not path.exists():
        files = list(cifar10_files(data))
        classes = sorted({label for _, label, _ in files})
        found: dict[str, Any] = {}
        for part, num in (("train", budget.num_train), ("test", budget.num_test)):
            own = [(image, classes.index(label)) for of, label, image in files if of == part]
            mixed = np.random.default_rng(0).permutation(len(own))[:num]
            found[f"{part}_images"] = np.stack([own[at][0] for at in mixed])
            found[f"{part}_labels"] = np.array([own[at][1] for at in mixed], np.int64)
        np.savez(path, **found)
    return dict(np.load(path))


def enlarged(image: Images) -> Image.Image:
    """A photograph that is larger than what the network gets."""
    return Image.fromarray(image).resize((FROM_SIZE, FROM_SIZE), Image.Resampling.BICUBIC)


def batches_of(library: str, side: str, seed: int, images: Images) -> Batches:
    """How a run gets its batches, the library's own generators seeded."""
    made = transform_of(library, RECIPES[library])
    if side == OURS:
        augment = Augment(importers.from_object(made).recipe, seed, framework="torch", num_threads=1)
        return lambda ids: augment([enlarged(images[at]) for at in ids], sample_ids=ids)
    seed_all(seed)
    if library == "albumentations":
        seed_each(made, seed)  # set_random_seed gives all transforms the same numbers: flips that come together
    return lambda ids: theirs(made, images[ids])


def transform_of(library: str, text: str) -> Any:
    """The library's own object."""
    if library == "albumentations":
        importlib.import_module("cv2").setNumThreads(1)
    return eval(text, names_of(library, "PIL"))


def theirs(made: Any, images: Images) -> torch.Tensor:
    """(B, 3, SIZE, SIZE): what the library's object makes of enlarged images, one a call."""
    if type(made).__module__.startswith("torchvision"):
        return torch.stack([made(enlarged(image)) for image in images])
    augmented = np.stack([made(image=np.asarray(enlarged(image)))["image"] for image in images])
    return torch.from_numpy(augmented).permute(0, 3, 1, 2)


def network_of(seed: int) -> nn.Module:
    """(B, 3, SIZE, SIZE) to (B, 10)."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inner, width in zip((3, *WIDTHS), WIDTHS, strict=False):
        layers += [nn.Conv2d(inner, width, 3, 2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers += [nn.Conv2d(WIDTHS[-1], WIDTHS[-1], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[-1]), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10)]
    network: nn.Module = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def answers(network: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """(B, 10): in bfloat16, which takes half the time."""
    with torch.autocast("cpu", torch.bfloat16):
        told: torch.Tensor = network(images.contiguous(memory_format=torch.channels_last))
    return told.float()


def by_pillow(image: Image.Image) -> Images:
    """Shrunk with an antialias, as torchvision does it, and albumentations does not."""
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def by_library(library: str) -> Callable[[Image.Image], Images]:
    """Shrunk by the library's own Resize."""
    made = transform_of(library, RESIZES[library])
    if library == "torchvision":
        return lambda image: np.asarray(made(image))
    return lambda image: np.asarray(made(image=np.asarray(image))["image"])


def accuracy(
    network: nn.Module, images: Images, labels: npt.NDArray[np.int64], shrink: Callable[[Image.Image], Images]
) -> float:
    """The share of images that are classified correctly, of both sides shrunk alike."""
    num_right = 0
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (MEAN, STD))
    for first in range(0, len(labels), 100):
        shrunk = [shrink(enlarged(one)) for one in images[first : first + 100]]
        with torch.no_grad():
            pixels = torch.from_numpy(np.stack(shrunk)).permute(0, 3, 1, 2) / 255.0
            told = answers(network, (pixels - mean) / std).argmax(dim=1).numpy()
        num_right += int((told == labels[first : first + 100]).sum())
    return num_right / len(labels)


def train(library: str, side: str, seed: int, data: Path, kept: Path, budget: Budget) -> dict[str, Any]:
    """One run, and the accuracy of its last weights."""
    start, cpu = time.perf_counter(), time.process_time()
    of = cifar10(data, kept, budget)
    network = network_of(seed)
    steps = budget.num_train // budget.batch_size
    optimizer = torch.optim.AdamW(network.parameters(), lr=budget.lr, weight_decay=budget.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, budget.lr, total_steps=steps, pct_start=0.15)
    order = np.random.default_rng(seed).permutation(budget.num_train)[: steps * budget.batch_size]
    batch, losses = batches_of(library, side, seed, of["train_images"]), []
    for ids in order.reshape(steps, budget.batch_size):
        loss = functional.cross_entropy(answers(network, batch(ids)), torch.from_numpy(of["train_labels"][ids]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    network.eval()
    return {
        "accuracy": accuracy(network, of["test_images"], of["test_labels"], by_library(library)),
        BY_PILLOW: accuracy(network, of["test_images"], of["test_labels"], by_pillow),
        LOSS: float(np.mean(losses[-(steps // 4 or 1) :])),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def table(runs: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    """Accuracies and losses of both sides, and what the import adds with the same seeds."""
    sides = {side: {seed: run for (of, seed), run in runs.items() if of == side} for side in (THEIRS, OURS)}
    both = [seed for seed in sides[THEIRS] if seed in sides[OURS]]
    told: dict[str, Any] = {}
    for name in ("accuracy", BY_PILLOW):
        told[name] = {side: each([of[seed][name] for seed in both]) for side, of in sides.items()}
        less = [sides[OURS][seed][name] - sides[THEIRS][seed][name] for seed in both]
        told[f"{name}, import less library with the same seed"] = each(less)
    losses = [[sides[side][seed][LOSS] for seed in both] for side in (THEIRS, OURS)]
    told[f"{LOSS}, import less library with the same seed"] = interval_of(np.array(losses[1]) - np.array(losses[0]))
    told["CPU seconds a run, median"] = {
        side: round(float(np.median([run["cpu_seconds"] for run in of.values()])), 1) for side, of in sides.items()
    }
    return told


def interval_of(values: npt.NDArray[np.float64]) -> dict[str, Any]:
    """The mean and its 95 % confidence."""
    half = round(half_width(list(values)), 4) if len(values) > 1 else None
    return {"mean": round(float(values.mean()), 4), "95 % confidence, +-": half}


def main() -> None:
    bench = Bench(__doc__, kept=Path, recipes=tuple(RECIPES), seeds=(0, 1, 2, 3, 4), report_only=False)
    chosen, data, result = bench.options, bench.data("cifar10_jpg.tar.gz"), dict[str, Any]()
    torch.set_num_threads(1)
    budget = bench.pick(Budget(), Budget(num_train=128, num_test=100, batch_size=32))
    with bench.kept() as kept:
        for library in chosen.recipes:
            if not find_spec(library):
                print(f"{library} is not installed. make bench installs albumentations.")
                continue
            runs: dict[tuple[str, int], dict[str, Any]] = {}
            for seed, side in product(bench.pick(chosen.seeds, [0]), (THEIRS, OURS)):
                called = f"{library}-{seed}-{'import' if side == OURS else 'library'}"
                if chosen.report_only and not kept.has(called):
                    continue
                make = partial(train, library, side, seed, data, kept.folder, budget)
                done = runs[side, seed] = kept.get(called, make)
                print(f"{library}, seed {seed}, {side}: {done['accuracy']:.4f} in {done['cpu_seconds']} s", flush=True)
            result[library] = {"recipe": RECIPES[library], **table(runs)}
    if result:
        bench.keep("training_parity", {"what": budget.what, **result})


if __name__ == "__main__":
    main()
