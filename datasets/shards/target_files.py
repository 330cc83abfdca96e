"""The targets of all shards of a scale: each shard's file is read when it is first asked, and stays in memory."""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from augpipe.datasets.shards.manifest import ShardInfo
from augpipe.datasets.shards.shard_targets import HEAD, Ints, ShardTargets, table_bytes_of, unpack_map
from augpipe.sources.targets import LabelMap, Targets, joined


class TargetFiles:
    """Targets by shard and place; safe from several threads.

    Args:
        names: of the files, for messages.
        shards: what the manifest says of them.
        read: (file's number, bytes, offset) -> the bytes there.
    """

    def __init__(
        self, names: Sequence[str], shards: Sequence[ShardInfo], read: Callable[[int, int, int], bytes]
    ) -> None:
        self._names, self._shards, self._read = names, shards, read
        self._tables: list[tuple[ShardTargets, int] | None] = [None] * len(names)
        self._lock = threading.Lock()

    def table(self, shard: int) -> ShardTargets:
        """What a shard's file says.

        Raises:
            ValueError: it is damaged; names it.
            OSError: it cannot be read.
        """
        return self._table(shard)[0]

    def _table(self, shard: int) -> tuple[ShardTargets, int]:
        """A shard's table, and where its label maps begin."""
        with self._lock:
            found = self._tables[shard]
            if found is None:
                name, info = self._names[shard], self._shards[shard]
                num_bytes = table_bytes_of(name, self._read(shard, HEAD.size, 0))
                start = HEAD.size + num_bytes
                if start > (info.targets_bytes or 0):
                    raise ValueError(
                        f"{name} is damaged: it has no {num_bytes} bytes. augpipe verify lists all that is."
                    )
                table = ShardTargets(name, self._read(shard, num_bytes, HEAD.size), info.num_samples)
                found = self._tables[shard] = table, start
            return found

    def of(self, shards: Ints, positions: Ints) -> Targets | None:
        """The objects of samples, of which (B,) shards and places there are given; None where none are known."""
        parts = []
        for shard in np.unique(shards).tolist():
            where = np.flatnonzero(shards == shard)
            parts.append((where, self.table(shard).of(positions[where])))
        if len(parts) == 1:
            return parts[0][1]
        return joined(parts, len(shards)) if parts else self.table(0).of(positions)

    def label_map(self, shard: int, position: int) -> LabelMap:
        """A sample's label map.

        Raises:
            ValueError: it is damaged; the reason alone.
            OSError: it cannot be read.
        """
        table, start = self._table(shard)
        begin, end = int(table.map_ends[position - 1]) if position else 0, int(table.map_ends[position])
        if start + end > (self._shards[shard].targets_bytes or 0):
            raise ValueError("its label map is damaged: it lies behind the end of its file")
        return unpack_map(self._read(shard, end - begin, start + begin))
