"""The engine for a Ray cluster: one task a chunk. OUT and the source must have the same paths on every node."""

from collections.abc import Iterable
from typing import Any

from augpipe.datasets.prepare.chunk import ChunkTask
from augpipe.datasets.prepare.engine_protocol import Attempts, Watcher
from augpipe.datasets.prepare.journal import complete_chunk
from augpipe.sources.protocol import Source
from augpipe.validation.ray_address import check_reachable, join, require_ray

_REMEDY = "leave --ray-address out for a cluster of this machine alone"


class RayEngine:
    """Chunks as Ray tasks of one core each; a task whose worker dies is begun again.

    Args:
        address: of the cluster, as `ray.init` takes it; None starts one on this machine for the run, unless Ray is
            initialised already.
        num_workers: tasks under way at once; as many as the cluster has cores if left out.

    Raises:
        ImportError: Ray is not installed.
        ValueError: nobody listens at the address.
    """

    def __init__(self, address: str | None = None, *, num_workers: int | None = None) -> None:
        self._ray: Any = require_ray("the engine ray needs", 'pip install "augpipe[ray]"')
        if not self._ray.is_initialized():
            check_reachable(address, _REMEDY)
        self._address = address
        self._num_workers = num_workers

    def run(self, source: Source, tasks: Iterable[ChunkTask], watcher: Watcher) -> None:
        """See `Engine.run`. Progress is told chunk by chunk."""
        ray = self._ray
        is_ours = not ray.is_initialized()
        if is_ours:
            join(
                ray,
                self._address,
                _REMEDY,
                num_cpus=self._num_workers if self._address is None else None,
                include_dashboard=False if self._address is None else None,
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=self._address is None,
            )
        try:
            self._run(source, tasks, watcher)
        finally:
            if is_ours:
                ray.shutdown()

    def _run(self, source: Source, tasks: Iterable[ChunkTask], watcher: Watcher) -> None:
        ray = self._ray
        # no retries of its own: they would not be reported
        remote = ray.remote(num_cpus=1, max_retries=0)(complete_chunk)
        most = self._num_workers or int(ray.cluster_resources().get("CPU", 1))
        held = ray.put(source)
        attempts = Attempts(watcher)
        todo = iter(tasks)
        under_way: dict[Any, ChunkTask] = {}
        try:
            while True:
                while len(under_way) < most and (task := next(todo, None)) is not None:
                    under_way[remote.remote(held, task)] = task
                if not under_way:
                    return
                (done,), _ = ray.wait(list(under_way), num_returns=1)
                task = under_way.pop(done)
                try:
                    ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause if isinstance(error.cause, Exception) else error) from error
                except ray.exceptions.RayError as error:
                    attempts.died(task, f"on Ray ({type(error).__name__})")
                    under_way[remote.remote(held, task)] = task
                else:
                    watcher.progress(task.stop - task.start)
        finally:
            for reference in under_way:
                ray.cancel(reference, force=True)
