"""Two runs on the same few images, and damaged ones, which the tests of evaluation share."""

import shutil
from pathlib import Path

import pytest

from augpipe.trainer.loop import Result, run
from tests.augpipe.decoding.image_files import encoded, scene, write_files
from tests.distributed.train_runs import config, write_photos


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """21 images of 24 x 24 to 24 x 28 pixels, of three classes."""
    return write_photos(tmp_path_factory.mktemp("data"), 21, 3)


@pytest.fixture(scope="session")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run that keeps an average of its weights."""
    out = tmp_path_factory.mktemp("runs") / "first"
    tables = {"data": {"eval_source": str(photos)}, "ema": {"decay": 0.8, "every": 1}, "report": {"tensorboard": False}}
    return out, run(config(out, photos, **tables))


@pytest.fixture(scope="session")
def other(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another network of larger images, without an average."""
    out = tmp_path_factory.mktemp("runs") / "other"
    tables = {
        "data": {"eval_source": str(photos), "size": 20, "scales": [22], "eval_scale": 24},
        "model": {"options": {"width": 3}},
        "report": {"tensorboard": False},
        "epochs": 1,
        "seed": 3,
    }
    run(config(out, photos, **tables))
    return out


@pytest.fixture(scope="session")
def damaged(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images, one of which is none, one cut short, and one cut short that no other is as large as."""
    folder = tmp_path_factory.mktemp("damaged") / "photos"
    shutil.copytree(photos, folder)
    (folder / "c0/003.jpg").write_bytes(b"no image")
    whole = (folder / "c1/004.jpg").read_bytes()
    (folder / "c1/004.jpg").write_bytes(whole[:-60])  # their headers are sound
    write_files(folder, {"c2/999.jpg": encoded(scene(24, 60), "JPEG")[:-60]})
    return folder
