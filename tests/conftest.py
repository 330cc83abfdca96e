"""What every test may ask for: real photographs where there are some, hypothesis' settings, GPU tests on GPUs alone."""

import logging
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# started in the background, as by nohup, pytest would ignore Ctrl-C, and so would the commands that tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("augpipe", deadline=None)  # the first example may compile a kernel
settings.register_profile("ci", parent=settings.get_profile("augpipe"), derandomize=True)  # a commit passes or fails
settings.load_profile("ci" if os.environ.get("CI") else "augpipe")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no device; torch is asked only where such tests were collected."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands that a test calls in this process set up logging for a process of their own."""
    logger = logging.getLogger("augpipe")
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture(scope="session")
def photos_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flat folder of real photographs, unpacked from photos.tar in the folder that AUGPIPE_DATA names."""
    data = os.environ.get("AUGPIPE_DATA")
    if not data:
        pytest.skip("AUGPIPE_DATA is unset: no real photographs")
    folder = tmp_path_factory.mktemp("photos")
    with tarfile.open(Path(data) / "photos.tar") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:  # None for a folder; no extractall: its filter is missing before Python 3.11.4
                (folder / Path(member.name).name).write_bytes(content.read())
    return folder
