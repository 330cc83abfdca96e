"""`require_device`: every bad situation is one message with its remedy, from injected facts; and this machine."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest
import torch

from augpipe.cuda import driver, versions
from augpipe.cuda.device_name import DeviceError, check_capability, require_device
from augpipe.cuda.facts import THIS_MACHINE, Facts, Torch
from augpipe.cuda.versions import Toolkit
from tests.augpipe.loader.loader_sources import run_python


def well(**changes: Any) -> Facts:
    """A machine with two GPUs on which all is well, with `changes` (values, not functions)."""
    answers: dict[str, Any] = {
        "driver": (13, 0),
        "torch": Torch(version="2.13.0", cuda=(13, 0)),
        "numba_cuda": "0.30.4",
        "nvvm": (2, 0),
        "toolkit": Toolkit(compiler=(13, 0), linker=(13, 0)),
        "num_devices": 2,
        "names": ["NVIDIA A", "NVIDIA B"],
        "current": None,
        "local_rank": None,
        "visible": None,
        "simulated": False,
    } | changes
    return Facts(**{name: _answering(answer) for name, answer in answers.items()})


def _answering(answer: Any) -> Callable[[], Any]:
    return lambda: answer


def refuse() -> NoReturn:
    raise AssertionError("asked for a fact that is of no use")


def message(facts: Facts, name: str = "cuda") -> str:
    with pytest.raises(DeviceError) as caught:
        require_device(name, facts)
    return str(caught.value)


def test_a_device_has_its_index() -> None:
    for name, index in (("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)):
        assert require_device(name, well()) == torch.device("cuda", index)


@pytest.mark.parametrize(
    ("current", "local_rank", "index"),
    [
        (None, None, 0),
        (None, "1", 1),
        (None, "0", 0),
        (None, "2", 0),  # each rank sees its own device alone
        (None, "one", 0),
        (1, None, 1),
        (1, "0", 1),
        (0, "1", 0),
    ],
)
def test_the_device_without_an_index(
    current: int | None, local_rank: str | None, index: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "augpipe")
    facts = well(current=current, local_rank=local_rank)
    assert require_device("cuda", facts) == torch.device("cuda", index)
    told = [record.getMessage() for record in caplog.records]
    if current is None and local_rank in ("0", "1"):
        assert told == [f'device="cuda" is cuda:{index}, by LOCAL_RANK: no device was chosen in this process before']
    else:
        assert told == []
    assert require_device("cuda:0", facts) == torch.device("cuda", 0)


def test_this_process_says_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for initialized, local_rank, expected in ((False, "3", (None, "3")), (True, None, (2, None))):
        monkeypatch.setattr(torch.cuda, "is_initialized", _answering(initialized))
        monkeypatch.setattr(torch.cuda, "current_device", _answering(2))
        if local_rank is None:
            monkeypatch.delenv("LOCAL_RANK", raising=False)
        else:
            monkeypatch.setenv("LOCAL_RANK", local_rank)
        assert (THIS_MACHINE.current(), THIS_MACHINE.local_rank()) == expected


@pytest.mark.parametrize("name", ["", "cpu", "Cuda", "cuda:", "cuda:-1", "cuda:01", "cuda:1 ", "cuda1", 0, None])
def test_a_malformed_name_is_refused_before_anything_is_asked(name: Any) -> None:
    facts = replace(well(), simulated=refuse, driver=refuse, torch=refuse)
    with pytest.raises(ValueError, match=r'is not a CUDA device. Write "cuda", or "cuda:1"'):
        require_device(name, facts)


def test_an_index_out_of_range_names_the_devices() -> None:
    with pytest.raises(
        ValueError, match=r'device="cuda:2" is not one of the 2 .*cuda:0 \(NVIDIA A\), cuda:1 \(NVIDIA B\)'
    ):
        require_device("cuda:2", well())
    with pytest.raises(ValueError, match="of those that CUDA_VISIBLE_DEVICES=3,1 leaves"):
        require_device("cuda:2", well(visible="3,1"))


def test_without_a_driver_torch_is_not_asked() -> None:
    def missing() -> NoReturn:
        raise OSError("libcuda.so.1: cannot open shared object file")

    said = message(replace(well(), driver=missing, torch=refuse))
    assert "no NVIDIA driver: libcuda.so.1 cannot be used (libcuda.so.1: cannot open" in said
    assert "nvidia-smi" in said and 'device="cpu"' in said


MACHINE_LACKS = [
    (well(driver=(11, 8)), ["knows CUDA up to 11.8", "needs 12.0", "525"]),
    (well(torch=None), ["torch, which is not installed", 'pip install "augpipe[cuda13]"']),
    (well(driver=(12, 8), torch=None), ['pip install "augpipe[cuda12]" "torch<2.11"']),
    (
        well(torch=Torch(version="2.13.0+cpu", cuda=None)),
        ["2.13.0+cpu is a build without CUDA", 'pip uninstall -y torch && pip install "augpipe[cuda13]"'],
    ),
    (
        well(driver=(12, 8)),
        [
            "up to 12.8",
            "2.13.0 is built for 13.0",
            "release 580",
            'torch && pip install "augpipe[cuda12]" "torch<2.11"',
        ],
    ),
    (well(numba_cuda=None), ["numba-cuda, which is not installed", 'pip install "augpipe[cuda13]"']),
    (well(numba_cuda="0.29.1"), ["numba-cuda 0.29.1 is older than 0.30", 'pip install "augpipe[cuda13]"']),
    (well(nvvm=None), ["cannot load it: there is no libnvvm", 'pip install "augpipe[cuda13]"']),
    (well(toolkit=None), ["finds NVVM, and no NVRTC", 'pip install "augpipe[cuda13]"']),
    (
        well(driver=(12, 8), torch=Torch(version="2.10.0", cuda=(12, 8))),
        ["compiled by CUDA 13.0", "Update the driver to release 580", 'pip install "augpipe[cuda12]"'],
    ),
    (
        well(toolkit=Toolkit(compiler=(13, 5), linker=None)),
        ["PTX by CUDA 13.5", "CUDA 13.0 and older", 'pip install "cuda-toolkit[nvvm,nvrtc]>=13,<13.1"'],
    ),
    (
        well(
            driver=(12, 7),
            torch=Torch(version="2.10.0", cuda=(12, 8)),
            toolkit=Toolkit(compiler=(12, 9), linker=None),
        ),
        ['pip install "cuda-toolkit[nvcc,nvrtc]>=12,<12.8"'],
    ),
    (
        well(toolkit=Toolkit(compiler=(13, 5), linker=(13, 0))),
        ["compiled by CUDA 13.5 and linked by nvJitLink 13.0", 'pip install "cuda-toolkit[nvvm,nvrtc]>=13,<13.1"'],
    ),
    (well(num_devices=0), ["no GPU: nvidia-smi"]),
    (well(num_devices=0, visible=""), ['CUDA_VISIBLE_DEVICES="" leaves no GPU', "nvidia-smi -L"]),
]


@pytest.mark.parametrize(("facts", "parts"), MACHINE_LACKS)
def test_what_the_machine_lacks_is_named_with_its_remedy(facts: Facts, parts: list[str]) -> None:
    said = message(facts)
    for part in parts:
        assert part in said, said
    assert "\n" not in said


@pytest.mark.parametrize(
    "facts",
    [
        well(
            driver=(12, 4), torch=Torch(version="2.10.0", cuda=(12, 8)), toolkit=Toolkit(compiler=(12, 4), linker=None)
        ),
        well(
            driver=(13, 5), torch=Torch(version="2.10.0", cuda=(12, 8)), toolkit=Toolkit(compiler=(13, 5), linker=None)
        ),
        well(toolkit=Toolkit(compiler=(13, 5), linker=(13, 5))),  # machine code, which a driver of CUDA 13.0 runs
        well(toolkit=Toolkit(compiler=(13, 0), linker=(13, 4))),
    ],
)
def test_versions_that_go_together_are_taken(facts: Facts) -> None:
    assert require_device("cuda", facts) == torch.device("cuda", 0)


def test_the_machine_is_checked_once_and_devices_each_time() -> None:
    calls: list[str] = []

    def ask(name: str, answer: Any) -> Callable[[], Any]:
        return lambda: calls.append(name) or answer  # type: ignore[func-returns-value]

    facts = replace(well(), driver=ask("driver", (13, 0)), num_devices=ask("devices", 2))
    for _ in range(3):
        require_device("cuda:1", facts)
    assert calls == ["driver", "devices", "devices", "devices"]


def test_a_machine_that_is_not_well_is_asked_again() -> None:
    answers: list[str | None] = [None, "0.30.4"]
    facts = replace(well(), numba_cuda=lambda: answers.pop(0))
    message(facts)
    assert require_device("cuda", facts).type == "cuda"


def test_the_simulator_is_the_cpu() -> None:
    facts = replace(well(simulated=True), driver=refuse, num_devices=refuse)
    assert require_device("cuda", facts) == require_device("cuda:0", facts) == torch.device("cpu")
    with pytest.raises(ValueError, match="the CUDA simulator has one device"):
        require_device("cuda:1", facts)
    assert 'pip install "augpipe[torch]"' in message(replace(facts, torch=lambda: None))


def test_a_device_that_the_compiler_does_not_know_is_refused() -> None:
    supported = [(7, 5), (8, 0), (9, 0), (10, 0)]
    for capability in [*supported, (8, 6)]:
        check_capability(capability, "NVIDIA A", supported)
    with pytest.raises(DeviceError, match=r"NVIDIA A has compute capability 6.1, and .* begins at 7.5.*cuda12"):
        check_capability((6, 1), "NVIDIA A", supported)
    with pytest.raises(DeviceError, match=r'capability 12.0, which .*--upgrade "cuda-toolkit'):
        check_capability((12, 0), "NVIDIA A", supported)


def test_the_driver_version_is_read_but_not_of_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        failure = 0

        @classmethod
        def cuDriverGetVersion(cls, number: Any) -> int:
            number._obj.value = 12080
            return cls.failure

    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: Library)
    assert driver.driver_version() == (12, 8)
    Library.failure = 34
    with pytest.raises(OSError, match="stub; take its folder out of LD_LIBRARY_PATH"):
        driver.driver_version()


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"cuda-bindings": "13.5.0", "nvidia-nvvm": "13.5.37"}, Toolkit(compiler=(13, 5), linker=None)),
        (
            {"cuda-bindings": "12.9.2", "nvidia-nvvm": "13.5.37", "nvidia-cuda-nvcc-cu12": "12.9.86",
             "nvidia-nvjitlink-cu12": "12.8.93", "nvidia-nvjitlink": "13.5.37"},
            Toolkit(compiler=(12, 9), linker=(12, 8)),
        ),
        ({"cuda-bindings": "13.5.0"}, None),
        ({"cuda-bindings": "14.0.0", "nvidia-nvvm": "13.5.37"}, None),
    ],
)  # fmt: skip
def test_the_toolkit_is_that_of_the_bindings(
    packages: dict[str, str], expected: Toolkit | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed", packages.get)
    monkeypatch.setattr(versions, "_nvrtc_version", lambda: None)
    monkeypatch.setattr(versions, "_nvjitlink_version", lambda: None)
    assert versions.toolkit() == expected


@pytest.mark.parametrize("linker", [None, (12, 6)])
def test_a_toolkit_without_packages_is_known_by_its_libraries(
    linker: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed", lambda package: None)
    monkeypatch.setattr(versions, "_nvrtc_version", lambda: (12, 6))
    monkeypatch.setattr(versions, "_nvjitlink_version", lambda: linker)
    assert versions.toolkit() == Toolkit(compiler=(12, 6), linker=linker)


def test_nvvm_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    nvvm = pytest.importorskip("cuda.bindings.nvvm", reason="cuda-bindings is not installed")
    assert versions.nvvm_version() == nvvm.ir_version()[:2]

    def not_found() -> NoReturn:
        raise RuntimeError('Failure finding "libnvvm.so"')  # the kind that its bindings raise

    monkeypatch.setattr(nvvm, "ir_version", not_found)
    assert versions.nvvm_version() is None


def test_this_machine_gives_a_device_or_says_what_it_lacks() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert "pip" in message(THIS_MACHINE) or "nvidia-smi" in message(THIS_MACHINE)


@pytest.mark.gpu
def test_the_device_is_found_without_initialising_cuda() -> None:
    code = (
        "from augpipe.cuda.device_name import require_device; import torch\n"
        "assert require_device('cuda') == torch.device('cuda:0') and not torch.cuda.is_initialized()"
    )
    ended = run_python(code, options=())
    assert ended.returncode == 0, ended.stderr


def test_importing_it_loads_no_torch_and_no_numba_cuda() -> None:
    code = (
        "import sys, augpipe.cuda.device_name; assert not {'torch', 'numba.cuda', 'cuda.bindings'} & set(sys.modules)"
    )
    ended = run_python(code)
    assert ended.returncode == 0, ended.stderr
