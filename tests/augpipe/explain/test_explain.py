"""What `Loader.explain` says: the slow stage by its name, and rates that follow from what was counted."""

import tarfile
import time
from collections import defaultdict
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, View, ops
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.prepare.index_folder import index_folder
from augpipe.explain import advice, explain, trials
from augpipe.explain.explain import Step
from augpipe.explain.parts import Parts, time_parts
from augpipe.pipeline import batches, load_times
from augpipe.pipeline.batches import BatchMaker
from augpipe.pipeline.blocks import Block
from augpipe.pipeline.items import BatchInProgress, Settings
from augpipe.pipeline.load_times import LoadTimes, PassClock
from augpipe.pipeline.stages import Stage, Work
from augpipe.recipes import evaluation, none
from augpipe.sampling import Repeated
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import MemorySource, jpegs, truncated
from tests.augpipe.loader.target_sources import KEEPING, object_source
from tests.contracts.backends import needs_dali

NUM = 64
SOURCE = MemorySource(jpegs(NUM), [0] * NUM)
RECIPE = Recipe(ops=(ops.RandomResizedCrop(size=16), ops.Flip(), ops.Normalize()))
STAGES = ["reading", "planning", "decoding", "map", "copying", "consumer"]


class SlowSource(MemorySource):
    """Waits as for a disk, which takes no core."""

    def read(self, sample_id: int) -> Any:
        time.sleep(0.02)
        return super().read(sample_id)


def loader(source: Any = SOURCE, recipe: Recipe = RECIPE, **options: Any) -> Loader[Any]:
    settings = {"batch_size": 8, "num_threads": 2, "framework": "numpy", "rank": 0, "world_size": 1} | options
    return Loader(source, recipe, **settings)


@pytest.mark.slow
def test_an_explanation_tells_of_every_stage_and_says_what_is_worst() -> None:
    found = loader().explain(seconds=0.3)
    assert [stage.name for stage in found.stages] == STAGES
    *own, consumer = found.stages
    assert sum(stage.share for stage in own) == pytest.approx(1.0)
    assert consumer.share < 0.5 and found.waited > 0.5, "nobody uses the batches"
    assert found.bottleneck == max(found.stages, key=lambda stage: stage.rate_if_free).name
    assert all(stage.rate_if_free >= found.rate * 0.999 for stage in own)
    assert found.num_images > 0 and found.threads == 2 and 0.0 < found.busy <= 1.0 and found.cached == 0.0
    assert found.bottleneck in str(found) and str(found).endswith(found.advice)


STACK = ArraySource(np.zeros((40, 20, 24, 3), np.uint8), np.zeros(40, np.int64))
DAMAGED = MemorySource([*jpegs(20), truncated(), b"not an image"], [0] * 22)
ANY: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "objects": (object_source(21), KEEPING, {}),
    "mixing": (SOURCE, Recipe(ops=RECIPE.ops, mixing=(ops.MixUp(p=0.5),)), {}),
    "whole images": (MemorySource(jpegs(3), [0] * 3), none(), {"batch_size": 1}),
    "one array": (STACK, RECIPE, {}),
    "fewer than a batch": (MemorySource(jpegs(9), [0] * 9), RECIPE, {"drop_last": True}),
    "a cache": (SOURCE, RECIPE, {"cache": "host"}),
    "a sampler": (SOURCE, RECIPE, {"sampler": Repeated(3)}),
    "damaged": (DAMAGED, RECIPE, {"on_error": "skip"}),
    "a schedule": (SOURCE, {0: RECIPE, 1: Recipe(ops=(*RECIPE.ops, ops.Noise()))}, {}),
    "levels": (SOURCE, Recipe(ops=RECIPE.ops[:2]), {"dtype": "uint8", "layout": "NHWC"}),
    "one of two ranks": (SOURCE, RECIPE, {"rank": 1, "world_size": 2}),
    "dali": (SOURCE, RECIPE, {"backend": "dali"}),
}


@pytest.mark.slow
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_dali if name == "dali" else ()) for name in ANY])
def test_any_loader_is_explained(name: str) -> None:
    source, recipe, options = ANY[name]
    made = loader(source, recipe, **options)
    found = made.explain(seconds=0.05)
    assert found.rate > 0.0 and found.num_images > 0 and found.bottleneck in found.to_json()["advice"].lower()
    given = sum(len(batch) for batch in made)
    assert given == sum(len(batch) for batch in loader(source, recipe, **options))


