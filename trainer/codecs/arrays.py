"""numpy arrays and torch tensors, on the CPU or a CUDA device, as the addresses that kernels take.

torch is never imported here: whoever hands a tensor over has done so.
"""

import sys
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A dense run of numbers and where it lies."""

    owner: Array
    """What must stay alive while the address is used: the array or tensor, in one dimension."""
    address: int
    num: int
    device: int | None
    """CUDA ordinal; None on the CPU."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Numbers, and the payload that they are encoded into, or the payloads that are decoded into them in turn."""

    values: Memory
    payloads: tuple[Memory, ...]


def is_tensor(x: object) -> bool:
    """Whether `x` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def flat(x: Array, dtype: str, name: str, *, copy: bool = False) -> Memory:
    """`x` of any shape as one run of `dtype` ("float32" or "uint8"); `ValueError` where it is something else.

    Args:
        copy: whether an `x` that is not dense may be copied; without, that is an error, since a copy would not be
            the caller's memory.
    """
    if isinstance(x, np.ndarray):
        if x.dtype.name != dtype:
            raise ValueError(f"{name} is {x.dtype}: codecs take {dtype}. Convert it first.")
        if not (x.flags.c_contiguous and x.flags.aligned):
            if not copy:
                # not numpy.ascontiguousarray, which leaves what begins between two numbers where it is
                raise ValueError(_not_dense(name, x.shape, "contiguous and aligned", ".copy()"))
            x = np.array(x, order="C")
        return Memory(x.reshape(-1), x.ctypes.data, x.size, None)
    if not is_tensor(x):
        raise ValueError(f"{name} is {type(x).__name__}: codecs take numpy arrays and torch tensors.")
    if str(x.dtype) != f"torch.{dtype}":
        raise ValueError(f"{name} is {x.dtype}: codecs take {dtype}. Convert it first, as by .float().")
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} lies on {x.device}: codecs take tensors of the CPU and of CUDA devices.")
    x = x.detach()
    if not x.is_contiguous():
        if not copy:
            raise ValueError(_not_dense(name, tuple(x.shape), "contiguous", ".contiguous()"))
        x = x.contiguous()
    x = x.view(-1)
    return Memory(x, x.data_ptr(), x.numel(), x.device.index if x.device.type == "cuda" else None)


def _not_dense(name: str, shape: tuple[int, ...], what: str, remedy: str) -> str:
    return f"{name} of shape {shape} is not {what}: codecs work in place on dense memory. Use {remedy} first."


def payload_of(payload: Array, num_bytes: int, num: int) -> Memory:
    """`payload` for `num` numbers; `ValueError` where its size is another than `num_bytes`."""
    memory = flat(payload, "uint8", "payload")
    if memory.num != num_bytes:
        raise ValueError(f"payload has {memory.num} bytes: {num} numbers take {num_bytes}. See num_bytes().")
    return memory


def same_place(first: Memory, second: Memory) -> None:
    """`ValueError` where one of two lies on another device than the other."""
    if first.device != second.device:
        places = ["the CPU" if one.device is None else f"cuda:{one.device}" for one in (first, second)]
        raise ValueError(f"values lie on {places[0]} and the payload on {places[1]}: both must lie on one device.")


def empty_like(owner: Array, num: int, dtype: str) -> Array:
    """(num,) `dtype`, of the same kind and in the same place as `owner`; not initialised."""
    if isinstance(owner, np.ndarray):
        return np.empty(num, dtype)
    return owner.new_empty(num, dtype=getattr(sys.modules["torch"], dtype))
