"""The networks' names, and what each is built by; torch is imported when one is built."""

import difflib
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from augpipe.validation.arguments import as_count

if TYPE_CHECKING:
    from torch import nn

_BUILDERS = {
    "deep-image-16": "vgg:deep_image_16",
    "deep-image-19": "vgg:deep_image_19",
    "scaling-8conv": "vgg:scaling_8conv",
    "alexnet": "alexnet:alexnet",
    "mnist-mlp": "mlp:mnist_mlp",
    "mullapudi-mlp": "mlp:mullapudi_mlp",
    "cifar-conv": "cifar:cifar_conv",
    "resnet-18": "resnet:resnet_18",
    "resnet-50": "resnet:resnet_50",
    "small-cnn": "small:small_cnn",
}
"""Name -> module here and function in it."""

_LIBRARIES = {"torchvision": "from_torchvision", "timm": "from_timm"}
"""What stands before the colon -> function in external.py."""


def names() -> tuple[str, ...]:
    """The networks of this package, in the order of docs/models.md; those of torchvision and timm are not listed."""
    return tuple(_BUILDERS)


def build(name: str, *, num_classes: int, **options: Any) -> "nn.Module":
    """A network with new random weights, in float32 and on torch's current default device.

    Weights are drawn from torch's global generator: call `torch.manual_seed` first for the same ones again. Under
    `with torch.device("meta")` nothing is allocated nor drawn.

    Args:
        name: one of `names()`, or `torchvision:NAME` or `timm:NAME` for any classifier of those libraries.
        num_classes: how many logits the network gives for an image, shape (N, num_classes); at least 1.
        options: keywords of the network's own function, by default as in its source; docs/models.md lists them. Those
            of another library are handed on to it.

    Raises:
        ValueError: an unknown name or option, or one out of range; what there is, is listed.
        ImportError: torchvision or timm is not installed.
    """
    count = as_count("num_classes", num_classes)
    library, colon, external = name.partition(":")
    if colon and library in _LIBRARIES:
        from_library = getattr(import_module("augpipe.trainer.models.external"), _LIBRARIES[library])
        model: nn.Module = from_library(external, num_classes=count, **options)
        return model
    if name not in _BUILDERS:
        raise ValueError(_unknown(name))
    module, _, function = _BUILDERS[name].partition(":")
    builder: Callable[..., nn.Module] = getattr(import_module(f"augpipe.trainer.models.{module}"), function)
    _check_options(name, builder, options)
    return builder(num_classes=count, **options)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), _BUILDERS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"model={name!r} is not known.{hint} Choose one of {', '.join(_BUILDERS)}, "
        "or torchvision:NAME or timm:NAME where those are installed."
    )


def _check_options(name: str, builder: Callable[..., object], options: dict[str, Any]) -> None:
    known = [option for option in inspect.signature(builder).parameters if option != "num_classes"]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(f"{name} has no option {', '.join(unknown)}. Its options are {', '.join(known)}.")
