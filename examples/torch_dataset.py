"""The recipe as a transform in a torch Dataset and DataLoader that you own already.

usage: python examples/torch_dataset.py
"""

import io

import numpy as np
import torch
from PIL import Image

from augpipe import Augment, recipes


class Images(torch.utils.data.Dataset):
    """Encoded images in memory; the index is the sample id, so worker processes draw as one process would.

    The epoch lies in shared memory, so that workers see it change, also those that persist from epoch to epoch.
    """

    def __init__(self, encoded: list[bytes]) -> None:
        self.encoded = encoded
        self.augment = Augment(recipes.deep_image(size=64, scales=(72, 96)), seed=1, framework="torch")
        self.epoch = torch.tensor(0).share_memory_()

    def set_epoch(self, epoch: int) -> None:
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
    for epoch in range(2):
        dataset.set_epoch(epoch)
        for images in loader:
            print(f"epoch {epoch}: {tuple(images.shape)} {images.dtype}, mean {images.mean():+.3f}")


if __name__ == "__main__":
    main()
