"""Views of an image: crops, flips, recipes at several scales; and what is made of several answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Loader, Recipe
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.open import open_source
from augpipe.ops import CenterCrop, Normalize
from augpipe.trainer.evaluation import Views
from augpipe.trainer.evaluation.groups import Group, Memory, as_memory, groups_of
from augpipe.trainer.evaluation.views import average_answers, centre_recipe, shown, ten_crops, whole_recipe
from augpipe.trainer.models import build
from tests.augpipe.decoding.image_files import encoded, scene, write_files

RECIPE = Recipe(name="mine", ops=(CenterCrop(size=(20, 24), scale=28), Normalize(mean=(0.1, 0.2, 0.3))))


def five_crop(image: Any, height: int, width: int) -> list[Any]:
    """As torchvision.transforms.functional.five_crop and center_crop (0.20) of a (C, H, W) array."""
    image_height, image_width = image.shape[1:]

    def crop(top: int, left: int) -> Any:
        return image[:, top : top + height, left : left + width]

    centre = crop(round((image_height - height) / 2.0), round((image_width - width) / 2.0))
    return [
        crop(0, 0),
        crop(0, image_width - width),
        crop(image_height - height, 0),
        crop(image_height - height, image_width - width),
        centre,
    ]


@pytest.mark.parametrize("size", [(20, 24), (25, 31), (27, 30)])
def test_ten_crops_are_torchvisions(size: tuple[int, int]) -> None:
    images = torch.arange(2 * 3 * size[0] * size[1]).reshape(2, 3, *size)
    found = list(ten_crops(images, 20, 24))
    for number in range(2):
        image = images[number].numpy()
        expected = five_crop(image, 20, 24) + five_crop(image[:, :, ::-1], 20, 24)
        assert len(found) == len(expected) == 10
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one[number].numpy(), other)


def test_what_is_shown() -> None:
    images = torch.arange(2 * 3 * 22 * 26).reshape(2, 3, 22, 26)
    assert [one.shape[2:] for one in shown(images, Views(crops=10), (20, 24))] == 10 * [(20, 24)]
    (one,) = shown(images, Views(), (20, 24))
    assert one is images
    _, mirrored = shown(images, Views(flip=True), (20, 24))
    assert np.array_equal(mirrored.numpy(), images.numpy()[:, :, :, ::-1])


@pytest.mark.parametrize(
    ("views", "num", "text"),
    [
        (Views(), 1, "centre"),
        (Views(scales=(64, 80), flip=True, dense=True), 4, "dense at 64, 80 px, mirrored too"),
        (Views(scales=(64, 80), crops=10), 20, "10 crops at 64, 80 px"),
    ],
)
def test_how_views_are_called(views: Views, num: int, text: str) -> None:
    assert views.num_views == num and str(views) == text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scales": (0,)}, "scales=0"),
        ({"scales": (64, 64)}, "names one twice"),
        ({"crops": 5}, "crops=5"),
        ({"average": "max"}, "average='max'"),
        ({"dense": True, "crops": 10}, "Leave one of the two out"),
        ({"flip": True, "crops": 10}, "Leave flip out"),
    ],
)
def test_views_that_there_are_none_of(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Views(**fields)


def test_averages_are_a_plain_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
    weights = [3.0, 1.0, 2.0]
    for how in ("softmax", "logits"):
        found = average_answers(torch.log_softmax(logits, -1), torch.tensor(weights), how)
        for number in range(5):
            if how == "softmax":
                parts = [w * torch.softmax(logits[v, number], 0) for v, w in enumerate(weights)]
                expected = sum(parts, torch.zeros(4)) / 6
            else:
                mean = sum((w * logits[v, number] for v, w in enumerate(weights)), torch.zeros(4)) / 6
                expected = torch.softmax(mean, 0)
            torch.testing.assert_close(found[number].exp(), expected.to(found))


def test_the_centre_at_several_scales_is_a_view_each() -> None:
    assert centre_recipe(RECIPE, ()) is RECIPE
    made = centre_recipe(RECIPE, (24, 40))
    crops = [CenterCrop(size=(20, 24), scale=scale) for scale in (24, 40)]
    assert [view.ops for view in made.all_views] == [(crop, RECIPE.ops[1]) for crop in crops]
    with pytest.raises(ValueError, match=r"scales=23 is below the network's least: .* 20x24 .* Give 24 or more\."):
        centre_recipe(RECIPE, (23,))


def test_a_whole_image_holds_the_pixels_that_crops_of_it_have() -> None:
    """Ten crops cut what a CenterCrop at that scale would."""
    source = ArraySource(np.stack([scene(37, 61, seed) for seed in range(3)]), [0, 0, 0], ["one"])
    whole = next(iter(Loader(source, whole_recipe(RECIPE, ((28, 46),)), batch_size=3, shuffle=False))).images
    centre = next(iter(Loader(source, RECIPE, batch_size=3, shuffle=False))).images
    assert whole.shape == (3, 3, 28, 46)
    torch.testing.assert_close(whole[:, :, 4:24, 11:35], centre, rtol=0, atol=2e-4)


def groups(source: Any, views: Views, limit_mb: int = 1000) -> tuple[list[Group], dict[int, str]]:
    memory = Memory(limit_mb=limit_mb, bytes_per_pixel=1.0, num_held=1)
    left_out: dict[int, str] = {}
    found = list(groups_of(source, RECIPE, views, memory, skips_bad=True, left_out=left_out))
    return found, left_out


def test_images_of_one_size_are_grouped(tmp_path: Path) -> None:
    sizes = [(30, 40), (40, 30), (60, 80), (30, 41), (90, 2000)]
    write_files(tmp_path, {f"c0/{i}.jpg": encoded(scene(*size, i), "JPEG") for i, size in enumerate(sizes)})
    write_files(tmp_path, {"c1/5.jpg": b"no image", "c1/6.jpg": encoded(scene(30, 40), "JPEG")})
    found, left_out = groups(open_source(tmp_path), Views(scales=(24, 48), dense=True))
    by_size = {group.recipe.all_views[1].out_size: group.sample_ids.tolist() for group in found}
    assert by_size == {(48, 64): [0, 2, 6], (64, 48): [1], (48, 65): [3], (48, 1066): [4]}
    assert {view.out_size for group in found for view in group.recipe.all_views} >= {(24, 32), (32, 24), (24, 533)}
    assert list(left_out) == [5] and "5.jpg: not a picture" in left_out[5]
    _, left_out = groups(open_source(tmp_path), Views(scales=(480,), dense=True), limit_mb=50)
    assert sorted(left_out) == [4, 5]
    assert "resized to 480x10666 pixels it takes about 67 MB, and batches may take 50" in left_out[4]


def test_memory_is_measured_and_kept_to() -> None:
    network = build("small-cnn", num_classes=3, width=2).eval()
    memory = as_memory(network, torch.zeros(1, 3, 64, 64), 10, prefetch=2)
    # the largest is the first normalisation: 2 filters of 32x32 float32 in and out; counted twice
    assert memory.bytes_per_pixel == 2 * (3 * 64 * 64 * 4 + 2 * 32 * 32 * 4) / (64 * 64)
    of_one = memory.image_bytes(((64, 64), (128, 128)))
    assert of_one == 4 * 12 * (64 * 64 + 128 * 128) + memory.bytes_per_pixel * 128 * 128
    assert memory.batch_size(of_one, 1000) == int(1e7 / of_one) and memory.batch_size(of_one, 3) == 3
    assert memory.batch_size(1e9, 1000) == 1
