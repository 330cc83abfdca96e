"""The network of a run: built, loaded, partly frozen, placed on its device; and the average of its weights."""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from augpipe.trainer.config.tables import EmaConfig, ModelConfig, RunConfig
from augpipe.trainer.loop.data import model_options, training_recipe
from augpipe.trainer.loop.world import World
from augpipe.trainer.models import build
from augpipe.trainer.parallel import Split, SplitLogits, build_split
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe.trainer")

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network of a run, on its device."""

    model: nn.Module
    split: Split | None
    """What is known of it where layers of it are split among ranks, which then hold different weights."""

    def close(self) -> None:
        """End the thread by which split layers exchange."""
        if self.split is not None:
            self.split.close()


def build_network(config: RunConfig, num_classes: int, world: World, *, tells: bool) -> Network:
    """The network; its first weights depend on the seed alone, however many ranks there are and whatever is split.

    Args:
        config: which, from which weights, which layers train, which are split.
        num_classes: of the source.
        world: where it is to be, and among which ranks layers are split.
        tells: whether this rank logs what did not match between file and network.

    Raises:
        ValueError: an unknown network or option, or one that does not suit the device or the source.
    """
    wanted, parallel = config.model, config.parallel
    if wanted.num_classes is not None and wanted.num_classes < num_classes:
        raise ValueError(
            f"model.num_classes={wanted.num_classes}, and the source has {count(num_classes, 'class')}. "
            "Leave it out, or raise it."
        )
    if wanted.sync_batchnorm and world.device.type != "cuda":
        raise ValueError(
            "model.sync_batchnorm=true, and torch's SyncBatchNorm runs on CUDA alone. Leave it out: the running "
            "statistics are averaged over ranks for evaluation in any case."
        )
    torch.manual_seed(config.seed)
    channels = training_recipe(config.data).channels
    make = partial(build, wanted.name, num_classes=wanted.num_classes or num_classes, **model_options(wanted, channels))
    found: Split | None = None
    if world.mesh is None:
        model = make()
    else:
        found = build_split(
            make,
            world.mesh,
            layers=list(parallel.layers) or "auto",
            scheme=parallel.scheme,
            activations=parallel.activations,
            deltas=parallel.deltas,
            logits=parallel.logits,
            seed=config.seed,
            timeout_s=config.faults.timeout_s,
        )
        model = found.model
        if tells:
            logger.info("%s", found)
    _prepare(model, wanted, tells)
    if wanted.sync_batchnorm:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return Network(model=place(model, wanted, world.device), split=found)


def place(model: nn.Module, config: ModelConfig, device: torch.device) -> nn.Module:
    """Move a network to its device, with its weights in the memory layout that the config asks for."""
    placed: nn.Module = model.to(device)
    if config.channels_last:
        placed.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # its types leave this one out
    return placed


def _prepare(model: nn.Module, config: ModelConfig, tells: bool) -> None:
    """Load the weights that it begins with, freeze what does not train, set dropout."""
    from augpipe.trainer.models.finetune import trainable
    from augpipe.trainer.models.weights import load_weights

    if config.weights is not None:
        if not Path(config.weights).exists():
            raise ValueError(
                f"model.weights={config.weights!r} does not exist (the current folder is {Path.cwd()}). Check the "
                "path, or leave it out to begin with new weights."
            )
        found = load_weights(model, config.weights, new_head=config.new_head)
        if tells:
            logger.info("%s", found)
    trainable(model, config.trainable)
    if config.dropout is not None:
        set_dropout(model, config.dropout)


def check_input(
    model: nn.Module, name: str, height: int, width: int, device: torch.device, *, channels: int = 3
) -> None:
    """Try the network on black images, before anything is begun; where torch is to be deterministic, backward as well.

    Raises:
        ValueError: it does not take images of this size, or has no deterministic backward.
    """
    goes_back = torch.are_deterministic_algorithms_enabled()
    was_training = model.training
    model.eval()
    try:
        with torch.set_grad_enabled(goes_back):
            logits = model(torch.zeros((1, channels, height, width), device=device))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"model.name={name} does not take pictures of {channels} x {height} x {width}: {error}. "
            "Change data.size, or the network's options."
        ) from error
    finally:
        model.train(was_training)
    values = logits.values if isinstance(logits, SplitLogits) else logits
    if goes_back and values.requires_grad:
        _check_backward(model, name, values)


def _check_backward(model: nn.Module, name: str, logits: Tensor) -> None:
    """Raise ValueError where torch has no deterministic form of what backward does; no gradient is kept."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        if parameters:
            torch.autograd.grad(logits.sum(), parameters, allow_unused=True)
    except RuntimeError as error:
        raise ValueError(
            f"deterministic=true, and model.name={name} cannot be trained so on {logits.device.type}: {error}. "
            "Leave deterministic out, or choose another network."
        ) from error


def set_dropout(model: nn.Module, probability: float) -> None:
    """Give every dropout layer this probability.

    Raises:
        ValueError: there is none.
    """
    layers = [module for module in model.modules() if isinstance(module, _DROPOUT)]
    if not layers and probability > 0:
        raise ValueError(f"model.dropout={probability:g}, and the network has no dropout layer. Leave it out.")
    for layer in layers:
        layer.p = probability


def make_average(config: EmaConfig, model: nn.Module) -> AveragedModel | None:
    """The exponential moving average of the weights, where one is asked for; buffers are those of the last update."""
    if config.decay is None:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.decay**config.every))  # type: ignore[no-untyped-call]
