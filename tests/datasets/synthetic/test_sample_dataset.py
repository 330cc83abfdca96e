"""The sample dataset: the same bytes whoever draws them, balanced classes, images that vary."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.synthetic import generate as generate_module
from augpipe.datasets.synthetic import processes, scene, textures
from augpipe.datasets.synthetic.backdrops import BACKDROPS, Backdrop, _fill_below
from augpipe.datasets.synthetic.generate import class_names, generate
from augpipe.datasets.synthetic.mood import draw_mood
from augpipe.datasets.synthetic.scene import draw_scene
from augpipe.datasets.synthetic.shapes import DISTRACTORS, KINDS, Shape
from augpipe.datasets.synthetic.sprites import place

SEEDS = st.integers(0, 2**32)


def digests(root: Path) -> dict[str, str]:
    """Every file below `root`, hidden ones too, with a digest of its bytes."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 images of 5 classes, drawn in this process."""
    root = tmp_path_factory.mktemp("sample") / "out"
    generate(root, num=22, classes=5, seed=3, workers=1)
    return root


# --- the files


@pytest.mark.slow
def test_folder_source_reads_it_as_the_card_says(sample: Path) -> None:
    names = class_names(5)
    assert set(digests(sample)) == {f"{names[i % 5]}/{i:05d}.jpg" for i in range(22)} | {"sample.json"}
    source = FolderSource(sample)
    card = json.loads((sample / "sample.json").read_text())
    assert list(source.classes) == card["class_names"]
    assert sorted(Counter(source.labels().tolist()).values()) == [4, 4, 4, 5, 5]
    assert (card["num"], card["classes"], card["seed"]) == (22, 5, 3)
    assert card["license"].startswith("CC0-1.0: the pictures are synthetic")


def test_files_are_rgb_jpegs_of_many_sizes(sample: Path) -> None:
    sizes = set()
    for path in sample.rglob("*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert min(image.size) >= 170
            assert max(image.size) <= 1000
            sizes.add(image.size)
    assert len(sizes) > 15


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers(sample: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    generate(
        tmp_path / "two", num=22, classes=5, seed=3, workers=2, progress=lambda done, num: calls.append((done, num))
    )
    assert digests(tmp_path / "two") == digests(sample)
    assert calls == [(done, 22) for done in range(23)]


@pytest.mark.slow
def test_fewer_images_are_the_first_ones(sample: Path, tmp_path: Path) -> None:
    generate(tmp_path / "few", num=7, classes=5, seed=3)
    few, many = digests(tmp_path / "few"), digests(sample)
    del few["sample.json"]
    assert len(few) == 7
    assert few.items() <= many.items()


def test_another_seed_gives_other_images(sample: Path, tmp_path: Path) -> None:
    generate(tmp_path / "other", num=5, classes=5, seed=4, workers=1)
    other, here = digests(tmp_path / "other"), digests(sample)
    assert all(digest != here[name] for name, digest in other.items())


# --- a folder that is there already


@pytest.mark.slow
def test_a_stopped_run_is_completed_without_redrawing(sample: Path, tmp_path: Path) -> None:
    generate(tmp_path, num=8, classes=2, workers=1)
    whole = digests(tmp_path)
    lost = tmp_path / "bird" / "00002.jpg"
    lost.rename(lost.with_name(".00002.jpg.tmp"))  # as a killed run leaves it
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jpg") if not path.name.startswith(".")}
    calls: list[tuple[int, int]] = []
    generate(tmp_path, num=8, classes=2, workers=1, progress=lambda done, num: calls.append((done, num)))
    assert digests(tmp_path) == whole
    assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())
    assert calls == [(7, 8), (8, 8)]
    calls.clear()
    generate(tmp_path, num=8, classes=2, progress=lambda done, num: calls.append((done, num)))
    assert calls == [(8, 8)]


def test_an_image_has_its_name_only_when_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Image.Image, path: Path, *_: object, **__: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", half)
    with pytest.raises(OSError, match="disk full"):
        generate(tmp_path, num=2, classes=2, workers=1)
    assert not list(tmp_path.glob("*/[!.]*.jpg"))


def test_other_contents_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"is not empty \('thesis.tex'\) and holds no sample.json .*Name a new"):
        generate(tmp_path, num=2, classes=2)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "sample.json").write_text('{"made_by": "someone"}')
    with pytest.raises(ValueError, match=r"is not empty"):
        generate(tmp_path, num=2, classes=2)
    with pytest.raises(ValueError, match=r"thesis.tex is a file, and the sample dataset needs a folder"):
        generate(tmp_path / "thesis.tex", num=2, classes=2)


