"""The loader in Lightning: augmented batches for Trainer.fit; it draws a small dataset first, so that it runs as it is.

usage: pip install pytorch-lightning; python examples/lightning_fit.py [FOLDER_OF_CLASS_FOLDERS]
"""

import sys
import tempfile
from pathlib import Path

import pytorch_lightning as lightning
import torch

from augpipe import Batch, Loader, Recipe, ops
from augpipe.datasets.synthetic.generate import generate
from augpipe.trainer import model

NUM_EPOCHS = 2
RECIPE = Recipe(
    name="small",
    ops=[ops.MultiResolutionCrop(size=64, scales=(64, 96)), ops.ColorCast(), ops.Flip(), ops.Normalize()],
)


class Images(lightning.LightningDataModule):
    """A loader for each rank; Lightning keeps its state_dict in checkpoints and so resumes within an epoch."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def train_dataloader(self) -> Loader:
        return Loader(
            self.folder,
            RECIPE,
            batch_size=16,
            seed=1,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            device=self.trainer.strategy.root_device,
        )

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch  # the loader made it there


class Classifier(lightning.LightningModule):
    """A network of augpipe.trainer, though any will do."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.network = model("small-cnn", num_classes=num_classes)

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, on_epoch=True, on_step=False, batch_size=len(labels))
        return loss

    def on_train_epoch_start(self) -> None:
        # of a checkpoint between epochs Lightning loads no loader's state
        self.trainer.train_dataloader.set_epoch(self.current_epoch)

    def on_train_epoch_end(self) -> None:
        self.print(f"epoch {self.current_epoch}: mean loss {self.trainer.callback_metrics['loss']:.3f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    if len(sys.argv) > 1:
        fit(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "photos", num=64, classes=4)
        fit(Path(folder) / "photos")


def fit(folder: Path) -> None:
    lightning.seed_everything(1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=NUM_EPOCHS,
        use_distributed_sampler=False,  # the loader knows its rank
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    num_classes = sum(path.is_dir() for path in folder.iterdir())
    trainer.fit(Classifier(num_classes), datamodule=Images(folder))


if __name__ == "__main__":
    main()
