"""What butterfly and lazy share: gradients are collected as backward makes them, and the schedule begins."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from augpipe.trainer.exchange.bucket import BucketExchange, take_controls
from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.group_exchange import GroupExchange
from augpipe.trainer.exchange.schedule import BackwardProgress, Collective
from augpipe.trainer.strategies.agreement import Agreement
from augpipe.trainer.strategies.flat_buffers import Plan
from augpipe.trainer.strategies.protocol import StepReport
from augpipe.trainer.strategies.taken_gradient import TakenGradient, second_gradient
from augpipe.trainer.strategies.update import AgreedScaler, Decision, Found, scale_lr


class BucketStrategy:
    """Hooks on the parameters of a plan, the buckets that they fill, and the exchange that these go through;
    `strangers` as in `Agreement`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: Plan,
        exchange: GroupExchange,
        *,
        clip_norm: float | None,
        strangers: Callable[[], Iterator[nn.Parameter]],
    ) -> None:
        self.module = model
        self.optimizer = optimizer
        self.meter = exchange.meter
        self._clip_norm = clip_norm
        self._plan = plan
        self._exchange = exchange
        self._buckets = plan.make_buckets(exchange)
        self._threads = exchange.start(self)
        self._scaler = AgreedScaler(exchange.device)
        self._agreement = Agreement(optimizer, strangers)
        self._taken_gradients = [
            TakenGradient(parameter, name) for parameter, name in zip(plan.parameters, plan.names, strict=True)
        ]
        self._lock = RLock()
        self._digest = 0.0
        """Of the optimizer's options, in this step."""
        self._syncing = True
        self._progress = BackwardProgress(plan.exchange)
        self._buckets_of = {
            parameter: [self._buckets[number] for number in self._progress.buckets_of[index]]
            for index, parameter in enumerate(plan.parameters)
        }
        self._handles: list[RemovableHandle] = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
            for index, parameter in enumerate(plan.parameters)
        ]
        self._addresses = [parameter.data_ptr() for parameter in plan.parameters]
        self._reset()

    def before_reduce(self, bucket: BucketExchange) -> None:
        """The gradients are in the flat buffers, which the buckets are of."""

    def before_gather(self, bucket: BucketExchange) -> None:
        """The means are what is sent back."""

    def after_gather(self, bucket: BucketExchange) -> None:
        """They stay in the flat buffers until the step."""

    def on_failure(self, error: SyncError) -> None:
        """Nobody waits except for buckets."""

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its first one."""
        scale_lr(self.optimizer, factor)

    def _reset(self) -> None:
        self._taken: list[bool | None] = [None] * len(self._plan.parameters)
        """Whether a parameter has a gradient in this step; None until known."""
        self._progress.begin_step()

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
                raise RuntimeError(second_gradient(self._plan.names[index]))
            gradient = parameter.grad
            for bucket in self._buckets_of[parameter]:  # what the last step still gathers into the same memory
                self._threads.wait_gathered(bucket)
            if gradient is None:
                view.zero_()
            elif gradient.is_sparse:
                raise ValueError(
                    f"parameter {self._plan.names[index]} has a sparse gradient: only dense ones are exchanged. "
                    "Build the layer with sparse=False."
                )
            else:
                view.copy_(gradient)
                parameter.grad = self._taken_gradients[index]
            self._taken[index] = gradient is not None
            for collective in self._progress.complete(index):
                self._begin(collective)

    def _begin(self, collective: Collective) -> None:
        bucket = self._buckets[collective.bucket]
        if collective.phase == "reduce":
            bucket.flags = [bool(self._taken[parameter]) for parameter in self._progress.members[collective.bucket]]
            is_first = collective == self._plan.exchange.collectives[0]
            bucket.told = self._digest = self._agreement.digest() if is_first else self._digest
        assert collective.phase != "agree"
        self._threads.begin(collective.phase, bucket)

    def _finish_backward(self) -> None:
        """Take what backward did not reach, so that every bucket is under way; ends the step's collecting."""
        self._check()
        for index, taken in enumerate(self._taken):
            if taken is None:
                self._take(index)
        self._reset()

    def _check(self) -> None:
        self._agreement.check()
        for index, parameter in enumerate(self._plan.parameters):
            if parameter.data_ptr() != self._addresses[index]:
                raise ValueError(
                    f"parameter {self._plan.names[index]} lies elsewhere than when the strategy was built: move or "
                    f"convert the model (.to, .cuda, .half, channels_last) before."
                )

    def _take_controls(self, copied: Tensor) -> Tensor:
        """Learn what the exchanges have found from a copy of `controls_of` on the CPU; returns what is left of it.

        Raises:
            SyncError: an exchange has failed meanwhile, or another rank's optimizer has other options than this one's.
        """
        self._threads.check()
        left = take_controls(self._buckets, copied)
        for bucket in self._buckets:
            self._agreement.compare(bucket.told, bucket.their_told, bucket.others)
        return left

    def _drop_gradients(self) -> None:
        for parameter in self._plan.parameters:
            parameter.grad = None

    def _used(self) -> list[bool]:
        """Which parameters had a gradient on any rank; after the reductions."""
        used = [False] * len(self._plan.parameters)
        for bucket, members in zip(self._buckets, self._progress.members, strict=True):
            for parameter, flag in zip(members, bucket.flags, strict=True):
                used[parameter] |= flag
        return used

    def _found(self, square_sum: float, num_bad: int) -> Found:
        non_finite = sum(bucket.non_finite for bucket in self._buckets)
        return Found(square_sum=square_sum, num_bad=num_bad, non_finite=max(non_finite, num_bad))

    def _report(self, decision: Decision) -> StepReport:
        return StepReport(
            grad_norm=decision.norm,
            found_inf=decision.found_inf,
            non_finite=decision.non_finite,
            exposed_s=self._threads.take_exposed_s(),
            bytes_sent=self.meter.since_last(),
        )

    def close(self) -> None:
        """End the threads, take the hooks off, let go of the group."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._plan.parameters:
            if isinstance(parameter.grad, TakenGradient):
                parameter.grad = None
        self._exchange.close()
