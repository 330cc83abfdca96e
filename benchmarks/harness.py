"""What every measurement shares: options, images, contenders in turn, the machine, a dated result and a table of it.

A script says what is to be measured; a `Bench` does the rest:

    bench = Bench(__doc__, rounds=7)
    seconds = bench.in_turn({"ours": ours, "theirs": theirs})
    bench.report("loader", what="a photograph", seconds=seconds, unit="us", ratios={"gain": ("theirs", "ours")})

Every script takes --rounds, --no-save, and --quick: one round of the smallest size, to see that it runs; nothing is
kept. Scripts that train keep each finished run (`Kept`), and go on where they were stopped.
"""

import argparse
import io
import json
import math
import os
import platform
import statistics
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.native.workers import num_usable_cores

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "docs" / "images"
NUM_DRAWN = 250
"""Images drawn by `augpipe sample` where no real ones are at hand."""
UNITS = {"ms": ("milliseconds", 1e3), "us": ("microseconds", 1e6), "rate": ("images_per_second", 1.0)}
PACKAGES = (
    *("augpipe", "numpy", "numba", "simplejpeg", "pillow", "torch", "torchvision", "timm", "opencv-python-headless"),
    *("albumentations", "ultralytics", "nvidia-dali-cuda130", "numba-cuda", "bitsandbytes"),
)

Seconds = dict[str, list[float]]
"""Of each contender, what an item takes: one entry a round."""


