"""Several files of a batch decoded and rendered by one compiled call: every bit is what each file alone gives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Loader, Recipe, SampleError, View
from augpipe.cache.row_indexes import RowIndexes
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS, File, Workspace
from augpipe.ops import CenterCrop, Flip, LensDistortion, Normalize, RandomResizedCrop, Rotate, Vignette
from augpipe.pipeline import host_output
from tests.augpipe.decoding.image_files import jpeg_kinds, other_kinds, scene
from tests.augpipe.loader.jpeg_loaders import by_libjpeg, by_themselves, jpeg_files, make, noise, of_kind
from tests.augpipe.loader.loader_sources import TEXT, MemorySource, Sample, samples, without_tables

pytestmark = pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU leaves JPEGs to libjpeg-turbo")

ORDINARY = jpeg_files(24, [(60, 80), (89, 83), (170, 164), (90, 70), (275, 290)])
"""Some are so large that they are decoded at a DCT scale."""
OTHERS = [*jpeg_kinds().values(), *other_kinds().values(), scene(50, 60, 3), scene(50, 60, 4)[..., :1]]
MIXED: list[Any] = [content for pair in zip(ORDINARY, OTHERS, strict=False) for content in pair]
"""Every second one of a kind that our own decoder may not take."""
TURNED = (RandomResizedCrop(size=(48, 56), scale=(0.2, 0.9)), Rotate(max_deg=30), LensDistortion(), Vignette(), Flip())
ONE_VIEW = Recipe(ops=(*TURNED, Normalize()))
THREE_VIEWS = Recipe(
    views=(View(ops=(*TURNED, Normalize()), count=2), View(ops=(CenterCrop(size=24, scale=30), Normalize())))
)
LEVELS = Recipe(border="constant", views=(View(ops=TURNED), View(ops=(CenterCrop(size=40, scale=44),))))
"""Not normalised, as uint8 wants it."""


class Calls:
    """A spy on the compiled call: how many files each was given, how many it took, and at which DCT factors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[int] = []
        self.taken: list[int] = []
        self.factors: set[int] = set()
        render = Workspace.render

        def spy(workspace: Workspace, files: Sequence[File], *args: Any, **options: Any) -> list[bool]:
            are_taken = render(workspace, files, *args, **options)
            self.given.append(len(files))
            self.taken.append(sum(are_taken))
            self.factors |= {file.factor for file, is_taken in zip(files, are_taken, strict=True) if is_taken}
            return are_taken

        monkeypatch.setattr(Workspace, "render", spy)


def epochs(loader: Loader, num: int = 3) -> list[list[tuple[int, Sample]]]:
    return [samples(loader) for _ in range(num)]


