"""Split layers on a virtual cluster: bytes beside those of the layers' own formula, times worked out by hand."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from augpipe.trainer.codecs.registry import codec
from augpipe.trainer.config.load import make_config
from augpipe.trainer.config.tables import ParallelConfig
from augpipe.trainer.models import build
from augpipe.trainer.parallel.link import SMALL, message_bytes
from augpipe.trainer.parallel.split_choice import choose_layers, find_chains, replace_chains
from augpipe.trainer.simulate.cluster_card import load_card
from augpipe.trainer.simulate.layers import layers_of
from augpipe.trainer.simulate.prediction import Prediction, predict, subject_of
from augpipe.trainer.simulate.splitting import split_layers
from augpipe.trainer.simulate.step import Played, play_steps
from augpipe.trainer.simulate.workload import Settings, Workload
from tests.trainer.simulate.test_step import QUICK, card

BATCH = 8


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return build(name, num_classes=1000)


def workload(ranks: int, size: int, *, name: str = "alexnet", seconds: float = 0.0, **fields: Any) -> Workload:
    """A network of ours whose fully connected layers are split; each layer is `seconds` forward and again backward."""
    cluster = card(**fields.pop("card", {}))
    model = on_meta(name)
    names = {one: key for key, one in model.named_parameters()}
    layers = tuple(
        replace(one, forward_s=seconds, backward_s=seconds)
        for one in layers_of(model, names, (BATCH, 3, 227, 227), cluster.flop_per_s)
    )
    config = ParallelConfig(model=size, **fields.pop("parallel", {}))
    splitting, rest, layers = split_layers(model, layers, names, config, BATCH)
    return Workload(rest, layers, Settings(strategy="butterfly", **fields), cluster, ranks, splitting=splitting)


def crossing_bytes(work: Workload, rank: int) -> dict[str, int]:
    """What a rank of the model axis sends in a forward and a backward pass."""
    assert work.splitting is not None
    found = {"activations": 0, "deltas": 0}
    for layer in work.layers:
        for hop in (*layer.before, *layer.after):
            for piece in range(len(work.splitting.pieces)):
                for back, kind in ((False, "activations"), (True, "deltas")):
                    crossing = work.splitting.crossing(hop, rank, work.card, back=back, piece=piece)
                    found[kind] += sum(crossing.bytes_to)
    return found


@pytest.mark.parametrize("coded", ["fp32", "dynamic-tree"])
@pytest.mark.parametrize("logits", ["whole", "split"])
@pytest.mark.parametrize(
    ("name", "scheme"), [("alexnet", "gather"), ("deep-image-16", "gather"), ("alexnet", "rotate")]
)
def test_bytes_are_those_of_the_layers_formula(name: str, scheme: Any, logits: Any, coded: str) -> None:
    size = 3  # 1,000 classes are cut unevenly, and a batch of eight is, too
    parallel = {"activations": coded, "deltas": coded, "logits": logits, "scheme": scheme}
    work = workload(size, size, name=name, parallel=parallel)
    model = on_meta(name)
    chains = find_chains(model, choose_layers(model, "auto", size))
    nobody: Any = SimpleNamespace(link=SimpleNamespace(rank=0, size=size))
    last: Any = ["columns" if logits == "split" else "own"]
    replace_chains(model, chains, nobody, last=last, scheme=scheme, seed=0)
    chains_of: list[Any] = [one.chain for one in model.modules() if getattr(one, "chain", None) is not None]
    (chain,) = chains_of

    def num_bytes(_: str, largest: int, num: int) -> int:
        used = None if coded == "fp32" or largest < SMALL else codec(coded)
        return message_bytes(num, used, torch.float32)

    for rank in range(size):
        wanted = chain.bytes_sent([BATCH] * size, rank, num_bytes)
        assert crossing_bytes(work, rank) == wanted and min(wanted.values()) > 0


def played(work: Workload, *, in_full: bool) -> Played:
    return play_steps(work, 3, in_full=in_full)


@pytest.mark.parametrize("ranks", [4, 8])
def test_bytes_sent_are_the_sum_of_all_exchanges(ranks: int) -> None:
    work = workload(ranks, 4)
    found = played(work, in_full=True)
    rest = sum(sum(work.sent(one, 0)) for one in work.collectives)
    shards = sum(sum(work.shards.sent(one, 0)) for one in work.shards.collectives) if work.shards else 0
    assert (ranks == 4) == (work.shards is None)
    assert found.bytes_sent == 3 * (sum(crossing_bytes(work, 0).values()) + rest + shards)
    # a quarter of the fully connected layers' weights and biases
    whole = sum(one.numel() for key, one in on_meta("alexnet").named_parameters() if key.startswith("classifier"))
    assert work.num_sharded == whole / 4


def test_a_crossing_takes_its_bytes_over_the_bandwidth_and_is_waited_for() -> None:
    rate = 1e6
    quiet, slow = (
        played(workload(2, 2, seconds=1.0, card={"nic_bytes_per_s": one}), in_full=True) for one in (QUICK, rate)
    )
    work = workload(2, 2)
    crossing_s = sum(crossing_bytes(work, 0).values()) / rate
    rest_s = sum(sum(work.sent(one, 0)) for one in work.collectives) / rate
    num_layers = len(work.layers)
    assert quiet.step_s == pytest.approx(2.0 * num_layers, rel=1e-6)
    # what the convolutions exchange hides behind their own backward passes, but for the last part
    assert crossing_s < slow.step_s - quiet.step_s < crossing_s + rest_s
    assert slow.exposed_s[-1] == pytest.approx(slow.step_s - quiet.step_s, rel=1e-6)


def one_layer(scheme: Any, travel_s: float, compute_s: float) -> Workload:
    """A layer split by its columns among two ranks, which alone computes; its outputs stay in columns."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, 32))
    rate = 4 * BATCH * 64 / travel_s
    layers = layers_of(model, {one: key for key, one in model.named_parameters()}, (BATCH, 64), 1.0)
    names = {one: key for key, one in model.named_parameters()}
    layers = tuple(replace(one, forward_s=compute_s, backward_s=compute_s) for one in layers)
    config = ParallelConfig(model=2, layers=["0"], scheme=scheme, logits="split")
    splitting, rest, layers = split_layers(model, layers, names, config, BATCH)
    cluster = card(nic_bytes_per_s=rate)
    return Workload(rest, layers, Settings(strategy="butterfly"), cluster, 2, splitting=splitting)


