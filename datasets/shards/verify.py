"""Whether a data set is as it was written: every shard, index and sample against the manifest and each other."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from augpipe.datasets.remote.urls import as_url, shown
from augpipe.datasets.shards.check_shard import Fault, ShardCheck, ShardReport
from augpipe.datasets.shards.index import index_path
from augpipe.datasets.shards.manifest import MANIFEST_NAME, Manifest, Scale
from augpipe.datasets.shards.shard_targets import targets_path
from augpipe.native.workers import num_usable_cores

__all__ = ["Fault", "verify"]


class _StoppedError(Exception):
    """Ends the check of a shard once that of another has failed, or the user has had enough."""


def verify(
    folder: str | os.PathLike[str],
    *,
    deep: bool = False,
    num_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Fault]:
    """Check a data set that `augpipe prepare` wrote; nothing is changed.

    Every tar file and index is read once and compared with its SHA-256; each sample with its CRC-32, its tar headers,
    its label and its size, so that the faults name the samples; the manifest's counts with what is there.

    Args:
        folder: holds manifest.json.
        deep: decode every image too.
        num_threads: shards checked at once; one a core if left out.
        progress: called with the bytes of tar files read since the last call, by one thread at a time.

    Returns:
        What is damaged, scale by scale in the order of the samples; empty where all is well.

    Raises:
        ValueError: there is no manifest, or it cannot be used; or `folder` is a URL.
        OSError: it cannot be read.
    """
    if (url := as_url(folder)) is not None:
        raise ValueError(
            f"{shown(url)} is a URL, and verify takes a folder: copy the data set here, or run it there. What a loader "
            "reads from a URL is compared with the index's CRC-32 each time."
        )
    root = os.fspath(folder)
    manifest = Manifest.load(root)
    stop, lock = threading.Event(), threading.Lock()

    def report(num_bytes: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if progress is not None:
            with lock:
                progress(num_bytes)

    checks = [check for scale in manifest.scales for check in _checks(root, scale, manifest, deep, report)]
    pool = ThreadPoolExecutor(num_threads or num_usable_cores())
    try:
        reports = iter(list(pool.map(ShardCheck.run, checks)))
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    faults: list[Fault] = []
    for scale in manifest.scales:
        of_scale = [next(reports) for _ in scale.shards]
        faults += [fault for shard in of_scale for fault in shard.faults]
        faults += _check_counts(manifest, scale, of_scale)
        faults += _find_strays(root, scale)
    return faults


def _checks(
    root: str, scale: Scale, manifest: Manifest, deep: bool, progress: Callable[[int], None]
) -> list[ShardCheck]:
    checks = []
    first_id = 0
    for shard in scale.shards:
        checks.append(
            ShardCheck(
                root,
                scale.name,
                shard,
                first_id=first_id,
                manifest=manifest,
                deep=deep,
                progress=progress,
            )
        )
        first_id += shard.num_samples
    return checks


def _check_counts(manifest: Manifest, scale: Scale, shards: Sequence[ShardReport]) -> list[Fault]:
    """The manifest's counts of classes; only where every sample could be read, for else they differ anyway."""
    counts: Counter[int] = Counter()
    for shard in shards:
        counts.update(shard.label_counts)
    if counts.total() != manifest.num_samples:
        return []
    return [
        Fault(
            path=MANIFEST_NAME,
            reason=f"class_counts has {expected} samples of class {label} ({name!r}), and scale {scale.name} holds "
            f"{counts[label]}",
        )
        for label, (name, expected) in enumerate(zip(manifest.classes, manifest.class_counts, strict=True))
        if counts[label] != expected
    ]


def _find_strays(root: str, scale: Scale) -> list[Fault]:
    """Shards that the manifest does not know: whoever opens the folder by a pattern of names would read them."""
    try:
        found = os.listdir(os.path.join(root, scale.name))
    except OSError:
        return []  # each of its shards is a fault already
    known = {name for shard in scale.shards for name in (shard.name, index_path(shard.name))}
    known |= {targets_path(shard.name) for shard in scale.shards if shard.targets_bytes is not None}
    strays = sorted(name for name in found if name.endswith((".tar", ".idx", ".targets")) and name not in known)
    return [Fault(path=f"{scale.name}/{name}", reason="is not in the manifest") for name in strays]
