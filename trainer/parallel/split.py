"""Turn fully connected layers of a network into layers that are split among the ranks of a model axis."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from augpipe.trainer.codecs import Codec
from augpipe.trainer.codecs import codec as codec_by_name
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.exchange.ranks import own_group
from augpipe.trainer.models.finetune import last_layer
from augpipe.trainer.parallel.chain import Chain, Scheme
from augpipe.trainer.parallel.forward import ForwardPass
from augpipe.trainer.parallel.layers import Part, SplitLayer
from augpipe.trainer.parallel.layouts import Layout
from augpipe.trainer.parallel.link import SMALL, Link, message_bytes
from augpipe.trainer.parallel.mesh import Mesh
from augpipe.trainer.parallel.split_choice import choose_layers, find_chains, replace_chains


class Split:
    """A network whose layers are split, and what a strategy and a trainer need to know of it."""

    def __init__(
        self, model: nn.Module, mesh: Mesh, link: Link, passes: ForwardPass, issuer: Issuer, settings: dict[str, Any]
    ) -> None:
        self.model = model
        """To be called in the place of the network that was given."""
        self.mesh = mesh
        self.issuer = issuer
        """The thread that issues collectives; a strategy's go through it, too."""
        self.settings = settings
        """What all ranks must have in common, for the handshake."""
        self._link = link
        self._passes = passes

    @property
    def meter(self) -> Meter:
        """Bytes of activations and deltas that this rank sent."""
        return self._link.meter

    @property
    def layers(self) -> dict[str, SplitLayer]:
        """The split layers, by name."""
        return {name: module for name, module in self.model.named_modules() if isinstance(module, SplitLayer)}

    @property
    def parts(self) -> dict[str, Part]:
        """Which part of each split parameter a rank holds, by the parameter's name."""
        return {
            f"{layer}.{name}" if layer else name: part
            for layer, module in self.layers.items()
            for name, part in module.parts.items()
        }

    @property
    def parameters(self) -> dict[nn.Parameter, str]:
        """The trainable parameters of which this rank holds a part, with their names."""
        names = self.parts
        return {
            parameter: name
            for name, parameter in self.model.named_parameters()
            if name in names and parameter.requires_grad
        }

    @property
    def chains(self) -> list[Chain]:
        """The chains of split layers, in the network's order."""
        return [layer.chain for layer in self.layers.values() if isinstance(layer.chain, Chain)]

    @property
    def num_forwards(self) -> int:
        """Forward passes in training so far, modulo 2^32: dropout draws by it, so a resumed run sets it."""
        return self._passes.number

    @num_forwards.setter
    def num_forwards(self, number: int) -> None:
        self._passes.number = number

    def gather(self, name: str, part: Tensor) -> Tensor:
        """A whole parameter of that name, from every rank's part of it; called by all ranks of the model axis.

        `part` is what this rank holds of the parameter, or of anything with a number for each of its weights.
        """
        about = self.parts[name]
        sizes = [about.shape_of(rank) for rank in range(self._link.size)]
        longest = max(size[about.dim] for size in sizes)
        padded = part.new_zeros((*part.shape[: about.dim], longest, *part.shape[about.dim + 1 :]))
        padded.narrow(about.dim, 0, part.shape[about.dim]).copy_(part.detach())
        everyones = self._link.gather(f"parts of {name}", padded)
        parts = [one.narrow(about.dim, 0, size[about.dim]) for one, size in zip(everyones, sizes, strict=True)]
        return torch.cat(parts, about.dim)

    def whole_state_dict(self) -> dict[str, Tensor]:
        """The state_dict of the network as it was, its layers whole; called by all ranks of the model axis."""
        parts = self.parts
        return {
            name: self.gather(name, value) if name in parts else value
            for name, value in self.model.state_dict().items()
        }

    def bytes_sent(self, rows: Sequence[int], dtype: torch.dtype = torch.float32) -> dict[str, int]:
        """What this rank sends in a forward and a backward pass over `rows` images of each rank, by class."""

        def num_bytes(payload_class: str, largest: int, num: int) -> int:
            return message_bytes(num, self._link.codec_for(payload_class, largest, dtype), dtype)

        found = {"activations": 0, "deltas": 0}
        for chain in self.chains:
            for payload_class, num in chain.bytes_sent(rows, self._link.rank, num_bytes).items():
                found[payload_class] += num
        return found

    def __str__(self) -> str:
        """The mesh, the layers, and the exchanges of a forward pass; deltas take each the other way."""
        lines = [f"{self.mesh.data_size} × {self.mesh.model_size} ranks (data × model)"]
        for name, layer in self.layers.items():
            lines.append(f"{name}: {layer.in_features:,} -> {layer.out_features:,} by {layer.kind}")
        for chain in self.chains:
            lines += [f"  {run.hop}, at {run.name}" for run in chain.runs]
        return "\n".join(lines)

    def close(self) -> None:
        """End the thread."""
        self.issuer.close()


