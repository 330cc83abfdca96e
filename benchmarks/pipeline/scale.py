"""What a billion samples in ten thousand shards cost before the first pixel: opening, memory, look-ups, the order.

Simulated, and how: no image exists. 10,000 tar files of the length that 100,000 images of 100 kB have are
holes from end to end; nothing of them is read but their length. Their indices come in two layouts, since a billion real
ones would fill 44 GB:

- "holes": 10,000 files, each with a real header and the length of 100,000 records and their keys, no two alike; the
  records are holes. This is what start-up, memory and page cache are taken from: to the page cache a hole is a page
  like any other, to the disk it is nothing, so that no time here holds a wait for a disk.
- "links": 16 whole indices under 10,000 names (hard links). This is what the answers of look-ups are checked with.

Everything is opened and asked by the package's own code, each part in a process of its own. "Cold" means that the pages
of the indices were dropped from the page cache; directory entries and inodes stay in the kernel's memory.

Goals, written down before the first run:

- opening takes under 2 s, and under 64 MB of memory of its own, with a limit of 64 open files;
- a look-up of a label or a size takes under 10 µs, and a cold one brings one page of 4 KiB into memory;
- the ids of a rank's first batch come within 1 ms, as fast in mid epoch as at its start, 2 million a second, in under
  1 MB, wherever in a billion they lie;
- all labels at once take the 8 bytes a sample that they are returned in, and not twice that.
"""

import ctypes
import json
import mmap
import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from augpipe.datasets.files.descriptors import FileSet, most_descriptors
from augpipe.datasets.shards.index import HEADER, HEADER_BYTES, MAGIC, RECORD, VERSION, index_path, pack_index
from augpipe.datasets.shards.manifest import Manifest, Scale, ShardInfo
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.sampling import epoch_order
from benchmarks.harness import Bench

NUM_SHARDS, PER_SHARD = 10_000, 100_000
PHOTO_BYTES = 100_000
NUM_CLASSES = 1000
NUM_WHOLE = 16
"""Indices that are written whole; the others of the layout "links" are links to them."""
NUM_LOOKUPS = 20_000
WORLD_SIZE, RANK, BATCH = 1024, 777, 256
FEW_FILES = 64
SEED = 7


def label_at(kind: int, position: int) -> int:
    """What the whole index number `kind` says of a sample."""
    return (position * 7919 + kind) % NUM_CLASSES


def build(folder: Path, layout: str, num_shards: int, per_shard: int) -> None:
    """Write manifest, indices and tar files of one layout."""
    inside = folder / "256"
    inside.mkdir(parents=True)
    shards = []
    for number in range(num_shards):
        name = f"{number:06}.tar"
        kind = number % NUM_WHOLE if layout == "links" else number
        num_bytes, sha256 = PHOTO_BYTES * per_shard + 512 * kind, kind.to_bytes(32, "big")
        with open(inside / name, "wb") as file:
            file.truncate(num_bytes)
        path = index_path(str(inside / name))
        if layout == "holes":
            _write_holes(path, per_shard, 12 * per_shard + number, num_bytes, sha256)
        elif number < NUM_WHOLE:
            _write_whole(path, per_shard, kind, num_bytes, sha256)
        else:
            os.link(inside / f"{kind:06}.idx", path)
        shards.append(
            ShardInfo(
                name=name,
                num_samples=per_shard,
                num_bytes=num_bytes,
                sha256=sha256.hex(),
                index_sha256="0" * 64,
                index_bytes=os.stat(path).st_size,
                head_bytes=0,
                head_sha256="0" * 64,
            )
        )
    Manifest(
        num_samples=num_shards * per_shard,
        scales=(Scale(name="256", shards=tuple(shards)),),
        classes=tuple(f"class {number}" for number in range(NUM_CLASSES)),
        class_counts=(0,) * NUM_CLASSES,
    ).save(folder)
    os.sync()  # a page that is still to be written cannot be dropped from the cache


def _write_holes(path: str, num: int, key_bytes: int, shard_bytes: int, sha256: bytes) -> None:
    head = HEADER.pack(MAGIC, VERSION, RECORD.size, num, key_bytes, 0, shard_bytes, sha256, 0, 0)
    with open(path, "wb") as file:
        file.write(head + zlib.crc32(head).to_bytes(4, "little"))
        file.truncate(HEADER_BYTES + num * RECORD.size + key_bytes)


def _write_whole(path: str, num: int, kind: int, shard_bytes: int, sha256: bytes) -> None:
    keys = [f"{position:09}-{kind:02}" for position in range(num)]
    ends = np.cumsum([len(key) for key in keys])
    records = [
        RECORD.pack(512 + position * PHOTO_BYTES, PHOTO_BYTES - 1024, label_at(kind, position), 256, 341, end, 0, 0, 0)
        for position, end in enumerate(ends.tolist())
    ]
    Path(path).write_bytes(pack_index(records, keys, b"", shard_bytes, sha256).head)


