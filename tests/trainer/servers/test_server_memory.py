"""Memory of a server: bytes of its tensors and of what it allocates while it carries out commands."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from augpipe.trainer.codecs import codec
from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.messages import Hand, LeaseName, Part, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, ServerSpec

NUM_TENSORS = 32
NUM = NUM_TENSORS * 2**16
SLICE = 4 * NUM
SGD = OptimConfig(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
ADAMW = OptimConfig(name="adamw", lr=0.1, weight_decay=1e-4)
CONSTANT = Compensation(kind="constant", strength=0.04)
ADAPTIVE = Compensation(kind="adaptive", strength=2.0)


def spec_of(optim: OptimConfig) -> ServerSpec:
    model = nn.ParameterList(nn.Parameter(torch.zeros(256, 256)) for _ in range(NUM_TENSORS))
    (one,) = FlatWeights(model).cut(1)
    return ServerSpec(
        index=0,
        slice=one,
        num_buffers=(0, 0),
        optim=optim,
        push_codec="dynamic-tree",
        pull_codec=None,
        hands_views=True,
    )


def kept_bytes(server: Server) -> int:
    """All that lies between two calls."""
    state = [one for of in server._optimizer.state.values() for one in of.values()]
    given = [one for pair in server._given.values() for one in pair]
    staged = [one.part.wide.nbytes for one in server._staged.values()]
    tensors = [server._wide, server._narrow, *server._gradients, *state, *given, *server._mean_squares]
    return sum(one.nbytes for one in tensors) + sum(staged)


def allocated_bytes(call: Callable[[], object]) -> int:
    """Bytes of tensors and NumPy arrays that a call has at a time at most, beyond those before it."""
    tracemalloc.start()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    of_numpy = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kineto: Any = profile.profiler
    changes = [event.nbytes() for event in kineto.kineto_results.events() if event.name() == "[memory]"]
    return of_numpy + max(0, *np.cumsum([0, *changes]).tolist())


def most_slices(spec: ServerSpec, num_workers: int) -> float:
    """The most that a server has at a time, in slices, while its workers push and fetch in turn."""
    server = Server(spec)
    encoded = codec(spec.push_codec).encode(np.ones(NUM, np.float32))
    empty = np.zeros(0, np.float32)
    number, most = 0, 0

    def carry_out(command: Hand | Update) -> None:
        nonlocal number, most
        number += 1
        before = kept_bytes(server)
        most = max(most, before + allocated_bytes(lambda: server.carry_out(number, command)))

    for worker in range(num_workers):
        carry_out(Hand(worker=worker, whole=True))
    for index in range(2 * num_workers):
        worker, name = index % num_workers, LeaseName(0, index, 0)
        server.stage(worker, name, Part(wide=encoded.copy(), narrow=empty, buffers=empty, counts=np.zeros(0, np.int64)))
        carry_out(Update(pushes=(name,), num_samples=(1,), workers=(worker,), lr=1.0))
        carry_out(Hand(worker=worker, whole=False))
    assert server.version == 2 * num_workers
    return most / SLICE


@pytest.mark.slow
@pytest.mark.parametrize(("optim", "of_state"), [(SGD, 1), (ADAMW, 2)])
def test_weights_state_and_two_slices(optim: OptimConfig, of_state: int) -> None:
    spec = spec_of(optim)
    assert 1 + of_state + 1 < most_slices(spec, 4) <= 1 + of_state + 2
    assert most_slices(replace(spec, push_codec="fp32"), 4) <= 1 + of_state + 2.1  # a push is a slice itself


@pytest.mark.slow
@pytest.mark.parametrize(("how", "of_means"), [(CONSTANT, 0), (ADAPTIVE, 1)])
def test_one_slice_a_worker_under_delay_compensation(how: Compensation, of_means: int) -> None:
    spec = replace(spec_of(SGD), compensation=how)
    for num_workers in (1, 4):
        assert most_slices(spec, num_workers) <= 1 + 1 + 2 + of_means + num_workers


def test_one_slice_a_worker_where_changes_are_sent() -> None:
    spec = replace(spec_of(SGD), pull_codec="dynamic-tree")
    for num_workers in (1, 4):
        assert most_slices(spec, num_workers) <= 1 + 1 + 2 + num_workers