def alone(contents: Sequence[Any], recipe: Recipe, **options: Any) -> list[list[tuple[int, Sample]]]:
    """Three epochs of batches of one, by libjpeg-turbo, each image decoded whole and rendered by itself."""
    with by_libjpeg():
        return epochs(make(contents, recipe, **options | {"batch_size": 1, "num_threads": 1, "row_index_bytes": 0}))


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        (ONE_VIEW, {}),
        (THREE_VIEWS, {"layout": "NHWC"}),
        (THREE_VIEWS, {"row_index_bytes": 0}),
        (LEVELS, {"dtype": "uint8"}),
        (LEVELS, {"dtype": "uint8", "layout": "channels_last", "framework": "torch"}),
        (THREE_VIEWS, {"dtype": "float16", "layout": "NHWC"}),
        (ONE_VIEW, {"dtype": "bfloat16", "framework": "torch"}),
        (ONE_VIEW, {"cache": "host", "cache_bytes": 300_000}),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_mixed_images_are_what_each_is_alone(
    recipe: Recipe, options: dict[str, Any], num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(MIXED, recipe, **{name: value for name, value in options.items() if not name.startswith("cache")})
    calls = Calls(monkeypatch)
    assert epochs(make(MIXED, recipe, batch_size=19, num_threads=num_threads, **options)) == expected
    if options.get("dtype") in ("float16", "bfloat16"):  # rounded afterwards, so they take the other way
        assert not calls.given
    else:
        assert (
            calls.factors >= {1, 2}
            and max(calls.taken) >= 2
            and sum(calls.taken) > (20 if "cache" in options else 3 * len(ORDINARY))
        )


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [ONE_VIEW, THREE_VIEWS], ids=["one view", "three views"])
def test_damaged_files_among_sound_ones(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are replaced, with the same reasons, wherever they stand among those that one call was given."""
    contents: list[Any] = list(ORDINARY)
    cut = [data[: data.index(b"\xff\xda") + 60] for data in ORDINARY]  # behind a few codes
    spoilt = {0: cut[0], 5: cut[5], 6: TEXT, 9: without_tables(), 15: OSError("gone"), 23: b""}
    for position, content in spoilt.items():
        contents[position] = content
    options = {"on_error": "skip", "batch_size": 24, "shuffle": False}
    with by_libjpeg():
        (expected,) = make(contents, recipe, **options)
    calls = Calls(monkeypatch)
    (found,) = make(contents, recipe, **options)
    assert samples([found]) == samples([expected])
    assert any(0 < taken < given for given, taken in zip(calls.given, calls.taken, strict=True))
    for position in spoilt:
        with pytest.raises(SampleError) as ours:
            list(make([*ORDINARY[:3], contents[position], *ORDINARY[3:6]], recipe))
        with pytest.raises(SampleError) as theirs, by_libjpeg():
            list(make([*ORDINARY[:3], contents[position], *ORDINARY[3:6]], recipe))
        assert str(ours.value) == str(theirs.value) and ours.value.name == "photo 3.jpg"


@pytest.mark.slow
def test_images_that_outgrow_a_threads_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call finds too small grows on the other way, and is large enough for the next one."""
    sides = [(60, 80), (700, 900), (90, 70), (900, 1400), (1300, 700), (50, 60), (640, 640), (700, 1000)]
    contents = [of_kind(noise(*side, seed), "4:4:4") for seed, side in enumerate(sides)]
    recipe = Recipe(ops=(RandomResizedCrop(size=600, scale=(0.9, 1.0)),))
    expected = alone(contents, recipe)
    for num_bytes in (0, 10_000, 2**20):
        monkeypatch.setattr(host_output, "AT_A_TIME_BYTES", num_bytes)
        with pytest.MonkeyPatch.context() as patch:
            calls = Calls(patch)
            assert epochs(make(contents, recipe, batch_size=8, num_threads=1)) == expected
        assert min(calls.taken) < max(calls.taken)


@pytest.mark.slow
def test_points_are_found_and_grow_as_those_of_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row indexes are the same bytes, whichever way a file was decoded."""
    used: list[RowIndexes] = []
    keep = RowIndexes.keep

    def noted(indexes: RowIndexes, *args: Any) -> None:
        used.append(indexes)
        keep(indexes, *args)

    def rooms(loader: Loader) -> npt.NDArray[np.uint8]:
        """What is kept after one more epoch."""
        assert sum(map(len, loader)) == len(ORDINARY)
        assert used[-1]._rooms is not None
        return used[-1]._rooms.copy()

    monkeypatch.setattr(RowIndexes, "keep", noted)
    loader = make(ORDINARY, ONE_VIEW, num_threads=1)
    with by_themselves():
        expected = [rooms(loader) for _ in range(4)]
    calls, loader = Calls(monkeypatch), make(ORDINARY, ONE_VIEW, num_threads=1)
    np.testing.assert_array_equal([rooms(loader) for _ in range(4)], expected)
    assert sum(calls.taken) > 3 * len(ORDINARY)
    assert expected[0].any() and not np.array_equal(expected[0], expected[-1])


class Unindexed(MemorySource):
    """A source whose indexes cannot be had of some samples."""

    def row_index(self, sample_id: int) -> bytes:
        if sample_id % 4 == 1:
            raise ValueError("its index is torn")
        return b""


@pytest.mark.slow
def test_an_index_that_cannot_be_had_is_its_samples_fault_alone() -> None:
    def loader(on_error: str) -> Loader:
        options = {"batch_size": 12, "num_threads": 1, "framework": "numpy", "shuffle": False}
        return Loader(Unindexed(ORDINARY[:12]), ONE_VIEW, on_error=on_error, **options)

    with pytest.raises(SampleError, match=r"photo 1\.jpg: its index is torn"):
        list(loader("raise"))
    (batch,) = loader("skip")
    assert batch.sample_ids.tolist() == [0, 2, 2, 3, 4, 6, 6, 7, 8, 10, 10, 11]
    assert len({image.tobytes() for image in batch.images}) == 9
