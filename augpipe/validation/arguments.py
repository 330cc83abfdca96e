"""Checking what a user passes: choices, whole numbers, and arguments that there are not."""

import operator
import re
from collections.abc import Sequence
from typing import Any

from augpipe.validation.suggest import nearest

MAX_INDEXABLE_PIXELS = 2**31 - 1
"""Kernels count an image's pixels in 32 bits."""

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
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


def check_choice(name: str, value: object, choices: tuple[object, ...], also: str = "") -> None:
    """Raise ValueError unless `value` is one of `choices`; `also` ends their list."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not known. Choose one of {listed}{also}.")


def as_whole(name: str, value: Any) -> int:
    """`value` as an int (numpy's integers become Python's, which JSON knows); ValueError for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}, and must be a whole number.") from None


def as_seed(value: Any) -> int:
    """A seed in 0..2^64 - 1."""
    seed = as_whole("seed", value)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed} must lie in 0..2^64 - 1.")
    return seed


def as_epoch(value: Any) -> int:
    """An epoch's number in 0..2^32 - 1."""
    epoch = as_whole("epoch", value)
    if not 0 <= epoch < 2**32:
        raise ValueError(f"epoch={epoch} must lie in 0..2^32 - 1.")
    return epoch


def as_count(name: str, value: Any, remedy: str = "") -> int:
    """A number of things, at least 1."""
    count = as_whole(name, value)
    if count < 1:
        raise ValueError(f"{name}={count} must be at least 1.{remedy and ' '}{remedy}")
    return count


def as_num_threads(value: Any, default: int) -> int:
    """How many threads; None is `default`."""
    return default if value is None else as_count("num_threads", value, "Leave it out for one thread a core.")


def as_max_pixels(value: Any) -> int:
    """How many pixels an image may have that is decoded."""
    most = as_whole("max_pixels", value)
    if not 1 <= most <= MAX_INDEXABLE_PIXELS:
        raise ValueError(f"max_pixels={value} must lie in 1..{MAX_INDEXABLE_PIXELS}, what kernels can index.")
    return most


def parse_bytes(text: str) -> int:
    """A number of bytes: `256MB` (10^6), `256MiB` (2^20) or `256000000`.

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is not a number of bytes. Write it as 256MB, 1GB or 64MiB.")
    return round(float(match[1]) * _UNITS[match[2].upper()])


_OF_A_RECIPE = {
    "size": "recipes.deep_image(size=64)",
    "scales": "recipes.deep_image(scales=(256, 512))",
    "mean": "ops.Normalize(mean=(0.5, 0.5, 0.5))",
    "std": "ops.Normalize(std=(0.5, 0.5, 0.5))",
}
"""What is given to a loader or transform elsewhere -> where it stands here."""


def unknown_argument(of: str, name: str, known: Sequence[str]) -> str:
    """The message for an argument that is none of the `known` ones of a `Loader` or `Augment`."""
    if name in _OF_A_RECIPE:
        return f"{of} has no {name}: a recipe has it, as {_OF_A_RECIPE[name]}."
    if of == "Loader" and name in _INSTEAD:
        return f"{of} has no {name}: {_INSTEAD[name]}."
    near = nearest(name, known)
    hint = f"Did you mean {near}?" if near else f"There are {', '.join(known)}."
    return f"{of} has no argument {name}. {hint}"
