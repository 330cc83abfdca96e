"""Run a config on this process, alone or as one of those that torchrun started."""

import logging
import os
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from augpipe.trainer.checkpoint import Checkpoint, Saver
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import (
    evaluation_loader,
    open_sources,
    output_size,
    training_loader,
    warn_of_differences,
)
from augpipe.trainer.loop.failures.heartbeat import watched_by_peers
from augpipe.trainer.loop.failures.signals import StopRequest, listening
from augpipe.trainer.loop.precision import make_scaler
from augpipe.trainer.loop.run_folder import begin_folder, check_data, check_settings, checkpoints_path, open_folder
from augpipe.trainer.loop.run_network import build_network, check_input, make_average
from augpipe.trainer.loop.run_record import Recorder
from augpipe.trainer.loop.state import Counters, RunState
from augpipe.trainer.loop.step import Step
from augpipe.trainer.loop.training import Result, Training, is_over, num_updates
from augpipe.trainer.loop.unused import Extent, unused_settings
from augpipe.trainer.loop.world import World, open_world
from augpipe.trainer.optim.optimizer import make_optimizer
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.strategies import strategy
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe.trainer")

_RANK_STRIDE = 1_000_003
"""Between the seeds of ranks' dropout."""


def run(config: RunConfig) -> Result:
    """Train to the end, or go on from the newest whole checkpoint in the run's folder.

    Every process of the run calls it. On SIGTERM or Ctrl-C all ranks finish the step, write a checkpoint and return.

    Raises:
        ValueError: the config does not fit the data, the machine or the checkpoint.
        PeerError: another rank has died.
        NotFiniteError, SaveError: as the config's [faults] and [checkpoint] say.
    """
    if config.deterministic:  # cuBLAS asks for it as it starts
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with (
        listening() as request,
        open_world(config.device, config.faults.timeout_s, config.parallel.model) as world,
        watched_by_peers(world.store, world.rank, world.size, config.faults.heartbeat_timeout_s),
        ExitStack() as held,
    ):
        return _run(config, world, request, held)


def _run(config: RunConfig, world: World, request: StopRequest, held: ExitStack) -> Result:
    torch.use_deterministic_algorithms(config.deterministic)
    source, held_out = open_sources(config.data, config.seed)
    loader = training_loader(config, source, world)
    eval_loader = None if held_out is None else evaluation_loader(config, held_out, world)
    path = open_folder(config, world, held)
    data = check_data(config, source, held_out, world, resumes=path is not None)
    changed = [] if path is None else check_settings(config, world)
    checkpoint = None if path is None else Checkpoint(path)
    network = build_network(config, len(source.classes), world, tells=world.is_first and checkpoint is None)
    held.callback(network.close)
    model = network.model
    for used in (loader, eval_loader):
        if used is not None:
            for recipe in used.schedule.recipes:
                check_input(model, config.model.name, *output_size(recipe), world.device, channels=recipe.channels)
    synced = strategy(
        config.sync.strategy,
        model,
        partial(make_optimizer, config.optim),
        codec=config.sync.codec,
        bucket_bytes=config.sync.bucket_bytes,
        error_feedback=config.sync.error_feedback,
        exempt_1d=config.sync.exempt_1d,
        clip_norm=config.optim.clip_norm,
        timeout_s=config.faults.timeout_s,
        wait="model" if config.model.compile else "use",
        split=network.split,
    )
    synced.set_lr(1.0)
    state = RunState(
        model=model,
        strategy=synced,
        loader=loader,
        plateau=Plateau(config.schedule),
        scaler=make_scaler(config),
        ema=make_average(config.ema, model),
        counters=Counters(),
        split=network.split,
    )
    saver = Saver(
        checkpoints_path(Path(config.out)),
        world.saving,
        keep=config.checkpoint.keep,
        asynchronous=config.checkpoint.asynchronous,
        about={"model": config.model.name, "strategy": config.sync.strategy, "sync": config.sync.model_dump()}
        | ({"may_hold_nan": True} if config.faults.on_nan == "ignore" else {}),
    )
    torch.manual_seed(config.seed + _RANK_STRIDE * (world.rank + 1))
    if checkpoint is not None:
        if checkpoint.world_size != world.size:
            torch.manual_seed(config.seed + _RANK_STRIDE * (world.rank + 1) + checkpoint.step)
        state.load(checkpoint, world, config.sync.model_dump())
        saver.last_step = checkpoint.step
        if world.is_first:
            again = "" if checkpoint.world_size == world.size else "; error feedback and dropout start again"
            logger.info("going on from %s, written by %s%s", checkpoint.path, _ranks(checkpoint.world_size), again)
    if is_over(config, state):
        synced.close()
        _tell_nothing_left(config, state, changed, tells=world.is_first)
        return Result(out=Path(config.out), step=state.counters.step, epochs_done=state.epochs_done)
    if world.is_first:
        begin_folder(config, data, held_out, resumes=checkpoint is not None)
        warn_of_differences(config.data)
        num_steps = num_updates(config, loader.state_dict()["num_samples"], world.size)
        for line in unused_settings(config, Extent(world_size=world.size, steps_per_epoch=num_steps)):
            logger.warning("%s", line)
        _tell(config, world, model, loader)
    module: torch.nn.Module = synced.module
    if config.model.compile:
        compiled: Any = torch.compile(module)
        module = compiled
    step = Step(config, world, module, synced, state.scaler)
    told = None if checkpoint is None else checkpoint.common(entries=("report",)).get("report")
    with Recorder(config, world, state.counters.step, data.evaluated) as recorder:
        if told is not None:
            recorder.load_state_dict(told)
        result = Training(config, world, state, step, saver, recorder, eval_loader, request).run()
    synced.close()
    return replace(result, evaluated=data.evaluated)


def _tell(config: RunConfig, world: World, model: torch.nn.Module, loader: Any) -> None:
    num = sum(parameter.numel() for parameter in model.parameters())
    logger.info(
        "%s with %s weights on %s, %s + %s, %s photographs, batches of %d x %d x %d",
        config.model.name,
        f"{num:,}",
        _ranks(world.size) + f" ({world.device.type})",
        config.sync.strategy,
        config.sync.codec,
        f"{loader.state_dict()['num_samples']:,}",
        config.data.batch_size,
        world.size,
        config.optim.accumulate,
    )


def _tell_nothing_left(config: RunConfig, state: RunState, changed: list[str], *, tells: bool) -> None:
    """Say that the run is done.

    Raises:
        ValueError: it is asked for with other settings than it was done with.
    """
    is_counted_in_steps = config.max_steps is not None and state.counters.step >= config.max_steps
    limit = "max_steps" if is_counted_in_steps else "epochs"
    if changed:
        raise ValueError(
            f"the run in {config.out} is done after {count(state.counters.step, 'step')}, and its settings were "
            f"others: {'; '.join(changed)}. Give those that it had, raise {limit} to go on, or choose another out."
        )
    if tells:
        done = count(state.counters.step, "step") if is_counted_in_steps else count(config.epochs, "epoch")
        logger.info("nothing left to do after %s: raise %s, or choose another out", done, limit)


def _ranks(size: int) -> str:
    return "1 rank" if size == 1 else f"{size} ranks"
