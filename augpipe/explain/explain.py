"""From what a pass has counted, and short trials, to an `Explanation`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from augpipe.explain.advice import SECOND_EPOCH, Case, Change, tried_changes
from augpipe.explain.explanation import Explanation, Stage
from augpipe.explain.parts import Parts, time_parts
from augpipe.explain.trials import Trials
from augpipe.native.workers import num_usable_cores
from augpipe.pipeline.load_times import LoadTimes

LEAST_BATCHES = 3
"""Batches that a pass must have given, or one is made to be counted."""

WORTH_IT = 1.1
"""Times as fast that a change must make the loop to be advised."""
ENOUGH = 1.5
"""A change that makes the loop this many times as fast is advised, though later, larger changes may bring more."""
PREFERRED = 0.9
"""A change is advised, too, before a later one that is not better by more than this."""

NUM_AGAIN = 2
"""How often the loader and the change that is advised are tried again, in turn: the rates of machines drift."""
NUM_PARTS = 8
"""Parts of the work that the progress counts: three are fixed, about three changes are tried, and one again."""

LOADER_BOUND = 0.1
"""Part of the time in which the consumer waits, from which on the loader sets the rate; or works, to count at all."""
SATURATED = 0.9
"""Part of all cores' time from which on loader and consumer take it from each other."""

ORDER = ("reading", "planning", "decoding", "map", "program", "targets", "mixing", "copying")


