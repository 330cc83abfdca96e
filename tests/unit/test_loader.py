"""What a loader hands out and takes: batches, dtypes, layouts, frameworks, labels, sources, arguments."""

import io
import logging
import mmap
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from augpipe import Augment, Batch, Loader, Recipe, SampleError, recipes
from augpipe.datasets.arrays import ArraySource
from augpipe.ops import CenterCrop, ColorCast, Flip, MultiResolutionCrop
from tests.unit.loader_sources import (
    CENTRE,
    PAPER,
    SEVERAL_VIEWS,
    MemorySource,
    arrays,
    as_array,
    ids_of,
    jpegs,
    run_python,
    samples,
)
from tests.unit.picture_files import encoded, scene

LEVELS = Recipe(ops=(MultiResolutionCrop(size=16, scales=(20, 40)), Flip(), ColorCast()))
"""Ends in levels 0..255, so uint8 holds it."""
PICTURES = arrays(10)


def make(recipe: Recipe = PAPER, pictures: Any = PICTURES, **options: Any) -> Loader:
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 2, "seed": 3} | options
    return Loader(MemorySource(pictures), recipe, **settings)


def first(loader: Loader) -> Batch:
    return next(iter(loader))


# What a batch is


def test_a_batch_unpacks_into_images_and_labels_and_holds_more() -> None:
    batch = first(make())
    images, labels = batch
    assert images is batch.images and labels is batch.labels
    assert len(batch) == 4
    assert batch.sample_ids.dtype == np.int64 and batch.sample_ids.shape == (4,)
    assert labels.tolist() == [10 * sample_id for sample_id in batch.sample_ids]
    assert batch.plan.sample_ids.tolist() == batch.sample_ids.tolist()
    assert batch.plan.recipe == PAPER and batch.plan.seed == 3
    assert len(batch.plan) == 4


def test_several_views_come_as_a_tuple_of_images() -> None:
    images, labels = first(make(SEVERAL_VIEWS))
    assert [view.shape for view in images] == [(4, 3, 20, 20), (4, 3, 20, 20), (4, 3, 8, 8)]
    assert not np.array_equal(images[0], images[1])
    assert labels.shape == (4,)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_labels_are_int64_and_minus_one_where_there_are_none(framework: Any) -> None:
    for source, expected in (
        (ArraySource(PICTURES, labels=list(range(10))), [0, 1, 2]),
        (ArraySource(PICTURES), [-1] * 3),
    ):
        loader = Loader(source, PAPER, batch_size=3, shuffle=False, framework=framework)
        labels = first(loader).labels
        assert labels.dtype == (torch.int64 if framework == "torch" else np.int64)
        assert labels.tolist() == expected


def test_the_framework_is_torch_unless_told_otherwise() -> None:
    batch = first(Loader(MemorySource(PICTURES), PAPER, batch_size=2))
    assert isinstance(batch.images, torch.Tensor) and isinstance(batch.labels, torch.Tensor)
    assert batch.images.dtype == torch.float32 and batch.images.device.type == "cpu"
    assert batch.images.is_contiguous() and not batch.images.requires_grad


# dtype x layout x framework


def reference(recipe: Recipe) -> np.ndarray[Any, Any]:
    images: np.ndarray[Any, Any] = first(make(recipe)).images
    assert images.dtype == np.float32 and images.shape == (4, 3, 16, 16)
    return images


