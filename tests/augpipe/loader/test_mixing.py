"""Mixed batches: their pixels beside numpy's of the unmixed ones, and the same however an epoch is cut."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Batch, Loader, MixedLabels, Recipe, View, ops
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.mixed_labels import nan_where_none
from augpipe.nn import AugmentModule
from augpipe.ops.op import Op
from augpipe.pipeline.host_output import HostOutput
from augpipe.sampling import Repeated, Weighted, epoch_order
from tests.augpipe.loader.loader_sources import MemorySource, arrays, as_array, jpegs, truncated, views_of
from tests.contracts.backends import needs_dali

NUM, SEED, EPOCH = 101, 2**40 + 5, 3  # a block of 64 and an odd circle of 37
OPS: tuple[Op, ...] = (ops.RandomResizedCrop(size=(9, 14)), ops.Flip(), ops.Normalize())
MIXING = (ops.MixUp(alpha=0.5, p=0.4), ops.CutMix(p=0.4))
MIXED, PLAIN = Recipe(ops=OPS, mixing=MIXING), Recipe(ops=OPS)
LEVELS = Recipe(ops=OPS[:2], mixing=MIXING)
VIEWS = (View(ops=OPS, count=2), View(ops=(ops.RandomResizedCrop(size=6), ops.Vignette())))
FILES = jpegs(NUM)
LABELS = [7 * i % 10 for i in range(NUM)]
SOURCE = MemorySource(FILES, LABELS)

Bits = tuple[Any, ...]


def loader(recipe: Recipe = MIXED, source: Any = SOURCE, **options: Any) -> Loader:
    settings = {"batch_size": 64, "num_threads": 1, "seed": SEED, "framework": "numpy"} | options
    made = Loader(source, recipe, **settings)
    made.set_epoch(EPOCH)
    return made


def samples(batches: Iterable[Batch]) -> list[Bits]:
    """The id, pixels, plan and labels of each sample."""
    found = []
    for batch in batches:
        labels = zip(*(each.tolist() for each in batch.labels), strict=True)
        assert len(batch) == len(batch.plan) == len(batch.sample_ids) == len(batch.labels.weights)
        for nth, label in enumerate(labels):
            pixels = [as_array(images)[nth].tobytes() for images in views_of(batch)]
            rows = [rows[nth].tobytes() for rows in batch.plan.views]
            found.append((int(batch.sample_ids[nth]), *pixels, *rows, label))
    return found


@pytest.fixture(scope="module")
def reference() -> list[Bits]:
    """The epoch in batches of 64."""
    found = samples(loader())
    assert sorted(sample[0] for sample in found) == list(range(NUM))
    return found


# Pixels and labels


def images_of(recipe: Recipe, **options: Any) -> dict[int, list[np.ndarray]]:
    """By sample id, what each view shows without mixing."""
    plain = recipe.model_copy(update={"mixing": ()})
    (batch,) = loader(plain, **(options | {"batch_size": NUM}))
    views = [as_array(images) for images in views_of(batch)]
    return {int(sample_id): [view[nth] for view in views] for nth, sample_id in enumerate(batch.sample_ids)}


def mixed_by_numpy(own: np.ndarray, other: np.ndarray, row: Any, planar: bool) -> np.ndarray:
    """float64 of an image that is mixed as its plan says."""
    made = own.astype(np.float64)
    left, top, right, bottom = row["mixing"]["region"]
    part = np.s_[..., top:bottom, left:right] if planar else np.s_[top:bottom, left:right]
    weight = row["mixing"]["weight"] if row["mixing"]["kind"] == 1 else 0.0
    made[part] = weight * own[part] + (1.0 - weight) * other[part].astype(np.float64)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [MIXED, Recipe(views=VIEWS, mixing=MIXING)], ids=["one view", "views"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("batch_size", [10, 64])
def test_pixels_are_those_of_the_unmixed_images_mixed(recipe: Recipe, layout: Any, batch_size: int) -> None:
    plain = images_of(recipe, layout=layout)
    kinds: set[int] = set()
    for batch in loader(recipe, layout=layout, batch_size=batch_size):
        for view, (images, rows) in enumerate(zip(views_of(batch), batch.plan.views, strict=True)):
            for sample_id, image, row in zip(batch.sample_ids, images, rows, strict=True):
                own, kind = plain[sample_id][view], int(row["mixing"]["kind"])
                kinds.add(kind)
                if kind == 0:
                    np.testing.assert_array_equal(image, own)
                    continue
                expected = mixed_by_numpy(own, plain[int(row["mixing"]["partner"])][view], row, layout == "NCHW")
                np.testing.assert_allclose(image, expected, atol=1e-6 if kind == 1 else 0.0, rtol=1e-6)
    assert kinds == {0, 1, 2}


CUT = (ops.CutMix(p=0.9),)
DRAWN_APART = Recipe(
    ops=(ops.RandomResizedCrop(size=40), ops.Rotate(max_deg=20, step=None), ops.Flip()), border="reflect", mixing=CUT
)
OF_VIEWS = Recipe(
    views=(
        View(ops=(ops.RandomResizedCrop(size=40), ops.ColorCast(), ops.CoarseDropout())),
        View(ops=(ops.Resize(size=32),)),
    ),
    mixing=CUT,
)
LOOKING = Recipe(ops=(ops.RandomResizedCrop(size=40), ops.LensDistortion(p=0.5), ops.Equalize(p=0.5)), mixing=CUT)


@pytest.mark.parametrize("recipe", [DRAWN_APART, OF_VIEWS, LOOKING], ids=["turned", "views", "looking"])
def test_of_a_guest_only_what_is_pasted_is_decoded(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels are those of the first batch of 64, which needs no guests."""
    begin, seen = HostOutput.begin, dict[tuple[bool, int], int]()

    def spy(output: HostOutput, batch: Any) -> None:
        begin(output, batch)
        for item in batch.items:
            left, top, right, bottom = item.region
            seen[item.position >= batch.num_own, item.sample_id] = (right - left) * (bottom - top)

    monkeypatch.setattr(HostOutput, "begin", spy)
    whole = next(iter(loader(recipe)))
    of_own = {sample_id: area for (is_guest, sample_id), area in seen.items() if not is_guest}
    found = [batch for batch, _ in zip(loader(recipe, batch_size=8), range(8), strict=False)]
    for view, images in enumerate(views_of(whole)):
        np.testing.assert_array_equal(np.concatenate([views_of(batch)[view] for batch in found]), images)
    shares = np.array(
        [area / of_own[number] for (is_guest, number), area in seen.items() if is_guest and number in of_own]
    )
    assert len(shares) > 30 and shares.max() <= 1.0 and shares.mean() < (0.9 if recipe is LOOKING else 0.6)


