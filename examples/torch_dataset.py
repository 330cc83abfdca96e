"""The recipe as a transform in a torch Dataset and DataLoader that you own already.

usage: python examples/torch_dataset.py
"""

import io

import numpy as np
import torch
from PIL import Image

from augpipe import Augment, recipes


class Images(torch.utils.data.Dataset):
    """Encoded images in memory; the index is the sample id, so worker processes draw as one process would."""

    def __init__(self, encoded: list[bytes]) -> None:
        self.encoded = encoded
        self.augment = Augment(recipes.deep_image(size=64, scales=(72, 96)), seed=1, framework="torch")
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.encoded[index]))
        return self.augment(image, sample_ids=index, epoch=self.epoch)


def main() -> None:
    generator = np.random.default_rng(0)
    encoded = []
    for _ in range(8):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (90, 120, 3), dtype=np.uint8)).save(file, "JPEG")
        encoded.append(file.getvalue())
    for images in torch.utils.data.DataLoader(Images(encoded), batch_size=4, num_workers=2):
        print(tuple(images.shape), images.dtype)


if __name__ == "__main__":
    main()
