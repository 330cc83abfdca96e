"""What a loader says of a backend, device, cache or order that cannot be; on a machine without a GPU."""

import importlib.util
import logging
import os
import sys
from typing import Any

import pytest
import torch

from augpipe import Loader, Recipe
from augpipe.cuda.device_name import DeviceError
from augpipe.dali.install import Machine, require_dali
from augpipe.pipeline import choose as choose_module
from tests.augpipe.loader.loader_sources import CENTRE, MemorySource, arrays, ids_of

NUM = 10
IMAGES = arrays(NUM)

on_cpu_alone = pytest.mark.skipif(torch.cuda.is_available(), reason="what is said where there is no CUDA device")


def make(recipe: Recipe = CENTRE, **options: Any) -> Loader:
    settings = {"batch_size": 2, "framework": "numpy", "num_threads": 1} | options
    return Loader(MemorySource(IMAGES), recipe, **settings)


def refused() -> Any:
    """What is said is compared as a whole, as users read it."""
    return pytest.raises(ValueError, match=".")


# Backends


def test_dali_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)  # importing it raises what a missing module raises
    message = r'backend="dali" needs NVIDIA DALI.* not installed: pip install "augpipe\[dali\]"'
    with pytest.raises(ImportError, match=message):
        make(backend="dali")
    assert len(ids_of(make(backend="auto"))) == len(ids_of(make(backend="native"))) == NUM


def test_dali_on_a_system_that_it_is_not_built_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(require_dali, "__defaults__", (Machine(platform="darwin"),))
    with pytest.raises(ImportError, match='backend="dali" needs Linux, .* this is \'darwin\'. Use backend="native".'):
        make(backend="dali")


def test_auto_is_native_on_the_cpu_whatever_is_installed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    caplog.set_level(logging.INFO, "augpipe")
    list(make())
    assert [record.getMessage() for record in caplog.records] == [
        "backend auto: native, as the device is the CPU; threads: 1"
    ]


@pytest.mark.parametrize(
    ("backend", "is_on_cuda", "asked", "expected"),
    [
        ("dali", True, None, 3),
        ("dali", True, 9, 9),
        ("dali", True, 1, 1),
        ("dali", False, None, 16),
        ("native", True, None, 16),
        ("native", False, 2, 2),
    ],
)
def test_threads_beside_dali_s(
    backend: Any, is_on_cuda: bool, asked: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_module, "FEW_THREADS", 3)
    monkeypatch.setattr(choose_module, "num_usable_cores", lambda: 16)
    chosen = choose_module.Choice(
        backend=backend,
        device=None,
        is_on_cuda=is_on_cuda,
        cache="off",
        cache_bytes=None,
        pins_memory=False,
        reason=None,
    )
    assert chosen.first_threads(asked) == expected
    monkeypatch.setattr(choose_module, "num_usable_cores", lambda: 2)
    assert chosen.first_threads(asked) == (asked or 2)


@pytest.mark.parametrize("backend", ["Dali", "gpu", "", None, 1])
def test_unknown_backends(backend: Any) -> None:
    with refused() as caught:
        make(backend=backend)
    assert str(caught.value) == f"backend={backend!r} is not known. Choose one of 'auto', 'native', 'dali'."


# Devices


@pytest.mark.parametrize("device", ["gpu", "CPU", "cpu:0", "", "mps", None, 0])
def test_unknown_devices(device: Any) -> None:
    with refused() as caught:
        make(device=device)
    assert str(caught.value) == (
        f'device={device!r} is not known. Choose "cpu", "cuda", or "cuda:1" and so on for one of several.'
    )


def test_a_torch_device_is_a_name_too() -> None:
    torch = pytest.importorskip("torch")
    assert len(list(make(device=torch.device("cpu")))) == len(list(make(device="cpu")))
    with refused() as caught:
        make(device=torch.device("meta"))
    assert "device=device(type='meta') is not known." in str(caught.value)


@pytest.mark.parametrize("options", [{"pin_memory": "no"}, {"cache": "host", "cache_bytes": True}])
def test_words_and_truths_that_are_no_such_thing(options: dict[str, Any]) -> None:
    name = list(options)[-1]
    with refused() as caught:
        make(**options)
    assert str(caught.value).startswith(f"{name}={options[name]!r} ")


@pytest.mark.parametrize("device", ["cuda:", "cuda:-1", "cuda:x", "cuda:01"])
def test_malformed_cuda_devices(device: str) -> None:
    with pytest.raises(ValueError, match=f'device=\'{device}\' is not a CUDA device. Write "cuda", or "cuda:1"'):
        make(device=device, framework="torch")


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_numpy_batches_on_a_cuda_device(device: str) -> None:
    with refused() as caught:
        make(device=device)
    assert str(caught.value) == (
        f'framework="numpy" cannot hold batches on device="{device}". Choose framework="torch": its tensors have '
        "__dlpack__ and __cuda_array_interface__, which CuPy and JAX take without copying."
    )


