"""A user's own function as a step: where it acts, what it is given, and what becomes of its mistakes."""

import functools
import itertools
import pickle
from collections.abc import Callable
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Augment, Loader, Recipe, Schedule, TargetOptions, View, ops, plan
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.gpu_ops.random.philox import checked_draws, seed_key
from augpipe.ops.random_words import stream_id
from augpipe.pipeline.host_output import HostOutput
from augpipe.preview.contents import by_step
from augpipe.recipes.parts import without_ops
from augpipe.recipes.refusals import refuse_functions
from tests.augpipe.loader.jpeg_loaders import jpeg_files
from tests.augpipe.loader.loader_sources import MemorySource

Pixels = npt.NDArray[np.uint8]
IMAGE: Pixels = np.random.default_rng(0).integers(0, 256, (31, 40, 3), np.uint8)


def window(image: Pixels) -> Pixels:
    """Not linear, not the same for all channels, and into the array that it is given."""
    image[:, :, 0] = np.where(image[:, :, 0] > 90, 255 - image[:, :, 1], 7)
    return image


def mark(image: Pixels, draws: npt.NDArray[np.float64]) -> Pixels:
    """By place and by draws; what it gives back is not contiguous."""
    image = image.copy()
    image[: 1 + int(draws[0] * len(image)) // 2, 3:] = int(256 * draws[1])
    return image[:, ::-1]


def fails(image: Pixels) -> Pixels:
    raise IndexError("list index out of range")


WINDOW, MARK = ops.Custom(window), ops.Custom(mark, num_draws=2)
SOMETIMES = ops.Custom(mark, num_draws=3, p=0.5, name="sometimes")
CROP, COLOURS = ops.RandomResizedCrop(size=(19, 23)), (ops.Noise(p=1.0), ops.Rotate(), ops.Gamma())
PLACES: dict[str, tuple[ops.Op, ...]] = {
    "alone": (WINDOW,),
    "first": (MARK, CROP, *COLOURS),
    "middle": (CROP, ops.Saturation(), SOMETIMES, *COLOURS, ops.Normalize()),
    "last": (CROP, *COLOURS, SOMETIMES),
    "twice": (ops.Flip(), WINDOW, ops.Rotate(), CROP, MARK, ops.Noise(p=1.0), ops.Normalize(mean=0.5, std=0.3)),
    "in a row": (CROP, SOMETIMES, WINDOW, MARK, ops.Equalize(p=1.0)),
}


def op_by_op(listed: tuple[ops.Op, ...], image: Any, sample_id: int, seed: int = 5) -> npt.NDArray[Any]:
    """One call for the ops listed before a function, then the function, then one call for the ops listed after it."""
    size = image.shape[:2]
    key, place, kept = seed_key(seed), 0, list[ops.Op]()
    border = Recipe(ops=listed).beyond_of(Recipe(ops=listed).all_views[0])
    assert border[0] == "context" and size
    for op in (*listed, None):
        if op is not None and not isinstance(op, ops.Custom):
            kept.append(op)
            continue
        is_last = op is None
        dtype: Any = "float32" if is_last else "uint8"
        own = Augment(Recipe(ops=kept), seed, dtype=dtype, layout="NHWC")
        image = np.asarray(own(image, [sample_id]))
        kept.clear()
        if isinstance(op, ops.Custom):
            stream, ids = f"custom:{place}:0", np.array([sample_id], np.uint32)
            words = checked_draws(key, 0, ids, np.array([stream_id(stream)], np.uint32), 1 + op.num_draws)[0]
            numbers = words * 2.0**-32
            place += 1
            if numbers[0] < op.p:
                image = op.fn(image.copy(), numbers[1:]) if op.num_draws else op.fn(image.copy())
    return image


@pytest.mark.parametrize("listed", PLACES.values(), ids=PLACES)
def test_it_acts_where_it_is_listed(listed: tuple[ops.Op, ...]) -> None:
    """The kinds of other ops differ within each list, so that calls draw by the streams that the recipe draws by."""
    images = [IMAGE, np.ascontiguousarray(IMAGE[:, 7:]), IMAGE[5:], IMAGE, IMAGE[::-1].copy()]
    whole = Augment(Recipe(ops=listed), 5, layout="NHWC")
    found = whole(images, sample_ids=range(5))
    for sample_id, image in enumerate(images):
        np.testing.assert_array_equal(found[sample_id], op_by_op(listed, image, sample_id))
        np.testing.assert_array_equal(found[sample_id], whole(image, [sample_id]))
    if listed is PLACES["middle"]:
        applied = plan(whole.recipe, range(5), sizes=[(31, 40)] * 5, seed=5).rows["drawn"]["sometimes"]["applied"]
        assert 0 < applied.sum() < 5


@pytest.mark.parametrize("listed", [PLACES["first"], PLACES["middle"], PLACES["twice"]], ids=["first", "mid", "twice"])
def test_files_and_loaders_give_the_same_pixels_however_they_are_cut(listed: tuple[ops.Op, ...]) -> None:
    files, recipe = jpeg_files(9, [(97, 131), (180, 241), (64, 80)]), Recipe(ops=listed)
    augment = Augment(recipe, 3)
    expected = {i: augment(one, [i], 1) for i, one in enumerate(files)}

    def seen(loader: Any, num: int | None = None) -> list[int]:
        ids = []
        for batch in itertools.islice(loader, num):
            for place, sample_id in enumerate(batch.sample_ids.tolist()):
                np.testing.assert_array_equal(batch.images[place], expected[sample_id])
                ids.append(sample_id)
        return ids

    def loader(batch_size: int = 4, **options: Any) -> Any:
        made = Loader(MemorySource(files), recipe, batch_size=batch_size, seed=3, framework="numpy", **options)
        made.set_epoch(1)
        return made

    order = seen(loader(num_threads=1))
    assert sorted(order) == list(range(9))
    assert seen(loader(num_threads=3, prefetch=3)) == order == seen(loader(9, num_threads=2, cache="host"))
    ranks = [seen(loader(2, rank=rank, world_size=2)) for rank in (0, 1)]
    assert sorted(itertools.chain(*ranks)) == list(range(9))
    first = loader()
    assert seen(first, 1) == order[:4]
    again = loader()
    again.load_state_dict(first.state_dict())
    assert seen(again) == order[4:]
    (batch,) = loader(9)
    replayed = Augment(batch.plan.recipe)([files[i] for i in batch.sample_ids], plan=batch.plan)
    np.testing.assert_array_equal(replayed, batch.images)


def test_arrays_take_the_same_way_and_views_draw_apart() -> None:
    stack = np.stack([IMAGE, IMAGE[::-1]])
    recipe = Recipe(views=[View(ops=[CROP, MARK], count=2), View(ops=[ops.CenterCrop(size=9)])])
    (batch,) = Loader(ArraySource(stack), recipe, batch_size=2, shuffle=False, framework="numpy", seed=5)
    given = Augment(recipe, 5)(stack, sample_ids=[0, 1])
    for found, expected in zip(batch.images, given, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (given[0] != given[1]).any()


def test_the_function_may_keep_and_change_what_it_is_given() -> None:
    kept: list[Any] = []
    keeps = ops.Custom(lambda image: kept.append(image) or 255 - image, name="keeps")
    Augment(Recipe(ops=[keeps]), num_threads=1)(np.stack([IMAGE, IMAGE // 2]))
    np.testing.assert_array_equal(kept, [IMAGE, IMAGE // 2])
    assert all(one.flags.c_contiguous and one.flags.writeable for one in kept)
    constant, given = np.frombuffer(IMAGE.tobytes(), np.uint8).reshape(IMAGE.shape), list[Any]()
    for first in (lambda image: given.append(image) or image, lambda image: constant):
        shown = Augment(Recipe(ops=[ops.Custom(first), WINDOW]), dtype="uint8", layout="NHWC")(IMAGE)
        np.testing.assert_array_equal(shown, window(IMAGE.copy()))  # into an array of its own, which it may write
    np.testing.assert_array_equal(given, [IMAGE])
    recipe = Recipe(ops=[ops.Custom(lambda image, draws: kept.append(draws.fill(2.0)) or image, num_draws=1)])
    made = plan(recipe, [0], sizes=[IMAGE.shape[:2]])
    Augment(recipe)(IMAGE, plan=made)
    assert len(kept) == 3 and made.rows["drawn"]["custom"]["draws"][0] < 1.0


def test_targets_stay() -> None:
    targets: dict[str, Any] = {
        "mask": np.arange(31 * 40, dtype=np.int32).reshape(31, 40),
        "bboxes": np.array([[5.0, 6.0, 30.0, 20.0]]),
        "keypoints": np.array([[26.0, 20.0]]),
        "labels": ["a"],
    }
    options: dict[str, Any] = {"bbox_format": "pascal_voc", "targets": TargetOptions(drop_empty=False)}
    chain = [ops.Resize(size=(20, 30)), ops.Rotate(), ops.Shear()]
    with_it, without = (
        Augment(Recipe(ops=listed), 5)(image=IMAGE, sample_ids=[3], **targets, **options)
        for listed in ([MARK, *chain, MARK], chain)
    )
    np.testing.assert_array_equal(with_it["mask"], without["mask"])
    for name in ("bboxes", "keypoints"):
        np.testing.assert_allclose(with_it[name], without[name], atol=1e-6)


MISTAKES: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "nothing": (lambda image: None, ValueError, r"step, a .* gave back None for .*Have it return the image\."),
    "floats": (lambda image: image / 255, ValueError, r"an array float64 \(6, 6, 3\) for .* uint8 \(6, 6, 3\)"),
    "gray": (lambda image: image[:, :, 0], ValueError, r"gave back an array uint8 \(6, 6\) for"),
    "a list": (lambda image: image.tolist(), ValueError, "gave back a list for"),
    "raises": (
        fails,
        RuntimeError,
        "step, a function of yours .ops.Custom., raised IndexError for .*: list index out of",
    ),
}


@pytest.mark.parametrize(("fn", "kind", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_of_a_function_name_it_and_the_image_and_end_the_run(
    fn: Callable[..., Any], kind: type[Exception], message: str
) -> None:
    recipe = Recipe(ops=[ops.CenterCrop(size=6), ops.Custom(fn, name="step"), ops.Normalize()])
    with pytest.raises(kind, match=message) as found:
        Augment(recipe)(IMAGE, [7])
    assert "image 0 (sample 7, epoch 0)" in str(found.value)
    files = jpeg_files(6)
    for source, name in ((MemorySource(files), "memory"), (ArraySource(np.stack([IMAGE] * 6)), "sample")):
        for batch_size in (1, 6):
            loader = Loader(source, recipe, batch_size=batch_size, on_error="skip", framework="numpy", num_threads=2)
            with pytest.raises(kind, match=message) as found:
                list(loader)
            assert loader.skipped == {} and (name in str(found.value) or "(sample" in str(found.value))


def test_passes_and_their_number() -> None:
    def passes(*listed: ops.Op) -> str:
        (found,) = Recipe(ops=listed).passes
        return " | ".join(", ".join(key for key, _ in one) for one in found)

    assert passes(MARK, ops.Rotate()) == " | mark, rotate"
    assert passes(CROP, WINDOW, MARK, ops.Normalize()) == "random_resized_crop | window, mark, normalize"
    assert passes(ops.Noise(), MARK, ops.Rotate(), MARK) == "noise | mark, rotate | mark_2"
    assert passes(MARK, ops.Noise(), ops.Rotate()) == " | mark, noise | rotate"
    assert passes(ops.Custom(mark, p=0.0), CROP) == "mark, random_resized_crop"
    assert passes(ops.Noise(), MARK, ops.Rotate(), ops.MultiResolutionCrop()) == (
        "multi_resolution_crop, noise | mark, rotate"
    )
    listed = [one for _ in range(4) for one in (ops.Gamma(), MARK)]
    assert Recipe(ops=listed[:6]).num_passes == 4
    with pytest.raises(
        ValueError, match=r"takes 5 passes as it is listed \(mark of yours, mark_2 .* List functions of"
    ):
        Recipe(ops=listed)


def test_it_is_shown_by_its_name() -> None:
    again = ops.Custom(functools.partial(mark), num_draws=2, name="mark_2")
    recipe = Recipe(ops=[CROP, MARK, again, MARK, ops.Custom(lambda image: image)])
    keys = [key for key, _ in recipe.all_views[0].keyed_ops]
    assert keys == ["random_resized_crop", "mark", "mark_2", "mark_3", "custom"]
    made = plan(recipe, [1], sizes=[(31, 40)])
    numbers = made.rows["drawn"]["mark"]["draws"][0]
    assert dict(made.captions(0))["mark"] == f"mark {numbers[0]:.2f} {numbers[1]:.2f}"
    assert Augment(without_ops(recipe, ["mark_2", "custom"]), 5)(IMAGE, [1]).tobytes() == (
        Augment(Recipe(ops=[CROP, MARK, ops.Custom(mark, num_draws=2, p=0.0), MARK]), 5, layout="NCHW")(
            IMAGE, [1]
        ).tobytes()
    )
    source = ArraySource(IMAGE[None])
    sheet = by_step(source, Recipe(ops=[CROP, MARK]), rows=1)
    assert sheet.rows[0].headings == ("original", "random_resized_crop", "mark")
    assert sheet.rows[0].cells[1].captions[0].startswith("mark 0.")
    assert "random_resized_crop, mark" in repr(
        Loader(source, Recipe(ops=[CROP, MARK]), batch_size=1, framework="numpy")
    )


def test_states_hold_the_functions_name() -> None:
    source = ArraySource(IMAGE[None])
    one = Loader(source, Recipe(ops=[CROP, MARK]), batch_size=1, framework="numpy")
    assert '"fn": "tests.augpipe.ops.test_custom.mark"' in one.state_dict()["recipe"]
    other = Loader(source, Recipe(ops=[CROP, ops.Custom(window, num_draws=2, name="mark")]), batch_size=1)
    with pytest.raises(ValueError, match=r"fn was \"tests.augpipe.ops.test_custom.mark\" and is \"tests.*window\""):
        other.load_state_dict(one.state_dict())


def test_functions_of_c_have_names_in_states() -> None:
    names = [ops.Custom(fn).model_dump()["fn"] for fn in (np.ndarray.copy, mark, functools.partial(mark))]
    assert names == ["ndarray.copy", f"{__name__}.mark", f"{__name__}.mark"]


class _Popen:
    """What says that a process is being spawned."""


def test_recipes_are_pickled_where_functions_can_be() -> None:
    recipe = Recipe(ops=[CROP, MARK])
    again = pickle.loads(pickle.dumps(recipe))
    assert again == recipe and again.functions[0][1][0][1].fn is mark
    local = Recipe(ops=[ops.Custom(lambda image: image, name="local")])
    set_spawning_popen(_Popen())
    try:
        pickle.dumps(Augment(recipe).recipe)
        with pytest.raises(ValueError, match="local: a process that is spawned gets .* Define it by def at the top of"):
            pickle.dumps(local)
    finally:
        set_spawning_popen(None)


TWO = Recipe(name="two", ops=[CROP, MARK])


def _load(tmp_path: Path) -> Recipe:
    path = tmp_path / "custom.toml"
    path.write_text('[[ops]]\nop = "custom"\nfn = "mark"\n')
    return Recipe.load(path)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "TOML": (lambda path: TWO.dump(path / "two.toml"), "mark is a function of yours, which a TOML file cannot hold"),
    "a schedule": (lambda path: Schedule.of(TWO).to_toml(), "mark is a function of yours, which a TOML file"),
    "a file": (_load, "custom calls a function, which a text cannot hold"),
    "a plan": (
        lambda path: plan(TWO, [1], sizes=[(31, 40)]).save(path / "plan.npz"),
        r"'two' calls a function of yours \(mark\), which a file cannot hold\. Note seed",
    ),
    "a device": (
        lambda path: refuse_functions(TWO, 'device="cuda"'),
        r"'two' calls a function of yours \(mark\), which takes an array on the CPU, and device=\"cuda\" has none",
    ),
    "one pass": (lambda path: TWO.fused(), r"'two' calls a function of yours \(mark\) on what all before it have"),
    "a mosaic": (
        lambda path: Recipe(ops=[CROP, MARK], mosaic=ops.Mosaic(size=16)),
        "a mosaic is one pass, and mark of yours takes another",
    ),
    "a group": (
        lambda path: ops.OneOf(ops=[ops.Flip(), MARK]),
        "one_of holds mark, a function of yours, and it begins a pass",
    ),
    "no function": (lambda path: ops.Custom(fn=3), "fn=3 must be a function that takes an image"),
    "a class": (lambda path: ops.Custom(Path), r"must be a function, and this is the class: fn=Path\(\.\.\.\)"),
    "a name of ours": (lambda path: ops.Custom(mark, name="flip"), "must be its own, and an op of augpipe is called"),
    "no name": (lambda path: ops.Custom(mark, name="my mark"), "must be letters, digits and _"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, make: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path)


def test_recipes_without_it_do_not_look_for_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack of arrays, and one compiled call for files, stay where no function is called."""
    from augpipe.pipeline.batches import BatchMaker

    found = []
    original = BatchMaker.__init__

    def noted(self: Any, settings: Any, output: Any, **others: Any) -> None:
        found.append(type(output).__name__)
        original(self, settings, output, **others)

    monkeypatch.setattr(BatchMaker, "__init__", noted)
    for listed in ([CROP, MARK], [CROP]):
        list(Loader(ArraySource(IMAGE[None]), Recipe(ops=listed), batch_size=1, framework="numpy"))
    assert found == [HostOutput.__name__, "StackOutput"]