def rounded(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """float32 numbers rounded to `dtype` by numpy or torch, as bits."""
    if dtype == "uint8":
        return np.floor(np.clip(values, 0, 255) + 0.5).astype(np.uint8)
    if dtype == "bfloat16":
        return as_array(torch.from_numpy(values.copy()).to(torch.bfloat16))
    return values.astype(dtype)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_every_format_holds_the_same_numbers(dtype: Any, layout: Any, framework: Any) -> None:
    recipe = LEVELS if dtype == "uint8" else PAPER
    options = {"dtype": dtype, "layout": layout, "framework": framework}
    if framework == "numpy" and (dtype == "bfloat16" or layout == "channels_last"):
        with pytest.raises(ValueError, match=f"{dtype if dtype == 'bfloat16' else layout}.*torch"):
            make(recipe, **options)
        return
    images = first(make(recipe, **options)).images
    assert isinstance(images, np.ndarray if framework == "numpy" else torch.Tensor)
    assert str(images.dtype).removeprefix("torch.") == dtype
    bits = as_array(images)
    assert bits.shape == ((4, 16, 16, 3) if layout == "NHWC" else (4, 3, 16, 16))
    planar = bits.transpose(0, 3, 1, 2) if layout == "NHWC" else bits
    np.testing.assert_array_equal(planar, rounded(reference(recipe), dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_channels_last_is_torchs_memory_format(dtype: Any) -> None:
    images = first(make(layout="channels_last", framework="torch", dtype=dtype)).images
    assert images.shape == (4, 3, 16, 16)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert not images.is_contiguous()
    planar = first(make(framework="torch", dtype=dtype)).images
    assert planar.is_contiguous() and torch.equal(images, planar)


def test_uint8_is_the_levels_of_a_recipe_that_changes_nothing() -> None:
    batch = first(make(recipes.none(), dtype="uint8", layout="NHWC"))
    np.testing.assert_array_equal(batch.images, np.stack([PICTURES[i] for i in batch.sample_ids]))


FORMAT_ERRORS = [
    ({"dtype": "uint8"}, 'dtype="uint8" cannot hold normalised values.*Take Normalize out.*or choose dtype="float32"'),
    ({"dtype": "bfloat16"}, 'dtype="bfloat16" needs framework="torch".*Or choose "float16"'),
    ({"layout": "channels_last"}, 'layout="channels_last" is a torch memory format.*choose "NHWC"'),
    ({"dtype": "float64"}, "dtype='float64' is not known. Choose one of 'float32', 'float16', 'bfloat16', 'uint8'."),
    ({"dtype": torch.float32}, "dtype=torch.float32 is not known"),
    ({"layout": "CHW"}, "layout='CHW' is not known. Choose one of 'NCHW', 'NHWC', 'channels_last'."),
    ({"framework": "jax"}, "framework='jax' is not known. Choose one of 'torch', 'numpy'."),
]


@pytest.mark.parametrize(("options", "message"), FORMAT_ERRORS)
def test_formats_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)
    if "framework" not in options and options not in ({"dtype": "bfloat16"}, {"layout": "channels_last"}):
        with pytest.raises(ValueError, match=message):
            Augment(PAPER, **options)


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Refuse())
import numpy as np
import augpipe
from augpipe.datasets.arrays import ArraySource
source = ArraySource([np.full((40, 50, 3), i, np.uint8) for i in range(5)])
loader = augpipe.Loader(source, augpipe.recipes.deep_image(16, (20, 40)), batch_size=2, framework="numpy")
print([batch.images.shape for batch in loader])
print(augpipe.Augment(augpipe.recipes.evaluation(16, 20))(np.zeros((40, 50, 3), np.uint8)).shape)
for make in (lambda: augpipe.Loader(source, loader.recipe, batch_size=2),
             lambda: augpipe.Augment(loader.recipe, framework="torch"),
             lambda: augpipe.Augment(loader.recipe, dtype="bfloat16")):
    try:
        make()
    except ImportError as error:
        print(error)
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
"""


def test_numpy_batches_need_no_torch_and_torch_batches_say_how_to_get_it() -> None:
    ended = run_python(WITHOUT_TORCH)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:2] == ["[(2, 3, 16, 16), (2, 3, 16, 16), (1, 3, 16, 16)]", "(3, 16, 16)"]
    assert len(lines) == 5
    for line in lines[2:]:
        assert 'pip install "augpipe[torch]"' in line and 'framework="numpy"' in line


# Sources


def test_a_path_is_opened(tmp_path: Path) -> None:
    for name, label in (("cat", 0), ("dog", 1)):
        (tmp_path / name).mkdir()
        for i in range(2):
            (tmp_path / name / f"{i}.png").write_bytes(encoded(scene(40, 50, 2 * label + i), "PNG"))
    for path in (tmp_path, str(tmp_path)):
        loader = Loader(path, CENTRE, batch_size=4, framework="numpy", shuffle=False)
        assert list(loader.source.classes) == ["cat", "dog"]
        assert first(loader).labels.tolist() == [0, 0, 1, 1]
    in_memory = make(CENTRE, [scene(40, 50, i) for i in range(4)], shuffle=False)
    np.testing.assert_array_equal(first(loader).images, first(in_memory).images)


def test_arrays_of_every_kind_are_photographs(tmp_path: Path) -> None:
    rgb = scene(40, 52)
    gray = rgb[..., 1]
    mapped = np.memmap(tmp_path / "pixels", np.uint8, "w+", shape=rgb.shape)
    mapped[:] = rgb
    frozen = rgb.copy()
    frozen.flags.writeable = False
    same = [rgb, np.dstack([rgb, gray]), np.asfortranarray(rgb), rgb[::-1][::-1], mapped, frozen]
    same += [np.repeat(rgb, 2, axis=1)[:, ::2], encoded(rgb, "PNG"), bytearray(encoded(rgb, "PNG"))]
    images = first(make(CENTRE, same, batch_size=len(same), shuffle=False)).images
    for image in images[1:]:
        np.testing.assert_array_equal(image, images[0])
    grays = [gray, gray[..., None], np.dstack([gray] * 3), encoded(gray, "PNG")]
    images = first(make(CENTRE, grays, batch_size=4, shuffle=False)).images
    for image in images[1:]:
        np.testing.assert_array_equal(image, images[0])


def test_a_source_may_hand_out_a_view_of_a_mapped_file(tmp_path: Path) -> None:
    data = encoded(scene(40, 52), "JPEG")
    (tmp_path / "photo.jpg").write_bytes(data)
    with (
        (tmp_path / "photo.jpg").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,  # cannot be released while the loader holds on to it
    ):
        images = first(make(CENTRE, [view, data], batch_size=2, shuffle=False)).images
    np.testing.assert_array_equal(images[0], images[1])


def test_the_loader_does_not_write_to_the_sources_pixels() -> None:
    pictures = arrays(6)
    copies = [picture.copy() for picture in pictures]
    list(make(pictures=pictures))
    for picture, copy in zip(pictures, copies, strict=True):
        np.testing.assert_array_equal(picture, copy)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_one_photograph_of_its_own_size(layout: Any) -> None:
    pictures = [scene(20 + 3 * i, 30 + i, i) for i in range(4)]
    loader = make(recipes.none(), pictures, batch_size=1, layout=layout, dtype="uint8")
    for batch in loader:
        image = batch.images[0].transpose(1, 2, 0) if layout == "NCHW" else batch.images[0]
        np.testing.assert_array_equal(image, pictures[batch.sample_ids[0]])


def test_photographs_of_one_size_need_no_crop() -> None:
    batch = first(make(recipes.none()))
    assert batch.images.shape == (4, 3, 40, 52)


def test_photographs_of_several_sizes_need_a_crop_or_batches_of_one() -> None:
    loader = make(recipes.none(), [scene(40, 52), scene(40, 52), scene(39, 50)], shuffle=False)
    with pytest.raises(ValueError, match="one batch cannot hold images of several sizes") as caught:
        list(loader)
    assert "photo 0.jpg is 40x52 and photo 2.jpg 39x50" in str(caught.value)
    assert "Add a crop to the recipe, or use batch_size=1." in str(caught.value)


def test_exif_orientation_is_applied() -> None:
    upright = Image.fromarray(scene(40, 60))
    notes = Image.Exif()
    notes[0x0112] = 6  # shown turned clockwise
    file = io.BytesIO()
    upright.rotate(90, expand=True).save(file, "PNG", exif=notes)
    images = first(make(CENTRE, [file.getvalue(), np.asarray(upright)], batch_size=2, shuffle=False)).images
    np.testing.assert_array_equal(images[0], images[1])


def test_a_photograph_smaller_than_the_crop_is_enlarged_by_a_scale_and_refused_without() -> None:
    small = [scene(5, 9)]
    assert first(make(CENTRE, small, batch_size=1)).images.shape == (1, 3, 16, 16)
    with pytest.raises(SampleError, match="photo 0.jpg: the photograph is 5x9 pixels, smaller than the crop of 16x16"):
        list(make(Recipe(ops=(CenterCrop(size=16),)), small, batch_size=1))


# Arguments

ARGUMENT_ERRORS = [
    ({"batch_size": 0}, "batch_size=0 must be at least 1"),
    ({"batch_size": 2.0}, "batch_size"),
    ({"batch_size": "8"}, "batch_size"),
    ({"prefetch": 0}, "prefetch=0 must be at least 1"),
    ({"prefetch": 1.5}, "prefetch"),
    ({"world_size": 0}, "world_size=0 must be at least 1"),
    ({"rank": 2, "world_size": 2}, r"rank=2 must lie in 0..world_size - 1, which is 0..1"),
    ({"rank": -1}, "rank=-1 must lie in"),
    ({"rank": 0.5, "world_size": 2}, "rank"),
    ({"num_threads": 0}, "num_threads=0 must be at least 1. Leave it out for one thread a core"),
    ({"num_threads": 1.5}, "num_threads"),
    ({"seed": -1}, r"seed=-1 must lie in 0..2\^64 - 1"),
    ({"seed": 2**64}, "seed=18446744073709551616 must lie in"),
    ({"seed": 1.0}, "seed"),
    ({"seed": None}, "seed"),
    ({"backend": "cuda"}, "backend='cuda' is not known. Choose one of 'auto', 'native', 'dali'"),
    ({"device": "gpu"}, 'device=\'gpu\' is not known. Choose "cpu", "cuda"'),
    ({"on_error": "ignore"}, "on_error='ignore' is not known. Choose one of 'raise', 'skip'"),
    ({"max_pixels": 0}, "max_pixels"),
    ({"max_pixels": None}, "max_pixels"),
]


@pytest.mark.parametrize(("options", "message"), ARGUMENT_ERRORS)
def test_arguments_out_of_range_are_named_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_what_is_no_recipe_or_source_is_named() -> None:
    with pytest.raises(ValueError, match=r"recipe is a str. Give a Recipe; Recipe.load\(path\) reads one"):
        make("deep_image")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a source of photographs"):
        Loader(42, PAPER, batch_size=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not exist"):
        Loader("no/such/folder", PAPER, batch_size=1)


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(ValueError, match="the source is empty"):
        make(pictures=[])


def test_numpy_integers_are_integers() -> None:
    numbers = {"batch_size": np.int64(4), "seed": np.uint64(3), "num_threads": np.int32(2), "prefetch": np.int8(2)}
    assert samples(make(**numbers)) == samples(make())


def test_the_largest_seed_works() -> None:
    assert samples(make(seed=2**64 - 1)) != samples(make(seed=2**64 - 2))


def test_the_backend_chosen_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "augpipe")
    loader = make(num_threads=2)
    list(loader)
    list(loader)
    (record,) = caplog.records
    assert record.getMessage() == "backend auto: native, as the device is the CPU; threads: 2"
    caplog.clear()
    list(make(backend="native"))
    assert caplog.records == []


# Several loaders, and loaders elsewhere


def test_two_loaders_at_once_do_not_disturb_each_other() -> None:
    expected = samples(make()), samples(make(SEVERAL_VIEWS, batch_size=3, seed=8))
    pairs = zip(make(), islice(make(SEVERAL_VIEWS, batch_size=3, seed=8), 3), strict=True)
    found: tuple[list[Any], list[Any]] = ([], [])
    for batches in pairs:
        for seen, batch in zip(found, batches, strict=True):
            seen.extend(samples([batch]))
    assert found == (expected[0], expected[1][:9])


def test_one_source_serves_several_loaders() -> None:
    source = MemorySource(jpegs(12))
    loaders = [Loader(source, PAPER, batch_size=4, framework="numpy", seed=seed) for seed in (1, 1, 2)]
    first_seen, second_seen, other = ([*map(samples, [[batch]])] for batch in map(first, loaders))
    assert first_seen == second_seen != other


def test_the_order_is_the_same_for_every_recipe_of_a_seed() -> None:
    assert ids_of(make(PAPER)) == ids_of(make(SEVERAL_VIEWS))


def test_the_global_random_states_are_left_alone() -> None:
    import random

    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    list(make(framework="torch"))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert before == after


def test_dropping_the_only_batch_is_refused_at_once() -> None:
    with pytest.raises(
        ValueError, match="drop_last=True leaves no batch: the source holds 10 photographs and a global"
    ):
        Loader(ArraySource(PICTURES), PAPER, batch_size=6, world_size=2, drop_last=True)
    assert len(Loader(ArraySource(PICTURES), PAPER, batch_size=5, world_size=2, drop_last=True)) == 1
