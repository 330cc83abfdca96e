"""`augpipe doctor`: injected facts give the right lines and commands; the real command runs; a bad probe is a line."""

import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import augpipe
import augpipe.doctor as doctor_package
from augpipe.cli.app import app
from augpipe.cli.doctor import show
from augpipe.cuda.facts import Facts, Torch
from augpipe.cuda.versions import Toolkit
from augpipe.dali.install import Machine, require_dali
from augpipe.dali.nvjpeg import Nvjpeg, complaint
from augpipe.doctor import Finding, examine, is_well, system
from augpipe.doctor.clusters import OLDEST, clusters
from augpipe.doctor.dali import DaliFacts, dali
from augpipe.doctor.decoders import decoders, jpeg_bytes, picture, tried
from augpipe.doctor.examine import SECTIONS, Section
from augpipe.doctor.gpu_queries import Gpu
from augpipe.doctor.gpus import GpuFacts, gpus, is_nvidia_on_bus
from augpipe.doctor.system import cores, kernel_cache, memory, processor
from augpipe.gpu_ops.compiled import cache
from augpipe.gpu_ops.compiled.declared import overloads
from augpipe.gpu_ops.compiled.folder import CACHE_VARIABLE
from tests.child_path import child_path

ROOT = Path(__file__).resolve().parents[3]
GPU = Gpu(name="NVIDIA H200", capability=(9, 0), total_bytes=150 * 10**9, free_bytes=149 * 10**9)


def answering(answer: Any) -> Callable[..., Any]:
    return lambda *arguments: answer


def without_driver() -> NoReturn:
    raise OSError("libcuda.so.1: cannot open shared object file")


def gpu_facts(on_bus: bool = True, **changes: Any) -> GpuFacts:
    """A machine with one H200 on which all is well; changes are to `Facts`' answers or to `GpuFacts` itself."""
    answers: dict[str, Any] = {
        "driver": (13, 0),
        "torch": Torch(version="2.13.0", cuda=(13, 0)),
        "numba_cuda": "0.30.4",
        "nvvm": (2, 0),
        "toolkit": Toolkit(compiler=(13, 0), linker=(13, 0)),
        "num_devices": 1,
        "names": ["NVIDIA H200"],
        "current": None,
        "local_rank": None,
        "visible": None,
        "simulated": False,
    }
    cuda = {name: answering(changes.pop(name, answer)) for name, answer in answers.items()}
    fields: dict[str, Any] = {
        "gpus": answering(("580.65.06", [GPU])),
        "capabilities": answering([(7, 5), (9, 0)]),
        "devices": answering([("NVIDIA H200", (9, 0))]),
        "launch": answering(None),
        "is_on_bus": answering(on_bus),
    }
    return GpuFacts(cuda=Facts(**cuda), **(fields | changes))


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    found = {finding.name: finding for finding in findings}
    assert len(found) == len(findings)
    return found


def test_a_machine_with_a_gpu_shows_all_of_it() -> None:
    found = by_name(gpus(gpu_facts()))
    assert {finding.status for finding in found.values()} == {"ok"}
    assert found["torch"].text == "2.13.0, built for CUDA 13.0"
    assert found["driver"].text == "580.65.06, knows CUDA up to 13.0"
    assert found["GPU 0"].text == "NVIDIA H200, compute capability 9.0, 149.0 of 150.0 GB free"
    kernels = "numba-cuda 0.30.4, compiled by CUDA 13.0 (NVVM IR 2.0), linked by nvJitLink 13.0"
    assert found["CUDA kernels"].text == kernels
    assert found['device="cuda"'].data == {"usable": True, "num_devices": 1}


def test_a_machine_without_a_gpu_is_not_alarmed() -> None:
    facts = gpu_facts(on_bus=False, torch=Torch(version="2.13.0+cpu", cuda=None))
    findings = gpus(replace(facts, cuda=replace(facts.cuda, driver=without_driver)))
    found = by_name(findings)
    assert set(found) == {"torch", "GPU"}
    assert (found["torch"].status, found["torch"].text) == ("ok", "2.13.0+cpu, built for the CPU")
    assert (found["GPU"].status, found["GPU"].text) == ("none", "no NVIDIA GPU: the native backend runs on the CPU")
    assert not any(finding.command or finding.brings for finding in findings)