@pytest.mark.parametrize(("dtype", "recipe"), [("float16", MIXED), ("uint8", LEVELS), ("bfloat16", MIXED)])
@pytest.mark.parametrize("batch_size", [64, 10])
def test_other_number_types_are_rounded_once_more(dtype: Any, recipe: Recipe, batch_size: int) -> None:
    options: dict[str, Any] = {"dtype": dtype, "framework": "torch"}
    if dtype == "uint8":
        options["framework"] = "numpy"

    def numbers(images: Any) -> Any:
        return images.float().numpy() if isinstance(images, torch.Tensor) else images.astype(np.float32)

    (unmixed,) = loader(recipe.model_copy(update={"mixing": ()}), **options, batch_size=NUM)
    plain = dict(zip(unmixed.sample_ids.tolist(), numbers(unmixed.images), strict=True))
    spacing = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
    num_mixed = 0
    for batch in loader(recipe, **options, batch_size=batch_size):
        for sample_id, image, row in zip(
            batch.sample_ids.tolist(), numbers(batch.images), batch.plan.rows, strict=True
        ):
            if row["mixing"]["kind"] == 0:
                np.testing.assert_array_equal(image, plain[sample_id])
                continue
            num_mixed += 1
            expected = mixed_by_numpy(plain[sample_id], plain[int(row["mixing"]["partner"])], row, True)
            off = np.abs(image - expected)
            assert (off <= (0.5 + 1e-4 if dtype == "uint8" else spacing[dtype] * np.abs(expected) + 1e-6)).all()
    assert num_mixed > 50


