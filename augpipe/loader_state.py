"""Where a run stands: checked before a loader goes on from it."""

from typing import Any

from augpipe.checks.arguments import as_epoch, as_seed, as_whole
from augpipe.checks.plural import count

STATE_VERSION = 1


def check_state(state: Any, own: dict[str, Any], world_size: int) -> tuple[int, int, int]:
    """(seed, epoch, samples consumed) of a state that fits a loader.

    Args:
        state: what a user gives.
        own: the loader's own state.
        world_size: the loader's.

    Raises:
        ValueError: the state is of another source, sampler or version, or does not fit.
    """
    if not isinstance(state, dict):
        raise ValueError(f"the state is a {type(state).__name__}. Give what Loader.state_dict() returned.")
    # of some samplers and orders alone: those are compared below
    missing = [key for key in own if key not in state and key not in ("sampler", "world_size")]
    if missing:
        raise ValueError(f"the state lacks {', '.join(missing)}. Give what Loader.state_dict() returned.")
    if state["version"] != STATE_VERSION:
        raise ValueError(f"the state's version is {state['version']}, and this augpipe reads {STATE_VERSION}.")
    if state.get("sampler") != own.get("sampler"):
        theirs, ours = (one.get("sampler", "no sampler") for one in (state, own))
        raise ValueError(
            f"the state was taken with another sampler ({theirs}; this loader has {ours}): samples would be lost and "
            "repeated. Resume with the same sampler and the same source."
        )
    num = own["num_samples"]
    if state["num_samples"] != num:
        raise ValueError(
            f"the state is of a source of {count(state['num_samples'], 'photograph')} and this one holds {num}. Resume "
            "with the same source, or start a new run."
        )
    if state["shuffle"] != own["shuffle"]:
        raise ValueError(
            f"the state was taken with shuffle={state['shuffle']} and this loader has shuffle={own['shuffle']}: "
            "samples would be lost and repeated. Resume with the same order."
        )
    seed, epoch, consumed = (
        as_seed(state["seed"]),
        as_epoch(state["epoch"]),
        as_whole("samples_consumed", state["samples_consumed"]),
    )
    if own["shuffle"] == "sticky" and "world_size" not in state:
        raise ValueError("the state lacks world_size. Give what Loader.state_dict() returned.")
    if not 0 <= consumed <= num:
        raise ValueError(f"samples_consumed={consumed} leaves 0..{num}.")
    if own["shuffle"] == "sticky" and state["world_size"] != world_size and 0 < consumed < num:
        raise ValueError(
            f"the state was taken within an epoch by world_size={state['world_size']} and this loader has "
            f'world_size={world_size}: with shuffle="sticky" ranks own samples, and some would be lost and '
            "repeated. Resume with the same world size, or from a state taken at an epoch's end."
        )
    return seed, epoch, consumed