# --- what is measured, each in a process of its own


def opening(folder: str) -> dict[str, Any]:
    """Start-up, its memory, and the page cache that it and cold look-ups fill."""
    indices = [str(path) for path in Path(folder).glob("*/*.idx")]
    drop(indices)
    before, files, maps = memory_kb("RssAnon"), open_files(), num_maps()
    start = time.perf_counter()
    source = ShardSource(folder)
    cold_s = time.perf_counter() - start
    after, pages = memory_kb("RssAnon"), resident_pages(indices)
    report: dict[str, Any] = {
        "samples": len(source),
        "open_s_cold": round(cold_s, 3),
        "own_memory_MB": round((after - before) / 1024, 1),
        "descriptors_held": open_files() - files,
        "maps_held": num_maps() - maps,
        "page_cache_MB_by_opening": round(pages * mmap.PAGESIZE / 1e6, 1),
    }
    ids = ids_at_random(len(source), NUM_LOOKUPS)
    report["label_us_cold"] = per_call_us(source.label, ids)
    more = resident_pages(indices) - pages
    report["page_cache_KiB_a_cold_lookup"] = round(more * mmap.PAGESIZE / 1024 / len(ids), 2)
    report["label_us_warm"] = per_call_us(source.label, ids)
    report["size_us_warm"] = per_call_us(source.size, ids)
    report["len_us"] = per_call_us(lambda _: len(source), ids)
    start = time.perf_counter()
    other = ShardSource(folder)
    report["open_s_warm"] = round(time.perf_counter() - start, 3)
    start = time.perf_counter()
    Manifest.load(folder)
    report["of_it_manifest_s"] = round(time.perf_counter() - start, 3)
    packed = pickle.dumps(other)
    report["pickled_bytes"] = len(packed)
    report["peak_memory_MB (all of the process)"] = round(memory_kb("VmHWM") / 1024, 1)
    report["manifest_MB"] = round((Path(folder) / "manifest.json").stat().st_size / 1e6, 2)
    return report


