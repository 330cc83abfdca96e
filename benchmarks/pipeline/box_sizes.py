"""How much larger boxes around four mapped corners are, `boxes="corners"`, than boxes around what is shown of the
object, `boxes="tight"`: 80 photographs of COCO with outlines, each drawn several times, by op.

An excess is how far the farthest of a box's four edges lies outside the tight one, in output pixels.
"""

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from augpipe import Loader, Recipe, TargetOptions, ops
from augpipe.datasets.open import open_source
from augpipe.ops import Op
from benchmarks.harness import Bench

SIDE = 640
CASES: dict[str, tuple[Op, ...]] = {
    "flips": (ops.Flip(p=1.0),),
    "crops": (ops.RandomResizedCrop(size=SIDE, scale=(0.2, 1.0)),),
    "rotations of up to 10 degrees": (ops.Rotate(max_deg=10),),
    "rotations of up to 45 degrees": (ops.Rotate(max_deg=45),),
    "shears of up to 20 degrees": (ops.Shear(horizontal_deg=(-20, 20), vertical_deg=(-20, 20)),),
    "perspectives of 0.5": (ops.Perspective(p=1.0),),
    "the papers' lenses": (ops.LensDistortion(p=1.0),),
    "grids": (ops.GridDistortion(p=1.0),),
    "elastic fields": (ops.ElasticTransform(p=1.0),),
}


def main() -> None:
    bench = Bench(__doc__, rounds=5)
    found = {}
    with TemporaryDirectory() as folder:
        with tarfile.open(bench.data("coco80.tar") / "coco80.tar") as tar:
            tar.extractall(folder, filter="data")
        for name, moved in CASES.items():
            recipe = Recipe(border="constant", fill=(114, 114, 114), ops=(ops.Letterbox(size=SIDE), *moved))
            corners, tight = (boxes_of(Path(folder, "coco80"), recipe, by, bench.rounds) for by in ("corners", "tight"))
            is_shown = (tight[:, 2:] > tight[:, :2]).all(axis=1) & (corners[:, 2:] > corners[:, :2]).all(axis=1)
            corners, tight = corners[is_shown], tight[is_shown]
            excess = np.concatenate([tight[:, :2] - corners[:, :2], corners[:, 2:] - tight[:, 2:]], axis=1).max(axis=1)
            areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (corners, tight)]
            found[name] = {
                "boxes": len(tight),
                "mean excess, px": round(float(excess.mean()), 1),
                "95 % below, px": round(float(np.quantile(excess, 0.95)), 1),
                "largest, px": round(float(excess.max()), 1),
                "median of areas' ratios": round(float(np.median(areas[0] / areas[1])), 2),
            }
            print(f"  {name:32}{found[name]}", flush=True)
    bench.keep("box_sizes", {"what": "boxes around corners, and around what is shown, in outputs of 640", "ops": found})


def boxes_of(folder: Path, recipe: Recipe, by: Literal["corners", "tight"], num_epochs: int) -> np.ndarray:
    """(N, 4) of all objects, epoch by epoch, in the same order whatever they are made of."""
    targets = TargetOptions(boxes=by, drop_empty=False)
    loader = Loader(open_source(folder), recipe, batch_size=8, shuffle=False, targets=targets, dtype="uint8")
    found = []
    for epoch in range(num_epochs):
        loader.set_epoch(epoch)
        found += [target["boxes"] for batch in loader for target in batch.targets]
    return np.concatenate(found)


if __name__ == "__main__":
    main()