def test_labels_are_those_of_both_samples_by_what_is_shown() -> None:
    for batch in loader(batch_size=13):
        labels, others, weights = batch.labels
        assert labels.dtype == others.dtype == np.int64 and weights.dtype == np.float32
        mixed = batch.plan.rows["mixing"]
        assert labels.tolist() == [LABELS[i] for i in batch.sample_ids]
        partners = np.where(mixed["kind"] > 0, mixed["partner"], batch.sample_ids)
        assert others.tolist() == [LABELS[i] for i in partners]
        assert weights.tolist() == mixed["weight"].astype(np.float32).tolist()
        soft = batch.labels.soft(10)
        assert soft.shape == (len(batch), 10) and soft.dtype == np.float32
        np.testing.assert_allclose(soft.sum(1), 1.0, atol=1e-6)
        expected = np.zeros_like(soft)
        np.add.at(expected, (np.arange(len(batch)), labels), weights)
        np.add.at(expected, (np.arange(len(batch)), others), 1.0 - weights)
        np.testing.assert_allclose(soft, expected, atol=1e-6)


def test_labels_as_tensors() -> None:
    found = next(iter(loader(framework="torch"))).labels
    expected = next(iter(loader())).labels
    assert isinstance(found, MixedLabels) and found.weights.dtype == torch.float32
    np.testing.assert_array_equal(found.soft(10).numpy(), expected.soft(10))
    assert found.heavier().tolist() == expected.heavier().tolist()
    assert np.mean(expected.heavier() == expected.labels) < 0.95
    moved = found.to("cpu", non_blocking=True)
    assert isinstance(moved, MixedLabels) and moved.labels is found.labels


def test_what_wants_one_integer_a_sample_is_told() -> None:
    labels = next(iter(loader(framework="torch"))).labels
    for name in ("long", "numpy", "shape"):
        with pytest.raises(
            AttributeError, match=rf"labels have no '{name}': the recipe mixes.* labels.soft\(num_class"
        ):
            getattr(labels, name)
    for consume in (
        lambda: torch.zeros(8) == labels,
        lambda: torch.nn.functional.cross_entropy(torch.ones(8, 9), labels),
    ):
        with pytest.raises(ValueError, match=r"takes a tensor, and labels are three: .* labels.soft\(num_classes"):
            consume()
    with pytest.raises(ValueError, match="num_classes=9 and a label is 9. Give 10 or more."):
        labels.soft(9)


