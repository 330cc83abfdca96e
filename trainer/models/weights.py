"""Loading weights into a model: no code in the file is run, and what did not match is listed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from augpipe.trainer.models.finetune import last_layer
from augpipe.trainer.models.weights_file import read_state_dict

_MOST_LISTED = 10
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsReport:
    """What of a file went into a model; `str()` of it is a list to print. Names are those of the model's state_dict."""

    path: str
    """The file."""
    loaded: tuple[str, ...]
    """Tensors that the model now has from the file."""
    missing: tuple[str, ...]
    """Tensors of the model that the file lacks; they are as before."""
    unexpected: tuple[str, ...]
    """Tensors of the file that the model lacks."""
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    """Name, shape in the model, shape in the file; they are as before."""
    new_head: tuple[str, ...]
    """Tensors of the last layer that are as before, on request: the file's have other shapes, or it has none."""

    @property
    def is_complete(self) -> bool:
        """Whether all matched, except a new head that was asked for."""
        return not (self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        num = len(self.loaded) + len(self.missing) + len(self.mismatched) + len(self.new_head)
        lines = [f"{self.path}: {len(self.loaded)} of the model's {num} tensors match"]
        lines += _listed("the model has, the file has not", self.missing)
        lines += _listed("the file has, the model has not", self.unexpected)
        lines += _listed(
            "of another shape",
            [f"{name}: {_shape(ours)} here, {_shape(theirs)} in the file" for name, ours, theirs in self.mismatched],
        )
        lines += _listed("a new head, as before loading", self.new_head)
        return "\n".join(lines)


def load_weights(
    model: nn.Module,
    path: str | Path,
    *,
    strict: bool = True,
    new_head: bool = False,
    key: str | None = None,
    prefix: str = "",
) -> WeightsReport:
    """Copy the weights in a file into `model`, whatever device and float type either has.

    Reads what `torch.save` wrote, by `weights_only=True`, so that nothing in the file is run, and .safetensors files
    where safetensors is installed. Names are compared without the prefixes `module.` and `_orig_mod.` that
    DistributedDataParallel, averaged models and torch.compile put before them, in the file as in the model. Counters
    of batches that old files lack are not an error. Either the report is returned or the model is as before.

    A file holds whole weights; of layers that are split among ranks each takes its part, and reads no more.

    Args:
        strict: refuse a file that does not match; False loads what does, and the report says what did not.
        new_head: leave the last layer as it is if its shapes differ: the file was trained for another num_classes.
        key: which entry of the file holds the weights, where it holds several; without it "state_dict",
            "model_state_dict" and "model" are looked for.
        prefix: what else stands before each name in the file, as "model." in a LightningModule's; what does not begin
            with it is left out.

    Raises:
        ValueError: the file holds no weights, is damaged, or nothing in it matches; with strict, anything does not.
        ImportError: a .safetensors file, and safetensors is not installed.
        FileNotFoundError: there is no such file.
    """
    if any(tensor.is_meta for tensor in model.state_dict().values() if isinstance(tensor, Tensor)):
        raise ValueError(
            'the model lies on the "meta" device, without memory. Call model.to_empty(device="cpu") first.'
        )
    found = _bare_names(read_state_dict(Path(path), key=key, prefix=prefix), str(path))
    own = model.state_dict()
    own_names = _bare_names(own, "the model")
    parts = _bare_names(_parts(model), "the model")
    shapes = {
        name: parts[name][0].shape if name in parts else tuple(tensor.shape) for name, tensor in own_names.items()
    }
    fitting = {name for name in found if name in own_names and tuple(found[name].shape) == shapes[name]}
    head = _head_names(model) if new_head else set()
    kept = head if head - fitting else set()
    fitting -= kept
    report = WeightsReport(
        path=str(path),
        loaded=tuple(name for name in own_names if name in fitting),
        missing=tuple(name for name in own_names if name not in found and name not in kept and not _is_counter(name)),
        unexpected=tuple(name for name in found if name not in own_names and name not in kept),
        mismatched=tuple(
            (name, shapes[name], tuple(found[name].shape))
            for name in own_names
            if name in found and name not in fitting and name not in kept
        ),
        new_head=tuple(name for name in own_names if name in kept),
    )
    if not any(not _is_counter(name) for name in report.loaded):
        raise ValueError(
            f"nothing in {path} matches the model. The file has {_first(found)}; the model has {_first(own_names)}. "
            "Build the network that the file is of, or give the prefix of its names."
        )
    if strict and not report.is_complete:
        raise ValueError(
            f"{report}\nThe model is as before. Give strict=False to load what matches"
            + ("." if new_head else ", or new_head=True if only num_classes differs.")
        )
    with torch.no_grad():
        for name in report.loaded:
            part, rank = parts.get(name, (None, 0))
            own_names[name].copy_(found[name] if part is None else part.of(found[name], rank))
    return report


class Part(Protocol):
    """Which part of a whole parameter a rank holds, where a layer is split among ranks."""

    shape: tuple[int, ...]
    """The whole parameter's."""

    def of(self, whole: Tensor, rank: int) -> Tensor:
        """A rank's part of the whole parameter."""


@runtime_checkable
class HoldsParts(Protocol):
    """A layer that is split among ranks; `augpipe.trainer.parallel` makes such."""

    parts: Mapping[str, Part]
    """By a parameter's name in the layer."""
    rank: int
    """Whose part this is."""


def _parts(model: nn.Module) -> dict[str, tuple[Part, int]]:
    """By its name, how each split parameter of a network is cut, and which of its parts this rank has."""
    return {
        f"{layer}.{name}" if layer else name: (part, module.rank)
        for layer, module in model.named_modules()
        if isinstance(module, HoldsParts)
        for name, part in module.parts.items()
    }


def _bare_names(tensors: Mapping[str, _T], where: str) -> dict[str, _T]:
    """Tensors, or what is known of them, by names without wrappers' prefixes.

    Raises:
        ValueError: two names become one.
    """
    bare: dict[str, _T] = {}
    for name, tensor in tensors.items():
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        while len(parts) > 1 and parts[0] == "module":
            del parts[0]
        short = ".".join(parts)
        if short in bare:
            raise ValueError(f"{where} holds {short} twice, with and without a prefix. Take one of the two out.")
        bare[short] = tensor
    if any(name.startswith("module.") for name in tensors):
        bare.pop("n_averaged", None)  # an averaged model's counter; all else in it is a weight
    return bare


def _head_names(model: nn.Module) -> set[str]:
    head = last_layer(model)
    names = [f"{head}.{name}" if head else name for name, _ in model.get_submodule(head).named_parameters()]
    return set(_bare_names(dict.fromkeys(names), "the model"))


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == "num_batches_tracked"


def _listed(title: str, names: list[str] | tuple[str, ...]) -> list[str]:
    if not names:
        return []
    more = [f"    and {len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
    return [f"  {title} ({len(names)}):", *(f"    {name}" for name in names[:_MOST_LISTED]), *more]


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in shape) or "a number"


def _first(tensors: Mapping[str, Tensor]) -> str:
    names = [name for name in tensors if not _is_counter(name)]
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
