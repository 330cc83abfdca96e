"""A run goes on with the source, the held-out images and the recipe that it was begun with, or not at all."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from augpipe import recipes
from augpipe.cli.app import app
from augpipe.datasets.open import open_source
from augpipe.trainer.evaluation import evaluate_runs
from augpipe.trainer.evaluation.trained_run import open_run
from augpipe.trainer.loop import run
from augpipe.trainer.loop.data import open_sources, with_classes
from augpipe.trainer.loop.run_data import read_data
from augpipe.trainer.loop.world import open_world
from tests.augpipe.decoding.image_files import encoded, scene, write_files
from tests.distributed.train_runs import config, write_photos

HELD: dict[str, Any] = {"eval_fraction": 0.25}


def test_a_source_in_which_one_file_stands_for_another_is_refused(tmp_path: Path) -> None:
    """As many as before: what was held out is trained on, and the other way about."""
    photos = write_photos(tmp_path, 16)
    run(config(tmp_path / "run", photos, data=HELD, max_steps=1))
    (photos / "c0/000.jpg").rename(photos / "c0/0000.jpg")
    with pytest.raises(ValueError, match=r"photos. is not what the run .* trained on .other names.*choose another"):
        run(config(tmp_path / "run", photos, data=HELD, max_steps=2))
    (photos / "c0/0000.jpg").rename(photos / "c0/000.jpg")
    assert run(config(tmp_path / "run", photos, data=HELD, max_steps=2)).step == 2


def test_another_share_is_refused(tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 16)
    run(config(tmp_path / "run", photos, data=HELD, max_steps=1))
    for tables, said in (
        ({"data": {"eval_fraction": 0.5}}, r"data\.eval_fraction: 0\.25, now 0\.5"),
        ({"data": {"eval_fraction": 0.25}, "seed": 1}, r"seed: 0, now 1"),
        ({}, r"data\.eval_fraction: 0\.25, now 0"),
    ):
        with pytest.raises(ValueError, match=rf"{said}.*other photographs .*trained on"):
            run(config(tmp_path / "run", photos, max_steps=2, **tables))


def test_a_moved_source_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    photos = write_photos(tmp_path, 8)
    monkeypatch.chdir(tmp_path)
    run(config(tmp_path / "run", Path("photos"), max_steps=1))
    assert json.loads((tmp_path / "run/data.json").read_text())["source"]["place"] == str(photos)
    shutil.move(photos, tmp_path / "moved")
    assert run(config(tmp_path / "run", tmp_path / "moved", max_steps=2)).step == 2
    assert f"data.source is {tmp_path}/moved now, and was {photos}" in caplog.text
    assert json.loads((tmp_path / "run/data.json").read_text())["source"]["place"] == str(tmp_path / "moved")


def test_a_recipe_that_was_edited_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = write_photos(tmp_path, 8)
    tables = {"data": {"recipe": str(tmp_path / "mine.toml")}}
    recipes.deep_image(16, (18, 20)).dump(tmp_path / "mine.toml")
    run(config(tmp_path / "run", photos, max_steps=1, **tables))
    recipes.deep_image(16, (18, 22)).dump(tmp_path / "mine.toml")
    with pytest.raises(ValueError, match=r"mine\.toml' is not the recipe.*ops\[5\]\.scales\[1\]: 20, now 22"):
        run(config(tmp_path / "run", photos, max_steps=2, **tables))
    with pytest.raises(ValueError, match=r"'deep_image' is not the recipe.*ops\[5\]\.scales\[1\]: 20, now 24"):
        run(config(tmp_path / "run", photos, max_steps=2, data={"scales": [18, 24]}))
    assert run(config(tmp_path / "run", photos, max_steps=2)).step == 2  # the same one by its name


def test_a_run_of_another_releases_pixels_is_refused(tmp_path: Path) -> None:
    photos, kept = write_photos(tmp_path, 8), tmp_path / "run/data.json"
    run(config(tmp_path / "run", photos, max_steps=1))
    text = kept.read_text()
    kept.write_text(text.replace("pixels = 2", "pixels = 3"))
    with pytest.raises(
        ValueError, match=r"/run was begun with pixels = 3, and this augpipe makes pixels = 2: .* out\."
    ):
        run(config(tmp_path / "run", photos, max_steps=2))
    kept.write_text(text.replace("pixels = 2\\n", ""))  # as by releases that did not say
    assert "pixels" not in kept.read_text()
    with pytest.raises(ValueError, match=r"/run was begun with pixels = 1, and this augpipe makes pixels = 2: "):
        run(config(tmp_path / "run", photos, max_steps=2))


def test_another_evaluation_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing of the training, and numbers are not comparable any more."""
    (tmp_path / "eval").mkdir()
    photos, held = write_photos(tmp_path, 8), write_photos(tmp_path / "eval", 6)
    run(config(tmp_path / "run", photos, max_steps=1, data={"eval_source": str(held)}))
    write_files(held, {"c0/099.jpg": encoded(scene(24, 24, 5), "JPEG")})
    run(config(tmp_path / "run", photos, max_steps=2, data={"eval_source": str(held), "eval_scale": 24}))
    assert "data.eval_source is evaluated otherwise than before: 6 photographs then, 7 now" in caplog.text
    assert "ops[0].scale: 19, now 24" in caplog.text


