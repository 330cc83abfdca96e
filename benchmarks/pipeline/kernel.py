"""The fused kernel beside one cv2.remap and an albumentations chain; one core, then two.

All of them turn decoded images of ImageNet's usual area into 224x224 outputs. Ours is the whole deep_image chain
into normalised float32 NCHW; cv2.remap is one bilinear look-up into uint8; the albumentations chain shrinks by
averaging, as ours does, and has no vignette, so it does a little less.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise

import cv2
import numpy as np

from augpipe import plan, recipes
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.fused import jobs_per_image, run_jobs
from augpipe.native.cpu_render import pixel_table
from augpipe.planning.kernel_rows import kernel_rows
from benchmarks.harness import Bench, imagenet_sized
from benchmarks.pipeline.peers import Albumentations

SIZE, NUM_IMAGES, NUM_EPOCHS, IMAGES_PER_TASK = 224, 48, 16, 4


def main() -> None:
    bench = Bench(__doc__, rounds=15)
    cv2.setNumThreads(1)
    encoded, origin = bench.photographs()
    images = imagenet_sized(encoded, bench.pick(NUM_IMAGES, 4))
    sizes, num = [image.shape[:2] for image in images], len(images)
    table = pixel_table([LocatedPixels.of(image) for image in images])
    batch, blocks = np.empty(num * SIZE * SIZE * 3, np.float32), jobs_per_image(SIZE)

    def ours(scales: tuple[int, ...], threads: int = 1) -> Callable[[], int]:
        # several epochs' draws, so that no lucky draw decides
        recipe, epochs = recipes.deep_image(SIZE, scales), range(bench.pick(NUM_EPOCHS, 1))
        rows = [kernel_rows(plan(recipe, range(num), sizes=sizes, epoch=epoch).rows) for epoch in epochs]
        pool = ThreadPoolExecutor(threads)
        cuts = list(pairwise(range(0, num * blocks + 1, IMAGES_PER_TASK * blocks)))

        def work() -> int:
            shared = table, batch, SIZE, SIZE, True
            jobs = [pool.submit(run_jobs, table, one, *shared[1:], *cut) for one in rows for cut in cuts]
            for job in jobs:
                job.result()
            return num * len(rows)

        return work

    rgb = [np.ascontiguousarray(image[:, :, :3]) for image in images]
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) - 112
    maps = [
        (
            (x * 0.73 * np.float32(0.99) - y * 0.1 + w / 2).astype(np.float32),
            (y * 0.73 + x * 0.1 + h / 2).astype(np.float32),
        )
        for h, w in sizes
    ]
    chain = Albumentations([256, 512]) if find_spec("albumentations") else None

    def remap() -> int:
        for image, (to_x, to_y) in zip(rgb, maps, strict=True):
            cv2.remap(image, to_x, to_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        return num

    whole, up, down = "deep_image, scales 256 and 512", "deep_image, scale 512", "deep_image, scale 256"
    contenders = {
        whole: ours((256, 512)),
        f"{up} (upscaling)": ours((512,)),
        f"{down} (antialiased)": ours((256,)),
        "cv2.remap": remap,
        "deep_image, two threads": ours((256, 512), threads=2),
    }
    if chain is not None:
        contenders["albumentations"] = lambda: len([chain(image) for image in rgb])
    bench.report(
        "kernel",
        what=f"milliseconds an image, 224x224 from {num} of {origin}, brought to 500x375, {bench.rounds} rounds",
        seconds=bench.in_turn(contenders),
        unit="ms",
        ratios={
            "ours over cv2.remap (goal: at most 0.8)": (whole, "cv2.remap"),
            "ours over albumentations (goal: at most 0.167)": (whole, "albumentations"),
            "one thread over two (goal: at least 1.7)": (whole, "deep_image, two threads"),
            "scale 512 alone over cv2.remap": (f"{up} (upscaling)", "cv2.remap"),
            "scale 256 alone over cv2.remap": (f"{down} (antialiased)", "cv2.remap"),
        },
    )


if __name__ == "__main__":
    main()
