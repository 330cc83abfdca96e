"""The in-graph op: the pixels of `Augment` for the same ids, epochs and sizes, in any pipeline; and what it refuses."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import Pipeline, fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from augpipe import Augment, Loader, Recipe, recipes
from augpipe.dali import augment
from augpipe.dali.device_op import DeviceAugment
from augpipe.dali.samples import SampleNumbers
from augpipe.ops import CenterCrop, Flip, KeepObjects, MixUp, RandomCrop, Rotate
from augpipe.planning.output_format import OutputFormat
from tests.augpipe.dali.dali_graphs import (
    BATCHES,
    EPOCHS,
    IDS,
    MAX_BATCH_SIZE,
    PHOTOS,
    Array,
    HostRenderer,
    augmented,
    epochs,
    ids,
    photographs,
    pipeline_of,
    results_of,
)
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import CENTRE, CONTINUOUS, PAPER, SEVERAL_VIEWS, jpegs, run_python

WHOLE = Recipe(name="whole", ops=(Flip(), Rotate()))
GIVEN = [PHOTOS[number] for numbers in BATCHES for number in numbers]


def expected(recipe: Recipe, of_epochs: list[int] | None = None, **options: Any) -> list[list[Array]]:
    """`Augment` on each image of BATCHES by itself: for each view its samples."""
    transform = Augment(recipe, **options)
    of_epochs = of_epochs or [0] * len(IDS)
    views = [
        transform(image, sample_ids=sample_id, epoch=epoch)
        for image, sample_id, epoch in zip(GIVEN, IDS, of_epochs, strict=True)
    ]
    return [list(view) for view in zip(*(v if isinstance(v, tuple) else (v,) for v in views), strict=True)]


def assert_same(found: list[list[Array]], wanted: list[list[Array]]) -> None:
    assert len(found) == len(wanted)
    for images_of_view, wanted_of_view in zip(found, wanted, strict=True):
        for image, wanted_image in zip(images_of_view, wanted_of_view, strict=True):
            np.testing.assert_array_equal(image, wanted_image, strict=True)


# The same pixels


@pytest.mark.parametrize("recipe", [PAPER, CONTINUOUS, SEVERAL_VIEWS, WHOLE], ids=lambda recipe: recipe.name)
def test_every_recipe_gives_the_pixels_of_the_transform(recipe: Recipe) -> None:
    assert_same(augmented(recipe, seed=3), expected(recipe, seed=3))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_every_form_gives_the_pixels_of_the_transform(dtype: Any, layout: Any) -> None:
    form = {"dtype": dtype, "layout": layout}
    assert_same(augmented(CONTINUOUS, **form), expected(CONTINUOUS, **form))


def test_epochs_may_change_within_a_batch() -> None:
    found = augmented(PAPER, with_epochs=True, seed=3)
    assert_same(found, expected(PAPER, EPOCHS, seed=3))
    assert any((image != other).any() for image, other in zip(found[0], augmented(PAPER, seed=3)[0], strict=True))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_threads_do_not_change_the_pixels(num_threads: int) -> None:
    assert_same(augmented(PAPER, num_threads=num_threads), expected(PAPER))


@pytest.mark.parametrize(
    "options", [{"exec_dynamic": False}, {"prefetch_queue_depth": 4}, {"exec_pipelined": False, "exec_async": False}]
)
def test_the_way_in_which_a_pipeline_runs_does_not_change_the_pixels(options: dict[str, Any]) -> None:
    assert_same(augmented(PAPER, pipeline=options), expected(PAPER))


@pytest.mark.parametrize("channels", [1, 4])
def test_gray_and_four_channels_are_taken_as_the_transform_takes_them(channels: int) -> None:
    image = np.ascontiguousarray(np.dstack([scene(40, 52), scene(40, 52)])[..., :channels])
    pipeline = pipeline_of(lambda: augment(fn.external_source(source=lambda: [image, image]), PAPER))
    ((first, second),) = results_of(pipeline, 1)
    assert_same([[first, second]], [list(Augment(PAPER)([image, image], sample_ids=[0, 1]))])


def test_layouts_are_named() -> None:
    def define() -> Any:
        images = photographs()
        return augment(images, PAPER), augment(images, PAPER, layout="NHWC"), *augment(images, SEVERAL_VIEWS)

    outputs = pipeline_of(define).run()
    assert [samples.layout() for samples in outputs] == ["CHW", "HWC", "CHW", "CHW", "CHW"]


# Ids and operators


def test_without_ids_samples_are_counted_from_batch_to_batch_and_by_each_operator() -> None:
    def define() -> Any:
        images = photographs()
        return augment(images, PAPER, seed=1), augment(images, PAPER, seed=1), augment(images, PAPER, seed=2)

    first, second, third = results_of(pipeline_of(define))
    numbers = list(range(len(GIVEN)))
    assert_same([first], [[Augment(PAPER, 1)(image, sample_ids=i) for i, image in zip(numbers, GIVEN, strict=True)]])
    assert_same([second], [first])
    assert_same([third], [[Augment(PAPER, 2)(image, sample_ids=i) for i, image in zip(numbers, GIVEN, strict=True)]])


def test_images_may_part_ways_in_the_graph() -> None:
    """DALI's conditionals give each operator a part of the batch, and convert what a definition calls."""

    @pipeline_def(batch_size=MAX_BATCH_SIZE, num_threads=2, device_id=None, enable_conditionals=True)
    def define() -> Any:
        images, numbers = photographs(), fn.squeeze(ids(), axes=0)
        if numbers % 20 == 0:
            results = augment(images, PAPER, sample_ids=numbers, seed=1)
        else:
            results = augment(images, PAPER, sample_ids=numbers, seed=2)
        return results

    ones, twos = expected(PAPER, seed=1)[0], expected(PAPER, seed=2)[0]
    wanted = [one if sample_id % 20 == 0 else two for sample_id, one, two in zip(IDS, ones, twos, strict=True)]
    assert_same(results_of(define()), [wanted])