def test_a_cache_counts_no_batch_that_nobody_got() -> None:
    made = loader(cache="host")
    for number, _ in enumerate(made):
        if number == 3:
            made.explain(seconds=0.05)
    counted = made.cache_statistics
    assert counted is not None and counted.hits + counted.misses == NUM


def test_a_rank_without_images_has_nothing_to_explain() -> None:
    made = loader(MemorySource(jpegs(3), [0] * 3), rank=3, world_size=4)
    with pytest.raises(ValueError, match="rank 3 of 4 gets none of the 3 images of an epoch"):
        made.explain(seconds=0.05)


BLURRED = Recipe(ops=(ops.RandomResizedCrop(size=64), ops.Blur(sigma_px=(4.0, 4.0), p=1.0), ops.Normalize()))


def blur_takes_most(settings: Settings, images: Any, epoch: int) -> Parts:
    """In place of `time_parts`."""
    blurs = any(op.op == "blur" and op.p > 0.0 for op in settings.recipe.ops)
    return Parts(decoding=0.5, map=0.5, program=2.0 if blurs else 0.0, cached_bytes=0.0)


@pytest.mark.slow
def test_a_recipe_of_a_schedule_is_told_and_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passed on as the loader's recipe, it would end the schedule."""
    monkeypatch.setattr(advice, "time_parts", blur_takes_most)
    tried = case(BLURRED)
    of_schedule = replace(
        tried, trials=replace(tried.trials, settings=replace(tried.trials.settings, recipes_differ=True))
    )
    assert [one.arguments for one in advice._another_recipe(of_schedule)] == [{}, {}]


@pytest.mark.slow
def test_slow_reading_is_named_and_answered_by_more_threads() -> None:
    found = loader(SlowSource(jpegs(NUM), [0] * NUM)).explain(seconds=1.0)
    assert found.bottleneck == "reading"
    assert found.stages[0].share > 0.6
    assert found.change["num_threads"] > 2 and found.expected_rate > 1.5 * found.rate
    assert f"num_threads={found.change['num_threads']} instead of 2" in found.advice
    faster = loader(SlowSource(jpegs(NUM), [0] * NUM), **found.change)
    assert faster.explain(seconds=0.5).threads == found.change["num_threads"]


@pytest.mark.slow
def test_a_slow_consumer_is_named_and_no_change_is_advised() -> None:
    made = loader()
    for _ in made:
        time.sleep(0.15)
    found = made.explain(seconds=0.3)
    assert found.bottleneck == "consumer" and found.expected_rate == found.rate and not found.change
    assert found.advice.endswith("there is nothing to gain in the loader.")
    assert found.rate_alone > 1.5 * found.rate


@pytest.mark.slow
def test_batches_go_on_as_if_nobody_had_asked() -> None:
    def epoch(asks: bool) -> list[bytes]:
        made, pixels = loader(on_error="skip"), []
        for number, batch in enumerate(made):
            pixels.append(np.asarray(batch.images).tobytes())
            if asks and number == 3:
                made.explain(seconds=0.1)
        assert made.epoch == 1
        return pixels

    assert epoch(asks=True) == epoch(asks=False)


def test_what_was_asked_meanwhile_is_not_the_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loader()
    batches = iter(made)
    for _ in range(4):
        next(batches)
    before = made._makers.clock.times.used_s
    monkeypatch.setattr(explain, "explain", lambda *_: time.sleep(0.5))
    made.explain(seconds=1.0)
    next(batches)
    assert made._makers.clock.times.used_s - before < 0.4


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_seconds_are_above_nothing(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"seconds=.* must be above 0"):
        loader().explain(seconds=seconds)


