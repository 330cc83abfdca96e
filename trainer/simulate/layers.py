"""What the layers of a network compute, from one pass of shapes alone: nothing is allocated, nothing is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import model_options, output_size, training_recipe
from augpipe.trainer.models.finetune import trainable
from augpipe.trainer.models.registry import build
from augpipe.trainer.parallel.layouts import Hop

BACKWARD_OVER_FORWARD = 2
"""A layer's backward pass makes the gradients of its weights and of its input, each as much work as the forward pass;
the first layer's input needs none."""
VALUE_BYTES = 4
"""What a float32 takes."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One module with parameters of its own, where the forward pass first comes to it."""

    name: str
    parameters: tuple[int, ...]
    """Numbers of its parameters in the order of the plan."""
    forward_s: float
    """Seconds of its forward pass, for a rank's batch."""
    backward_s: float
    output_bytes: int
    """What its output takes in float32, which backward needs again."""
    shards: tuple[int, ...] = ()
    """Numbers of its parameters among the shards of split layers."""
    before: tuple[Hop, ...] = ()
    """Exchanges of features before its forward pass; deltas take them the other way behind its backward pass."""
    after: tuple[Hop, ...] = ()
    """Those behind its forward pass."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Layers that a batch goes through, whole or in pieces, and the exchange of features, or deltas, that follows."""

    layers: tuple[Layer, ...]
    is_cut: bool
    """Whether the pieces of a batch go through them one after the other, as between two exchanges."""
    hop: Hop | None = None
    name: str = ""
    """The split layer that the exchange is for."""


def stages_of(layers: Sequence[Layer]) -> list[Stage]:
    """A forward pass."""
    found: list[Stage] = []
    met: tuple[Layer, ...] = ()
    is_cut = False
    for layer in layers:
        for hop in layer.before:
            found.append(Stage(layers=met, is_cut=is_cut, hop=hop, name=layer.name))
            met, is_cut = (), True
        met = (*met, layer)
        for hop in layer.after:
            found.append(Stage(layers=met, is_cut=is_cut, hop=hop, name=layer.name))
            met = ()
        is_cut = is_cut and not layer.after
    return [*found, Stage(layers=met, is_cut=is_cut)]


def backwards(stages: Sequence[Stage]) -> list[Stage]:
    """The backward pass, from the last layer to the first; layers that take the whole batch are stages of their own.

    An exchange is the forward pass's, to be gone through the other way.
    """
    found: list[Stage] = []
    for earlier, stage in zip([Stage(layers=(), is_cut=False), *stages], stages, strict=False):
        turned = stage.layers[::-1]
        parts: list[tuple[Layer, ...]] = [turned] if stage.is_cut else [(layer,) for layer in turned]
        *alone, last = parts or [()]
        found = [
            *(Stage(layers=one, is_cut=False) for one in alone),
            Stage(layers=last, is_cut=stage.is_cut, hop=earlier.hop, name=earlier.name),
            *found,
        ]
    return found


def network_of(config: RunConfig, flop_per_s: float) -> tuple[nn.Module, dict[nn.Parameter, str], tuple[Layer, ...]]:
    """A config's network on "meta", the parameters of it that train, and its layers for a rank's batch.

    Raises:
        ValueError: the config does not say how many classes there are, or the network does not take its images.
    """
    if config.model.num_classes is None:
        raise ValueError(
            "model.num_classes is left out, and no source is read here. Add it, as --set model.num_classes=1000."
        )
    recipe = training_recipe(config.data)
    with torch.device("meta"):
        options = model_options(config.model, recipe.channels)
        model = build(config.model.name, num_classes=config.model.num_classes, **options)
    trainable(model, config.model.trainable)
    parameters = {one: name for name, one in model.named_parameters() if one.requires_grad}
    shape = (config.data.batch_size, recipe.channels, *output_size(recipe))
    return model, parameters, layers_of(model, parameters, shape, flop_per_s)


def layers_of(
    model: nn.Module, names: Mapping[nn.Parameter, str], shape: tuple[int, ...], flop_per_s: float
) -> tuple[Layer, ...]:
    """The layers of a network on the device "meta", in the order of its forward pass.

    Convolutions and linear layers are counted, two operations a multiplication and addition; what works element by
    element (activations, normalisation, pooling, the loss) takes no time here.

    Args:
        model: on "meta".
        names: the parameters that train, in the order of the plan.
        shape: (N, C, H, W) of a rank's batch.
        flop_per_s: of the device.

    Raises:
        ValueError: the network does not take images of that shape.
    """
    numbers = {parameter: number for number, parameter in enumerate(names)}
    found: dict[nn.Module, Layer] = {}

    def note(module: nn.Module, _: Any, output: Any) -> None:
        made = output if isinstance(output, Tensor) else None
        flop = 0 if made is None else _forward_flop(module, made)
        before = found.get(module)
        seconds = flop / flop_per_s + (before.forward_s if before else 0.0)
        is_first = not found or next(iter(found)) is module
        num_bytes = VALUE_BYTES * made.numel() if made is not None else 0
        found[module] = Layer(
            name=of_module[module],
            parameters=tuple(numbers[one] for one in module.parameters(recurse=False) if one in numbers),
            forward_s=seconds,
            backward_s=seconds * (BACKWARD_OVER_FORWARD - is_first),
            output_bytes=num_bytes + (before.output_bytes if before else 0),
        )

    of_module = {module: name for name, module in model.named_modules()}
    handles = [
        module.register_forward_hook(note)
        for module in of_module
        if next(module.parameters(recurse=False), None) is not None
    ]
    try:
        model(torch.empty(shape, device="meta"))
    except (RuntimeError, ValueError) as error:
        size = "×".join(map(str, shape[1:]))
        raise ValueError(f"the network does not take images of {size} (channels, height, width): {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return _once_each(list(found.values()), len(numbers))


def _once_each(layers: list[Layer], num_parameters: int) -> tuple[Layer, ...]:
    """Give each parameter to the first layer that uses it; what no layer calls belongs to the first one."""
    seen: set[int] = set()
    kept = []
    for layer in layers:
        own = tuple(number for number in dict.fromkeys(layer.parameters) if number not in seen)
        seen.update(own)
        kept.append((layer, own))
    missing = tuple(number for number in range(num_parameters) if number not in seen)
    return tuple(
        replace(layer, parameters=own + (missing if place == 0 else ())) for place, (layer, own) in enumerate(kept)
    )


def _forward_flop(module: nn.Module, output: Tensor) -> int:
    """Operations of one call; of what is neither convolution nor linear, none."""
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 2 * output.numel() * module.weight[0].numel()
    if isinstance(module, nn.Linear):
        return 2 * output.numel() * module.in_features
    return 0
