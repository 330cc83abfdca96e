"""Loaders and whole processes: interpreters that end, Ctrl-C, forks, and torch's own DataLoader."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import torch

from augpipe import Augment, Loader
from tests.augpipe.loader.loader_sources import (
    PAPER,
    ROOT,
    TIMEOUT_S,
    MemorySource,
    arrays,
    assert_no_worker_threads,
    ids_of,
    run_python,
    worker_threads,
)

IMAGES = arrays(24)

START = """
import os, signal, sys, threading
import numpy as np
from augpipe import Augment, Loader, recipes
from augpipe.datasets.formats.arrays import ArraySource
rng = np.random.default_rng(0)
source = ArraySource([rng.integers(0, 256, (40, 50, 3), np.uint8) for _ in range(24)])
def make(**options):
    settings = dict(batch_size=2, framework="numpy", num_threads=2) | options
    return Loader(source, recipes.deep_image(16, (20, 40)), **settings)
def num_threads():
    return sum(thread.name.startswith("augpipe") for thread in threading.enumerate())
"""

ENDINGS = {
    "an unfinished iterator and a waiting queue": "it = iter(make(prefetch=8, num_threads=3)); next(it)",
    "an iterator in a cycle": "it = iter(make()); next(it); cycle = {'it': it}; cycle['itself'] = cycle; del it",
    "an iterator in a daemon thread": (
        "def f():\n  while True:\n    for batch in make(): pass\n"
        "t = threading.Thread(target=f, daemon=True); t.start()\nimport time; time.sleep(0.2)"
    ),
    "a thread of its own that runs on": (
        "def f():\n  print(sum(len(b) for _ in range(3) for b in make()) == 72)\nthreading.Thread(target=f).start()"
    ),
    "sys.exit in the loop": "for batch in make(): sys.exit(0)",
    "a pass at exit": "import atexit; atexit.register(lambda: print(len(list(make()))))\nit = iter(make()); next(it)",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_with(ending: str) -> None:
    ended = run_python(START + ENDINGS[ending] + "\nprint('end', flush=True)\n")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    printed = {"sys.exit in the loop": "", "a pass at exit": "end\n12\n", "a thread of its own that runs on": None}
    if (expected := printed.get(ending, "end\n")) is not None:
        assert ended.stdout == expected
    else:
        assert sorted(ended.stdout.split()) == ["True", "end"]


LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell may have told its background jobs to ignore the signal."""

LONG = """
class Long:  # an epoch that lasts for minutes
    classes = ()
    def __len__(self): return 1_000_000
    def label(self, i): return -1
    def name(self, i): return str(i)
    def read(self, i):
        if is_slow and i >= 6:
            threading.Event().wait(0.05)
        return source.read(i % 24)
recipe = recipes.deep_image(16, (20, 40))
loader = Loader(Long(), recipe, batch_size=2, framework="numpy", shuffle=False, num_threads=2)
try:
    for number, batch in enumerate(loader):
        if number == 2:
            print("running", num_threads(), flush=True)
except KeyboardInterrupt:
    print("interrupted", num_threads(), flush=True)
    is_slow = False
    loader.set_epoch(0)
    print("again", len(next(iter(loader))), num_threads(), flush=True)
"""


@pytest.mark.parametrize("waits", [True, False], ids=["while it waits", "in the loop"])
def test_ctrl_c_in_the_middle_of_an_epoch_leaves_no_thread_behind(waits: bool) -> None:
    code = LISTEN + START + f"is_slow = {waits}\n" + LONG
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running 2\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == ["interrupted 0", "again 2 0"]


EVERYWHERE = """
import faulthandler, inspect, linecache

def is_interrupted(place):  # at one step of the Python code that gives two batches, while two are made ahead
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches)
    left, where = place, ""
    def trace(frame, event, argument):
        nonlocal left, where
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        is_left = event == "return" and frame.f_code.co_flags & inspect.CO_GENERATOR  # its blocks would not end
        if event != "call" and not is_left and not line.startswith("with "):  # nothing comes between it and its exit
            left -= 1
            if left == 0:
                where = f"{frame.f_code.co_filename}:{frame.f_lineno}, {event}: {line}"
                raise KeyboardInterrupt
        return trace
    faulthandler.dump_traceback_later(20, exit=True)
    sys.settrace(trace)
    try:
        next(batches), next(batches)
    except KeyboardInterrupt:
        pass
    except BaseException as problem:
        print(repr(problem), where)
    finally:
        sys.settrace(None)
    del batches
    if num_threads():
        print("threads are left", where)
    faulthandler.cancel_dump_traceback_later()
    return left <= 0

loader = make()
place = 1
while is_interrupted(place):
    place += 1
print(place > 100)
"""


