"""This process among those of the run: rank, world size, device, and the groups that they talk over."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from augpipe.trainer.exchange.ranks import handshake
from augpipe.trainer.parallel import Mesh, make_mesh


@dataclass(frozen=True, kw_only=True)
class World:
    """What the loop needs to know about its processes; there always is a process group, also around one alone."""

    rank: int
    """This process's rank, 0..size - 1."""
    size: int
    """Processes of the run."""
    local_size: int
    """Processes of the run on this machine."""
    device: torch.device
    """Where this process trains."""
    control: dist.ProcessGroup
    """Gloo, all ranks: small numbers in memory, apart from the gradients' group so that neither waits for the other."""
    saving: dist.ProcessGroup
    """Gloo, all ranks: what checkpoints are agreed over, from a thread in the background."""
    mesh: Mesh | None = None
    """The ranks as data × model ranks; None where no layer is split."""
    store: Store
    """A key-value store that all ranks reach; a copy of the connection, for one thread."""

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes for all."""
        return self.rank == 0


@contextmanager
def open_world(device: str, timeout_s: float, model: int = 1) -> Iterator[World]:
    """Join the processes that torchrun started, or be alone; uses the process group that there is, if there is one.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:1".
        timeout_s: longest an exchange may take, in seconds.
        model: ranks of the model axis.

    Raises:
        ValueError: the device does not fit the machine or the number of processes, or `model` does not divide that.
        SyncError: another rank has another `model`.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    timeout = timedelta(seconds=timeout_s)
    owns = not dist.is_initialized()
    if not owns:
        size = dist.get_world_size()
    chosen = choose_device(device, local_rank, size)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if owns:
        backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
        store: Store
        if size == 1:
            store, rank = HashStore(), 0
        else:
            store, rank, size = next(iter(rendezvous("env://", timeout=timeout)))
            store = PrefixStore(_attempt(), store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    try:
        rank, size = dist.get_rank(), dist.get_world_size()
        # made under the same timeout, in the same order on every rank
        control = dist.new_group(backend="gloo", timeout=timeout)
        saving = dist.new_group(backend="gloo", timeout=timeout)
        assert control is not None and saving is not None
        handshake({"parallel.model": model}, {}, control, timeout_s=timeout_s)
        shared = store if owns else dist.distributed_c10d._get_default_store()
        yield World(
            rank=rank,
            size=size,
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            device=chosen,
            control=control,
            saving=saving,
            mesh=_mesh(model, chosen),
            store=shared.clone() if size > 1 else shared,  # type: ignore[attr-defined]  # its stub lacks it
        )
    except BaseException:
        # among several, groups are left as they are: to take them down would wait for ranks that may be dead
        if owns and size == 1:
            dist.destroy_process_group()
        raise
    else:
        if owns:
            dist.destroy_process_group()


def _mesh(model: int, device: torch.device) -> Mesh | None:
    if model == 1:
        return None
    try:
        return make_mesh(model, device_type=device.type)
    except ValueError as error:
        raise ValueError(f"parallel.{error}") from error


def _attempt() -> str:
    """Keeps what ranks write to torchrun's store apart from what they wrote before a restart, where it is the same one.

    On several machines each torchrun counts restarts by itself, so the number would not be the same for all ranks.
    """
    is_one_machine = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    return f"augpipe/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') if is_one_machine else 'any'}"


def choose_device(device: str, local_rank: int, world_size: int) -> torch.device:
    """The device of this process.

    Raises:
        ValueError: CUDA is asked for and not there, or has fewer devices than processes.
    """
    num = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cpu" or (device == "auto" and num == 0):
        return torch.device("cpu")
    if num == 0:
        raise ValueError(f'device="{device}", and torch finds no CUDA device here. Choose "cpu" or "auto".')
    if device.startswith("cuda:"):
        index = int(device.removeprefix("cuda:"))
        if world_size > 1:
            raise ValueError(
                f'device="{device}" names one device, and {world_size} processes need one each. Choose "cuda".'
            )
        if index >= num:
            raise ValueError(f'device="{device}", and there are {num}: cuda:0 to cuda:{num - 1}.')
        return torch.device("cuda", index)
    if local_rank >= num:
        raise ValueError(
            f"local rank {local_rank} finds no CUDA device of its own: there are {num}. "
            'Start as many processes as there are devices, or choose device="cpu".'
        )
    return torch.device("cuda", local_rank)