class Bench:
    """One run of a script: what it was asked for, and what becomes of what it finds.

    Args:
        about: the script's docstring, shown by --help.
        rounds: how often contenders take their turn.
        names: parts of the script that can be chosen by name; all where none is named.
        options: further options by name with their default: a tuple takes several values; False is a flag; a type has
            no default, and `Path` stands in the kept command as its name in capitals.
    """

    def __init__(self, about: str | None, *, rounds: int = 5, names: Iterable[str] = (), **options: Any) -> None:
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        names, options = tuple(names), {"rounds": rounds} | options
        if names:
            parser.add_argument("names", nargs="*", choices=[*names, []], help="all, where none is named")
        for name, default in options.items():
            how: dict[str, Any] = {"default": default, "type": type(default)}
            if isinstance(default, tuple):
                how |= {"nargs": "+", "type": type(default[0])}
            elif isinstance(default, type):
                how = {"type": default}
            elif default is False:
                how = {"action": "store_true"}
            parser.add_argument(f"--{name.replace('_', '-')}", **how)
        parser.add_argument("--quick", action="store_true", help="one round of the smallest size; nothing is kept")
        parser.add_argument("--no-save", action="store_true", help="print and keep nothing")
        self.options = parser.parse_args()
        self.is_quick: bool = self.options.quick
        self.rounds: int = 1 if self.is_quick else self.options.rounds
        self.names: tuple[str, ...] = tuple(getattr(self.options, "names", ())) or names
        given = [*getattr(self.options, "names", ())]
        for name, default in options.items():
            value = getattr(self.options, name)
            if value not in (default, None) and not isinstance(default, type):
                told = "" if value is True else " ".join(map(str, value if isinstance(value, list) else [value]))
                given.append(f"--{name.replace('_', '-')} {told}".strip())
            elif isinstance(default, type) and value is not None:
                given.append(f"--{name.replace('_', '-')} {name.upper() if default is Path else value}")
        self.command = " ".join([f"python -m {_module()}", *given])

    def pick(self, usual: Any, quick: Any) -> Any:
        """A size: the usual one, or that of --quick."""
        return quick if self.is_quick else usual

    def data(self, file: str) -> Path:
        """The folder that AUGPIPE_DATA names, which must hold `file`."""
        folder = os.environ.get("AUGPIPE_DATA")
        if folder is None or not Path(folder, file).exists():
            raise SystemExit(f"Set AUGPIPE_DATA to the folder that holds {file}.")
        if "AUGPIPE_DATA" not in self.command:
            self.command = f"AUGPIPE_DATA=FOLDER {self.command}"
        return Path(folder)

    def photographs(self) -> tuple[list[bytes], str]:
        """Encoded images, and where they are from."""
        encoded, origin = photographs(self.pick(NUM_DRAWN, 16))
        return (encoded[:16], f"16 of {origin}") if self.is_quick else (encoded, origin)

    @contextmanager
    def files(self, copies: int = 1) -> Iterator[tuple[Path, str]]:
        """A folder of the images, each `copies` times, and where they are from."""
        encoded, origin = self.photographs()
        with TemporaryDirectory() as folder:
            for number, data in enumerate(encoded * self.pick(copies, 1)):
                Path(folder, f"{number:05}.jpg").write_bytes(data)
            yield Path(folder), origin if copies == 1 else f"{copies}x {origin}"

    def in_turn(self, contenders: dict[str, Callable[[], int]], rounds: int = 0, **how: Any) -> Seconds:
        """`in_turn`, as many rounds as were asked for."""
        return in_turn(contenders, min(rounds or self.rounds, 1 if self.is_quick else 1_000), **how)

    def report(
        self,
        name: str,
        *,
        what: str,
        seconds: Seconds,
        unit: str,
        ratios: dict[str, tuple[str, str]] | None = None,
        goals: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Keep seconds and ratios: of each ratio the contender above the line, and the one below it."""
        told = {title + (goals or {}).get(title, ""): pair for title, pair in (ratios or {}).items()}
        found = {title: round(ratio(seconds, *pair), 3) for title, pair in told.items() if set(pair) <= set(seconds)}
        key, factor = UNITS[unit]
        table = {
            one: spread([1 / value for value in of] if unit == "rate" else of, factor) for one, of in seconds.items()
        }
        for one, row in table.items():
            print(f"  {one:64}{row['median']:12.4g} {key.replace('_', ' ')}")
        for title, value in found.items():
            print(f"  {title:64}{value:12.3f}")
        self.keep(name, {"what": what, key: table, "ratios": found} | more)

    def keep(self, name: str, result: dict[str, Any]) -> None:
        """Write a dated result with the machine and the command; only print it where nothing is to be kept."""
        now = datetime.now(UTC)
        if self.is_quick or self.options.no_save:
            print(json.dumps(result, indent=2, default=str)[: self.pick(None, 2_000)])
            return
        head = {"benchmark": name, "date": now.strftime("%Y-%m-%d"), "machine": machine(), "command": self.command}
        path = RESULTS / f"{now:%Y-%m-%d}-{name}.json"
        path.write_text(json.dumps(head | result | {"load_average": os.getloadavg()[0]}, indent=2) + "\n")
        print(json.dumps(result, indent=2))
        print(f"kept in {path}")

    @contextmanager
    def kept(self) -> Iterator["Kept"]:
        """Where finished runs stay: the folder that was asked for, else a temporary one of today; none of --quick."""
        if self.is_quick:
            with TemporaryDirectory() as folder:
                yield Kept(Path(folder))
            return
        of_today = f"augpipe-{_module().rpartition('.')[2]}-{datetime.now(UTC):%Y-%m-%d}"
        yield Kept((getattr(self.options, "kept", None) or Path(gettempdir()) / of_today).absolute())


class Kept:
    """Finished runs, a JSON file each: what is there is not done again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return (self.folder / f"{name}.json").exists()

    def put(self, name: str, result: Any) -> None:
        """Keep it."""
        (self.folder / f"{name}.json").write_text(json.dumps(result))

    def get(self, name: str, make: Callable[[], Any] | None = None) -> Any:
        """What is kept under a name, made where it is not there."""
        if make is not None and not self.has(name):
            self.put(name, make())
        return json.loads((self.folder / f"{name}.json").read_text())


def _module() -> str:
    """How Python was asked for the script that runs."""
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec is not None else Path(sys.argv[0]).stem


def photographs(num_drawn: int = NUM_DRAWN) -> tuple[list[bytes], str]:
    """Encoded images, and where they are from: photos.tar in $AUGPIPE_DATA, else the sample dataset."""
    folder = os.environ.get("AUGPIPE_DATA")
    if folder:
        with tarfile.open(Path(folder) / "photos.tar") as tar:
            files = sorted((member for member in tar if member.isfile()), key=lambda member: member.name)
            return [tar.extractfile(member).read() for member in files], f"{len(files)} ImageNet photographs"
    from augpipe.datasets.synthetic.generate import generate

    with TemporaryDirectory() as out:
        generate(Path(out) / "sample", num=num_drawn)
        files = sorted(Path(out).rglob("*.jpg"))
        return [file.read_bytes() for file in files], f"{len(files)} pictures of the sample dataset"


def imagenet_sized(encoded: list[bytes], num: int) -> list[npt.NDArray[np.uint8]]:
    """The first `num` images at the area of 500x375 pixels, ImageNet's usual size, as (H, W, 4) RGBX arrays."""
    resized = []
    for data in encoded[:num]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        scale = math.sqrt(500 * 375 / (image.width * image.height))
        size = round(image.width * scale), round(image.height * scale)
        resized.append(np.array(image.resize(size, Image.Resampling.LANCZOS).convert("RGBX")))
    return resized


def in_turn(
    contenders: dict[str, Callable[[], int]],
    rounds: int,
    *,
    settle_s: float = 0.0,
    before: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """Seconds an item of each contender, one entry a round, after one round that is not counted.

    A contender does its work and returns how many items that was. They take turns, so that a machine that slows down
    slows all of them. One that works ahead of what it was asked for (DALI) gets `settle_s` seconds after its turn to
    end that: uncounted there, but not at the cost of the next one. `before` is called before each turn, uncounted.
    Work of one thread alone can be timed by another `clock`, `time.thread_time`.
    """
    seconds: Seconds = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, work in contenders.items():
            before()
            start = clock()
            num = work()
            elapsed = clock() - start
            time.sleep(settle_s)
            if turn:
                seconds[name].append(elapsed / num)
    return seconds


def rendering_alone(work: Callable[[], int], rounds: int) -> float:
    """Least seconds an item that a transform's call renders, by this thread's clock: without plans and containers."""
    from augpipe.augment_call import host_images

    render, spent = host_images.render, [0.0]

    def timed(*args: Any, **kwargs: Any) -> None:
        start = time.thread_time()
        render(*args, **kwargs)
        spent[-1] += time.thread_time() - start

    host_images.render = timed
    try:
        for _ in range(rounds):
            num = work()
            spent[-1] /= num
            spent.append(0.0)
    finally:
        host_images.render = render
    return min(spent[:-1])


def touch_memory(num_bytes: int) -> None:
    """Write to memory and free it, so that whoever asks next gets some that is there.

    A virtual machine hands pages that were freed some seconds ago back to its host, and writing to such ones again was
    seen to take 2.8 ms a MiB, where it takes 0.1 ms else: work that allocates its buffers anew paid for what others
    had freed.
    """
    np.empty(num_bytes, np.uint8)[::4096] = 1


def ratio(seconds: Seconds, above: str, below: str) -> float:
    """Median over the rounds of one contender's time over another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[above], seconds[below], strict=True))


def spread(values: Sequence[float], factor: float = 1.0) -> dict[str, float]:
    """Minimum, median and maximum."""
    kinds = {"min": min, "median": statistics.median, "max": max}
    return {name: round(kind(values) * factor, 4) for name, kind in kinds.items()}


def machine() -> dict[str, object]:
    """CPU, cores and the versions that matter."""
    from llvmlite.binding import get_host_cpu_name

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cpu": named[0] if named else platform.processor(),
        "llvm_cpu": get_host_cpu_name(),
        "cores": num_usable_cores(),
        "python": platform.python_version(),
        "versions": versions,
    }


def half_width(values: Sequence[float]) -> float:
    """Half the width of the mean's 95 % confidence interval (Student's t); of two values at least."""
    from scipy import stats

    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """The mean and `half_width` in percent; one value has no interval."""
    half = round(100 * half_width(values), 2) if len(values) > 1 else None
    return {"mean, %": round(100 * statistics.mean(values), 2), "95 % confidence, +- %": half}


def each(shares: Sequence[float]) -> dict[str, Any]:
    """Shares of all seeds in percent, and their mean with its interval."""
    return {"each seed, %": [round(100 * value, 2) for value in shares], **interval(shares)}
