"""Configs with parameter servers, simulated: times worked out by hand, bytes beside a run that computes."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.trainer.config.load import make_config
from augpipe.trainer.servers.messages import Hand, LeaseName, Update
from augpipe.trainer.simulate import server_prediction
from augpipe.trainer.simulate.cluster_card import Card, load_card
from augpipe.trainer.simulate.server_prediction import ServerSubject, make_run, predict_servers, server_subject
from augpipe.trainer.simulate.server_run import play
from augpipe.trainer.simulate.sized_parts import sizes_of
from tests.trainer.simulate import test_server_run
from tests.trainer.simulate.test_prediction import DATA_AND_MODEL
from tests.trainer.simulate.test_step import card

CONFIG = DATA_AND_MODEL + '[servers]\nmode = "async"\n'


def subject(cluster: Card, *overrides: str) -> ServerSubject:
    return server_subject(make_config(tomllib.loads(DATA_AND_MODEL), overrides), cluster)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_lease_takes_its_bytes_over_the_bandwidth(monkeypatch: pytest.MonkeyPatch, servers: int) -> None:
    monkeypatch.setattr(server_prediction, "JITTER", 0.0)
    asked = ("servers.mode=async", f"servers.servers={servers}", "servers.placement=dedicated", "servers.codec=fp32")
    one = subject(card(nic_bytes_per_s=1e5, copy_bytes_per_s=1e6, optimizer_bytes_per_s=5e5), *asked)
    num_bytes = 4 * one.sizes.num_weights
    assert (one.lease_s, one.alone_s) == (
        pytest.approx(one.batch_s + num_bytes / 1e6),
        pytest.approx(one.batch_s + num_bytes / 5e5),
    )
    (found,) = predict_servers(one, [1])
    assert found.bytes_sent == found.bytes_got == pytest.approx(4 * one.sizes.num_weights, rel=0.01)
    # one worker's NIC carries all of it, whatever the number of servers: gradients there, weights back
    assert 8 / found.images_per_s == pytest.approx(one.lease_s + 2 * found.bytes_sent / 1e5, rel=0.01)
    assert found.efficiency == pytest.approx(one.alone_s * found.images_per_s / 8)


def test_a_server_takes_its_share_of_each_push() -> None:
    core = load_card(server_prediction.SERVER_CARD)
    one = subject(card(), "servers.mode=async", "servers.servers=2", "servers.pull=dynamic-tree")
    names = tuple(LeaseName(0, number, 0) for number in range(2))
    single, double = (
        one.command_s("carry_out", (1, Update(pushes=names[:num], num_samples=(8,) * num, workers=(0,) * num, lr=1.0)))
        for num in (1, 2)
    )
    assert double - single == pytest.approx(2 * one.sizes.wide / core.wire("dynamic-tree").add)
    assert 2 * single - double == pytest.approx(2 * one.sizes.num_weights / core.optimizer_bytes_per_s)
    whole, change = (one.command_s("carry_out", (1, Hand(worker=0, whole=is_whole))) for is_whole in (True, False))
    assert whole == pytest.approx(2 * one.sizes.num_weights / core.copy_bytes_per_s)
    assert change == pytest.approx(2 * one.sizes.num_weights / core.wire("dynamic-tree").encode)


@pytest.mark.parametrize(("push", "pull"), [("fp32", None), ("dynamic-tree", None), ("fp32", "dynamic-tree")])
def test_bytes_are_those_of_a_run_that_computes(tmp_path: Path, push: str, pull: str | None) -> None:
    real, _ = test_server_run.make_run(tmp_path, workers=1, servers=1, push=push, pull=pull)
    asked = ("servers.mode=async", f"servers.codec={push}", f"servers.pull={pull or 'whole'}")
    like = subject(card(), *asked)
    sized = ServerSubject(
        sizes=sizes_of(test_server_run.network()), wanted=like.wanted, card=like.card, batch_s=1.0, batch_size=8
    )
    outcomes = [play(run).applied[3].outcome for run in (real, make_run(sized, 1))]
    assert outcomes[0].sent_bytes == outcomes[1].sent_bytes > 0
    assert outcomes[0].got_bytes == outcomes[1].got_bytes > 0


@pytest.mark.slow
def test_synchronous_steps_wait_for_the_slowest_unless_there_is_a_backup() -> None:
    quick = card(nic_bytes_per_s=1e12, within_bytes_per_s=1e12, copy_bytes_per_s=1e12, flop_per_s=1e8)
    found = {
        name: predict_servers(subject(quick, f"servers.mode={name.split()[0]}", *more), [6])[0]
        for name, more in (("sync", ()), ("sync with backups", ("servers.backup=2",)), ("async", ()))
    }
    assert found["sync"].efficiency < found["sync with backups"].efficiency
    assert found["sync"].efficiency < found["async"].efficiency == pytest.approx(1.0, abs=0.03)
    assert found["sync"].staleness == 0 < found["async"].staleness < 6


def test_a_group_pushes_once_for_all_of_its_processes() -> None:
    cluster = load_card("minwa")
    alone, group = (
        predict_servers(subject(cluster, *asked), [2])[0]
        for asked in (("servers.mode=async",), ("servers.mode=mixed", "servers.group=4"))
    )
    assert alone.bytes_sent == group.bytes_sent
    assert 2 * alone.images_per_s < group.images_per_s < 4 * alone.images_per_s


def test_fetching_seldom_waits_less() -> None:
    often, seldom = (
        predict_servers(subject(card(nic_bytes_per_s=1e5), "servers.mode=async", *asked), [2])[0]
        for asked in ((), ("servers.push_every=2", "servers.fetch_every=4"))
    )
    assert seldom.bytes_got == pytest.approx(often.bytes_got / 2, rel=0.1)
    assert seldom.efficiency > often.efficiency


def test_the_command_prints_a_table_by_workers(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    arguments: list[Any] = ["simulate", str(tmp_path / "run.toml"), "--ranks", "2,1", "--set", "servers.servers=2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("small-cnn, 2 servers, async, dynamic-tree, 8 images a process, on Minwa")
    assert [line.split()[0] for line in lines[1:]] == ["workers", "1", "2"]
    drawn = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "drawn")])
    assert drawn.exit_code == 2
    assert "Leave --out out." in drawn.output


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("servers.mode=mixed", "servers.group=5"), "servers.group=5: a group is simulated on one node"),
        (("servers.mode=async", "model.num_classes=none"), "model.num_classes is left out"),
        (("servers.mode=async",), "ranks=65: of workers with servers 1 to 64 are simulated"),
    ],
)
def test_what_is_not_simulated_is_refused(overrides: tuple[str, ...], told: str) -> None:
    if "none" in overrides[-1]:
        config = make_config({"data": {"source": "photos"}}, overrides[:1])
        with pytest.raises(ValueError, match=told):
            server_subject(config, load_card("minwa"))
        return
    with pytest.raises(ValueError, match=told):
        predict_servers(subject(load_card("minwa"), *overrides), [65])