def test_a_gpu_without_its_driver_is_missing_something() -> None:
    facts = gpu_facts()
    found = by_name(gpus(replace(facts, cuda=replace(facts.cuda, driver=without_driver))))
    assert found["GPU"].status == "missing" and "no driver for it" in found["GPU"].text


@pytest.mark.parametrize(
    ("changes", "status", "text", "command"),
    [
        ({"torch": None}, "missing", "torch, which is not installed", 'pip install "augpipe[cuda13]"'),
        (
            {"torch": Torch(version="2.13.0+cpu", cuda=None)},
            "missing",
            "a build without CUDA",
            'pip uninstall -y torch && pip install "augpipe[cuda13]"',
        ),
        ({"numba_cuda": None}, "missing", "need numba-cuda", 'pip install "augpipe[cuda13]"'),
        ({"nvvm": None}, "missing", "there is no libnvvm", 'pip install "augpipe[cuda13]"'),
        ({"toolkit": None}, "missing", "NVVM, and no NVRTC", 'pip install "augpipe[cuda13]"'),
        (
            {"toolkit": Toolkit(compiler=(13, 5), linker=None)},
            "broken",
            "compiled to PTX by CUDA 13.5",
            'pip install "cuda-toolkit[nvvm,nvrtc]>=13,<13.1"',
        ),
        (
            {"driver": (12, 8)},
            "broken",
            "release 580",
            'pip uninstall -y torch && pip install "augpipe[cuda12]" "torch<2.11"',
        ),
        ({"num_devices": 0, "visible": ""}, "broken", 'CUDA_VISIBLE_DEVICES="" leaves no GPU', ""),
        (
            {"devices": answering([("NVIDIA P100", (6, 0))])},
            "broken",
            "P100 has compute capability 6.0",
            'pip install "augpipe[cuda12]" "torch<2.11"',
        ),
    ],
)
def test_what_keeps_loaders_from_the_gpu_is_said(changes: dict[str, Any], status: str, text: str, command: str) -> None:
    found = by_name(gpus(gpu_facts(**changes)))
    verdict = found['device="cuda"']
    assert ("CUDA kernels" in found) == (
        None not in (changes.get(name, 0) for name in ("numba_cuda", "nvvm", "toolkit"))
    )
    assert verdict.status == status and text in verdict.text and verdict.command == command
    assert verdict.data == {"usable": False} and not verdict.is_needed


def test_a_kernel_that_fails_is_told() -> None:
    def launch() -> NoReturn:
        raise ValueError("[222] unsupported PTX\nmore")

    verdict = by_name(gpus(gpu_facts(launch=launch)))['device="cuda"']
    assert verdict.status == "broken" and verdict.text.endswith("ValueError: [222] unsupported PTX")


def test_gpus_that_cannot_be_listed_are_no_reason_to_stop() -> None:
    def unlisted() -> NoReturn:
        raise OSError("nvmlInit_v2 of libnvidia-ml.so.1 answers with error 18")

    found = by_name(gpus(gpu_facts(gpus=unlisted)))
    assert found["driver"].status == "broken" and "error 18" in found["driver"].text
    assert found['device="cuda"'].status == "ok"


