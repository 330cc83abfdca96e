"""The loader's two backends on the CPU beside a plain DALI pipeline, and beside DALI that only decodes.

From JPEG files on disk (in the page cache) to float32 batches of 224x224, on two threads each. The plain pipeline does
what DALI's own operators do of the deep_image recipe: it decodes a random square of about the area that the recipe
crops, resizes it, turns it, mirrors it and normalises it. It knows no lens, vignette or colour cast, and what it turns
in from outside the square is black. Its batches are counted where they lie, and never copied to a framework's tensors.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import in_turn, photographs, ratio, save, summary
from nvidia.dali import Pipeline, __version__, fn, types

from augpipe import Loader, recipes

SIZE = 224
BATCH_SIZE = 64
ROUNDS = 7
COPIES = 4
"""How often each image is in the source: an epoch's start and end weigh less then."""
NUM_THREADS = 2
PREFETCH = 2
"""Batches that DALI works ahead: its default."""
AREAS = (0.14, 0.57)
"""Share of a 500x375 image that the recipe crops at its scales of 512 and 256."""
MAX_DEG = 10.0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, NATIVE, PLAIN, DECODE = "augpipe, dali on the CPU", "augpipe, native", "plain DALI pipeline", "DALI decode only"


def plain(encoded: Any) -> Any:
    """Finished images of encoded ones, by DALI's operators."""
    images = fn.decoders.image_random_crop(encoded, random_area=AREAS, random_aspect_ratio=(1.0, 1.0))
    images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, antialias=True)
    images = fn.rotate(images, angle=fn.random.uniform(range=(-MAX_DEG, MAX_DEG)), keep_size=True, fill_value=0)
    return fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255.0 * value for value in MEAN],
        std=[255.0 * value for value in STD],
    )


def pipeline(files: list[Path], work: Callable[[Any], Any]) -> Callable[[], int]:
    """A contender: an epoch over the files through DALI's reader and `work`."""
    running = Pipeline(BATCH_SIZE, NUM_THREADS, device_id=None, prefetch_queue_depth=PREFETCH, seed=1)
    with running:
        encoded, _ = fn.readers.file(
            files=[str(file) for file in files], random_shuffle=True, initial_fill=len(files), name="files"
        )
        running.set_outputs(work(encoded))
    running.build()

    def epoch() -> int:
        num = 0
        while num + BATCH_SIZE <= len(files):
            (images,) = running.run()
            num += len(images)
        return num

    return epoch


def loader(folder: str, backend: str) -> Callable[[], int]:
    """A contender: an epoch of our loader."""
    made = Loader(
        folder, recipes.deep_image(SIZE), batch_size=BATCH_SIZE, num_threads=NUM_THREADS, backend=backend, device="cpu"
    )
    return lambda: sum(len(batch) for batch in made)


def main() -> None:
    encoded, origin = photographs()
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, data in enumerate(encoded * COPIES):
            files.append(Path(folder) / f"{number:05}.jpg")
            files[-1].write_bytes(data)
        seconds = in_turn(
            {
                OURS: loader(folder, "dali"),
                NATIVE: loader(folder, "native"),
                PLAIN: pipeline(files, plain),
                DECODE: pipeline(files, fn.decoders.image),
            },
            ROUNDS,
        )
    rates = {name: {k: round(1e6 / v, 1) for k, v in row.items()} for name, row in summary(seconds, 1e6).items()}
    save(
        "dali_loader",
        {
            "what": f"photographs a second, {COPIES}x {origin}, batches of {BATCH_SIZE}, {NUM_THREADS} CPU threads",
            "dali": __version__,
            "images_per_second": {
                name: {"slowest": row["max"], "median": row["median"], "fastest": row["min"]}
                for name, row in rates.items()
            },
            "ratios": {
                f"{OURS} over {PLAIN} (goal: at least 1.5)": round(ratio(seconds, PLAIN, OURS), 3),
                f"{NATIVE} over {PLAIN}": round(ratio(seconds, PLAIN, NATIVE), 3),
                f"{OURS} over {NATIVE}": round(ratio(seconds, NATIVE, OURS), 3),
                f"{OURS} over {DECODE}": round(ratio(seconds, DECODE, OURS), 3),
            },
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
