"""What a push does to a server's numbers, who may begin then, and when an event is on disk."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.messages import LeaseName, Part, Save, Update
from augpipe.trainer.servers.modes import Asynchronous
from augpipe.trainer.servers.order_log import NO_LEASE, Event, Kind, OrderLog, read_events
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights, _cut
from augpipe.trainer.servers.specs import Compensation, ServerSpec

Numbers = npt.NDArray[np.float32]


def server(model: nn.Module, **settings: Any) -> Server:
    flat = FlatWeights(model)
    floating, counting = flat.buffers()
    spec = ServerSpec(
        index=0,
        slice=flat.cut(1)[0],
        num_buffers=(len(floating), len(counting)),
        optim=OptimConfig(name="sgd", lr=0.1, momentum=0.0, weight_decay=0.0),
        push_codec="fp32",
        **{"pull_codec": None, **settings},
    )
    return Server(spec).begin(flat)


def push(wide: Numbers, narrow: Numbers, buffers: tuple[float, ...] = (), counts: tuple[int, ...] = ()) -> Part:
    return Part(
        wide=wide.view(np.uint8),
        narrow=narrow,
        buffers=np.array(buffers, np.float32),
        counts=np.array(counts, np.int64),
    )


def test_running_statistics_move_by_the_share_of_samples() -> None:
    made = server(nn.BatchNorm1d(1))  # running mean 0 and variance 1; two narrow weights
    nothing, none = np.zeros(0, np.float32), np.zeros(2, np.float32)
    names = (LeaseName(0, 0, 0), LeaseName(0, 1, 0))
    made.stage(0, names[0], push(nothing, none, (1.0, 1.0), (3,)))
    made.stage(1, names[1], push(nothing, none, (0.0, 0.0), (2,)))
    made.carry_out(1, Update(pushes=names, num_samples=(8, 2), workers=(0, 1), lr=1.0))
    part = made._hand(0, True)
    assert part.buffers is not None and part.counts is not None
    np.testing.assert_allclose(part.buffers, [0.8, 1.8], rtol=1e-6)
    assert part.counts.tolist() == [3]


@pytest.mark.parametrize("kind", ["constant", "adaptive"])
def test_narrow_weights_are_those_without_an_encoded_pull(kind: str) -> None:
    """Of two workers that take turns, so each push is late, and compensated by what its worker was given."""
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    how = Compensation(kind="adaptive" if kind == "adaptive" else "constant", strength=0.5)
    servers = [server(model, compensation=how, pull_codec=codec) for codec in (None, "fp32")]
    rng = np.random.default_rng(0)
    for worker in range(2):
        for made in servers:
            made._hand(worker, True)
    for number in range(8):
        name = LeaseName(0, number, 0)
        wide, narrow = (rng.standard_normal(num).astype(np.float32) for num in (24, 4))
        for made in servers:
            made.stage(number % 2, name, push(wide, narrow))
            made.carry_out(number + 1, Update(pushes=(name,), num_samples=(8,), workers=(number % 2,), lr=1.0))
        plain, encoded = (made._hand(number % 2, False).narrow for made in servers)
        np.testing.assert_array_equal(plain, encoded)


def test_a_pull_after_a_checkpoint_is_whole(tmp_path: Path) -> None:
    """As it is after a restart from there, so that a run that goes on and one that is resumed are the same."""
    made = server(nn.Linear(3, 2), pull_codec="fp32")
    assert [made._hand(0, whole=False).is_change for _ in range(2)] == [False, True]
    made.stage(0, LeaseName(0, 0, 0), push(np.ones(6, np.float32), np.ones(2, np.float32)))
    made.carry_out(1, Save(folder=str(tmp_path)))
    assert not made._hand(0, whole=False).is_change and not made._staged


def test_whoever_rejoins_counts_from_the_slowest_and_holds_nobody_up() -> None:
    mode, book = Asynchronous(staleness=1), cast(Any, None)  # which it does not look into
    for worker in range(2):
        mode.joined(worker)
    for number in range(5):
        for worker in range(2):
            assert mode.may_begin(worker, book)
            mode.committed(worker, LeaseName(0, 2 * number + worker, 0))
    mode.left(1)
    mode.joined(1)
    assert mode.may_begin(0, book)
    for number in (10, 11):
        mode.committed(0, LeaseName(0, number, 0))
    assert not mode.may_begin(0, book) and mode.may_begin(1, book)


def test_an_event_is_in_the_file_before_it_is_closed(tmp_path: Path) -> None:
    log = OrderLog(str(tmp_path))
    log.begin(0)
    events = [Event(Kind.BEGAN, worker, NO_LEASE, 0, 0, 1.0) for worker in range(3)]
    log.write(*events)
    (path,) = tmp_path.glob("order-*.log")
    assert list(read_events(path)) == events
    log.close()


def test_servers_get_near_shares_that_end_at_multiples_of_64_within_tensors() -> None:
    ranges, segments = _cut([("a", 100), ("b", 1000), ("c", 400)], 3)
    assert ranges == [(0, 484), (484, 996), (996, 1500)]  # 484 = 100 + 6 * 64, and 996 = 100 + 14 * 64
    assert [[one.parameter for one in some] for some in segments] == [["a", "b"], ["b"], ["b", "c"]]
