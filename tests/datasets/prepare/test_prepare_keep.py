"""`keep`: a data set becomes shards of the very same files, and a loader makes the same batches of both."""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from augpipe import Loader, Recipe, recipes
from augpipe.cli.app import app
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.open import open_source
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.manifest import Manifest
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.decoding.row_index import row_index_of
from augpipe.ops import CenterCrop, Flip, MultiResolutionCrop
from tests.augpipe.decoding.image_files import (
    bad_files,
    encoded,
    exif,
    jpeg_kinds,
    odd_files,
    other_kinds,
    scene,
    write_files,
)
from tests.augpipe.loader.loader_sources import MemorySource
from tests.contracts.backends import assert_same
from tests.datasets.prepare.prepare_sources import InlineEngine, prepare_inline, red_is_green_profile, tree
from tests.datasets.shards.shard_sets import forge_index, sums_of

KEEP = PrepareSettings(keep=True)
LARGE = {f"large {kind}": data for kind, data in jpeg_kinds(200, 280).items()}
FILES = {
    **{f"kinds/{name}": data for name, data in {**jpeg_kinds(), **other_kinds(), **LARGE}.items()},
    **{f"odd/{name}": data for name, (data, _) in odd_files().items()},
    **{f"turned/{turn}": encoded(scene(150, 210, turn), "JPEG", exif=exif(turn)) for turn in range(1, 9)},
    "with a profile/red is green.jpg": encoded(scene(60, 80), "JPEG", icc_profile=red_is_green_profile()),
}
"""Everything that is read, under names with an extension."""
NAMED = {name if "." in name else f"{name}.jpg": data for name, data in FILES.items()}
EXTENSIONS = {"JPEG": "jpg", "PNG": "png", "WebP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif"}
ZOOMS = Recipe(name="zooms", ops=(MultiResolutionCrop(size=8, scales=(20, 120)), Flip()))
"""Some images of it are decoded at a half or less, but for those that are turned or no JPEG."""


def unlabelled(contents: Sequence[bytes]) -> MemorySource:
    return MemorySource(contents, [-1] * len(contents))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "photos"
    write_files(folder, NAMED)
    return folder


