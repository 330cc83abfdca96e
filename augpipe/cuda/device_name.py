"""From the name of a device to a `torch.device` that is known to work, or to what is missing and how to get it."""

import functools
import logging
import re
from typing import TYPE_CHECKING

from augpipe.cuda.facts import THIS_MACHINE, Facts
from augpipe.cuda.requirements import check_capability, check_machine
from augpipe.errors import DeviceError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("augpipe")

__all__ = ["DeviceError", "check_capability", "require_device"]


def require_device(name: str, facts: Facts | None = None) -> "torch.device":
    """The device called `name`, once all that augpipe needs there is known to be well.

    Neither this call nor the check before it initialises CUDA: a process may still fork afterwards. The machine is
    checked once a process, devices each time.

    Args:
        name: "cuda" or "cuda:1". "cuda" is the current device; where CUDA is not in use yet, the one that LOCAL_RANK
            numbers, so that the ranks that torchrun starts share no device, and without torchrun the first one.
        facts: where to ask; None: this machine.

    Returns:
        The device, with its index. In numba's CUDA simulator, which is for tests, "cuda" is the CPU.

    Raises:
        ValueError: there is no such device.
        DeviceError: this machine lacks something, or two of its packages do not go together.
    """
    index = _parse(name)
    facts = facts or THIS_MACHINE
    if facts.simulated():
        return _simulated(name, index, facts)
    _check_once(facts)
    import torch

    num = facts.num_devices()
    if num == 0:
        raise DeviceError(_no_device(facts.visible()))
    if index is None:
        index = _unnamed(num, facts)
    if index >= num:
        listed = ", ".join(f"cuda:{number} ({what})" for number, what in enumerate(facts.names()))
        hidden = facts.visible()
        hint = f", of those that CUDA_VISIBLE_DEVICES={hidden} leaves" if hidden is not None else ""
        raise ValueError(f'device="{name}" is not one of the {num} that there are{hint}: {listed}. Choose one of them.')
    return torch.device("cuda", index)


def _parse(name: str) -> int | None:
    found = re.fullmatch(r"cuda(?::(0|[1-9]\d*))?", name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f'device={name!r} is not a CUDA device. Write "cuda", or "cuda:1" for the second one.')
    return None if found[1] is None else int(found[1])


def _unnamed(num_devices: int, facts: Facts) -> int:
    """The index of "cuda"."""
    current = facts.current()
    if current is not None:
        return current
    rank = facts.local_rank()
    # a rank beyond the devices sees only its own, as where each has its CUDA_VISIBLE_DEVICES
    if rank is None or not rank.isdecimal() or int(rank) >= num_devices:
        return 0
    logger.info('device="cuda" is cuda:%d, by LOCAL_RANK: no device was chosen in this process before', int(rank))
    return int(rank)


def _simulated(name: str, index: int | None, facts: Facts) -> "torch.device":
    if index:
        raise ValueError(f'device="{name}": the CUDA simulator has one device. Write "cuda".')
    if facts.torch() is None:
        raise DeviceError('the CUDA simulator needs torch, which is not installed: pip install "augpipe[torch]"')
    import torch

    return torch.device("cpu")


def _no_device(visible: str | None) -> str:
    if visible is None:
        return (
            "the NVIDIA driver is there, and no GPU: nvidia-smi tells more. A container needs --gpus all; "
            'or choose device="cpu".'
        )
    return f'CUDA_VISIBLE_DEVICES="{visible}" leaves no GPU. Unset it, or name some that nvidia-smi -L lists.'


_check_once = functools.cache(check_machine)
