"""`Augment.collate` in torch's DataLoader: a data set of one's own gives a loader's pixels, whatever the workers."""

import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Augment, Batch, Recipe, SampleError, View, ops, recipes
from tests.augpipe.loader.jpeg_loaders import jpeg_files, make

torch = pytest.importorskip("torch")

RECIPE = Recipe(ops=[ops.RandomResizedCrop(size=16), ops.Flip(), ops.Normalize()])
FILES = jpeg_files(10, [(97, 131), (180, 241), (64, 90)])


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, images: list[Any], with_ids: bool = False) -> None:
        self.images = images
        self.with_ids = with_ids

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        item = self.images[index], 10 * index
        return (*item, index) if self.with_ids else item


def test_an_image_without_an_id_has_the_checksum_of_its_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (97, 131, 3), np.uint8)
    images = [(pixels, 0), (Image.fromarray(pixels), 0), (np.dstack([pixels, pixels[..., 0]])[..., :3], 0)]
    assert Augment(RECIPE).collate(images).sample_ids.tolist() == [zlib.crc32(pixels.tobytes())] * 3


def epochs_of(images: list[Any], num: int, *, with_ids: bool = False, **options: Any) -> list[Any]:
    """(N, 3, 16, 16) of each epoch."""
    augment = Augment(RECIPE, seed=5)
    options = {"batch_size": 4} | options
    loader = torch.utils.data.DataLoader(Items(images, with_ids), collate_fn=augment.collate, **options)
    found = []
    for epoch in range(num):
        augment.set_epoch(epoch)
        batches = list(loader)
        assert torch.equal(torch.cat([labels for _, labels in batches]), 10 * torch.arange(len(images)))
        found.append(torch.cat([pixels for pixels, _ in batches]))
    return found


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_items_with_ids_give_the_pixels_of_a_loader(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(len(FILES))]
    for path, data in zip(paths, FILES, strict=True):
        path.write_bytes(data)
    loader = make(FILES, RECIPE, framework="torch", shuffle=False)
    wanted = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        wanted.append(torch.cat([images for images, _ in loader]))
    assert not torch.equal(*wanted)
    assert_same(epochs_of(FILES, 2, with_ids=True), wanted)
    assert_same(epochs_of(paths, 2, with_ids=True, batch_size=3), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("with_ids", [False, True], ids=["no ids", "ids"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1, "batch_size": 3},
        {"num_workers": 2, "persistent_workers": True},
        *(
            pytest.param(
                {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": method},
                marks=pytest.mark.deep,  # torch is imported four times
            )
            for method in ("spawn", "forkserver")
        ),
    ],
    ids=["new workers", "persistent workers", "spawned", "of a fork server"],
)
def test_neither_workers_nor_batch_size_change_a_pixel(options: dict[str, Any], with_ids: bool) -> None:
    wanted = epochs_of(FILES, 3, with_ids=with_ids)
    assert len({images.numpy().tobytes() for images in wanted}) == 3
    assert_same(epochs_of(FILES, 3, with_ids=with_ids, **options), wanted)


def test_without_ids_an_image_is_known_by_its_content() -> None:
    array = np.random.default_rng(0).integers(0, 256, (40, 52, 3), np.uint8)
    augment = Augment(RECIPE, 5)
    first = augment.collate([(FILES[0], 0), (array, 1), (FILES[0], 2)])
    other = augment.collate([(array[:, ::-1][:, ::-1], 0), (FILES[0], 0), (FILES[1], 0)])
    assert first.sample_ids.tolist() == [first.sample_ids[0], other.sample_ids[0], first.sample_ids[0]]
    assert other.sample_ids[1] == first.sample_ids[0] != other.sample_ids[2]
    assert torch.equal(first.images[1], other.images[0]) and torch.equal(first.images[0], other.images[1])


def test_a_batch_holds_plan_ids_views_and_labels() -> None:
    views = Recipe(views=(View(ops=(ops.RandomResizedCrop(size=8),), count=2),))
    batch = Augment(views, 5).collate([(FILES[0], [0.5, 1], 7), (FILES[1], np.array([1, 0.25]), 8)])
    assert isinstance(batch, Batch) and batch.sample_ids.tolist() == [7, 8]
    assert [tuple(images.shape) for images in batch.images] == [(2, 3, 8, 8)] * 2
    assert batch.labels.dtype == torch.float32 and batch.labels.tolist() == [[0.5, 1], [1, 0.25]]
    again = Augment(views)(FILES[:2], plan=batch.plan)
    np.testing.assert_array_equal(again[1], batch.images[1].numpy())
    numpy = Augment(RECIPE, framework="numpy").collate([(FILES[0], torch.tensor(3)), (FILES[1], np.int32(4))])
    assert isinstance(numpy.images, np.ndarray) and numpy.labels.tolist() == [3, 4]


def test_what_is_no_item_is_named() -> None:
    good, collate = (FILES[0], 1), Augment(RECIPE).collate
    for items, message in (
        ([good, FILES[1]], "^item 1 of the batch is a bytes. Return .image, label. or"),
        ([(FILES[0],)], "^item 0 of the batch is 1 part"),
        ([good, (*good, 3)], "^item 1 of the batch has 3 parts, and item 0 2"),
        ([good, (FILES[0], "cat")], "^item 1 of the batch has the label 'cat'. Give a class as an int"),
        ([(FILES[0], 0.5)], r"^item 0 of the batch has the label 0.5.*np.array\(\[label\], np.float32\)"),
        ([good, (FILES[0], [1, 2])], r"^item 1 of the batch has a label of shape \(2,\), and item 0 \(\)"),
        ([(*good, -1)], "sample_ids must lie in"),
        ([(*good, "a")], "^item 0 of the batch has the sample id 'a'"),
        ([good, (b"text", 1)], "^image 1: not a picture"),
    ):
        with pytest.raises(ValueError, match=message):
            collate(items)
    with pytest.raises(ValueError, match="several sizes.*Add a crop to the recipe, or use batch_size=1"):
        Augment(recipes.none()).collate([(FILES[0], 0), (FILES[1], 1)])
    assert Augment(recipes.none()).collate([good]).images.shape == (1, 3, 97, 131)


def test_a_recipe_that_mixes_is_refused_by_name() -> None:
    mixes = Recipe(name="mixed", ops=RECIPE.ops, mixing=(ops.MixUp(),))
    with pytest.raises(ValueError, match="the recipe 'mixed' mixes samples.*Use a Loader"):
        Augment(mixes)


def test_copies_have_an_epoch_of_their_own() -> None:
    augment = Augment(RECIPE)
    augment.set_epoch(3)
    copied = pickle.loads(pickle.dumps(augment))
    assert copied.epoch == 3
    copied.set_epoch(4)
    assert augment.epoch == 3
    with pytest.raises(ValueError, match="epoch=-1 must lie in"):
        augment.set_epoch(-1)


def test_a_call_takes_the_epoch_that_is_set_unless_given_one() -> None:
    augment = Augment(RECIPE, 5)
    wanted = augment(FILES[0], sample_ids=1, epoch=3)
    augment.set_epoch(3)
    np.testing.assert_array_equal(augment(FILES[0], sample_ids=1), wanted)
    assert not np.array_equal(augment(FILES[0], sample_ids=1, epoch=0), wanted)


TOLD = (
    "sample 0 comes again in epoch 0, with the same draws as before. Unless that is meant, call "
    "augment.set_epoch(epoch) before each epoch; if a sampler repeats samples, give ids that differ."
)


@pytest.mark.parametrize("of_a_call", [False, True])
def test_an_epoch_that_is_not_set_is_told_once(of_a_call: bool, caplog: pytest.LogCaptureFixture) -> None:
    def epoch(augment: Augment) -> None:
        for start in (0, 5):
            ids = range(start, start + 5)
            if of_a_call:
                [augment(FILES[one], sample_ids=one) for one in ids]
            else:
                augment.collate([(FILES[one], 0, one) for one in ids])

    augment = Augment(RECIPE, seed=5)
    for number in (0, 1, 1):
        augment.set_epoch(number)
        epoch(augment)
    steady = Augment(Recipe(ops=[ops.CenterCrop(size=16)]))  # which draws nothing
    for _ in range(2):
        epoch(steady)
    assert caplog.messages == []
    for repeats in range(3):
        augment = Augment(RECIPE, seed=5) if repeats == 0 else augment
        epoch(augment)
        assert caplog.messages == [TOLD] * min(repeats, 1)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.deep)])
def test_workers_know_of_it_what_others_saw(method: str) -> None:
    augment = Augment(RECIPE, seed=5)
    loader = torch.utils.data.DataLoader(
        Items(FILES, with_ids=True),
        batch_size=2,
        collate_fn=augment.collate,
        num_workers=1,
        multiprocessing_context=method,
    )
    list(loader)
    assert not augment._repeats.are_told
    list(loader)
    assert augment._repeats.are_told


def test_a_worker_hands_on_the_error_of_an_image(tmp_path: Path) -> None:
    path = str(tmp_path / "lost.jpg")
    augment = Augment(RECIPE, seed=5)
    loader = torch.utils.data.DataLoader([(path, 0, 0)], collate_fn=augment.collate, num_workers=1)
    with pytest.raises(SampleError, match="lost.jpg: No such file or directory") as caught:
        list(loader)
    assert caught.value.name == "" and caught.value.reason == str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.name, again.reason) == (str(caught.value), "", str(caught.value))
