"""Whether this process is a worker of torch's DataLoader; torch is asked only where it is loaded already."""

import sys


def torch_worker_seed() -> int | None:
    """The seed that torch gave this worker of a DataLoader, another one in each worker; None in other processes.

    Workers that are started anew for each epoch get a new one each time, and persistent workers keep theirs. Where
    torch is seeded, a run that is repeated has the same ones.
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else int(info.seed)
