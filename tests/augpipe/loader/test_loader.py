"""What a loader hands out and takes: batches, dtypes, layouts, frameworks, labels, sources, arguments."""

import copy
import logging
import mmap
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Batch, Loader, Recipe, ops
from augpipe.datasets.formats.arrays import ArraySource
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import CENTRE, PAPER, MemorySource, arrays, ids_of, run_python, samples

IMAGES = arrays(10)


def make(recipe: Recipe = PAPER, pictures: Any = IMAGES, **options: Any) -> Loader:
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


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_labels_are_int64_and_minus_one_where_there_are_none(framework: Any) -> None:
    for source, expected in (
        (ArraySource(IMAGES, labels=list(range(10))), [0, 1, 2]),
        (ArraySource(IMAGES), [-1] * 3),
    ):
        loader = Loader(source, PAPER, batch_size=3, shuffle=False, framework=framework)
        labels = first(loader).labels
        assert labels.dtype == (torch.int64 if framework == "torch" else np.int64)
        assert labels.tolist() == expected


# dtype x layout x framework


FORMAT_ERRORS = [
    ({"dtype": "uint8"}, 'dtype="uint8" cannot hold normalised values.*Take Normalize out.*or choose dtype="float32"'),
    ({"dtype": "bfloat16"}, 'dtype="bfloat16" needs framework="torch".*Or choose "float16"'),
    ({"layout": "channels_last"}, 'layout="channels_last" is a torch memory format.*choose "NHWC"'),
    (
        {"dtype": "float64"},
        "dtype='float64' is not known. Choose one of 'float32', 'float16', 'bfloat16', 'uint8', or of fp32",
    ),
]


@pytest.mark.parametrize(("options", "message"), FORMAT_ERRORS)
def test_formats_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)
    with pytest.raises(ValueError, match=message):
        Augment(PAPER, **({"framework": "numpy"} | options))


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Refuse())
import numpy as np
import augpipe
from augpipe.datasets.formats.arrays import ArraySource
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


@pytest.mark.slow
def test_numpy_batches_need_no_torch_and_torch_batches_say_how_to_get_it() -> None:
    ended = run_python(WITHOUT_TORCH)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:2] == ["[(2, 3, 16, 16), (2, 3, 16, 16), (1, 3, 16, 16)]", "(3, 16, 16)"]
    assert len(lines) == 5
    for line in lines[2:]:
        assert 'pip install "augpipe[torch]"' in line and 'framework="numpy"' in line


BROKEN_TORCH = """
import os, sys
sys.path.insert(0, os.environ["BROKEN"])
import numpy as np
import augpipe
from augpipe.datasets.formats.arrays import ArraySource
augpipe.Loader(ArraySource([np.zeros((40, 50, 3), np.uint8)]), "evaluation", batch_size=1)
"""


