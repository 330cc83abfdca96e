"""A bounded cache of what is loaded in groups of samples, shared by any number of threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Group = TypeVar("Group")


class GroupCache(Generic[Group]):
    """Groups by number; those not asked for longest are dropped first.

    A group that several threads ask for is loaded once, by the first of them, while the others wait.

    Args:
        load: gives a group and the bytes that it holds; called without a lock held, by several threads at once.
        max_bytes: of all groups kept. The group loaded last is kept in any case.
    """

    def __init__(self, load: Callable[[int], tuple[Group, int]], max_bytes: int) -> None:
        self._load = load
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[int, tuple[Group, int]] = OrderedDict()
        self._loading: dict[int, Future[Group]] = {}
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """The bytes of all groups kept."""
        return self._num_bytes

    def get(self, number: int) -> Group:
        """The group, loaded if need be; raises what `load` raises, and tries again at the next call."""
        with self._lock:
            kept = self._kept.get(number)
            if kept is not None:
                self._kept.move_to_end(number)
                return kept[0]
            pending = self._loading.get(number)
            if pending is None:
                mine = self._loading[number] = Future()
        if pending is not None:
            return pending.result()
        try:
            group, num_bytes = self._load(number)
        except BaseException as error:
            with self._lock:
                del self._loading[number]
            mine.set_exception(error)
            raise
        with self._lock:
            self._kept[number] = group, num_bytes
            self._num_bytes += num_bytes
            while self._num_bytes > self._max_bytes and len(self._kept) > 1:
                self._num_bytes -= self._kept.popitem(last=False)[1][1]
            del self._loading[number]
        mine.set_result(group)
        return group
