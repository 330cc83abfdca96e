"""What `augpipe bench` measures: the right things, put through whole, and reported as they were found."""

import itertools
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from augpipe import Recipe, SampleError, ops, recipes
from augpipe.bench import machine, measure, measurements, tasks
from augpipe.bench.machine import cpu_name
from augpipe.cli.app import app
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.native.cpu_render import Scratch
from augpipe.pipeline import held_images as held
from augpipe.pipeline.held_images import HeldSource, hold

RECIPE = recipes.deep_image(size=32, scales=(40,))
WHATS = ("decode", "decode_region", "kernel", "loader_memory", "loader_disk")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight small JPEGs."""
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(3)
    for number in range(8):
        pixels = rng.integers(0, 256, (60 + number, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.jpg")
    return root


@pytest.mark.slow
def test_a_report_holds_each_rate_on_one_thread_and_on_all(folder: Path) -> None:
    fractions: list[float] = []
    nums: list[int] = []

    def progress(fraction: float, num: int) -> None:
        fractions.append(fraction)
        nums.append(num)

    report = measure(FolderSource(folder), RECIPE, seconds=0.3, batch_size=4, num_threads=2, progress=progress)
    assert {(rate.what, rate.threads) for rate in report.rates} == {
        *((what, threads) for what in WHATS for threads in (1, 2)),
        ("plan", 1),
    }
    assert report.threads == (1, 2)
    assert report.num_images <= 8 and 60 * 80 <= report.mean_pixels <= 67 * 80 and report.mean_bytes > 100
    for rate in report.rates:
        assert 0 < rate.low <= rate.images_per_s <= rate.high and rate.rounds >= 3
    assert fractions == sorted(fractions) and fractions[0] > 0 and fractions[-1] <= 1
    assert nums == sorted(nums) and nums[0] > 0
    assert report.rate("plan", 2) is None


def test_progress_is_the_time_since_measuring_began(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which a millisecond passes from look to look, in the first three rounds of six contestants."""
    looks, fractions = itertools.count(1000.0, 0.001), list[float]()
    monkeypatch.setattr(measurements, "time", SimpleNamespace(perf_counter=lambda: next(looks)))
    options: dict[str, Any] = {"batch_size": 4, "num_threads": 1, "progress": lambda *told: fractions.append(told[0])}
    measure(FolderSource(folder), RECIPE, seconds=0.03, **options)
    assert fractions[:18] == pytest.approx([number / 30 for number in range(1, 19)])


def test_the_report_as_json(folder: Path) -> None:
    report = measure(FolderSource(folder), RECIPE, seconds=0.1, batch_size=4, num_threads=1)
    found = json.loads(json.dumps(report.to_json()))
    assert [rate["what"] for rate in found["rates"]] == [*WHATS, "plan"]
    assert found["photographs"]["skipped"] == 0 and found["recipe"] == "deep_image" and found["batch_size"] == 4
    plan = report.rate("plan", 1)
    assert plan is not None and found["planning_us_per_image"] == pytest.approx(1e6 / plan, rel=1e-2)
    assert found["machine"]["cores"] >= 1 and found["machine"]["versions"]["numpy"] == np.__version__


