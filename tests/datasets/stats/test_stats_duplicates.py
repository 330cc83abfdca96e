"""Planted duplicates: same bytes, same pixels, look-alikes, and what is none; near hashes against all pairs."""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.stats import fingerprints
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.datasets.stats.collect import collect_statistics
from augpipe.datasets.stats.duplicates import Duplicates, class_name, near_groups
from tests.augpipe.decoding.image_files import encoded, scene, write_files


def photograph(seed: int) -> Image.Image:
    """Blurred noise: other shapes for every seed, as images have."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((240, 180), Image.Resampling.BICUBIC)


def groups_of(found: Duplicates, kind: str, folder: Path) -> set[frozenset[str]]:
    return {
        frozenset(str(Path(member.name).relative_to(folder)) for member in group.members)
        for group in found.groups
        if group.kind == kind
    }


def find(folder: Path, threads: int = 2) -> Duplicates:
    found = collect_statistics(FolderSource(folder), num_threads=threads).duplicates
    assert found is not None
    return found


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Twenty different images, and copies of six of them."""
    images = [photograph(seed) for seed in range(20)]
    files = {f"cat/{number:02}.jpg": encoded(image, "JPEG", quality=92) for number, image in enumerate(images)}
    files |= {
        "cat/00 copy.jpg": files["cat/00.jpg"],
        "dog/00 copy.jpg": files["cat/00.jpg"],
        "dog/01 note.jpg": encoded(images[1], "JPEG", quality=92, comment=b"another file, the same picture"),
        "dog/02 again.jpg": encoded(images[2], "JPEG", quality=35),
        "cat/03 small.png": encoded(images[3].resize((120, 90)), "PNG"),
        "dog/04 mirrored.png": encoded(ImageOps.mirror(images[4]), "PNG"),
        "cat/04 stored.png": encoded(images[4], "PNG"),
    }
    write_files(tmp_path, files)
    return tmp_path


def test_planted_duplicates_are_found_and_nothing_else(planted: Path) -> None:
    pytest.importorskip("imagehash")
    found = find(planted)
    assert found.has_look_alikes
    assert groups_of(found, "same_bytes", planted) == {frozenset({"cat/00.jpg", "cat/00 copy.jpg", "dog/00 copy.jpg"})}
    assert groups_of(found, "same_pixels", planted) == {frozenset({"cat/01.jpg", "dog/01 note.jpg"})}
    assert groups_of(found, "look_alike", planted) == {
        frozenset({"cat/02.jpg", "dog/02 again.jpg"}),
        frozenset({"cat/03.jpg", "cat/03 small.png"}),
        frozenset({"cat/04.jpg", "cat/04 stored.png"}),
    }
    assert found.num_extra == {"same_bytes": 2, "same_pixels": 1, "look_alike": 3}
    contradicting = {Path(group.members[0].name).name[:2] for group in found.groups if group.contradicts}
    assert contradicting == {"00", "01", "02"}