def test_ctrl_c_at_any_step_ends_a_pass_and_its_threads() -> None:
    ended = run_python(START + EVERYWHERE)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_ctrl_c_without_a_handler_ends_the_process() -> None:
    loop = "for number, batch in enumerate(make()):\n    if number == 2: os.kill(os.getpid(), signal.SIGINT)\n"
    ended = run_python(LISTEN + START + loop)
    assert ended.returncode in (-signal.SIGINT, 130)
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
    assert ended.stderr.count("Traceback") == 1


FORK = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any fork next to threads
def in_child(work):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os.write(write, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the child did not end by itself"
    return said
def ids(loader):
    loader.set_epoch(0)
    return [int(i) for batch in loader for i in batch.sample_ids]
loader = make()
expected = ids(loader)
"""
FORKED = """
for is_running in (False, True):
    if is_running:
        it = iter(loader); next(it)
    assert in_child(lambda: ids(make())) == repr(expected)
    assert in_child(lambda: ids(loader)) == repr(expected)
    assert ids(loader) == expected
print(num_threads())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_iterates_a_loader_of_its_own_and_the_parents() -> None:
    ended = run_python(START + FORK + FORKED)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "0\n"


HELD_LOCK = """
held, may_go = threading.Event(), threading.Event()
def hold():
    with lock:
        held.set()
        may_go.wait()
threading.Thread(target=hold).start()
held.wait()
try:
    in_child(work)
finally:
    may_go.set()
"""
LOCKS = {
    "the threads'": """
it = iter(loader); next(it)
from augpipe.native import workers
(pool,) = workers._open_pools
lock, work = pool._wake, lambda: globals().pop("it").close()
""",
    "the cache's": """
loader = make(cache="host", cache_bytes=1 << 20)
ids(loader)
lock, work = loader._makers.cache._lock, lambda: ids(loader)
""",
    "llvmlite's": """
from llvmlite.binding import ffi
lock, work = ffi.lib._lock, lambda: ids(make()) + ids(loader)
""",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("lock", LOCKS)
def test_a_fork_at_any_moment_does_not_hang_the_child(lock: str) -> None:
    """A fork copies a lock as it is: held by a thread that the child does not have."""
    ended = run_python(START + FORK.replace("alarm(60)", "alarm(5)") + LOCKS[lock] + HELD_LOCK)
    assert ended.returncode == 0, ended.stderr


RUNNING_IN_CHILD = """
it = iter(loader); next(it)
def go_on():
    try:
        return sum(len(batch) for batch in it)
    except RuntimeError as error:
        return str(error)
print(in_child(go_on))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_pass_that_a_fork_has_cut_off_from_its_threads_does_not_hang() -> None:
    ended = run_python(START + FORK.replace("alarm(60)", "alarm(5)") + RUNNING_IN_CHILD)
    assert ended.returncode == 0, ended.stderr


# Beside torch's own DataLoader


class Augmented(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.transform = Augment(PAPER, 5, framework="torch")

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> Any:
        return self.transform(IMAGES[index], sample_ids=index, epoch=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_torch_dataloaders_workers_use_the_transform() -> None:
    iterator = iter(Loader(MemorySource(IMAGES), PAPER, batch_size=2, framework="numpy", num_threads=2))
    next(iterator)
    assert len(worker_threads()) == 2  # the fork happens beside them
    expected = torch.stack([Augmented()[i] for i in range(len(IMAGES))])
    workers = torch.utils.data.DataLoader(
        Augmented(), batch_size=6, num_workers=2, multiprocessing_context="fork", timeout=TIMEOUT_S
    )
    found = torch.cat(list(workers))
    assert torch.equal(found, expected)
    assert len(ids_of(iterator)) == 22
    assert_no_worker_threads()
