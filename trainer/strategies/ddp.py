"""The baseline: torch's DistributedDataParallel, with the butterfly hook where a codec or an issuer is given."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.exchange.exchange_errors import not_answered
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.meter import butterfly_bytes
from augpipe.trainer.exchange.ranks import destroy_group
from augpipe.trainer.strategies.agreement import Agreement
from augpipe.trainer.strategies.alone import Alone
from augpipe.trainer.strategies.collected import Collected
from augpipe.trainer.strategies.hook import ButterflyState, butterfly_hook
from augpipe.trainer.strategies.protocol import StepReport
from augpipe.trainer.strategies.update import Decision

# one name took over from the other, and the old one warns
_BUFFERS_STAY: dict[str, Any] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers": False
}


class Ddp(Alone):
    """A `Strategy` around DistributedDataParallel. Buffers are rank 0's at the start and each rank's own after that."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        names: Mapping[nn.Parameter, str],
        *,
        codec: Codec,
        exempt_1d: bool,
        error_feedback: bool,
        clip_norm: float | None,
        bucket_bytes: int,
        group: ProcessGroup,
        find_unused_parameters: bool,
        timeout_s: float,
        issuer: Issuer | None,
        left_to_others: list[str],
        strangers: Callable[[], Iterator[nn.Parameter]],
    ) -> None:
        super().__init__(model, optimizer, names, clip_norm=clip_norm)
        self._group = group
        self._agreement = Agreement(optimizer, strangers)
        self._issuer = issuer
        self._timeout_s = timeout_s
        self._device = device = next(iter(names)).device
        if left_to_others:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
                model, left_to_others
            )
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
        if codec.name != "fp32" or issuer is not None:
            self._hook_state, hook = butterfly_hook(
                codec,
                group=group,
                exempt_1d=exempt_1d,
                error_feedback=error_feedback,
                timeout_s=timeout_s,
                issuer=issuer,
            )
            self._ddp.register_comm_hook(self._hook_state, hook)
            if issuer is not None:
                self._hook_state.start(device)  # now, when nothing of the others is under way
            self.meter = self._hook_state.meter
        # what torch's all-reduce moves; it cannot be counted from outside
        num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in names)
        self._bytes_a_step = round(butterfly_bytes(num_bytes, dist.get_world_size(group), lambda num: num))
        self._last_ready = self._exposed_s = self._digest = 0.0
        for parameter in names:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]

    def _ready(self, _parameter: nn.Parameter) -> None:
        self._last_ready = time.perf_counter()

    def no_sync(self) -> AbstractContextManager[None]:
        """DDP's own."""
        return self._ddp.no_sync()

    def collect(self, scaled: bool) -> Collected:
        """As alone: DDP has averaged the gradients at the end of backward."""
        self._exposed_s = time.perf_counter() - self._last_ready if self._last_ready else 0.0
        self._last_ready = 0.0
        if self._hook_state is None:
            self.meter.add("gradients", self._bytes_a_step)
        self._agreement.check()
        return super().collect(scaled)

    def _told(self, norm: Tensor) -> Tensor:
        """As alone; the same copy brings everyone's options."""
        self._digest = self._agreement.digest()
        mine = torch.full((1,), self._digest, dtype=torch.float64, device=self._device)
        everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        self.meter.add("control", (len(everyones) - 1) * mine.nbytes)

        def collective() -> Any:
            return dist.all_gather(everyones, mine, group=self._group, async_op=True)

        what = "optimizer options of the other ranks"
        if self._issuer is not None:
            self._issuer.submit(what, collective, self._group, self._timeout_s).wait()
        else:
            try:
                # on a GPU the host does not wait here, and torch's own watchdog keeps the group's timeout
                timeout = () if self._device.type == "cuda" else (timedelta(seconds=self._timeout_s),)
                collective().wait(*timeout)
            except RuntimeError as error:
                raise not_answered("ddp", what, self._timeout_s, error) from error
        return torch.cat([norm, *everyones])

    def _heard(self, told: list[float]) -> None:
        """Refuse optimizers whose options differ: DDP itself would never tell."""
        self.flush()
        self._agreement.compare(self._digest, told, range(len(told)))

    def flush(self) -> None:
        """Weights are whole whenever `step` is not running; raises `SyncError` where an exchange has failed."""
        if self._hook_state is not None:
            self._hook_state.check()
        if self._issuer is not None:
            self._issuer.check()

    def update(self, decision: Decision) -> StepReport:
        """As alone."""
        return replace(super().update(decision), exposed_s=self._exposed_s)

    def close(self) -> None:
        """End the hook's threads, where there is one, and let go of DDP's process group."""
        if self._hook_state is not None:
            self._hook_state.close()
        destroy_group(self._group)
