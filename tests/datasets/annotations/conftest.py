"""Annotated images for the tests of all readers: 80 real ones, and small ones of our own."""

import os
import tarfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def coco80(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 photographs of COCO with instances and key points, where AUGPIPE_DATA names a folder that holds them."""
    data = os.environ.get("AUGPIPE_DATA")
    if not data or not (Path(data) / "coco80.tar").exists():
        pytest.skip("AUGPIPE_DATA has no coco80.tar: no real annotations")
    folder = tmp_path_factory.mktemp("coco")
    with tarfile.open(Path(data) / "coco80.tar") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    return folder / "coco80"
