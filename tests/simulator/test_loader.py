"""What is true of `Loader(device="cuda")` alone, on a simulated device: torch's CPU tensors stand for its memory."""

import gc
import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Batch, Loader
from augpipe.cuda import cache_writer as insertion
from augpipe.cuda import cuda_render, staging
from augpipe.cuda.streams import SimulatedStreams
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.native.workers import WorkerPool
from augpipe.pipeline import device_output
from augpipe.pipeline.dali_stage import DaliStage
from tests.contracts.backends import CENTRE, HAS_DALI, Backend, assert_same, needs_dali, numbers, plain
from tests.contracts.backends import FILES as CONTRACTS_FILES

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

NATIVE, AUTO = Backend("native", "cuda"), Backend("auto", "cuda")
DALI = pytest.param(Backend("dali", "cuda"), id="dali", marks=needs_dali)

FILES = CONTRACTS_FILES[:6]
NUM = len(FILES)
JPEGS = [0, 1, 2]
"""Those that DALI is given."""


@pytest.fixture(scope="module")
def epochs() -> list[list[Batch]]:
    """Two epochs on the device, without DALI or a cache."""
    loader = NATIVE.loader(FILES)
    return [list(loader), list(loader)]


# Pixels


@pytest.mark.parametrize("cache", ["off", "device", "host"])
@pytest.mark.parametrize("backend", [pytest.param(NATIVE, id="native"), DALI])
def test_every_backend_and_cache_gives_the_same_bits(backend: Backend, cache: str, epochs: list[list[Batch]]) -> None:
    loader = backend.loader(FILES, cache=cache)
    for expected in epochs:
        assert assert_same(loader, expected) == NUM


@pytest.mark.parametrize("rows", [np.eye(NUM, 3, dtype=np.float32), np.arange(2 * NUM).reshape(NUM, 2)])
def test_labels_of_several_numbers_reach_the_device(rows: Any) -> None:
    source = ArraySource([np.zeros((20, 20, 3), np.uint8)] * NUM, rows)
    loader = Loader(source, CENTRE, batch_size=4, device="cuda", rank=1, world_size=2)
    batches = list(loader)
    found = torch.cat([batch.labels for batch in batches]).numpy()
    np.testing.assert_array_equal(found, rows[np.concatenate([batch.sample_ids for batch in batches])], strict=True)
    empty = list(Loader(source, CENTRE, batch_size=5, device="cuda", rank=1, world_size=2))[-1]
    assert tuple(empty.labels.shape)[1:] == rows.shape[1:]


@needs_dali
@pytest.mark.parametrize("cache", ["off", "device"])
def test_dali_is_given_the_jpegs(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.dali.decoder import DaliDecoder

    given: list[int] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Sequence[bytes], *wanted: Any) -> None:
        given.extend(FILES.index(content) for content in contents)
        submit(decoder, contents, *wanted)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    loader = Backend("dali", "cuda").loader(FILES[:4], CENTRE, cache=cache)
    for _ in range(2):
        list(loader)
    assert sorted(given) == sorted(JPEGS * (2 if cache == "off" else 1))


@needs_dali
@pytest.mark.parametrize("cache", ["off", "device"])
@pytest.mark.parametrize("version", [(13, 2), (13, 0)])
def test_pixels_that_dali_leaves_on_the_device(
    version: tuple[int, int], cache: str, monkeypatch: pytest.MonkeyPatch, epochs: list[list[Batch]]
) -> None:
    """DALI decodes on the CPU here, as on a GPU else: the memory of both is one in the simulator."""
    from augpipe.dali.decoder import DaliDecoder
    from augpipe.dali.nvjpeg import Nvjpeg

    class OnDevice(DaliStage):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **(options | {"device_id": 0}))

        def _build(self) -> DaliDecoder:
            return DaliDecoder(self._batch_size, 2, None, self._settings.prefetch + 1, as_on_gpu=True)

    wanted: list[bool] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Sequence[bytes], regions: Any, whole: Any) -> None:
        wanted.extend(whole.tolist())
        submit(decoder, contents, regions, whole)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    monkeypatch.setattr("augpipe.dali.decoder.loaded_nvjpeg", lambda: Nvjpeg(path="/a/b.so", version=version))
    monkeypatch.setattr("augpipe.pipeline.choose.DaliStage", OnDevice)
    loader = Backend("dali", "cuda").loader(FILES, cache=cache)
    for expected in epochs:
        assert assert_same(loader, expected) == NUM
    assert len(wanted) == len(JPEGS) * (2 if cache == "off" else 1)
    assert any(wanted) and all(wanted) == (cache == "device" or version < (13, 2)), "else some regions are whole"


