"""Which layers of a network are split, which of them make a chain, and their replacement by split ones."""

import fnmatch
from collections.abc import Sequence
from typing import Any

from torch import nn

from augpipe.trainer.models.cifar import LocallyConnected2d
from augpipe.trainer.models.layers import ConvNet
from augpipe.trainer.parallel.chain import Chain, Scheme
from augpipe.trainer.parallel.dropout import SplitDropout
from augpipe.trainer.parallel.forward import ForwardPass
from augpipe.trainer.parallel.layers import SplitLayer, SplitLinear, SplitLocallyConnected2d
from augpipe.trainer.parallel.layouts import Layout, Widths, choose_kinds

ELEMENTWISE = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Hardtanh,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Dropout,
)
"""What may stand between two split layers of a chain: it looks at each feature by itself."""

Named = list[tuple[str, nn.Module]]


class SplitSequential(nn.Sequential):
    """A torch.nn.Sequential with split layers in it: each chain of them runs as one."""

    def __init__(self, like: nn.Sequential, passes: ForwardPass) -> None:
        super().__init__()
        for name, module in like.named_children():
            self.add_module(name, module)
        self.training = like.training
        self._passes = passes

    def forward(self, x: Any) -> Any:
        """As torch.nn.Sequential."""
        done: frozenset[str] = frozenset()
        for name, module in self.named_children():
            if name in done:
                continue
            if isinstance(module, SplitLayer):
                assert isinstance(module.chain, Chain)
                done = module.chain.names
            x = self._passes.drop(module, x) if isinstance(module, SplitDropout) else module(x)
        return x


def choose_layers(model: nn.Module, layers: str | Sequence[str], size: int) -> list[str]:
    """The names of the layers to be split in `size`, in the network's order.

    Raises:
        ValueError: none is meant, a name is unknown, or a layer cannot be split.
    """
    known = {name: module for name, module in model.named_modules() if is_splittable(module)}
    if layers == "auto":
        if isinstance(model, ConvNet):
            chosen = [name for name in known if name.startswith("classifier.")]
        elif isinstance(model, nn.Sequential):
            chosen = list(known)
        else:
            raise ValueError(
                "layers='auto' is for this package's convolutional networks and for torch.nn.Sequential, and this is "
                f"a {type(model).__name__}. Name layers: {_listed(known)}."
            )
    else:
        patterns = [layers] if isinstance(layers, str) else list(layers)
        for pattern in patterns:
            if not fnmatch.filter(known, pattern):
                raise ValueError(f"layers: {pattern!r} is not a fully connected layer. Choose among {_listed(known)}.")
        chosen = [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        raise ValueError(f"layers={layers!r}: the network, a {type(model).__name__}, has no layer that can be split.")
    for name in chosen:
        _check(model, name, known[name], size)
    return chosen


def is_splittable(module: nn.Module) -> bool:
    """Whether a module is of a kind that can be split; what is split already is not."""
    return type(module) in (nn.Linear, LocallyConnected2d)


def _listed(known: dict[str, nn.Module]) -> str:
    return ", ".join(known) or "none, for it has no torch.nn.Linear"


def _check(model: nn.Module, name: str, layer: nn.Module, size: int) -> None:
    widths = widths_of(layer)
    least = layer.bias.shape[1] if isinstance(layer, LocallyConnected2d) else min(widths.inputs, widths.outputs)
    if least < size:
        what = "rows of places" if isinstance(layer, LocallyConnected2d) else "features"
        raise ValueError(
            f"layer {name} has {least} {what}, too few to be split in {size}: leave it out of layers, or choose a "
            "smaller model axis."
        )
    own = {id(parameter) for parameter in layer.parameters()}
    for other, module in model.named_modules():
        if module is not layer and any(id(one) in own for one in module.parameters(recurse=False)):
            raise ValueError(f"layer {name} shares weights with {other}: it cannot be split. Leave it out of layers.")


def widths_of(layer: nn.Module) -> Widths:
    """The features of a layer, and how it can be split; locally connected ones by places alone."""
    if isinstance(layer, LocallyConnected2d):
        places = layer.bias.shape[1] * layer.bias.shape[2]
        return Widths(inputs=places, outputs=places, kinds=("column",))
    assert isinstance(layer, nn.Linear)
    return Widths(inputs=layer.in_features, outputs=layer.out_features)


def find_chains(model: nn.Module, names: Sequence[str]) -> list[Named]:
    """The layers by chains, each with what stands between its layers; in the network's order."""
    chosen = set(names)
    chains: list[Named] = []
    placed: set[str] = set()
    for parent_name, parent in model.named_modules():
        if type(parent) is not nn.Sequential:
            continue
        open_chain: Named = []
        for child_name, child in parent.named_children():
            name = f"{parent_name}.{child_name}" if parent_name else child_name
            if name in chosen:
                if not open_chain:
                    chains.append(open_chain)
                open_chain.append((name, child))
                placed.add(name)
            elif open_chain and isinstance(child, ELEMENTWISE):
                open_chain.append((name, child))
            else:
                open_chain = []
    chains += [[(name, model.get_submodule(name))] for name in names if name not in placed]
    for chain in chains:
        while chain[-1][0] not in chosen:
            chain.pop()
    order = list(names)
    return sorted(chains, key=lambda chain: order.index(chain[0][0]))


def replace_chains(
    model: nn.Module, chains: Sequence[Named], passes: ForwardPass, *, last: Sequence[Layout], scheme: Scheme, seed: int
) -> nn.Module:
    """Put split layers in the place of the chains' layers; returns the network, or what stands for it."""
    rank, size = passes.link.rank, passes.link.size
    dropouts = [name for name, module in model.named_modules() if isinstance(module, nn.Dropout)]
    parents = {name.rpartition(".")[0] for chain in chains for name, _ in chain}
    sequentials = {name for name in parents if type(model.get_submodule(name)) is nn.Sequential}
    for name in dropouts:
        if name.rpartition(".")[0] in sequentials:
            dropout = model.get_submodule(name)
            assert isinstance(dropout, nn.Dropout)
            split_dropout = SplitDropout(dropout.p, dropouts.index(name), seed)
            split_dropout.training = dropout.training
            _replace(model, name, split_dropout)
    for chain, layout in zip(chains, last, strict=True):
        layers = [(name, layer) for name, layer in chain if is_splittable(layer)]
        kinds = choose_kinds([widths_of(layer) for _, layer in layers], size, layout)
        first: SplitLayer | None = None
        for (name, layer), kind in zip(layers, kinds, strict=True):
            made: type[Any] = SplitLinear if isinstance(layer, nn.Linear) else SplitLocallyConnected2d
            split_layer = made(layer, kind, rank, size)
            split_layer.training = layer.training
            first = first or split_layer
            _replace(model, name, split_layer)
        assert first is not None
        members = [(name.rpartition(".")[2], model.get_submodule(name)) for name, _ in chain]
        first.chain = Chain(members, passes, last=layout, scheme=scheme)
    for name in sorted(sequentials, reverse=True):  # the network itself last
        sequential = model.get_submodule(name)
        assert isinstance(sequential, nn.Sequential)
        if not name:
            return SplitSequential(sequential, passes)
        _replace(model, name, SplitSequential(sequential, passes))
    return model


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
