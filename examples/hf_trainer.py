"""The loader in a Hugging Face Trainer; it draws a small dataset first, and its network starts from random weights.

usage: pip install transformers accelerate; python examples/hf_trainer.py [FOLDER_OF_CLASS_FOLDERS [OUTPUT]]

Run again with the same OUTPUT, it goes on from the last checkpoint there, within an epoch, too.
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from augpipe import Loader, Place, Recipe, ops
from augpipe.datasets.synthetic.generate import generate

NUM_EPOCHS = 2
RECIPE = Recipe(
    name="small",
    ops=[ops.MultiResolutionCrop(size=64, scales=(64, 96)), ops.ColorCast(), ops.Flip(), ops.Normalize()],
)


class NamedBatches(torch.utils.data.Dataset):
    """The batches of an epoch by number, as the keyword arguments that the network takes.

    They are made ahead, in order from the first that is asked for. A Trainer that resumes within an epoch begins at a
    later number, and none is made of those before it.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.set_epoch(0)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_number = None

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        if number != self.next_number:
            self.batches = self.loader.batches(self.place(later) for later in range(number, len(self)))
        self.next_number = number + 1
        images, labels = next(self.batches)
        return {"pixel_values": images, "labels": labels}

    def place(self, number: int) -> Place:
        rank, world_size = self.loader.rank, self.loader.world_size
        first = number * self.loader.batch_size * world_size
        return Place(epoch=self.epoch, first=first, rank=rank, world_size=world_size)


class EpochOfBatches(TrainerCallback):
    """Tells the batches their epoch, the resumed one, too."""

    def on_epoch_begin(self, args, state, control, train_dataloader, **others) -> None:
        train_dataloader.dataset.set_epoch(int(state.epoch))


class ImageTrainer(Trainer):
    """A Trainer whose training batches come from a folder of images."""

    def __init__(self, folder: Path, **arguments: object) -> None:
        super().__init__(**arguments)
        self.folder = folder
        self.add_callback(EpochOfBatches())

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        loader = Loader(
            self.folder,
            RECIPE,
            batch_size=self.args.per_device_train_batch_size,
            seed=self.args.seed,
            rank=self.args.process_index,
            world_size=self.args.world_size,
            device=self.args.device,
        )
        # of torch's own kind, because the Trainer takes it apart to resume; its items are whole batches
        return torch.utils.data.DataLoader(NamedBatches(loader), batch_size=1, collate_fn=lambda batches: batches[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            output = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "run"
            train(Path(sys.argv[1]), output)
            return
        generate(Path(folder) / "photos", num=64, classes=4)
        train(Path(folder) / "photos", Path(folder) / "run")


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
            output_dir=str(output),
            num_train_epochs=NUM_EPOCHS,
            per_device_train_batch_size=16,
            learning_rate=0.003,
            use_cpu=True,
            save_strategy="steps",
            save_steps=2,
            save_total_limit=1,
            logging_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    result = trainer.train(resume_from_checkpoint=get_last_checkpoint(output) if output.is_dir() else None)
    print(f"{result.global_step} steps: mean loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()
