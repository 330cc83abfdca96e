"""How much memory a piece of code asks for at once, for tests of what must never be whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestStorage(TorchDispatchMode):
    """Notes the largest storage in the CPU's memory among the results of all operations, in this thread.

    Results that lie in an argument's storage are none of the operation's making, nor are files that are mapped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        known = {} if function._schema.name == "aten::set_" else _storages((args, kwargs))
        for number, num_bytes in _storages(result).items():
            if number not in known and num_bytes > self.num_bytes and not _is_mapped(number):
                self.num_bytes = num_bytes
        return result


def _storages(values: Any) -> dict[int, int]:
    """By address, the bytes of each storage."""
    tensors = (one for one in tree_leaves(values) if type(one) in (Tensor, torch.nn.Parameter) and not one.is_meta)
    storages = (one.untyped_storage() for one in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _is_mapped(address: int) -> bool:
    """Whether a file lies at this address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, *_, path = line.split(maxsplit=5) + [""] * (6 - len(line.split(maxsplit=5)))
        start, stop = (int(end, 16) for end in ends.split("-"))
        if start <= address < stop:
            return path.startswith("/") and "shm" not in path
    return False


@contextmanager
def noting(limit: int, owner: Any = None, *methods: str) -> Iterator[LargestStorage]:
    """Fails where this thread, or these methods of a class in whichever thread, made a storage of `limit` bytes."""
    noted = LargestStorage()
    before = {name: getattr(owner, name) for name in methods}

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with LargestStorage() as there:
                result = method(*args, **kwargs)
            noted.num_bytes = max(noted.num_bytes, there.num_bytes)
            return result

        return call

    for name, method in before.items():
        setattr(owner, name, wrapped(method))
    try:
        with noted:
            yield noted
    finally:
        for name, method in before.items():
            setattr(owner, name, method)
    assert noted.num_bytes < limit, f"a storage of {noted.num_bytes} bytes was made; {limit} are a whole split layer's"
