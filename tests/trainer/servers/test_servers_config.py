"""[servers]: what does not go together is refused, and what a run with servers cannot do."""

from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.config import RunConfig, make_config, to_toml
from augpipe.trainer.config.load import load_config


def config(**tables: Any) -> RunConfig:
    return make_config({"data": {"source": "photos"}, **tables})


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"push_every": 2, "fetch_every": 3}, "fetch_every=3 is not a multiple of push_every=2. Weights are fetched"),
        ({"push_every": 2}, "fetch_every=1 is not a multiple of push_every=2"),
        ({"mode": "sync", "fetch_every": 2}, 'push_every=1 and fetch_every=2 are for mode="async". Leave them out.'),
        ({"mode": "mixed", "push_every": 2, "fetch_every": 2}, 'push_every=2 and fetch_every=2 are for mode="async"'),
        ({"mode": "async", "backup": 1}, 'backup=1 is for mode="sync": otherwise each push counts. Leave it out.'),
        ({"mode": "sync", "staleness": 0}, 'mode="sync" has no old gradients: leave staleness and delay_compensation'),
        ({"mode": "sync", "delay_compensation": "adaptive"}, 'mode="sync" has no old gradients'),
        ({"mode": "asynchronous"}, "mode"),
        ({"mode": "async", "workers": 0}, "workers"),
        ({"mode": "async", "servers": 0}, "servers"),
        ({"mode": "mixed", "group": 1}, "group"),
        ({"mode": "async", "staleness": -1}, "staleness"),
        ({"mode": "async", "placement": "anywhere"}, "placement"),
    ],
)
def test_what_does_not_go_together_is_refused(servers: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="servers") as raised:
        config(servers=servers)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"sync": {"strategy": "butterfly"}}, "sync.strategy"),
        ({"sync": {"codec": "linear"}}, "sync.codec (it is servers.codec)"),
        ({"ema": {"decay": 0.9}}, "ema.decay"),
        ({"optim": {"accumulate": 2}}, "optim.accumulate (it is servers.push_every)"),
        ({"optim": {"amp": "bf16"}}, "optim.amp"),
        ({"model": {"channels_last": True}}, "model.channels_last"),
        ({"model": {"compile": True}}, "model.compile"),
        ({"model": {"sync_batchnorm": True}}, "model.sync_batchnorm"),
        ({"data": {"source": "photos", "shuffle": "sticky"}}, 'data.shuffle="sticky"'),
        ({"device": "cuda"}, "device"),
        ({"report": {"sample_ids": True}}, "report.sample_ids (the order log has them)"),
    ],
)
def test_what_servers_cannot_do_is_refused_by_name(tables: dict[str, Any], name: str) -> None:
    config(**tables)  # by ranks it is fine
    with pytest.raises(ValueError, match="Leave that out, or servers.mode=.off. to train by ranks") as raised:
        config(**tables, servers={"mode": "async"})
    assert f'servers.mode="async" does not go with {name}.' in str(raised.value)


def test_all_that_does_not_go_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="does not go with sync.codec .it is servers.codec., ema.decay. Leave"):
        config(sync={"codec": "linear"}, ema={"decay": 0.9}, servers={"mode": "sync"})


def test_a_config_with_servers_reads_as_it_was_written(tmp_path: Path) -> None:
    servers = {"mode": "async", "workers": 4, "servers": 2, "push_every": 2, "fetch_every": 4, "local_lr": 0.1}
    made = config(servers={**servers, "delay_compensation": "constant", "compensation": 0.5, "staleness": 3})
    (tmp_path / "run.toml").write_text(to_toml(made))
    assert load_config(str(tmp_path / "run.toml"), []) == made
    changed = load_config(str(tmp_path / "run.toml"), ["servers.workers=7", "servers.placement=dedicated"])
    assert (changed.servers.workers, changed.servers.placement) == (7, "dedicated")
