"""Sizes and times of writing of the files that a cache's images were read from: one that was replaced is noticed."""

import time
from typing import Literal

import numpy as np

from augpipe.sources.protocol import Source, stamp_of

CHECK_S = 0.05
"""How long files are looked at as a pass begins; some 20,000 on a local disk. Those left come in the next passes."""
LEAST_CHECKED = 256
"""As many are looked at however long it takes."""

REMEDY = "Make a new Loader, and leave files alone while one lives."


class FileStamps:
    """What files were like when they were read; 16 bytes for each. Safe from several threads.

    Args:
        source: whose files; it takes `stamp` to know anything (`StampedSource`).
        label_maps: whether its label maps are read, too.
    """

    def __init__(self, source: Source, *, label_maps: bool = False) -> None:
        self._source = source
        self._kinds = [_Noted(source, "stamp", "it")]
        if label_maps:
            self._kinds.append(_Noted(source, "label_map_stamp", "its label map"))
        self._next = 0

    def note(self, sample_id: int) -> str:
        """Remember the files of a sample that is about to be read.

        Remembered after it, a file that is replaced in between would pass as the one that was read.

        Returns:
            How one has changed since it was read before; empty where none has, or cannot be looked at.
        """
        return next(filter(None, (kind.note(sample_id) for kind in self._kinds)), "")

    def check(self) -> None:
        """Look at the files that were read, as far as `CHECK_S` lets it; the next call goes on there.

        Raises:
            ValueError: one has changed; names it.
        """
        read = np.flatnonzero(np.any([kind.stamps[:, 0] for kind in self._kinds], axis=0))
        read = np.roll(read, -int(np.searchsorted(read, self._next)))
        end = time.monotonic() + CHECK_S
        for number, sample_id in enumerate(read.tolist()):
            if number >= LEAST_CHECKED and time.monotonic() >= end:
                self._next = sample_id
                return
            for kind in self._kinds:
                changed = kind.changed(sample_id, kind.look(sample_id))
                if changed:
                    raise ValueError(f"{self._source.name(sample_id)}: {changed}. {REMEDY}")


class _Noted:
    """Files of one kind, one a sample."""

    def __init__(self, source: Source, by: Literal["stamp", "label_map_stamp"], name: str) -> None:
        self._source, self._by, self._name = source, by, name
        self.stamps = np.zeros((len(source), 2), np.int64)  # not touched before it is used

    def note(self, sample_id: int) -> str:
        found = self.look(sample_id)
        changed = self.changed(sample_id, found)
        if found is not None and not changed:
            self.stamps[sample_id] = found
        return changed

    def look(self, sample_id: int) -> tuple[int, int] | None:
        try:
            return stamp_of(self._source, sample_id, self._by)
        except OSError:  # reading it says so; what is held of it was right when it was there
            return None

    def changed(self, sample_id: int, found: tuple[int, int] | None) -> str:
        size, time_ns = self.stamps[sample_id].tolist()
        if found is None or not size or found == (size, time_ns):
            return ""
        if found[0] != size:
            what = f"it had {size:,} bytes and has {found[0]:,}"
        else:
            what = f"it has {size:,} bytes as before, and was rewritten"
        return f"{self._name} has changed since it was read into the cache: {what}"
