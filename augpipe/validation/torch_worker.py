"""Whether this process is a worker of torch's DataLoader; torch is asked only where it is loaded already."""

import sys


def torch_worker_seed() -> int | None:
    """The seed that torch gave this worker of a DataLoader, another one in each worker; None in other processes.

    Workers that are started again for each epoch get a new one each time, and persistent workers keep theirs. Where
    torch is seeded, a run that is repeated has the same ones.
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else int(info.seed)


def refuse_torch_worker() -> None:
    """Called where a loader begins a pass.

    Raises:
        ValueError: this process is a worker of torch's DataLoader: each worker would have a copy of the loader.
    """
    if torch_worker_seed() is not None:
        raise ValueError(
            "a Loader inside a worker of torch's DataLoader gives every sample once in each worker, and each epoch "
            "alike, as every worker has a copy of it. Iterate over the Loader itself: its threads (num_threads=...) do "
            "what workers do; or write num_workers=0."
        )
