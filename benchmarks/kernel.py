"""The fused kernel beside one cv2.remap and an albumentations chain; one core, then two.

All of them turn decoded images of ImageNet's usual area into 224x224 outputs. Ours is the whole deep_image chain
into normalised float32 NCHW; cv2.remap is one bilinear look-up into uint8; the albumentations chain shrinks by
averaging, as ours does, and has no vignette, so it does a little less.
"""

import os
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import albumentations
import cv2
import numpy as np
from common import imagenet_sized, in_turn, photographs, ratio, save, summary

from augpipe import plan, recipes
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.fused import jobs_per_image, run_jobs
from augpipe.native.cpu_render import pixel_table
from augpipe.planning.kernel_rows import kernel_rows

SIZE = 224
NUM_IMAGES = 48
NUM_EPOCHS = 16
IMAGES_PER_TASK = 4
ROUNDS = 15


def main() -> None:
    cv2.setNumThreads(1)
    encoded, origin = photographs()
    images = imagenet_sized(encoded, NUM_IMAGES)
    sizes = [image.shape[:2] for image in images]
    num = len(images)
    assert num % IMAGES_PER_TASK == 0
    table = pixel_table([LocatedPixels.of(image) for image in images])
    batch = np.empty(num * SIZE * SIZE * 3, np.float32)
    blocks = jobs_per_image(SIZE)

    def ours(scales: tuple[int, ...], threads: int = 1):
        # several epochs' draws, so that no lucky draw decides
        made = [
            plan(recipes.deep_image(SIZE, scales), range(num), sizes=sizes, epoch=epoch) for epoch in range(NUM_EPOCHS)
        ]
        rows = [kernel_rows(one.rows) for one in made]
        pool = ThreadPoolExecutor(threads)
        cuts = range(0, num * blocks + 1, IMAGES_PER_TASK * blocks)

        def work() -> int:
            jobs = [
                pool.submit(run_jobs, table, one, batch, SIZE, SIZE, True, first, last)
                for one in rows
                for first, last in pairwise(cuts)
            ]
            for job in wait(jobs).done:
                job.result()
            return num * len(rows)

        return work

    rgb = [np.ascontiguousarray(image[:, :, :3]) for image in images]
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    maps = [
        ((x - 112) * 0.73 * np.float32(0.99) - (y - 112) * 0.1 + w / 2, (y - 112) * 0.73 + (x - 112) * 0.1 + h / 2)
        for h, w in sizes
    ]

    def remap() -> int:
        for image, (map_x, map_y) in zip(rgb, maps, strict=True):
            cv2.remap(image, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        return num

    chain = albumentations.Compose(
        [
            albumentations.SmallestMaxSize(max_size=[256, 512], area_for_downscale="image", p=1),
            albumentations.RandomCrop(SIZE, SIZE, p=1),
            albumentations.RGBShift(20, 20, 20, p=1),
            albumentations.OpticalDistortion(0.26, border_mode=cv2.BORDER_REFLECT, p=1),
            albumentations.Rotate(10, border_mode=cv2.BORDER_REFLECT, p=1),
            albumentations.HorizontalFlip(p=0.5),
            albumentations.Normalize(p=1),
            albumentations.ToTensorV2(p=1),
        ],
        seed=0,
    )

    def peer() -> int:
        for image in rgb:
            chain(image=image)
        return num

    seconds = in_turn(
        {
            "deep_image, scales 256 and 512": ours((256, 512)),
            "deep_image, scale 512 (upscaling)": ours((512,)),
            "deep_image, scale 256 (antialiased)": ours((256,)),
            "cv2.remap": remap,
            "albumentations": peer,
            "deep_image, two threads": ours((256, 512), threads=2),
        },
        ROUNDS,
    )
    whole = "deep_image, scales 256 and 512"
    save(
        "kernel",
        {
            "what": f"milliseconds an image, 224x224 from {num} of {origin}, brought to 500x375, {ROUNDS} rounds",
            "milliseconds": summary(seconds),
            "ratios": {
                "ours over cv2.remap (goal: at most 0.8)": round(ratio(seconds, whole, "cv2.remap"), 3),
                "ours over albumentations (goal: at most 0.167)": round(ratio(seconds, whole, "albumentations"), 3),
                "one thread over two (goal: at least 1.7)": round(ratio(seconds, whole, "deep_image, two threads"), 3),
                "scale 512 alone over cv2.remap": round(
                    ratio(seconds, "deep_image, scale 512 (upscaling)", "cv2.remap"), 3
                ),
                "scale 256 alone over cv2.remap": round(
                    ratio(seconds, "deep_image, scale 256 (antialiased)", "cv2.remap"), 3
                ),
            },
            "load_average": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
