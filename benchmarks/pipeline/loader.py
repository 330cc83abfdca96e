"""The whole loader beside other people's, from JPEG files on disk (in the page cache) to 224x224 float32 batches.

    python -m benchmarks.pipeline.loader               # all of:
    python -m benchmarks.pipeline.loader loader        # beside libjpeg-turbo's decoding alone, and a torch DataLoader
    python -m benchmarks.pipeline.loader dali_loader   # both backends on the CPU, beside a plain DALI pipeline
    python -m benchmarks.pipeline.loader cache         # a host cache that holds everything, or half of it
    python -m benchmarks.pipeline.loader modern        # today's recipes, beside DALI, torchvision and timm

A first epoch is that of a loader made for it; row indexes are those of `augpipe index`. A torch DataLoader runs one
worker process a core. A peer that is not installed is left out.
"""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import simplejpeg

from augpipe import Loader, Recipe, importers, policies, recipes
from augpipe.datasets.prepare.index_folder import index_folder
from augpipe.native.workers import num_usable_cores
from augpipe.ops import Erase, Flip, MixUp, Normalize, RandomResizedCrop
from benchmarks.harness import Bench, touch_memory
from benchmarks.pipeline import peers

NUM_THREADS = num_usable_cores()
CROPS = Recipe(ops=(RandomResizedCrop(size=224), Flip(), Normalize()))
PAPER = recipes.deep_image()
MIXING = (MixUp(alpha=0.2, p=0.5),)
MODERN = Recipe(
    ops=(*CROPS.ops[:2], *policies.trivial_augment_wide(), peers.JITTER, Erase(), Normalize()), mixing=MIXING
)
AREAS = (0.14, 0.57)
"""Share of a 500x375 image that deep_image crops at its scales of 512 and 256."""
TORCH = "torch DataLoader"
Contender = Callable[[], int]


def ours(source: Any, recipe: Recipe, batch_size: int, *, is_new: bool = False, warm: int = 0, **how: Any) -> Contender:
    """An epoch of our loader, of a new one each time or always of the same, which has run `warm` times before."""

    def make() -> Loader:
        return Loader(source, recipe, batch_size=batch_size, **({"num_threads": NUM_THREADS} | how))

    kept = make()
    for _ in range(warm):
        sum(map(len, kept))
    return lambda: sum(map(len, make() if is_new else kept))


def has(*modules: str) -> bool:
    """Whether a peer is installed."""
    lacking = [name for name in modules if find_spec(name.split(".")[0]) is None or find_spec(name) is None]
    if lacking:
        print(f"left out: what needs {', '.join(lacking)}, which is not installed")
    return not lacking


def data_loader(paths: list[Path], batch_size: int, scales: list[int]) -> Contender:
    """A DataLoader with OpenCV and albumentations."""
    files = peers.Files(paths, peers.by_opencv, peers.Albumentations(scales))
    return peers.data_loader(files, batch_size, NUM_THREADS)


def decode_only(paths: list[Path]) -> Contender:
    """libjpeg-turbo on all cores, into memory that is used again."""
    pool, memory = ThreadPoolExecutor(NUM_THREADS), threading.local()

    def decode(path: Path) -> None:
        data = path.read_bytes()
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        if getattr(memory, "out", np.empty(0)).size < height * width * 4:
            memory.out = np.empty(height * width * 4, np.uint8)
        simplejpeg.decode_jpeg(data, "RGBX", fastdct=False, fastupsample=False, buffer=memory.out)

    return lambda: len(list(pool.map(decode, paths)))


def run_loader(bench: Bench) -> None:
    batch_size = 256
    with bench.files(4) as (folder, origin), TemporaryDirectory() as temporary:
        paths, indexed, many = sorted(folder.iterdir()), f"{temporary}/indexed", f"{temporary}/many"
        shutil.copytree(folder, indexed)
        for copy in range(5):  # a first epoch, in which the batches' memory is new, is of more files
            shutil.copytree(folder, f"{many}/{copy}", copy_function=os.link)
        index_folder(indexed)
        drawn = "augpipe.Loader, RandomResizedCrop, batches of 64"
        contenders = {
            "decode only": decode_only(paths),
            "augpipe.Loader": ours(indexed, PAPER, batch_size),
            "augpipe.Loader, batches of 64": ours(many, PAPER, 64, is_new=True),
            "augpipe.Loader, batches of 64, row indexes": ours(indexed, PAPER, 64),
            drawn: ours(many, CROPS, 64, is_new=True),
            f"{drawn}, row indexes": ours(indexed, CROPS, 64),
            f"{drawn}, row indexes, one thread": ours(indexed, CROPS, 64, num_threads=1),
        }
        rated = {f"{name} over decode only": ("decode only", name) for name in contenders if name != "decode only"}
        if has("albumentations", "cv2"):
            contenders[TORCH] = data_loader(paths, batch_size, [256, 512])
        seconds = bench.in_turn(contenders)
    rated |= {"loader over torch DataLoader": (TORCH, "augpipe.Loader")}
    rated |= {"two threads over one": (f"{drawn}, row indexes, one thread", f"{drawn}, row indexes")}
    what = f"images a second, {origin}, batches of {batch_size}, {NUM_THREADS} threads"
    bench.report("loader", what=what, seconds=seconds, unit="rate", ratios=rated)


