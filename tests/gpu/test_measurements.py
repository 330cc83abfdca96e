"""What `make gpu-check` measures, without a device: like is compared with like, and what is not measured is named."""

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import policies
from augpipe.trainer.codecs import Codec, codec, names
from augpipe.trainer.loop.step import Step
from tests.parity.by_pillow import BY_PILLOW
from tests.parity.table import CASES, TABLE_CASES


@pytest.fixture(autouse=True)
def _scripts_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section("common"), "is_on_cuda", lambda: False)


def section(name: str) -> Any:
    return importlib.import_module(f"benchmarks.gpu.{name}")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    (tmp_path / "photographs").mkdir()
    for number in range(3):
        noise = np.random.default_rng(number).integers(0, 256, (16, 14, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / "photographs" / f"{number}.jpg")
    return section("common").Run(photographs=tmp_path / "photographs", origin="noise", work=tmp_path, is_simulated=True)


class Kept:
    """Findings, held."""

    def __init__(self) -> None:
        self.measured: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self.checks: dict[str, bool] = {}

    def keep(self, name: str, value: Any) -> None:
        self.measured[name] = value

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out[name] = reason

    def check(self, name: str, passed: bool, detail: Any = None) -> None:
        self.checks[name] = bool(passed)

    @contextmanager
    def attempt(self, name: str, **_: Any) -> Iterator[None]:
        yield


def batches(num: int) -> Iterator[int]:
    for _ in range(num):
        yield 2
        time.sleep(0.001)


def test_a_clock_that_never_started_is_no_rate(run: Any) -> None:
    decode, kept = section("decode"), Kept()
    decode._timed(run, "too slow", lambda: batches(1), kept)
    assert not kept.measured and "0 batches were timed" in kept.left_out["too slow"]


def test_a_rate_that_another_process_took_is_found_and_a_lost_one_is_named(run: Any) -> None:
    decode, kept = section("decode"), Kept()
    ours = f"{decode.OURS}, hw_decoder_load {decode.LOADS[0]}, 4 threads"
    decode._timed(run, ours, lambda: batches(3), kept)
    (ratio,) = kept.left_out
    assert ours in ratio and f"{decode.ALONE}, hw_decoder_load {decode.LOADS[0]}" in kept.left_out[ratio]
    decode._timed(run, f"{decode.ALONE}, hw_decoder_load {decode.LOADS[0]}", lambda: batches(3), kept)
    del sys.modules["benchmarks.gpu.decode"]  # as after a child that died
    decode._timed(run, ours, lambda: batches(3), kept)
    assert kept.measured[ratio] > 0


@pytest.mark.parametrize(("is_new", "what"), [(True, "regions"), (False, "whole images")])
def test_dali_alone_decodes_what_our_loader_has_decoded(
    run: Any, monkeypatch: pytest.MonkeyPatch, is_new: bool, what: str
) -> None:
    decode, asked = section("decode"), {}
    found = decode.Nvjpeg(path="libnvjpeg.so.13", version=(13, 3 if is_new else 0))
    monkeypatch.setattr(decode, "_nvjpeg", lambda run: found)
    monkeypatch.setattr(decode, "_dali", lambda run, **options: asked.update(options) or batches(3))
    kept, name = Kept(), f"{decode.ALONE}, hw_decoder_load {decode.LOADS[0]}"
    decode.answers(run)[name](kept)
    assert asked["regions"] == is_new and kept.measured[name]["decodes"] == what
    assert kept.measured[name]["nvjpeg"] == ("13.3" if is_new else "13.0")


def test_codecs_are_timed_by_calls_that_do_not_read_from_the_device(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    codecs, kept, used = section("codecs"), Kept(), []

    class Spy:
        def __init__(self, made: Codec) -> None:
            self._made = made

        def __getattr__(self, name: str) -> Any:
            used.append(name)
            return getattr(self._made, name)

    timed = []

    def event_seconds(work: Any, *_: Any, **__: Any) -> list[float]:
        del used[:]
        work(0)
        timed.extend(used)
        return [1e-6]

    monkeypatch.setattr(codecs, "event_seconds", event_seconds)
    assert codecs._speed(run, "", Spy(codec("nf4")), kept) == {"covers": {"codec": ["nf4"]}}
    assert set(timed) == {"encode_slices", "decode_slices", "add_slices"}
    (found,) = kept.measured.values()
    assert len(found) == 6 and all(row["host_microseconds"] > 0 for row in found.values())


def test_every_codec_has_its_rows() -> None:
    asked = section("codecs").CASES
    assert {name for name, _ in asked} == set(names())


def test_kornia_is_timed_by_the_clock_that_times_us(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, kept, timed = section("kernel"), Kept(), []
    kornia, augmentation = ModuleType("kornia"), ModuleType("kornia.augmentation")

    class Chain:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def to(self, _: Any) -> "Chain":
            return self

        def __call__(self, images: Any) -> Any:
            return images

    for name in ("AugmentationSequential", "RandomCrop", "RandomRotation", "RandomHorizontalFlip"):
        setattr(augmentation, name, Chain)
    augmentation.RandomRGBShift = augmentation.Normalize = Chain  # type: ignore[attr-defined]
    kornia.augmentation = augmentation  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kornia", kornia)
    monkeypatch.setitem(sys.modules, "kornia.augmentation", augmentation)
    monkeypatch.setattr(kernel, "event_seconds", lambda work, *_, **__: timed.append(work) or [1e-3])
    kernel._kornia(run, kept)
    assert len(timed) == 2 and kept.measured["Kornia"]["times_ours"] == 1.0


def test_every_strategy_is_exchanged_by_every_codec(run: Any) -> None:
    exchange = section("exchange")
    assert set(exchange.STRATEGIES) == {"ddp", "butterfly", "lazy"}
    asked = set(exchange.answers(run))
    assert {f"{way}, {name}" for way in exchange.STRATEGIES for name in names()} < asked
    assert f"{exchange.HOOK}, fp32" in asked


def test_the_strategies_exchange_with_a_twin_and_keep_the_weights(run: Any) -> None:
    exchange, kept = section("exchange"), Kept()
    for way in (*exchange.STRATEGIES, exchange.HOOK):
        exchange._exchanged(run, way, "fp32", kept)
        assert kept.measured[f"{way}, fp32"]["equal_bit_by_bit"] and kept.measured[f"{way}, fp32"]["bytes_sent"] > 0
    exchange._delayed(run, "lazy", "bf16", kept)
    assert len(kept.checks) == 5 and all(kept.checks.values())


def test_a_mistake_in_the_exchange_is_found(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes from the twin is lost."""
    exchange, kept = section("exchange"), Kept()
    exchange._register("cpu")

    def lost(self: Any, out: Any, tensor: Any, *_: Any) -> Any:
        out.copy_(tensor)
        out[: len(out) // 2] = 0
        return self._alone.allreduce([out])

    monkeypatch.setattr(exchange.Twins, "all_to_all_single", lost)
    monkeypatch.setattr(exchange.Twins, "alltoall_base", lost)
    exchange._exchanged(run, "butterfly", "fp32", kept)
    assert not any(kept.checks.values())


def test_a_step_of_the_trainer_is_what_waiting_is_divided_by(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    training, kept, steps = section("training"), Kept(), []
    as_it_is = Step.run
    monkeypatch.setattr(Step, "run", lambda *given: steps.append(1) or as_it_is(*given))
    training._alone(run, kept)
    assert len(steps) == 1 + 4 + 3  # a run of one step, to warm up, a round
    assert 0 <= kept.measured["the step alone"]["gpu_waits_share_of_a_step"] < 1


def test_a_run_of_the_trainer_is_watched_and_repeats(run: Any) -> None:
    trainer, kept = section("trainer"), Kept()
    answers = trainer.answers(run)
    name = next(iter(answers))
    for answer in (name, "evaluation", "deterministic and resumed"):
        answers[answer](kept)
    assert kept.measured[name]["steps"] == 2 and kept.measured[name]["images_per_second"] > 0
    assert kept.measured[f"{name}: a step in the profiler"]["operators"] > 100
    assert kept.measured["evaluation"]["images"] == 10
    assert len(kept.checks) == 4 and all(kept.checks.values())


def test_parity_renders_every_case_of_the_tests(tmp_path: Path) -> None:
    """With every border on a device; in the simulator those that an op needs to be seen."""
    parity, on_device = (
        section("parity"),
        section("common").Run(photographs=tmp_path, origin="", work=tmp_path, is_simulated=False),
    )
    of_cases, on_levels = parity._cases(on_device), parity._on_levels()
    names = {(recipe.name, recipe.border) for recipe in of_cases}
    assert names >= {(name, border) for name in TABLE_CASES for border in parity.BORDERS}
    assert {name for name, _ in names} == {*CASES, *TABLE_CASES}
    assert len(on_levels) >= len(BY_PILLOW)


ROWS = {
    "decode": ["augpipe.dali.augment, whole images", "DALI alone, hw_decoder_load 0.65", "augpipe native"],
    "kernel": ["default mix from 375", "mixing", "op Equalize", *(f"policy {name}" for name in policies.__all__)],
    "training": ["alone", "from the device cache"],
    "trainer": ["resnet-50, bf16, channels_last", "evaluation", "deterministic and resumed"],
    "memory": ["a batch from files, native", "start, the cache full, dali", "from files, native"],
    "ranks": ["two ranks"],
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_claimed_has_its_row(run: Any, name: str) -> None:
    assert set(ROWS[name]) <= set(section(name).answers(run))
