"""Passes with DALI that are closed, dropped, forked or left behind: threads end, nothing hangs, the next is right."""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("nvidia.dali")

from augpipe import Loader
from augpipe.dali.decoder import DaliDecoder
from augpipe.pipeline.dali_stage import DaliStage
from tests.augpipe.dali.loader_pairs import GOOD, NUM, make, pair
from tests.augpipe.loader.loader_sources import (
    PAPER,
    TIMEOUT_S,
    MemorySource,
    assert_no_worker_threads,
    ids_of,
    run_python,
    samples,
    wait_until,
)
from tests.augpipe.loader.test_loader_processes import FORK, START

DALI = """
import io
from PIL import Image
class Files:
    classes = ()
    def __init__(self):
        self.files = []
        for picture in (source.read(i) for i in range(24)):
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "JPEG")
            self.files.append(file.getvalue())
    def __len__(self): return len(self.files)
    def read(self, i): return self.files[i]
    def label(self, i): return i
    def name(self, i): return str(i)
files = Files()
def make(**options):
    settings = dict(batch_size=2, framework="numpy", num_threads=2, backend="dali") | options
    return Loader(files, recipes.deep_image(16, (20, 40)), **settings)
"""


def num_system_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_a_loader_that_is_dropped_ends_dali_s_threads() -> None:
    list(make("dali"))  # what DALI and numba start once stays
    before = num_system_threads()
    loader = make("dali", num_threads=5)
    running = iter(loader)
    next(running)
    assert num_system_threads() >= before + 5 + 1
    del running, loader
    assert_no_worker_threads()
    wait_until(lambda: num_system_threads() <= before)


def test_a_thread_that_still_reads_when_the_pass_is_closed() -> None:
    """It is through with its batch only after the stage has ended."""
    waits, closed = threading.Event(), threading.Event()

    class Slow(MemorySource):
        def read(self, sample_id: int) -> Any:
            if sample_id == 3:
                waits.set()
                assert closed.wait(TIMEOUT_S)
            return super().read(sample_id)

    loader = Loader(
        Slow(GOOD), PAPER, batch_size=2, framework="numpy", backend="dali", shuffle=False, num_threads=2, prefetch=1
    )
    close = DaliStage.close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DaliStage, "close", _then(close, closed.set))
        running = iter(loader)
        assert ids_of([next(running)]) == [0, 1]
        assert waits.wait(TIMEOUT_S) and not closed.is_set()
        running.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert_no_worker_threads()
    assert ids_of(loader) == list(range(NUM))


def _then(first: Callable[..., None], second: Callable[[], None]) -> Callable[..., None]:
    def both(self: Any) -> None:
        first(self)
        second()

    return both


def test_a_decoder_serves_one_epoch_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = DaliDecoder.__init__

    def counted(self: DaliDecoder, *args: Any, **options: Any) -> None:
        made.append(self)
        build(self, *args, **options)

    monkeypatch.setattr(DaliDecoder, "__init__", counted)
    loader = make("dali")
    assert made == [], "nothing is started before the first pass"
    for _ in range(4):
        assert len(ids_of(loader)) == NUM
    assert len(made) == 1


# Whole processes

ENDINGS = {
    "an unfinished iterator": "it = iter(make(prefetch=4)); next(it)",
    "an iterator in a cycle": "it = iter(make()); next(it); cycle = {'it': it}; cycle['itself'] = cycle; del it",
    "an iterator in a daemon thread": (
        "begun = threading.Event()\ndef f():\n  for batch in make(prefetch=4): begun.set(); threading.Event().wait()\n"
        "threading.Thread(target=f, daemon=True).start(); begun.wait()"
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_with(ending: str) -> None:
    ended = run_python(START + DALI + ENDINGS[ending] + "\nprint('end', flush=True)\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "end\n"


FORKED = {
    "a loader that ran": "list(loader)",
    "a loader that runs": "it = iter(loader); next(it)",
}
CHILDREN = """
assert in_child(lambda: ids(make())) == repr(expected)
assert in_child(lambda: ids(loader)) == repr(expected)
assert ids(loader) == expected
print(num_threads())
"""
GO_ON = """
it = iter(loader); next(it)
def go_on():
    try:
        return sum(len(batch) for batch in it)
    except RuntimeError as error:
        return str(error)
print(in_child(go_on))
print(sum(len(batch) for batch in it))
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("before", FORKED)
def test_a_forked_process_iterates_a_loader_of_its_own_and_the_parents(before: str) -> None:
    fork = FORK.replace("alarm(60)", "alarm(20)")
    ended = run_python(START + DALI + fork + FORKED[before] + CHILDREN)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "0\n"


def test_a_pass_that_a_fork_has_cut_off_from_its_threads_is_refused() -> None:
    ended = run_python(START + DALI + FORK.replace("alarm(60)", "alarm(20)") + GO_ON)
    assert (ended.returncode, ended.stderr) == (0, "")
    said, left = ended.stdout.splitlines()
    assert "have ended, as they do in a forked process. Start a new pass: iter(loader)." in said
    assert left == "22"


class Labels(torch.utils.data.Dataset[int]):
    """Its workers have nothing to do with the loader, and inherit it all the same."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_beside_a_torch_dataloader_whose_workers_are_forked() -> None:
    native, dali = pair(batch_size=2)
    running = iter(dali)
    start = samples([next(running)])
    workers = torch.utils.data.DataLoader(
        Labels(), batch_size=3, num_workers=2, multiprocessing_context="fork", timeout=TIMEOUT_S
    )
    assert [batch.tolist() for batch in workers] == [[0, 1, 2], [3, 4, 5]]
    assert start + samples(running) == samples(native)
    assert_no_worker_threads()
