"""`Augment` given files: the pixels of a loader, decoded as far as the recipe looks, and what it refuses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, SampleError
from augpipe.decoding import jpeg
from augpipe.ops import CenterCrop
from augpipe.pipeline import stored_image
from tests.augpipe.decoding.image_files import encoded, other_kinds, scene
from tests.augpipe.loader.jpeg_loaders import damaged, jpeg_files, make, turned
from tests.augpipe.loader.loader_sources import RECIPES, as_array, views_of

FILES = [*jpeg_files(16), turned(jpeg_files(1)[0], 6), encoded(scene(70, 90), "PNG"), *other_kinds().values()]
CROP = Recipe(ops=[CenterCrop(size=32)])


def by_augment(recipe: Recipe, contents: Sequence[Any], ids: Any, epoch: int, **options: Any) -> list[Any]:
    transform = Augment(recipe, 5, num_threads=2, **options)
    transform.set_epoch(epoch)
    found = transform(contents, sample_ids=ids)
    return [as_array(view) for view in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_files_give_the_pixels_of_a_loader(name: str) -> None:
    recipe = RECIPES[name]
    loader = make(FILES, recipe)
    loader.set_epoch(3)
    for batch in loader:
        found = by_augment(recipe, [FILES[i] for i in batch.sample_ids], batch.sample_ids, 3)
        for images, wanted in zip(found, views_of(batch), strict=True):
            np.testing.assert_array_equal(images, wanted, strict=True)
        again = Augment(recipe)([FILES[i] for i in batch.sample_ids], plan=batch.plan)
        np.testing.assert_array_equal(again[0] if isinstance(again, tuple) else again, views_of(batch)[0])


@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_so_they_do_in_other_types(dtype: Any) -> None:
    (batch,) = make(FILES[:5], CROP, batch_size=5, dtype=dtype)
    (found,) = by_augment(CROP, [FILES[i] for i in batch.sample_ids], batch.sample_ids, 0, dtype=dtype)
    np.testing.assert_array_equal(found, batch.images, strict=True)


def test_a_path_gives_what_its_bytes_give(tmp_path: Path) -> None:
    path = tmp_path / "bild é.jpg"
    path.write_bytes(FILES[4])
    wanted = Augment(CROP)(FILES[4])
    assert wanted.shape == (3, 32, 32)
    for image in (path, str(path), bytearray(FILES[4]), memoryview(FILES[4])):
        np.testing.assert_array_equal(Augment(CROP)(image), wanted, strict=True)
    np.testing.assert_array_equal(Augment(CROP)([path, scene(40, 40)])[0], wanted)


def test_only_the_region_of_a_jpeg_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    if jpeg.own_decoder() is None:
        pytest.skip("this CPU has no decoder of regions")
    regions = []
    decode_region = jpeg.decode_region

    def spied(data: Any, height: int, width: int, factor: int, region: Any, out: Any) -> bool:
        regions.append(region)
        return decode_region(data, height, width, factor, region, out)

    monkeypatch.setattr(stored_image, "decode_region", spied)
    Augment(CROP)(encoded(scene(300, 420), "JPEG"))
    ((left, top, right, bottom),) = regions
    assert right - left <= 36 and bottom - top <= 36


def test_damage_is_told_with_the_name(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(damaged(jpeg_files(1, [(97, 131)])[0]))
    missing = tmp_path / "missing.jpg"
    large = encoded(scene(40, 50), "PNG")
    for image, options, message in (
        ([FILES[4], damaged(FILES[0])], {}, "^image 1: damaged JPEG"),
        (path, {}, rf"^{path}: damaged JPEG"),
        (missing, {}, f"^{missing}: No such file or directory"),
        (b"", {}, r"^image 0: the file is empty \(0 bytes\)"),
        (b"no picture at all", {}, "^image 0: not a picture"),
        (large, {"max_pixels": 1999}, "^image 0: claims 50x40 = 2000 pixels, more than max_pixels=1999"),
    ):
        with pytest.raises(SampleError, match=message):
            Augment(CROP, **options)(image)
    small = tmp_path / "small.png"
    small.write_bytes(encoded(scene(8, 8), "PNG"))
    with pytest.raises(ValueError, match=rf"^{small}: the photograph is 8x8 pixels, smaller than the crop"):
        Augment(CROP)(small)


def test_max_pixels_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match="^max_pixels=0 must lie in 1"):
        Augment(CROP, max_pixels=0)