class Clocks:
    """Stands in for `time`: what its clocks say is set by hand."""

    def __init__(self) -> None:
        self.wall = self.process = self.thread = 0.0

    def perf_counter(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.process

    def thread_time(self) -> float:
        return self.thread

    def pass_by(self, seconds: float, *, threads: float = 0.0, consumer: float = 0.0) -> None:
        """Let time pass in which other threads, and the consumer's, keep so many cores busy."""
        self.wall += seconds
        self.process += seconds * (threads + consumer)
        self.thread += seconds * consumer


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()
    monkeypatch.setattr(load_times, "time", found)
    return found


def test_the_clock_tells_the_consumers_time_from_the_loaders(clocks: Clocks) -> None:
    clock = PassClock()
    clock.begin()
    clock.asked()
    clocks.pass_by(10.0, threads=2.0)  # nothing before the first batch counts
    clock.gave()
    for _ in range(3):
        clocks.pass_by(2.0, threads=0.5, consumer=1.0)
        clock.asked()
        clocks.pass_by(0.5, threads=1.5)
        clock.gave()
    clocks.pass_by(1.0)
    clock.asked()  # which the end of the epoch answers
    times = clock.times
    assert (times.num_batches, times.used_s, times.waited_s, times.seconds) == (3, 7.0, 1.5, 8.5)
    assert times.cores == pytest.approx((2.0 * 1.5 + 0.5 * 1.5) / 2.5)
    assert times.consumer_cores == pytest.approx(2.0 / 2.5)


def test_short_passes_are_counted_together_and_a_long_one_by_itself(clocks: Clocks) -> None:
    clock = PassClock()
    for num_batches, counted in ((5, 4), (5, 8), (30, 37), (5, 4)):
        clock.begin()
        for _ in range(num_batches):
            clock.asked()
            clocks.pass_by(1.0, threads=1.5)
            clock.gave()
        assert clock.times.num_batches == counted and clock.times.cores == 1.5


def test_what_batches_took_is_added_up_from_the_second_one_on(clocks: Clocks) -> None:
    clock = PassClock()
    batch: Any = SimpleNamespace(num_own=4, work_s={"decoding": 2.0}, dali_s=0.5, read_bytes=100)
    clock.begin()
    for _ in range(3):
        clock.add(batch, 3)
        clock.gave()
    found = clock.times
    assert (found.num_images, found.work_s["decoding"], found.dali_s) == (8, 4.0, 1.0)
    assert (found.read_bytes, found.num_cached) == (200, 6)


def times(rate: float, *, used: float = 0.0, cores: float = 1.0, consumer_cores: float = 0.0) -> LoadTimes:
    """Of 100 images: their rate, the part of the time that a consumer uses, the cores that are busy, its own part."""
    seconds = 100 / rate
    return LoadTimes(
        num_batches=10,
        num_images=100,
        used_s=used * seconds,
        waited_s=(1.0 - used) * seconds,
        cpu_s=cores * seconds,
        consumer_cpu_s=consumer_cores * seconds,
        cpu_seconds=seconds,
        work_s=defaultdict(float, filling=cores * seconds),
    )


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (explain, advice):
        monkeypatch.setattr(module, "num_usable_cores", lambda: 2)


def test_a_loop_is_as_fast_as_the_slower_of_loader_and_consumer() -> None:
    by_itself = Step(times(1000.0), times(1000.0))
    assert by_itself.rate(0.5) == pytest.approx(2000.0)
    held_up = Step(times(400.0, used=1.0), times(1000.0))
    assert held_up.rate(0.5) == pytest.approx(400.0) and held_up.rate_alone == pytest.approx(1000.0)
    nearly = Step(times(800.0, used=0.5), times(1000.0))
    assert nearly.rate(0.5) == pytest.approx(1600.0), "the consumer takes half of the time"
    slower_then = Step(times(500.0, used=0.2), times(1000.0))
    assert slower_then.rate_alone == pytest.approx(500.0), "files were slower to come in the pass than in the trial"


def test_loader_and_consumer_share_the_cores() -> None:
    """On two cores, 3 ms of the consumer's threads and 1 ms of the loader's an image are 500 images/s."""
    step = Step(times(500.0, used=1.0, cores=2.0, consumer_cores=0.75), times(1500.0, cores=1.5))
    assert step.rate(1.0) == pytest.approx(500.0)
    assert step.rate(0.0) == pytest.approx(2 / 0.003)
    assert step.rate_alone == pytest.approx(1500.0)


def test_a_loader_that_was_slower_in_the_pass_gives_the_consumer_no_cores() -> None:
    """As in a first epoch: 4 ms of CPU time an image, 2 in a trial, and all of it is the loader's."""
    step = Step(times(500.0, cores=2.0), times(1000.0, cores=2.0))
    assert step.rate_alone == pytest.approx(500.0)
    assert step.rate(0.1) == pytest.approx(5000.0)
    tried = change(10_000.0, cores=2.0)
    assert step.after(tried, 10.0) == pytest.approx(5000.0)
    assert step.after(tried, 2.0) == pytest.approx(1000.0)


def change(*rates: float, text: str = "", when: str = "", **how: Any) -> advice.Change:
    """One that has run at the first rate and will run at the others."""
    runs = iter([times(rate, **how) for rate in rates])
    return advice.Change.tried(lambda: next(runs), text=text, when=when)


@pytest.mark.parametrize(
    ("tried", "best"),
    [
        ([], None),
        ([("a", 105.0)], None),
        ([("a", 115.0)], "a"),
        ([("a", 115.0), ("b", 118.0)], "a"),
        ([("a", 115.0), ("b", 140.0)], "b"),
        ([("a", 160.0), ("b", 300.0)], "a"),
        ([("a", 90.0), ("b", 111.0)], "b"),
    ],
)
def test_the_least_change_that_is_worth_it_is_advised(tried: list[tuple[str, float]], best: str | None) -> None:
    found = explain._best({change(rate, text=text): rate for text, rate in tried}, 100.0)
    assert (None if found is None else found.text) == best


class Runs(trials.Trials):
    """The loader as it is runs each time at the next rate."""

    def __init__(self, *rates: float) -> None:
        self._rates = iter(rates)

    def run(self, **_: Any) -> LoadTimes:
        return times(next(self._rates))


def test_what_is_advised_is_tried_again_in_turn_with_the_loader_as_it_is() -> None:
    step = Step(times(1000.0), times(1000.0))
    lucky, sound = change(2000.0, 1050.0, 990.0, text="a"), change(1300.0, 800.0, 1500.0, text="b")
    tried = {one: step.after(one, one.times.images_per_s / 1000.0) for one in (lucky, sound)}
    found, expected = explain._advised(tried, step, Runs(1000.0, 1000.0, 500.0, 1200.0))
    assert found is sound and expected == pytest.approx(1300.0), "the median of 1.3, 1.6 and 1.25"
    assert tried[lucky] == pytest.approx(1050.0), "what was tried again is put right"
    first, better = change(1600.0, 1200.0, 1300.0, text="a"), change(2500.0, 2400.0, 2300.0, text="b")
    found, expected = explain._advised({first: 1600.0, better: 2500.0}, step, Runs(*[1000.0] * 4))
    assert found is better and expected == pytest.approx(2400.0), "once the first is no longer enough"
    assert explain._advised({}, step, Runs()) == (None, 1000.0)


def test_what_gives_far_more_than_what_is_advised_is_named_too() -> None:
    first, later, small = change(1600.0, text="first"), change(9000.0, text="later"), change(2000.0, text="small")
    said = explain._much_better({first: 1600.0, later: 9000.0, small: 2000.0}, 1600.0, 1000.0)
    assert said == " More would come of this: later. About 9x."
    assert explain._much_better({first: 1600.0, small: 2000.0}, 1600.0, 1000.0) == ""
    assert explain._much_better({}, 1000.0, 1000.0) == ""


def test_a_later_epoch_is_held_against_the_pass_whose_files_may_have_been_read_for_the_first_time() -> None:
    step = Step(times(700.0), times(1000.0))  # trials read some of them again
    cache = change(2000.0, 1900.0, 2200.0, when=advice.SECOND_EPOCH)
    first = step.after(cache, step.gain(cache, cache.times, step.alone))
    found, expected = explain._advised({cache: first}, step, Runs())
    assert found is cache and first == expected == pytest.approx(2000.0), "the median, and no other loader has run"
    at_once = change(2000.0)
    assert step.after(at_once, step.gain(at_once, at_once.times, step.alone)) == pytest.approx(1400.0)


def case(
    recipe: Recipe = RECIPE, source: Any = SOURCE, path: str | None = None, made: Any = None, **options: Any
) -> advice.Case:
    made = made or loader(source, recipe, **options)
    tried = trials.Trials(
        settings=made._makers.settings(made.recipe, made.seed),
        choice=made._choice,
        epochs=made._epochs,
        cache=None,
        epoch=0,
        consumed=0,
        seconds=0.01,
    )
    images = tried.hold()
    parts = time_parts(tried.settings, images, 1)
    return advice.Case(trials=tried, alone=times(1000.0), images=images, parts=parts, path=path)


def test_trials_go_on_from_each_other_and_learn_nothing_of_the_files() -> None:
    """Else the second one would find sizes and row indexes that the first has left, and be faster for it."""
    asked: list[int] = []

    class Noting(MemorySource):
        def read(self, sample_id: int) -> Any:
            asked.append(sample_id)
            return super().read(sample_id)

    photographs = [encoded(scene(150, 200, number), "JPEG") for number in range(8)] * 64
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=96),))
    made = loader(Noting(photographs, [0] * 512), recipe, prefetch=1, shuffle=False)
    tried = case(made=made).trials
    seen, indexes = tried.settings.seen, tried.settings.row_indexes
    assert seen is not None and indexes is not None
    given: list[int] = []
    for _ in range(2):
        before = len(asked)
        tried.run()
        given.append(min(asked[before:]))
    assert given[0] >= trials.MOST_HELD > 0 and given[1] > given[0] + 4 * 8
    assert not seen.find(np.arange(512)).heights.any()
    assert not any(indexes.find(number, data)[0].num_rows for number, data in enumerate(photographs))