def test_a_run_of_before_goes_on_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = write_photos(tmp_path, 8)
    run(config(tmp_path / "run", photos, max_steps=1))
    (tmp_path / "run/data.json").unlink()
    caplog.set_level("INFO")
    assert run(config(tmp_path / "run", photos, max_steps=2)).step == 2
    assert "has no record of its training data" in caplog.text
    assert (tmp_path / "run/data.json").exists()


def write_list(folder: Path, photos: Path, held_out: int = 4) -> Path:
    """A list of photographs whose column `split` names the last ones "valid"."""
    names = sorted(photos.glob("c*/*.jpg"), key=lambda path: path.name)
    splits = ["train"] * (len(names) - held_out) + ["valid"] * held_out
    rows = [f"{path},{path.parent.name},{split}" for path, split in zip(names, splits, strict=True)]
    path = folder / "list.csv"
    path.write_text("\n".join(["path,label,split", *rows]) + "\n")
    return path


def test_parts_of_a_list_are_trained_and_evaluated_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listed = write_list(tmp_path, write_photos(tmp_path, 12))
    made = config(tmp_path / "run", listed, data={"split": "train", "eval_split": "val"}, max_steps=1)
    source, held_out = open_sources(made.data, made.seed)
    assert held_out is not None and (len(source), len(held_out)) == (8, 4)
    assert {source.name(i) for i in range(8)}.isdisjoint(held_out.name(i) for i in range(4))
    assert list(source.classes) == list(held_out.classes)
    run(made)
    kept = read_data(tmp_path / "run")
    assert kept is not None and kept.held_out is not None and kept.num_trained_on == 0
    assert (kept.source.split, kept.held_out.split) == ("train", "val")
    assert "trained on" not in caplog.text and "all rows are read" not in caplog.text

    with open_world("cpu", 60) as world:
        trained = open_run(tmp_path / "run", world)
    assert trained.held_out().name(0) == held_out.name(0) and len(trained.held_out()) == 4
    assert len(trained.held_out(open_source(listed), "the list")) == 4
    trained.say_if_trained_on(open_source(listed), str(listed))
    assert "8 of these 12 photographs were trained on" in caplog.text and "--held-out" in caplog.text

    def evaluated(*options: str) -> Any:
        return CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--device", "cpu", *options])

    ended = evaluated("--source", str(listed), "--split", "val", "--json")
    assert json.loads(ended.stdout)["results"][0]["images"] == 4, ended.output
    wrong = evaluated("--source", str(listed), "--split", "tset")
    assert wrong.exit_code == 2 and "holds no split 'tset', but 'train', 'valid'" in wrong.output.replace("\n", " ")
    alone = evaluated("--split", "val")
    assert alone.exit_code == 2 and "--split val is a part of --source" in alone.output

    with pytest.raises(ValueError, match=r"list\.csv' is not what the run .* trained on \(8 photographs then, 12 now"):
        run(config(tmp_path / "run", listed, max_steps=2))


@pytest.mark.parametrize("above", ["", "sub/.."])
def test_a_list_that_names_photographs_of_the_training_by_another_path_is_told(
    tmp_path: Path, above: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_photos(tmp_path, 12)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    names = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in sorted(photos.glob("*/*.jpg"))]
    Path("train.csv").write_text("\n".join(["path,label", *names[:8]]))
    Path("val.csv").write_text("\n".join(["path,label", *(f"{tmp_path / above}/{name}" for name in names[4:])]))
    run(config(tmp_path / "run", Path("train.csv"), data={"eval_source": "val.csv"}, max_steps=1))
    assert "4 of the 8 photographs of data.eval_source are trained on, too" in caplog.text


def test_a_share_of_a_part_is_held_out(tmp_path: Path) -> None:
    listed = write_list(tmp_path, write_photos(tmp_path, 12))
    made = config(tmp_path / "run", listed, data={"split": "train", "eval_fraction": 0.25}, max_steps=1)
    run(made)
    source, held_out = open_sources(made.data, made.seed)
    assert held_out is not None and (len(source), len(held_out)) == (6, 2)
    with open_world("cpu", 60) as world:
        again = open_run(tmp_path / "run", world).held_out()
    assert [again.name(i) for i in range(2)] == [held_out.name(i) for i in range(2)]


