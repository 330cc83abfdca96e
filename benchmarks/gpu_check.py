"""Everything that a CUDA machine can show of augpipe: checks and measurements, one dated JSON report.

    make gpu-check                                         # in a checkout with its environment
    python benchmarks/gpu_check.py [--out FOLDER] [--only SECTION ...] [--minutes 9] [--list]

Each section runs in a process of its own with a time limit: an error, even one that leaves the CUDA context unusable,
ends that section alone. The report is written after every section, and what a section had found when it was stopped is
in it. Each says what was measured, what was checked, and what could not be measured here and why. The exit code is 1
where a check failed or a section did not end well, 2 where there is no CUDA device.

Without installing anything, as on a machine without a network: put the repository and a folder with the unpacked
wheels of what that machine's Python lacks (pydantic, simplejpeg, DALI and what it needs) on PYTHONPATH,

    PYTHONPATH=/path/to/site:/path/to/repository python benchmarks/gpu_check.py --out /path/to/results

Needed: numpy, numba, numba-cuda, torch with CUDA, pillow, simplejpeg, pydantic. Used where installed, and named in the
report where not: DALI, torchvision, kornia, pytest with hypothesis and scipy, compute-sanitizer. Photographs come from
photos.tar in the folder that AUGPIPE_DATA names; without it pictures of the sample dataset are drawn, which takes some
seconds, and are brought to the area of 500x375 pixels, as most of ImageNet's are.

Where a command may take 10 minutes at most, run it twice: --only tests --only sanitizer the second time. A section that
was not begun for want of time says so.

--simulate runs what numba's CUDA simulator can, on tiny pictures, to show that the script itself runs; figures that it
writes are of no meaning, and it wants a folder for them by --out.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LAST_LINES = 30
"""Of a section's own output, kept where it fails."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A module `gpu_NAME` with `run(run, findings)`."""

    what: str
    limit_s: int
    needs_device: bool = False
    """Whether numba's simulator is no help."""


SECTIONS = {
    "environment": Section(what="device, driver, versions, copy bandwidth", limit_s=60),
    "parity": Section(what="pixels of CPU and CUDA kernels from the same bytes", limit_s=150),
    "fused": Section(what="the fused kernel, timed by events", limit_s=90),
    "peers": Section(what="the same chain by torch, Kornia, torchvision and DALI's operators", limit_s=120),
    "loader": Section(what="the loader from JPEG files beside DALI's decoding; with the cache full", limit_s=120),
    "training": Section(what="what a ResNet-50 training step waits for data", limit_s=120),
    "pixels": Section(what="nvJPEG beside libjpeg; plans and caches bit by bit", limit_s=90),
    "faults": Section(what="bad index, full device, bad kernel, corrupt files", limit_s=120),
    "streams": Section(what="side streams, several streams, a host that never waits", limit_s=60, needs_device=True),
    "stages": Section(what="where a batch's time goes; launch shapes", limit_s=90),
    "memory": Section(what="device memory over 1,000 batches", limit_s=120),
    "tests": Section(what="the tests marked gpu", limit_s=150, needs_device=True),
    "sanitizer": Section(what="compute-sanitizer over the kernels", limit_s=150, needs_device=True),
}
"""In this order, so that what matters most is there if time runs out."""


def main() -> int:
    options = _options()
    if options.child:
        _run_child(options)
        return 0
    if options.list:
        for name, section in SECTIONS.items():
            print(f"{name:12} {section.what}; at most {section.limit_s} s")
        return 0
    device, reason = ("simulated", "") if options.simulate else _device()
    if device is None:
        print(f"gpu_check needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        return _run_all(device, options, Path(work))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the report")
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="a section; may be given again")
    parser.add_argument("--minutes", type=float, default=9.0, help="no section goes on for longer than this")
    parser.add_argument("--list", action="store_true", help="name the sections")
    parser.add_argument(
        "--simulate", action="store_true", help="what numba's CUDA simulator can run, to try the script"
    )
    for name in ("child", "work", "into", "origin"):  # of a section's own process
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate and options.out == RESULTS and not options.child:
        parser.error("--simulate measures nothing, so its report has no place among the results: give --out")
    return options


def _device() -> tuple[str | None, str]:
    """Its name, or why there is none; asked in another process, so that this one stays free of CUDA."""
    code = "import torch, sys; torch.zeros(1, device='cuda'); print(torch.cuda.get_device_name(0))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if found.returncode == 0:
        return found.stdout.strip().splitlines()[-1], ""
    return None, (found.stderr.strip().splitlines() or ["torch does not say why"])[-1]


