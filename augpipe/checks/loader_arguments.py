"""Arguments that a loader does not have: what is written instead, for people who come from torch's DataLoader."""

import difflib
from collections.abc import Sequence

_NO_PROCESSES = "it works in threads of this process, without worker processes. Leave it out"
_INSTEAD = {
    "batch_sampler": 'shuffle=True, False or "sticky" sets the order, sampler=... of augpipe.sampling what comes',
    "collate_fn": "its batches are made whole, in memory that is used again. Change a batch in the loop that takes it",
    "dataset": "the source comes first, as in Loader(source, recipe, batch_size=64)",
    "generator": "seed=... sets the order and every draw",
    "in_order": "its batches always come in order. Leave it out",
    "multiprocessing_context": _NO_PROCESSES,
    "num_workers": "num_threads=... is how many threads read, decode and augment. Leave it out for one a core",
    "persistent_workers": _NO_PROCESSES,
    "pin_memory_device": 'device="cuda:0" makes batches on that device',
    "prefetch_factor": "prefetch=... is how many batches are made ahead",
    "timeout": _NO_PROCESSES,
    "transform": "the recipe comes second, as in Loader(source, recipe, batch_size=64)",
    "worker_init_fn": _NO_PROCESSES,
}
"""Arguments of torch's DataLoader and data sets -> what is written here."""


def unknown_argument(name: str, known: Sequence[str]) -> str:
    """The message for an argument that is none of the `known` ones."""
    if name in _INSTEAD:
        return f"Loader has no {name}: {_INSTEAD[name]}."
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Loader has no argument {name}.{hint} There are {', '.join(known)}."
