"""The recipe in a torch Dataset and DataLoader that you own already.

usage: python examples/torch_dataset.py
"""

import io

import numpy as np
import torch
from PIL import Image

from augpipe import Augment, recipes


class Images(torch.utils.data.Dataset):
    """Encoded images in memory, as files would be: path or bytes, label, and the index as sample id.

    Nothing is decoded here: `Augment.collate` decodes what the recipe looks at. With the index as id, the pixels are
    those of a Loader, in any number of worker processes.
    """

    def __init__(self, encoded: list[bytes]) -> None:
        self.encoded = encoded

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, index: int) -> tuple[bytes, int, int]:
        return self.encoded[index], index % 2, index


def main() -> None:
    generator = np.random.default_rng(0)
    encoded = []
    for _ in range(8):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (90, 120, 3), dtype=np.uint8)).save(file, "JPEG")
        encoded.append(file.getvalue())
    augment = Augment(recipes.deep_image(size=64, scales=(72, 96)), seed=1)
    loader = torch.utils.data.DataLoader(
        Images(encoded), batch_size=4, collate_fn=augment.collate, num_workers=2, persistent_workers=True
    )
    for epoch in range(2):
        augment.set_epoch(epoch)  # the workers see it, also those that persist from epoch to epoch
        for images, labels in loader:
            print(f"epoch {epoch}: {tuple(images.shape)} {images.dtype}, mean {images.mean():+.3f}, {labels.tolist()}")


if __name__ == "__main__":
    main()
