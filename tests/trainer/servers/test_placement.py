"""Where servers and workers begin, what is said where that cannot be, and what Ray's errors become."""

import asyncio
import logging
import re
import socket
from collections.abc import Generator
from typing import Any

import pytest
import torch.distributed as dist

from augpipe.trainer.config.tables import ServersConfig
from augpipe.trainer.servers.from_config import GroupPlace, join_group
from augpipe.trainer.servers.messages import PeerLost
from augpipe.trainer.servers.placement import Placement, warn_of_few_cores
from augpipe.trainer.servers.ray_cluster import RayReply, require_there
from augpipe.validation.ray_address import check_reachable, join, require_ray

NODES = ["c", "home", "a", "b"]


def test_shared_nodes_have_servers_and_workers_in_turn() -> None:
    places = Placement(ServersConfig(mode="async", workers=6, servers=3), NODES, "home")
    assert [places.of_server(index) for index in range(3)] == ["a", "b", "c"]
    assert [places.of_worker(number) for number in range(6)] == ["a", "b", "c", "home", "a", "b"]
    alone = Placement(ServersConfig(mode="async", servers=2), ["home"], "home")
    assert alone.of_server(1) == alone.of_worker(3) == "home"


@pytest.mark.parametrize("num_servers", [1, 2, 3])
def test_dedicated_nodes_have_one_server_and_no_worker(num_servers: int) -> None:
    wanted = ServersConfig(mode="async", servers=num_servers, placement="dedicated")
    places = Placement(wanted, NODES, "home")
    of_servers = [places.of_server(index) for index in range(num_servers)]
    of_workers = {places.of_worker(number) for number in range(8)}
    assert of_servers == ["a", "b", "c"][:num_servers]
    assert of_workers == set(NODES) - set(of_servers)


@pytest.mark.parametrize(("num_servers", "nodes"), [(1, ["home"]), (4, NODES)])
def test_too_few_nodes_for_dedicated_ones(num_servers: int, nodes: list[str]) -> None:
    wanted = ServersConfig(mode="async", servers=num_servers, placement="dedicated")
    said = f"so {num_servers + 1} or more, and the Ray cluster has {len(nodes)}. Add nodes"
    with pytest.raises(ValueError, match=said):
        Placement(wanted, nodes, "home")


def test_few_cores_are_told_of_on_a_cluster_that_is_there(caplog: pytest.LogCaptureFixture) -> None:
    here = ServersConfig(mode="sync", workers=3, backup=1, servers=2, threads=2)
    there = here.model_copy(update={"address": "auto"})
    with caplog.at_level(logging.WARNING, "augpipe.trainer"):
        warn_of_few_cores(here, 1)
        warn_of_few_cores(there, 12)
    assert not caplog.records
    warn_of_few_cores(there, 11)
    assert "the Ray cluster has 11 cores, and servers and workers take 12: some wait" in caplog.text
    warn_of_few_cores(ServersConfig(mode="mixed", workers=3, group=4, address="auto"), 11)
    assert "has 11 cores, and servers and workers take 13" in caplog.text


def test_an_address_where_nobody_listens() -> None:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with pytest.raises(
                ValueError, match=f"cluster at {address} cannot be reached .Connection refused."
            ) as raised:
                check_reachable(address, "do without")
            assert str(raised.value).endswith("the address that ray start --head printed, or do without.")
        opened.listen()
        check_reachable(f"ray://127.0.0.1:{port}", "do without")
    check_reachable("auto", "do without")
    check_reachable(None, "do without")


class RefusingRay:
    """A cluster that nobody may join."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def init(self, address: str, **settings: object) -> None:
        """As Ray does it: the reason stands in the text of the error behind its own."""
        try:
            raise RuntimeError(self._reason)
        except RuntimeError as error:
            raise ConnectionError(f"Failed to connect to Ray cluster at {address}") from error


def test_a_cluster_that_asks_for_its_token() -> None:
    wanted = re.escape(
        "the Ray cluster at 10.0.0.1:6379 asks for its token. Set RAY_AUTH_MODE=token, and have the token"
    )
    with pytest.raises(ValueError, match=wanted) as raised:
        join(RefusingRay("ray.exceptions.AuthenticationError: InvalidAuthToken"), "10.0.0.1:6379", "do without")
    assert str(raised.value).endswith("in ~/.ray/auth_token, or do without.")
    with pytest.raises(
        ValueError, match="10.0.0.1:6379 cannot be joined: Failed to connect .* Start it, or do without."
    ):
        join(RefusingRay("no answer"), "10.0.0.1:6379", "do without")


@pytest.mark.slow
def test_a_run_asks_for_ray_and_its_cluster_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match="or leave servers.address out for a cluster of this machine alone."):
        require_there(ServersConfig(mode="async", address="127.0.0.1:1"))
    assert require_there(ServersConfig(mode="async")).__name__ == "ray"
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match='parameter servers need Ray: pip install "augpipe.torch,ray."'):
        require_there(ServersConfig(mode="async"))
    with pytest.raises(ImportError, match="who needs Ray: get it"):
        require_ray("who needs", "get it")


class Failed:
    """A reference whose value is an error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        raise self._error


async def value_of(reply: RayReply) -> Any:
    return await reply


def test_errors_of_ray_are_those_of_the_method_or_of_a_lost_peer() -> None:
    exceptions = pytest.importorskip("ray.exceptions")
    task_error = exceptions.RayTaskError(
        "method", "Traceback\n  line 3\nValueError: size=3. Lower it\n", ValueError("size=3. Lower it")
    )
    with pytest.raises(ValueError, match="size=3. Lower it"):
        asyncio.run(value_of(RayReply(Failed(task_error))))
    for error, said in (
        (exceptions.ActorDiedError(), "The actor died unexpectedly before finishing this task"),
        (exceptions.ActorDiedError(task_error), "ValueError: size=3. Lower it"),
        (exceptions.ObjectLostError("00", "owner", "site"), "Failed to retrieve object 00"),
    ):
        with pytest.raises(PeerLost) as raised:
            asyncio.run(value_of(RayReply(Failed(error))))
        assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


def test_a_process_has_its_own_rank_in_its_group() -> None:
    """Alone in it: another rank than 0 would wait for somebody to meet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    group = join_group(GroupPlace(host="127.0.0.1", port=port, rank=0, size=1), timeout_s=5.0)
    try:
        assert (dist.get_rank(), dist.get_world_size(), tuple(group.members)) == (0, 1, (0,))
    finally:
        dist.destroy_process_group()
