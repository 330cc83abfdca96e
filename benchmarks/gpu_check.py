"""Everything that a CUDA machine can show of augpipe: checks and measurements, one dated JSON report.

    make gpu-check                                                          # in a checkout with its environment
    python benchmarks/gpu_check.py [--out FOLDER] [--second | --only SECTION ...] [--list]

One child process goes through all answers, section by section, and writes each down as it has it. Where an answer kills
it, hangs, or leaves the CUDA context unusable, another child goes on with the next one; a section whose time is over
gives way to the next section. The report is written after every answer. Where preflight finds something that would
make the rest meaningless, the run stops there and says what. The exit code is 1 where a check failed or an answer was
lost, 2 where there is no CUDA device.

Without --second it is what matters most, in at most 9 minutes; --second is the tests marked gpu, compute-sanitizer, two
ranks on one GPU, and what takes longer. --began "$(date +%s)" counts the time from before packages were unpacked.

Nothing needs to be installed, as on a machine without pip, make or network: unpack the wheels of what that machine's
Python lacks (pydantic, simplejpeg, DALI and what it needs) into a folder, and from any other folder

    PYTHONPATH=/path/to/unpacked python /path/to/repository/benchmarks/gpu_check.py --out /path/to/results

Needed: numpy, numba, numba-cuda, torch with CUDA, pillow, simplejpeg, pydantic. Used where installed, and named in the
report where not: DALI, torchvision, kornia, pytest with hypothesis and scipy, compute-sanitizer. Images come from
photos.tar in the folder that AUGPIPE_DATA names; without it images of the sample dataset are drawn, which takes some
seconds, and are brought to the area of 500x375 pixels, as most of ImageNet's are.

--simulate runs what numba's CUDA simulator can, on tiny images, to show that the script itself runs; figures that it
writes are of no meaning, and it wants a folder for them by --out.
"""

import argparse
import ctypes
import gc
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LAST_LINES = 30
"""How much of a child's output is kept where it is lost."""
LOADING = "loading the section"
NO_DEVICE = "it needs a device"
STARTING_S = 60
"""The longest that a child may take until it begins with an answer."""
UNUSABLE, STOPPED = 3, 4
"""A child's exit codes: the CUDA context is lost; preflight found something wrong."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A module `gpu_NAME` with `answers(run)`: by name, functions that are given the findings."""

    what: str
    limit_s: int
    answer_s: int = 90
    """The longest that one of its answers may take."""
    is_first: bool = True
    """Whether it belongs to the call that matters most; else to --second."""
    needs_device: bool = False
    """Whether numba's simulator is no help."""


SECTIONS = {
    "preflight": Section(what="versions, NVVM, one kernel, the loaded nvJPEG", limit_s=60),
    "kernel": Section(what="the fused kernel beside its floor, Kornia and grid_sample", limit_s=110),
    "codecs": Section(what="gradients encoded, decoded, added", limit_s=60),
    "decode": Section(what="DALI's decoding alone, our loader, torchvision", limit_s=170),
    "training": Section(what="what the GPU waits for between ResNet-50's training steps", limit_s=110),
    "parity": Section(what="pixels of CPU and CUDA; one batch by each route", limit_s=110),
    "tests": Section(what="the tests marked gpu", limit_s=200, answer_s=200, is_first=False, needs_device=True),
    "sanitizer": Section(
        what="compute-sanitizer over the kernels", limit_s=240, answer_s=120, is_first=False, needs_device=True
    ),
    "ranks": Section(what="two ranks on one GPU: butterfly, lazy, DDP", limit_s=130, answer_s=120, is_first=False),
    "faults": Section(what="full device, capture, bad kernel", limit_s=60, is_first=False),
    "memory": Section(what="host to device; memory over 1,000 batches", limit_s=120, is_first=False),
}
"""In this order, so that what matters most is there if time runs out."""