@on_cpu_alone
@pytest.mark.parametrize("backend", ["auto", "native", "dali"])
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_machine_without_a_gpu(backend: str, device: str) -> None:
    with pytest.raises(DeviceError, match=r"(install|driver|nvidia-smi|pip|GPU)"):
        make(backend=backend, device=device, framework="torch")


# Caches


@pytest.mark.parametrize("cache", ["on", "gpu", "", None, True])
def test_unknown_caches(cache: Any) -> None:
    with refused() as caught:
        make(cache=cache)
    assert str(caught.value) == f"cache={cache!r} is not known. Choose one of 'off', 'device', 'host'."


@pytest.mark.parametrize("cache_bytes", [0, 10**9])
def test_a_budget_without_a_cache(cache_bytes: int) -> None:
    with refused() as caught:
        make(cache_bytes=cache_bytes)
    assert str(caught.value) == (
        f'cache_bytes={cache_bytes} sizes a cache that is off. Choose cache="device" or cache="host".'
    )


@pytest.mark.parametrize(
    ("cache_bytes", "message"),
    [
        (-1, "cache_bytes=-1 must be at least 0. Leave it out to take what is free."),
        (1.5e9, "cache_bytes=1500000000.0 is a float, and must be a whole number."),
        ("1G", "cache_bytes='1G' is a str, and must be a whole number."),
    ],
)
@pytest.mark.parametrize("cache", ["off", "device", "host"])
def test_budgets_that_cannot_be(cache_bytes: Any, message: str, cache: str) -> None:
    with refused() as caught:
        make(cache=cache, cache_bytes=cache_bytes)
    assert str(caught.value) == message


def test_a_host_s_ranks_share_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.cache.host_cache.available_host_bytes", lambda: 8_000_000)
    found = []
    for num in (None, "1", "4"):
        if num is not None:
            monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", num)
        loader = make(cache="host")
        list(loader)
        assert loader.cache_statistics is not None
        found.append(loader.cache_statistics.budget_bytes)
    assert found == [4_000_000, 4_000_000, 1_000_000]


# Pinned memory


@on_cpu_alone
def test_pinned_memory_without_cuda() -> None:
    for framework in ("torch", "numpy"):
        with refused() as caught:
            make(pin_memory=True, framework=framework)
        assert str(caught.value) == "pin_memory=True needs a CUDA device, and torch finds none. Leave it out."


def test_pinned_memory_beside_batches_on_a_device() -> None:
    with refused() as caught:
        make(pin_memory=True, device="cuda", framework="torch")
    assert str(caught.value) == 'pin_memory=True is for batches on the CPU, and device="cuda". Leave it out.'


# Sticky orders


def sticky(world_size: int, rank: int = 0, backend: str = "native") -> Loader:
    return make(shuffle="sticky", world_size=world_size, rank=rank, backend=backend)


BACKENDS = ["native"]
if importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None:
    BACKENDS.append("dali")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (1, 2)])
def test_a_sticky_epoch_is_not_resumed_by_another_number_of_ranks(before: int, after: int, backend: str) -> None:
    taken = sticky(before)
    next(iter(taken))
    loader = sticky(after, backend=backend)
    untouched = loader.state_dict()
    with refused() as caught:
        loader.load_state_dict(taken.state_dict())
    assert str(caught.value) == (
        f"the state was taken within an epoch by world_size={before} and this loader has world_size={after}: with "
        'shuffle="sticky" ranks own samples, and some would be lost and repeated. Resume with the same world size, or '
        "from a state taken at an epoch's end."
    )
    assert loader.state_dict() == untouched


@pytest.mark.parametrize("backend", BACKENDS)
def test_between_epochs_it_is(backend: str) -> None:
    taken = sticky(2)
    list(taken)
    seen = []
    for rank in range(3):
        loader = sticky(3, rank, backend)
        loader.load_state_dict(taken.state_dict())
        assert loader.epoch == 1
        found = ids_of(loader)
        assert sorted(found) == list(range(rank, NUM, 3))
        seen += found
    assert sorted(seen) == list(range(NUM))


@pytest.mark.parametrize("shuffle", ["Sticky", "yes", None, 2])
def test_unknown_orders(shuffle: Any) -> None:
    with refused() as caught:
        make(shuffle=shuffle)
    assert str(caught.value) == f"shuffle={shuffle!r} is not known. Choose one of True, False, 'sticky'."
