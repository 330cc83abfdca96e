"""What is said where DALI cannot be used, on machines that are made up."""

from types import SimpleNamespace
from typing import Any

import pytest

from augpipe.dali.install import Machine, require_dali

MISSING = ModuleNotFoundError("No module named 'nvidia'", name="nvidia")


def machine(
    found: Any = None,
    *,
    version: str = "2.4.0",
    cuda: int = 13492,
    driver: tuple[int, int] | None = (13, 0),
    platform: str = "linux",
) -> Machine:
    """A machine with DALI `version` built for `cuda`, or one where importing it raises `found`."""

    def load(name: str) -> Any:
        assert name == "nvidia.dali"
        if found is not None:
            raise found
        return SimpleNamespace(__version__=version, __cuda_version__=cuda)

    def ask_driver() -> tuple[int, int]:
        if driver is None:
            raise OSError("no such file")
        return driver

    return Machine(platform=platform, load=load, driver=ask_driver)


def refusal(device_id: int | None, asked: Machine) -> str:
    with pytest.raises(ImportError) as caught:
        require_dali(device_id, asked)
    return str(caught.value)


@pytest.mark.parametrize("version", ["2.0.0", "2.4.0", "2.11.1", "3.0.0.dev20270101"])
@pytest.mark.parametrize("device_id", [None, 0, 3])
def test_the_module_is_given(device_id: int | None, version: str) -> None:
    assert require_dali(device_id, machine(version=version)).__version__ == version


@pytest.mark.parametrize("driver", [None, (11, 8), (12, 2)])
def test_the_cpu_needs_no_driver(driver: tuple[int, int] | None) -> None:
    assert require_dali(None, machine(driver=driver)).__cuda_version__ == 13492


@pytest.mark.parametrize("name", ["nvidia", "nvidia.dali"])
def test_missing(name: str) -> None:
    missing = ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert refusal(None, machine(missing)) == (
        'backend="dali" needs NVIDIA DALI (nvidia-dali-cuda130, on the CPU without a GPU too), which is not installed: '
        'pip install "augpipe[dali]"'
    )


@pytest.mark.parametrize(("driver", "major"), [((12, 4), 12), ((12, 9), 12), ((13, 0), 13), ((14, 0), 13)])
def test_missing_on_a_gpu(driver: tuple[int, int], major: int) -> None:
    text = refusal(0, machine(MISSING, driver=driver))
    assert text.startswith(
        f'backend="dali" needs NVIDIA DALI (nvidia-dali-cuda{major}0), which is not installed: '
        f'pip install "augpipe[cuda{major}]"'
    )


@pytest.mark.parametrize(
    "problem",
    [
        ImportError("libdali.so: cannot open shared object file"),
        ModuleNotFoundError("No module named 'nvidia.nvimgcodec'", name="nvidia.nvimgcodec"),
    ],
)
def test_installed_but_broken(problem: ImportError) -> None:
    assert refusal(None, machine(problem)) == (
        f"NVIDIA DALI is installed and cannot be loaded ({problem}). Install it again: "
        'pip install --force-reinstall "augpipe[dali]"'
    )


@pytest.mark.parametrize("version", ["1.53.0", "1.49.0"])
def test_too_old(version: str) -> None:
    assert refusal(None, machine(version=version)) == (
        f'DALI {version} is too old: 2.0 or newer is needed: pip install --upgrade "augpipe[dali]"'
    )


def test_built_for_a_newer_cuda_than_the_driver_runs() -> None:
    text = refusal(1, machine(driver=(12, 8)))
    assert text.startswith(
        "DALI 2.4.0 was built for CUDA 13, and the NVIDIA driver knows CUDA up to 12.8. Update the driver, or put "
        'nvidia-dali-cuda120 in its place: pip uninstall -y nvidia-dali-cuda130 && pip install "augpipe[cuda12]"'
    )
    for driver in ((12, 8), (13, 0)):
        assert require_dali(1, machine(cuda=12986, driver=driver))


def test_no_driver() -> None:
    text = refusal(0, machine(driver=None))
    assert "libcuda.so.1 cannot be used (no such file)" in text and 'device="cpu"' in text


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_another_system(platform: str) -> None:
    text = refusal(None, machine(platform=platform))
    assert "needs Linux" in text and repr(platform) in text and 'backend="native"' in text


def test_the_driver_is_asked_for_on_a_gpu_alone() -> None:
    def fail() -> tuple[int, int]:
        raise AssertionError

    asked = Machine(platform="linux", load=machine().load, driver=fail)
    assert require_dali(None, asked)
    with pytest.raises(AssertionError):
        require_dali(0, asked)


def test_this_machine() -> None:
    pytest.importorskip("nvidia.dali")
    assert require_dali(None).__name__ == "nvidia.dali"