@pytest.mark.parametrize("as_torch", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_soft_labels_of_samples_without_one_are_refused(which: int, as_torch: bool) -> None:
    columns: list[Any] = [np.array([0, 2]), np.array([1, 1]), np.array([0.25, 0.25], np.float32)]
    columns[which][1] = -1
    unlabelled = MixedLabels(*(map(torch.from_numpy, columns) if as_torch else columns))
    with pytest.raises(
        ValueError, match=r"a label is -1, a sample without a class, which has no soft label. Leave such"
    ):
        unlabelled.soft(3)


def test_soft_labels_that_are_none_are_nan_where_nobody_looks() -> None:
    first, second = torch.tensor([[0], [-1], [2], [3]]), torch.tensor([[1], [1], [-1], [0]])
    made = nan_where_none(torch.full((4, 3), 0.5), first, second, 3)
    assert made[0].tolist() == [0.5, 0.5, 0.5]
    assert made[1:].isnan().all()


class Vectors(MemorySource):
    label_width = 2

    def labels_of(self, sample_ids: np.ndarray) -> np.ndarray:
        return np.stack([sample_ids, sample_ids % 2], axis=1).astype(np.float32)


def test_labels_of_several_numbers_become_their_weighted_mean() -> None:
    for batch in loader(source=Vectors(FILES), batch_size=20):
        mixed, ids = batch.plan.rows["mixing"], batch.sample_ids
        others = np.where(mixed["kind"] > 0, mixed["partner"], ids)
        expected = mixed["weight"] * ids + (1.0 - mixed["weight"]) * others
        assert batch.labels.dtype == np.float32 and batch.labels.shape == (len(batch), 2)
        np.testing.assert_allclose(batch.labels[:, 0], expected, rtol=1e-5)


def test_a_recipe_that_does_not_mix_has_plain_labels() -> None:
    (batch,) = loader(PLAIN, batch_size=NUM)
    assert isinstance(batch.labels, np.ndarray) and batch.labels.tolist() == [LABELS[i] for i in batch.sample_ids]


# The same everywhere


@pytest.mark.parametrize("batch_size", [1, 3, 32, 100, 128])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_batch_sizes_and_threads(batch_size: int, num_threads: int, reference: list[Bits]) -> None:
    assert samples(loader(batch_size=batch_size, num_threads=num_threads)) == reference


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "batch_size"), [(2, 32), (3, 5), (4, 16), (32, 4)])
def test_world_sizes(world_size: int, batch_size: int, reference: list[Bits]) -> None:
    found = []
    for rank in range(world_size):
        found += samples(loader(world_size=world_size, rank=rank, batch_size=batch_size))
    assert sorted(found, key=lambda sample: sample[0]) == sorted(reference, key=lambda sample: sample[0])


@pytest.mark.slow
def test_a_run_that_is_resumed_elsewhere(reference: list[Bits]) -> None:
    first = loader(batch_size=7)
    running = iter(first)
    begun = samples([next(running) for _ in range(3)])
    second = loader(batch_size=20)
    second.load_state_dict(first.state_dict())
    assert begun + samples(second) == reference


def test_a_last_batch_that_is_dropped_is_still_mixed_in(reference: list[Bits]) -> None:
    assert samples(loader(batch_size=70, drop_last=True)) == reference[:70]


@pytest.mark.parametrize("batch_size", [10, 64])
def test_a_cache_changes_nothing(batch_size: int, reference: list[Bits]) -> None:
    cached = loader(batch_size=batch_size, cache="host", cache_bytes=10_000_000)
    for _ in range(2):
        cached.set_epoch(EPOCH)
        assert samples(cached) == reference
    statistics = cached.cache_statistics
    assert statistics is not None and statistics.num_held == NUM


@needs_dali
@pytest.mark.parametrize("batch_size", [10, 64])
@pytest.mark.parametrize("cache", ["off", "host"])
def test_dali_decodes_guests_too(batch_size: int, cache: Any, reference: list[Bits]) -> None:
    options = {} if cache == "off" else {"cache": cache, "cache_bytes": 10_000_000}
    assert samples(loader(backend="dali", batch_size=batch_size, num_threads=2, **options)) == reference


@pytest.mark.parametrize("batch_size", [10, 64, 101])
def test_an_array_gives_what_its_images_give(batch_size: int) -> None:
    images = arrays(NUM)
    stacked = samples(loader(source=ArraySource(np.stack(images), LABELS), batch_size=batch_size))
    assert stacked == samples(loader(source=MemorySource(images, LABELS)))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [Repeated(2), Weighted(np.arange(NUM), num=150)])