def main() -> int:
    options = _options()
    if options.child:
        return _run_child(options)
    if options.list:
        for name, section in SECTIONS.items():
            print(f"{name:12} {section.what}; at most {section.limit_s} s{'' if section.is_first else '; --second'}")
        return 0
    device, reason = ("simulated", "") if options.simulate else _device()
    if device is None:
        print(f"gpu_check needs a CUDA device: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the child is ended too
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        return Parent(device, options, Path(work)).run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the report")
    parser.add_argument("--second", action="store_true", help="the sections of the second call")
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="a section; may be given again")
    parser.add_argument("--minutes", type=float, default=9.0, help="nothing goes on for longer than this")
    parser.add_argument("--answer-seconds", type=float, default=1e9, help="nor one answer for longer than this")
    parser.add_argument(
        "--began", type=float, default=time.time(), help="when the minutes began, in seconds since 1970"
    )
    parser.add_argument("--list", action="store_true", help="name the sections")
    parser.add_argument("--simulate", action="store_true", help="what numba's CUDA simulator can run")
    for name in ("child", "origin"):  # of the child's command: a folder, and what the images are
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate and options.out == RESULTS and not options.child:
        parser.error("--simulate measures nothing, so its report has no place among the results: give --out")
    return options


def _device() -> tuple[str | None, str]:
    """Its name, or why there is none; asked of the driver, which makes no context for that."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return None, str(error)
    number, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    for call, *arguments in (("cuInit", 0), ("cuDeviceGet", ctypes.byref(number), 0)):
        if status := getattr(library, call)(*arguments):
            return None, f"the driver answers {call} with error {status}"
    library.cuDeviceGetName(name, len(name), number)
    return name.value.decode(), ""


class Parent:
    """Starts children, one at a time, until every section is done or given up, and writes the report."""

    def __init__(self, device: str, options: argparse.Namespace, work: Path) -> None:
        chosen = [name for name, section in SECTIONS.items() if section.is_first != options.second]
        self._chosen = [name for name in SECTIONS if name in options.only] if options.only else chosen
        self._options, self._work = options, work
        self._journal, self._log = work / "journal", work / "log"
        self._deadline = time.monotonic() + options.minutes * 60 - (time.time() - options.began)
        self._ended: dict[str, dict[str, str]] = {}
        """Sections that have come to an end by the parent's doing: their status and the reason."""
        self._lost: dict[str, dict[str, Any]] = {}
        self._num_told = 0
        self._report: dict[str, Any] = {
            "benchmark": "gpu-check",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device,
        }
        if options.simulate:
            self._report["simulated"] = "in numba's CUDA simulator: nothing here was measured on a device"
        words = "".join(c if c.isalnum() else " " for c in device.lower()).split()
        which = (options.only and self._chosen) or (["second"] if options.second else [])
        self.path = options.out / ("-".join([self._report["date"], "gpu-check", *words, *which]) + ".json")

    def run(self) -> int:
        """Everything; returns the exit code."""
        self._journal.touch()
        self._report["photographs"] = _prepare(self._work / "photographs", self._options.simulate)
        for name in self._chosen:
            if self._options.simulate and SECTIONS[name].needs_device:
                self._ended[name] = {"status": "not run", "reason": NO_DEVICE}
        while left := [name for name in self._chosen if name not in self._ended]:
            if not self._one_child(left):
                break
        self._write(anew=True)
        print(self._table())
        print(f"kept in {self.path}")
        return 0 if self._is_well() else 1

    def _one_child(self, left: list[str]) -> bool:
        """Run a child until it ends or must be ended; returns whether another one has something to do."""
        command = [sys.executable, __file__, "--child", str(self._work), "--origin", self._report["photographs"]]
        command += [part for name in left for part in ("--only", name)]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # this checkout's augpipe
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
        if self._options.simulate:
            command.append("--simulate")
            environment["NUMBA_ENABLE_CUDASIM"] = "1"
        num_before, started = len(self._events()), time.monotonic()
        with open(self._log, "wb") as file:
            child = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            why = ""
            while child.poll() is None and not why:
                time.sleep(0.05)
                self._write()
                why = self._overdue(started, num_before)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.returncode == 0:
            return False
        return self._after(why or _ending(child.returncode), num_before)

    def _overdue(self, started: float, num_before: int) -> str:
        """Why the child must be ended now; empty where it may go on."""
        now, events = time.monotonic(), self._events()
        if now > self._deadline:
            return f"the {self._options.minutes:g} minutes were over"
        if events[num_before:]:
            section = events[-1]["section"]
            began = next(event["at"] for event in events if event["section"] == section)
            if events[-1]["event"] == "begin" and now - began > SECTIONS[section].limit_s:
                return f"its section's {SECTIONS[section].limit_s} s were over"
            longest = min(SECTIONS[section].answer_s, self._options.answer_seconds)
        else:
            longest = STARTING_S
        if now - max([started, *(event["at"] for event in events[num_before:])]) > longest:
            return f"it took more than {longest:g} s"
        return ""

    def _after(self, why: str, num_before: int) -> bool:
        """Note what was lost with a child; returns whether the next one is to be started."""
        events = self._events()
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        is_over = time.monotonic() > self._deadline
        last = events[-1] if events[num_before:] else None
        if last is None and not is_over:
            return self._stop("the process that goes through the sections does not start", [why, *lines])
        if last is not None and last["event"] != "done":
            section = last["section"]
            answer = last["answer"] if last["event"] == "begin" else f"after {last['answer']}"
            self._lost.setdefault(section, {})[answer] = {"reason": why, "last_lines": lines}
            print(f"   LOST {section}, {answer}: {why}", flush=True)
            if why.startswith("its section"):
                self._ended[section] = {"status": "out of time", "reason": why}
            elif answer == LOADING:
                self._ended[section] = {"status": "failed", "reason": why}
        if last is not None and last["section"] == "preflight" and not is_over:
            return self._stop("preflight found what makes the rest meaningless", [why, *lines[-6:]])
        if is_over:
            begun = {event["section"] for event in events}
            for name in self._chosen:
                if name not in self._ended and not self._is_done(name, events):
                    self._ended[name] = {"status": "out of time" if name in begun else "not run", "reason": why}
        return not is_over

    def _stop(self, why: str, lines: list[str]) -> bool:
        self._report["stopped"] = [why, *lines]
        print("\n".join(["STOPPED: " + why, *lines]), flush=True)
        begun = {event["section"] for event in self._events()}
        self._ended |= {name: {"status": "not run", "reason": why} for name in self._chosen if name not in begun}
        return False

    def _events(self) -> list[dict[str, Any]]:
        """What children have written so far: answers' and sections' begins and ends."""
        return [json.loads(line) for line in self._journal.read_text().splitlines(keepends=True) if line[-1] == "\n"]

    @staticmethod
    def _is_done(section: str, events: list[dict[str, Any]]) -> bool:
        return any(event["section"] == section and event["event"] == "done" for event in events)

    def _write(self, *, anew: bool = False) -> None:
        """Bring the report up to date where there is something new, and print what is new."""
        events, sections = self._events(), {}
        if len(events) == self._num_told and not anew:
            return
        self._report["seconds"] = round(time.time() - self._options.began, 1)
        for name in self._chosen:
            own = [event for event in events if event["section"] == name]
            if not own and name not in self._ended:
                continue
            status = "under way" if not self._is_done(name, events) else "incomplete" if name in self._lost else "done"
            result: dict[str, Any] = {"status": status}
            if own:
                result["seconds"] = round(own[-1]["at"] - own[0]["at"], 1)
            result |= self._ended.get(name, {})
            found = self._work / f"{name}.json"
            result |= json.loads(found.read_text()) if found.exists() else {}
            if name in self._lost:
                result["lost"] = self._lost[name]
            sections[name] = result
        self._report["sections"] = sections
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self._report, indent=2) + "\n")
        part.replace(self.path)
        for event in events[self._num_told :]:
            if event["event"] == "end":
                print(f"   {event['section']}, {event['answer']}: {event['seconds']} s", flush=True)
            elif event["event"] == "done":
                _tell(event["section"], sections[event["section"]])
        self._num_told = len(events)

    def _table(self) -> str:
        lines = []
        for name, result in self._report.get("sections", {}).items():
            checks = result.get("checks", {}).values()
            num_passed = sum(found["passed"] for found in checks)
            left_out = ", ".join(result.get("not_measured", {})) or "-"
            numbers = f"{num_passed}/{len(checks)} checks, {len(result.get('errors', {}))} errors"
            lines.append(f"{name:12} {result['status']:12} {numbers}; not measured: {left_out}")
        return "\n".join(lines)

    def _is_well(self) -> bool:
        return "stopped" not in self._report and all(
            (result["status"] == "done" or result.get("reason") == NO_DEVICE)
            and not result.get("errors")
            and all(found["passed"] for found in result.get("checks", {}).values())
            for result in self._report["sections"].values()
        )


