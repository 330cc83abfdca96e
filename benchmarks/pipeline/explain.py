"""What `Loader.explain` says of slow loaders, next to what experiments say: is it that stage, and does its advice help?

    python -m benchmarks.pipeline.explain                        # all situations of situations.py
    python -m benchmarks.pipeline.explain slow_disk pngs         # some

The truth never asks `explain`: the true bottleneck is the stage without which the loader is fastest, each freed in turn
(files or pixels from memory, a recipe without colours, no consumer). Then a new loader explains a pass of some seconds
and its advice is followed to the letter. As the machine's speed changes by a fifth from one minute to the next, a new
loader explains again in each round, in turn with the loader as it was and as this round advised: what is predicted is
the rate of the advised loader, and how many times as fast it becomes. Loaders are new in each turn and end before their
first epoch does, as sizes and rows are known in the next; a changed one is in its second where the advice speaks of it.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from augpipe import Batch, Loader
from augpipe.datasets.formats.folder import FolderSource
from augpipe.explain.explanation import Explanation
from benchmarks.harness import Bench, touch_memory
from benchmarks.pipeline.situations import SITUATIONS, Situation
from benchmarks.pipeline.staging import Staging, run_command

AS_IT_IS = "as it is"
NUM_SKIPPED = 3
"""Batches of a turn that are not counted: as many as are begun before the first is given."""
NUM_COUNTED = 4
"""Batches that are counted at least."""
FOLLOWED_ROUNDS, FOLLOWED_S = 3, 4.0
"""How often and how long a loader that follows the advice is measured: its gain is held against a bound."""
PASS_S, MOST_OF_EPOCH = 5.0, 0.8
"""How long a pass runs before it is explained, and how much of its epoch it takes at most, as any turn."""
MEMORY_BYTES = 2**30
"""What is touched before each turn and each pass, so that none of them pays for new pages that others do not."""
WITHIN = 0.15
"""By how much a rate may be off what was predicted."""
TIE = 0.05
"""By how much the gains of stages may differ where the experiment does not tell them apart: then either is true."""

Rates = dict[str, list[float]]
"""Of each contender images a second: one entry a round."""


def loader_of(situation: Situation, folder: Path, change: dict[str, Any] | None = None) -> Loader:
    """A new loader, with changed arguments."""
    arguments = {"source": None, "recipe": situation.recipe, **situation.loader, **(change or {})}
    source = arguments.pop("source")
    opened = str(folder) if situation.open is FolderSource else situation.open(folder)
    return Loader(opened if source is None else source, **arguments)


def without_end(loader: Loader) -> Iterator[Batch]:
    """Batches, epoch after epoch."""
    while True:
        yield from loader


def rate_of(loader: Loader, consumer: Callable[[Batch], None], seconds: float) -> float:
    """Images a second that a consumer gets, in a pass of its own."""
    with closing(without_end(loader)) as batches:
        for _ in range(NUM_SKIPPED):
            consumer(next(batches))
        start, num_images, num_batches, most = time.perf_counter(), 0, 0, MOST_OF_EPOCH * len(loader.source)
        while num_batches < NUM_COUNTED or (time.perf_counter() < start + seconds and num_images < most):
            batch = next(batches)
            consumer(batch)
            num_images, num_batches = num_images + len(batch), num_batches + 1
        return num_images / (time.perf_counter() - start)


def rate_in_epoch(loader: Loader, consumer: Callable[[Batch], None]) -> float:
    """Images a second in the rest of an epoch, once as many batches are given as are begun before the first."""
    num_images, start = 0, 0.0
    for number, batch in enumerate(loader, 1):
        consumer(batch)
        if number > NUM_SKIPPED:
            num_images += len(batch)
        elif number == NUM_SKIPPED:
            start = time.perf_counter()
    return num_images / (time.perf_counter() - start)


def forget(folder: Path) -> None:
    """Have the system drop what it keeps of the files in a folder."""
    for path in folder.rglob("*.*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def turn_of(
    situation: Situation, folder: Path, seconds: float, change: dict[str, Any] | None = None, *, is_second: bool = False
) -> float:
    """The rate of a new loader, in its first epoch or its second."""
    touch_memory(MEMORY_BYTES)
    if situation.is_cold:
        forget(folder)
    loader = loader_of(situation, folder, change)
    if is_second:
        sum(map(len, loader))
        return rate_in_epoch(loader, situation.consumer)
    return rate_of(loader, situation.consumer, seconds)


def rates_in_turn(contenders: dict[str, Callable[[], float]], rounds: int) -> Rates:
    """The rate of each in each round; a turn leaves out its own first batches, for which kernels are loaded."""
    rates: Rates = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, turn in contenders.items():
            rates[name].append(turn())
    return rates


def gains(rates: Rates) -> dict[str, float]:
    """Stage -> how many times as fast the loader is without it: the median of the rounds, most first."""
    found = {
        stage: statistics.median(free / whole for free, whole in zip(rates[stage], rates[AS_IT_IS], strict=True))
        for stage in rates
        if stage != AS_IT_IS
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def truth_of(situation: Situation, rounds: int, seconds: float) -> dict[str, Any]:
    """What experiments say: the rate, the rates with each stage freed, and the stage that holds the loader up."""
    contenders = {AS_IT_IS: situation} | situation.freed()
    turns = {name: (lambda each=each: turn_of(each, each.files.folder, seconds)) for name, each in contenders.items()}
    rates = rates_in_turn(turns, rounds)
    gained = gains(rates)
    most, *less = gained.values()
    return {
        "true": [stage for stage, gain in gained.items() if gain > (1.0 - TIE) * most],
        "gains": {stage: round(gain, 3) for stage, gain in gained.items()},
        "ahead of the next": round(most / max([1.0, *less]), 3),
        "rate": round(statistics.median(rates[AS_IT_IS]), 1),
        "rates if free": {stage: round(statistics.median(rates[stage]), 1) for stage in gained},
    }


def explained(situation: Situation, folder: Path, pass_s: float) -> Explanation:
    """What a new loader explains of a pass."""
    touch_memory(MEMORY_BYTES)
    if situation.is_cold:
        forget(folder)
    loader = loader_of(situation, folder)
    with closing(without_end(loader)) as batches:
        until, num_images = time.perf_counter() + pass_s, 0
        for batch in batches:
            situation.consumer(batch)
            num_images += len(batch)
            if time.perf_counter() > until or num_images > MOST_OF_EPOCH * len(loader.source):
                break
        return loader.explain()


def advice_of(situation: Situation, folder: Path, pass_s: float, rounds: int, seconds: float) -> dict[str, Any]:
    """What new loaders explain, the first and one a round, and what following the round's own advice gives.

    A command is followed once, that of the first: what its files become is the same in each round.
    """
    told = explained(situation, folder, pass_s)
    if told.command is not None:
        run_command(told.command, folder.parent)
    all_told = [told]

    def explain_again() -> float:
        all_told.append(explained(situation, situation.files.folder, pass_s))
        return all_told[-1].expected_rate

    def follow() -> float:
        followed = told if told.command is not None else all_told[-1]
        is_second = "second epoch" in followed.advice
        return turn_of(situation, folder, seconds, followed.change, is_second=is_second)

    turns = {
        "expected": explain_again,
        AS_IT_IS: lambda: turn_of(situation, situation.files.folder, seconds),
        "followed": follow,
    }
    rates = rates_in_turn(turns, rounds)
    expected_gains = [each.expected_rate / each.rate for each in all_told[1:]]
    gained = [after / before for after, before in zip(rates["followed"], rates[AS_IT_IS], strict=True)]
    return {
        "named": told.bottleneck,
        "advice": told.advice,
        "command": told.command,
        "change": {name: str(value) for name, value in told.change.items()},
        "named in later rounds": [each.bottleneck for each in all_told[1:]],
        "changed in later rounds": [sorted(each.change) for each in all_told[1:]],
        "shares told": {stage.name: round(stage.share, 3) for stage in told.stages},
        "rates if free told": {stage.name: round(stage.rate_if_free, 1) for stage in told.stages},
        "rate told": [round(each.rate, 1) for each in all_told],
        "expected": round(statistics.median(expected_gains), 3),
        "followed": round(statistics.median(gained), 3),
        "rates": {name: [round(rate, 1) for rate in each] for name, each in rates.items()},
        "off": ratio_off(gained, expected_gains),
        "rate off": ratio_off(rates["followed"], rates["expected"]),
    }


def ratio_off(measured: list[float], expected: list[float]) -> float:
    """By how much more than expected was measured: the median of the rounds."""
    return round(statistics.median(one / other for one, other in zip(measured, expected, strict=True)) - 1.0, 3)


def copied(folder: Path) -> Path:
    """A folder with links to the same files, to follow advice in."""
    return Path(shutil.copytree(folder, folder.with_name(f"{folder.name}_followed"), copy_function=os.link))


def counted(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How many of the situations were named and predicted as they are."""
    told = [row for row in rows.values() if "named" in row]
    named = sum(row["named"] in row["true"] for row in told)
    found = {"named": f"{named} of {len(told)}"}
    for what, column in {"gain": "off", "rate": "rate off"}.items():
        found[f"{what} within {WITHIN:.0%}"] = f"{sum(abs(row[column]) <= WITHIN for row in told)} of {len(told)}"
    return found


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Print the table."""
    columns = ("named", "ahead of the next", "rate", "expected", "followed", "off", "rate off")
    print(f"{'situation':20}{'true':20}" + "".join(f"{column:>18}" for column in columns))
    for name, row in rows.items():
        print(
            f"{name:20}{' or '.join(row['true']):20}" + "".join(f"{row.get(column, '-')!s:>18}" for column in columns)
        )


def main() -> None:
    bench = Bench(__doc__, rounds=3, names=SITUATIONS, seconds=0.5)
    names = bench.names[: bench.pick(None, 1)]
    seconds, pass_s = bench.pick((bench.options.seconds, PASS_S), (0.1, 0.5))
    photographs, origin = bench.photographs()
    rows: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as temporary, ExitStack() as ends:
        run_command("augpipe warm --quiet", Path(temporary))
        staging = Staging(Path(temporary), photographs, ends, share=bench.pick(1.0, 0.1))
        for name in names:
            situation = SITUATIONS[name](staging)
            rows[name] = truth_of(situation, bench.rounds, seconds)
            if hasattr(Loader, "explain"):
                folder = copied(situation.files.folder)
                rows[name] |= advice_of(situation, folder, pass_s, *bench.pick((FOLLOWED_ROUNDS, FOLLOWED_S), (1, 0.1)))
                shutil.rmtree(folder)
            show({name: rows[name]})
    show(rows)
    what = f"images a second, {origin}: the stage that holds a loader up, by experiment and as Loader.explain names it"
    bench.keep("explain", {"what": what, "counts": counted(rows), "situations": rows})


if __name__ == "__main__":
    main()
