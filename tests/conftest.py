"""What every test may ask for: real images where there are some, hypothesis' settings, GPU tests on GPUs alone.

numba's CUDA simulator is chosen when numba is imported, so its tests are a session of their own: with
NUMBA_ENABLE_CUDASIM=1 pytest runs `SIMULATOR_ROOMS` and nothing else.
"""

import gc
import logging
import os
import runpy
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from augpipe.reports import progress_bar
from tests.examples import EVERY_RUNS
from tests.messages import MessagesPlugin
from tests.simulated_blocks import make_blocks_quick

# started in the background, as by nohup, pytest would ignore Ctrl-C, and so would the commands that tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# torch's threads wait for each other awake, and two workers of pytest have no core to spare for that
os.environ.setdefault("OMP_NUM_THREADS", "1")

# nothing may be unpickled, here and in every process that tests start
_AUDIT = Path(__file__).parent / "unpickling"
os.environ["PYTHONPATH"] = os.pathsep.join([str(_AUDIT), *filter(None, [os.environ.get("PYTHONPATH")])])
runpy.run_path(str(_AUDIT / "sitecustomize.py"))

settings.register_profile("augpipe", deadline=None, max_examples=EVERY_RUNS)  # the first example may compile a kernel
settings.register_profile("ci", parent=settings.get_profile("augpipe"), derandomize=True)  # a commit passes or fails
PROFILE = "ci" if os.environ.get("CI") else "augpipe"
settings.register_profile("deep", parent=settings.get_profile(PROFILE), max_examples=10 * EVERY_RUNS)
settings.load_profile(PROFILE)


progress_bar.time = SimpleNamespace(monotonic=lambda: 0.0)  # type: ignore[assignment]
"""What takes long on a busy machine would be told on stderr, where tests look for what commands say."""

ROOT = Path(__file__).parent
IS_SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
if IS_SIMULATED:
    make_blocks_quick()
SIMULATOR_ROOMS = ("contracts", "simulator")
SLOW = (
    "augpipe/cli/test_cli.py",
    "augpipe/cli/test_cli_interrupt.py",
    "augpipe/cli/test_demo.py",
    "augpipe/cli/test_mistakes.py",
    "augpipe/cli/test_replay.py",
    "augpipe/cuda/test_in_flight.py",
    "augpipe/cuda/test_stream_order.py",
    "augpipe/dali/",
    "augpipe/loader/test_buffers.py",
    "augpipe/loader/test_cold_start.py",
    "augpipe/loader/test_loader_processes.py",
    "augpipe/loader/test_mask_interpolation.py",
    "augpipe/loader/test_mixed_targets.py",
    "augpipe/loader/test_mosaic.py",
    "augpipe/loader/test_read_late.py",
    "augpipe/preview/test_live_server.py",
    "contracts/test_errors.py",
    "datasets/prepare/test_prepare.py",
    "datasets/remote/",
    "datasets/synthetic/",
    "distributed/",
    "docs/",
    "gpu/",
    "gpu_ops/compiled/test_kernel_cache.py",
    "gpu_ops/cuda/",
    "packaging/",
    "parity/test_fused.py",
    "parity/test_geometry_peers.py",
    "property/",
    "trainer/codecs/test_codec_use.py",
    "trainer/evaluation/test_changed_sources.py",
    "trainer/loop/test_run_data.py",
    "trainer/loop/test_train_resume.py",
    "trainer/loop/test_train_run.py",
    "trainer/models/",
    "trainer/servers/test_drive.py",
    "trainer/servers/test_ray.py",
    "trainer/servers/test_ray_driver.py",
    "trainer/servers/test_servers_exact.py",
    "trainer/servers/test_servers_replay.py",
    "trainer/simulate/test_server_prediction.py",
    "trainer/simulate/test_server_run.py",
    "trainer/simulate/test_step.py",
    "trainer/strategies/test_device_reads.py",
)
"""Folders and files that start processes, compile, train or draw for long: `make test-fast` leaves them out, and they
come first in `make test`, whose last minutes would else be one worker's."""
FAST = "not slow and not deep"
"""The tests that `make test-fast` runs, as it asks for them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate-messages", action="store_true", help="write tests/golden/messages")
    parser.addoption(
        "--rewrite-tables", action="store_true", help="write the tables of the docs that say what code does"
    )


def pytest_configure(config: pytest.Config) -> None:
    if is_deep(config):
        settings.load_profile("deep")
    config.pluginmanager.register(MessagesPlugin(config))


def is_deep(config: pytest.Config) -> bool:
    """Whether the deep tests are asked for, and nothing else."""
    return bool(config.option.markexpr == "deep")


def belongs_to_run(path: Path) -> bool:
    """Whether this run of pytest, the simulator's or the normal one, has the tests at `path`."""
    room = path.relative_to(ROOT).parts[0]
    return room in SIMULATOR_ROOMS if IS_SIMULATED else room != "simulator"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is another session's, and what `make test-fast` would import and deselect; None leaves the rest
    to pytest's own rules.
    """
    if not belongs_to_run(collection_path):
        return True
    is_left_out = config.option.markexpr == FAST and collection_path.relative_to(ROOT).as_posix().startswith(SLOW)
    return True if is_left_out else None


def mark_thinned(items: list[pytest.Item]) -> None:
    """Leave to every run the cases in which the parameters' places add up to a multiple of what `thinned` says."""
    places: dict[tuple[Path, str, int], dict[str, int]] = {}
    for item in items:
        if (mark := item.get_closest_marker("thinned")) is None:
            continue
        total = 0
        for level, name in enumerate(item.callspec._idlist):  # type: ignore[attr-defined]
            seen = places.setdefault((item.path, item.originalname, level), {})  # type: ignore[attr-defined]
            total += seen.setdefault(name, len(seen))
        if total % mark.args[0]:
            item.add_marker(pytest.mark.deep)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the modules and tests that are collected out of every later search for garbage: it would take 0.5 s."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # -m chooses by the marks that are set here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose and order the session's tests; skip those marked `gpu` where there is no device.

    torch is asked for one only where such tests were collected.
    """
    others = [item for item in items if not belongs_to_run(item.path)]  # of files that the command line names
    config.hook.pytest_deselected(items=others)
    slow, quick = [], []
    for item in items:
        if belongs_to_run(item.path):
            is_slow = item.path.relative_to(ROOT).as_posix().startswith(SLOW)
            (slow if is_slow else quick).append(item)
    for item in slow:
        item.add_marker(pytest.mark.slow)
    for item in slow + quick if is_deep(config) else ():
        if hasattr(getattr(item, "obj", None), "hypothesis"):
            item.add_marker(pytest.mark.deep)  # with ten times as many examples
    if IS_SIMULATED:
        mark_thinned(items)
    items[:] = slow + quick
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


@pytest.fixture
def source_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What sources log, as in a process that has opened none yet."""
    monkeypatch.setattr("augpipe.sources.log_line._TOLD", set())
    caplog.set_level(logging.INFO, "augpipe")
    return caplog


@pytest.fixture(scope="session")
def photos_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flat folder of real images, unpacked from photos.tar in the folder that AUGPIPE_DATA names."""
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
