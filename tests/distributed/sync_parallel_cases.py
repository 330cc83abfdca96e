"""Cases: networks with split layers against the same networks whole, over all meshes of some ranks."""

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer.codecs import codec
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.models import build
from augpipe.trainer.models.cifar import LocallyConnected2d
from augpipe.trainer.models.layers import ConvNet, fully_connected
from augpipe.trainer.parallel import Split, build_split, cross_entropy, likeliest, make_mesh, pieces, split
from augpipe.trainer.parallel.layouts import ADJOINT, Hop, even_cuts
from augpipe.trainer.parallel.link import Link
from augpipe.trainer.strategies import SyncError, strategy
from tests.distributed.largest_storage import LargestStorage
from tests.distributed.sync_models import OPTIMIZERS

NUM_CLASSES = 11
NUM_STEPS = 10
TOLERANCE = 64 * 2**-24
"""Sums over ranks and features are in another order, by half an ulp each; 20 steps may add that up."""


def conv_net(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh())
    return ConvNet(features, nn.AdaptiveAvgPool2d(3), fully_connected(36, (29, 23), NUM_CLASSES, dropout))


def places() -> nn.Module:
    """Locally connected layers, whose places are split."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.Tanh(),
        LocallyConnected2d(5, 3, 3, height=8, width=8),
        nn.ReLU(inplace=True),
        LocallyConnected2d(3, 2, 5, height=8, width=8),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(128, NUM_CLASSES),
    )


class Residual(nn.Module):
    """A network that is no Sequential, with one layer to be split."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(144, 11)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        logits: Tensor = self.fc((x + torch.tanh(self.second(x))).flatten(1))
        return logits


NETWORKS: dict[str, tuple[Callable[[], nn.Module], str | list[str]]] = {
    "conv_net": (conv_net, "auto"),
    "two_of_three": (conv_net, ["classifier.3", "classifier.6"]),
    "not_the_middle": (conv_net, ["classifier.0", "*.6"]),
    "places": (places, "auto"),
    "residual": (Residual, "fc"),
}


