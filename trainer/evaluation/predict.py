"""One network's answers to all images of a source, by all views of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from augpipe.batch import Batch
from augpipe.errors import SampleError
from augpipe.sampling.epoch_order import Place
from augpipe.sources import Subset
from augpipe.sources.protocol import Source
from augpipe.trainer.evaluation.dense import DenseConvNet
from augpipe.trainer.evaluation.groups import Group, Memory, as_memory, groups_of
from augpipe.trainer.evaluation.partial import Partial, key_of, raise_together
from augpipe.trainer.evaluation.trained_run import TrainedRun
from augpipe.trainer.evaluation.views import Views, average_answers, shown
from augpipe.trainer.loop.data import evaluation_loader, output_size
from augpipe.trainer.loop.precision import autocast
from augpipe.trainer.loop.run_network import check_input

Progress = Callable[[int, int], None]
"""Called with (images done, images in all)."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a network says of a source's images."""

    log_probs: npt.NDArray[np.float32]
    """(N, C) logarithms of the classes' probabilities, nan for images that were left out: 4 bytes a number."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Images that could not be used: sample id -> "name: reason"."""


def predict(
    run: TrainedRun,
    source: Source,
    views: Views,
    *,
    memory_mb: int,
    on_error: str | None = None,
    progress: Progress | None = None,
    network: "ShownNetwork | None" = None,
    keep: Path | None = None,
) -> Answers:
    """Show each image of a source to a run's network; called by all ranks, which share the images out by batches.

    Args:
        run: its newest checkpoint is loaded.
        source: of the run's classes.
        views: how images are shown, and how answers are averaged.
        memory_mb: what batches may take, see `Memory`; a batch has the run's own size at most.
        on_error: "raise", "skip" to leave out an image that cannot be used, or None for what the run's config says.
        progress: told how far it is.
        network: the run's, for the same views; None: it is loaded.
        keep: a folder in which answers are kept meanwhile, and found again after a kill; None: nowhere.

    Raises:
        ValueError: the network does not take such views.
        SampleError: an image cannot be used and is not to be skipped.
    """
    network = network or ShownNetwork(run, views)
    world = run.world
    skips_bad = (on_error or run.config.data.on_error) == "skip"
    key = "" if keep is None else key_of(run, source, views, skips_bad=skips_bad)
    partial = Partial(len(source), run.num_outputs, keep, key, is_first=world.is_first)
    partial.agree(world.control)
    memory = network.memory(memory_mb)
    num_before, num_done = int(partial.done.sum()), 0
    problem: Exception | None = None
    if progress is not None:
        progress(num_before, len(source))
    try:
        groups = groups_of(source, run.recipe, views, memory, skips_bad=skips_bad, left_out=partial.left_out)
        for number, group in enumerate(groups):
            batch_size = network.batch_size(group, memory)
            firsts = [
                first
                for first in range(0, len(group.sample_ids), batch_size)
                if not partial.done[group.sample_ids[first : first + batch_size]].all()
            ][(world.rank + number) % world.size :: world.size]
            for sample_ids, batch in batches_of(run, source, group, firsts, batch_size, skips_bad, partial.left_out):
                answers = network.answer(batch)
                if np.isnan(answers).any():
                    raise ValueError(
                        f"{run.path}: the network's answers are not numbers (nan), as after a training that diverged. "
                        f"Remove {run.checkpoint.path} to evaluate the checkpoint before it."
                    )
                partial.add(sample_ids, answers)
                num_done += len(answers)
                if progress is not None:
                    progress(min(num_before + num_done * world.size, len(source)), len(source))
    except ValueError as error:  # a SampleError is one
        problem = error
    finally:
        partial.save()
    raise_together(problem, world.control)
    log_probs, left_out = partial.together(world.control)
    log_probs[list(left_out)] = np.nan
    return Answers(log_probs=log_probs, left_out=dict(sorted(left_out.items())))


class ShownNetwork:
    """A run's network, and the views that it is shown."""

    def __init__(self, run: TrainedRun, views: Views) -> None:
        self._run = run
        self._views = views
        self._size = output_size(run.recipe)
        model = run.load_network()
        check_input(model, run.config.model.name, *self._size, run.world.device, channels=run.recipe.channels)
        if views.dense:
            model = DenseConvNet(model, *self._size).eval()
            for scale in sorted(views.scales):
                model.check_scale(scale)
        self._model: nn.Module = model

    def memory(self, limit_mb: int) -> Memory:
        """What images of the network's size take in it."""
        images = torch.zeros((1, self._run.recipe.channels, *self._size), device=self._run.world.device)
        return as_memory(self._model, images, limit_mb, self._run.config.data.prefetch)

    def batch_size(self, group: Group, memory: Memory) -> int:
        """Images of a batch: as many as the run's evaluation takes, where memory allows."""
        data = self._run.config.data
        sizes = tuple(view.out_size for view in group.recipe.all_views)
        cropped = self._size[0] * self._size[1] if self._views.crops == 10 else None
        known = tuple(size for size in sizes if size is not None)
        return memory.batch_size(memory.image_bytes(known, cropped), data.eval_batch_size or data.batch_size)

    @torch.no_grad()
    def answer(self, batch: Batch) -> npt.NDArray[np.float32]:
        """(B, C) logarithms of probabilities, averaged over views."""
        at_scales = batch.images if isinstance(batch.images, tuple) else (batch.images,)
        answers = [
            torch.log_softmax(self._logits(images).double(), 1)
            for whole in at_scales
            for images in shown(whole.to(self._run.world.device), self._views, self._size)
        ]
        one = torch.ones(len(answers), dtype=torch.float64)
        found: npt.NDArray[np.float32] = (
            average_answers(torch.stack(answers), one, self._views.average).float().cpu().numpy()
        )
        return found

    def _logits(self, images: Tensor) -> Tensor:
        with autocast(self._run.config, self._run.world.device):
            logits: Tensor = self._model(images)
        return logits.float().mean((2, 3)) if self._views.dense else logits.float()


def batches_of(
    run: TrainedRun,
    source: Source,
    group: Group,
    firsts: list[int],
    batch_size: int,
    skips_bad: bool,
    left_out: dict[int, str],
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """(sample ids, batch) of those batches of a group that begin at `firsts`.

    Where an image cannot be used the loader puts another one in its place; its id is noted in `left_out`, so that each
    image counts once.
    """
    ids = group.sample_ids
    replaces = skips_bad and len(ids) > 1
    data = run.config.data.model_copy(update={"on_error": "skip" if replaces else "raise"})
    config = run.config.model_copy(update={"data": data})
    subset = source if len(ids) == len(source) else Subset(source, ids)
    alone = replace(run.world, rank=0, size=1)
    loader = evaluation_loader(config, subset, alone, recipe=group.recipe, batch_size=batch_size)
    waiting = [ids[first : first + batch_size] for first in firsts]
    try:
        for batch in loader.batches(Place(epoch=0, first=first) for first in firsts):
            for inner, problem in loader.skipped.items():
                left_out[int(ids[inner])] = problem
            yield waiting.pop(0), batch
    except SampleError as problem:
        if not skips_bad:
            raise
        if len(ids) == 1:
            left_out[int(ids[0])] = f"{problem.name}: {problem.reason}"
            return
        for sample_id in (one for some in waiting for one in some):  # nothing is left to replace by: each by itself
            single = Group(sample_ids=np.array([sample_id]), recipe=group.recipe)
            yield from batches_of(run, source, single, [0], 1, skips_bad, left_out)