def test_other_settings_are_refused(sample: Path) -> None:
    before = digests(sample)
    with pytest.raises(
        ValueError, match=r"made with other settings: num 22 there, 23 asked for, seed 3 there, 9 asked"
    ):
        generate(sample, num=23, classes=5, seed=9)
    assert digests(sample) == before


def test_another_version_of_the_drawing_is_refused(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_module, "_VERSION", 99)
    with pytest.raises(ValueError, match=r"other settings: version \d+ there, 99 asked for\. Name another folder"):
        generate(sample, num=22, classes=5, seed=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, r"classes=1 is not in 2\.\.10, the object kinds"),
        ({"classes": 11}, r"classes=11 is not in 2\.\.10"),
        ({"num": 9}, r"num=9 pictures cannot fill 10 classes\. Ask for at least 10"),
        ({"seed": -1}, r"seed=-1 is negative"),
        ({"workers": 0}, r"workers=0 is not a number of processes"),
    ],
)
def test_settings_out_of_range(tmp_path: Path, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


# --- processes


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every worker process that the test has started."""
    workers: list[subprocess.Popen[bytes]] = []
    original = processes._start
    monkeypatch.setattr(processes, "_start", lambda *args: workers.append(original(*args)) or workers[-1])
    return workers


@pytest.mark.slow
@pytest.mark.varies  # it shows a traceback through another library
def test_a_failing_worker_is_reported_and_the_others_stopped(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    (tmp_path / "fish" / ".00001.jpg.tmp").mkdir(parents=True)
    (tmp_path / "sample.json").write_text(json.dumps(generate_module._card(_settings(200))))
    with pytest.raises(RuntimeError, match=r"(?s)a process that draws the sample dataset failed:.*IsADirectoryError"):
        generate(tmp_path, num=200, classes=2, workers=2)
    assert [worker.poll() is not None for worker in started] == [True, True]
    assert len(list(tmp_path.rglob("*.jpg"))) < 200


def _settings(num: int) -> generate_module.Settings:
    return generate_module.Settings(num=num, classes=2, seed=0)


@pytest.mark.slow
def test_workers_are_stopped_when_the_caller_is_interrupted(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    def progress(done: int, num: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        generate(tmp_path, num=200, classes=2, workers=2, progress=progress)
    assert caught.tb is not None  # while it is held, nothing is stopped by garbage collection
    assert [worker.poll() is not None for worker in started] == [True, True]


@pytest.mark.slow
def test_workers_start_from_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from augpipe.datasets.synthetic.generate import generate\n"
        f"generate({str(tmp_path / 'out')!r}, num=4, classes=2, workers=2)\n"
    )
    paths = [path for path in sys.path if path]
    code = f"import sys, runpy; sys.path[:0] = {paths!r}; runpy.run_path({str(script)!r}, run_name='__main__')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert len(FolderSource(tmp_path / "out")) == 4


# --- the images


def test_sizes_of_the_first_images() -> None:
    """Golden values: they may change only together with `_VERSION`."""
    assert [draw_scene(0, index, "key").size for index in range(4)] == GOLDEN_SIZES


GOLDEN_SIZES = [(333, 440), (717, 556), (481, 321), (450, 305)]


@pytest.mark.slow
@given(seed=SEEDS, index=st.integers(0, 10**6), kinds=st.sampled_from([("bird", "key"), ("ring", "cross")]))
@settings(max_examples=4, deadline=None)
def test_a_scene_is_a_function_of_seed_and_index_and_the_class_changes_objects_only(
    seed: int, index: int, kinds: tuple[str, str]
) -> None:
    np.random.seed(index % 2**32)  # noqa: NPY002 - another state must give the same image
    first, other = (np.asarray(draw_scene(seed, index, kind)).astype(int) for kind in kinds)
    np.random.seed((index + 1) % 2**32)  # noqa: NPY002
    assert np.array_equal(first, np.asarray(draw_scene(seed, index, kinds[0])))
    assert first.shape == other.shape
    changed = np.abs(first - other).max(axis=2) > 0
    assert 0 < changed.mean() < 0.5


@pytest.mark.slow
def test_light_and_backdrops_vary() -> None:
    images = [np.asarray(draw_scene(1, index, "star").resize((16, 16)), dtype=float) for index in range(24)]
    means = np.array([image.mean(axis=(0, 1)) for image in images])
    assert np.ptp(means.mean(axis=1)) > 60  # brightness
    assert np.ptp(means[:, 0] - means[:, 2]) > 60  # colour temperature
    assert sum(BACKDROPS.values()) == pytest.approx(1.0)


@given(seed=SEEDS, name=st.sampled_from(sorted(KINDS)))
@settings(deadline=None)
def test_shapes_are_drawable(seed: int, name: str) -> None:
    for part in KINDS[name](np.random.default_rng(seed)):
        assert part.points.ndim == 2
        assert part.points.shape[1] == 2
        assert np.abs(part.points).max() < 1.5  # finite, too
        assert part.role in ("body", "accent", "detail", "hole")


def drawn(kind: str, seed: int, *, extent_px: float = 60.0) -> np.ndarray:
    """Where an object of a kind covers a gray ground of 100 x 100 px, without colours and shadow."""
    pixels = np.full((100, 100, 3), 127.0, dtype=np.float32)
    rng = np.random.default_rng(seed)
    place(rng, pixels, KINDS[kind](rng), (50, 50), extent_px, angle_deg=0.0, sun_x=1.0, grounded=False)
    return np.abs(pixels - 127.0).max(axis=2) > 1.0


@pytest.mark.parametrize("name", sorted(KINDS))
def test_objects_have_the_extent_asked_for_and_vary(name: str) -> None:
    covered = drawn(name, 0)
    rows, columns = np.flatnonzero(covered.any(axis=1)), np.flatnonzero(covered.any(axis=0))
    extents = (rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1)
    assert 56 <= max(extents) <= 63
    outlines = {
        np.round(np.concatenate([p.points for p in KINDS[name](np.random.default_rng(s))]), 6).tobytes()
        for s in range(5)
    }
    assert len(outlines) > 1


def test_kinds_differ_from_each_other() -> None:
    """By their outline or, where that is a disc for several, by what is drawn in it."""

    def parts(name: str) -> tuple[int, bytes]:
        shape = KINDS[name](np.random.default_rng(0))
        return len(shape), drawn(name, 0).tobytes()

    assert len({parts(name) for name in KINDS}) == len(KINDS) == 10
    assert not {shape.__name__ for shape in DISTRACTORS} & set(KINDS)


def test_shadows_fall_away_from_the_light() -> None:
    def darkest_column(sun_x: float) -> float:
        pixels = np.full((100, 100, 3), 127.0, dtype=np.float32)
        rng = np.random.default_rng(0)
        place(rng, pixels, KINDS["ring"](rng), (50, 50), 40, angle_deg=0.0, sun_x=sun_x, grounded=True)
        bare = np.full((100, 100, 3), 127.0, dtype=np.float32)
        rng = np.random.default_rng(0)
        place(rng, bare, KINDS["ring"](rng), (50, 50), 40, angle_deg=0.0, sun_x=sun_x, grounded=False)
        darkening = np.clip(bare - pixels, 0, None).sum(axis=(0, 2))
        return float((darkening * np.arange(100)).sum() / darkening.sum())

    assert darkest_column(1.0) < 50 < darkest_column(-1.0)  # light from the right, shadow to the left


@given(seed=SEEDS, height=st.integers(8, 90), width=st.integers(8, 90), cell_px=st.floats(2.0, 200.0))
@settings(max_examples=30, deadline=None)
def test_noise_has_the_shape_and_the_scale_that_it_promises(seed: int, height: int, width: int, cell_px: float) -> None:
    field = textures.fractal(np.random.default_rng(seed), height, width, cell_px=cell_px)
    assert field.shape == (height, width)
    assert field.dtype == np.float32
    assert abs(float(field.mean())) < 1e-3
    assert float(field.std()) == pytest.approx(1.0, abs=1e-3)


def test_what_lies_below_an_edge_has_its_own_colours() -> None:
    pixels, colours = np.full((9, 4, 3), 40, np.float32), np.full((9, 4, 3), 100, np.float32)
    _fill_below(pixels, np.array([2, 3, 4, 8]), colours)
    for column, edge in enumerate((2, 3, 4, 8)):
        assert pixels[:, column, 0].tolist() == [40] * edge + [70] + [100] * (8 - edge)


def test_no_side_of_an_image_is_longer_than_1000_px() -> None:
    rng = np.random.default_rng(2)
    sides = np.array([scene._size(rng) for _ in range(2000)])
    assert sides.max() == 1000 and 180 <= sides.min() < 200


SEEN = {
    "landscape": (25, "158 175 188 128 154 150 121 156 170 216 223 233"),
    "brick_wall": (0, "160 106 85 158 107 88 156 106 87 163 111 90"),
    "table": (3, "104 74 59 86 65 52 76 56 44 84 63 50"),
    "ground": (0, "84 111 73 81 106 70 84 111 73 82 109 72"),
}
"""Each backdrop's horizon, and the mean levels (RGB) of its four quarters from above, for one seed."""


@pytest.mark.parametrize("make", BACKDROPS, ids=lambda make: make.__name__)
def test_a_backdrop_looks_as_it_did(make: Backdrop) -> None:
    """Where it is to look otherwise, SEEN changes, and so does every sample dataset."""
    rng, pixels = np.random.default_rng(5), np.zeros((60, 80, 3), np.float32)
    horizon, levels = SEEN[make.__name__]
    assert make(rng, pixels, draw_mood(rng)) == horizon
    np.testing.assert_allclose(pixels.reshape(4, -1, 3).mean(axis=1).ravel(), [*map(int, levels.split())], atol=0.6)


DRAWN = {
    "bird": (211, 19.2, -23.5, 65.4, 18.4),
    "fish": (196, 35.1, -22.3, 73.0, 18.4),
    "butterfly": (424, 0.0, -93.8, 86.3, 143.3),
    "leaf": (158, 0.0, -13.6, 22.8, 35.2),
    "star": (28, 0.0, 0.0, 5.6, 5.6),
    "ring": (176, 0.0, 0.0, 95.1, 33.2),
    "spiral": (220, -1.1, -8.8, 46.5, 45.2),
    "dartboard": (328, 0.0, 0.0, 70.7, 70.7),
    "key": (96, -41.1, 1.2, 40.7, 4.7),
    "cross": (60, 0.0, 0.0, 7.8, 7.8),
    "_ball": (80, -12.0, -12.0, 24.4, 24.4),
    "_box": (8, 0.0, -1.8, 8.0, 4.1),
    "_triangle": (6, 0.0, 1.1, 2.3, 2.2),
}
"""Each shape's points for one seed: how many, the sums of x and of y, and of their squares."""


@pytest.mark.parametrize("make", [*KINDS.values(), *DISTRACTORS], ids=lambda make: make.__name__)
def test_a_shape_looks_as_it_did(make: Callable[[np.random.Generator], Shape]) -> None:
    """Where it is to look otherwise, DRAWN changes, and so does every sample dataset."""
    points = np.concatenate([polygon.points for polygon in make(np.random.default_rng(5))])
    found = len(points), *points.sum(axis=0), *(points**2).sum(axis=0)
    np.testing.assert_allclose(found, DRAWN[make.__name__], atol=0.06)
