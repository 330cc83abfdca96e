"""What the driver of a run does while the workers work: checkpoints and evaluations at fences, and the record."""

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

from augpipe import Loader
from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, finished, unfinished_path
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation, evaluate
from augpipe.trainer.loop.failures.signals import StopRequest
from augpipe.trainer.loop.run_folder import checkpoints_path
from augpipe.trainer.loop.training import Result, SaveError
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.servers.driver_record import ServersRecorder
from augpipe.trainer.servers.from_config import Specs
from augpipe.trainer.servers.leases import first_state
from augpipe.trainer.servers.messages import Fence, Part, Peer, PeerLost
from augpipe.trainer.servers.order_log import forget_before
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.state_file import dispatcher_path, write_state
from augpipe.trainer.servers.worker import Worker

logger = logging.getLogger("augpipe.trainer")

_POLL_S = 0.25


def write_first(config: RunConfig, specs: Specs, plateau: Plateau) -> Path:
    """Write the checkpoint after no update at all, from which the servers begin; returns it."""
    path = unfinished_path(checkpoints_path(Path(config.out).absolute()), 0)
    path.mkdir(parents=True)
    for spec in specs.servers:
        Server(spec).begin(specs.weights).write(path)
    return finish(config, first_state(specs.dispatcher.plan), plateau)


def finish(config: RunConfig, state: dict[str, Any], plateau: Plateau) -> Path:
    """Add the dispatcher's state to a checkpoint that the servers have written, and give it its name; returns it."""
    folder, version = checkpoints_path(Path(config.out).absolute()), state["version"]
    path = unfinished_path(folder, version)
    write_state(dispatcher_path(path), state | {"plateau_state": plateau.state_dict()})
    about = {
        "step": version,
        "world_size": config.servers.servers,
        "model": config.model.name,
        "servers": config.servers.model_dump(),
    }
    return finish_checkpoint(folder, version, about, config.checkpoint.keep)


async def weights_of(fence: Fence, dispatcher: Peer) -> list[Part]:
    """The weights at a fence; where a server is lost meanwhile, those with its slice from the last checkpoint."""
    while True:
        try:
            return await asyncio.gather(*fence.weights)
        except PeerLost:
            fence = await dispatcher.call("fence")  # it finds out which server is lost, and gives it its slice back


class Driver:
    """Goes from fence to fence.

    Args:
        config: of the run.
        world: of this process alone.
        dispatcher: decides when there is a fence.
        evaluator: has a network that is evaluated; it never trains.
        eval_loader: what it is evaluated on; None where nothing is.
        recorder: writes down.
        request: whether somebody asks for an end.
        begins_from: the checkpoint that the servers begin from.
    """

    def __init__(
        self,
        config: RunConfig,
        world: World,
        dispatcher: Peer,
        evaluator: Worker,
        eval_loader: Loader | None,
        recorder: ServersRecorder,
        request: StopRequest,
        begins_from: Path,
        plateau: Plateau,
    ) -> None:
        self._config = config
        self._world = world
        self._dispatcher = dispatcher
        self._evaluator = evaluator
        self._eval_loader = eval_loader
        self._recorder = recorder
        self._request = request
        self._begins_from: Path | None = begins_from
        self._plateau = plateau
        self._checkpoints = checkpoints_path(Path(config.out).absolute())

    async def run(self) -> Result:
        """From the first fence, at which nothing is done yet, to the last."""
        await self._dispatcher.call("restore", str(self._begins_from))
        polling = asyncio.get_running_loop().create_task(self._poll())
        try:
            while True:
                fence: Fence = await self._dispatcher.call("fence")
                found = await self._at_fence(fence)
                if fence.is_last:
                    return Result(
                        out=Path(self._config.out),
                        step=fence.version,
                        epochs_done=fence.epochs_done,
                        evaluation=found,
                        signal=(self._request.signal or signal.SIGTERM) if self._request.is_made else None,
                    )
        finally:
            polling.cancel()

    def _evaluates(self, fence: Fence) -> bool:
        begins = self._begins_from is not None
        return self._eval_loader is not None and not begins and (fence.ends_epoch or fence.is_last)

    async def _at_fence(self, fence: Fence) -> Evaluation | None:
        await self._hear()
        begins, evaluates = self._begins_from is not None, self._evaluates(fence)
        ends_epoch = fence.ends_epoch and not begins
        if evaluates:
            self._evaluator.load(await weights_of(fence, self._dispatcher))
        found = None
        needs_loss = self._config.schedule.name == "plateau" and evaluates
        if needs_loss:  # nobody goes on before the next learning rate is known
            found = self._evaluate(fence)
        folder = await self._save(fence)
        is_over = fence.is_last
        await self._dispatcher.call("go_on", str(folder), self._plateau.factor)
        if evaluates and not needs_loss:
            found = self._evaluate(fence)
        if ends_epoch:
            self._recorder.end_epoch(fence.epoch, found)
        if not is_over:
            whole = fence.ends_epoch
            done = 0 if whole else fence.state["num_trained"]
            self._recorder.begin_epoch(fence.epoch + whole, done)
        return found

    def _evaluate(self, fence: Fence) -> Evaluation:
        assert self._eval_loader is not None
        found = evaluate(self._config, self._world, self._evaluator.model, self._eval_loader)
        if fence.ends_epoch and self._plateau.update(found.loss):
            logger.info("the loss has not fallen: the learning rate is now multiplied by %g", self._plateau.factor)
        self._recorder.evaluated(found, fence.epoch)
        return found

    async def _save(self, fence: Fence) -> Path:
        """Have the servers write their slices, add the dispatcher's state, and finish the checkpoint."""
        if self._begins_from is not None:
            folder, self._begins_from = self._begins_from, None
            return folder
        path = unfinished_path(self._checkpoints, fence.version)
        try:
            path.mkdir(parents=True, exist_ok=True)
            await self._dispatcher.call("save", str(path))
            folder = finish(self._config, fence.state, self._plateau)
        except OSError as error:
            raise SaveError(
                f"the checkpoint after update {fence.version} was not written: {error.strerror or error}. "
                f"The last one is {finished(self._checkpoints)[0]}. "
                "Free some room, and start the run again: it goes on from there."
            ) from error
        oldest = finished(self._checkpoints)[-1]
        forget_before(Path(self._config.out) / "order", int(oldest.name.removeprefix("step-")))
        return folder

    async def _poll(self) -> None:
        is_told = False
        while True:
            await asyncio.sleep(_POLL_S)
            await self._hear()
            if self._request.is_made and not is_told:
                is_told = True
                await self._dispatcher.call("stop")

    async def _hear(self) -> None:
        applied, notes = await self._dispatcher.call("drain")
        for note in notes:
            logger.warning("%s", note)
        self._recorder.heard(applied)