def test_without_imagehash_the_rest_is_found(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imagehash", None)  # as if it were not installed
    monkeypatch.setattr(fingerprints.importlib.util, "find_spec", lambda name: None)
    found = find(planted)
    assert not found.has_look_alikes
    assert found.num_extra == {"same_bytes": 2, "same_pixels": 1}
    assert {group.kind for group in found.groups} == {"same_bytes", "same_pixels"}


def test_equal_sums_are_not_yet_equal_pixels() -> None:
    image = scene(20, 30)
    shuffled = image.reshape(-1, 3)[np.random.default_rng(0).permutation(600)].reshape(20, 30, 3)
    gray, gray_as_rgb = image[..., 0], np.repeat(image[..., :1], 3, axis=2)
    images = [image, image[:, ::-1], image[::-1], shuffled, image.reshape(30, 20, 3), image.copy(), gray, gray_as_rgb]
    found = collect_statistics(ArraySource(images), num_threads=2).duplicates
    assert found is not None
    kinds = {group.kind: [member.sample_id for member in group.members] for group in found.groups}
    assert kinds["same_bytes"] == [0, 5]
    assert kinds["same_pixels"] == [6, 7]  # an array of one channel and one of three


def test_flat_images_do_not_look_alike() -> None:
    pytest.importorskip("imagehash")
    rng = np.random.default_rng(0)
    flat = [np.full((40, 40, 3), level, np.uint8) for level in (10, 128, 250)]
    flat += [(image + rng.integers(0, 3, image.shape)).astype(np.uint8) for image in flat]
    found = collect_statistics(ArraySource(flat)).duplicates
    assert found is not None and found.has_look_alikes and found.groups == ()


@pytest.mark.parametrize("varying", [0, 1, 2])
def test_an_image_that_varies_in_one_channel_alone_is_not_flat(varying: int) -> None:
    pytest.importorskip("imagehash")
    pixels = np.full((40, 40, 4), 128, np.uint8)
    assert fingerprints.perceptual_hash(pixels, ChannelSums.of(pixels)) is None
    pixels[..., varying] = np.asarray(photograph(0).resize((40, 40)).convert("L"))
    assert fingerprints.perceptual_hash(pixels, ChannelSums.of(pixels)) is not None


def test_a_class_without_a_name_is_its_number() -> None:
    assert [class_name(("cat", "dog"), label) for label in (-1, 0, 1, 2)] == [None, "cat", "dog", "2"]


def test_labels_of_none_contradict_nothing() -> None:
    image = scene(30, 30)
    for labels, contradicts in (([-1, 0], False), ([-1, -1], False), ([1, 1], False), ([0, 1], True)):
        found = collect_statistics(ArraySource([image, image], labels)).duplicates
        assert found is not None
        (group,) = found.groups
        assert group.contradicts == contradicts


def test_the_hash_is_the_librarys_bit_for_bit() -> None:
    imagehash = pytest.importorskip("imagehash")
    image = photograph(3).resize((64, 64))
    pixels = np.asarray(image.convert("RGBA"))
    bits = imagehash.phash(image).hash.ravel()
    assert fingerprints.perceptual_hash(pixels, ChannelSums.of(pixels)) == int(
        "".join("01"[int(bit)] for bit in bits), 2
    )


def all_pairs(hashes: npt.NDArray[np.uint64], max_distance: int) -> list[int]:
    """The oracle: flood from each hash in turn over all that are near."""
    near = np.bitwise_count(hashes[:, None] ^ hashes[None]) <= max_distance
    groups = [-1] * len(hashes)
    for start in range(len(hashes)):
        pending = [start] if groups[start] < 0 else []
        while pending:
            at = pending.pop()
            if groups[at] < 0:
                groups[at] = start
                pending.extend(np.flatnonzero(near[at]).tolist())
    return groups


@pytest.mark.parametrize("max_distance", [0, 1, 4, 7])
@pytest.mark.parametrize("seed", range(4))
def test_near_groups_are_those_of_all_pairs(seed: int, max_distance: int) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2**64, 40, dtype=np.uint64)
    hashes = rng.choice(centres, 400)
    for _ in range(9):  # up to nine flips away from a centre: some near, some not, some by chains
        flips = rng.random(400) < 0.25
        hashes[flips] ^= np.uint64(1) << rng.integers(0, 64, int(flips.sum()), dtype=np.uint64)
    found = near_groups(hashes, 64, max_distance).tolist()
    assert found == all_pairs(hashes, max_distance)
    assert 1 < len(set(found)) < 400


def test_near_groups_of_few() -> None:
    assert near_groups(np.zeros(0, np.uint64), 64, 4).tolist() == []
    assert near_groups(np.array([7], np.uint64), 64, 4).tolist() == [0]
    assert near_groups(np.array([7, 7, 2**64 - 1, 6], np.uint64), 64, 4).tolist() == [0, 0, 2, 0]


def test_the_distance_is_where_it_is_said_to_be() -> None:
    base = np.uint64(0x0123456789ABCDEF)
    for places in ([0, 1, 2, 3], [0, 13, 26, 39], [60, 61, 62, 63]):
        flipped = base
        for place in places:
            flipped ^= np.uint64(1) << np.uint64(place)
        assert near_groups(np.array([base, flipped]), 64, 4).tolist() == [0, 0]
        assert near_groups(np.array([base, flipped ^ np.uint64(1 << 50)]), 64, 4).tolist() == [0, 1]
