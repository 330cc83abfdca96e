"""Settings that have no effect given the others: one table of rules."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from augpipe.trainer.config.load import toml_value
from augpipe.trainer.config.tables import RunConfig, Section
from augpipe.trainer.optim.schedule import lr_factor
from augpipe.validation.plural import count


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large a run is, as far as that is not a setting."""

    world_size: int
    """Ranks."""
    steps_per_epoch: int
    """Updates of one pass over the training images."""


_Rule = tuple[str, str, Callable[[Any], bool]]
"""(settings, the one that decides, whether they are used with its value); a table's name is for all others of it."""

_RULES: tuple[_Rule, ...] = (
    ("data.scales", "data.recipe", lambda name: name == "deep_image"),
    ("model.new_head", "model.weights", lambda path: path is not None),
    ("optim.momentum", "optim.name", lambda name: name in ("sgd", "rmsprop")),
    ("optim.alpha", "optim.name", lambda name: name == "rmsprop"),
    ("optim.betas", "optim.name", lambda name: name == "adamw"),
    ("optim.eps", "optim.name", lambda name: name != "sgd"),
    ("optim.decay_1d", "optim.weight_decay", lambda decay: decay > 0),
    ("schedule.milestones", "schedule.name", lambda name: name == "step"),
    ("schedule.gamma", "schedule.name", lambda name: name in ("step", "plateau")),
    ("schedule.min_factor", "schedule.name", lambda name: name in ("cosine", "plateau")),
    ("schedule.patience", "schedule.name", lambda name: name == "plateau"),
    ("schedule.threshold", "schedule.name", lambda name: name == "plateau"),
    ("ema.every", "ema.decay", lambda decay: decay is not None),
    ("parallel", "parallel.model", lambda num: num > 1),
    ("sync", "servers.mode", lambda mode: mode == "off"),
    ("sync.error_feedback", "sync.codec", lambda codec: codec != "fp32"),
    ("sync.exempt_1d", "sync.codec", lambda codec: codec != "fp32"),
    ("servers", "servers.mode", lambda mode: mode != "off"),
    ("faults.on_server_loss", "servers.mode", lambda mode: mode != "off"),
    ("servers.group", "servers.mode", lambda mode: mode == "mixed"),
    ("servers.local_lr", "servers.fetch_every", lambda num: num > 1),
    ("servers.compensation", "servers.delay_compensation", lambda how: how != "off"),
)


def unused_settings(config: RunConfig, extent: Extent | None = None) -> list[str]:
    """A line for each setting that is not its default and has no effect given the others, with the reason.

    Args:
        config: of a run.
        extent: how large it is; None where that is not known, which leaves out what depends on it.
    """
    found: dict[str, str] = {}
    for names, decider, is_used in _RULES:
        value = _get(config, decider)
        if not is_used(value):
            for name in _changed(config, names, decider):
                found.setdefault(name, f"{decider} is {'left out' if value is None else toml_value(value)}")
    if extent is not None and extent.world_size == 1 and config.servers.mode == "off":
        for name in _changed(config, "sync", "servers.mode"):
            found[name] = "there is one rank"
    lines = [f"{name}={toml_value(_get(config, name))} has no effect: {why}" for name, why in found.items()]
    return [*lines, *_of_length(config), *(() if extent is None else _of_steps(config, extent.steps_per_epoch))]


def _of_length(config: RunConfig) -> Iterator[str]:
    """What lies beyond the run's epochs."""
    schedule, epochs = config.schedule, config.epochs
    late = [milestone for milestone in schedule.milestones if milestone >= epochs]
    if schedule.name == "step" and late:
        yield (
            f"schedule.milestones: {toml_value(late)} come after the run's end ({count(epochs, 'epoch')}), and have no "
            "effect"
        )
    if schedule.warmup_epochs > epochs:
        yield (
            f"schedule.warmup_epochs={schedule.warmup_epochs}: the run ends within it ({count(epochs, 'epoch')}), at "
            f"{lr_factor(schedule, epochs, epochs):.2g} of optim.lr"
        )


def _of_steps(config: RunConfig, steps_per_epoch: int) -> Iterator[str]:
    """What depends on how many steps there are."""
    every, num_steps = config.max_steps, config.epochs * steps_per_epoch
    if every is not None and every >= num_steps:
        yield f"max_steps={every} has no effect: {count(config.epochs, 'epoch')} end after {count(num_steps, 'step')}"
    elif every is not None and config.schedule.name == "cosine":
        done = every / steps_per_epoch
        factor = lr_factor(config.schedule, done, config.epochs)
        yield (
            f"max_steps={every} ends the run after {done:.3g} of {count(config.epochs, 'epoch')}: "
            f'schedule.name="cosine" is cut there, at {factor:.2g} of optim.lr'
        )
    last = num_steps if every is None else min(every, num_steps)
    if config.ema.decay is not None and config.ema.every > last:
        yield (
            f"ema.decay={config.ema.decay} has no effect: the average's first update is after "
            f"ema.every={config.ema.every} steps, and the run has {last}"
        )


def _changed(config: RunConfig, names: str, decider: str) -> Iterable[str]:
    """Those settings that are not their default; of a table all of its but the one that decides."""
    section: Section = config
    for part in names.split("."):
        inner = getattr(section, part)
        if not isinstance(inner, Section):
            return [names] if inner != type(section).model_fields[part].get_default(call_default_factory=True) else []
        section = inner
    fields = type(section).model_fields
    every = [(f"{names}.{name}", field.get_default(call_default_factory=True)) for name, field in fields.items()]
    return [name for name, default in every if name != decider and _get(config, name) != default]


def _get(config: RunConfig, name: str) -> Any:
    found: Any = config
    for part in name.split("."):
        found = getattr(found, part)
    return found
