"""Section of `gpu_check`: from JPEG files to augmented batches on the device, beside DALI's decoding of the same files.

Everything takes turns in one process, with one thread a core. Files come from the system's page cache.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import in_turn, ratio
from gpu_common import Findings, Run, rates, synchronize

from augpipe import Loader, recipes
from augpipe.workers import num_usable_cores

ROUNDS = 4
MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)


def run(run: Run, findings: Findings) -> None:
    folder = run.many(run.pick(8192, 5))
    threads, batch_size = num_usable_cores(), run.pick(256, 2)
    contenders: dict[str, Callable[[], int]] = {}
    for name, options in _ours(run).items():
        with findings.attempt(name):
            work = epochs(run, folder, options, batch_size)
            work()  # what cannot run does not take part
            contenders[name] = work
    for name, build in _dali_pipelines(run, folder, threads, batch_size).items():
        with findings.attempt(name, is_others=True):
            work = build()
            work()
            contenders[name] = work
    seconds = in_turn(contenders, run.pick(ROUNDS, 1))
    findings.keep("files", {"what": run.origin, "files": len(os.listdir(folder)), "threads": threads})
    findings.keep("batch_size", batch_size)
    findings.keep("images_per_second", {name: rates(values) for name, values in seconds.items()})
    ratios = {
        f"{name} over {plain}": round(ratio(seconds, plain, name), 3)
        for plain in ("DALI decode only", "DALI decode only, smooth upsampling", "DALI decode and its own operators")
        for name in ("augpipe dali", "augpipe native")
        if plain in seconds and name in seconds
    }
    findings.keep("ratios of rates (goal: 0.95 of DALI decode only)", ratios)
    contenders.clear()
    for backend in ("native", "dali"):
        with findings.attempt(f"the cache full, {backend}"):
            findings.keep(f"the cache full, {backend}", _cached(run, folder, backend, batch_size))


def _ours(run: Run) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {
        "augpipe dali": {"backend": "dali"},
        "augpipe dali, prefetch 4": {"backend": "dali", "prefetch": 4},
        "augpipe native": {"backend": "native"},
    }
    return found


def epochs(run: Run, folder: Path, options: dict[str, Any], batch_size: int) -> Callable[[], int]:
    """A function that runs through an epoch, each time the next one, and returns how many images that was."""
    loader = make_loader(run, folder, batch_size, **options)

    def work() -> int:
        num = sum(len(batch) for batch in loader)
        synchronize()
        return num

    return work


def make_loader(run: Run, folder: Path, batch_size: int, **options: Any) -> Loader:
    """A loader for the device: deep_image, float16."""
    recipe = run.pick(recipes.deep_image(), recipes.deep_image(6, (7, 12)))
    return Loader(folder, recipe, batch_size=batch_size, device="cuda", **({"dtype": "float16"} | options))


def _cached(run: Run, folder: Path, backend: str, batch_size: int) -> dict[str, Any]:
    loader = make_loader(run, folder, batch_size, backend=backend, cache="device", drop_last=True)
    for _ in range(2):  # what the last batch left out may come in the second
        for _ in loader:
            pass

    def work() -> int:
        num = sum(len(batch) for batch in loader)
        synchronize()
        return num

    before = loader.cache_statistics
    seconds = in_turn({"": work}, run.pick(5, 1))[""]
    after = loader.cache_statistics
    assert before is not None and after is not None
    return {
        "images_per_second": rates(seconds),
        "statistics": str(after),
        "hits_while_timed": after.hits - before.hits,
        "misses_while_timed": after.misses - before.misses,
    }


def _dali_pipelines(run: Run, folder: Path, threads: int, batch_size: int) -> dict[str, Callable[[], Any]]:
    files = sorted(str(file) for file in folder.iterdir())

    def build(is_smooth: bool, augments: bool) -> Callable[[], int]:
        pipeline = _dali(run, files, threads, batch_size, is_smooth, augments)
        num = len(files) // batch_size

        def work() -> int:
            for _ in range(num):
                pipeline.run()
            synchronize()
            return num * batch_size

        return work

    return {
        "DALI decode only": lambda: build(False, False),
        "DALI decode only, smooth upsampling": lambda: build(True, False),
        "DALI decode and its own operators": lambda: build(False, True),
    }


def _dali(run: Run, files: list[str], threads: int, batch_size: int, is_smooth: bool, augments: bool) -> Any:
    """DALI's file reader and decoder; if it `augments`, then also crop, resize, rotation, mirroring, normalisation."""
    import nvidia.dali as dali
    from nvidia.dali import fn, types

    decoding, device = run.pick(("mixed", 0), ("cpu", None))
    pipeline = dali.Pipeline(batch_size, threads, device, prefetch_queue_depth=2, seed=1)
    with pipeline:
        encoded, _ = fn.readers.file(files=files, name="files", random_shuffle=augments)
        options = {"device": decoding, "output_type": types.RGB, "jpeg_fancy_upsampling": is_smooth}
        if augments:
            size = run.pick(224, 6)
            images = fn.decoders.image_random_crop(encoded, random_area=[0.2, 1.0], **options)
            images = fn.resize(images, size=[size, size])
            images = fn.rotate(
                images, angle=fn.random.uniform(range=[-10.0, 10.0]), size=[size, size], keep_size=True, fill_value=0
            )
            pipeline.set_outputs(
                fn.crop_mirror_normalize(
                    images, dtype=types.FLOAT16, output_layout="CHW", mean=MEAN, std=STD, mirror=fn.random.coin_flip()
                )
            )
        else:
            pipeline.set_outputs(fn.decoders.image(encoded, **options))
    pipeline.build()
    return pipeline
