"""A plain torch training loop on augmented batches; it draws a small dataset first, so that it runs as it stands.

usage: python examples/train_loop.py [FOLDER_OF_CLASS_FOLDERS]
"""

import sys
import tempfile
from pathlib import Path

import torch

from augpipe import Loader, Recipe, ops
from augpipe.datasets.synthetic.generate import generate

NUM_EPOCHS = 2


def main() -> None:
    if len(sys.argv) > 1:
        train(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "photos", num=64, classes=4)
        train(Path(folder) / "photos")


def train(folder: str | Path) -> None:
    recipe = Recipe(
        name="small",
        ops=[
            ops.MultiResolutionCrop(size=64, scales=(64, 96)),
            ops.ColorCast(),
            ops.Rotate(),
            ops.Flip(),
            ops.Normalize(),
        ],
    )
    loader = Loader(folder, recipe, batch_size=16, seed=1, on_error="skip")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(256, len(loader.source.classes)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(NUM_EPOCHS):
        loader.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: mean loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
