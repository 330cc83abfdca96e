"""Which backend, device and cache a loader gets: checked when it is made, built when its first pass begins."""

import importlib.util
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from augpipe.cache import PixelCache
from augpipe.cache.budget import as_cache_bytes
from augpipe.native.workers import num_usable_cores
from augpipe.pipeline.batches import BatchMaker
from augpipe.pipeline.dali_stage import DaliStage
from augpipe.pipeline.host_output import HostOutput
from augpipe.pipeline.items import Settings
from augpipe.pipeline.stack_output import StackOutput, stack_for
from augpipe.pipeline.stages import Output
from augpipe.planning.output_format import Framework, import_torch
from augpipe.validation.arguments import check_choice

BackendName = Literal["auto", "native", "dali"]
CacheName = Literal["off", "device", "host"]


FEW_THREADS = 4
"""Threads of ours in addition to DALI's on a GPU: they read files and headers, which is mostly Python, so that more of
them wait for each other and take the cores that DALI's threads are bound to. Read when a loader is made. 4, 8 and 16
on 16 cores are not measured yet."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen, and why."""

    backend: Literal["native", "dali"]
    device: Any
    """A torch.device of a CUDA device; None for the CPU."""
    is_on_cuda: bool
    cache: CacheName
    cache_bytes: int | None
    pins_memory: bool
    reason: str | None
    """One line for the log where there was a choice."""

    def first_threads(self, num_threads: int | None) -> int:
        """Threads of ours that a pass begins with; `num_threads` is what a user asks for, or None."""
        if num_threads is not None:
            return num_threads
        num_cores = num_usable_cores()
        return min(FEW_THREADS, num_cores) if self.backend == "dali" and self.is_on_cuda else num_cores

    def make_cache(self, num_samples: int) -> PixelCache | None:
        """The cache for a source of so many samples, sized by what is free now; None with cache="off"."""
        if self.cache == "off":
            return None
        if self.cache == "device" and self.is_on_cuda:
            from augpipe.cache.device_cache import device_cache

            return device_cache(num_samples, self.cache_bytes, self.device)
        from augpipe.cache.host_cache import host_cache

        num_sharing = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # torchrun's word for ranks on a machine
        return host_cache(num_samples, self.cache_bytes, num_sharing)

    def _may_stack(self, settings: Settings, cache: PixelCache | None) -> bool:
        """Not with targets: an item with an impossible one is replaced, and those of a stack never are. Nor with
        functions, which may raise."""
        can_fail = settings.targets is not None or settings.recipe.has_functions
        return self.backend == "native" and cache is None and not can_fail

    def batch_maker(self, settings: Settings, batch_size: int, cache: PixelCache | None) -> BatchMaker:
        """What makes the batches."""
        output: Output
        if self.is_on_cuda:
            from augpipe.pipeline.device_output import DeviceOutput

            output = DeviceOutput(settings, self.device, cache)
        elif self._may_stack(settings, cache) and (stack := stack_for(settings)) is not None:
            output = StackOutput(settings, stack)
        else:
            output = HostOutput(settings)
        if self.backend == "native":
            return BatchMaker(settings, output, cache=cache)
        device_id = self.device.index if self.is_on_cuda and self.device.type == "cuda" else None
        most = 2 * batch_size if settings.recipe.mixing else batch_size  # guests come on top, one a sample at most
        dali = partial(DaliStage, settings, cache=cache, batch_size=most, device_id=device_id)
        return BatchMaker(settings, output, cache=cache, dali=dali)


def choose(
    *,
    backend: BackendName,
    device: Any,
    cache: CacheName,
    cache_bytes: int | None,
    pin_memory: bool,
    framework: Framework,
    makes_mosaics: bool = False,
) -> Choice:
    """Check what a user asks for against this machine, and whether a recipe makes mosaics.

    Raises:
        ValueError: a name is unknown, or two of them do not go together.
        ImportError: DALI is asked for and not installed.
        DeviceError: the machine cannot run the device.
    """
    check_choice("backend", backend, get_args(BackendName))
    check_choice("cache", cache, get_args(CacheName))
    check_choice("pin_memory", pin_memory, (False, True))
    cache_bytes = as_cache_bytes(cache_bytes)
    if cache_bytes is not None and cache == "off":
        raise ValueError(f'cache_bytes={cache_bytes} sizes a cache that is off. Choose cache="device" or cache="host".')
    name = str(device)  # that of a torch.device too
    is_on_cuda = name.partition(":")[0] == "cuda"
    if not is_on_cuda and name != "cpu":
        raise ValueError(
            f'device={device!r} is not known. Choose "cpu", "cuda", or "cuda:1" and so on for one of several.'
        )
    if is_on_cuda and framework != "torch":
        raise ValueError(
            f'framework="{framework}" cannot hold batches on device="{name}". Choose framework="torch": its tensors '
            "have __dlpack__ and __cuda_array_interface__, which CuPy and JAX take without copying."
        )
    if pin_memory and is_on_cuda:
        raise ValueError(f'pin_memory=True is for batches on the CPU, and device="{name}". Leave it out.')
    if pin_memory and not import_torch().cuda.is_available():
        raise ValueError("pin_memory=True needs a CUDA device, and torch finds none. Leave it out.")
    found: Any = None
    if is_on_cuda:
        from augpipe.cuda.device_name import require_device

        found = require_device(name)
    chosen, reason = _backend(backend, found, makes_mosaics=makes_mosaics)
    if chosen == "dali":
        from augpipe.dali.install import require_dali

        require_dali(found.index if found is not None and found.type == "cuda" else None)
    return Choice(
        backend=chosen,
        device=found,
        is_on_cuda=is_on_cuda,
        cache=cache,
        cache_bytes=cache_bytes,
        pins_memory=pin_memory,
        reason=reason,
    )


def _backend(asked: BackendName, device: Any, *, makes_mosaics: bool) -> tuple[Literal["native", "dali"], str | None]:
    if asked != "auto":
        return asked, None
    if device is None:
        return "native", "backend auto: native, as the device is the CPU"
    if makes_mosaics:
        return "native", f"backend auto: native on {device}, as DALI makes no mosaics: photographs decode on the CPU"
    if importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None:
        return "native", f"backend auto: native on {device}, as DALI is not installed: photographs decode on the CPU"
    return "dali", f"backend auto: dali, as the device is {device} and DALI is installed"