@pytest.mark.slow
def test_a_torch_that_is_broken_says_itself_what_it_lacks(tmp_path: Path) -> None:
    """To install it again is no remedy for a library that it does not find."""
    (tmp_path / "torch").mkdir()
    fault = 'raise ImportError("libc10.so: cannot open shared object file", name="torch._C")'
    (tmp_path / "torch" / "__init__.py").write_text(fault)
    ended = run_python(BROKEN_TORCH, BROKEN=str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ImportError: libc10.so: cannot open shared object file"


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


def test_arrays_of_every_kind_are_images(tmp_path: Path) -> None:
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


# Arguments

ARGUMENT_ERRORS = [
    ({"prefetch": 0}, "prefetch=0 must be at least 1"),
    ({"world_size": 0}, "world_size=0 must be at least 1"),
    ({"rank": -1}, "rank=-1 must lie in"),
    ({"num_threads": 0}, "num_threads=0 must be at least 1. Leave it out for one thread a core"),
    ({"seed": 2**64}, "seed=18446744073709551616 must lie in"),
    ({"seed": None}, "seed"),
    ({"backend": "cuda"}, "backend='cuda' is not known. Choose one of 'auto', 'native', 'dali'"),
    ({"max_pixels": 0}, "max_pixels"),
    ({"max_pixels": None}, "max_pixels"),
    ({"cache": "host", "cache_bytes": -1}, "cache_bytes=-1 must be at least 0"),
]


@pytest.mark.parametrize(("options", "message"), ARGUMENT_ERRORS)
def test_arguments_out_of_range_are_named_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(ValueError, match="the source is empty"):
        make(pictures=[])


def test_numpy_integers_are_integers() -> None:
    numbers = {"batch_size": np.int64(4), "seed": np.uint64(3), "num_threads": np.int32(2), "prefetch": np.int8(2)}
    assert samples(make(**numbers)) == samples(make())


def test_the_backend_chosen_is_told_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    caplog.set_level(logging.WARNING, "augpipe")
    list(make(num_threads=1))  # nobody hears it yet
    caplog.set_level(logging.INFO, "augpipe")
    loader = make(num_threads=2)
    list(loader)
    list(loader)
    list(make(num_threads=1))  # as of evaluation, beside the one of training
    (record,) = caplog.records
    assert record.getMessage() == "backend auto: native, as the device is the CPU; threads: 2"
    caplog.clear()
    list(make(backend="native"))
    assert caplog.records == []


# Several loaders, and loaders elsewhere


class WatchedSource(MemorySource):
    """Notes what is asked of it, and how many of the arrays that it handed out are alive when a batch is labelled."""

    def __init__(self, num: int) -> None:
        super().__init__(arrays(num))
        self.calls: list[tuple[str, int]] = []
        self.handed_out: list[weakref.ref[Any]] = []
        self.num_alive: list[int] = []

    def read(self, sample_id: int) -> Any:
        self.calls.append(("read", sample_id))
        content = super().read(sample_id).copy()
        self.handed_out.append(weakref.ref(content))
        return content

    def label(self, sample_id: int) -> int:
        self.calls.append(("label", sample_id))
        self.num_alive.append(sum(content() is not None for content in self.handed_out))
        return super().label(sample_id)


def test_a_batch_is_finished_before_the_next_is_begun() -> None:
    source = WatchedSource(12)
    ids_of(Loader(source, CENTRE, batch_size=4, shuffle=False, num_threads=1, prefetch=3, framework="numpy"))
    batches = [range(first, first + 4) for first in (0, 4, 8)]
    assert source.calls == [(what, i) for batch in batches for what in ("read", "label") for i in batch]


def test_what_was_rendered_is_let_go_of_at_once() -> None:
    source = WatchedSource(12)
    ids_of(Loader(source, CENTRE, batch_size=12, num_threads=1, framework="numpy"))
    assert source.num_alive == [0] * 12


def test_the_global_random_states_are_left_alone() -> None:
    import random

    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    list(make(framework="torch"))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert before == after


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", 2), ("drop_last", True), ("shuffle", False), ("rank", 1), ("world_size", 2), ("num_threads", 1)],
)
def test_what_a_loader_was_made_with_cannot_be_set(name: str, value: Any) -> None:
    """Its epochs are cut by then, so that setting one had no effect, and the state told of an order that was not."""
    loader = make()
    with pytest.raises(AttributeError, match=f"{name} of a Loader is set when it is made.*Make another one"):
        setattr(loader, name, value)
    assert (len(loader), len(first(loader))) == (3, 4)


def test_a_loader_that_was_used_can_be_copied_and_sent() -> None:
    loader = make()
    list(loader)
    images = first(loader).images  # of a pass that is left early
    for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)):
        assert (other.epoch, len(other), other.state_dict()) == (1, 3, loader.state_dict())
        other.set_epoch(1)
        assert np.array_equal(first(other).images, images)
        other.set_epoch(7)
    assert loader.epoch == 1


def test_dropping_the_only_batch_is_refused_at_once() -> None:
    with pytest.raises(
        ValueError, match="drop_last=True leaves no batch: the source holds 10 photographs and a global"
    ):
        Loader(ArraySource(IMAGES), PAPER, batch_size=6, rank=0, world_size=2, drop_last=True)
    assert len(Loader(ArraySource(IMAGES), PAPER, batch_size=5, rank=0, world_size=2, drop_last=True)) == 1


@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"batch_size": 2, "shuffle": True}, {"num_workers": 1}])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_data_loader_around_it_is_told_what_to_write(options: dict[str, Any]) -> None:
    around = torch.utils.data.DataLoader(make(), **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="write `for images, labels in loader`, with no DataLoader around it"):
        next(iter(around))


def test_arrays_whose_outputs_draw_sizes_of_their_own_go_one_by_one() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 60, 3)).astype(np.uint8)
    options: dict[str, Any] = {"recipe": Recipe(ops=[ops.RandomResize()]), "dtype": "uint8", "framework": "numpy"}
    told = r"several sizes: images.\d. is \d+x\d+ and images.\d. \d+x\d+. Add a crop to the recipe"
    with pytest.raises(ValueError, match=told):
        next(iter(Loader(images, batch_size=3, **options)))
    assert len({batch.images.shape for batch in Loader(images, batch_size=1, **options)}) == 3