@pytest.mark.slow
def test_a_trial_counts_its_batches_but_for_a_quarter_of_the_time_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = replace(case().trials, seconds=40.0)
    for most, num in ((None, 40 - 1), (trials.LEAST_BATCHES, 10 - 1), (25, 25 - trials.LEAST_BATCHES)):
        asked = count()  # a second passes from one look at the clock to the next
        monkeypatch.setattr(trials, "time", SimpleNamespace(perf_counter=lambda asked=asked: float(next(asked))))
        assert tried.run(most_batches=most).num_batches == trials.LEAST_BATCHES + num


def test_a_trial_of_a_second_epoch_counts_no_third_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In which a cache would hold more: images come at other scales in each epoch."""
    found = case()
    tried, asked = replace(found.trials, seconds=40.0), count()
    monkeypatch.setattr(trials, "time", SimpleNamespace(perf_counter=lambda: float(next(asked))))
    size, ahead = tried.epochs.batch_size, tried.settings.prefetch + 1
    times, _ = tried.run_cached(found.images, 20 * size / tried.seconds, found.parts.cached_bytes)
    assert times.num_batches == 20 - ahead  # those that are counted once all threads work on the second


def test_the_time_of_filling_is_split_by_what_each_part_takes_by_itself() -> None:
    parts = Parts(decoding=3e-3, map=2e-3, program=1e-3, cached_bytes=0.0)
    loop = replace(times(100.0), work_s=defaultdict(float, reading=4.0, filling=6.0))
    shares = explain._shares(loop, parts, case().trials)
    assert shares == pytest.approx({"reading": 0.4, "decoding": 0.3, "map": 0.2, "program": 0.1})
    half_cached = replace(loop, num_cached=50)
    shares = explain._shares(half_cached, parts, case().trials)
    assert shares == pytest.approx({"reading": 0.4, "decoding": 0.2, "map": 0.4 / 1.5, "program": 0.2 / 1.5})


def test_fewer_threads_than_cores_are_tried_to_be_more() -> None:
    (more,) = advice._more_threads(case(num_threads=1), "decoding")
    assert more.arguments == {"num_threads": 2} and more.times.num_batches >= trials.LEAST_BATCHES
    assert list(advice._more_threads(case(), "decoding")) == []


def test_threads_that_wait_for_storage_are_not_those_that_wait_for_a_core() -> None:
    """On a busy machine those that decode wait, too: more of them would not help."""
    waiting = replace(case(), alone=replace(times(1000.0), work_s=defaultdict(float, reading=0.2, filling=0.09)))
    (more,) = advice._more_threads(waiting, "reading")
    assert more.arguments == {"num_threads": 6}
    assert list(advice._more_threads(waiting, "map")) == []


@pytest.mark.slow
def test_a_cache_is_tried_where_it_fits_and_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (kept,) = advice._cache(case())
    assert kept.arguments == {"cache": "host"} and kept.times.num_cached > 0.5 * kept.times.num_images
    assert list(advice._cache(case(cache="host"))) == []
    monkeypatch.setattr(advice, "available_host_bytes", lambda: 1000)
    assert list(advice._cache(case())) == []


def test_an_index_is_tried_for_a_folder_without_one_and_for_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "my photos" / "train"
    (folder / "cat").mkdir(parents=True)
    for number in range(4):
        (folder / "cat" / f"{number}.jpg").write_bytes(encoded(scene(150, 200, number), "JPEG"))
    (tmp_path / "list.csv").write_text("".join(f"{file},0\n" for file in folder.glob("*/*")))

    def tried(path: Path, **options: Any) -> list[str | None]:
        made = loader(str(path), **options)
        return [found.command for found in advice._row_indexes(case(source=made.source, path=made._path))]

    assert tried(folder) == [f"augpipe index '{folder}'"]
    assert tried(tmp_path / "list.csv") == [], "which the command does not take"
    assert tried(tmp_path / "my photos", split="train") == [], "nor folders of splits"
    with tarfile.open(tmp_path / "a1.tar", "w") as tar:
        tar.add(folder / "cat" / "0.jpg", "0.jpg")
    assert loader(f"{tmp_path}/a{{1..1}}.tar", batch_size=1)._path is None, "a pattern, or a URL, has nothing beside it"
    index_folder(folder)
    assert tried(folder) == []


@pytest.mark.slow
def test_large_photographs_are_tried_smaller() -> None:
    large = MemorySource([encoded(scene(150, 200, seed), "JPEG") for seed in range(4)], [0] * 4)
    (smaller,) = advice._smaller_files(case(source=large, path="photos"))
    assert smaller.command == "augpipe prepare photos photos-32 --scales 32"
    assert smaller.arguments == {"source": "photos-32"}
    assert advice._smaller(case(source=large).images[0], 32, 10**6).size in ((32, 43), (43, 32), (32, 42), (42, 32))
    (spaced,) = advice._smaller_files(case(source=large, path="my photos"))
    assert spaced.command == "augpipe prepare 'my photos' 'my photos-32' --scales 32"
    assert spaced.arguments == {"source": "my photos-32"}
    (nameless,) = advice._smaller_files(case(source=large))
    assert nameless.command is None and "SOURCE" in nameless.text
    assert list(advice._smaller_files(case(recipe=Recipe(ops=(ops.RandomResizedCrop(size=224),))))) == []


def test_epochs_of_smaller_files_last_as_long_as_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a sixteenth of the pixels go through an epoch about sixteen times as fast, and short epochs are slow."""
    large, rates = MemorySource([encoded(scene(128, 128, seed), "JPEG") for seed in range(4)], [0] * 4), []

    def run_held(self: trials.Trials, images: Any, rate: float) -> LoadTimes:
        rates.append(rate)
        return times(rate)

    monkeypatch.setattr(trials.Trials, "run_held", run_held)
    asked = case(source=large)
    list(advice._smaller_files(asked))
    assert rates == [pytest.approx(16.0 * asked.alone.images_per_s)]