@pytest.mark.slow
def test_pixels_in_memory_can_be_measured_too() -> None:
    source = ArraySource([np.zeros((50, 60, 3), np.uint8), np.zeros((70, 60), np.uint8)])
    report = measure(source, RECIPE, seconds=0.1, batch_size=2, num_threads=1)
    assert report.mean_bytes == 0 and report.num_images in (1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0.0}, "seconds=0.0 must be above 0"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"num_threads": 0}, "num_threads=0 must be at least 1"),
    ],
)
def test_impossible_arguments_are_refused(folder: Path, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(FolderSource(folder), RECIPE, **arguments)  # type: ignore[arg-type]


def test_what_is_held_is_spread_evenly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MAX_IMAGES", 4)
    images, skipped = hold(FolderSource(folder), RECIPE)
    assert sorted(image.sample_id for image in images) == [0, 2, 4, 6] and not skipped
    for image in images:
        assert image.size == (60 + image.sample_id, 80)
        assert image.content == (folder / f"{image.sample_id}.jpg").read_bytes()
        assert image.decode(Scratch()).shape == (*image.size, 4)


def test_a_bad_image_is_named_or_skipped(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "1.jpg").read_bytes()
    (tmp_path / "good.jpg").write_bytes(whole)
    (tmp_path / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    source = FolderSource(tmp_path)
    with pytest.raises(SampleError, match="truncated.jpg: truncated JPEG"):
        hold(source, RECIPE)
    images, skipped = hold(source, RECIPE, skips_bad=True)
    assert [image.sample_id for image in images] == [0] and list(skipped) == [1]
    (tmp_path / "good.jpg").write_bytes(b"")
    with pytest.raises(SampleError, match=r"truncated JPEG: .*; and none of the 2 photographs tried can be used$"):
        hold(source, RECIPE, skips_bad=True)


def test_an_image_that_the_recipe_refuses_is_named(folder: Path) -> None:
    from augpipe import Recipe, ops

    with pytest.raises(SampleError, match="smaller than the crop"):
        hold(FolderSource(folder), Recipe(ops=(ops.CenterCrop(size=300),)))


def test_a_held_source_says_its_images_over_and_over(folder: Path) -> None:
    source = FolderSource(folder)
    images, _ = hold(source, RECIPE)
    for disk in (None, source):
        repeated = HeldSource(images, 20, disk)
        assert len(repeated) == 20
        for sample_id in (0, 7, 8, 19):
            assert repeated.read(sample_id) == images[sample_id % 8].content
    assert HeldSource(images, 20, source).name(9) == source.name(images[1].sample_id)


@pytest.mark.parametrize("threads", [1, 3])
def test_spread_calls_each_once(threads: int) -> None:
    called: list[int] = []
    names: set[str] = set()

    def one(i: int) -> None:
        called.append(i)
        names.add(threading.current_thread().name)

    assert tasks.spread(one, 100, threads) > 0
    assert sorted(called) == list(range(100))
    assert all(name.startswith("augpipe-measure") for name in names) == (threads > 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_spread_raises_what_a_call_raised(threads: int) -> None:
    def one(i: int) -> None:
        if i == 5:
            raise ValueError("number five")

    with pytest.raises(ValueError, match="number five"):
        tasks.spread(one, 100, threads)


def test_the_kernels_task_runs_every_view_of_the_images_in_turn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe import Recipe, View, ops

    recipe = Recipe(views=(View(ops=(ops.CenterCrop(size=8, scale=16),), count=2), View(ops=(ops.CenterCrop(size=6),))))
    photographs, _ = hold(FolderSource(folder), recipe)
    sizes: list[tuple[int, int]] = []
    shapes: list[tuple[int, ...]] = []

    def noted(images: list[Any], row: object, out: object, size: tuple[int, int], *rest: object) -> None:
        (image,) = images
        assert isinstance(out, np.ndarray) and out.dtype == np.float32 and (image.first_x, image.first_y) == (0, 0)
        assert len(out) == 3 * size[0] * size[1]
        sizes.append(size)
        shapes.append(image.array.shape)

    monkeypatch.setattr(tasks, "render", noted)
    tasks.kernel_task(photographs, recipe, 0, 0, 4)(10, 1)
    assert sizes == [(8, 8), (8, 8), (6, 6)] * 10
    heights = [photograph.size[0] for photograph in photographs]
    assert [shape[0] for shape in shapes[::3]] == (heights * 2)[:10]


def test_the_machine_is_named() -> None:
    found = machine()
    assert cpu_name() and found["cpu"] == cpu_name()
    versions = found["versions"]
    assert isinstance(versions, dict) and all(versions.values())


@pytest.mark.slow
def test_bench_prints_a_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    ended = CliRunner().invoke(
        app, ["bench", str(folder), "--size", "32", "--scale", "40", "--seconds", "0.3", "--threads", "2"]
    )
    assert ended.exit_code == 0, ended.output
    for words in (
        "decode only, whole",
        "what is looked at",
        "of the loader's time",
        "kernel only",
        "loader, from memory",
        "loader, from disk",
        "2 threads",
        "planning",
    ):
        assert words in ended.stdout
    assert "\x1b" not in ended.stdout


@pytest.mark.slow
def test_bench_prints_json(folder: Path) -> None:
    ended = CliRunner().invoke(
        app, ["bench", str(folder), "-r", "none", "--batch-size", "1", "--seconds", "0.2", "--json"]
    )
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["recipe"] == "none"


@pytest.mark.parametrize(
    ("recipe", "what"),
    [
        (Recipe(mosaic=ops.Mosaic(size=32), ops=(ops.CenterCrop(size=32),)), "a mosaic"),
        (Recipe(ops=(ops.RandomCrop(size=16, keep_objects=ops.KeepObjects()),)), "keep_objects"),
        (Recipe(ops=(ops.RandomCrop(size=16),), mixing=(ops.CopyPaste(),)), "copy_paste"),
    ],
    ids=["mosaic", "keeping", "pasting"],
)
def test_recipes_that_look_at_objects_are_refused(folder: Path, recipe: Recipe, what: str) -> None:
    with pytest.raises(ValueError, match=f"has {what}, which looks at objects, and what is measured are images alone"):
        measure(FolderSource(folder), recipe)
