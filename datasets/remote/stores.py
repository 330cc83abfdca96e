"""One block store a process for the same settings, so that all sources share its connections and its cache's folder."""

import os
import threading

from augpipe.datasets.remote.blocks import BlockStore
from augpipe.datasets.remote.settings import RemoteSettings

_stores: dict[str, BlockStore] = {}
_lock = threading.Lock()


def store_for(settings: RemoteSettings | None) -> BlockStore:
    """The store for settings; those of the environment if None.

    Raises:
        ValueError: the environment's are wrong.
    """
    settings = settings or RemoteSettings()
    with _lock:
        return _stores.setdefault(settings.key(), BlockStore(settings))


def _unlock() -> None:
    global _lock
    _lock = threading.Lock()  # a fork copies it as it is


os.register_at_fork(after_in_child=_unlock)