@pytest.fixture(scope="module")
def kept(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "out"
    prepare_inline(photos, out, KEEP)
    return out


def test_every_file_is_there_byte_by_byte(photos: Path, kept: Path) -> None:
    source, made = FolderSource(photos), open_source(kept)
    assert isinstance(made, ShardSource) and made.scale == "full"
    assert len(made) == len(source) == len(NAMED) and list(made.classes) == list(source.classes)
    formats = set()
    for i in range(len(source)):
        data = source.read(i)
        header = probe(data, max_pixels=MAX_PIXELS)
        assert made.read(i) == data and made.label(i) == source.label(i)
        assert made.size(i) == (header.height, header.width), "as the image shows, upright"
        assert made.name(i).endswith(f".{EXTENSIONS[header.format]}"), "by content, whatever its name was"
        formats.add(header.format)
    assert formats == set(EXTENSIONS)
    assert verify(kept, deep=True) == []


def test_every_jpeg_of_which_regions_are_decoded_has_its_row_index(kept: Path) -> None:
    source = ShardSource(kept)
    lengths = []
    for i in range(len(source)):
        data = source.read(i)
        header = probe(data, max_pixels=MAX_PIXELS)
        expected = row_index_of(data, header.height, header.width) if header.may_crop else b""
        assert source.row_index(i) == expected
        lengths.append(len(expected))
    assert 0 in lengths and max(lengths) > 50


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("recipe", [ZOOMS, recipes.deep_image(32, (48, 64)), Recipe(ops=(CenterCrop(size=16),))])
def test_a_loader_makes_the_same_batches_of_both(photos: Path, kept: Path, recipe: Recipe, num_threads: int) -> None:
    options: dict[str, Any] = {"batch_size": 7, "framework": "numpy", "seed": 3, "on_error": "skip"}
    one, other = (Loader(str(path), recipe, num_threads=num_threads, **options) for path in (photos, kept))
    for _ in range(2):
        assert assert_same(one, list(other)) == len(NAMED)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_files_in_any_order(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    contents = data.draw(st.lists(st.sampled_from([*FILES.values()]), min_size=1, max_size=12))
    out = tmp_path_factory.mktemp("some") / "out"
    prepare(unlabelled(contents), out, KEEP, engine=InlineEngine())
    made = ShardSource(out)
    assert [made.read(i) for i in range(len(made))] == contents and verify(out, deep=True) == []
    options: dict[str, Any] = {"batch_size": 5, "framework": "numpy", "num_threads": 2}
    seed = data.draw(st.integers(0, 2**32))
    one, other = (Loader(source, ZOOMS, seed=seed, **options) for source in (unlabelled(contents), made))
    assert assert_same(one, list(other)) == len(contents)


@pytest.mark.slow
def test_the_bytes_are_the_same_again_and_the_numbers_are_those_of_the_pixels(
    photos: Path, kept: Path, tmp_path: Path
) -> None:
    manifest = prepare_inline(photos, tmp_path / "out", KEEP)
    assert tree(tmp_path / "out") == tree(kept)
    pixels = [decode(data, probe(data, max_pixels=MAX_PIXELS))[..., :3].reshape(-1, 3) for data in FILES.values()]
    joined = np.concatenate(pixels) / 255
    np.testing.assert_allclose(manifest.mean, joined.mean(axis=0))
    np.testing.assert_allclose(manifest.std, joined.std(axis=0))
    report = (kept / "report.html").read_text()
    assert f"files kept byte by byte, counted at each scale</th><td>{len(FILES)}<" in report


def test_tar_names_and_notes(kept: Path) -> None:
    with tarfile.open(kept / "full/000000.tar") as tar:
        names = tar.getnames()
        (first,) = (name for name in names if name.startswith("000000000-") and name.endswith(".json"))
        file = tar.extractfile(first)
        assert file is not None
        note = json.load(file)
    assert {name.rpartition(".")[2] for name in names} <= {*EXTENSIONS.values(), "cls", "json"}
    assert note["is_original"] is True and note["original_format"] in EXTENSIONS
    assert (note["height"], note["width"]) == (note["original_height"], note["original_width"])


def test_what_the_loader_would_refuse_is_rejected_with_its_reason(tmp_path: Path) -> None:
    bad = {f"{number}.jpg": data for number, (data, _) in enumerate(bad_files().values())}
    write_files(tmp_path / "photos", {**bad, "good.png": FILES["odd/palette.png"]})
    settings = PrepareSettings(keep=True, max_pixels=1_000_000)
    manifest = prepare_inline(tmp_path / "photos", tmp_path / "out", settings, on_error="skip")
    assert (manifest.num_samples, manifest.num_rejected) == (1, len(bad))
    assert ShardSource(tmp_path / "out").read(0) == FILES["odd/palette.png"]


def test_arrays_have_nothing_to_keep(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it is an array, and keep packs files as they are: leave keep out"):
        prepare(ArraySource([scene(8, 8)]), tmp_path / "out", KEEP, engine=InlineEngine())
    assert not (tmp_path / "out").exists()


def test_deep_finds_another_row_index(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(unlabelled([LARGE["large 420"]] * 2), out, KEEP, engine=InlineEngine())
    index = out / "full/000000.idx"
    forge_index(index, 0, row_end=ShardSource(out)._indices[0][0].row_end - 1)
    manifest = Manifest.load(out)
    (scale,) = manifest.scales
    shard = scale.shards[0].model_copy(update=sums_of(index.read_bytes()))
    manifest.model_copy(update={"scales": (scale.model_copy(update={"shards": (shard,)}),)}).save(out)
    assert verify(out) == []
    assert [(fault.sample_id, fault.reason) for fault in verify(out, deep=True)] == [
        (i, "its row index is not the one that is found in the photograph") for i in range(2)
    ]


def test_a_shard_whose_index_was_cut_short_is_made_again(photos: Path, kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare_inline(photos, out, KEEP, engine=InlineEngine(stop_before=1))
    index = out / "full/000000.idx"
    index.write_bytes(index.read_bytes()[:-1])
    prepare_inline(photos, out, KEEP, resume=True)
    assert tree(out) == tree(kept)


# --- what does not go with it


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"scales": ("256",)}, "scales"),
        ({"scales": ("512",)}, "scales"),
        ({"scales": ("256", "full")}, "scales"),
        ({"quality": 80}, "quality"),
        ({"originals": "always", "upscale": True}, "upscale, originals"),
        ({"subsampling": "4:4:4", "linear_light": True}, "subsampling, linear_light"),
    ],
)
def test_settings_that_would_change_images_are_refused(options: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=f"keep packs the files as they are, and {names} would change them: leave out"):
        PrepareSettings(keep=True, **options)


def test_settings_come_back_as_they_were() -> None:
    assert PrepareSettings.model_validate_json(KEEP.model_dump_json()) == KEEP
    assert KEEP.scales == ("full",) and PrepareSettings(keep=True, scales=("full",)) == KEEP


@pytest.mark.parametrize(
    ("option", "value"),
    [("scales", "512"), ("quality", "90"), ("subsampling", "4:2:0"), ("upscale", ""), ("linear-light", "")],
)
def test_the_command_refuses_them_even_at_their_defaults(photos: Path, tmp_path: Path, option: str, value: str) -> None:
    given = [f"--{option}", *([value] if value else [])]
    ended = CliRunner().invoke(app, ["prepare", str(photos), str(tmp_path / "out"), "--keep", *given])
    assert ended.exit_code == 2 and f"--{option} would change them: leave out" in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_says_what_it_did_and_resumes(photos: Path, kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = CliRunner().invoke(app, ["prepare", str(photos), str(out), "--keep", "--workers", "1"])
    assert ended.exit_code == 0, ended.output
    assert "  the files as they were, byte by byte\n" in ended.stdout
    assert tree(out) == tree(kept), "the engine does not show"
    assert "all is well" in CliRunner().invoke(app, ["verify", str(out), "--deep"]).stdout
    other = CliRunner().invoke(app, ["prepare", str(photos), str(out), "--resume"])
    assert other.exit_code == 2 and "keep: True there, False asked for" in other.stderr
    assert CliRunner().invoke(app, ["prepare", str(photos), str(out), "--keep", "--resume"]).exit_code == 0
    statistics = CliRunner().invoke(app, ["stats", str(out)])
    assert statistics.exit_code == 0, statistics.output