def explain(
    trials: Trials,
    loop: LoadTimes,
    path: str | None,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Explanation:
    """Where the time of a loader goes, and what to do about it.

    Args:
        trials: runs of the loader.
        loop: its last pass; where that gave fewer than `LEAST_BATCHES`, one is made.
        path: of its source, if it was given one.
        progress: called with the parts that are done, and about how many there are.

    Raises:
        SampleError: an image cannot be used, and none is skipped.
        ValueError: the rank has no images.
    """
    epochs = trials.epochs
    if epochs.rank >= epochs.num_samples:
        raise ValueError(
            f"rank {epochs.rank} of {epochs.world_size} gets none of the {epochs.num_samples} images of an epoch: "
            "there is nothing to explain. Ask a lower rank, or start fewer."
        )
    alone = trials.run()
    loop = loop if loop.num_batches >= LEAST_BATCHES else alone
    progress(1, NUM_PARTS)
    images = trials.hold()
    progress(2, NUM_PARTS)
    parts = time_parts(trials.settings, images, trials.epoch)
    progress(3, NUM_PARTS)
    shares = _shares(loop, parts, trials)
    step = Step(loop, alone)
    rates = {name: step.rate(1.0 - share) for name, share in shares.items()} | {"consumer": step.rate_alone}
    bottleneck = max(rates, key=lambda name: rates[name])
    tried: dict[Change, float] = {}
    if bottleneck != "consumer":
        case = Case(trials=trials, alone=alone, images=images, parts=parts, path=path)
        for change in tried_changes(case, bottleneck):
            tried[change] = step.after(change, step.gain(change, change.times, alone))
            progress(min(3 + len(tried), NUM_PARTS - NUM_AGAIN), NUM_PARTS)
    advised, expected = _advised(tried, step, trials)
    progress(NUM_PARTS, NUM_PARTS)
    stages = [Stage(name=name, share=shares[name], rate_if_free=rates[name]) for name in ORDER if name in shares]
    used = loop.used_s / loop.seconds
    share = used if bottleneck == "consumer" else shares[bottleneck]
    threads = trials.settings.first_threads
    return Explanation(
        rate=loop.images_per_s,
        rate_alone=step.rate_alone,
        stages=(*stages, Stage(name="consumer", share=used, rate_if_free=rates["consumer"])),
        bottleneck=bottleneck,
        advice=_sentence(bottleneck, share, advised, expected / loop.images_per_s, trials)
        + _much_better(tried, expected, loop.images_per_s),
        command=None if advised is None else advised.command,
        change={} if advised is None else advised.arguments,
        expected_rate=expected,
        num_images=loop.num_images,
        waited=loop.waited_s / loop.seconds,
        threads=threads,
        busy=min(1.0, sum(loop.work_s.values()) / (threads * loop.seconds)),
        read_mb_per_s=loop.read_bytes / 1e6 / loop.seconds,
        cached=loop.num_cached / max(loop.num_images, 1),
    )


def _shares(loop: LoadTimes, parts: Parts, trials: Trials) -> Mapping[str, float]:
    """Name -> 0..1 of the loader's own time; filling is split as its parts are by themselves."""
    spent: dict[str, float] = {name: seconds for name, seconds in loop.work_s.items() if name != "filling"}
    filling = max(loop.work_s["filling"], 0.0)
    if trials.choice.is_on_cuda:
        spent["decoding"] = filling  # the device renders
    else:
        decoding = parts.decoding * (1.0 - loop.num_cached / max(loop.num_images, 1))
        total = decoding + parts.map + parts.program
        spent["decoding"], spent["map"] = filling * decoding / total, filling * parts.map / total
        spent["program"] = filling * parts.program / total
    spent["decoding"] += loop.dali_s * trials.settings.first_threads
    total = sum(spent.values())
    return {name: spent[name] / total for name in ORDER if spent.get(name, 0.0) > 0.0}


@dataclass(frozen=True)
class Step:
    """How long an image takes in the loop: as long as the loader, the consumer, or the cores that both share.

    Args:
        loop: with the consumer.
        alone: the same loader without.
    """

    loop: LoadTimes
    alone: LoadTimes

    @property
    def rate_alone(self) -> float:
        """Images/s without a consumer."""
        return 1.0 / self._loader_s

    def rate(self, part: float) -> float:
        """Images/s of the loop if the loader took `part` of the time it does."""
        return self._rate(part * self._loader_s, part * _cpu_s(self.alone))

    def gain(self, change: Change, run: LoadTimes, alone: LoadTimes) -> float:
        """How many times as fast the loader is by a run with a change, and one without it of about the same minute.

        What comes in a second epoch is held against the pass: its files may not have been read before, and those of
        trials have.
        """
        return run.images_per_s / (self.rate_alone if change.when == SECOND_EPOCH else alone.images_per_s)

    def after(self, change: Change, gain: float) -> float:
        """Images/s of the loop with a change with which the loader is `gain` times as fast."""
        return self._rate(self._loader_s / gain, _cpu_s(change.times))

    def _rate(self, loader_s: float, loader_cpu_s: float) -> float:
        cpu_s = loader_cpu_s + self._consumer_cpu_s
        return 1.0 / max(loader_s, self._consumer_s, cpu_s / num_usable_cores(), 1e-9)

    @property
    def _loader_s(self) -> float:
        loop = self.loop
        is_bound = loop.waited_s > LOADER_BOUND * loop.seconds and not self._is_saturated
        return 1.0 / (loop if is_bound else self.alone).images_per_s  # a pass may have other files at hand than a trial

    @property
    def _consumer_cpu_s(self) -> float:
        """Of all threads but the loader's, as far as there was time for it between batches."""
        most_s = num_usable_cores() * self.loop.used_s / self.loop.num_images
        return min(max(_cpu_s(self.loop) - _cpu_s(self.alone), 0.0), most_s)

    @property
    def _consumer_s(self) -> float:
        """What a consumer would take with the cores to itself."""
        used_s = self.loop.used_s / self.loop.num_images
        if not self._is_saturated:
            return used_s
        own_s = self.loop.consumer_cores / self.loop.images_per_s
        return min(used_s, max(own_s, self._consumer_cpu_s / num_usable_cores()))

    @property
    def _is_saturated(self) -> bool:
        is_used = self.loop.used_s > LOADER_BOUND * self.loop.seconds
        return is_used and self.loop.cores > SATURATED * num_usable_cores()


def _cpu_s(times: LoadTimes) -> float:
    """CPU seconds an image, of the whole process."""
    return times.cores / times.images_per_s


def _advised(rates: dict[Change, float], step: Step, trials: Trials) -> tuple[Change | None, float]:
    """The change that is worth it, when tried again too, and the rate with it; or none, and the rate as it is.

    `rates` is then right of what was tried again.
    """
    again = set[Change]()
    while (best := _best(rates, step.loop.images_per_s)) is not None and best not in again:
        gains = [step.gain(best, best.times, step.alone)]
        for _ in range(NUM_AGAIN):
            alone = step.alone if best.when == SECOND_EPOCH else trials.run()
            gains.append(step.gain(best, best.run(), alone))
        rates[best] = step.after(best, median(gains))
        again.add(best)
    return best, step.loop.images_per_s if best is None else rates[best]


def _best(tried: Mapping[Change, float], rate: float) -> Change | None:
    """The first change that is worth it, unless a later one is much better."""
    most = max(tried.values(), default=0.0)
    if most < WORTH_IT * rate:
        return None
    enough = min(ENOUGH * rate, max(PREFERRED * most, WORTH_IT * rate))
    return next(change for change, expected in tried.items() if expected >= enough)


def _much_better(tried: Mapping[Change, float], expected: float, rate: float) -> str:
    """A second sentence, where the best of what was tried asks for more than what is advised, and gives far more."""
    best = max(tried, key=lambda change: tried[change], default=None)
    if best is None or tried[best] < ENOUGH * expected:
        return ""
    return f" More would come of this: {best.text}. About {tried[best] / rate:.2g}x{best.when}."


def _sentence(bottleneck: str, share: float, change: Change | None, gain: float, trials: Trials) -> str:
    if bottleneck == "consumer":
        return f"What uses the batches takes {share:.0%} of the time: there is nothing to gain in the loader."
    what = f"{bottleneck.capitalize()} takes {share:.0%} of the loader's time"
    if change is not None:
        return f"{what}: {change.text}. Expected: {gain:.2g}x{change.when}."
    views = len(trials.settings.recipe.all_views)
    many = f", for {views} views of each image" if views > 1 and bottleneck in ("map", "program") else ""
    return f"{what}{many}, and nothing that was tried makes it faster by a tenth. More cores would."
