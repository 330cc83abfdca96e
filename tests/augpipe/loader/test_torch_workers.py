"""A Loader in a worker process of torch's DataLoader: refused, with what to write instead."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from augpipe import Loader, Place
from tests.augpipe.loader.loader_sources import PAPER, TIMEOUT_S, MemorySource, arrays

IMAGES = arrays(8)
REMEDY = r"Iterate over the Loader itself.*num_threads=.*or write num_workers=0"

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Wrapped(torch.utils.data.IterableDataset[Any]):
    """What people write around it."""

    def __init__(self, takes_places: bool = False) -> None:
        self.loader = Loader(MemorySource(IMAGES), PAPER, batch_size=2, num_threads=1)
        self.takes_places = takes_places

    def __iter__(self) -> Iterator[Any]:
        if self.takes_places:
            return iter(self.loader.batches(Place(epoch=0, first=2 * n) for n in range(len(self.loader))))
        return iter(self.loader)


def around(dataset: Wrapped, **options: Any) -> list[Any]:
    workers: Any = torch.utils.data.DataLoader(dataset, batch_size=None, **options)
    return [tuple(batch) for batch in workers]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("takes_places", [False, True], ids=["a pass", "places"])
def test_a_loader_in_a_worker_is_refused(num_workers: int, takes_places: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch waits so long for each worker where a pass ends by an error, at whatever test the garbage is collected in
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    dataset = Wrapped(takes_places)
    with pytest.raises(ValueError, match=f"(?s)every sample once in each worker.*{REMEDY}"):
        around(dataset, num_workers=num_workers, multiprocessing_context="fork", timeout=TIMEOUT_S)
    gc.collect()


@pytest.mark.parametrize("takes_places", [False, True], ids=["a pass", "places"])
def test_a_loader_in_a_dataset_without_workers_gives_its_batches(takes_places: bool) -> None:
    found = around(Wrapped(takes_places))
    expected = list(Wrapped().loader)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one[0], other.images) and torch.equal(one[1], other.labels)


@pytest.mark.slow
def test_a_loader_without_torch_does_not_load_it() -> None:
    program = """
import sys
import numpy as np
from augpipe import Loader, recipes
from augpipe.datasets.formats.arrays import ArraySource
loader = Loader(ArraySource([np.zeros((40, 50, 3), np.uint8)] * 4), recipes.deep_image(16, (20, 40)), batch_size=2,
                framework="numpy", num_threads=1)
assert len(list(loader)) == 2
assert "torch" not in sys.modules
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
