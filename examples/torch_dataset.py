"""The recipe as a transform in a torch Dataset and DataLoader that you own already.

usage: python examples/torch_dataset.py
"""

import io

import numpy as np
import torch
from PIL import Image

from augpipe import Augment, recipes

NUM_EPOCHS = 2


class Images(torch.utils.data.Dataset):
    """Encoded images in memory; the index is the sample id, so worker processes draw as one process would."""

    def __init__(self, encoded: list[bytes]) -> None:
        self.encoded = encoded
        self.augment = Augment(recipes.deep_image(size=64, scales=(72, 96)), seed=1, framework="torch")
        # shared memory: workers have copies of this object, and persistent ones are not given it anew
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Draw for this epoch from now on, in all workers; call it before each pass."""
        self.epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.encoded[index]))
        return self.augment(image, sample_ids=index, epoch=int(self.epoch))


def main() -> None:
    generator = np.random.default_rng(0)
    encoded = []
    for _ in range(8):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (90, 120, 3), dtype=np.uint8)).save(file, "JPEG")
        encoded.append(file.getvalue())
    dataset = Images(encoded)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    for epoch in range(NUM_EPOCHS):
        dataset.set_epoch(epoch)
        images = torch.cat(list(loader))
        print(f"epoch {epoch}: {len(loader)} batches, mean {images.mean():.4f}")


if __name__ == "__main__":
    main()
