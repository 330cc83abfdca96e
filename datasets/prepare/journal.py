"""Which chunks are done: one small file each, written once its shards are on the disk under their names."""

import json
import os
from collections.abc import Callable

from pydantic import ValidationError

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.prepare.chunk import ChunkResult, ChunkTask, prepare_chunk
from augpipe.datasets.shards.half_made import WORK_FOLDER
from augpipe.datasets.shards.index import index_path
from augpipe.datasets.shards.shard_targets import targets_path
from augpipe.sources.protocol import Source


def complete_chunk(source: Source, task: ChunkTask, tick: Callable[[], None] = lambda: None) -> None:
    """What an engine runs: `prepare_chunk`, and then the entry in the journal.

    Raises:
        SampleError, OSError: as `prepare_chunk`; no entry is made.
    """
    result = prepare_chunk(source, task, tick)
    # ASCII: a name may hold what UTF-8 has no bytes for
    text = json.dumps(result.model_dump(mode="json"), separators=(",", ":"))
    write_atomically(entry_path(task.folder, task.number), text.encode("ascii"))


def entry_path(folder: str, number: int) -> str:
    """The journal's file of a chunk."""
    return os.path.join(folder, WORK_FOLDER, f"{number:06}.json")


def read_entry(folder: str, number: int, bounds: tuple[int, int]) -> ChunkResult | None:
    """What became of a chunk; None where it has to be done (again): no whole entry, or its shards are not there.

    Raises:
        OSError: the entry cannot be read.
    """
    try:
        with open(entry_path(folder, number), "rb") as file:
            result = ChunkResult.model_validate_json(file.read())
    except FileNotFoundError:
        return None
    except ValidationError:
        return None
    is_it = result.number == number and (result.start, result.stop) == bounds
    return result if is_it and _has_shards(folder, result) else None


def _has_shards(folder: str, result: ChunkResult) -> bool:
    for scale, shard in result.shards.items():
        path = os.path.join(folder, scale, shard.name)
        try:
            sizes = os.stat(path).st_size, os.stat(index_path(path)).st_size
            if sizes != (shard.num_bytes, shard.index_bytes):
                return False
            if shard.targets_bytes is not None and os.stat(targets_path(path)).st_size != shard.targets_bytes:
                return False
        except FileNotFoundError:
            return False
    return True
