"""What crops that keep objects, and the papers' recipe, are worth to a small detector and a small U-Net.

The sample data set with its boxes and masks, as `augpipe sample --targets` draws it; the test images are drawn from
another seed. Both networks are one U-Net: with a centre-point head (Zhou et al. 2019), whose peaks need no suppression,
or with a class for each pixel. All recipes crop alike and flip; for one seed they share first weights and the order of
the samples. Test images are fitted into a square and not augmented; what is found goes back to the photograph by
the plan, and is scored there.

    python -m benchmarks.papers.detection_and_segmentation --kept FOLDER
    python -m benchmarks.papers.detection_and_segmentation --kept FOLDER --tasks detection   # one task, for now
    python -m benchmarks.papers.detection_and_segmentation --kept FOLDER --report-only       # of the runs there are

Each finished run is kept; started again, only what is missing is run.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from augpipe import Loader, Recipe, TargetOptions, ops, recipes
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.synthetic.generate import generate
from augpipe.planning.targets.masks import filled_rings
from benchmarks.harness import Bench, each
from benchmarks.papers.scores import IOUS, Boxes, confusion, mean_average_precision, mean_iou

CLASSES = 5
SIZE, SCALES, TEST_SIZE = 96, (96, 128, 160), 160
CROP = ops.MultiResolutionCrop(size=SIZE, scales=SCALES)
PLAIN, KEEP, DEEP_IMAGE = "flip + crop", "flip + crop that keeps an object", "deep_image"
RECIPES = {
    PLAIN: Recipe(ops=(ops.Flip(), CROP, ops.Normalize())),
    KEEP: Recipe(ops=(ops.Flip(), CROP.model_copy(update={"keep_objects": ops.KeepObjects()}), ops.Normalize())),
    DEEP_IMAGE: recipes.deep_image(size=SIZE, scales=SCALES),
}
TEST = Recipe(ops=(ops.Letterbox(size=TEST_SIZE), ops.Normalize()))
IGNORED = 255
"""The label of pixels outside the photograph."""
PARTS = {"train": 0, "test": 1}
"""The seed that each part of the data is drawn from."""
WIDTHS = (16, 32, 64, 96)
"""Channels at strides 2, 4, 8 and 16."""
MOST_FOUND = 20
"""Boxes of an image: the highest peaks."""
LEAST_NEAR = 0.3
"""Cells tell a box where an object's bump, which is 1 at its centre, is at least this high."""

Heads = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What runs of both tasks take."""

    num_train: int = 800
    num_test: int = 400
    batch_size: int = 16
    lr: float = 0.004
    weight_decay: float = 0.01

    @property
    def what(self) -> str:
        """The setting in words."""
        return (
            f"sample data set, {CLASSES} classes, {self.num_train:,} training images as crops of {SIZE} px, "
            f"{self.num_test:,} test images fitted into {TEST_SIZE} px; U-Net of widths {WIDTHS} in bfloat16, batches "
            f"of {self.batch_size}, adamw lr {self.lr:g} weight decay {self.weight_decay:g}, one cycle"
        )


class Labelled(CocoSource):
    """Images with boxes, and a label map of their outlines: 0 for the backdrop, then the classes."""

    @property
    def has_label_maps(self) -> bool:
        """True."""
        return True

    def label_map(self, sample_id: int) -> npt.NDArray[np.uint8]:
        """(H, W): the label of each pixel."""
        objects = self.targets_of(np.array([sample_id]))
        assert objects is not None and objects.polygons is not None and objects.labels is not None
        masks = filled_rings(objects.polygons, self.turned(sample_id)[1])
        labels: npt.NDArray[np.uint8] = (masks * (objects.labels + 1).astype(np.uint8)[:, None, None]).max(
            axis=0, initial=0
        )
        return labels


def source_of(data: Path, part: str, num: int) -> Labelled:
    """Images of one part, drawn where they are not there yet."""
    folder = data / f"{part}-{num}"
    generate(folder, num=num, classes=CLASSES, seed=PARTS[part], targets=True, workers=1)
    return Labelled(folder / "annotations.json", images=folder)


class UNet(nn.Module):
    """Halves the image four times, goes up again to a stride, and tells `num_outputs` of each place there."""

    def __init__(self, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.down = nn.ModuleList()
        for inner, width in zip((3, *WIDTHS), WIDTHS, strict=False):
            self.down.append(nn.Sequential(_convolution(inner, width, stride=2), _convolution(width, width)))
        num_up = len(WIDTHS) - int(math.log2(stride))
        narrow = WIDTHS[-2 : -2 - num_up : -1]
        self.up = nn.ModuleList(
            _convolution(inner + width, width) for inner, width in zip((WIDTHS[-1], *narrow), narrow, strict=False)
        )
        self.near_last = _convolution(narrow[-1], 32)
        self.last = nn.Conv2d(32, num_outputs, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, num_outputs, H / stride, W / stride) of (B, 3, H, W); sides are multiples of 16."""
        levels, found = [], images
        for step in self.down:
            found = step(found)
            levels.append(found)
        for step, level in zip(self.up, levels[-2::-1], strict=False):
            found = step(torch.cat([functional.interpolate(found, scale_factor=2.0), level], dim=1))
        told: torch.Tensor = self.last(self.near_last(found))
        return told


