"""Loss and accuracy on the images held out, each counted once, by all ranks together."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from augpipe import Loader
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.precision import autocast
from augpipe.trainer.loop.world import World
from augpipe.trainer.parallel import cross_entropy, likeliest


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The same on every rank."""

    loss: float
    """Mean cross-entropy, without label smoothing."""
    top1: float
    """Share of images whose likeliest class is the right one."""
    top5: float
    """Share of images with the right class among the five likeliest, or all where there are fewer."""
    num_samples: int
    """Images looked at."""


@torch.no_grad()
def evaluate(config: RunConfig, world: World, model: nn.Module, loader: Loader) -> Evaluation:
    """Run the images through the model, whose weights must be up to date; mode and buffers are as before afterwards.

    All ranks call the model equally often, as layers that are split among them ask for.
    """
    was_training = model.training
    model.eval()
    on_device = torch.zeros(3, dtype=torch.float64, device=world.device)
    num_samples = 0
    loader.set_epoch(0)
    with averaged_buffers(model, world.control):
        for batch in loader:
            num = len(batch)
            images = batch.images.to(world.device, non_blocking=True)
            labels = batch.labels.to(world.device, non_blocking=True)
            if num == 0:  # a black image stands in, so that split layers get this rank's share of the others'
                images, labels = images.new_zeros((1, *images.shape[1:])), labels.new_zeros(1)
            with autocast(config, world.device):
                logits = model(images)
            logits = logits.float() if isinstance(logits, Tensor) else logits
            num_classes = logits.shape[1] if isinstance(logits, Tensor) else logits.num_classes
            losses = cross_entropy(logits, labels)
            is_right = likeliest(logits, min(5, num_classes)) == labels[:, None]
            if num:
                on_device += torch.stack([losses.sum(), is_right[:, 0].sum(), is_right.any(1).sum()])
                num_samples += num
    model.train(was_training)
    sums = torch.tensor([*on_device.tolist(), num_samples], dtype=torch.float64)
    dist.all_reduce(sums, group=world.control)
    loss, top1, top5, num = sums.tolist()
    return Evaluation(loss=loss / num, top1=top1 / num, top5=top5 / num, num_samples=int(num))


@contextmanager
def averaged_buffers(model: nn.Module, group: dist.ProcessGroup) -> Iterator[None]:
    """Within it every rank has the mean of all ranks' floating-point buffers; after it, its own again.

    So an evaluation changes nothing for the training that goes on.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if not buffers or dist.get_world_size(group) == 1:
        yield
        return
    before = [buffer.clone() for buffer in buffers]
    flat = torch.cat([buffer.detach().double().flatten() for buffer in buffers]).cpu()
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    means = flat.to(buffers[0].device)
    for buffer, mean in zip(buffers, torch.split(means, [buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(mean.view(buffer.shape))
    try:
        yield
    finally:
        for buffer, kept in zip(buffers, before, strict=True):
            buffer.copy_(kept)
