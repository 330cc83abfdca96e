"""A run's training batches again, one image at a time, on this CPU."""

from pathlib import Path

import numpy as np

from augpipe import Loader
from augpipe.loader import Numpy
from augpipe.pipeline.item_line import ItemLine
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import open_sources, order_of, training_schedule
from augpipe.trainer.loop.run_data import RunData, read_data
from augpipe.trainer.loop.training import num_updates
from augpipe.validation.plural import count


def loader_on_cpu(config: RunConfig, rank: int = 0, world_size: int = 1, folder: Path | None = None) -> Loader[Numpy]:
    """The training batches of a rank as numpy arrays, whatever the run's own device.

    Args:
        config: of the run.
        rank, world_size: whose batches.
        folder: of the run, which has kept what it read; None: what is there now is taken for it.

    Raises:
        ValueError: the source is gone, or it or the recipe is not what the run was trained on, or there is no such
            rank.
    """
    source, held_out = open_sources(config.data, config.seed)
    kept = None if folder is None else read_data(folder)
    if kept is not None:
        kept.check_goes_on(RunData.of(config, source, held_out), str(folder), config)
    order = order_of(config, source)
    return Loader(source, training_schedule(config.data), framework="numpy", rank=rank, world_size=world_size, **order)


def sample_of_step(config: RunConfig, loader: Loader[Numpy], named: ItemLine) -> tuple[int, int, int | None]:
    """Epoch, sample id and, of a sampler, position of an item of a step's batch.

    The step counts as in metrics.csv, the item from 0.

    Raises:
        ValueError: the run has no such step, the step no such item, or it belongs to another epoch.
    """
    assert named.step is not None and named.item is not None
    if config.servers.mode != "off":
        raise ValueError("the run's steps are updates of parameter servers. Name the epoch and the sample instead.")
    epochs, world_size = loader._epochs, loader.world_size
    per_epoch = num_updates(config, epochs.num_samples, world_size)
    most = config.epochs * per_epoch
    if not 1 <= named.step <= most:
        raise ValueError(
            f"step {named.step}: the run has steps 1..{most}, with {count(world_size, 'rank')} {per_epoch} an epoch. "
            "Of a run of several ranks say which, as rank 0 of 4."
        )
    epoch, nth = divmod(named.step - 1, per_epoch)
    if named.epoch not in (None, epoch):
        raise ValueError(
            f"step {named.step} is in epoch {epoch}, and the line says epoch {named.epoch}; with "
            f"{count(world_size, 'rank')} an epoch has {count(per_epoch, 'step')}. Name its ranks, as rank 0 of 4."
        )
    batch, item = divmod(named.item, loader.batch_size)
    if batch < config.optim.accumulate and nth * config.optim.accumulate + batch < len(loader):
        first = (nth * config.optim.accumulate + batch) * epochs.per_batch
        position = first + item * world_size + loader.rank
        if position < epochs.num_samples:
            (sample,) = epochs.sample_ids(config.seed, epoch, np.array([position], np.int64)).tolist()
            return epoch, sample, None if epochs.sampling is None else position
    last = config.optim.accumulate * loader.batch_size - 1
    raise ValueError(
        f"step {named.step} has no item {named.item}: a rank's step has the items 0..{last}, fewer where an epoch ends."
    )
