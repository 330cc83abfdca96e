"""What tests of prepare over processes share: a source, and what an undisturbed run in one process makes of it."""

from pathlib import Path

import pytest

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.prepare import prepare
from tests.datasets.prepare.prepare_sources import InlineEngine, tree, write_photos
from tests.distributed.prepare_runs import NUM, SETTINGS


@pytest.fixture(scope="package")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("prepare") / "photos", NUM, 200, 260)


@pytest.fixture(scope="package")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Path below OUT -> bytes."""
    out = tmp_path_factory.mktemp("prepare") / "out"
    prepare(FolderSource(photos), out, SETTINGS, source_path=str(photos), engine=InlineEngine())
    return tree(out)
