"""Batches with label maps: those of a call of `Augment`, alone and next to objects."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Augment, Recipe, SampleError, TargetOptions, ops
from augpipe.planning.targets import fill_notice
from tests.augpipe.loader.loader_sources import jpegs
from tests.augpipe.loader.target_sources import (
    CROPPED,
    TARGET_RECIPES,
    LabelMapSource,
    ObjectSource,
    label_map_source,
    loader_of,
    object_source,
    size_of,
)

torch = pytest.importorskip("torch")

NUM = 11
FORMS: tuple[Any, ...] = ("list", "padded", "flat")


@pytest.mark.parametrize("name", sorted(TARGET_RECIPES.keys() - {"keeping"}))  # crops look at objects there
def test_label_maps_are_those_of_a_call(name: str) -> None:
    source, recipe = label_map_source(NUM), TARGET_RECIPES[name]
    for batch in loader_of(source, recipe):
        views = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
        for position, sample_id in enumerate(batch.sample_ids.tolist()):
            results = Augment(recipe)(
                image=source.contents[sample_id],
                mask=source.maps[sample_id],
                plan=batch.plan[position : position + 1],
            )
            for view, expected in zip(views, results if isinstance(results, tuple) else (results,), strict=True):
                assert view.dtype == torch.int64 and view.shape[1:] == expected["mask"].shape
                np.testing.assert_array_equal(view[position].numpy(), expected["mask"])


def test_label_maps_stay_while_somebody_holds_them() -> None:
    """Their memory is used again, but not before."""
    loader = loader_of(label_map_source(NUM), TARGET_RECIPES["cropped"], batch_size=2, prefetch=1)
    kept, copies = [], []
    for batch in loader:
        kept.append(batch.targets)
        copies.append(batch.targets.clone())
    assert len(kept) > 5 and all(held.equal(copied) for held, copied in zip(kept, copies, strict=True))


@pytest.mark.parametrize("dtype", [">i4", ">u2", ">f4"])
@pytest.mark.parametrize("by", ["nearest", "linear"])
def test_label_maps_in_the_other_byte_order_are_those_in_this_one(dtype: str, by: Any) -> None:
    """As `.npy` files, TIFF and NIfTI may have them; torch takes none."""
    source, swapped = label_map_source(3), label_map_source(3)
    own = np.dtype(dtype).newbyteorder("=")
    source.maps = [one.astype(own) for one in source.maps]
    swapped.maps = [one.astype(dtype) for one in source.maps]
    options = TargetOptions(mask_interpolation=by)
    for batch, other in zip(loader_of(source, targets=options), loader_of(swapped, targets=options), strict=True):
        assert batch.targets.dtype == other.targets.dtype and batch.targets.equal(other.targets)


def test_a_label_map_that_numpy_cannot_hold_is_an_error_that_names_it() -> None:
    source = label_map_source(3)
    unreadable: Any = [torch.from_numpy(one).bfloat16() for one in source.maps]
    source.maps = unreadable
    with pytest.raises(SampleError, match="its label map: .*BFloat16"):
        [*loader_of(source)]


def test_a_rank_s_batch_without_images_has_label_maps_of_their_kind() -> None:
    source = label_map_source(1)
    (full,), (empty,) = ([*loader_of(source, TARGET_RECIPES["cropped"], rank=rank, world_size=2)] for rank in (0, 1))
    assert full.targets.shape == (1, 36, 44) and empty.targets.shape == (0, 36, 44)
    assert full.targets.dtype == empty.targets.dtype == torch.int64


def test_label_maps_go_along_with_objects() -> None:
    only, both = label_map_source(7), object_source(7, maps=True)
    for form in FORMS:
        for alone, batch in zip(loader_of(only), loader_of(both, targets=form), strict=True):
            masks = torch.stack([one["mask"] for one in batch.targets]) if form == "list" else batch.targets["mask"]
            assert masks.equal(alone.targets)


def test_other_label_maps_keep_their_type() -> None:
    source = label_map_source(5)
    maps = source.maps
    for change, dtype, shape in (
        (lambda one: np.stack([one] * 3, axis=2), torch.uint8, (36, 44, 3)),
        (lambda one: one.astype(np.float32), torch.float32, (36, 44)),
        (lambda one: one > 0, torch.bool, (36, 44)),
        (lambda one: one.astype(np.uint16), torch.int64, (36, 44)),
    ):
        source.maps = [change(one) for one in maps]
        first, *_ = loader_of(source)
        assert first.targets.dtype == dtype and tuple(first.targets.shape[1:]) == shape
    source.maps[1] = source.maps[1].astype(np.float64)
    with pytest.raises(ValueError, match="label maps of one source must be alike"):
        [*loader_of(source, batch_size=5, num_threads=1)]
    source.maps = [np.stack([one] * 3, axis=2) for one in maps]
    with pytest.raises(ValueError, match="mask_fill=300 does not fit into the mask's uint8"):
        [*loader_of(source, targets=TargetOptions(mask_fill=300))]


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_label_maps_of_two_kinds_are_an_error_in_batches_of_any_size(batch_size: int) -> None:
    """Also where each batch has one kind only: the type of its targets would change from batch to batch."""
    source = label_map_source(4)
    source.maps[2:] = [np.stack([one] * 3, axis=2) for one in source.maps[2:]]
    with pytest.raises(
        ValueError, match=r"photo [01]\.jpg is int64 of shape \(H, W\), and that of photo [23]\.jpg uint8"
    ):
        [*loader_of(source, batch_size=batch_size, num_threads=1, shuffle=False)]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_whole_numbers_of_different_types_are_one_kind(batch_size: int) -> None:
    source, expected = label_map_source(4), label_map_source(4)
    source.maps[1:] = [one.astype(own) for one, own in zip(source.maps[1:], ("u2", "i4", "i8"), strict=True)]
    batches = zip(loader_of(source, batch_size=batch_size), loader_of(expected, batch_size=batch_size), strict=True)
    assert all(found.targets.equal(wanted.targets) for found, wanted in batches)


class CountingSource(LabelMapSource):
    """Counts how often a label map is read."""

    num_read = 0

    def label_map(self, sample_id: int) -> Any:
        self.num_read += 1
        return super().label_map(sample_id)


@pytest.mark.parametrize(
    ("own", "planes", "by"),
    [
        ("u1", (), "nearest"),
        (">u2", (), "nearest"),
        ("?", (), "nearest"),
        ("u1", (3,), "nearest"),
        ("f4", (1,), "nearest"),
        ("f8", (), "linear"),
        ("i4", (), "majority"),
    ],
)
def test_a_cache_on_the_host_holds_label_maps(own: str, planes: tuple[int, ...], by: Any) -> None:
    source, options = label_map_source(NUM), {"targets": TargetOptions(mask_interpolation=by), "num_threads": 2}
    maps = [np.broadcast_to(one.reshape(*one.shape, *(1 for _ in planes)), one.shape + planes) for one in source.maps]
    counting = CountingSource(source.contents, source.objects, [one.astype(own) for one in maps])
    read = loader_of(counting, CROPPED, **options)
    cached = loader_of(counting, CROPPED, cache="host", cache_bytes=2**24, **options)
    for epoch in range(3):
        wanted = [batch.targets.clone() for batch in read]
        counting.num_read = 0
        assert [batch.targets.equal(each) for batch, each in zip(cached, wanted, strict=True)] == [True] * len(wanted)
        assert counting.num_read == (0 if epoch else NUM)
    held = cached.cache_statistics
    assert held is not None and (held.num_label_maps, held.num_label_maps_did_not_fit) == (NUM, 0)
    assert held.held_bytes == sum(-(-one.shape[0] * one.shape[1] * 4 // 16) * 16 for one in maps) + sum(
        -(-one.size * np.dtype(own).itemsize // 16) * 16 for one in maps
    )


def test_label_maps_that_do_not_fit_are_counted_once() -> None:
    source = label_map_source(NUM)
    counting = CountingSource(source.contents, source.objects, source.maps)
    map_bytes = [-(-one.size // 16) * 16 for one in source.maps]
    images_bytes = sum(-(-one.size * 4 // 16) * 16 for one in source.maps)
    cached = loader_of(counting, cache="host", cache_bytes=images_bytes + max(map_bytes), batch_size=NUM)
    read = loader_of(source, batch_size=NUM)
    for _ in range(3):
        assert next(iter(cached)).targets.equal(next(iter(read)).targets)
        held = cached.cache_statistics
        assert held is not None and held.num_did_not_fit == 0 and 0 < held.num_label_maps < NUM
        assert held.num_label_maps_did_not_fit == NUM - held.num_label_maps
        assert held.held_bytes + held.did_not_fit_bytes == images_bytes + sum(map_bytes)
    assert counting.num_read == 3 * NUM - 2 * held.num_label_maps


def test_a_label_map_that_is_held_of_a_sample_that_changed_its_size_is_read_again() -> None:
    """Its image found no room, so that nothing else knows of the size that it had."""
    (image,), (labels,) = (of[:1] for of in (label_map_source(1).contents, label_map_source(1).maps))
    source = CountingSource([image], [], [labels])
    cached = loader_of(source, Recipe(ops=(ops.CenterCrop(size=8),)), cache="host", cache_bytes=labels.size + 16)
    assert len([*cached]) == len([*cached]) == source.num_read == 1
    (source.contents[0],) = jpegs(1, first=3)
    source.maps[0] = np.full(size_of(source.contents[0]), 9, np.uint8)
    assert source.maps[0].shape != labels.shape
    (batch,) = cached
    assert source.num_read == 2 and bool((batch.targets == 9).all())


def test_label_maps_are_filled_or_mirrored_where_the_image_ends() -> None:
    source = label_map_source(4)
    recipe = Recipe(ops=(ops.CenterCrop(size=(36, 40)), ops.Translate(horizontal=(0.5, 0.5), vertical=(0, 0))))
    filled, mirrored, other = (
        next(iter(loader_of(source, recipe, targets=TargetOptions(**options), shuffle=False))).targets
        for options in ({}, {"mask_border": "image"}, {"mask_fill": 1000})
    )
    assert (filled == 255).any() and not (mirrored == 255).any()
    assert (other == 1000).equal(filled == 255)


def test_two_threads_that_look_at_once_tell_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fill_notice, "_looks_left", 64)
    both_look = threading.Barrier(2)

    def look(*arguments: Any, **options: Any) -> npt.NDArray[Any]:
        with suppress(threading.BrokenBarrierError):
            both_look.wait(0.2)
        return np.array([-1])

    monkeypatch.setattr(fill_notice, "shown_pixels", look)
    with ThreadPoolExecutor(2) as pool:
        mask = np.array([[0, 255]], np.uint8)
        list(pool.map(lambda _: fill_notice.tell_of_fill(mask, np.zeros(1), TargetOptions()), range(2)))
    assert len(caplog.messages) == 1


def test_a_fork_that_copied_the_lock_while_it_was_held_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Lock()
    held.acquire()
    monkeypatch.setattr(fill_notice, "_looking", held)
    monkeypatch.setattr(fill_notice, "_looks_left", 64)
    fill_notice.tell_of_fill(np.array([[0, 255]], np.uint8), np.zeros(1), TargetOptions())
    assert fill_notice._looks_left == 0


@pytest.mark.parametrize("labels", [(0, 255), (0, 1), (0.0, 1.0)])
def test_a_default_fill_that_masks_of_two_labels_do_not_mean_is_told_once(
    labels: tuple[float, float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("augpipe.planning.targets.fill_notice._looks_left", 64)
    monkeypatch.setattr("augpipe.planning.targets.fill_notice._ones_seen", 0)
    source = label_map_source(3)
    source.maps = [np.asarray(labels)[one % 2] for one in source.maps]
    moved, whole = (
        Recipe(ops=(ops.CenterCrop(size=36), *moves))
        for moves in ((ops.Translate(horizontal=(0.5, 0.5), vertical=(0, 0)),), ())
    )
    for targets in (TargetOptions(mask_fill=255), TargetOptions(mask_border="image")):  # chosen, or the image's own
        [*loader_of(source, moved, targets=targets)]
    [*loader_of(source, whole)]  # nothing lies outside
    call = Augment(moved)
    call(image=source.contents[0], mask=source.maps[0] > 0)  # Boolean masks have False there
    assert not [text for text in caplog.messages if "mask_fill" in text]
    for _ in range(3):
        [*loader_of(source, moved)]
        call(image=source.contents[0], mask=source.maps[0])
    (told,) = (text for text in caplog.messages if "mask_fill" in text)
    assert told == (
        f"masks of 0 and {labels[1]:g} also show 255 where there is no image, which a loss has to ignore. With "
        'targets=TargetOptions(mask_fill=0) they show 0 there; mask_border="image" mirrors them where pixels are '
        "mirrored; mask_fill=255 keeps it."
    )
    monkeypatch.setattr("augpipe.planning.targets.fill_notice._looks_left", 64)
    monkeypatch.setattr("augpipe.planning.targets.fill_notice._ones_seen", 0)
    caplog.clear()
    source.maps = [np.where(one == 3, 255, one % 5) for one in source.maps]  # classes, and 255 for what is ignored
    [*loader_of(source, moved)]
    assert not [text for text in caplog.messages if "mask_fill" in text]


def test_targets_are_looked_up_once_a_sample_in_the_loader_s_threads() -> None:
    class Watched(ObjectSource):
        def label_map(self, sample_id: int) -> Any:
            read.append(sample_id)
            threads.add(threading.current_thread().name)
            return super().label_map(sample_id)

        def targets_of(self, sample_ids: Any) -> Any:
            threads.add(threading.current_thread().name)
            return super().targets_of(sample_ids)

    plain = object_source(9, maps=True)
    read: list[int] = []
    threads: set[str] = set()
    source = Watched(plain.contents, plain.objects, plain.maps)
    loader = loader_of(source)
    threads.clear()
    for epoch in range(2):
        read.clear()
        source.asked_ids.clear()
        assert sum(map(len, loader)) == 9
        assert sorted(read) == sorted(source.asked_ids) == [*range(9)], epoch
    assert threads and all(name.startswith("augpipe") for name in threads)
