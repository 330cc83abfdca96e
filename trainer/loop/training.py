"""The loop itself: epochs of updates, with what is written, evaluated and saved between them."""

import logging
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from augpipe import Loader
from augpipe.sampling import epoch_order
from augpipe.trainer.checkpoint import Saver
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation, evaluate
from augpipe.trainer.loop.failures.signals import StopRequest
from augpipe.trainer.loop.run_record import Recorder
from augpipe.trainer.loop.state import RunState
from augpipe.trainer.loop.step import Step, StepResult, UpdateBatches, next_update
from augpipe.trainer.loop.step_totals import PendingTotals, StepTotals
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim.schedule import lr_factor

logger = logging.getLogger("augpipe.trainer")


class NotFiniteError(RuntimeError):
    """A loss or gradient was not finite, and the config says to stop for it."""


class SaveError(RuntimeError):
    """A checkpoint could not be written, and the config says to stop for it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended; the same on every rank."""

    out: Path
    """Its folder."""
    step: int
    """Updates done, from the first run on."""
    epochs_done: float
    """Passes over the images."""
    evaluation: Evaluation | None = None
    """The last one; None where nothing was evaluated."""
    evaluated: str = "held out"
    """How a line calls the images that it was of."""
    signal: int | None = None
    """The signal that ended it before its time: a checkpoint was written."""


def is_over(config: RunConfig, state: RunState) -> bool:
    """Whether all that the config asks for is done."""
    if config.max_steps is not None and state.counters.step >= config.max_steps:
        return True
    return bool(state.loader.epoch >= config.epochs)


