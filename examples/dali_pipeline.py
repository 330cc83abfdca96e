"""The recipe inside a DALI pipeline of your own, on the GPU where torch finds one; it draws a dataset by default.

usage: python examples/dali_pipeline.py [FOLDER_OF_CLASS_FOLDERS]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from augpipe import recipes
from augpipe.dali import augment
from augpipe.datasets.synthetic.generate import generate

NUM_EPOCHS = 2
BATCH_SIZE = 16


def main() -> None:
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "photos", num=24, classes=4)
        train(Path(folder) / "photos")


@pipeline_def
def photographs(paths, batches_per_epoch):
    # the reader's "label" is the sample's id: what is drawn for an image then does not depend on DALI's order
    encoded, sample_ids = fn.readers.file(
        files=paths, labels=list(range(len(paths))), random_shuffle=True, pad_last_batch=True, name="reader"
    )
    # DALI works ahead, so the epoch comes from the graph as well; padded, every epoch has as many batches
    epoch = fn.external_source(lambda sample: np.int64(sample.iteration // batches_per_epoch), batch=False)
    device = "mixed" if torch.cuda.is_available() else "cpu"
    images = fn.decoders.image(encoded, device=device, output_type=types.RGB, jpeg_fancy_upsampling=True)
    recipe = recipes.deep_image(size=64, scales=(72, 96))
    return augment(images, recipe, sample_ids=sample_ids, epoch=epoch, seed=1), sample_ids


def train(folder: Path) -> None:
    files = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    classes = sorted({path.parent.name for path in files})
    labels_by_id = torch.tensor([classes.index(path.parent.name) for path in files])
    pipeline = photographs(
        [str(path) for path in files],
        -(-len(files) // BATCH_SIZE),
        batch_size=BATCH_SIZE,
        num_threads=2,
        device_id=0 if torch.cuda.is_available() else None,
    )
    batches = DALIGenericIterator(
        pipeline,
        ["images", "sample_ids"],
        reader_name="reader",  # it knows how long an epoch is
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )
    for epoch in range(NUM_EPOCHS):
        seen = torch.zeros(len(classes), dtype=torch.int64)
        for (batch,) in batches:
            images, labels = batch["images"], labels_by_id[batch["sample_ids"].flatten()]
            seen += torch.bincount(labels, minlength=len(classes))
        counts = ", ".join(f"{name} {num}" for name, num in zip(classes, seen.tolist(), strict=True))
        print(f"epoch {epoch}: {counts}; the last batch is {tuple(images.shape)} {images.dtype} on {images.device}")


if __name__ == "__main__":
    main()
