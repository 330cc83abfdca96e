"""A stand-in for `HostCopy` that notes when a copy begins and when it is read."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def arriving(order: list[str], arrived: Callable[[Tensor], Tensor]) -> Any:
    """The class; `order` gets "copied" and "read", and `arrived` makes the copy in the host's memory."""

    class Arriving:
        def __init__(self, numbers: Tensor) -> None:
            order.append("copied")
            self._numbers = arrived(numbers)

        def read(self) -> Tensor:
            order.append("read")
            return self._numbers

    return Arriving