def num_updates(config: RunConfig, num_samples: int, world_size: int) -> int:
    """Updates that so many images make, from an epoch's start on."""
    per_batch = config.data.batch_size * world_size
    return -(-epoch_order.num_batches(num_samples, per_batch, 1, config.data.drop_last) // config.optim.accumulate)


class Training:
    """One run on this rank, from wherever its state stands."""

    def __init__(
        self,
        config: RunConfig,
        world: World,
        state: RunState,
        step: Step,
        saver: Saver,
        recorder: Recorder,
        eval_loader: Loader | None,
        request: StopRequest,
    ) -> None:
        self._config = config
        self._world = world
        self._state = state
        self._step = step
        self._saver = saver
        self._recorder = recorder
        self._eval_loader = eval_loader
        self._request = request
        self._control = PendingTotals(world.control)
        self._num_samples: int = state.loader.state_dict()["num_samples"]
        self._evaluation: Evaluation | None = None
        self._num_failed_saves = 0
        self._is_asked = False

    def run(self) -> Result:
        """Train to the end, or until somebody asks for an end."""
        is_asked = False
        while not is_asked and not is_over(self._config, self._state):
            is_asked = self._run_epoch()
        self._check(self._control.drain())
        self._recorder.write_rest()
        self._save_last()
        return Result(
            out=Path(self._config.out),
            step=self._state.counters.step,
            epochs_done=self._state.epochs_done,
            evaluation=self._evaluation,
            signal=(self._request.signal or signal.SIGTERM) if is_asked else None,
        )

    def _run_epoch(self) -> bool:
        """The rest of the loader's epoch; returns whether the run is to end before its time."""
        state, config = self._state, self._config
        position = state.loader.state_dict()
        epoch, consumed = position["epoch"], position["samples_consumed"]
        update = self._next_update(consumed)
        if update is None:  # resumed after the epoch's last batch: what comes at its end was not done yet
            state.loader.set_epoch(epoch + 1)
            return self._end_epoch(epoch)
        state.model.train()
        state.loader.set_epoch(epoch)
        batches = iter(state.loader)
        done, total = (num_updates(config, num, self._world.size) for num in (consumed, self._num_samples))
        self._recorder.begin_epoch(epoch, done=done, total=total)
        start = time.perf_counter()
        while update is not None:
            state.strategy.set_lr(self._lr_factor())
            result = self._step.run(batches, update)
            now = time.perf_counter()
            state.counters.step += 1
            state.counters.num_skipped += result.is_skipped
            state.counters.seconds += now - start
            self._after_step(result, epoch, now - start)
            start = now
            if self._is_asked_after(result):
                return True
            if self._is_save_due():
                self._save()
                start = time.perf_counter()
            if config.max_steps is not None and state.counters.step >= config.max_steps:
                return self._end_epoch(epoch, is_whole=False)
            consumed = state.loader.state_dict()["samples_consumed"]
            update = self._next_update(consumed)
        for _ in batches:
            raise AssertionError("the loader has more batches than were counted")
        return self._end_epoch(epoch)

    def _after_step(self, result: StepResult, epoch: int, seconds: float) -> None:
        state = self._state
        if state.ema is not None and state.counters.step % self._config.ema.every == 0 and not result.is_skipped:
            state.strategy.flush()
            state.ema.update_parameters(state.model)
        lr = state.strategy.optimizer.param_groups[0]["lr"]
        self._recorder.after_step(result, epoch=epoch, seconds=seconds, lr=lr, counters=state.counters)

    def _is_asked_after(self, result: StepResult) -> bool:
        """Tell the others how the step went, and hear how the one before it went for all."""
        self._saver.poll()
        failed = self._saver.num_failed > self._num_failed_saves
        self._num_failed_saves = self._saver.num_failed
        totals = StepTotals(
            num_stop=float(self._request.is_made),
            num_failed_saves=float(failed and self._config.checkpoint.on_failure == "stop"),
            num_not_finite=float(not result.is_finite),
            loss_sum=result.loss_sum,
            num_correct=float(result.num_correct),
            num_samples=float(result.num_samples),
        )
        agreed = self._control.exchange(totals)
        self._check(agreed)
        return self._is_asked

    def _check(self, agreed: StepTotals | None) -> None:
        """What all ranks know of a step: write it down, and end the run where the config says so."""
        if agreed is None:
            return
        self._recorder.heard(agreed)
        # whoever takes the totals off the wire: a save or an epoch's end may come before the next step does
        self._is_asked |= agreed.num_stop > 0
        is_broken = agreed.num_not_finite > 0 and self._config.faults.on_nan == "stop"
        if not is_broken and not agreed.num_failed_saves:
            return
        self._saver.wait()
        last = self._saver.last_step
        where = "There is no checkpoint yet." if last is None else f"The last checkpoint is the one after step {last}."
        if is_broken:
            raise NotFiniteError(
                f"the loss or a gradient was not finite in step {self._recorder.heard_step} "
                f"(on {agreed.num_not_finite:.0f} of {self._world.size} ranks). That step did not change the weights. "
                f'{where} Lower optim.lr, set optim.clip_norm, or set faults.on_nan="skip" to leave such steps out.'
            )
        raise SaveError(
            'a checkpoint could not be written (see above), and checkpoint.on_failure="stop". '
            f"{where} Free some room, and start the run again: it goes on from there."
        )

    def _end_epoch(self, epoch: int, *, is_whole: bool = True) -> bool:
        state, config = self._state, self._config
        self._check(self._control.drain())
        if epoch + 1 == config.epochs or not is_whole:  # before the evaluation's row
            self._recorder.write_rest()
        if self._eval_loader is not None:
            state.strategy.flush()
            if state.ema is not None and state.evaluated_model is state.model and self._world.is_first:
                logger.warning(
                    "the average of the weights has no update yet after step %d (ema.every=%d): the weights themselves "
                    "are evaluated",
                    state.counters.step,
                    config.ema.every,
                )
            found = evaluate(config, self._world, state.evaluated_model, self._eval_loader)
            state.strategy.flush()  # of a GPU it is known only now whether all weights had come
            self._evaluation = found
            if is_whole and state.plateau.update(found.loss) and self._world.is_first:
                logger.info("the loss has not fallen: the learning rate is now multiplied by %g", state.plateau.factor)
            self._recorder.evaluated(found, epoch=epoch, counters=state.counters)
        self._recorder.end_epoch(epoch, self._evaluation)
        every = config.checkpoint.every_epochs
        if every and (epoch + 1) % every == 0 and is_whole:
            self._save()
        return False

    def _save_last(self) -> None:
        """See that what the run ends with is saved, with one more try where that failed."""
        self._saver.wait()
        step = self._state.counters.step
        if self._saver.last_step != step:
            self._save()
            self._saver.wait()
        if self._saver.last_step != step:
            last = self._saver.last_step
            where = "There is none at all" if last is None else f"The last one is that after step {last}"
            raise SaveError(
                f"the run ends after step {step}, and its last checkpoint could not be written (see above). "
                f"{where}. Free some room, and start the run again: it goes on from there."
            )

    def _is_save_due(self) -> bool:
        every = self._config.checkpoint.every_steps
        return bool(every) and self._state.counters.step % every == 0

    def _save(self) -> None:
        """Begin a checkpoint of weights that all ranks know to be fine."""
        self._check(self._control.drain())
        self._state.strategy.flush()
        if self._world.device.type == "cuda":  # an exchange that only streams wait for may not have ended in time
            torch.cuda.synchronize(self._world.device)
            self._state.strategy.flush()
        state = self._state
        common = state.common() if self._world.is_first or state.writes_common else {}
        if common:
            common["report"] = self._recorder.state_dict()
        self._saver.save(state.counters.step, common, state.own(self._world.device), state.box_at)

    @property
    def _per_batch(self) -> int:
        return self._config.data.batch_size * self._world.size

    def _next_update(self, consumed: int) -> UpdateBatches | None:
        data = self._config.data
        return next_update(
            consumed=consumed,
            num_samples=self._num_samples,
            per_batch=self._per_batch,
            accumulate=self._config.optim.accumulate,
            drop_last=data.drop_last,
        )

    def _lr_factor(self) -> float:
        return lr_factor(
            self._config.schedule, self._state.epochs_done, float(self._config.epochs), self._state.plateau.factor
        )
