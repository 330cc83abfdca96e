"""Which nodes of a cluster servers and workers begin on."""

import logging
from collections.abc import Sequence

from augpipe.trainer.config.tables import ServersConfig

logger = logging.getLogger("augpipe.trainer")


class Placement:
    """Which node each server and worker begins on.

    Args:
        wanted: of the run.
        nodes: of the cluster.
        home: the driver's node, which has a server only where no other one is left.

    Raises:
        ValueError: there are too few nodes for dedicated ones.
    """

    def __init__(self, wanted: ServersConfig, nodes: Sequence[str], home: str) -> None:
        ordered = sorted(nodes, key=lambda node: (node == home, node))
        self._of_servers = self._of_workers = ordered
        if wanted.placement == "dedicated":
            if len(ordered) <= wanted.servers:
                raise ValueError(
                    f'servers.placement="dedicated" takes a node for each server and one for workers, so '
                    f"{wanted.servers + 1} or more, and the Ray cluster has {len(ordered)}. Add nodes, lower "
                    'servers.servers, or choose servers.placement="shared".'
                )
            self._of_servers, self._of_workers = ordered[: wanted.servers], ordered[wanted.servers :]

    def of_server(self, index: int) -> str:
        """The node of a server; they are spread."""
        return self._of_servers[index % len(self._of_servers)]

    def of_worker(self, number: int) -> str:
        """The node of a worker, or of a group; as above."""
        return self._of_workers[number % len(self._of_workers)]


def warn_of_few_cores(wanted: ServersConfig, num_cores: int) -> None:
    """Say that some of a run wait, which Ray does not, where a cluster that is there has fewer cores than they take."""
    if wanted.address is None:
        return  # one of this run alone, whose actors share what there is
    group = wanted.group if wanted.mode == "mixed" else 1
    needed = wanted.threads * (wanted.servers + (wanted.workers + wanted.backup) * group)
    if needed > num_cores:
        logger.warning(
            "the Ray cluster has %d cores, and servers and workers take %d: some wait until it has more. "
            "Lower servers.workers, servers.servers or servers.threads, or add nodes.",
            num_cores,
            needed,
        )
