"""`augpipe prepare` beside a bare loop of decode, resize and encode on the same cores, which writes nothing.

The bare loop is what one would type: simplejpeg's decode, Pillow's Lanczos, Pillow's JPEG encoder, in one process a
core, without profiles, orientation, sums, row indexes, tar files or the disk. Both take the same JPEG files (in the
page cache) to the same scale and quality. Start-up of the processes counts for both. CPU time, of all processes, is
kept beside wall time: other programs on the machine disturb it less.
"""

import io
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import simplejpeg
from PIL import Image

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.native.workers import num_usable_cores
from benchmarks.harness import Bench, Seconds, ratio, spread

SCALE, QUALITY = 256, 90


def bare(paths: list[str]) -> int:
    """Bytes that the files come to."""
    num_bytes = 0
    for path in paths:
        image = Image.fromarray(simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB"))
        if min(image.size) > SCALE:
            factor = SCALE / min(image.size)
            image = image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=QUALITY)
        num_bytes += len(file.getvalue())
    return num_bytes


def main() -> None:
    bench, cores = Bench(__doc__, rounds=2), num_usable_cores()
    made: dict[str, int] = {}
    cpu_s: Seconds = {"bare": [], "prepare": []}
    with bench.files(12) as (folder, origin), TemporaryDirectory() as out:
        paths = sorted(map(str, folder.iterdir()))

        def run_bare() -> None:
            parts = [paths[start::cores] for start in range(cores)]
            with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
                made["bytes_bare"] = sum(pool.map(bare, parts))

        def run_prepare() -> None:
            shutil.rmtree(f"{out}/set", ignore_errors=True)
            settings = PrepareSettings(scales=(str(SCALE),), quality=QUALITY)
            manifest = prepare(FolderSource(folder), Path(out, "set"), settings, engine=LocalEngine(cores))
            assert manifest.num_rejected == 0
            made["bytes_of_tar_files"] = manifest.scales[0].num_bytes

        def timed(name: str, work: Callable[[], None]) -> Callable[[], int]:
            def run() -> int:
                start = sum(os.times()[:4])  # of this process, and of those that it has waited for
                work()
                cpu_s[name].append((sum(os.times()[:4]) - start) / len(paths))
                return len(paths)

            return run

        seconds = bench.in_turn({"bare": timed("bare", run_bare), "prepare": timed("prepare", run_prepare)})
    cpu_s = {name: values[1:] for name, values in cpu_s.items()}  # the first round is not counted
    bench.report(
        "prepare",
        what=f"milliseconds an image, {origin}, to {SCALE} px at quality {QUALITY}, {cores} processes",
        seconds=seconds,
        unit="ms",
        ratios={"rate_of_prepare_over_bare": ("bare", "prepare")},
        cpu_ms={name: spread(values, 1e3) for name, values in cpu_s.items()},
        rate_of_prepare_over_bare_in_cpu_time=round(ratio(cpu_s, "bare", "prepare"), 3),
        **made,
    )


if __name__ == "__main__":
    main()