def few_files(folder: str) -> dict[str, Any]:
    """The same where the process may open few files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
    source = ShardSource(folder)
    ids = ids_at_random(len(source), 1000)
    return {"limit": FEW_FILES, "samples": len(source), "lookups": len([source.label(one) for one in ids])}


def answers(folder: str) -> dict[str, Any]:
    """Look-ups that are checked one by one."""
    source = ShardSource(folder)
    per_shard = source.manifest.scales[0].shards[0].num_samples
    ids = ids_at_random(len(source), NUM_LOOKUPS)
    for one in ids:
        shard, position = divmod(one, per_shard)
        assert source.label(one) == label_at(shard % NUM_WHOLE, position)
        assert source.size(one) == (256, 341)
        assert source.name(one).endswith(f"/{shard:06}.tar/{position:09}-{shard % NUM_WHOLE:02}.jpg")
    return {"lookups_checked": len(ids), "name_us_warm": per_call_us(source.name, ids)}


def descriptors(folder: str) -> dict[str, Any]:
    """What a read costs that finds its shard open, or has to open it: 4 KiB from a hole, by shards at random."""
    paths = [str(path) for path in sorted(Path(folder).glob("*/*.tar"))]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    report: dict[str, Any] = {"shards": len(paths), "kept_open_by_default": most_descriptors()}
    shards = ids_at_random(len(paths), NUM_LOOKUPS)
    for most in (256, 4096, len(paths)):
        if most + 100 > hard:
            report[f"read_us_keeping_{most}"] = f"not measured: the system allows {hard} open files"
            continue
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most + 100, 1024), hard))
        files = FileSet(paths, most)
        per_call_us(lambda shard, files=files: files.read(shard, 4096, 0), shards)
        report[f"read_us_keeping_{most}"] = per_call_us(lambda shard, files=files: files.read(shard, 4096, 0), shards)
    return report


def order_of_a_rank(num_samples: str) -> dict[str, Any]:
    """The ids of one rank: the first batch, a stretch, and from the middle of the epoch."""
    total = int(num_samples)

    def batch(number: int, kind: str, first: int = 0) -> np.ndarray[Any, Any]:
        positions = epoch_order.rank_positions(first + number * BATCH * WORLD_SIZE, total, BATCH, RANK, WORLD_SIZE)
        if kind == "sticky":
            return epoch_order.sticky_sample_ids(positions, total, SEED, 3, RANK, WORLD_SIZE)
        return epoch_order.sample_ids(positions, total, SEED, 3, True)

    start = time.perf_counter()
    batch(0, "plain")
    report: dict[str, Any] = {
        "samples": total,
        "rank": f"{RANK} of {WORLD_SIZE}, batches of {BATCH}",
        "first_ids_of_the_process_s (kernels loaded or compiled)": round(time.perf_counter() - start, 3),
    }
    batch(0, "sticky")
    middle = total // 2 // WORLD_SIZE * WORLD_SIZE
    stretch = range(min(2000, total // 4 // (BATCH * WORLD_SIZE) + 1))
    before = memory_kb("RssAnon")
    for kind in ("plain", "sticky"):
        report[f"{kind}_batch_us_at_the_start"] = per_call_us(lambda _, kind=kind: batch(0, kind), range(200))
        report[f"{kind}_batch_us_in_mid_epoch"] = per_call_us(lambda _, kind=kind: batch(0, kind, middle), range(200))
        start = time.perf_counter()
        num_ids = sum(len(batch(number, kind, middle)) for number in stretch)
        report[f"{kind}_million_ids_a_second"] = round(num_ids / (time.perf_counter() - start) / 1e6, 2)
    report["memory_MB_for_ids"] = round((memory_kb("RssAnon") - before) / 1024, 2)
    return report


def all_labels(folder: str) -> dict[str, Any]:
    """The peak of memory while all labels are read."""
    source = ShardSource(folder)
    before = memory_kb("RssAnon")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM starts anew
    pages = memory_kb("RssFile") + memory_kb("RssShmem")
    start = time.perf_counter()
    labels = source.labels()
    seconds = time.perf_counter() - start
    # the peak holds the pages of the indices too, which are the kernel's to drop
    mapped = memory_kb("RssFile") + memory_kb("RssShmem") - pages
    peak = memory_kb("VmHWM") - mapped - pages - before
    return {
        "samples": len(labels),
        "million_labels_a_second": round(len(labels) / seconds / 1e6, 1),
        "peak_bytes_a_sample": round(peak * 1024 / len(labels), 1),
    }


# --- instruments


def ids_at_random(num: int, count: int) -> list[int]:
    drawn = random.Random(SEED)
    return [drawn.randrange(num) for _ in range(count)]


def per_call_us(call: Callable[[int], object], arguments: Any) -> float:
    start = time.perf_counter()
    for argument in arguments:
        call(argument)
    return round((time.perf_counter() - start) / len(arguments) * 1e6, 2)


def memory_kb(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def num_maps() -> int:
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


def drop(paths: list[str]) -> None:
    """Take the pages of files out of the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident_pages(paths: list[str]) -> int:
    """How many pages of files the page cache holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    total = 0
    for path in paths:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            view = np.frombuffer(mapped, np.uint8)
            held = np.empty(-(-len(view) // mmap.PAGESIZE), np.uint8)
            failed = libc.mincore(
                ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(view)), held.ctypes.data_as(ctypes.c_void_p)
            )
            assert failed == 0, os.strerror(ctypes.get_errno())
            total += int(np.count_nonzero(held & 1))
            del view
    return total


def measured(part: str, argument: object) -> dict[str, Any]:
    """One part in a fresh process."""
    code = "import json, sys; from benchmarks.pipeline import scale"
    code += "; print(json.dumps(getattr(scale, sys.argv[1])(sys.argv[2])))"
    command = [sys.executable, "-c", code, part, str(argument)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    result: dict[str, Any] = json.loads(ended.stdout)
    print(f"{part}: {json.dumps(result)}", flush=True)
    return result


def main() -> None:
    bench = Bench(__doc__, shards=NUM_SHARDS, samples=PER_SHARD, folder=Path)
    shards, samples = bench.pick((bench.options.shards, bench.options.samples), (40, 1000))
    with tempfile.TemporaryDirectory(dir=bench.options.folder) as temporary:
        for layout in ("holes", "links"):
            build(Path(temporary, layout), layout, shards, samples)
        build(Path(temporary, "fewer"), "links", max(shards // 20, 1), samples)
        holes, links = Path(temporary, "holes"), Path(temporary, "links")
        result = {
            "what": f"{shards} shards of {samples} samples; simulated as the script says",
            "opening": measured("opening", holes),
            "few_files": measured("few_files", holes),
            "answers": measured("answers", links),
            "descriptors": measured("descriptors", holes),
            "epoch_order": measured("order_of_a_rank", shards * samples),
            "all_labels (of a twentieth)": measured("all_labels", Path(temporary, "fewer")),
        }
    bench.keep("scale", result)


if __name__ == "__main__":
    main()