def _ending(code: int) -> str:
    if code == UNUSABLE:
        return "it left the CUDA context unusable"
    return f"it died of {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


def _tell(name: str, result: dict[str, Any]) -> None:
    print(f"== {name}: {result['status']}, {result['seconds']} s", flush=True)
    for key, value in result.get("measured", {}).items():
        print(f"   {key}: {json.dumps(value)[:240]}")
    for key, found in result.get("checks", {}).items():
        if not found["passed"]:
            print(f"   FAILED {key}: {json.dumps(found.get('detail'))[:400]}")
    for key, lines in result.get("errors", {}).items():
        print(f"   ERROR {key}: {lines[-1][:400]}")


def _prepare(folder: Path, is_simulated: bool) -> str:
    """Fill `folder` with JPEG files; returns what they are."""
    sys.path.insert(1, str(ROOT))
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
        Image.fromarray(image[:, :, :3].copy()).save(out, "JPEG", quality=95)
        (folder / f"{number:05}.jpg").write_bytes(out.getvalue())
    return f"{origin}, brought to the area of 500x375 pixels"


def _run_child(options: argparse.Namespace) -> int:
    """All answers of the sections that no child before has begun."""
    as_installed()
    from gpu_common import Findings, Run, is_usable

    work = Path(options.child)
    journal = work / "journal"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    begun = {(event["section"], event.get("answer")) for event in events}
    done = {event["section"] for event in events if event["event"] == "done"}
    run = Run(photographs=work / "photographs", origin=options.origin, work=work, is_simulated=bool(options.simulate))

    def note(event: str, section: str, **more: Any) -> None:
        with open(journal, "a") as file:
            file.write(json.dumps({"event": event, "section": section, "at": time.monotonic()} | more) + "\n")

    for section in options.only:
        if section in done:
            continue
        findings, answers = Findings(work / f"{section}.json"), {}
        note("begin", section, answer=LOADING)
        start = time.monotonic()
        with findings.attempt(LOADING):
            answers = importlib.import_module(f"gpu_{section}").answers(run)
        note("end", section, answer=LOADING, seconds=round(time.monotonic() - start, 2))
        for answer, work_of in answers.items():
            if (section, answer) in begun:
                continue
            note("begin", section, answer=answer)
            start = time.monotonic()
            with findings.attempt(answer):
                work_of(findings)
            if not is_usable():
                _leave(UNUSABLE)  # noted as begun alone: the next child goes on behind it
            note("end", section, answer=answer, seconds=round(time.monotonic() - start, 2))
            gc.collect()
        note("done", section)
        if section == "preflight" and (wrong := findings.wrong()):
            print("\n".join(wrong))
            _leave(STOPPED)
    _leave(0)
    return 0


def as_installed() -> None:
    """Have `numba.cuda` be numba-cuda's in a folder of unpacked wheels too, where Python runs no .pth file."""
    with suppress(ImportError):
        importlib.import_module("_numba_cuda_redirector")


def _leave(code: int) -> None:
    """End at once: after a CUDA error destructors may hang, and a decoder's threads need not be ended one by one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
