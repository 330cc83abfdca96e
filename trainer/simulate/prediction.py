"""What a run's config would take on a cluster's card: seconds, waiting, efficiency, bytes and memory, by ranks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from augpipe.reports.tables import Table
from augpipe.trainer.config.tables import OptimConfig, RunConfig
from augpipe.trainer.simulate.cluster_card import Card
from augpipe.trainer.simulate.layers import Layer, network_of
from augpipe.trainer.simulate.splitting import Splitting, split_layers
from augpipe.trainer.simulate.step import Played, play_steps
from augpipe.trainer.simulate.workload import Settings, Workload

MOST_RANKS = 4096
MOST_RANKS_OF_ONE_MACHINE = 32
"""Where ranks share one machine's cores, each of them is simulated."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One step on so many ranks, each with a batch of its own."""

    ranks: int
    step_s: float
    """Seconds of a step among others."""
    exposed_s: float
    """What a rank waited for others within them."""
    alone_s: float
    """Seconds of a step of one rank."""
    images: int
    """In the global batch."""
    bytes_sent: int
    """By a rank, a step."""
    memory_bytes: int
    """What a rank holds."""
    played: Played | None
    """What was simulated; None for one rank."""

    @property
    def efficiency(self) -> float:
        """Images a second of a rank, over those of one rank alone."""
        return self.alone_s / self.step_s


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run's network on "meta", and how its ranks agree; the same for any number of ranks."""

    parameters: Mapping[nn.Parameter, str]
    layers: tuple[Layer, ...]
    settings: Settings
    batch_size: int
    """Images of a rank and an update."""
    splitting: Splitting | None = None
    """How layers are split, if any are; `parameters` are the others'."""

    @property
    def model_ranks(self) -> int:
        """Ranks among which a layer is split; they divide all ranks."""
        return 1 if self.splitting is None else self.splitting.size


def subject_of(config: RunConfig, card: Card) -> Subject:
    """What a config trains.

    Raises:
        ValueError: it needs what is not simulated yet, or does not say how many classes there are.
    """
    if config.servers.mode != "off":
        raise ValueError(
            f'servers.mode="{config.servers.mode}": runs with parameter servers have a prediction of their own. '
            'Call server_subject, or set servers.mode = "off".'
        )
    model, parameters, layers = network_of(config, card.flop_per_s)
    splitting = None
    if config.parallel.model > 1:
        splitting, parameters, layers = split_layers(model, layers, parameters, config.parallel, config.data.batch_size)
    return Subject(
        parameters=parameters,
        layers=layers,
        splitting=splitting,
        settings=Settings(
            strategy=config.sync.strategy,
            codec=config.sync.codec,
            bucket_bytes=config.sync.bucket_bytes,
            exempt_1d=config.sync.exempt_1d,
            clips=config.optim.clip_norm is not None,
            state_slots=_state_slots(config.optim),
            passes=config.optim.accumulate,
        ),
        batch_size=config.data.batch_size * config.optim.accumulate,
    )


def _state_slots(optim: OptimConfig) -> int:
    if optim.name == "sgd":
        return int(optim.momentum > 0)
    if optim.name == "rmsprop":
        return 1 + int(optim.momentum > 0)
    return {"adagrad": 1, "adamw": 2}[optim.name]


def predict(
    subject: Subject,
    card: Card,
    ranks: Sequence[int],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Prediction]:
    """A prediction for each number of ranks; `progress` hears how many are made, of how many.

    Raises:
        ValueError: a number of ranks is out of range, or the card has no rates of the codec.
    """
    most = MOST_RANKS if card.machine_cores is None else MOST_RANKS_OF_ONE_MACHINE
    for number in ranks:
        if not 1 <= number <= most:
            raise ValueError(f"ranks={number} must lie in 1..{most} on this card. Give other numbers.")
        if number % subject.model_ranks:
            raise ValueError(
                f"ranks={number} is not a multiple of parallel.model={subject.model_ranks}, among which layers are "
                "split. Give other numbers."
            )
    found: list[Prediction] = []
    for number in ranks:
        progress(len(found), len(ranks))
        found.append(_predict_one(subject, card, number))
    progress(len(found), len(ranks))
    return found


def _predict_one(subject: Subject, card: Card, ranks: int) -> Prediction:
    work = Workload(subject.parameters, subject.layers, subject.settings, card, ranks, splitting=subject.splitting)
    played = play_steps(work) if ranks > 1 else None
    return Prediction(
        ranks=ranks,
        step_s=work.alone_s if played is None else played.step_s,
        exposed_s=0.0 if played is None else sum(played.exposed_s[1:]) / len(played.exposed_s[1:]),
        alone_s=work.alone_s,
        images=ranks * subject.batch_size,
        bytes_sent=0 if played is None else played.bytes_sent // len(played.ends_s),
        memory_bytes=work.memory_bytes,
        played=played,
    )


def table(found: Sequence[Prediction]) -> Table:
    """A row for each number of ranks."""
    rows = [
        (
            f"{one.ranks}",
            f"{1e3 * one.step_s:.1f}",
            f"{1e3 * one.exposed_s:.1f}",
            f"{one.efficiency:.3f}",
            f"{one.images / one.step_s:.0f}",
            f"{one.bytes_sent / 1e6:.1f}",
            f"{one.memory_bytes / 1e6:.0f}",
        )
        for one in found
    ]
    return Table(
        columns=("ranks", "step, ms", "waiting, ms", "efficiency", "images/s", "MB sent", "MB held"), rows=rows
    )
