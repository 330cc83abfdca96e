"""Loss and accuracy on the pictures held out, each counted once, by all ranks together."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from augpipe import Loader
from augpipe.trainer.config.run import RunConfig
from augpipe.trainer.loop.buffers import averaged_buffers
from augpipe.trainer.loop.precision import autocast
from augpipe.trainer.loop.world import World


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The same on every rank."""

    loss: float
    """Mean cross-entropy, without label smoothing."""
    top1: float
    """Share of pictures whose likeliest class is the right one."""
    top5: float
    """Share of pictures with the right class among the five likeliest, or all where there are fewer."""
    num_samples: int
    """Pictures looked at."""


@torch.no_grad()
def evaluate(config: RunConfig, world: World, model: nn.Module, loader: Loader) -> Evaluation:
    """Run the pictures through the model, whose weights must be whole; mode and buffers are as before afterwards."""
    was_training = model.training
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64, device="cpu")
    loader.set_epoch(0)
    with averaged_buffers(model, world.control):
        for batch in loader:
            if len(batch) == 0:
                continue
            images, labels = batch.images.to(world.device), batch.labels.to(world.device)
            with autocast(config, world.device):
                logits = model(images)
            logits = logits.float()
            likeliest = logits.topk(min(5, logits.shape[1]), 1).indices == labels[:, None]
            sums += torch.stack(
                [
                    F.cross_entropy(logits, labels, reduction="sum").double(),
                    likeliest[:, 0].sum().double(),
                    likeliest.any(1).sum().double(),
                    torch.tensor(float(len(batch)), dtype=torch.float64, device=world.device),
                ]
            ).cpu()
    model.train(was_training)
    dist.all_reduce(sums, group=world.control)
    loss, top1, top5, num = sums.tolist()
    return Evaluation(loss=loss / num, top1=top1 / num, top5=top5 / num, num_samples=int(num))