def _run_all(device: str, options: argparse.Namespace, work: Path) -> int:
    chosen = [name for name in SECTIONS if not options.only or name in options.only]
    start = time.monotonic()
    origin = _prepare(work / "photographs", options.simulate)
    report: dict[str, Any] = {
        "benchmark": "gpu-check",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "photographs": origin,
        "sections": {},
    }
    if options.simulate:
        report["simulated"] = "in numba's CUDA simulator: nothing here was measured on a device"
    which = [] if len(chosen) == len(SECTIONS) else chosen  # so that runs of some sections lie beside each other
    words = "".join(c if c.isalnum() else " " for c in device.lower()).split()
    path = options.out / ("-".join([report["date"], "gpu-check", *words, *which]) + ".json")
    for name in chosen:
        left = options.minutes * 60 - (time.monotonic() - start)
        section = SECTIONS[name]
        if options.simulate and section.needs_device:
            result: dict[str, Any] = {"status": "not run", "reason": "it needs a device"}
        elif left < 1:
            result = {"status": "not run", "reason": f"the {options.minutes:g} minutes were over"}
        else:
            print(f"== {name}: {section.what}", flush=True)
            result = _run_section(name, min(section.limit_s, left), options, work, origin)
        report["sections"][name] = result
        report["seconds"] = round(time.monotonic() - start, 1)
        _write(report, path)
        _tell(name, result)
    print(_table(report))
    print(f"kept in {path}")
    return 0 if _is_well(report) else 1


def _prepare(folder: Path, is_simulated: bool) -> str:
    """Fill `folder` with JPEG files; returns what they are."""
    import io

    from common import imagenet_sized, photographs
    from PIL import Image

    folder.mkdir()
    if is_simulated:
        import numpy as np

        for number, size in enumerate([(14, 10), (9, 13), (16, 16)]):
            noise = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
            Image.fromarray(noise).save(folder / f"{number:05}.jpg")
        return "pictures of noise, of a few pixels"
    encoded, origin = photographs()
    if os.environ.get("AUGPIPE_DATA"):  # as they are: sizes and qualities are ImageNet's
        for number, data in enumerate(encoded):
            (folder / f"{number:05}.jpg").write_bytes(data)
        return origin
    for number, image in enumerate(imagenet_sized(encoded, len(encoded))):
        out = io.BytesIO()
        Image.fromarray(_rgb(image)).save(out, "JPEG", quality=95)
        (folder / f"{number:05}.jpg").write_bytes(out.getvalue())
    return f"{origin}, brought to the area of 500x375 pixels"


def _rgb(image: Any) -> Any:
    """The first three channels, dense."""
    return image[:, :, :3].copy()


def _run_section(name: str, limit_s: float, options: argparse.Namespace, work: Path, origin: str) -> dict[str, Any]:
    into, log = work / f"{name}.json", work / f"{name}.log"
    command = [sys.executable, __file__, "--child", name, "--work", str(work), "--into", str(into), "--origin", origin]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if options.simulate:
        command.append("--simulate")
        environment["NUMBA_ENABLE_CUDASIM"] = "1"
    began = time.monotonic()
    with open(log, "wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            code = child.wait(limit_s)
            status = "done" if code == 0 else "failed"
        except subprocess.TimeoutExpired:
            status = "out of time"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    result: dict[str, Any] = {"status": status, "seconds": round(time.monotonic() - began, 1)}
    if into.exists():
        result |= json.loads(into.read_text())
    lines = log.read_text(errors="replace").splitlines()
    if status != "done":
        result["last_lines"] = lines[-LAST_LINES:]
        if status == "failed" and child.returncode < 0:
            result["signal"] = signal.Signals(-child.returncode).name
    return result


def _run_child(options: argparse.Namespace) -> None:
    from gpu_common import Findings, Run

    work = Path(options.work)
    own = work / options.child
    own.mkdir(exist_ok=True)
    findings = Findings(Path(options.into))
    run = Run(photographs=work / "photographs", origin=options.origin, work=own, is_simulated=bool(options.simulate))
    try:
        importlib.import_module(f"gpu_{options.child}").run(run, findings)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # after a CUDA error, destructors may hang
    sys.stdout.flush()
    os._exit(0)  # what was found is on disk; a decoder's threads need not be ended one by one


def _write(report: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report, indent=2) + "\n")
    part.replace(path)


def _tell(name: str, result: dict[str, Any]) -> None:
    print(f"   {name}: {result['status']}, {result.get('seconds', 0)} s", flush=True)
    for key, value in result.get("measured", {}).items():
        print(f"   {key}: {json.dumps(value)[:240]}")
    for key, found in result.get("checks", {}).items():
        if not found["passed"]:
            print(f"   FAILED {key}: {json.dumps(found.get('detail'))[:400]}")
    for key, lines in result.get("errors", {}).items():
        print(f"   ERROR {key}: {lines[-1][:400]}")
    for line in result.get("last_lines", [])[-6:]:
        print(f"   | {line[:200]}")


def _table(report: dict[str, Any]) -> str:
    lines = []
    for name, result in report["sections"].items():
        checks = result.get("checks", {}).values()
        num_passed = sum(found["passed"] for found in checks)
        left_out = ", ".join(result.get("not_measured", {})) or "-"
        numbers = f"{num_passed}/{len(checks)} checks, {len(result.get('errors', {}))} errors"
        lines.append(f"{name:12} {result['status']:12} {numbers}; not measured: {left_out}")
    return "\n".join(lines)


def _is_well(report: dict[str, Any]) -> bool:
    return all(
        result["status"] in ("done", "not run")
        and not result.get("errors")
        and all(found["passed"] for found in result.get("checks", {}).values())
        for result in report["sections"].values()
    )


if __name__ == "__main__":
    sys.exit(main())