def split(
    model: nn.Module,
    mesh: Mesh,
    *,
    layers: Literal["auto"] | str | Sequence[str] = "auto",
    scheme: Scheme = "gather",
    activations: str | Codec = "fp32",
    deltas: str | Codec = "fp32",
    logits: Literal["whole", "split"] = "whole",
    small: int = SMALL,
    seed: int = 0,
    timeout_s: float = 300.0,
) -> Split:
    """Split fully connected layers of a network among the ranks of the mesh's model axis (Deep Image, section 3.2).

    Each rank keeps its part of their weights, and so of gradients and of the optimizer's state; names stay. Layers that
    follow each other in a torch.nn.Sequential, with nothing between them but activations and dropout, make a chain,
    whose layers are split by outputs or by inputs, whichever lets the ranks send least. Dropout in such a Sequential
    draws by seed, forward pass, image and feature from then on: alike however the layers are split.

    Called by all ranks at the same point, before an optimizer or a strategy takes the parameters. All ranks of a model
    axis then call the network together, each with images of its own. Layers on the "meta" device stay there.

    Args:
        model: a network with the same weights on all ranks; its layers are replaced. Call `Split.model` from then on.
        mesh: data × model ranks.
        layers: "auto" for those of a ConvNet's classifier, or of a network that is a torch.nn.Sequential; or names and
            patterns ("classifier.*") of torch.nn.Linear and LocallyConnected2d layers, which are split by places.
        scheme: "gather" or "rotate"; see `Chain`.
        activations: the codec of features, on the way forward; see `augpipe.trainer.codec`.
        deltas: that of error deltas, on the way back.
        logits: "split" leaves the network's outputs, of its last layer, split by classes: `cross_entropy` takes them.
        small: messages of fewer numbers go unencoded.
        seed: of dropout.
        timeout_s: seconds after which an exchange that a rank takes no part in is an error.

    Raises:
        ValueError: there is no such layer, or one that cannot be split so; the message says which.
    """
    names = choose_layers(model, layers, mesh.model_size)
    codecs = [codec_by_name(one) if isinstance(one, str) else one for one in (activations, deltas)]
    issuer = Issuer("model axis", mesh.device)
    group = own_group(mesh.model, timeout_s=timeout_s, waits_itself=True)
    on_hosts = own_group(mesh.model, timeout_s=timeout_s, backend="gloo")
    activations, deltas = codecs
    link = Link(
        group, issuer, host_group=on_hosts, activations=activations, deltas=deltas, timeout_s=timeout_s, small=small
    )
    passes = ForwardPass(link)
    chains = find_chains(model, names)
    last: list[Layout] = ["own"] * len(chains)
    if logits == "split":
        if chains[-1][-1][0] != last_layer(model):
            raise ValueError(
                f"logits='split' needs the network's last layer, {last_layer(model)}, to be split. Use logits='whole'."
            )
        last[-1] = "columns"
    model = replace_chains(model, chains, passes, last=last, scheme=scheme, seed=seed)
    model.register_forward_pre_hook(passes.begin, with_kwargs=True)
    settings = {
        "model ranks": mesh.model_size,
        "scheme": scheme,
        "codec of activations": codecs[0].name,
        "codec of deltas": codecs[1].name,
        "logits": logits,
        "dropout seed": seed,
    }
    found = Split(model, mesh, link, passes, issuer, settings)
    settings |= {f"split layer {name}": f"by {layer.kind}" for name, layer in found.layers.items()}
    return found