def run_dali_loader(bench: Bench) -> None:
    batch_size, name, native = 64, "augpipe, dali on the CPU", "augpipe, native"
    plain, decode = "plain DALI pipeline", "DALI decode only"
    if not has("nvidia.dali"):
        return
    with bench.files(4) as (folder, origin):
        paths = sorted(folder.iterdir())
        work = peers.dali_crops(AREAS, (1.0, 1.0), turns=True)
        contenders = {
            name: ours(folder, PAPER, batch_size, backend="dali", device="cpu"),
            native: ours(folder, PAPER, batch_size, backend="native"),
            plain: peers.dali(paths, batch_size, NUM_THREADS, work),
            decode: peers.dali(paths, batch_size, NUM_THREADS, peers.dali_decode),
        }
        seconds = bench.in_turn(contenders)
    pairs = [(name, plain), (native, plain), (name, native), (name, decode)]
    bench.report(
        "dali_loader",
        what=f"images a second, {origin}, batches of {batch_size}, {NUM_THREADS} CPU threads",
        seconds=seconds,
        unit="rate",
        ratios={f"{above} over {below}": (below, above) for above, below in pairs},
        goals={f"{name} over {plain}": " (goal: at least 1.5)"},
    )


def run_cache(bench: Bench) -> None:
    off, half, whole, warm = "cache off", "half of it fits", "all of it fits", 3
    # an image that is held at one DCT scale may be wanted at another: after a few epochs that has become rare
    with bench.files(4) as (folder, origin):
        loader = Loader(folder, PAPER, batch_size=64, num_threads=NUM_THREADS, cache="host", cache_bytes=8 * 2**30)
        for _ in range(warm):
            sum(map(len, loader))
        assert loader.cache_statistics is not None
        num_bytes = loader.cache_statistics.held_bytes
        contenders = {off: ours(folder, PAPER, 64, warm=warm), whole: lambda: sum(map(len, loader))}
        contenders[half] = ours(folder, PAPER, 64, warm=warm, cache="host", cache_bytes=num_bytes // 2)
        seconds = bench.in_turn(contenders)
    what = f"microseconds an image, {origin}, batches of 64, {NUM_THREADS} threads"
    ratios = {f"{name} over {off}": (off, name) for name in (whole, half)}
    bench.report("cache", what=what, seconds=seconds, unit="us", ratios=ratios, held=str(loader.cache_statistics))


def run_modern(bench: Bench) -> None:
    batch_size, first, indexed, today = (
        128,
        "augpipe, first epoch",
        "augpipe, row indexes",
        "augpipe, modern, row indexes",
    )
    like_timm, dali, vision, vision_today = (
        "augpipe, timm's recipe, row indexes",
        "DALI",
        "torchvision",
        "torchvision, modern",
    )
    imported = importers.from_timm(**peers.TIMM_ARGUMENTS).recipe.fused()
    timm_recipe = Recipe(border=imported.border, fill=imported.fill, ops=imported.ops, mixing=MIXING)
    with bench.files(4) as (folder, origin):
        paths = sorted(folder.iterdir())
        contenders = {
            first: ours(folder, CROPS, batch_size, is_new=True, backend="native"),
            indexed: ours(folder, CROPS, batch_size, backend="native"),
            today: ours(folder, MODERN, batch_size, backend="native"),
            like_timm: ours(folder, timm_recipe, batch_size, backend="native"),
        }
        if has("nvidia.dali"):
            work = peers.dali_crops((0.08, 1.0), (0.75, 4.0 / 3.0), turns=False)
            contenders[dali] = peers.dali(paths, batch_size, NUM_THREADS, work)
        if has("torchvision"):
            contenders |= dict(
                zip((vision, vision_today), peers.torchvision_epochs(paths, batch_size, NUM_THREADS), strict=True)
            )
        if has("timm"):
            contenders["timm"] = peers.timm_epochs(paths, batch_size, NUM_THREADS)
        seconds = bench.in_turn(
            contenders, settle_s=bench.pick(2.0, 0.0), before=lambda: touch_memory(bench.pick(2**30, 1))
        )
    pairs = [(first, dali), (indexed, dali), (today, indexed), (like_timm, indexed), (first, indexed)]
    pairs += [(first, vision), (indexed, vision), (today, vision_today), (like_timm, "timm")]
    bench.report(
        "modern",
        what=f"milliseconds an image, {origin}, batches of {batch_size}, {NUM_THREADS} threads or workers",
        seconds=seconds,
        unit="ms",
        ratios={f"{above} over {below}": (below, above) for above, below in pairs},
    )


RUNS = {
    "loader": run_loader,
    "dali_loader": run_dali_loader,
    "cache": run_cache,
    "modern": run_modern,
}


def main() -> None:
    bench = Bench(__doc__, rounds=5, names=RUNS)
    for name in bench.names:
        RUNS[name](bench)


if __name__ == "__main__":
    main()