def batch(rank: int, num: int, step: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    images = torch.randn(num, 3, 8, 8, generator=generator)
    return images, torch.randint(0, NUM_CLASSES, (num,), generator=generator)


def meshes(world_size: int, least: int = 1) -> list[int]:
    return [model for model in range(least, world_size + 1) if world_size % model == 0]


def outputs_and_gradients_are_the_whole_networks(rank: int, world_size: int) -> None:
    """With uneven batches and widths, either scheme, whole and split logits; a model axis of one among two ranks."""
    for model in meshes(world_size, 1 if world_size == 2 else 2):
        mesh = make_mesh(model)
        for make, layers in NETWORKS.values():
            for scheme, logits in (("gather", "whole"), ("rotate", "split")):
                whole = make()
                halves = split(make(), mesh, layers=layers, scheme=scheme, logits=logits)
                images, labels = batch(rank, 5 + rank)
                losses = [
                    cross_entropy(network(images), labels, label_smoothing=0.1) for network in (whole, halves.model)
                ]
                torch.testing.assert_close(losses[1], losses[0])
                for loss in losses:
                    (loss * torch.linspace(1, 2, len(loss))).sum().backward()
                for name, parameter in whole.named_parameters():
                    expected = parameter.grad
                    if name in halves.parts:  # the mean over the model axis, whose images it has seen
                        dist.all_reduce(expected, group=mesh.model)
                        expected = halves.parts[name].of(expected / model, mesh.model_rank)
                    torch.testing.assert_close(halves.model.get_parameter(name).grad, expected)
                assert torch.equal(likeliest(halves.model(images), 5), whole(images).topk(5, 1).indices)
                halves.close()


def whole_states_are_the_networks(rank: int, world_size: int) -> None:
    for make, layers in NETWORKS.values():
        halves = split(make(), make_mesh(world_size), layers=layers)
        found = halves.whole_state_dict()
        expected = make().state_dict()
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        for name, part in halves.parts.items():
            assert halves.model.get_parameter(name).numel() < expected[name].numel() == torch.Size(part.shape).numel()
        halves.close()


def networks_are_built_without_a_whole_layer(rank: int, world_size: int) -> None:
    """With the same weights, and the generator as after building the whole network."""
    mesh = make_mesh(world_size)
    for name, options in (
        ("alexnet", {"num_classes": 101, "fc_widths": (2047, 1031)}),
        ("cifar-conv", {"num_classes": 10}),
        ("mnist-mlp", {"num_classes": 10}),
    ):
        torch.manual_seed(3)
        whole, after = build(name, **options), torch.rand(1)
        torch.manual_seed(3)
        with LargestStorage() as most:
            halves = build_split(lambda name=name, options=options: build(name, **options), mesh)
        assert torch.equal(torch.rand(1), after)
        largest = max(parameter.numel() * 4 for parameter in whole.parameters())
        largest_part = max(parameter.numel() * 4 for parameter in halves.model.parameters())
        assert most.num_bytes == largest_part < 0.51 * largest
        found = halves.whole_state_dict()
        assert all(torch.equal(found[key], value) for key, value in whole.state_dict().items())
        halves.close()


def bytes_are_the_formulas(rank: int, world_size: int) -> None:
    for model in meshes(world_size):
        mesh = make_mesh(model)
        rows = [5 + other for other in dist.get_process_group_ranks(mesh.model)]
        for how in ({}, {"activations": "dynamic-tree", "deltas": "linear", "small": 64}):
            for scheme in ("gather", "rotate"):
                halves = split(conv_net(), mesh, scheme=scheme, **how)
                images, labels = batch(rank, 5 + rank)
                cross_entropy(halves.model(images), labels).sum().backward()
                sent = {key: halves.meter.total[key] for key in ("activations", "deltas")}
                assert sent == halves.bytes_sent(rows), (sent, halves.bytes_sent(rows))
                assert (model == 1) == (sum(sent.values()) == 0)
                halves.close()


def what_is_decoded_is_within_the_codecs_bound(rank: int, world_size: int) -> None:
    """For each exchange that is no sum; a rank's own part is not encoded, small messages neither, zero stays zero."""
    mesh = make_mesh(world_size)
    used = codec("dynamic-tree")
    issuer = Issuer("test", torch.device("cpu"))
    rows, cuts = tuple(6 + other for other in range(world_size)), even_cuts(301, world_size)
    for small in (1, 10**6):
        link = Link(
            mesh.model, issuer, host_group=mesh.model, activations=used, deltas=codec("fp32"), timeout_s=20, small=small
        )
        generator = torch.Generator().manual_seed(0)
        whole = torch.relu(torch.randn(sum(rows), 301, generator=generator))
        for source, target in ADJOINT:
            if source == "partial":
                continue
            hop = Hop(source=source, target=target, cuts=cuts)
            found = link.end(link.begin(hop, _laid(whole, source, rank, rows, cuts), rows, "activations"))
            expected = _laid(whole, target, rank, rows, cuts)
            if small > 1:
                assert torch.equal(found, expected)
                continue
            assert not torch.equal(found, expected)
            # a block is of one message; the whole's absmax bounds that of any block
            limit = float(torch.from_numpy(used.error_bound(whole)).max())
            assert (found - expected).abs().max() <= limit
            assert (found[expected == 0] == 0).all()
    issuer.close()


def messages_that_are_cut_arrive_as_whole_ones(rank: int, world_size: int) -> None:
    """Bit for bit, by every exchange, encoded and as they are, from ranks with different numbers of images."""
    mesh = make_mesh(world_size)
    issuer = Issuer("test", torch.device("cpu"))
    rows, cuts = tuple(3 + 2 * other for other in range(world_size)), even_cuts(301, world_size)
    whole = torch.randn(sum(rows), 301, generator=torch.Generator().manual_seed(0))
    for name in ("fp32", "dynamic-tree"):
        link = Link(
            mesh.model,
            issuer,
            host_group=mesh.model,
            activations=codec(name),
            deltas=codec("fp32"),
            timeout_s=20,
            small=1,
        )
        for source, target in ADJOINT:
            x = (rank + 1) * whole if source == "partial" else _laid(whole, source, rank, rows, cuts)
            found = []
            for piece_bytes in (2**20, 100):
                with mock.patch.object(pieces, "PIECE_BYTES", piece_bytes):
                    travelling = link.begin(Hop(source=source, target=target, cuts=cuts), x, rows, "activations")
                assert (len(travelling.pieces) > 1) == (piece_bytes == 100)
                found.append(link.end(travelling))
            assert torch.equal(*found)
    issuer.close()


def _laid(whole: Tensor, layout: str, rank: int, rows: tuple[int, ...], cuts: tuple[int, ...]) -> Tensor:
    if layout == "own":
        return torch.split(whole, list(rows))[rank]
    return whole if layout == "gathered" else whole[:, cuts[rank] : cuts[rank + 1]]


def dropout_is_the_same_however_layers_are_split(rank: int, world_size: int) -> None:
    for scheme in ("gather", "rotate"):
        found = []
        for model in meshes(world_size):
            halves = split(conv_net(dropout=0.4), make_mesh(model), scheme=scheme, seed=5)
            passes = [halves.model(batch(rank, 4 + rank)[0]) for _ in range(3)]
            assert not torch.equal(passes[0], passes[1])
            halves.num_forwards = 1
            assert torch.equal(halves.model(batch(rank, 4 + rank)[0]), passes[1])
            halves.model.eval()
            passes.append(halves.model(batch(rank, 4 + rank)[0]))
            found.append(torch.stack(passes))
            halves.close()
        for other in found[1:]:
            torch.testing.assert_close(other, found[0])


def train(halves: Split | None, name: str, rank: int, optimizer: str, clip: float | None, accumulate: int) -> Any:
    network = conv_net() if halves is None else halves.model
    sync = strategy(
        name,
        network,
        OPTIMIZERS[optimizer],
        clip_norm=clip,
        bucket_bytes=2000,
        timeout_s=20,
        split=halves,
    )
    norms = []
    for step in range(NUM_STEPS):
        for micro in range(accumulate):
            images, labels = batch(rank, 6, step * accumulate + micro)
            with sync.no_sync() if micro < accumulate - 1 else torch.enable_grad():
                cross_entropy(sync.module(images), labels).mean().backward()
        norms.append(sync.step().grad_norm)
    sync.flush()
    sync.close()
    return norms


HOW = {"sgd": (0.5, 2), "adamw": (None, 1), "rmsprop": (None, 1)}
"""By optimizer: the clip norm, and batches whose gradients are added up."""
WAYS = {"butterfly": {"scheme": "gather", "logits": "split"}, "lazy": {"scheme": "rotate", "logits": "whole"}}
BOTH = tuple(WAYS)
TRAINED: dict[int, dict[str, dict[int, tuple[str, ...]]]] = {
    2: {"sgd": {1: BOTH, 2: BOTH}, "adamw": {1: BOTH, 2: BOTH}, "rmsprop": {2: BOTH}},
    4: {"sgd": {2: BOTH, 4: ("lazy",)}, "adamw": {2: BOTH, 4: ("butterfly",)}},
    6: {"sgd": {2: ("butterfly",)}, "adamw": {2: ("lazy",)}},
}
"""By world size and optimizer, the model ranks and strategies that are trained with."""


def training_equals_ddp(rank: int, world_size: int) -> None:
    """After all steps, to float32 rounding; torch's own DDP of the whole network, nothing of ours in it."""
    for optimizer, trained in TRAINED[world_size].items():
        clip, accumulate = HOW[optimizer]
        whole = conv_net()
        module, update = DistributedDataParallel(whole), OPTIMIZERS[optimizer](whole.parameters())
        for step in range(NUM_STEPS):
            for micro in range(accumulate):
                images, labels = batch(rank, 6, step * accumulate + micro)
                with module.no_sync() if micro < accumulate - 1 else torch.enable_grad():
                    F.cross_entropy(module(images), labels).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(whole.parameters(), clip)
            update.step()
            update.zero_grad()
        expected = whole.state_dict()
        for model, name in [(model, name) for model, names in trained.items() for name in names]:
            mesh = make_mesh(model)
            halves = split(conv_net(), mesh, **WAYS[name])
            train(halves, name, rank, optimizer, clip, accumulate)
            for key, value in halves.whole_state_dict().items():
                torch.testing.assert_close(value, expected[key], rtol=TOLERANCE, atol=TOLERANCE)
            same = torch.cat([value.flatten() for value in halves.model.state_dict().values()])
            everyones = [torch.empty_like(same) for _ in range(mesh.data_size)]
            dist.all_gather(everyones, same, group=mesh.data)
            assert all(torch.equal(one, same) for one in everyones), "ranks hold other bits of the same weights"
            halves.close()


def images_may_have_a_name(rank: int, world_size: int) -> None:
    """A network called with keyword arguments alone; one that gets no tensor at all is refused."""
    halves = split(conv_net(), make_mesh(world_size), timeout_s=20)
    images, _ = batch(rank, 3 + rank)
    assert torch.equal(halves.model(images_NCHW=images), halves.model(images))
    for inputs in ({}, {"images_NCHW": None}, {"images_NCHW": torch.tensor(3.0)}):
        with pytest.raises(ValueError, match="a ConvNet with split layers was called without a tensor of images"):
            halves.model(**inputs)
    halves.close()


def ranks_that_do_other_things_are_told(rank: int, world_size: int) -> None:
    halves = split(conv_net(), make_mesh(world_size), timeout_s=20)
    halves.model.train(rank == 0)
    with pytest.raises(SyncError, match="of training.*of evaluation|of evaluation.*of training"):
        halves.model(batch(rank, 3)[0])
    halves.close()


def impossible_splits_are_refused(rank: int, world_size: int) -> None:
    mesh = make_mesh(world_size)
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight
    for network, how, says in (
        (conv_net(), {"layers": "head"}, "'head' is not a fully connected layer. Choose among classifier.0"),
        (Residual(), {}, "Name layers: fc"),
        (Residual(), {"layers": "first"}, "'first' is not a fully connected layer"),
        (nn.Sequential(nn.Conv2d(3, 3, 1)), {}, "has no layer that can be split"),
        (nn.Sequential(nn.Linear(8, 1)), {}, "0 has 1 features, too few to be split in 2"),
        (tied, {}, "shares weights with"),
        (conv_net(), {"layers": "classifier.0", "logits": "split"}, "last layer, classifier.6"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            split(network, mesh, **how)
    with pytest.raises(ValueError, match="can have 1, 2. Choose one of these"):
        make_mesh(world_size + 1)
    halves = split(nn.Sequential(nn.Unflatten(0, (2, -1)), nn.Flatten(1), nn.Linear(6, 4)), mesh)
    with pytest.raises(ValueError, match="got 2 rows, and the network 4 images"):
        halves.model(torch.zeros(4, 3))
    halves.close()


EVERYWHERE = [
    "outputs_and_gradients_are_the_whole_networks",
    "bytes_are_the_formulas",
    "dropout_is_the_same_however_layers_are_split",
    "training_equals_ddp",
]
CASES = {
    2: [
        *EVERYWHERE,
        "whole_states_are_the_networks",
        "networks_are_built_without_a_whole_layer",
        "what_is_decoded_is_within_the_codecs_bound",
        "messages_that_are_cut_arrive_as_whole_ones",
        "images_may_have_a_name",
        "ranks_that_do_other_things_are_told",
        "impossible_splits_are_refused",
    ],
    3: ["whole_states_are_the_networks", "networks_are_built_without_a_whole_layer"],
    4: EVERYWHERE,
    6: ["training_equals_ddp"],
}