def _convolution(inner: int, outer: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


# --- detection

CELL = 4
"""The stride of the detector's grid, in pixels."""
RARE = -math.log(99.0)
"""The first bias of peaks, of which nearly all are none: sigmoid gives 0.01."""


def detector() -> nn.Module:
    """Of each cell a peak for each class, and a box: centre from the cell's, in cells, and logarithms of the sides."""
    network = UNet(CLASSES + 4, CELL)
    nn.init.constant_(network.last.bias[:CLASSES], RARE)
    return network


def detection_loss(told: torch.Tensor, targets: dict[str, Any]) -> torch.Tensor:
    """The focal loss of peaks (CornerNet's), and the L1 loss of boxes near their centres."""
    height, width = told.shape[2:]
    boxes, labels = (
        functional.pad(targets["boxes"] / CELL, (0, 0, 0, 1)),
        functional.pad(targets["labels"], (0, 1), value=-1),
    )
    centres, sides = 0.5 * (boxes[..., :2] + boxes[..., 2:]), (boxes[..., 2:] - boxes[..., :2]).clamp(min=0.25)
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    away = torch.stack([x, y]) - centres[..., None, None]  # (B, N, 2, H, W)
    spread = (sides / 6.0).clamp(min=0.5)[..., None, None]
    near = torch.exp(-0.5 * ((away / spread) ** 2).sum(dim=2))  # (B, N, H, W)
    near = torch.where((away.abs() <= 0.5).all(dim=2), 1.0, near) * (labels >= 0)[..., None, None]
    of_class = functional.one_hot(labels.clamp(min=0), CLASSES)[..., None, None]
    wanted = (near[:, :, None] * of_class).max(dim=1).values  # (B, C, H, W)
    peaks = told[:, :CLASSES]
    said = torch.sigmoid(peaks)
    at_centre = wanted == 1.0
    right = functional.logsigmoid(peaks) * (1.0 - said) ** 2 * at_centre
    wrong = functional.logsigmoid(-peaks) * said**2 * (1.0 - wanted) ** 4 * ~at_centre
    num = at_centre.sum().clamp(min=1)
    weight, owner = near.max(dim=1)  # (B, H, W)
    weight = weight * (weight >= LEAST_NEAR)
    index = owner[:, None, None].expand(-1, 1, 2, -1, -1)
    offsets = -away.gather(1, index)[:, 0]
    logs = torch.log(sides)[..., None, None].expand(*away.shape).gather(1, index)[:, 0]
    error = (told[:, CLASSES:] - torch.cat([offsets, logs], dim=1)).abs().sum(dim=1)
    return -(right.sum() + wrong.sum()) / num + (error * weight).sum() / weight.sum().clamp(min=1.0)


def boxes_of(told: torch.Tensor) -> list[Boxes]:
    """The highest peaks of each image, and the boxes that they tell, in pixels of the network's input."""
    peaks = torch.sigmoid(told[:, :CLASSES])
    peaks = peaks * (functional.max_pool2d(peaks, 3, stride=1, padding=1) == peaks)
    height, width = told.shape[2:]
    scores, places = peaks.flatten(1).topk(MOST_FOUND)
    labels, cells = places // (height * width), places % (height * width)
    rows = told[:, CLASSES:].flatten(2).gather(2, cells[:, None].expand(-1, 4, -1))  # (B, 4, K)
    centres = torch.stack([cells % width, cells // width], dim=1) + 0.5 + rows[:, :2]
    halves = 0.5 * torch.exp(rows[:, 2:].clamp(max=6.0))
    boxes = CELL * torch.cat([centres - halves, centres + halves], dim=1).transpose(1, 2)
    return [
        Boxes(boxes=own.double().numpy(), labels=of.numpy(), scores=score.double().numpy())
        for own, of, score in zip(boxes, labels, scores, strict=True)
    ]


def detection_scores(network: nn.Module, source: Labelled) -> dict[str, float]:
    """mAP over the IoUs 0.5 to 0.95, and at 0.5, of boxes in pixels of the photographs."""
    found = []
    for batch in whole_images(source):
        for position, one in enumerate(boxes_of(network(batch.images))):
            corners = batch.plan.to_source(one.boxes.reshape(-1, 2), position).reshape(-1, 4)
            found.append(replace(one, boxes=corners))
    objects = source.targets_of(np.arange(len(source)))
    assert objects is not None and objects.boxes is not None and objects.labels is not None
    ends = np.cumsum(objects.counts)[:-1]
    there = [
        Boxes(boxes=boxes, labels=labels)
        for boxes, labels in zip(np.split(objects.boxes, ends), np.split(objects.labels, ends), strict=True)
    ]
    return {
        "mAP": mean_average_precision(found, there),
        "mAP at IoU 0.5": mean_average_precision(found, there, IOUS[:1]),
    }


# --- segmentation


def segmenter() -> nn.Module:
    """A class of each pixel, at half the size."""
    return UNet(CLASSES + 1, 2)


def segmentation_loss(told: torch.Tensor, targets: dict[str, Any]) -> torch.Tensor:
    """Cross-entropy of pixels, those outside the photograph ignored."""
    told = functional.interpolate(told, scale_factor=2.0, mode="bilinear", align_corners=False)
    return functional.cross_entropy(told, targets["mask"], ignore_index=IGNORED)


def segmentation_scores(network: nn.Module, source: Labelled) -> dict[str, float]:
    """mIoU of all pixels of the photographs, the backdrop a class like the others."""
    counts = np.zeros((CLASSES + 1, CLASSES + 1), np.int64)
    for batch in whole_images(source):
        told = functional.interpolate(network(batch.images), scale_factor=2.0, mode="bilinear", align_corners=False)
        for position, said in enumerate(told.argmax(dim=1).numpy()):
            labels = source.label_map(int(batch.plan.sample_ids[position])).astype(np.int64)
            (left, top), (right, bottom) = batch.plan.to_source([[0.0, 0.0], [TEST_SIZE, TEST_SIZE]], position)
            x = (np.arange(labels.shape[1]) + 0.5 - left) * TEST_SIZE / (right - left)
            y = (np.arange(labels.shape[0]) + 0.5 - top) * TEST_SIZE / (bottom - top)
            rows, columns = (np.clip(at.astype(np.int64), 0, TEST_SIZE - 1) for at in (y, x))
            counts += confusion(said[rows[:, None], columns], labels, CLASSES + 1)
    return {"mIoU": mean_iou(counts)}


# --- runs


@dataclass(frozen=True, kw_only=True)
class Task:
    """A network and how it is trained and scored."""

    network: Callable[[], nn.Module]
    loss: Callable[[torch.Tensor, dict[str, Any]], torch.Tensor]
    scores: Callable[[nn.Module, Labelled], dict[str, float]]
    epochs: int
    """So many take about a minute on one core."""


TASKS = {
    "detection": Task(network=detector, loss=detection_loss, scores=detection_scores, epochs=15),
    "segmentation": Task(network=segmenter, loss=segmentation_loss, scores=segmentation_scores, epochs=12),
}


def whole_images(source: Labelled) -> Loader:
    """The test images as they are, fitted into a square."""
    return Loader(source, TEST, batch_size=50, shuffle=False, num_threads=1, targets="off")


def train(task: Task, name: str, seed: int, data: Path, budget: Budget) -> dict[str, Any]:
    """One run, and the scores of its last weights on the test images."""
    start, cpu = time.perf_counter(), time.process_time()
    source = source_of(data, "train", budget.num_train)
    loader = Loader(
        source,
        RECIPES[name],
        batch_size=budget.batch_size,
        seed=seed,
        drop_last=True,
        num_threads=1,
        targets=TargetOptions(form="padded", mask_fill=IGNORED, min_visibility=0.2),
    )
    torch.manual_seed(seed)
    network = task.network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps = task.epochs * len(loader)
    optimizer = torch.optim.AdamW(network.parameters(), lr=budget.lr, weight_decay=budget.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, budget.lr, total_steps=steps, pct_start=0.15)
    losses = []
    for epoch in range(task.epochs):
        loader.set_epoch(epoch)
        total = 0.0
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16):  # half the time
                told = network(batch.images.contiguous(memory_format=torch.channels_last))
            loss = task.loss(told.float(), batch.targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        losses.append(round(total / len(loader), 4))
    network.eval()
    with torch.no_grad():
        scores = task.scores(network, source_of(data, "test", budget.num_test))
    return {
        "recipe": name,
        "seed": seed,
        "scores": scores,
        "training_loss": losses,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def table(runs: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    """Each recipe's scores, and what it adds to flip and crop with the same seeds."""
    seeds = {name: [seed for of, seed in runs if of == name] for name in RECIPES}
    scores: dict[str, Any] = {}
    for score in next(iter(runs.values()))["scores"]:
        of = {key: run["scores"][score] for key, run in runs.items()}
        scores[score] = {name: each([of[name, seed] for seed in some]) for name, some in seeds.items() if some}
        scores[f"{score}, less that of {PLAIN} with the same seed"] = {
            name: each([of[name, seed] - of[PLAIN, seed] for seed in both])
            for name, some in seeds.items()
            if name != PLAIN and (both := [seed for seed in some if (PLAIN, seed) in of])
        }
    last = {
        name: round(float(np.mean([runs[name, seed]["training_loss"][-1] for seed in some])), 4)
        for name, some in seeds.items()
        if some
    }
    seconds = round(float(np.median([run["cpu_seconds"] for run in runs.values()])), 1)
    return {**scores, "training loss, last epoch, mean": last, "CPU seconds a run, median": seconds}


def main() -> None:
    bench = Bench(__doc__, kept=Path, tasks=tuple(TASKS), seeds=(0, 1, 2, 3, 4), report_only=False)
    chosen, result = bench.options, dict[str, Any]()
    torch.set_num_threads(1)
    budget = bench.pick(Budget(), Budget(num_train=16, num_test=10, batch_size=4))
    with bench.kept() as kept:
        for key in chosen.tasks:
            task, runs = bench.pick(TASKS[key], replace(TASKS[key], epochs=1)), {}
            for seed, name in product(bench.pick(chosen.seeds, [0]), RECIPES):
                called = f"{key}-{seed}-{name.replace(' ', '')}"
                if chosen.report_only and not kept.has(called):
                    continue
                done = runs[name, seed] = kept.get(called, partial(train, task, name, seed, kept.folder, budget))
                print(f"{key}, seed {seed}, {name}: {done['scores']} in {done['cpu_seconds']:.0f} s", flush=True)
            result[key] = {"epochs": task.epochs, **table(runs)}
    bench.keep("detection_and_segmentation", {"what": budget.what, **result})


if __name__ == "__main__":
    main()
