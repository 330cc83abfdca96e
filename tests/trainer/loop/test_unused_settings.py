"""Settings that have no effect beside the others are named."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.config import make_config
from augpipe.trainer.loop import run
from augpipe.trainer.loop.unused import Extent, unused_settings
from tests.distributed.train_runs import config, write_photos

EXTENT = Extent(world_size=2, steps_per_epoch=5)


def lines(tables: dict[str, Any], extent: Extent | None = EXTENT) -> list[str]:
    return unused_settings(make_config({**tables, "data": {"source": "x", **tables.get("data", {})}}), extent)


def test_defaults_and_what_is_used_are_not_named() -> None:
    assert lines({}) == lines({}, None) == []
    used: list[dict[str, Any]] = [
        {"optim": {"name": "sgd", "momentum": 0.5, "nesterov": True}},
        {"optim": {"name": "rmsprop", "momentum": 0.5, "alpha": 0.5, "eps": 1e-3}},
        {"optim": {"betas": [0.8, 0.9], "eps": 1e-3, "decay_1d": False}},
        {"schedule": {"name": "step", "milestones": [3, 9.5], "gamma": 0.5, "warmup_epochs": 2}},
        {
            "schedule": {"name": "plateau", "patience": 4, "threshold": 0.1, "min_factor": 0.1},
            "data": {"eval_fraction": 0.1},
        },
        {"ema": {"decay": 0.9, "every": 2}},
        {"model": {"weights": "w.pt", "new_head": True}},
        {"sync": {"strategy": "lazy", "codec": "nf4", "error_feedback": True, "exempt_1d": False}},
        {"parallel": {"model": 2, "layers": ["fc"], "logits": "split"}},
        {"servers": {"mode": "async", "codec": "nf4", "fetch_every": 2, "local_lr": 0.1}},
        {"data": {"scales": [250]}},
        {"max_steps": 12, "schedule": {"name": "constant"}},
    ]
    for tables in used:
        assert lines(tables) == [], tables


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"servers": {"codec": "nf4"}}, ['servers.codec="nf4" has no effect: servers.mode is "off"']),
        ({"faults": {"on_server_loss": "stop"}}, ['faults.on_server_loss="stop" has no effect: servers.mode is "off"']),
        (
            {"parallel": {"layers": ["fc"], "scheme": "rotate"}},
            [
                'parallel.layers=["fc"] has no effect: parallel.model is 1',
                'parallel.scheme="rotate" has no effect: parallel.model is 1',
            ],
        ),
        (
            {"optim": {"name": "sgd", "betas": [0.5, 0.5]}},
            ['optim.betas=[0.5, 0.5] has no effect: optim.name is "sgd"'],
        ),
        ({"optim": {"momentum": 0.5}}, ['optim.momentum=0.5 has no effect: optim.name is "adamw"']),
        ({"optim": {"alpha": 0.5}}, ['optim.alpha=0.5 has no effect: optim.name is "adamw"']),
        ({"optim": {"name": "sgd", "eps": 0.1}}, ['optim.eps=0.1 has no effect: optim.name is "sgd"']),
        (
            {"optim": {"decay_1d": False, "weight_decay": 0.0}},
            ["optim.decay_1d=false has no effect: optim.weight_decay is 0.0"],
        ),
        ({"schedule": {"milestones": [3]}}, ['schedule.milestones=[3.0] has no effect: schedule.name is "cosine"']),
        ({"schedule": {"gamma": 0.5}}, ['schedule.gamma=0.5 has no effect: schedule.name is "cosine"']),
        (
            {"schedule": {"name": "constant", "min_factor": 0.5, "patience": 9, "threshold": 0.5}},
            [
                f'schedule.{text} has no effect: schedule.name is "constant"'
                for text in ("min_factor=0.5", "patience=9", "threshold=0.5")
            ],
        ),
        (
            {"schedule": {"name": "step", "milestones": [3, 10, 20]}},
            ["schedule.milestones: [10.0, 20.0] come after the run's end (10 epochs), and have no effect"],
        ),
        (
            {"schedule": {"warmup_epochs": 20}},
            ["schedule.warmup_epochs=20.0: the run ends within it (10 epochs), at 0.5 of optim.lr"],
        ),
        ({"ema": {"every": 2}}, ["ema.every=2 has no effect: ema.decay is left out"]),
        (
            {"ema": {"decay": 0.9, "every": 51}},
            ["ema.decay=0.9 has no effect: the average's first update is after ema.every=51 steps, and the run has 50"],
        ),
        ({"model": {"new_head": True}}, ["model.new_head=true has no effect: model.weights is left out"]),
        (
            {"data": {"recipe": "evaluation", "scales": [250]}},
            ['data.scales=[250] has no effect: data.recipe is "evaluation"'],
        ),
        (
            {"sync": {"error_feedback": True, "exempt_1d": False}},
            [f'sync.{text} has no effect: sync.codec is "fp32"' for text in ("error_feedback=true", "exempt_1d=false")],
        ),
        ({"max_steps": 50}, ["max_steps=50 has no effect: 10 epochs end after 50 steps"]),
        (
            {"max_steps": 25},
            ['max_steps=25 ends the run after 5 of 10 epochs: schedule.name="cosine" is cut there, at 0.5 of optim.lr'],
        ),
        (
            {"servers": {"mode": "async", "group": 3, "local_lr": 0.1, "compensation": 0.1}},
            [
                'servers.group=3 has no effect: servers.mode is "async"',
                "servers.local_lr=0.1 has no effect: servers.fetch_every is 1",
                'servers.compensation=0.1 has no effect: servers.delay_compensation is "off"',
            ],
        ),
        (
            {"servers": {"mode": "sync"}, "sync": {"error_feedback": True}},
            ['sync.error_feedback=true has no effect: servers.mode is "sync"'],
        ),
    ],
)
def test_what_has_no_effect_is_named(tables: dict[str, Any], told: list[str]) -> None:
    assert lines(tables) == told


def test_on_one_rank_nothing_is_sent() -> None:
    alone = Extent(world_size=1, steps_per_epoch=5)
    assert lines({"sync": {"strategy": "lazy", "codec": "nf4"}}, alone) == [
        'sync.strategy="lazy" has no effect: there is one rank',
        'sync.codec="nf4" has no effect: there is one rank',
    ]


def test_a_run_says_so_at_its_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = write_photos(tmp_path, 8)
    run(config(tmp_path / "run", photos, max_steps=1, optim={"betas": [0.5, 0.5]}, schedule={"name": "constant"}))
    told = [one for one in caplog.records if one.name == "augpipe.trainer" and one.levelno == logging.WARNING]
    assert [re.sub(r"=.*", "", one.getMessage()) for one in told] == ["optim.betas"]