@pytest.mark.parametrize(("travel_s", "compute_s"), [(1.0, 3.0), (3.0, 1.0)])
def test_a_piece_travels_while_another_one_is_computed(travel_s: float, compute_s: float) -> None:
    gather, rotate = (
        play_steps(one_layer(scheme, travel_s, compute_s), 1).ends_s[0] for scheme in ("gather", "rotate")
    )
    assert gather == pytest.approx(2 * (travel_s + compute_s), rel=1e-3)
    # half of the longer one is done beside half of the shorter one, in either pass
    assert rotate == pytest.approx(2 * max(travel_s, compute_s) + min(travel_s, compute_s), rel=1e-3)


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "size", "devices"), [(8, 2, 1), (8, 2, 4), (8, 4, 2), (16, 4, 8)])
@pytest.mark.parametrize("strategy", ["butterfly", "lazy"])
def test_one_rank_stands_for_all(ranks: int, size: int, devices: int, strategy: str) -> None:
    fields = {"devices_per_node": devices, "nic_bytes_per_s": 1e9, "within_bytes_per_s": 1e9}
    make = partial(workload, ranks, size, seconds=0.01, card=fields)
    work = make()
    work = Workload(
        {one: name for name, one in _rest(work)}, work.layers, Settings(strategy=strategy), work.card, ranks,
        splitting=work.splitting,
    )  # fmt: skip
    full, alone = (played(work, in_full=one) for one in (True, False))
    assert alone.bytes_sent == full.bytes_sent
    assert alone.step_s == pytest.approx(full.step_s, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "size", "seconds", "scheme"), [(8, 2, 0.0, "gather"), (6, 3, 0.01, "rotate")])
def test_two_exchanges_of_a_rank_do_not_block_each_other(ranks: int, size: int, seconds: float, scheme: str) -> None:
    """All ranks issue those of the shards and those of the rest in one order, or they would wait for each other."""
    fields = {"devices_per_node": ranks // size // 2, "nic_bytes_per_s": 1e9, "within_bytes_per_s": 5e9}
    found = played(workload(ranks, size, seconds=seconds, card=fields, parallel={"scheme": scheme}), in_full=True)
    assert len(found.ends_s) == 3


def _rest(work: Workload) -> list[tuple[str, nn.Parameter]]:
    return [(str(number), nn.Parameter(torch.empty(size, device="meta"))) for number, size in enumerate(work.sizes)]


def found_by(*overrides: str, ranks: tuple[int, ...] = (4, 8)) -> list[Prediction]:
    data = {
        "data": {"source": "photos", "size": 227, "batch_size": 8},
        "model": {"name": "alexnet", "num_classes": 1000},
    }
    cluster = load_card("minwa")
    return predict(subject_of(make_config(data, overrides), cluster), cluster, ranks)


@pytest.mark.slow
def test_a_config_with_split_layers() -> None:
    whole, split = found_by(), found_by("parallel.model=4")
    for one, other in zip(whole, split, strict=True):
        assert other.bytes_sent < one.bytes_sent / 2 and other.memory_bytes < one.memory_bytes / 2
        assert one.alone_s == pytest.approx(other.alone_s)  # both beside one rank that has it all
    assert split[0].played is not None
    assert {span.what for span in split[0].played.spans} >= {"classifier.0 activations", "classifier.0 deltas"}


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("parallel.model=3",), "ranks=4 is not a multiple of parallel.model=3, among which layers are split."),
        (("parallel.model=2", "parallel.activations=linear"), "codec linear: the card .* has no rates of it"),
    ],
)
def test_what_cannot_be_simulated_says_why(overrides: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        found_by(*overrides)
