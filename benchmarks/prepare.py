"""`augpipe prepare` beside a bare loop of decode, resize and encode on the same cores, which writes nothing.

The bare loop is what one would type: simplejpeg's decode, Pillow's Lanczos, Pillow's JPEG encoder, in one process a
core, without profiles, orientation, sums, row indexes, tar files or the disk. Both take the same JPEG files (in the
page cache) to the same scale and quality. Start-up of the processes counts for both. CPU time, of all processes, is
kept beside wall time: other programs on the machine disturb it less.
"""

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import simplejpeg
from common import in_turn, photographs, ratio, save, summary
from PIL import Image

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.native.workers import num_usable_cores

COPIES = 12
ROUNDS = 2
SCALE, QUALITY = 256, 90


def bare(paths: list[str]) -> int:
    num_bytes = 0
    for path in paths:
        pixels = simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB")
        image = Image.fromarray(pixels)
        if min(image.size) > SCALE:
            factor = SCALE / min(image.size)
            image = image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=QUALITY)
        num_bytes += len(file.getvalue())
    return num_bytes


def main() -> None:
    cores = num_usable_cores()
    encoded, origin = photographs()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for copy in range(COPIES):
            for number, data in enumerate(encoded):
                folder = root / f"photos/{copy}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{number:04}.jpg").write_bytes(data)
        paths = sorted(map(str, root.rglob("*.jpg")))
        source = FolderSource(root / "photos")
        made: list[int] = []
        cpu_s: dict[str, list[float]] = {"bare": [], "prepare": []}

        def in_cpu_time(name: str, work: Callable[[], int]) -> Callable[[], int]:
            def run() -> int:
                start = sum(os.times()[:4])  # of this process, and of those that it has waited for
                num = work()
                cpu_s[name].append((sum(os.times()[:4]) - start) / num)
                return num

            return run

        def run_bare() -> int:
            parts = [paths[start::cores] for start in range(cores)]
            with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
                made.append(sum(pool.map(bare, parts)))
            return len(paths)

        def run_prepare() -> int:
            out = root / "out"
            shutil.rmtree(out, ignore_errors=True)
            settings = PrepareSettings(scales=(str(SCALE),), quality=QUALITY)
            manifest = prepare(source, out, settings, engine=LocalEngine(cores))
            assert manifest.num_rejected == 0
            made.append(manifest.scales[0].num_bytes)
            return len(paths)

        contenders = {"bare": run_bare, "prepare": run_prepare}
        seconds = in_turn({name: in_cpu_time(name, work) for name, work in contenders.items()}, ROUNDS)
        cpu_s = {name: values[1:] for name, values in cpu_s.items()}  # the first round is not counted
        save(
            "prepare",
            {
                "photographs": origin,
                "files": len(paths),
                "scale": SCALE,
                "quality": QUALITY,
                "processes": cores,
                "ms_a_photograph": summary(seconds),
                "rate_of_prepare_over_bare": round(ratio(seconds, "bare", "prepare"), 3),
                "cpu_ms_a_photograph": summary(cpu_s),
                "rate_of_prepare_over_bare_in_cpu_time": round(ratio(cpu_s, "bare", "prepare"), 3),
                "load_average": [round(load, 1) for load in os.getloadavg()],
                "bytes_bare": made[-2],
                "bytes_of_tar_files": made[-1],
            },
        )


if __name__ == "__main__":
    sys.exit(main())
