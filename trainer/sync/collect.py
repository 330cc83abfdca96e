"""Collects gradients as backward makes them and starts each bucket's reduction when it is complete."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from torch import nn
from torch.utils.hooks import RemovableHandle

from augpipe.trainer.sync.engine import Engine
from augpipe.trainer.sync.plan import Plan
from augpipe.trainer.sync.unit import Unit


class Collector:
    """Hooks on the parameters; buckets start in the schedule's order, since collectives must be in one order
    everywhere."""

    def __init__(
        self, plan: Plan, units: list[Unit], engine: Engine, everything: Callable[[], Iterator[nn.Parameter]]
    ) -> None:
        self._plan = plan
        self._units = units
        self._engine = engine
        self._everything = everything
        self._lock = RLock()
        self._syncing = True
        self._order = plan.exchange.reduce_order
        self._members = [plan.bucket_parameters(index) for index in range(len(units))]
        self._buckets_of: list[list[int]] = [[] for _ in plan.parameters]
        for bucket, members in enumerate(self._members):
            for parameter in members:
                self._buckets_of[parameter].append(bucket)
        self._known = set(plan.parameters)
        self._handles: list[RemovableHandle] = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
            for index, parameter in enumerate(plan.parameters)
        ]
        self._addresses = [parameter.data_ptr() for parameter in plan.parameters]
        self._reset()

    def _reset(self) -> None:
        self._taken: list[bool | None] = [None] * len(self._plan.parameters)
        """Whether a parameter has a gradient in this step; None until known."""
        self._missing = [len(members) for members in self._members]
        self._next = 0

    def _hook(self, index: int) -> Callable[[nn.Parameter], None]:
        def ready(_parameter: nn.Parameter) -> None:
            if self._syncing:
                self._take(index)

        return ready

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients stay in `.grad` and add up there."""
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    def _take(self, index: int) -> None:
        """Copy a gradient to its place and start the buckets that this completes."""
        parameter, view = self._plan.parameters[index], self._plan.views[index]
        with self._lock:
            if self._taken[index] is not None:
                raise RuntimeError(
                    f"parameter {self._plan.names[index]} got a second gradient before step(): run every backward but "
                    f"the "
                    "last of a step inside no_sync(). Reentrant checkpointing does this too: pass use_reentrant=False."
                )
            gradient = parameter.grad
            for bucket in self._buckets_of[index]:  # what the last step still gathers into the same memory
                self._engine.wait(self._units[bucket].done, self._units[bucket])
            if gradient is None:
                view.zero_()
            elif gradient.is_sparse:
                raise ValueError(
                    f"parameter {self._plan.names[index]} has a sparse gradient: only dense ones are exchanged. "
                    "Build the layer with sparse=False."
                )
            else:
                view.copy_(gradient)
                parameter.grad = None
            self._taken[index] = gradient is not None
            for bucket in self._buckets_of[index]:
                self._missing[bucket] -= 1
            while self._next < len(self._order) and not self._missing[self._order[self._next]]:
                self._start(self._order[self._next])
                self._next += 1

    def _start(self, bucket: int) -> None:
        unit = self._units[bucket]
        unit.flags = [bool(self._taken[parameter]) for parameter in self._members[bucket]]
        self._engine.reduce(unit)

    def finish(self) -> None:
        """Take what backward did not reach, so that every bucket is under way; ends the step's collecting."""
        self._check()
        for index, taken in enumerate(self._taken):
            if taken is None:
                self._take(index)
        self._reset()

    def _check(self) -> None:
        for parameter in self._everything():
            if parameter.requires_grad and parameter not in self._known and parameter.grad is not None:
                raise ValueError(
                    f"a parameter of shape {tuple(parameter.shape)} has a gradient but was frozen, or not there, when "
                    f"the strategy was built, so ranks would drift apart: build the strategy after the last change of "
                    "requires_grad."
                )
        for index, parameter in enumerate(self._plan.parameters):
            if parameter.data_ptr() != self._addresses[index]:
                raise ValueError(
                    f"parameter {self._plan.names[index]} lies elsewhere than when the strategy was built: move or "
                    f"convert the model (.to, .cuda, .half, channels_last) before."
                )

    def used(self) -> list[bool]:
        """Which parameters had a gradient on any rank; after the reductions."""
        used = [False] * len(self._plan.parameters)
        for unit, members in zip(self._units, self._members, strict=True):
            for parameter, flag in zip(members, unit.flags, strict=True):
                used[parameter] |= flag
        return used

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