def test_files_of_a_sharded_reader_give_the_pixels_of_the_loader(tmp_path: Path) -> None:
    for number, data in enumerate(jpegs(11)):
        (tmp_path / f"{number:02d}.jpg").write_bytes(data)
    recipe = recipes.deep_image(32, (50, 56))  # none is so large that the loader decodes a fraction of it
    loader = Loader(tmp_path, recipe, batch_size=4, seed=5, framework="numpy", shuffle=False)
    wanted = {int(i): image for batch in loader for i, image in zip(batch.sample_ids, batch.images, strict=True)}
    paths = [str(tmp_path / Path(loader.source.name(i)).name) for i in range(len(loader.source))]

    @pipeline_def(batch_size=4, num_threads=2, device_id=None)
    def define(shard: int) -> Any:
        encoded, numbers = fn.readers.file(
            files=paths, labels=list(range(len(paths))), shard_id=shard, num_shards=2, stick_to_shard=True, name="r"
        )
        images = fn.decoders.image(encoded, output_type=types.RGB)
        return augment(images, recipe, sample_ids=numbers, seed=5), numbers

    found: dict[int, Array] = {}
    for shard in range(2):
        batches = DALIGenericIterator(
            define(shard), ["images", "ids"], reader_name="r", last_batch_policy=LastBatchPolicy.PARTIAL
        )
        sizes = []
        for (batch,) in batches:
            sizes.append(len(batch["images"]))
            assert not found.keys() & set(batch["ids"].flatten().tolist())
            found |= dict(zip(batch["ids"].flatten().tolist(), batch["images"].numpy(), strict=True))
        assert len(sizes) == 2 and sizes[1] < sizes[0] == 4
    assert found.keys() == wanted.keys() and len(found) == 11
    for sample_id, image in found.items():
        np.testing.assert_array_equal(image, wanted[sample_id], strict=True)