def test_an_op_that_takes_most_of_the_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "time_parts", blur_takes_most)
    by_filter, without = advice._another_recipe(case(BLURRED))
    assert by_filter.arguments["recipe"].ops[1] == ops.GaussianBlur(sigma_px=(4.0, 4.0), p=1.0)
    assert without.text == "leave blur out, or lower its p"
    assert without.arguments["recipe"].ops[1].p == 0.0
    views = Recipe(views=(View(ops=BLURRED.ops, count=2), View(ops=RECIPE.ops)))
    changed = advice._with(views, "blur", p=0.0)
    assert [view.count for view in changed.views] == [2, 1] and changed.views[0].ops[1].p == 0.0
    assert list(advice._another_recipe(case(evaluation(16, scale=18)))) == []


def test_larger_batches_are_tried_up_to_a_limit() -> None:
    (larger,) = advice._larger_batches(case())
    assert larger.arguments == {"batch_size": 32}
    assert list(advice._larger_batches(case(batch_size=advice.SMALL_BATCH))) == []


def test_a_stage_counts_from_the_end_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def takes(seconds: float) -> Work:
        def work(*_: Any) -> None:
            nonlocal now_s
            now_s += seconds

        return work

    monkeypatch.setattr(batches, "time", SimpleNamespace(perf_counter=lambda: now_s))
    maker: Any = object.__new__(BatchMaker)
    maker._stages = [
        Stage(work=takes(4.0), counts_as="planning"),
        Stage(work=takes(2.0), counts_as="filling"),
        Stage(work=takes(1.0), counts_as="planning"),
    ]
    (request,) = Block(0, np.array([3])).requests(0, 1, 1)
    batch = BatchInProgress.of(request)
    maker._go_on(SimpleNamespace(num_threads=1), batch)
    assert batch.done.is_set() and batch.error is None
    assert batch.work_s == {"planning": 5.0, "filling": 2.0}
