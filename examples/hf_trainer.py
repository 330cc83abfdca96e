"""The loader in a Hugging Face Trainer; it draws a small dataset first, and its network starts from random weights.

usage: pip install transformers accelerate; python examples/hf_trainer.py [FOLDER_OF_CLASS_FOLDERS]
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

from augpipe import Loader, Recipe, ops
from augpipe.datasets.synthetic.generate import generate

NUM_EPOCHS = 2
RECIPE = Recipe(
    name="small",
    ops=[ops.MultiResolutionCrop(size=64, scales=(64, 96)), ops.ColorCast(), ops.Flip(), ops.Normalize()],
)


class NamedBatches:
    """Batches as the keyword arguments that the network takes."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)  # the Trainer calls it

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for images, labels in self.loader:
            yield {"pixel_values": images, "labels": labels}


class ImageTrainer(Trainer):
    """A Trainer whose training batches come from a folder of images."""

    def __init__(self, folder: Path, **arguments: object) -> None:
        super().__init__(**arguments)
        self.folder = folder

    def get_train_dataloader(self) -> NamedBatches:
        return NamedBatches(
            Loader(
                self.folder,
                RECIPE,
                batch_size=self.args.per_device_train_batch_size,
                seed=self.args.seed,
                rank=self.args.process_index,
                world_size=self.args.world_size,
                device=self.args.device,
            )
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            train(Path(sys.argv[1]), Path(folder))
            return
        generate(Path(folder) / "photos", num=64, classes=4)
        train(Path(folder) / "photos", Path(folder))


def train(folder: Path, output: Path) -> None:
    num_classes = sum(path.is_dir() for path in folder.iterdir())
    torch.manual_seed(1)
    config = ResNetConfig(
        num_labels=num_classes, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    )
    trainer = ImageTrainer(
        folder,
        model=ResNetForImageClassification(config),
        args=TrainingArguments(
            output_dir=str(output / "run"),
            num_train_epochs=NUM_EPOCHS,
            per_device_train_batch_size=16,
            learning_rate=0.003,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    result = trainer.train()
    print(f"{result.global_step} steps: mean loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()
