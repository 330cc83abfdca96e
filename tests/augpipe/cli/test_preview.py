"""Contact sheets: the loader's own pixels and draws, laid out so that they can be read."""

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from augpipe import Loader, Recipe, SampleError, Schedule, View, ops, recipes
from augpipe.cli.preview import preview
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.preview import Contents, by_op, draw_sheet, fonts, over_epochs, text
from augpipe.preview.draw import ACCENT, BACKGROUND
from augpipe.preview.layout import CAPTION_PX, MAX_WIDTH_PX, MIN_CELL_PX, arrange
from augpipe.recipes.parts import only_ops, without_normalize
from augpipe.validation import log_once

SEED = 11
DEEP = recipes.deep_image(size=32, scales=(40, 64))
VIEWS = Recipe(
    name="views",
    views=(
        View(ops=(ops.MultiResolutionCrop(size=48, scales=(64,)), ops.Flip(), ops.Normalize()), count=2),
        View(ops=(ops.RandomResizedCrop(size=24), ops.Rotate(), ops.Rotate(max_deg=90), ops.Normalize())),
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of three JPEGs each; the larger ones are decoded at a DCT scale for crops of 32 pixels."""
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(5)
    for number in range(6):
        size = (90, 70) if number % 2 else (420 + 10 * number, 330)
        path = root / ("cat", "dog")[number // 3] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(path, quality=92)
    return root


def loader_images(folder: Path, recipe: Recipe, epoch: int) -> dict[int, list[npt.NDArray[np.uint8]]]:
    """Sample id -> its images, one a view, in the order of that epoch, from a recipe that holds no Normalize."""
    loader = Loader(folder, recipe, batch_size=4, seed=SEED, framework="numpy", dtype="uint8", layout="NHWC")
    loader.set_epoch(epoch)
    found = {}
    for batch in loader:
        views = batch.images if isinstance(batch.images, tuple) else (batch.images,)
        for position, sample_id in enumerate(batch.sample_ids):
            found[int(sample_id)] = [np.array(view[position]) for view in views]
    return found


def strip(recipe: Recipe) -> Recipe:
    """Without Normalize, by hand."""
    if recipe.views:
        views = tuple(View(ops=tuple(op for op in v.ops if op.op != "normalize"), count=v.count) for v in recipe.views)
        return Recipe(views=views)
    return Recipe(ops=tuple(op for op in recipe.ops if op.op != "normalize"))


@pytest.mark.parametrize("recipe", [DEEP, VIEWS, recipes.evaluation(size=32, scale=40)], ids=lambda r: r.name)
def test_cells_are_the_loaders_pixels_of_that_seed_and_epoch(folder: Path, recipe: Recipe) -> None:
    contents = over_epochs(FolderSource(folder), recipe, rows=4, cols=6, seed=SEED, epoch=7)
    num_views = len(recipe.all_views)
    num_epochs = len(contents.rows[0].cells) // num_views
    assert num_epochs == {"deep_image": 6, "views": 2, "evaluation": 1}[recipe.name]
    by_epoch = [loader_images(folder, strip(recipe), 7 + number) for number in range(num_epochs)]
    assert [row.sample_id for row in contents.rows] == list(by_epoch[0])[:4]
    for row in contents.rows:
        expected = [image for images in by_epoch for image in images[row.sample_id]]
        assert len(row.cells) == len(expected)
        for cell, image in zip(row.cells, expected, strict=True):
            np.testing.assert_array_equal(cell.image, image)


def test_some_of_those_images_were_decoded_at_a_dct_scale(folder: Path) -> None:
    # or the test above would not notice a sheet that decodes at full size
    from augpipe.planning.kernel_rows import dct_factors

    loader = Loader(folder, strip(DEEP), batch_size=6, seed=SEED, framework="numpy", dtype="uint8")
    loader.set_epoch(7)
    factors = dct_factors(next(iter(loader)).plan.views)
    assert factors.max() > 1


def test_a_row_says_which_image_it_shows(folder: Path) -> None:
    source = FolderSource(folder)
    (row, *_) = over_epochs(source, DEEP, rows=1, cols=2, seed=SEED).rows
    assert row.class_name == ("cat", "dog")[row.sample_id // 3]
    assert row.name == source.name(row.sample_id)
    assert row.headings == ("original", "epoch 0", "epoch 1")
    with Image.open(row.name) as image:
        difference = row.original.astype(int) - np.asarray(image.convert("RGB")).astype(int)
    assert np.abs(difference).mean() < 1


def test_captions_are_the_plans(folder: Path) -> None:
    contents = over_epochs(FolderSource(folder), DEEP, rows=2, cols=2, seed=SEED)
    loader = Loader(folder, strip(DEEP), batch_size=2, seed=SEED, framework="numpy", dtype="uint8")
    plan = next(iter(loader)).plan
    for position, row in enumerate(contents.rows):
        assert row.cells[0].captions == tuple(words for _, words in plan.captions(position))
        assert row.cells[0].captions != row.cells[1].captions


MIXED = Recipe(
    name="mixed",
    ops=(ops.RandomResizedCrop(size=24), ops.Flip()),
    mixing=(ops.MixUp(alpha=1.0, p=0.4), ops.CutMix(p=0.4)),
)


def test_mixed_images_are_the_loaders_and_name_their_partner(folder: Path) -> None:
    source = FolderSource(folder)
    contents = over_epochs(source, MIXED, rows=6, cols=4, seed=SEED, epoch=3)
    partners, num_alone = set(), 0
    for column in range(4):
        loader = Loader(folder, MIXED, batch_size=6, seed=SEED, framework="numpy", dtype="uint8", layout="NHWC")
        loader.set_epoch(3 + column)
        (batch,) = loader
        position_of = {int(sample_id): position for position, sample_id in enumerate(batch.sample_ids)}
        for row in contents.rows:
            cell, position = row.cells[column], position_of[row.sample_id]
            np.testing.assert_array_equal(cell.image, batch.images[position])
            mixed = batch.plan.rows["mixing"][position]
            if not mixed["kind"]:
                num_alone += 1
                continue
            share, name = cell.captions[-2:]
            assert share.startswith(f"{1 - mixed['weight']:.2f} of sample {mixed['partner']}")
            assert source.name(int(mixed["partner"])).endswith(f"/{name}")
            partners.add(name)
    assert len(partners) > 2 and num_alone > 0


def test_by_op_mixes_in_its_last_column_alone(folder: Path) -> None:
    recipe = MIXED.model_copy(update={"ops": MIXED.ops[:1], "mixing": (ops.CutMix(),)})
    contents = by_op(FolderSource(folder), recipe, rows=3, seed=SEED)
    for row in contents.rows:
        assert row.headings == ("original", "random_resized_crop", "all together")
        assert row.cells[1].captions[0] == row.cells[0].captions[0]
        assert row.cells[1].captions[1].endswith("pasted") and len(row.cells[0].captions) == 1


def test_each_column_shows_the_recipe_of_its_epoch(folder: Path) -> None:
    stages = {0: recipes.evaluation(size=16, scale=40), 5: recipes.evaluation(size=32, scale=40)}
    contents = over_epochs(FolderSource(folder), Schedule.of(stages), rows=2, cols=3, seed=SEED, epoch=4)
    for row in contents.rows:
        assert row.headings == ("original", "epoch 4, 16x16", "epoch 5, 32x32", "epoch 6, 32x32")
        assert [cell.image.shape for cell in row.cells] == [(16, 16, 3), (32, 32, 3), (32, 32, 3)]
    for epoch, size in ((4, 16), (5, 32)):
        (row,) = by_op(FolderSource(folder), Schedule.of(stages), rows=1, seed=SEED, epoch=epoch).rows
        assert row.cells[0].image.shape == (size, size, 3)


def test_the_command_takes_a_schedule(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Schedule.of({0: DEEP, 2: MIXED.model_copy(update={"ops": (*MIXED.ops, ops.Normalize())})}).dump(
        tmp_path / "growing.toml"
    )
    sheet = tmp_path / "sheet.png"
    preview(str(folder), recipe=[str(tmp_path / "growing.toml")], out=sheet, rows=2, cols=3, epoch=1)
    assert capsys.readouterr().out == f"{sheet}: 2 photographs, recipe growing\n"
    with Image.open(sheet) as image:
        assert image.width > 0


def test_a_recipe_that_draws_nothing_needs_one_column(folder: Path) -> None:
    contents = over_epochs(FolderSource(folder), recipes.none(), rows=6, cols=5)
    assert [len(row.cells) for row in contents.rows] == [1] * 6
    assert "alike in every epoch" in contents.note
    for row in contents.rows:
        np.testing.assert_array_equal(row.cells[0].image, row.original)
        assert row.cells[0].captions == (f"{row.original.shape[1]}x{row.original.shape[0]} px",)


def test_by_op_shows_the_crop_then_each_op_then_all(folder: Path) -> None:
    contents = by_op(FolderSource(folder), DEEP, rows=3, seed=SEED, epoch=2)
    keys = ["multi_resolution_crop", "color_cast", "vignette", "lens_distortion", "rotate", "flip"]
    crop = DEEP.ops[5]
    whole = loader_images(folder, strip(DEEP), 2)
    for row in contents.rows:
        assert row.headings == ("original", *keys, "all together")
        np.testing.assert_array_equal(row.cells[-1].image, whole[row.sample_id][0])
    for column, key in enumerate(keys):
        op = next(op for op in DEEP.ops if op.op == key)
        alone = loader_images(folder, Recipe(ops=(op,) if op is crop else (op, crop)), 2)
        for row in contents.rows:
            np.testing.assert_array_equal(row.cells[column].image, alone[row.sample_id][0])


def test_by_op_draws_as_the_whole_recipe_does(folder: Path) -> None:
    for row in by_op(FolderSource(folder), DEEP, rows=3, seed=SEED).rows:
        said = [caption for cell in row.cells[:-1] for caption in cell.captions if caption != "unchanged"]
        assert sorted(said) == sorted(row.cells[-1].captions)


def test_the_second_op_of_a_kind_keeps_its_draws_without_the_first() -> None:
    from augpipe import plan

    shown = without_normalize(VIEWS)
    ids, sizes = np.arange(20), np.tile([70, 90], (20, 1))
    whole = plan(shown, ids, sizes=sizes, seed=SEED).views[2]["drawn"]
    alone = plan(only_ops(shown, 2, ["rotate_2"]), ids, sizes=sizes, seed=SEED).views[2]["drawn"]
    np.testing.assert_array_equal(alone["rotate_2"], whole["rotate_2"])
    assert not alone["rotate"]["degrees"].any() and whole["rotate"]["degrees"].all()
    first = plan(only_ops(shown, 2, ["rotate"]), ids, sizes=sizes, seed=SEED).views[2]["drawn"]
    np.testing.assert_array_equal(first["rotate"], whole["rotate"])
    assert "rotate_2" not in first.dtype.names


def test_by_op_has_a_row_for_each_different_view(folder: Path) -> None:
    rows = by_op(FolderSource(folder), VIEWS, rows=1, seed=SEED).rows
    assert [row.headings for row in rows] == [
        ("original, view 1", "multi_resolution_crop", "flip", "all together"),
        ("original, view 3", "random_resized_crop", "rotate", "rotate_2", "all together"),
    ]
    whole = loader_images(folder, strip(VIEWS), 0)[rows[0].sample_id]
    np.testing.assert_array_equal(rows[0].cells[-1].image, whole[0])
    np.testing.assert_array_equal(rows[1].cells[-1].image, whole[2])


def test_a_bad_image_is_named_or_skipped(folder: Path, tmp_path: Path) -> None:
    good = (folder / "cat" / "0.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(good)
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    source = FolderSource(tmp_path)
    with pytest.raises(SampleError, match="b.jpg: not a picture"):
        over_epochs(source, DEEP, rows=2)
    for contents in (over_epochs(source, DEEP, rows=2, on_error="skip"), by_op(source, DEEP, rows=2, on_error="skip")):
        assert [row.name for row in contents.rows] == [str(tmp_path / "a.jpg")]
        assert list(contents.skipped) == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows=0 must be at least 1"),
        ({"cols": 0}, "cols=0 must be at least 1"),
        ({"seed": -1}, "seed=-1 must lie in"),
        ({"epoch": 2**32}, "epoch=4294967296 must lie in"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, int], message: str) -> None:
    source = ArraySource([np.zeros((50, 60, 3), np.uint8)])
    with pytest.raises(ValueError, match=message):
        over_epochs(source, DEEP, **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"serve": True, "rows": 3}, "--rows is for a sheet, and --serve shows a page"),
        ({"serve": True, "steps": True}, "--steps is for a sheet"),
        ({"serve": True, "without": ["rotate"]}, "--without is for a sheet"),
        ({"port": 8000}, "--port 8000 is for --serve"),
        ({"serve": True, "sample": [99]}, "sample 99 is out of range"),
        ({"serve": True, "epoch": 2**32}, "epoch=4294967296 must be at most"),
    ],
)
def test_a_sheet_and_the_page_do_not_share_options(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preview(folder, **options)


def test_gray_arrays_and_alpha_are_shown() -> None:
    images = [np.full((50, 60), 7, np.uint8), np.full((50, 60, 1), 8, np.uint8), np.full((50, 60, 4), 9, np.uint8)]
    contents = over_epochs(ArraySource(images), recipes.none(), rows=3)
    for row in contents.rows:
        np.testing.assert_array_equal(row.original, np.full((50, 60, 3), 7 + row.sample_id))
        np.testing.assert_array_equal(row.cells[0].image, row.original)


def make_sheet(folder: Path, show: Callable[..., Contents], recipe: Recipe, **arguments: int) -> Contents:
    return show(FolderSource(folder), recipe, seed=SEED, **arguments)


@pytest.mark.parametrize("cols", [1, 5, 14])
def test_nothing_overlaps_or_leaves_the_sheet(folder: Path, cols: int) -> None:
    layout = arrange(make_sheet(folder, over_epochs, DEEP, rows=3, cols=cols))
    assert layout.width <= MAX_WIDTH_PX and layout.cell_px >= MIN_CELL_PX
    areas = []
    for image in layout.pictures:
        left, top, right, bottom = image.box
        widest = max(text.width_px(line, CAPTION_PX) for line in image.caption)
        end = image.caption_y + len(image.caption) * text.line_height_px(CAPTION_PX)
        assert bottom <= image.caption_y and widest <= layout.cell_px
        areas.append((left, top, max(right, left + int(widest)), end))
    for number, (left, top, right, bottom) in enumerate(areas):
        assert left >= 0 and top >= 0 and right <= layout.width and bottom <= layout.height
        for other in areas[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_a_sheet_shows_cells_pixel_by_pixel(folder: Path) -> None:
    contents = make_sheet(folder, over_epochs, recipes.deep_image(size=180, scales=(190,)), rows=2, cols=2)
    sheet, layout = np.asarray(draw_sheet(contents)), arrange(contents)
    assert sheet.shape == (layout.height, layout.width, 3) and layout.cell_px == 180
    assert tuple(sheet[0, 0]) == BACKGROUND
    num_compared = 0
    for image in layout.pictures:
        if image.cell is not None:
            left, top, right, bottom = image.box
            shown = sheet[top + 8 : bottom - 8, left + 8 : right - 8]
            np.testing.assert_array_equal(shown, contents.rows[image.row].cells[image.cell].image[8:-8, 8:-8])
            num_compared += 1
    assert num_compared == 4


def test_a_sheet_by_op_outlines_the_crop(folder: Path) -> None:
    sheets = [
        np.asarray(draw_sheet(make_sheet(folder, by_op, DEEP, rows=1))),
        np.asarray(draw_sheet(make_sheet(folder, over_epochs, DEEP, rows=1, cols=2))),
    ]
    assert [bool((sheet == ACCENT).all(axis=2).any()) for sheet in sheets] == [True, False]


def test_a_narrow_image_can_be_drawn() -> None:
    source = ArraySource([np.full((1, 4000, 3), 90, np.uint8), np.full((3000, 2, 3), 90, np.uint8)])
    sheet = draw_sheet(over_epochs(source, recipes.evaluation(size=8, scale=8), rows=2))
    assert sheet.width <= MAX_WIDTH_PX and sheet.height <= 2 * MAX_WIDTH_PX


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[a-z+-]{1,60}( [a-z]{1,9}){0,3}", fullmatch=True), max_size=6), st.integers(80, 400))
def test_wrapped_lines_fit_and_lose_nothing_that_fits(parts: list[str], limit: int) -> None:
    lines = text.wrap(parts, CAPTION_PX, limit)
    assert all(text.width_px(line, CAPTION_PX) <= limit for line in lines)
    words = [word for part in parts for word in part.split(" ")]
    if all(text.width_px(word, CAPTION_PX) <= limit for word in words):
        assert [word for line in lines for word in line.split() if word != "·"] == words


def test_a_name_that_is_too_long_keeps_its_ends() -> None:
    short = text.shorten("n01440764_a_very_long_name_indeed.JPEG", 14, 150)
    assert short.startswith("n014") and short.endswith("JPEG") and "…" in short
    assert text.shorten("short", 14, 150) == "short"


def ink(words: str) -> int:
    """How many pixels a line of text darkens, with a check that it stays within its measured width."""
    sheet = Image.new("RGB", (400, 40), (255, 255, 255))
    text.draw(ImageDraw.Draw(sheet), (5, 5), words, (0, 0, 0), 20)
    columns = np.flatnonzero((np.asarray(sheet) < 200).any(axis=(0, 2)))
    assert columns.min() >= 4 and columns.max() <= 7 + text.width_px(words, 20)
    return int((np.asarray(sheet) < 200).any(axis=2).sum())


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets the fonts that are there besides Pillow's own: by name, in matplotlib's folder, in the machine's folders."""
    find_spec = importlib.util.find_spec

    def forget() -> None:
        for known in (fonts._candidates, fonts._opens, fonts.has_letter, fonts.font_of, text._letter):
            known.cache_clear()
        log_once._LOGGED.clear()

    def use(*names: str, matplotlib: bool = False, folders: tuple[str, ...] = ()) -> None:
        monkeypatch.setattr(fonts, "FALLBACKS", names)
        monkeypatch.setattr(fonts, "FOLDERS", folders)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: find_spec(name) if matplotlib else None)
        forget()

    yield use
    monkeypatch.undo()
    forget()


def dejavu() -> str:
    """The path of a font of Latin, Cyrillic and Greek letters, without Chinese ones."""
    return str(pytest.importorskip("matplotlib").get_data_path()) + "/fonts/ttf/DejaVuSans.ttf"


def test_letters_that_no_font_has_are_escaped(installed: Any) -> None:
    installed("no such font.ttf")
    assert text.legible("plain +3° · 20%") == "plain +3° · 20%"
    assert text.legible("Zoë 漢字.jpg") == "Zoe \\u6f22\\u5b57.jpg"
    assert ink(text.legible("漢")) > 0


def test_the_log_says_once_which_package_draws_a_script(installed: Any, caplog: pytest.LogCaptureFixture) -> None:
    installed()
    for name in ("写真ï.jpg", "漢字.jpg", "한글", "plain", "naïve", "Привет", "😀"):
        text.legible(name)
    assert [record.getMessage() for record in caplog.records] == [
        "No font here has 写真: preview sheets show \\u5199\\u771f. On Debian and Ubuntu, install fonts-noto-cjk to "
        "draw this script.",
        "No font here has ï: preview sheets show i. On Debian and Ubuntu, install fonts-noto-core to draw this script.",
    ]


@pytest.mark.parametrize("name", ["naïve", "nai\u0308ve"])  # macOS writes file names with the accent apart
def test_a_word_with_accents_keeps_them_and_is_drawn_by_one_font(name: str, installed: Any) -> None:
    installed(dejavu())
    assert text.legible(name) == "naïve"
    assert list(text._runs("a naïve 7")) == [(fonts.OWN, "a "), (dejavu(), "naïve"), (fonts.OWN, " 7")]
    assert list(text._runs("64×64")) == [(fonts.OWN, "64"), (dejavu(), "×"), (fonts.OWN, "64")]


def test_letters_of_other_scripts_are_drawn_by_a_font_that_has_them(installed: Any) -> None:
    installed("no such font.ttf", dejavu())
    assert text.legible("Жук 漢 Zoë") == "Жук \\u6f22 Zoë"
    assert list(text._runs("Жук 7")) == [(dejavu(), "Жук"), (fonts.OWN, " 7")]
    assert ink("Жук") != ink("Жжж")
    assert text.shorten("Жук" * 20, 14, 150).startswith("Жук")


def test_fonts_of_matplotlib_are_found_without_importing_it(installed: Any) -> None:
    installed(matplotlib=True)
    assert fonts.font_of("Ж") == dejavu()
    assert fonts.font_of("漢") is None  # matplotlib's font of last resort draws a box for any letter


def test_fonts_of_the_machine_are_found_in_its_folders(installed: Any, tmp_path: Path) -> None:
    folder = tmp_path / "truetype/any"
    folder.mkdir(parents=True)
    (folder / "broken.ttf").write_bytes(b"hello")
    for name in ("ASerif.ttf", "Sans-Bold.ttf", "Sans.ttf"):
        shutil.copy(dejavu(), folder / name)
    installed(folders=(str(tmp_path / "missing"), str(tmp_path)))
    assert fonts.font_of("Ж") == str(folder / "Sans.ttf")
    assert text.legible("Привет") == "Привет"


def test_bytes_of_a_name_that_are_no_text_are_escaped(installed: Any) -> None:
    installed(dejavu())
    assert text.legible("a\udcff") == "a\\udcff"