def test_gpus_are_seen_on_the_bus(tmp_path: Path) -> None:
    for number, (vendor, kind) in enumerate([("0x8086", "0x030000"), ("0x10de", "0x040300")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    assert not is_nvidia_on_bus(tmp_path) and not is_nvidia_on_bus(tmp_path / "nowhere")
    (tmp_path / "1" / "class").write_text("0x030200\n")
    assert is_nvidia_on_bus(tmp_path)


def module_error(name: str) -> Callable[[str], NoReturn]:
    def load(module: str) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return load


@pytest.mark.parametrize(
    ("has_driver", "missing", "status", "command"),
    [
        (False, "nvidia.dali", "none", ""),
        (True, "nvidia", "missing", 'pip install "augpipe[cuda13]"'),
        (True, "astunparse", "broken", ""),
    ],
)
def test_dali_that_cannot_be_imported(has_driver: bool, missing: str, status: str, command: str) -> None:
    machine = Machine(platform="linux", load=module_error(missing), driver=lambda: (13, 0))
    facts = DaliFacts(
        driver=answering((13, 0)) if has_driver else without_driver,
        require=lambda device_id: require_dali(device_id, machine),
    )
    (found,) = dali(facts)
    assert (found.status, found.command, found.is_needed) == (status, command, False)


class Dali:
    __version__ = "2.4.0"
    __cuda_version__ = 13492


def test_dali_is_tried_on_both_devices() -> None:
    asked: list[int | None] = []

    def decode(data: bytes, device_id: int | None) -> Any:
        asked.append(device_id)
        if device_id is not None:
            raise RuntimeError("nvJPEG is out of memory\nStacktrace")
        return picture()

    facts = DaliFacts(driver=answering((13, 0)), require=answering(Dali), decode=decode, nvjpeg=answering(None))
    cpu, gpu, _ = dali(facts)
    assert asked == [None, 0]
    assert cpu.status == "ok" and "DALI 2.4.0, built for CUDA 13.4, decoded a test picture on the CPU" in cpu.text
    assert gpu.status == "broken" and gpu.text == "nvJPEG is out of memory"
    (alone,) = dali(replace(facts, driver=without_driver))
    assert alone == cpu


@pytest.mark.parametrize(
    ("found", "status", "text", "command", "data"),
    [
        (
            Nvjpeg(path="/a/libnvjpeg.so.13", version=(13, 2)),
            "ok",
            "13.2, loaded from /a/libnvjpeg.so.13",
            "",
            {"path": "/a/libnvjpeg.so.13", "version": "13.2", "takes_regions": True},
        ),
        (
            Nvjpeg(path="/cuda/libnvjpeg.so.13", version=(13, 0)),
            "broken",
            "nvJPEG 13.0 is loaded (/cuda/libnvjpeg.so.13): with one before 13.2",
            'pip install "nvidia-nvjpeg>=13.2"',
            {"path": "/cuda/libnvjpeg.so.13", "version": "13.0", "takes_regions": False},
        ),
        (None, "missing", "DALI finds no nvJPEG", "pip install --force-reinstall nvidia-nvjpeg", {}),
    ],
)
def test_the_nvjpeg_that_dali_loaded(
    found: Nvjpeg | None, status: str, text: str, command: str, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def decode(image_bytes: bytes, device_id: int | None) -> Any:
        asked.append(device_id)
        return picture() if device_id is None else None

    def nvjpeg() -> Nvjpeg | None:
        assert asked == [None, 0], "nothing is loaded before a decoder is made"
        return found

    monkeypatch.setattr("augpipe.doctor.dali.complaint", partial(complaint, package=answering(None), environment={}))
    facts = DaliFacts(driver=answering((13, 0)), require=answering(Dali), decode=decode, nvjpeg=nvjpeg)
    line = by_name(dali(facts))["nvJPEG"]
    assert (line.status, line.command, line.data, line.is_needed) == (status, command, data, False)
    assert line.text.startswith(text)
    assert bool(line.brings) == (status != "ok")


def test_ray_by_its_version_or_how_to_get_it() -> None:
    def of(version: str) -> Finding:
        (found,) = clusters(answering(SimpleNamespace(__version__=version)))
        return found

    def lacking(cause: ImportError) -> Finding:
        def require() -> NoReturn:
            raise ImportError("needs Ray") from cause

        (found,) = clusters(require)
        return found

    assert (of("2.44.1").status, of("3.0.0").status, of("2.44.1").data) == ("ok", "ok", {"version": "2.44.1"})
    for old in ("2.43.0", "1.99.0"):
        found = of(old)
        assert found.status == "broken" and found.text == f"{old} is too old: augpipe takes 2.44 or newer"
        assert found.command == 'pip install "augpipe[ray]" -U' and not found.is_needed
    found = lacking(ModuleNotFoundError("No module named 'ray'", name="ray"))
    assert (found.status, found.text, found.command) == ("missing", "not installed", 'pip install "augpipe[ray]"')
    assert "parameter servers" in found.brings
    found = lacking(ImportError("libx.so is missing\nand more"))
    assert (found.status, found.text) == ("broken", "cannot be imported: libx.so is missing")
    requirement = (ROOT / "pyproject.toml").read_text()
    assert f'ray = ["ray>={OLDEST[0]}.{OLDEST[1]}"]' in requirement


def test_a_decoder_that_is_wrong_is_broken() -> None:
    assert [finding.status for finding in decoders()] == ["ok", "ok"]
    for wrong in (np.zeros((48, 64, 3), np.uint8), picture()[:40]):
        found = tried("JPEG", "a decoder", jpeg_bytes(), answering(wrong))
        assert found.status == "broken" and not is_well([found])


def test_the_kernel_cache_says_what_is_compiled_and_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num = len(overloads())
    monkeypatch.setattr(cache, "readable_folders", lambda: [tmp_path])
    found = kernel_cache(lambda: tmp_path)
    assert found.status == "ok" and found.text == f"{tmp_path} ({num} not yet, which `augpipe warm` compiles)"
    one = overloads()[0]
    (tmp_path / one.kernel._cache._path(tmp_path, one.types).name).touch()
    found = kernel_cache(lambda: tmp_path)
    assert found.data["num_kernels"] == {"wheel": 0, "here": 1, "missing": num - 1}
    assert f"1 compiled here; {num - 1} not yet" in found.text
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    monkeypatch.setattr(cache, "readable_folders", list)
    found = kernel_cache(lambda: tmp_path / "file" / "kernels")
    assert found.status == "missing" and CACHE_VARIABLE in found.command and "cannot be kept in" in found.text
    assert f"{num} not yet" in found.text and "augpipe warm" not in found.text  # which could not keep them


def test_a_kernel_cache_that_is_full_need_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").touch()
    monkeypatch.setattr(system, "find_kernel", lambda one: (tmp_path, "here"))
    found = kernel_cache(lambda: tmp_path / "kernels")
    assert found.status == "ok" and found.text.startswith(f"{tmp_path / 'kernels'}, which cannot be written (")


def test_a_wheel_for_something_else_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "PREBUILT", tmp_path)
    monkeypatch.setattr(cache, "PREBUILT", tmp_path)
    cache.prebuilt_level.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kernel_cache()
    cache.prebuilt_level.cache_clear()
    assert found.status == "ok" and "those of the wheel are not used: " in found.text
    assert found.data["wheel_problem"] in found.text


def test_the_processor_names_its_vectors() -> None:
    features = {"avx": True, "avx2": True, "avx512f": True, "sse": True, "sve": False}
    found = processor(lambda: "A CPU", lambda: "znver4", lambda: features)
    assert found.text == "A CPU: AVX-512 and AVX2 (LLVM compiles for znver4)"
    assert found.data["features"] == ["avx", "avx2", "avx512f", "sse"]
    assert "no vector instructions" in processor(lambda: "A CPU", lambda: "generic", dict).text


def test_memory_does_without_what_the_system_does_not_say() -> None:
    def unknown() -> NoReturn:
        raise ValueError("no MemAvailable")

    assert memory(lambda: 3 * 10**9).text.endswith("of which this process can take 3.0 GB")
    assert memory(unknown).data["available_bytes"] is None


def test_the_limits_of_a_container_are_shown() -> None:
    found = memory(lambda: 3 * 10**9, lambda: 4 * 10**9)
    assert found.text.endswith(", limited to 4.0 GB by a control group, of which this process can take 3.0 GB")
    assert found.data["limit_bytes"] == 4 * 10**9
    found = cores(lambda: 2, lambda: 1.5)
    assert found.text.startswith("2 usable")
    assert found.text.endswith("; a control group gives this process the time of 1.5")
    assert found.data["quota"] == 1.5
    assert "control group" not in cores(lambda: 2, lambda: None).text
    assert "control group" not in memory(lambda: 3 * 10**9, lambda: None).text


def write_probe(folder: Path, body: str) -> None:
    (folder / "a_probe.py").write_text(
        f"from augpipe.doctor.finding import Finding\nimport os, signal, time\ndef probe():\n    {body}\n"
    )


FINE = 'return [Finding(name="fine", status="ok", text="é")]'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"print('noise'); os.write(1, b'more'); {FINE}", None),
        ("raise ValueError('out of luck')", "ValueError: out of luck"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its process was ended by SIGSEGV"),
        ("os._exit(3)", "exit code 3"),
    ],
)
def test_a_probe_apart_that_fails_is_a_line(
    body: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_probe(tmp_path, body)
    monkeypatch.syspath_prepend(str(tmp_path))
    section = Section(title="Odd", module="a_probe", function="probe", in_own_process=True)
    (found,) = examine([section])
    if expected is None:
        assert found == Finding(name="fine", status="ok", text="é", section="Odd")
    else:
        assert (found.section, found.status) == ("Odd", "broken")
        assert found.text.startswith("cannot be looked at: ") and expected in found.text and "\n" not in found.text


def test_a_probe_apart_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.doctor.examine import start

    write_probe(tmp_path, "time.sleep(600)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="no answer within 0 s"):
        start("a_probe", "probe", timeout_s=0.1)()


def test_a_probe_that_fails_here_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Section(title="Bad", module="augpipe.doctor.nowhere", function="probe", is_needed=True)
    findings = examine([bad, SECTIONS[2]])
    assert [finding.section for finding in findings] == ["Bad", "Decoders", "Decoders"]
    assert findings[0].status == "broken" and "No module named 'augpipe.doctor.nowhere'" in findings[0].text
    assert not is_well(findings) and is_well(findings[1:])


EVERY = [
    Finding(name="JPEG", status="ok", text="decodes", is_needed=True, section="Decoders"),
    Finding(name="GPU", status="none", text="no NVIDIA GPU", section="CUDA"),
    Finding(name="DALI", status="missing", text="not installed", brings="speed", command="pip install x", section="D"),
    Finding(name="cuda", status="broken", text="too [old] " + "word " * 30, section="D"),
]


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_a_terminal(width: int) -> None:
    file = io.StringIO()
    show(EVERY, Console(file=file, width=width, highlight=False))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "ok JPEG decodes" in text and "- GPU no NVIDIA GPU" in text
    assert "missing DALI not installed brings speed pip install x" in text and "broken cuda too [old] word" in text
    assert lines[-1] == "augpipe runs here on the CPU; to be mended: cuda"


def test_the_last_line_is_the_verdict() -> None:
    def last(*findings: Finding) -> str:
        file = io.StringIO()
        show(findings, Console(file=file, width=80))
        return file.getvalue().splitlines()[-1]

    jpeg, gpu, missing, _ = EVERY
    assert last(jpeg, gpu) == "augpipe runs here, and nothing is missing"
    assert last(jpeg, gpu, missing) == "augpipe runs here; it could do more with: DALI"
    assert last(replace(jpeg, status="broken"), missing) == "augpipe cannot run here: JPEG"


def test_the_exit_code_is_that_of_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for findings, code in ((EVERY, 0), ([replace(EVERY[0], status="broken")], 1)):
        monkeypatch.setattr(doctor_package, "examine", lambda progress, findings=findings: findings)
        for arguments in (["doctor"], ["doctor", "--json"]):
            ended = CliRunner().invoke(app, arguments)
            assert ended.exit_code == code, ended.output
            assert isinstance(ended.exception, SystemExit | None)
        assert json.loads(ended.stdout)["is_well"] is (code == 0)


@pytest.mark.slow  # a process that imports torch
def test_the_real_command_prints_json_that_parses() -> None:
    command = [sys.executable, "-m", "augpipe", "doctor", "--json"]
    environment = {**os.environ, "PYTHONPATH": child_path()}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert all(line.startswith("augpipe: looking at this machine") for line in ended.stderr.splitlines())
    report = json.loads(ended.stdout)
    assert report["augpipe"] == augpipe.__version__ and report["is_well"] is True
    findings = [Finding.from_json(fields) for fields in report["findings"]]
    assert list(dict.fromkeys(finding.section for finding in findings)) == [section.title for section in SECTIONS]
    found = {finding.name: finding for finding in findings}
    assert found["torch"].status == "ok" and found["torch"].data["version"]
    assert found["DALI"].status in ("ok", "none", "missing")
    assert found["Ray"].status in ("ok", "missing")
    assert not any("cannot be looked at" in finding.text for finding in findings)


@pytest.mark.slow
def test_a_trial_kernel_runs_in_the_simulator() -> None:
    code = "from augpipe.doctor.gpu_queries import launch_kernel; launch_kernel()"
    environment = {**os.environ, "PYTHONPATH": child_path(), "NUMBA_ENABLE_CUDASIM": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)
