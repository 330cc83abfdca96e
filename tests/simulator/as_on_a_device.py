"""CPU tensors that take the way of a GPU's through an exchange, while the simulator runs the kernels."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from augpipe.gpu_ops.codec.cuda import launch as codec_launch
from augpipe.trainer.codecs import arrays, base_codec
from augpipe.trainer.codecs.arrays import Memory, flat
from augpipe.trainer.exchange import bucket as bucket_module
from augpipe.trainer.exchange import message as wire_module

WAITING = ("__bool__", "__float__", "__int__", "cpu", "item", "numpy", "tolist")
"""By these a host waits for a tensor of a GPU."""


class Work(TorchDispatchMode):
    """Counts what a GPU would have to do: torch's operators but for views, and our kernels by their grids."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.grids: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and not func._schema.name.startswith("aten::empty"):
            self.operators[str(func)] += 1
        return func(*args, **(kwargs or {}))

    @property
    def num(self) -> int:
        """Operators and kernels."""
        return self.operators.total() + len(self.grids)


def _on_device(x: torch.Tensor, dtype: str, name: str, *, copy: bool = False) -> Memory:
    memory = flat(x, dtype, name, copy=copy)
    return Memory(memory.owner, memory.address, memory.num, 0)


def _refuse(*arguments: object) -> None:
    raise AssertionError("the host would wait for a GPU")


@contextmanager
def built_on_a_device() -> Iterator[None]:
    """Buckets that are built meanwhile take CPU tensors for a GPU's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bucket_module, "on_gpu", lambda values: True)
        yield


@contextmanager
def used_on_a_device() -> Iterator[Work]:
    """So do wires and codecs; the host must not wait. Gives what is done meanwhile."""
    work, launch = Work(), codec_launch._launch

    def noted(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> None:
        work.grids.append(grid)
        launch(kernel, grid, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire_module, "on_gpu", lambda values: True)
        for module in (arrays, base_codec):
            patched.setattr(module, "flat", _on_device)
        patched.setattr(codec_launch, "_launch", noted)
        for waiting in WAITING:
            patched.setattr(torch.Tensor, waiting, _refuse)
        with work:
            yield work