@needs_dali
@pytest.mark.parametrize(("contents", "num_threads"), [(FILES[:3], [1]), (FILES[:5], [1, 3])])
def test_our_own_threads_are_few_until_dali_leaves_images_to_them(
    contents: list[Any], num_threads: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("loader", "pipeline.choose"):
        monkeypatch.setattr(f"augpipe.{module}.num_usable_cores", lambda: 3)
    monkeypatch.setattr("augpipe.pipeline.choose.FEW_THREADS", 1)
    seen: list[int] = []
    grow_to = WorkerPool.grow_to

    def growing(pool: WorkerPool, num: int) -> None:
        grow_to(pool, num)
        seen.append(pool.num_threads)

    monkeypatch.setattr("augpipe.pipeline.dali_stage.WorkerPool", type("Other", (WorkerPool,), {"grow_to": grow_to}))
    monkeypatch.setattr(WorkerPool, "grow_to", growing)
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    caplog.set_level(logging.INFO, "augpipe")
    options = {"num_threads": None, "batch_size": 5}
    found = list(AUTO.loader(contents, CENTRE, **options))
    assert seen == num_threads
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert line.endswith("; threads: 1 next to 3 of DALI's")
    assert AUTO.assert_as_plain(found, plain(contents, CENTRE, **options)) == len(contents)


# The cache


class LateDevice(SimulatedStreams):
    """Packs images into the cache only once something is launched behind them, as a device may; and memory that
    everybody has let go of is somebody else's at once: zeros."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._read_late: list[torch.Tensor] = []
        self._memory: list[Any] = []
        self.num_refused = 0
        launch, pack = cuda_render.render_batch, insertion.pack_rgbx
        monkeypatch.setattr(device_output, "streams_of", lambda device: self)
        for module in (staging, insertion):
            monkeypatch.setattr(module, "allocate", self._lent)
        monkeypatch.setattr(insertion, "pack_rgbx", lambda *a, **o: self._waiting.append(lambda: pack(*a, **o)))
        monkeypatch.setattr(cuda_render, "render_batch", lambda *a, **o: (self.go_on(), launch(*a, **o)))

    def refuse(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have memory for one thing of `module` refused, once."""
        allocate = module.allocate

        def refusing(*args: Any, **options: Any) -> torch.Tensor:
            if not self.num_refused:
                self.num_refused += 1
                raise torch.OutOfMemoryError("CUDA out of memory")
            return allocate(*args, **options)

        monkeypatch.setattr(module, "allocate", refusing)

    def go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()
        self._read_late.clear()

    def lend(self, tensor: torch.Tensor) -> None:
        self._read_late.append(tensor)

    def record(self) -> Any:
        return LateEvent(self, self._waiting)

    def is_behind(self, waiting: list[Callable[[], None]]) -> bool:
        return waiting is self._waiting and bool(waiting)

    def wait_for(self, event: Any) -> None:
        pass  # one stream: its work is done in order

    def _lent(self, shape: Sequence[int], *args: Any, **options: Any) -> torch.Tensor:
        memory = np.empty(shape, np.uint8)
        self._memory.append(memory)  # never unmapped: what is read too late are zeros
        tensor = torch.from_numpy(memory)
        weakref.finalize(tensor, memory.fill, 0)
        return tensor


class LateEvent:
    def __init__(self, device: LateDevice, waiting: list[Callable[[], None]]) -> None:
        self._device = device
        self._waiting = waiting

    def query(self) -> bool:
        return not self._device.is_behind(self._waiting)

    def synchronize(self) -> None:
        if not self.query():
            self._device.go_on()


@pytest.mark.parametrize("module", [cuda_render, insertion])
def test_a_batch_that_finds_no_memory_leaves_the_cache_sound(
    module: Any, monkeypatch: pytest.MonkeyPatch, epochs: list[list[Batch]]
) -> None:
    device = LateDevice(monkeypatch)
    loader = NATIVE.loader(FILES, cache="device")
    device.refuse(module, monkeypatch)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        next(iter(loader))
    gc.collect()  # nothing of the batch is left but what the renderer keeps
    for expected in epochs:
        assert assert_same(loader, expected) == NUM
    assert device.num_refused == 1 and numbers(loader).num_held == NUM


# Arguments


def test_the_simulator_has_one_device() -> None:
    assert len(NATIVE.loader(FILES, device="cuda:0")) == 2
    with pytest.raises(ValueError, match='device="cuda:1": the CUDA simulator has one device. Write "cuda".'):
        NATIVE.loader(device="cuda:1")
    with pytest.raises(ValueError, match='framework="numpy" cannot hold batches on device="cuda"'):
        NATIVE.loader(framework="numpy")
    with pytest.raises(ValueError, match='pin_memory=True is for batches on the CPU, and device="cuda"'):
        NATIVE.loader(pin_memory=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_auto_tells_what_it_chose(is_there: bool, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    if is_there and not HAS_DALI:
        pytest.skip("DALI is not installed")
    if not is_there:
        monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    caplog.set_level(logging.INFO, "augpipe")
    list(AUTO.loader(FILES[:1], CENTRE))
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert line.startswith("backend auto: dali, " if is_there else "backend auto: native on ")
    assert line.endswith("; threads: 2")
