"""From a config and a card to a table: what is refused, what layers cost, what is printed and drawn."""

import tomllib
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.trainer.config.load import make_config
from augpipe.trainer.models import build
from augpipe.trainer.simulate.cluster_card import list_cards, load_card
from augpipe.trainer.simulate.layers import layers_of
from augpipe.trainer.simulate.prediction import Subject, predict, subject_of

DATA_AND_MODEL = """
[data]
source = "photos"
batch_size = 8
size = 64
[model]
num_classes = 10
"""
CONFIG = f"""{DATA_AND_MODEL}
[optim]
name = "adamw"
[sync]
strategy = "lazy"
codec = "dynamic-tree"
"""
SPLIT = """
[parallel]
model = 2
"""


def subject(*overrides: str, card: str = "minwa") -> Subject:
    return subject_of(make_config(tomllib.loads(DATA_AND_MODEL), overrides), load_card(card))


@pytest.mark.parametrize("name", list_cards())
def test_every_card_is_valid(name: str) -> None:
    assert load_card(name).num_nodes(9) == -(-9 // load_card(name).devices_per_node)


def test_a_card_that_is_none_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"card='minwha' is not known. Choose one of bsc, minwa, nvlink-8"):
        load_card("minwha")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("devices_per_node = 4", "devices_per_node = 0", "devices_per_node=0 must be at least 1."),
        ("nic_latency_s", "nic_latencies", "'nic_latencies' is not a field of a card. Did you mean 'nic_latency_s'?"),
        ("[wires.fp32]", "[wires.fp8]", "wires has no fp32, by which what no codec encodes travels."),
        ("title = ", "title ", "not valid TOML"),
    ],
)
def test_a_wrong_card_says_what_is_wrong(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = Path("trainer/simulate/cards/minwa.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=r"mine.toml: not ") as error:
        load_card(mine)
    assert told in str(error.value)


def test_layers_cost_what_their_products_do() -> None:
    with torch.device("meta"):
        model = build("scaling-8conv", num_classes=1000)
    names = {one: name for name, one in model.named_parameters()}
    layers = layers_of(model, names, (2, 3, 224, 224), 1e9)
    by_name = {layer.name: layer for layer in layers}
    assert len(layers) == 11
    assert sorted(number for layer in layers for number in layer.parameters) == list(range(22))
    assert by_name["features.0"].forward_s == 2 * 2 * 64 * 27 * 224**2 / 1e9
    assert by_name["features.0"].backward_s == by_name["features.0"].forward_s  # no gradient of the images
    assert by_name["classifier.6"].forward_s == 2 * 2 * 4096 * 1000 / 1e9
    assert by_name["classifier.6"].backward_s == 2 * by_name["classifier.6"].forward_s
    # VGG's network A takes 7.61 thousand million multiplications an image
    assert sum(layer.forward_s for layer in layers) == pytest.approx(2 * 2 * 7.61, rel=0.01)


def test_a_network_that_cannot_take_the_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the network does not take images of 3×8×8"):
        subject("data.size=8", "model.name=alexnet")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("servers.mode=async", "parameter servers have a prediction of their own. Call server_subject"),
        ("sync.codec=linear", "codec linear: the card 'Minwa"),
    ],
)
def test_what_is_not_simulated_is_refused(override: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        predict(subject(override), load_card("minwa"), [2])


def test_classes_must_be_given() -> None:
    config = make_config({"data": {"source": "photos"}})
    with pytest.raises(ValueError, match=r"model.num_classes is left out.*--set model.num_classes=1000"):
        subject_of(config, load_card("minwa"))


def test_ranks_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ranks=5000 must lie in 1..4096"):
        predict(subject(), load_card("minwa"), [5000])


def test_more_ranks_wait_longer_and_hold_less_under_lazy() -> None:
    found = predict(subject("sync.strategy=lazy", "sync.codec=dynamic-tree"), load_card("minwa"), [1, 4, 64])
    assert [one.images for one in found] == [8, 32, 512]
    assert found[0].efficiency == 1.0 > found[1].efficiency > found[2].efficiency
    assert found[1].exposed_s < found[2].exposed_s
    assert 0 < found[1].bytes_sent < found[2].bytes_sent
    assert found[2].memory_bytes < found[1].memory_bytes
    whole = predict(subject("sync.strategy=butterfly"), load_card("minwa"), [4])[0]
    assert whole.bytes_sent == pytest.approx(4 * found[1].bytes_sent, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("more", "ranks", "what"), [("", "4,1,2", ""), (SPLIT, "4,2", "layers split among 2, ")])
def test_the_command_prints_a_table_and_draws(tmp_path: Path, more: str, ranks: str, what: str) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "run.toml").write_text(CONFIG + more)
    arguments = ["simulate", str(tmp_path / "run.toml"), "--ranks", ranks, "--out", str(tmp_path / "drawn")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"small-cnn, lazy, dynamic-tree, {what}8 images a rank, on Minwa")
    expected = sorted(map(int, ranks.split(",")))
    assert [line.split()[0] for line in lines[1 : 2 + len(expected)]] == ["ranks", *map(str, expected)]
    for name in ("scaling.png", "timeline.png"):
        assert len(Image.open(tmp_path / "drawn" / name).convert("RGB").getcolors(1 << 24)) > 20


@pytest.mark.parametrize("ranks", ["", "0", "2,x", "-1"])
def test_ranks_that_are_no_numbers_are_refused(tmp_path: Path, ranks: str) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    result = CliRunner().invoke(app, ["simulate", str(tmp_path / "run.toml"), "--ranks", ranks])
    assert result.exit_code == 2
    assert "must be whole numbers from 1 on" in result.output
