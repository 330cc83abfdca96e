"""`Augment` without sample ids in worker processes: no two images are drawn alike, in no worker and no epoch."""

import multiprocessing
import os
from itertools import chain

import pytest

from augpipe import Augment
from tests.augpipe.augment_call.drawing import IMAGE, RECIPE, draw

torch = pytest.importorskip("torch")

NUM = 8


class SameImage(torch.utils.data.Dataset[bytes]):
    """One image under many indices: only what is drawn tells the results apart."""

    def __init__(self, gives_ids: bool = False) -> None:
        self.augment = Augment(RECIPE, seed=1, num_threads=1)
        self.gives_ids = gives_ids

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> bytes:
        image = self.augment(IMAGE, sample_ids=index if self.gives_ids else None)
        pixels: bytes = image.tobytes()
        return pixels


def epochs_of(num_epochs: int, gives_ids: bool = False, **options: object) -> list[list[bytes]]:
    """The pixels of each sample, by epoch."""
    loader = torch.utils.data.DataLoader(SameImage(gives_ids), batch_size=2, collate_fn=list, **options)
    return [list(chain.from_iterable(loader)) for _ in range(num_epochs)]


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True], ids=["new workers each epoch", "persistent workers"])
def test_no_worker_and_no_epoch_repeats_another(persistent: bool) -> None:
    torch.manual_seed(3)  # two of so many may be alike by chance, one time in 30,000
    epochs = epochs_of(3, num_workers=2, persistent_workers=persistent)
    assert len(set(chain(*epochs))) == 3 * NUM


@pytest.mark.deep  # each imports torch; forked ones differ in every run
@pytest.mark.slow
def test_spawned_workers_differ_too() -> None:
    epochs = epochs_of(1, num_workers=2, multiprocessing_context="spawn")
    assert len(set(epochs[0])) == NUM


@pytest.mark.slow
def test_a_run_with_a_seeded_torch_repeats() -> None:
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        runs.append(epochs_of(2, num_workers=2))
    assert runs[0] == runs[1]
    assert not set(chain(*runs[0])) & set(chain(*runs[2]))


def test_without_workers_it_counts_on() -> None:
    epochs = epochs_of(2)
    assert len(set(chain(*epochs))) == 2 * NUM
    assert epochs == epochs_of(2)


@pytest.mark.slow
def test_ids_draw_the_same_in_any_worker() -> None:
    assert epochs_of(2, gives_ids=True, num_workers=2) == epochs_of(2, gives_ids=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_are_no_workers_of_torch_differ(method: str) -> None:
    augment = Augment(RECIPE, seed=1, num_threads=1)
    draw(augment)
    context, drawn = multiprocessing.get_context(method), []
    for _ in range(2):
        with context.Pool(1) as pool:
            drawn += pool.map(draw, [augment])
    assert len({*drawn, draw(augment)}) == 3


@pytest.mark.slow
def test_a_bare_fork_differs_from_its_parent() -> None:
    augment = Augment(RECIPE, seed=1, num_threads=1)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, draw(augment))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reads, 1 << 16) != draw(augment)
    os.close(reads), os.close(writes)
