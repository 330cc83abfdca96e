"""What every backend hands out: the same order, plans, labels and pixels, however an epoch is cut and asked for."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Recipe, View, recipes
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.ops import CenterCrop, Flip, Grayscale, MultiResolutionCrop, Normalize, RandomResizedCrop, Resize, Rotate
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import ids_of, views_of
from tests.contracts.backends import (
    CENTRE,
    CROPS,
    FILES,
    JPEGS,
    LEVELS,
    MOST_ON_DEVICE,
    NUM,
    RECIPES,
    VIEWS,
    Backend,
    assert_same,
    plain,
    scaled_images_of,
)


def test_the_files_are_decoded_at_every_scale() -> None:
    loader = plain(FILES, LEVELS)
    assert {factor for _ in range(6) for _, factor in scaled_images_of(loader)} == {1, 2, 4, 8}


# Pixels


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("batch_size", "num_threads", "prefetch"), [(1, 1, 1), (5, 2, 2), (64, 3, 4)])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_epochs_are_those_of_one_thread_of_the_cpu(
    backend: Backend, recipe: Recipe, batch_size: int, num_threads: int, prefetch: int
) -> None:
    options = {"batch_size": batch_size, "recipe": recipe}
    loader, expected = backend.loader(num_threads=num_threads, prefetch=prefetch, **options), plain(**options)
    for _ in range(2):
        assert backend.assert_as_plain(loader, expected) == NUM
    assert len(views_of(next(iter(loader)))) == (3 if recipe is VIEWS else 1)


def test_the_pixels_are_those_of_the_transform_on_the_decoded_files(backend: Backend) -> None:
    contents = [content for content in FILES if isinstance(content, bytes)][:5]
    pixels = [decode(data, probe(data, max_pixels=MAX_PIXELS)) for data in contents]
    loader, augment = backend.loader(contents), Augment(CROPS, seed=4, framework="torch")
    num = 0
    for epoch in range(2):
        for batch in loader:
            for image, sample_id in zip(batch.images, batch.sample_ids.tolist(), strict=True):
                expected = augment(pixels[sample_id], sample_ids=sample_id, epoch=epoch)
                assert (image.double() - expected.double()).abs().max() <= backend.most(batch)
                num += 1
    assert num == 2 * len(contents)


@pytest.mark.parametrize("border", ["context", "reflect", "edge", "constant"])
def test_every_border(backend: Backend, border: Any) -> None:
    ops = (CenterCrop(size=(6, 5), scale=9), Rotate(max_deg=80, p=1.0))
    recipe = Recipe(border=border, fill=(10, 200, 90), ops=ops)
    assert backend.assert_as_plain(backend.loader(JPEGS, recipe), plain(JPEGS, recipe)) == len(JPEGS)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_one_channel_is_the_gray_level_of_three(backend: Backend, dtype: Any, layout: Any) -> None:
    chosen = (Resize(size=(4, 3)), Flip())
    one, three = Recipe(channels=1, ops=chosen), Recipe(ops=(*chosen, Grayscale(p=1.0)))
    options: dict[str, Any] = {"dtype": dtype, "layout": layout, "shuffle": False, "batch_size": 5}
    loaders = backend.loader(recipe=one, **options), plain(recipe=three, **options)
    for found, gray in zip(*loaders, strict=True):
        expected = gray.images[..., :1] if layout == "NHWC" else gray.images[:, :1]
        assert found.images.shape == expected.shape
        assert (found.images.double() - expected.double()).abs().max() <= backend.most(found)
        if layout == "channels_last":
            assert found.images.is_contiguous(memory_format=torch.channels_last)
        else:
            assert found.images.is_contiguous()


WIDE = (MultiResolutionCrop(size=(3, 16), scales=(20, 40)), Flip())
"""As wide as a vector: in what is left of a row float32 may be rounded otherwise in another layout."""


@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_every_format_holds_the_same_numbers(backend: Backend, dtype: Any, layout: Any, framework: Any) -> None:
    recipe = Recipe(ops=WIDE if dtype == "uint8" else (*WIDE, Normalize()))
    options = {"dtype": dtype, "layout": layout, "framework": framework, "contents": FILES[:4]}
    impossible = {"bfloat16", "channels_last"} & {dtype, layout} if framework == "numpy" else set()
    if framework == "numpy" and (impossible or backend.is_device):
        with pytest.raises(ValueError, match=f"({'|'.join([*impossible, 'numpy'])}).*torch"):
            backend.loader(recipe=recipe, **options)
        return
    images = next(iter(backend.loader(recipe=recipe, **options))).images
    assert isinstance(images, torch.Tensor if framework == "torch" else np.ndarray)
    assert str(images.dtype).removeprefix("torch.") == dtype
    images = torch.as_tensor(images)
    assert images.shape == ((4, 3, 16, 3) if layout == "NHWC" else (4, 3, 3, 16))
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    assert images.is_contiguous(memory_format=memory_format)
    reference = next(iter(plain(FILES[:4], recipe))).images
    wanted = reference.clamp(0, 255).add(0.5).floor() if dtype == "uint8" else reference.to(images.dtype)
    planar = images.permute(0, 3, 1, 2) if layout == "NHWC" else images
    most = MOST_ON_DEVICE[dtype] if backend.is_device else 0.0
    assert (planar.double() - wanted.double()).abs().max() <= most


def test_whole_images(backend: Backend) -> None:
    same = [scene(6, 7, seed) for seed in range(3)]
    options: dict[str, Any] = {"recipe": recipes.none(), "dtype": "uint8", "layout": "NHWC", "shuffle": False}
    (batch,) = backend.loader(same, **options)
    np.testing.assert_array_equal(batch.images.numpy(), np.stack(same))
    several = [*same[:2], scene(5, 6)]
    message = "one batch cannot hold images of several sizes: photo 0.jpg is 6x7 and photo 2.jpg 5x6"
    with pytest.raises(ValueError, match=f"{message}.*Add a crop to the recipe, or use batch_size=1."):
        list(backend.loader(several, **options))
    for image, batch in zip(several, backend.loader(several, batch_size=1, **options), strict=True):
        np.testing.assert_array_equal(batch.images[0].numpy(), image)


def test_views_of_whole_images_and_of_parts(backend: Backend) -> None:
    views = (View(), View(ops=(CenterCrop(size=5),), count=2), View(ops=(RandomResizedCrop(size=3),)))
    options = {"recipe": Recipe(views=views), "batch_size": 1}
    assert backend.assert_as_plain(backend.loader(JPEGS[:4], **options), plain(JPEGS[:4], **options)) == 4


def test_batches_do_not_share_memory(backend: Backend) -> None:
    loader = backend.loader(recipe=CENTRE, cache="device")
    kept = list(loader)
    copies = [batch.images.clone() for batch in kept]
    list(loader)
    assert all(torch.equal(batch.images, copy) for batch, copy in zip(kept, copies, strict=True))
    assert len({batch.images.data_ptr() for batch in kept}) == len(kept) == 3


# Order, ranks, several loaders


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks(backend: Backend, world_size: int, drop_last: bool) -> None:
    seen: list[int] = []
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size, "batch_size": 3, "drop_last": drop_last, "recipe": CENTRE}
        loader, expected = backend.loader(**options), plain(**options)
        assert len(loader) == len(expected)
        found = list(loader)
        backend.assert_as_plain(found, expected)
        seen += ids_of(found)
    if drop_last:
        assert len(set(seen)) == len(seen) == NUM // (3 * world_size) * 3 * world_size
    else:
        assert sorted(seen) == list(range(NUM))


@pytest.mark.parametrize(("num", "batch_size", "lengths"), [(5, 2, [1]), (4, 1, [1, 0])])
def test_a_rank_without_samples_gets_empty_batches(
    backend: Backend, num: int, batch_size: int, lengths: list[int]
) -> None:
    options = {"rank": 2, "world_size": 3, "batch_size": batch_size, "shuffle": False}
    found = list(backend.loader(FILES[:num], **options))
    assert [len(batch) for batch in found] == lengths
    backend.assert_as_plain(found, plain(FILES[:num], **options))


@pytest.mark.parametrize("shuffle", [True, False, "sticky"])
def test_every_order(backend: Backend, shuffle: Any) -> None:
    for rank in range(2):
        options = {"shuffle": shuffle, "rank": rank, "world_size": 2, "recipe": CENTRE}
        loader, expected = backend.loader(**options), plain(**options)
        for _ in range(2):
            backend.assert_as_plain(loader, expected)


def test_two_loaders_at_once(backend: Backend) -> None:
    options: list[Any] = [{"recipe": CENTRE, "seed": 1}, {"recipe": VIEWS, "seed": 2, "cache": "host"}]
    pairs = list(zip(*[backend.loader(**one) for one in options], strict=True))
    for found, one in zip(zip(*pairs, strict=True), options, strict=True):
        backend.assert_as_plain(found, plain(**one))


# Passes and states


@pytest.mark.parametrize("cache", ["off", "device", "host"])
def test_an_epoch_that_is_set_again_is_the_same_bits(backend: Backend, cache: Any) -> None:
    loader = backend.loader(cache=cache)
    first = list(loader)
    loader.set_epoch(0)
    assert assert_same(loader, first) == NUM


@pytest.mark.parametrize("num_batches", [1, 2])
def test_a_state_goes_on_with_another_backend_and_batch_size(backend: Backend, num_batches: int) -> None:
    whole = list(plain(recipe=CENTRE, batch_size=1))
    for before, after in ((backend.loader, plain), (plain, backend.loader), (backend.loader, backend.loader)):
        loader = before(recipe=CENTRE)
        running = iter(loader)
        start = ids_of(islice(running, num_batches))
        other = after(recipe=CENTRE, batch_size=1)
        other.load_state_dict(loader.state_dict())
        assert start == ids_of(whole[: len(start)])
        backend.assert_as_plain(other, whole[len(start) :])
        assert ids_of(running) == ids_of(whole[len(start) :])
        assert ids_of(other) == ids_of(loader), "and then the next epoch"


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
def test_a_state_goes_on_with_another_world_size(backend: Backend, before: int, after: int) -> None:
    loaders = [plain(recipe=CENTRE, batch_size=2, world_size=before, rank=rank) for rank in range(before)]
    seen = [i for loader in loaders for i in ids_of(islice(loader, 1))]
    assert len(seen) == 2 * before
    for rank in range(after):
        options = {"recipe": CENTRE, "batch_size": 2, "world_size": after, "rank": rank}
        loader, expected = backend.loader(**options), plain(**options)
        for other in (loader, expected):
            other.load_state_dict(loaders[0].state_dict())
        found = list(loader)
        backend.assert_as_plain(found, expected)
        seen += ids_of(found)
    assert sorted(seen) == list(range(NUM))
