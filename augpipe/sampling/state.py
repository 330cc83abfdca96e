"""Where a run stands: checked before a loader goes on from it."""

import json
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any

from augpipe.recipes.schedule import Schedule
from augpipe.sources.identity import SourceIdentity
from augpipe.validation.arguments import as_epoch, as_seed, as_whole
from augpipe.validation.plural import count

STATE_VERSION = 2
"""1 did not say of which source and recipe it was, and is refused."""

_NUM_SHOWN = 3
_NOTHING = object()


def recipe_text(schedule: Schedule) -> str:
    """All that a schedule does, as JSON, for a state: without names, which are for people, and `PIXELS`."""
    left_out: Any = {"name": True, "stages": {"__all__": {"recipe": {"name", "pixels"}}}}
    data = schedule.model_dump(mode="json", exclude=left_out)
    return json.dumps(data)


def recipe_differences(then: str, now: str) -> list[str]:
    """What differs between two of `recipe_text`, in words, one field each.

    Raises:
        ValueError: one is none of these.
    """
    try:
        pair = json.loads(then), json.loads(now)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the state's recipe cannot be read ({error}). {_GIVE}") from error
    is_one_each = all(isinstance(data, dict) and len(data.get("stages", ())) == 1 for data in pair)
    prefix = "stages[0].recipe." if is_one_each else ""
    return [line.removeprefix(prefix) for line in _differences(*pair, "")]


def check_state(state: Any, own: dict[str, Any], world_size: int) -> tuple[int, int]:
    """(epoch, samples consumed) of a state that fits a loader.

    Args:
        state: what a user gives.
        own: the loader's own state.
        world_size: the loader's.

    Raises:
        ValueError: the state is of another seed, recipe, source, sampler or version, or does not fit.
    """
    if not isinstance(state, dict):
        raise ValueError(f"the state is a {type(state).__name__}. {_GIVE}")
    if state.get("version", STATE_VERSION) != STATE_VERSION:
        old = ", which does not say of which source and recipe it is" if state["version"] == 1 else ""
        raise ValueError(
            f"the state's version is {state['version']}{old}, and this augpipe reads {STATE_VERSION}. Start a new run, "
            "or resume with the augpipe that wrote it."
        )
    # of some samplers, orders and releases alone: those are compared below
    missing = [key for key in own if key not in state and key not in ("sampler", "world_size", "pixels")]
    if missing:
        raise ValueError(f"the state lacks {', '.join(missing)}. {_GIVE}")
    if state.get("sampler") != own.get("sampler"):
        # "classes, 26 of 16, ba5c0acf": the checksums tell machines what people are told in words
        theirs, ours = (", ".join(str(one.get("sampler", "none")).split(", ")[:2]) for one in (state, own))
        ours = "one of the same kind, by other weights or labels" if ours == theirs else ours
        raise ValueError(
            f"the state was taken with another sampler ({theirs}; this loader's: {ours}): samples would be lost and "
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
    _check_same_run(state, own)
    if state.get("pixels", 1) != own["pixels"]:
        raise ValueError(
            f"the state says pixels = {state.get('pixels', 1)}, and this augpipe makes pixels = {own['pixels']}: the "
            "rest of the run would have other images than the same seed gave so far (CHANGELOG.md says what changed). "
            "Resume with the augpipe that took it, or, to go on with these on purpose, set "
            "state['pixels'] = loader.state_dict()['pixels'] first."
        )
    epoch, consumed = as_epoch(state["epoch"]), as_whole("samples_consumed", state["samples_consumed"])
    if own["shuffle"] == "sticky" and "world_size" not in state:
        raise ValueError(f"the state lacks world_size. {_GIVE}")
    if not 0 <= consumed <= num:
        raise ValueError(f"samples_consumed={consumed} leaves 0..{num}.")
    if own["shuffle"] == "sticky" and state["world_size"] != world_size and 0 < consumed < num:
        raise ValueError(
            f"the state was taken within an epoch by world_size={state['world_size']} and this loader has "
            f'world_size={world_size}: with shuffle="sticky" ranks own samples, and some would be lost and '
            "repeated. Resume with the same world size, or from a state taken at an epoch's end."
        )
    return epoch, consumed


_GIVE = "Give what Loader.state_dict() returned."


def _check_same_run(state: dict[str, Any], own: dict[str, Any]) -> None:
    """Compare what an epoch's order and pixels come from."""
    seed = as_seed(state["seed"])
    if seed != own["seed"]:
        raise ValueError(
            f"the state was taken with seed={seed} and this loader has seed={own['seed']}: samples would be lost and "
            f"repeated. Make the loader with seed={seed}, or start a new run."
        )
    found = SourceIdentity.from_json(state["source"]).differences(SourceIdentity.from_json(own["source"]))
    if found:
        raise ValueError(
            f"the state is of another source than this loader's: {'; '.join(found)}. Samples would be lost and "
            "repeated. Resume with the source as it was, or start a new run."
        )
    found = [] if state["recipe"] == own["recipe"] else recipe_differences(state["recipe"], own["recipe"])
    if found:
        shown = "; ".join([*islice(found, _NUM_SHOWN), *(["and more"] if len(found) > _NUM_SHOWN else [])])
        raise ValueError(
            f"the state was taken with another recipe: {shown}. Resume with the same one, or, to go on with this one "
            "on purpose, set state['recipe'] = loader.state_dict()['recipe'] first."
        )


def _differences(then: Any, now: Any, path: str) -> Iterator[str]:
    """By the innermost place that both have, where two things of JSON differ."""
    if isinstance(then, dict) and isinstance(now, dict) and then.get("op") == now.get("op"):
        for key in then | now:
            below = f"{path}.{key}" if path else key
            yield from _differences(then.get(key, _NOTHING), now.get(key, _NOTHING), below)
    elif isinstance(then, list) and isinstance(now, list) and any(isinstance(part, dict) for part in then + now):
        for place, (before, after) in enumerate(zip_longest(then, now, fillvalue=_NOTHING)):
            yield from _differences(before, after, f"{path}[{place}]")
    elif then != now:
        yield f"{path or 'it'} was {_shown(then)} and is {_shown(now)}"


def _shown(part: Any) -> str:
    if part is _NOTHING:
        return "not there"
    if isinstance(part, dict) and "op" in part:
        return str(part["op"])
    if isinstance(part, dict) and "recipe" in part:
        return f"the recipe from epoch {part.get('epoch')} on"
    return f"{json.dumps(part):.60}"