def test_parts_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    listed = write_list(tmp_path, write_photos(tmp_path, 12))
    with pytest.raises(ValueError, match=r"eval_split='val' is a part of source, all of which is trained on\. Give sp"):
        config(tmp_path / "run", listed, data={"eval_split": "val"})
    with pytest.raises(ValueError, match=r"eval_split='val' and eval_fraction=0\.5 are two ways"):
        config(tmp_path / "run", listed, data={"split": "train", "eval_split": "val", "eval_fraction": 0.5})
    wrong = config(tmp_path / "run", listed, data={"split": "trian"})
    with pytest.raises(ValueError, match="holds no split 'trian', but 'train', 'valid'"):
        run(wrong)
    with pytest.raises(
        ValueError, match=r"no split 'train', nor any other\. data\.eval_fraction=0\.1 holds a tenth of"
    ):
        run(config(tmp_path / "run", tmp_path / "photos", data={"split": "train"}))


def test_parts_of_a_folder_are_trained_and_evaluated_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "both").mkdir()
    for name in ("train", "val"):
        write_photos(tmp_path, 8).rename(tmp_path / "both" / name)
    with pytest.raises(ValueError, match=r'data\.split="train"'):
        run(config(tmp_path / "run", tmp_path / "both"))
    run(config(tmp_path / "run", tmp_path / "both", data={"split": "train", "eval_split": "val"}, max_steps=1))
    kept = read_data(tmp_path / "run")
    assert kept is not None and kept.num_trained_on == 0 and "trained on" not in caplog.text

    for name in ("train", "val"):
        caplog.clear()
        evaluate_runs(tmp_path / "run", source=tmp_path / "both" / name)
        assert "was evaluated on: which of the two it is cannot be told" in caplog.text and "--held" not in caplog.text
    (tmp_path / "both").rename(tmp_path / "moved")
    for place in (tmp_path / "moved", tmp_path / "moved/val"):
        found = evaluate_runs(tmp_path / "run", source=place, held_out=True).source
        assert [found.name(i) for i in (0, 7)] == [
            str(tmp_path / f"moved/val/{name}.jpg") for name in ("c0/000", "c1/007")
        ]
    with pytest.raises(ValueError, match=r"holds 2 splits"):
        evaluate_runs(tmp_path / "run", source=tmp_path / "moved")


def test_a_part_whose_images_have_no_names_may_be_trained_on_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for kind, labels in (("train", bytes(4) + bytes([1]) * 4), ("t10k", bytes([0, 1]))):
        images = struct.pack(">4I", 0x803, len(labels), 24, 24) + bytes(24 * 24 * len(labels))
        (tmp_path / f"{kind}-images-idx3-ubyte").write_bytes(images)
        (tmp_path / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, len(labels)) + labels)
    for eval_split, num in (("test", 0), ("train", 8)):
        out = tmp_path / f"run-{eval_split}"
        run(config(out, tmp_path, data={"split": "train", "eval_split": eval_split}, max_steps=1))
        kept = read_data(out)
        assert kept is not None and kept.num_trained_on == num
        assert ("all 8 photographs of data.eval_split are trained on, too" in caplog.text) == bool(num)


def test_a_source_of_evaluation_may_lack_a_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "eval").mkdir()
    photos, held = write_photos(tmp_path, 12), write_photos(tmp_path / "eval", 6)
    write_files(photos, {"aa/000.jpg": encoded(scene(24, 24, 5), "JPEG")})  # the first of three classes
    made = config(tmp_path / "run", photos, data={"eval_source": str(held)}, max_steps=1)
    source, held_out = open_sources(made.data, made.seed)
    assert held_out is not None and list(held_out.classes) == list(source.classes) == ["aa", "c0", "c1"]
    assert {Path(held_out.name(i)).parent.name: held_out.label(i) for i in range(6)} == {"c0": 1, "c1": 2}
    run(made)
    assert "has no photograph of 1 class (aa)" in caplog.text
    with open_world("cpu", 60) as world:
        trained = open_run(tmp_path / "run", world)
    assert [trained.held_out().label(i) for i in range(6)] == [held_out.label(i) for i in range(6)]
    assert list(trained.opened(str(held)).classes) == ["aa", "c0", "c1"]
    write_files(held, {"zz/000.jpg": encoded(scene(24, 24, 5), "JPEG")})
    with pytest.raises(ValueError, match="has other classes than .*these are in one of them alone: aa, zz"):
        open_sources(made.data, made.seed)


def test_classes_of_numbered_labels_keep_their_names(tmp_path: Path) -> None:
    """Of a file whose labels are numbers, others would be classes of other numbers: bb and cc became aa and bb."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["bb", "cc"]}}
    pictures = [{"bytes": encoded(scene(24, 24, i), "JPEG"), "path": None} for i in range(4)]
    table = arrow.table({"image": pictures, "label": [0, 1, 0, 1]})
    noted = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    parquet.write_table(table.replace_schema_metadata(noted), tmp_path / "numbered.parquet")
    place = str(tmp_path / "numbered.parquet")
    source = open_source(place)
    assert list(source.classes) == ["bb", "cc"]
    found = with_classes(source, ["aa", "bb", "cc"], place, None)
    assert [found.classes[found.label(i)] for i in range(4)] == ["bb", "cc", "bb", "cc"]
