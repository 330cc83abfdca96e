"""The baseline: torch's DistributedDataParallel, with the butterfly hook where a codec is asked for."""

import time
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from augpipe.trainer.codecs.protocol import Codec
from augpipe.trainer.sync.groups import let_go
from augpipe.trainer.sync.hook import ButterflyState, butterfly_hook
from augpipe.trainer.sync.meter import Meter, butterfly_bytes
from augpipe.trainer.sync.protocol import StepReport
from augpipe.trainer.sync.state import full_state, load_full_state
from augpipe.trainer.sync.update import apply_replicated, parameters_of, scale_lr

# one name took over from the other, and the old one warns
_BUFFERS_STAY: dict[str, Any] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers": False
}


class Ddp:
    """A `Strategy` around DistributedDataParallel. Buffers are rank 0's at the start and each rank's own after that."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        names: dict[nn.Parameter, str],
        *,
        codec: Codec,
        exempt_1d: bool,
        error_feedback: bool,
        clip_norm: float | None,
        bucket_bytes: int,
        group: ProcessGroup,
        find_unused_parameters: bool,
        timeout_s: float,
    ) -> None:
        self.optimizer = optimizer
        self.meter = Meter()
        self._names = names
        self._group = group
        device = next(iter(self._names)).device
        self._ddp = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            process_group=group,
            bucket_cap_mb=bucket_bytes / 2**20,
            init_sync=False,  # they have just been broadcast
            **_BUFFERS_STAY,
            find_unused_parameters=find_unused_parameters,
        )
        self.module: nn.Module = self._ddp
        self._hook_state: ButterflyState | None = None
        if codec.name != "fp32":
            self._hook_state, hook = butterfly_hook(
                codec, group=group, exempt_1d=exempt_1d, error_feedback=error_feedback, timeout_s=timeout_s
            )
            self._ddp.register_comm_hook(self._hook_state, hook)
            self.meter = self._hook_state.meter
        self._clip_norm = clip_norm
        # what torch's all-reduce moves; it cannot be counted from outside
        num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in names)
        self._bytes_a_step = round(butterfly_bytes(num_bytes, dist.get_world_size(group), lambda num: num))
        self._last_ready = 0.0
        for parameter in self._names:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]

    def _ready(self, _parameter: nn.Parameter) -> None:
        self._last_ready = time.perf_counter()

    def no_sync(self) -> AbstractContextManager[None]:
        """DDP's own."""
        return self._ddp.no_sync()

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Unscale, clip, update, drop the gradients; DDP has averaged them at the end of backward."""
        exposed_s = time.perf_counter() - self._last_ready if self._last_ready else 0.0
        self._last_ready = 0.0
        if self._hook_state is None:
            self.meter.add("gradients", self._bytes_a_step)
        norm, found_inf, non_finite = apply_replicated(
            self.optimizer, parameters_of(self.optimizer), clip_norm=self._clip_norm, scaler=scaler
        )
        return StepReport(
            grad_norm=norm,
            found_inf=found_inf,
            non_finite=non_finite,
            exposed_s=exposed_s,
            bytes_sent=self.meter.since_last(),
        )

    def flush(self) -> None:
        """Weights are whole whenever `step` is not running."""

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its first one."""
        scale_lr(self.optimizer, factor)

    def state_dict(self) -> dict[str, Any]:
        """The full optimizer state, which every rank has."""
        return full_state(self.optimizer, self._names)

    full_optimizer_state = state_dict

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a full state, whichever strategy it is from."""
        load_full_state(self.optimizer, self._names, state)

    def close(self) -> None:
        """End the hook's threads, where there is one, and let go of DDP's process group."""
        if self._hook_state is not None:
            self._hook_state.close()
        let_go(self._group)