def test_the_epoch_of_a_padded_reader_is_counted_in_the_graph(tmp_path: Path) -> None:
    for number, data in enumerate(jpegs(7)):
        (tmp_path / f"{number:02d}.jpg").write_bytes(data)
    paths = sorted(str(path) for path in tmp_path.iterdir())

    def define() -> Any:
        encoded, numbers = fn.readers.file(files=paths, labels=list(range(7)), pad_last_batch=True, random_shuffle=True)
        images = fn.decoders.image(encoded, output_type=types.RGB)
        epoch = fn.external_source(lambda sample: np.int64(sample.iteration // 2), batch=False)
        return augment(images, PAPER, sample_ids=numbers, epoch=epoch), numbers, images

    found, numbers, images = results_of(pipeline_of(define, batch_size=4), 4)
    for position, (image, number, photograph) in enumerate(zip(found, numbers, images, strict=True)):
        wanted = Augment(PAPER)(photograph, sample_ids=number, epoch=position // 8)
        np.testing.assert_array_equal(image, wanted, strict=True)
    assert [{int(number[0]) for number in numbers[first : first + 8]} for first in (0, 8)] == [set(range(7))] * 2


# The device's side, on host memory


def on_fake_device(recipe: Recipe, form: OutputFormat, *, has_ids: bool, has_epochs: bool) -> tuple[Any, HostRenderer]:
    renderer = HostRenderer(form)
    numbers = SampleNumbers(has_ids=has_ids, epoch=None if has_epochs else 0)
    function = DeviceAugment(recipe, 3, numbers, renderer, nullcontext)

    def define() -> Any:
        given = [*([ids()] if has_ids else []), *([epochs()] if has_epochs else [])]
        noted = [fn.python_function(*given, function=function.note, batch_processing=True)] if given else []
        return fn.dl_tensor_python_function(
            photographs(), *noted, function=function, batch_processing=True, num_outputs=len(recipe.all_views)
        )

    def as_outputs() -> Any:
        nodes = define()
        return tuple(nodes) if isinstance(nodes, list) else nodes

    return results_of(pipeline_of(as_outputs, prefetch_queue_depth=3)), renderer


@pytest.mark.parametrize("has_epochs", [False, True])
@pytest.mark.parametrize("recipe", [PAPER, SEVERAL_VIEWS], ids=lambda recipe: recipe.name)
def test_the_gpu_operator_plans_and_launches_what_the_cpu_operator_does(recipe: Recipe, has_epochs: bool) -> None:
    form = OutputFormat(dtype="float16", layout="NHWC", framework="numpy")
    found, renderer = on_fake_device(recipe, form, has_ids=True, has_epochs=has_epochs)
    wanted = expected(recipe, EPOCHS if has_epochs else None, seed=3, dtype="float16", layout="NHWC")
    assert_same(found, wanted)
    assert [len(launched) for launched in renderer.launches[: len(BATCHES)]] == [len(numbers) for numbers in BATCHES]
    assert [i for launched in renderer.launches[: len(BATCHES)] for i in launched] == IDS


def test_the_gpu_operator_launches_once_for_each_size() -> None:
    form = OutputFormat(dtype="uint8", layout="NCHW", framework="numpy")
    found, renderer = on_fake_device(WHOLE, form, has_ids=True, has_epochs=False)
    assert_same(found, expected(WHOLE, seed=3, dtype="uint8"))
    assert max(map(len, renderer.launches)) == 1  # no two images of a batch have one size


def test_the_gpu_operator_counts_samples_without_ids() -> None:
    form = OutputFormat(dtype="float32", layout="NCHW", framework="numpy")
    _, renderer = on_fake_device(PAPER, form, has_ids=False, has_epochs=False)
    assert [i for launched in renderer.launches[: len(BATCHES)] for i in launched] == list(range(len(IDS)))


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", [PAPER, SEVERAL_VIEWS, WHOLE], ids=lambda recipe: recipe.name)
def test_on_the_gpu_pixels_are_those_of_the_cpu_within_rounding(recipe: Recipe) -> None:
    def define() -> Any:
        return augment(photographs().gpu(), recipe, sample_ids=ids(), epoch=epochs(), seed=3, layout="NHWC")

    pipeline = pipeline_of(define, device_id=0)
    runs = [pipeline.run() for _ in BATCHES]
    found = [
        [np.array(s.as_cpu().at(i)) for s in outputs for i in range(len(s))] for outputs in zip(*runs, strict=True)
    ]
    for images_of_view, wanted_of_view in zip(found, expected(recipe, EPOCHS, seed=3, layout="NHWC"), strict=True):
        for image, wanted in zip(images_of_view, wanted_of_view, strict=True):
            np.testing.assert_allclose(image, wanted, rtol=0, atol=1 / 255 / 0.2)  # one level, normalised


# What it refuses

GRAPH_ERRORS: list[tuple[dict[str, Any], str]] = [
    (
        {"recipe": "deep_image"},
        r"^recipe is a str. Give a Recipe, as recipes.deep_image\(\); Recipe.load",
    ),
    (
        {"recipe": PAPER.model_copy(update={"mixing": (MixUp(),)})},
        "mixes samples, and an operator of DALI's cannot tell which",
    ),
    (
        {"recipe": Recipe(ops=[RandomCrop(keep_objects=KeepObjects())])},
        r"keeps objects \(random_crop\), and no boxes are known to an operator of DALI's",
    ),
    ({"seed": -1}, r"^seed=-1 must lie in 0..2\^64 - 1"),
    ({"dtype": "double"}, "^dtype='double' is not known. Choose one of 'float32', 'float16', 'uint8'"),
    ({"dtype": "bfloat16"}, '^dtype="bfloat16" is not a type of DALI. Choose "float16"'),
    ({"dtype": "uint8"}, '^dtype="uint8" cannot hold normalised values'),
    ({"layout": "HWCN"}, "^layout='HWCN' is not known. Choose one of 'NCHW', 'NHWC'"),
    ({"layout": "channels_last"}, '^layout="channels_last" is a torch memory format.*Choose "NHWC"'),
    ({"num_threads": 0}, "^num_threads=0 must be at least 1"),
    ({"epoch": -1}, r"^epoch=-1 must lie in 0..2\^32 - 1"),
    ({"epoch": 0.5}, "^epoch=0.5 is a float, and must be a whole number"),
    ({"sample_ids": [1, 2]}, "^sample_ids is a list, and must be a DataNode. Give a CPU operator's output"),
    ({"images": PHOTOS}, "^images is a list, and must be a DataNode. Give the decoded photographs"),
]


@pytest.mark.parametrize(("arguments", "message"), GRAPH_ERRORS)
def test_arguments_out_of_range_are_named_while_the_graph_is_defined(arguments: dict[str, Any], message: str) -> None:
    def define() -> Any:
        return augment(**({"images": photographs(), "recipe": PAPER} | arguments))

    with pytest.raises(ValueError, match=message):
        pipeline_of(define)


@pytest.mark.parametrize("name", ["sample_ids", "epoch"])
def test_numbers_on_the_gpu_are_refused_while_the_graph_is_defined(name: str) -> None:
    def define() -> Any:
        return augment(photographs(), PAPER, **{name: ids().gpu()})

    with pytest.raises(ValueError, match=rf"^{name} lies on the gpu.*Give it as it was before .gpu\(\)\.$"):
        pipeline_of(define)


def test_a_call_outside_a_definition_is_refused() -> None:
    images: list[Any] = []
    pipeline_of(lambda: images.append(photographs()) or images[0])
    assert Pipeline.current() is None
    with pytest.raises(ValueError, match=r"no pipeline is being defined.*augpipe.Augment takes arrays"):
        augment(images[0], PAPER)


def crop_of_50(images: Any, **given: Any) -> Any:
    return augment(images, Recipe(ops=(CenterCrop(size=50),)), **given)


RUN_ERRORS: list[tuple[Array, Any, Callable[..., Any], str]] = [
    (
        PHOTOS[0],
        77,
        crop_of_50,
        "ValueError: sample 77: the photograph is 40x61 pixels, smaller than the crop of 50x50",
    ),
    (PHOTOS[0].astype(np.float32), 77, crop_of_50, "ValueError: sample 77: the array is float32, and must be uint8"),
    (
        np.ascontiguousarray(PHOTOS[0].transpose(2, 0, 1)),
        77,
        crop_of_50,
        "ValueError: sample 77: the array has shape.*Move its channels last",
    ),
    (PHOTOS[0], -1, crop_of_50, "ValueError: sample_ids must lie in 0..4294967295, but holds -1"),
    (PHOTOS[0], 0.5, crop_of_50, "ValueError: sample_ids must be whole numbers, but has dtype float"),
    (PHOTOS[0], [1, 2], crop_of_50, r"ValueError: sample_ids holds an array of shape \(2,\) for a sample. Give one"),
]


@pytest.mark.parametrize(("image", "sample_id", "define", "message"), RUN_ERRORS)
def test_what_cannot_be_augmented_is_named_while_the_pipeline_runs(
    image: Array, sample_id: Any, define: Callable[..., Any], message: str
) -> None:
    def graph() -> Any:
        images, numbers = fn.external_source(source=lambda: ([image], [np.array(sample_id)]), num_outputs=2)
        return define(images, sample_ids=numbers)

    with pytest.raises(RuntimeError, match=message):
        pipeline_of(graph).run()


DEVICE_ERRORS = [
    (torch.zeros(40, 52, 3), "^sample 77: the image is torch.float32, and must be uint8"),
    (torch.zeros(3, 40, 52, dtype=torch.uint8), r"^sample 77: the image has shape \(3, 40, 52\).*channels last"),
    (torch.zeros(40, 49, 3, dtype=torch.uint8), "^sample 77: the photograph is 40x49 pixels, smaller than the crop"),
]


@pytest.mark.parametrize(("image", "message"), DEVICE_ERRORS)
def test_the_gpu_operator_names_what_cannot_be_augmented(image: Any, message: str) -> None:
    renderer = HostRenderer(OutputFormat(dtype="float32", layout="NCHW", framework="numpy"))
    numbers = SampleNumbers(has_ids=True, epoch=0)
    function = DeviceAugment(Recipe(ops=(CenterCrop(size=50),)), 0, numbers, renderer, nullcontext)
    noted = function.note([np.array([77])])
    with pytest.raises(ValueError, match=message):
        function([torch.utils.dlpack.to_dlpack(image)], noted)


def test_the_gpu_operator_takes_four_channels_at_any_address() -> None:
    renderer = HostRenderer(OutputFormat(dtype="float32", layout="NCHW", framework="numpy"))
    function = DeviceAugment(CENTRE, 0, SampleNumbers(has_ids=False, epoch=0), renderer, nullcontext)
    pixels = np.dstack([scene(40, 52), scene(40, 52)[..., 0]])
    memory = torch.zeros(pixels.size + 8, dtype=torch.uint8)
    odd = memory[memory.data_ptr() % 4 + 1 :][: pixels.size].reshape(pixels.shape)
    odd.copy_(torch.from_numpy(pixels))
    assert odd.data_ptr() % 4
    (capsule,) = function([torch.utils.dlpack.to_dlpack(odd)])
    found = torch.utils.dlpack.from_dlpack(capsule).numpy()
    np.testing.assert_array_equal(found, Augment(CENTRE)(pixels), strict=True)


# Around it


def test_dali_is_imported_by_its_first_use_alone() -> None:
    code = "import sys, augpipe.dali; print([name for name in ('nvidia.dali', 'torch') if name in sys.modules])"
    ended = run_python(code)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_a_program_may_end_with_batches_in_the_making() -> None:
    code = (
        "import numpy as np\nfrom nvidia.dali import fn, pipeline_def\nfrom augpipe import recipes\n"
        "from augpipe.dali import augment\nimage = np.zeros((300, 300, 3), np.uint8)\n"
        "@pipeline_def(batch_size=32, num_threads=2, device_id=None)\ndef define():\n"
        "    return augment(fn.external_source(source=lambda: [image] * 32), recipes.deep_image())\n"
        "pipeline = define()\npipeline.run()\nprint('ended')"
    )
    ended = run_python(code)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "ended", "")
