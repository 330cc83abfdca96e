"""Run a config with parameter servers: this process drives, all others are actors of a Ray cluster."""

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from augpipe.trainer.checkpoint.checkpoints_folder import finished
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import evaluation_loader, open_sources, output_size, training_recipe, warn_of_differences
from augpipe.trainer.loop.failures.signals import listening
from augpipe.trainer.loop.run_folder import begin_folder, check_data, open_folder
from augpipe.trainer.loop.run_network import build_network, check_input
from augpipe.trainer.loop.training import Result
from augpipe.trainer.loop.unused import unused_settings
from augpipe.trainer.loop.world import World, open_world
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.servers.drive import Driver, write_first
from augpipe.trainer.servers.driver_record import ServersRecorder
from augpipe.trainer.servers.from_config import Specs, make_specs, make_worker
from augpipe.trainer.servers.order_log import fences
from augpipe.trainer.servers.ray_cluster import RayCluster, require_there
from augpipe.trainer.servers.replay import Replay, start_before
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.state_file import dispatcher_path, read_state
from augpipe.trainer.servers.worker import Worker

logger = logging.getLogger("augpipe.trainer")


class _NoBatches:
    def take(self, lease: Any, upcoming: Any) -> Any:
        raise AssertionError("the evaluator does not train")


def run(config: RunConfig) -> Result:
    """Train to the end, or go on from the newest whole checkpoint in the run's folder.

    On SIGTERM or Ctrl-C no lease is handed out any more; those that are out are finished, and a checkpoint is written.

    Raises:
        ValueError: the config does not fit the data, the machine or the checkpoint.
        ImportError: Ray is not installed.
        RunFailed, SaveError: as the config's [faults] say.
    """
    require_there(config.servers)  # before anything is written
    with open_world("cpu", config.faults.timeout_s) as world, ExitStack() as held:
        return _run(config, world, held)


def _run(config: RunConfig, world: World, held: ExitStack) -> Result:
    source, held_out = open_sources(config.data, config.seed)
    eval_loader = None if held_out is None else evaluation_loader(config, held_out, world)
    path = open_folder(config, world, held)
    data = check_data(config, source, held_out, world, resumes=path is not None)
    model = build_network(config, len(source.classes), world, tells=path is None).model
    recipe = training_recipe(config.data)
    check_input(model, config.model.name, *output_size(recipe), world.device, channels=recipe.channels)
    specs = make_specs(config, source, model)
    evaluator = Worker(replace(specs.worker, error_feedback=False), model, _NoBatches())
    plateau = Plateau(config.schedule)
    begin_folder(config, data, held_out, resumes=path is not None)
    if path is None:
        path = write_first(config, specs, plateau)
    else:
        logger.info("going on from %s", path)
    state = read_state(dispatcher_path(path))
    plateau.load_state_dict(state["plateau_state"])
    specs = replace(specs, dispatcher=replace(specs.dispatcher, state=state))
    warn_of_differences(config.data)
    for line in unused_settings(config):
        logger.warning("%s", line)
    _tell(config, specs)
    cluster = held.enter_context(RayCluster(config, specs))
    request = held.enter_context(listening())  # after Ray, which listens itself
    recorder = held.enter_context(ServersRecorder(config, specs.dispatcher.plan, state["version"]))
    driver = Driver(
        config, world, cluster.dispatcher, evaluator, eval_loader, recorder, request, path.absolute(), plateau
    )
    return replace(asyncio.run(cluster.supervise(driver.run())), evaluated=data.evaluated)


def replay(config: RunConfig, log_folder: Path, step: int | None = None) -> tuple[int, str]:
    """Repeat a run in this process, in the order that it had, and compare the weights with its checkpoints.

    Args:
        config: the run's.
        log_folder: its order log, OUT/order.
        step: begin at the last checkpoint at or before so many updates; None: at the first one that there is.

    Returns:
        (updates done, what the comparison gave, in words).

    Raises:
        OSError: the log or a checkpoint cannot be read.
        ValueError: the log is of another config, or a part of it is missing.
    """
    with open_world("cpu", config.faults.timeout_s) as world, ExitStack() as held:
        source, _ = open_sources(config.data, config.seed)
        specs = make_specs(config, source, build_network(config, len(source.classes), world, tells=False).model)
        checkpoints = finished(log_folder.parent / "checkpoints")
        every = fences(log_folder)
        start = start_before(log_folder, checkpoints, every[0] if step is None else step)
        servers = [Server(spec) for spec in specs.servers]

        def make(number: int) -> Worker:
            return make_worker(config, specs.worker, held)[1]

        repeated = Replay(log_folder, servers, specs.dispatcher, make, start=start)
        compared = []
        for one in sorted(checkpoints):
            version = int(one.name.removeprefix("step-"))
            if version > repeated.version:
                repeated.run(version)
                compared.append((version, repeated.differences(one)))
        done = repeated.run()
    found = [f"update {version}: {', '.join(names)}" for version, names in compared if names]
    if found:
        return done, f"the weights differ from the run's after {'; '.join(found)}"
    versions = ", ".join(str(version) for version, _ in compared)
    return done, f"the weights equal the run's to the bit after update {versions}" if compared else "nothing to compare"


def _tell(config: RunConfig, specs: Specs) -> None:
    wanted = config.servers
    num = specs.weights.values.numel()
    groups = f" groups of {wanted.group}" if wanted.mode == "mixed" else " workers"
    backup = f" + {wanted.backup}" if wanted.backup else ""
    logger.info(
        "%s with %s weights on %d server%s, %d%s%s, %s, pushes in %s, %s photographs, batches of %d",
        config.model.name,
        f"{num:,}",
        wanted.servers,
        "" if wanted.servers == 1 else "s",
        wanted.workers,
        backup,
        groups,
        wanted.mode,
        wanted.codec,
        f"{specs.dispatcher.plan.num_samples:,}",
        config.data.batch_size,
    )