def test_epochs_of_a_sampler(sampler: Any) -> None:
    whole, cut = (samples(loader(sampler=sampler, batch_size=size)) for size in (128, 9))
    assert cut == whole and len(whole) >= 150


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_that_keep_their_samples(world_size: int) -> None:
    options: dict[str, Any] = {"shuffle": "sticky", "world_size": world_size}
    ranks = [samples(loader(**options, rank=rank, batch_size=64)) for rank in range(world_size)]
    order_of = {place * world_size + rank: ids[0] for rank, own in enumerate(ranks) for place, ids in enumerate(own)}
    for rank in range(world_size):
        assert samples(loader(**options, rank=rank, batch_size=5)) == ranks[rank]
        for batch in loader(**options, rank=rank, batch_size=5):
            for sample_id, row in zip(batch.sample_ids.tolist(), batch.plan.rows["mixing"], strict=True):
                place = next(place for place, each in order_of.items() if each == sample_id)
                partner = int(epoch_order.partners(np.array([place]), NUM)[0])
                assert row["kind"] == 0 or row["partner"] == order_of[partner]


def test_epochs_and_seeds_differ(reference: list[Bits]) -> None:
    for other in (loader(seed=1), loader()):
        other.set_epoch(EPOCH if other.seed == 1 else EPOCH + 1)
        assert not {sample[1] for sample in samples(other)} & {sample[1] for sample in reference}


def test_a_schedule_that_ends_without_mixing(reference: list[Bits]) -> None:
    scheduled = Loader(SOURCE, {0: MIXED, EPOCH + 1: PLAIN}, batch_size=64, seed=SEED, framework="numpy")
    scheduled.set_epoch(EPOCH)
    assert samples(scheduled) == reference
    assert [isinstance(batch.labels, np.ndarray) for batch in scheduled] == [True, True]


def test_one_sample_alone_is_not_mixed() -> None:
    (batch,) = loader(Recipe(ops=OPS, mixing=(ops.MixUp(),)), MemorySource(FILES[:1], [4]))
    assert batch.labels.weights.tolist() == [1.0] and batch.labels.other_labels.tolist() == [4]
    assert batch.plan.rows["mixing"]["kind"].tolist() == [0]
    (pair,) = loader(Recipe(ops=OPS, mixing=(ops.MixUp(),)), MemorySource(FILES[:2]))
    assert sorted(pair.plan.rows["mixing"]["partner"].tolist()) == [0, 1]


def test_ranks_without_samples_get_empty_batches() -> None:
    (tiny,) = loader(source=MemorySource(FILES[:3], LABELS[:3]), batch_size=2, world_size=4, rank=3)
    assert len(tiny) == 0 and tiny.images.shape == (0, 3, 9, 14)
    assert tiny.labels.weights.shape == (0,) and tiny.labels.soft(4).shape == (0, 4)


# Samples that cannot be used


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad", [{}, {5: OSError("gone"), 40: b"no picture"}, {i: truncated(i) for i in (0, 9, 33, 34, 100)}]
)
def test_a_replaced_sample_is_replaced_as_a_partner(bad: dict[int, Any]) -> None:
    contents = [bad.get(i, content) for i, content in enumerate(FILES)]
    whole = loader(source=MemorySource(contents, LABELS), on_error="skip", batch_size=64)
    expected = samples(whole)
    assert set(whole.skipped) == set(bad)
    for batch_size in (1, 10, 100):
        cut = loader(source=MemorySource(contents, LABELS), on_error="skip", batch_size=batch_size, num_threads=2)
        assert samples(cut) == expected
    for batch in whole:
        assert not set(batch.plan.rows["mixing"]["partner"].tolist()) & set(bad)


@pytest.mark.slow
def test_a_guest_that_cannot_be_used_is_named() -> None:
    contents = [truncated(i) if i == 50 else content for i, content in enumerate(FILES)]
    with pytest.raises(ValueError, match="photo 50.jpg"):
        list(loader(Recipe(ops=OPS, mixing=(ops.MixUp(),)), MemorySource(contents), batch_size=1))


# What does not mix


def test_transforms_refuse_to_mix() -> None:
    message = r"mixes samples, and a transform cannot tell which.* Use a Loader, or leave mixing out: Recipe\("
    with pytest.raises(ValueError, match=message):
        Augment(MIXED)
    with pytest.raises(ValueError, match=message):
        AugmentModule(MIXED)
    Augment(Recipe(ops=MIXED.ops, views=MIXED.views))
