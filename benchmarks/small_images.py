"""Small images in small batches: MNIST's number of pixels from an array, beside a torch DataLoader with torchvision.

Images of 32x32x3 in memory, crop to 28x28, flip, normalise. The DataLoader has two workers. torchvision is looked for
and not installed with the other peers: its wheels go with one build of torch each.
"""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import in_turn, ratio, save, summary

from augpipe import Loader, Recipe
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.ops import Flip, MultiResolutionCrop, Normalize

NUM = 20_000
SIDE, CROP = 32, 28
BATCH_SIZES = (32, 128)
NUM_WORKERS = 2
ROUNDS = 7
RECIPE = Recipe(ops=(MultiResolutionCrop(size=CROP, scales=(SIDE,)), Flip(), Normalize()))


class Tensors(torch.utils.data.Dataset):
    """Images of a tensor, through torchvision's transforms."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        from torchvision.transforms import v2

        self.images = torch.from_numpy(images).permute(0, 3, 1, 2)
        self.labels = labels.tolist()
        self.chain = v2.Compose(
            [
                v2.RandomCrop(CROP),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.chain(self.images[index]), self.labels[index]


def epoch_of(loader: Any) -> Callable[[], int]:
    return lambda: sum(len(labels) for _, labels in loader)


def main() -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (NUM, SIDE, SIDE, 3), dtype=np.uint8)
    labels = random.integers(0, 10, NUM)
    has_peer = importlib.util.find_spec("torchvision") is not None
    contenders = {}
    for size in BATCH_SIZES:
        loader = Loader(ArraySource(images, labels), RECIPE, batch_size=size, num_threads=2)
        contenders[f"augpipe.Loader, batches of {size}"] = epoch_of(loader)
        one_by_one = Loader(ArraySource(list(images), labels), RECIPE, batch_size=size, num_threads=2)
        contenders[f"augpipe.Loader from a list of arrays, batches of {size}"] = epoch_of(one_by_one)
        if has_peer:
            peer = torch.utils.data.DataLoader(
                Tensors(images, labels), batch_size=size, shuffle=True, num_workers=NUM_WORKERS, persistent_workers=True
            )
            contenders[f"torch DataLoader, batches of {size}"] = epoch_of(peer)
    seconds = in_turn(contenders, ROUNDS)
    ours, theirs = "augpipe.Loader, batches of {}", "torch DataLoader, batches of {}"
    save(
        "small_images",
        {
            "what": f"microseconds an image of {SIDE}x{SIDE}x3, two threads or workers, {NUM} images",
            "microseconds": summary(seconds, 1e6),
            "loader over torch DataLoader with torchvision (goal: 6)": {
                size: round(ratio(seconds, theirs.format(size), ours.format(size)), 2) for size in BATCH_SIZES
            }
            if has_peer
            else "torchvision is not installed",
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
