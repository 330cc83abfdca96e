"""Ops of albumentations 2 one by one, behind a RandomResizedCrop, ours next to their own: 16 decoded images at a
time, one thread, uint8. Both sides take turns, and of each the least CPU time counts: the machine may be busy."""

import importlib
import time
import warnings
from statistics import geometric_mean
from typing import Any

import numpy as np

from augpipe import Augment, importers
from benchmarks.harness import Bench, imagenet_sized, rendering_alone
from benchmarks.pipeline.loader import has

NUM_IMAGES = 16
CROP = "RandomResizedCrop(size=(224, 224))"
OPS = (
    *("HorizontalFlip()", "VerticalFlip()", "Transpose()", "RandomRotate90()", "D4()", "Rotate(limit=45)"),
    *("ShiftScaleRotate()", "Affine(scale=(0.8, 1.2), rotate=(-30, 30), shear=(-10, 10))", "Perspective()"),
    *("ElasticTransform(alpha=50, sigma=8)", "GridDistortion()", "OpticalDistortion()", "RandomBrightnessContrast()"),
    *("HueSaturationValue()", "RGBShift()", "RandomGamma()", "ToGray()", "ColorJitter()", "ChannelShuffle()"),
    *("Posterize()", "Solarize()", "Equalize()", "InvertImg()", "CLAHE()", "GaussianBlur(blur_limit=(3, 7))"),
    *("Blur(blur_limit=7)", "MedianBlur(blur_limit=5)", "MotionBlur(blur_limit=7)", "Sharpen()", "Emboss()"),
    *("GaussNoise()", "ISONoise()", "MultiplicativeNoise()", "CoarseDropout()", "Downscale()"),
    *("ImageCompression(quality_range=(50, 90))", "Normalize()", "CenterCrop(200, 200)", "RandomCrop(200, 200)"),
    "Resize(160, 160)",
)


def main() -> None:
    bench = Bench(__doc__, rounds=30)
    if not has("albumentations", "cv2"):
        return
    warnings.simplefilter("ignore")
    importlib.import_module("cv2").setNumThreads(1)
    library = importlib.import_module("albumentations")
    encoded, origin = bench.photographs()
    images = [np.ascontiguousarray(one[:, :, :3]) for one in imagenet_sized(encoded, NUM_IMAGES)]
    found: dict[str, Any] = {}
    for op in ("", *OPS):
        theirs = library.Compose([made(library, one) for one in (CROP, op) if one])
        dtype = "float32" if op == "Normalize()" else "uint8"
        ours = Augment(importers.from_albumentations(theirs).recipe, dtype=dtype, framework="numpy", num_threads=1)
        contenders = {
            "theirs": lambda chain=theirs: len([chain(image=image) for image in images]),
            "ours": lambda chain=ours: len(chain(images)),
        }
        of_ops = bench.in_turn(contenders, clock=time.thread_time)
        of_ops["ours, rendering"] = [rendering_alone(contenders["ours"], bench.rounds)]
        least = {f"{name}, ms": round(1e3 * min(of), 3) for name, of in of_ops.items()}
        found[op or CROP] = least | {
            name: round(min(of_ops["theirs"]) / min(of_ops[by]), 2)
            for name, by in (("ratio", "ours"), ("ratio if only rendering took time", "ours, rendering"))
        }
        print(f"  {op or CROP:64}{found[op or CROP]}")
    ratios = [one["ratio"] for one in found.values()]
    summary = {
        "geometric mean": round(geometric_mean(ratios), 2),
        "geometric mean if only rendering took time": round(
            geometric_mean(one["ratio if only rendering took time"] for one in found.values()), 2
        ),
        "at least 1": f"{sum(one >= 1 for one in ratios)} of {len(ratios)}",
    }
    print(f"  {summary}")
    what = "least CPU time an image of a crop and one op, and theirs over ours; one thread, 16 at a time"
    bench.keep("single_ops", {"what": what, "images": origin, **summary, "ops": found})


def made(library: Any, op: str) -> Any:
    """The transform that a text says, applied always."""
    name, arguments = op[:-1].split("(", 1)
    return eval(f"library.{name}({arguments}{', ' if arguments else ''}p=1)", {"library": library})


if __name__ == "__main__":
    main()
