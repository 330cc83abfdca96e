"""Everything that a CUDA machine can show of augpipe: checks and measurements, one dated JSON report.

    make gpu-check                                                          # in a checkout with its environment
    python -m benchmarks.gpu.check [--out FOLDER] [--second | --only SECTION ...] [--require] [--list]

One child process goes through all answers, section by section, and writes each down as it has it. Where an answer kills
it, hangs, or leaves the CUDA context unusable, another child goes on with the next one; a section whose time is over
gives way to the next section. The report is written after every answer. What would mean nothing after what preflight
found is dropped. The last lines name what was not run, what was covered, and each reason why the run failed.

The exit code is 1 where a check failed, an answer was lost, or a first call left an op, policy, codec or strategy
uncovered; 2 where there is no CUDA device. What needs an optional package that is missing is not run; --require makes
that a failure too: give it for evidence.

Without --second it is what matters most, in at most 9 minutes; --second is the tests marked gpu, compute-sanitizer, two
ranks on one GPU, and what takes longer. --began "$(date +%s)" counts the time from before packages were unpacked.

Nothing needs to be installed: unpack the wheels of what Python lacks into a folder, and put that on PYTHONPATH. Where
the current folder is not the checkout, run `python CHECKOUT/benchmarks/gpu/check.py`.
Needed: numpy, numba, numba-cuda, torch with CUDA, pillow, simplejpeg, pydantic. Used where installed: DALI, kornia,
pytest with hypothesis and scipy, compute-sanitizer. Images come from photos.tar in the folder that AUGPIPE_DATA names;
without it images of the sample dataset are drawn, and brought to the area of 500x375 pixels, as most of ImageNet's are.

--simulate runs what numba's CUDA simulator can, on tiny images, to show that the script runs; its figures mean nothing.
"""

import argparse
import ctypes
import gc
import importlib
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
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # not the folder of this file, whose `tests` and `codecs` are others
RESULTS = ROOT / "benchmarks" / "results"
MODULE = "benchmarks.gpu.check"
LAST_LINES = 30
"""How much of a child's output is kept where it is lost."""
LOADING = "loading the section"
ALL_LEFT_OUT = "none of its answers could be run here"
CALL_S = 9 * 60
STARTING_S = 60
"""The longest that a child may take until it begins with an answer."""
UNUSABLE = 3
"""A child's exit code: the CUDA context is lost."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A module of benchmarks/gpu with `answers(run)`: by name, functions that are given the findings."""

    what: str
    limit_s: int
    """Those of a call add up to `CALL_S` at most; the first one's counts from the call's begin."""
    answer_s: int = 40
    """The longest that one of its answers may take."""
    is_first: bool = True
    """Whether it belongs to the call that matters most; else to --second."""


SECTIONS = {
    "preflight": Section(what="versions, NVVM, one kernel, the loaded nvJPEG", limit_s=100, answer_s=90),
    "parity": Section(what="pixels of CPU and CUDA; one batch by each route", limit_s=110, answer_s=90),
    "kernel": Section(what="the fused kernel beside its floor and Kornia; further launches", limit_s=60, answer_s=50),
    "codecs": Section(what="gradients encoded, decoded, added", limit_s=40),
    "exchange": Section(what="gradients over NCCL, every strategy and codec", limit_s=50),
    "decode": Section(what="DALI's decoding alone, and our loader", limit_s=70),
    "training": Section(what="what the GPU waits for between ResNet-50's training steps", limit_s=40),
    "trainer": Section(what="augpipe train: rates, launches, waits, evaluation, resumed runs", limit_s=70),
    "tests": Section(what="the tests marked gpu", limit_s=150, answer_s=150, is_first=False),
    "sanitizer": Section(what="compute-sanitizer over the kernels", limit_s=160, answer_s=80, is_first=False),
    "ranks": Section(what="two ranks on one GPU: butterfly, lazy, DDP", limit_s=80, answer_s=80, is_first=False),
    "faults": Section(what="full device, capture, bad kernel", limit_s=40, is_first=False),
    "memory": Section(what="host to device; memory over 1,000 batches", limit_s=110, is_first=False),
}
"""In this order, so that what matters most is there if time runs out."""

_ALL = tuple(name for name in SECTIONS if name != "preflight")
DEPENDENTS: dict[str, tuple[str, ...]] = {
    LOADING: _ALL,
    "device": _ALL,
    "versions": (),
    "NVVM": _ALL,
    "one kernel, two images": ("kernel", "decode", "training", "memory"),  # parity and tests say what is wrong
    "the loaded nvJPEG": ("decode", "training/from DALI"),
    "a batch on the CPU": ("parity/batches by each route", "decode/augpipe native", "training/from files, native"),
}
"""An answer of preflight -> the sections and answers that mean nothing where it finds something wrong, or is lost."""


def main() -> int:
    options = _options()
    if options.child:
        _run_child(options)
    if options.list:
        _list()
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
    parser.add_argument("--minutes", type=float, default=CALL_S / 60, help="nothing goes on for longer than this")
    parser.add_argument("--answer-seconds", type=float, default=1e9, help="nor one answer for longer than this")
    parser.add_argument("--began", type=float, default=time.time(), help="when they began, in seconds since 1970")
    parser.add_argument("--require", action="store_true", help="fail where anything was not run")
    parser.add_argument("--list", action="store_true", help="name the sections and their answers")
    parser.add_argument("--simulate", action="store_true", help="what numba's CUDA simulator can run")
    for name in ("child", "origin"):  # of the child's command: a folder, and what the images are
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate and options.out == RESULTS and not options.child:
        parser.error("--simulate measures nothing, so its report has no place among the results: give --out")
    return options


def _list() -> None:
    """Print each section, and below it its answers as `section/answer`."""
    as_installed()
    from benchmarks.gpu.common import NO_FILES

    for name, section in SECTIONS.items():
        print(f"{name:12} {section.what}; at most {section.limit_s} s{'' if section.is_first else '; --second'}")
        for answer in importlib.import_module(f"benchmarks.gpu.{name}").answers(NO_FILES):
            print(f"    {name}/{answer}")


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
        self._start = time.monotonic()
        self._deadline = self._start + options.minutes * 60 - (time.time() - options.began)
        self._num_told = 0
        now = datetime.now(UTC)
        self._report: dict[str, Any] = {"benchmark": "gpu-check", "date": now.strftime("%Y-%m-%d"), "device": device}
        self._report["started"] = now.isoformat(timespec="seconds")
        if options.simulate:
            self._report["simulated"] = "in numba's CUDA simulator: nothing here was measured on a device"
        words = "".join(c if c.isalnum() else " " for c in device.lower()).split()
        which = (options.only and self._chosen) or (["second"] if options.second else [])
        self.path = options.out / ("-".join([self._report["date"], "gpu-check", *words, *which]) + ".json")

    def run(self) -> int:
        """Everything; returns the exit code."""
        self._journal.touch()
        self._report["photographs"] = _prepare(self._work / "photographs", self._options.simulate)
        while left := self._left():
            self._one_child(left)
        self._write()
        lines, problems = self._summary()
        print("\n".join([*lines, *(f"FAILED: {problem}" for problem in problems), f"kept in {self.path}"]))
        return 1 if problems else 0

    def _left(self) -> list[str]:
        """The sections that have not come to an end."""
        done = {event["section"] for event in _events(self._journal) if event["event"] == "done"}
        return [name for name in self._chosen if name not in done]

    def _end(self, section: str, status: str, reason: str) -> None:
        _note(self._journal, "done", section, status=status, reason=reason)

    def _one_child(self, left: list[str]) -> None:
        """Run a child until it ends or must be ended."""
        command = [sys.executable, "-m", MODULE, "--child", str(self._work), "--origin", self._report["photographs"]]
        command += [part for name in left for part in ("--only", name)]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # this checkout's augpipe
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
        if self._options.simulate:
            command.append("--simulate")
            environment |= {"NUMBA_ENABLE_CUDASIM": "1", "OMP_NUM_THREADS": "1"}  # or torch's threads wait awake
        num_before, started = len(_events(self._journal)), time.monotonic()
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
        if self._left():
            self._after(why or _ending(child.returncode), num_before)

    def _overdue(self, started: float, num_before: int) -> str:
        """Why the child must be ended now; empty where it may go on."""
        now, events = time.monotonic(), _events(self._journal)
        if now > self._deadline:
            return f"the {self._options.minutes:g} minutes were over"
        if events[num_before:]:
            section = events[-1]["section"]
            began = next(event["at"] for event in events if event["section"] == section)
            began = self._start if section == self._chosen[0] else began  # what starts with it is counted too
            if events[-1]["event"] == "begin" and now - began > SECTIONS[section].limit_s:
                return f"its section's {SECTIONS[section].limit_s} s were over"
            longest = min(SECTIONS[section].answer_s, self._options.answer_seconds)
        else:
            longest = STARTING_S
        if now - max([started, *(event["at"] for event in events[num_before:])]) > longest:
            return f"it took more than {longest:g} s"
        return ""

    def _after(self, why: str, num_before: int) -> None:
        """Note what was lost with a child, and the sections that come to an end with it."""
        events = _events(self._journal)
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        is_over, has_begun = time.monotonic() > self._deadline, len(events) > num_before
        if not has_begun and not is_over:
            why = f"the process that goes through the sections does not start: {why}"
            print("\n".join(lines))
        elif has_begun and events[-1]["event"] != "done":
            section, answer = events[-1]["section"], events[-1]["answer"]
            answer = answer if events[-1]["event"] == "begin" else f"after {answer}"
            _note(self._journal, "lost", section, answer=answer, outcome="lost", reason=why, last_lines=lines)
            print(f"   LOST {section}, {answer}: {why}", flush=True)
            if is_over or why.startswith("its section") or answer == LOADING:
                self._end(section, "failed" if answer == LOADING else "out of time", why)
        if is_over or not has_begun:
            for name in self._left():
                self._end(name, "not run", why)

    def _write(self) -> None:
        """Bring the report up to date where there is something new, and print what is new."""
        events, sections = _events(self._journal), {}
        if len(events) == self._num_told:
            return
        self._report["seconds"] = round(time.time() - self._options.began, 1)
        for name in self._chosen:
            if own := [event for event in events if event["section"] == name]:
                result: dict[str, Any] = _status(own) | {"seconds": round(own[-1]["at"] - own[0]["at"], 1)}
                found = self._work / f"{name}.json"
                result |= json.loads(found.read_text()) if found.exists() else {}
                named = {answer for event in own for answer in event.get("answers", [])}
                if own[-1]["event"] == "done" and (unbegun := named - {event.get("answer") for event in own}):
                    result.setdefault("not_run", {}).update(dict.fromkeys(sorted(unbegun), result["reason"]))
                result["lost"] = {event["answer"]: event for event in own if event["event"] == "lost"}
                sections[name] = result
        file, coverage = self._work / "registered.json", {}
        for kind, names in (json.loads(file.read_text()) if file.exists() else {}).items():
            covered = {name for event in events for name in event.get("covers", {}).get(kind, ())} & set(names)
            coverage[kind] = {"covered": sorted(covered), "missing": sorted(set(names) - covered)}
        self._report |= {"sections": sections, "coverage": coverage}
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

    def _summary(self) -> tuple[list[str], list[str]]:
        """What was run, what was not, and what was covered; and what makes the run a failed one."""
        lines, not_run, problems = list[str](), list[str](), list[str]()
        for name, result in self._report["sections"].items():
            checks, status, reason = result.get("checks", {}), result["status"], result.get("reason", "")
            failed = [f"{name}/{check}" for check, found in checks.items() if not found["passed"]]
            lines.append(f"{name:12} {status:12} {len(checks) - len(failed)} of {len(checks)} checks passed")
            not_run += [f"{name}: {reason}"] if status == "not run" else []
            not_run += [f"{name}/{part}: {why}" for part, why in result.get("not_run", {}).items()]
            problems += [f"{name}/{part}: {lost['reason']}" for part, lost in result["lost"].items()]
            problems += [f"{name}/{part}: {said[-1]}" for part, said in result.get("errors", {}).items()] + failed
            if status != "done" and reason != ALL_LEFT_OUT:
                problems.append(f"{name} is {status}" + (f": {reason}" if reason else ""))
        is_whole = not (self._options.only or self._options.second)
        lines += [f"not run: {what}" for what in not_run]
        call = "without --second" if self._options.second else "with --second"
        others = [name for name in SECTIONS if not self._options.only and name not in self._chosen]
        lines += [f"not run: {name}: it is for the call {call}" for name in others]
        for kind, found in self._report["coverage"].items():
            missing, num = found["missing"], len(found["covered"])
            if is_whole or num:
                lines.append(f"covered: {num} of {num + len(missing)} of kind {kind}: {', '.join(found['covered'])}")
            if is_whole and missing:
                problems.append(f"not covered, of kind {kind}: {', '.join(missing)}")
        if self._options.require and not_run:
            problems.append(f"{len(not_run)} were not run, and --require was given")
        return lines, problems


def _status(events: list[dict[str, Any]]) -> dict[str, str]:
    """What has become of a section, and perhaps why."""
    if events[-1]["event"] != "done":
        return {"status": "under way"}
    if "status" in events[-1]:
        return {name: events[-1][name] for name in ("status", "reason")}
    outcomes = {event["answer"]: event["outcome"] for event in events if "outcome" in event}
    if outcomes.pop(LOADING) == "error":
        return {"status": "failed"}
    if {"error", "lost"} & set(outcomes.values()):
        return {"status": "incomplete"}
    has_run = {"ran", "wrong"} & set(outcomes.values())
    return {"status": "done"} if has_run else {"status": "not run", "reason": ALL_LEFT_OUT}


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
    import numpy as np
    from PIL import Image

    from benchmarks.harness import imagenet_sized, photographs

    folder.mkdir()
    encoded, origin = ([], "pictures of noise, of a few pixels") if is_simulated else photographs()
    if os.environ.get("AUGPIPE_DATA") and encoded:  # as they are: sizes and qualities are ImageNet's
        for number, data in enumerate(encoded):
            (folder / f"{number:05}.jpg").write_bytes(data)
        return origin
    noise = [np.random.default_rng(side).integers(0, 256, (side, 23 - side, 3), np.uint8) for side in (10, 13, 7)]
    for number, image in enumerate(imagenet_sized(encoded, len(encoded)) if encoded else noise):
        Image.fromarray(image[:, :, :3].copy()).save(folder / f"{number:05}.jpg", quality=95)
    return f"{origin}, brought to the area of 500x375 pixels" if encoded else origin


def _run_child(options: argparse.Namespace) -> NoReturn:
    """All answers of the sections that no child before has begun."""
    as_installed()
    from benchmarks.gpu.common import Findings, Run, is_usable, registered
    from tests.simulated_blocks import make_blocks_quick

    if options.simulate:
        make_blocks_quick()
    work = Path(options.child)
    journal = work / "journal"
    (work / "registered.json").write_text(json.dumps(registered()))
    run = Run(photographs=work / "photographs", origin=options.origin, work=work, is_simulated=bool(options.simulate))
    events = _events(journal)
    begun = {(event["section"], event.get("answer")) for event in events}
    done = {event["section"] for event in events if event["event"] == "done"}
    note = partial(_note, journal)
    for section in [name for name in options.only if name not in done]:
        dropped = _dropped(_events(journal))
        if section in dropped:
            note("done", section, status="not run", reason=dropped[section])
            continue
        findings, answers = Findings(work / f"{section}.json"), {}
        note("begin", section, answer=LOADING)
        start = time.monotonic()
        with findings.attempt(LOADING):
            answers = importlib.import_module(f"benchmarks.gpu.{section}").answers(run)
            if not answers:
                findings.fail(LOADING, ["it has no answers"])
        more = findings.outcome(LOADING) | {"answers": list(answers), "seconds": round(time.monotonic() - start, 2)}
        note("end", section, answer=LOADING, **more)
        for answer, work_of in answers.items():
            if (section, answer) in begun:
                continue
            note("begin", section, answer=answer)
            start, num_said, covers = time.monotonic(), findings.num_said, {}
            with findings.attempt(answer):
                if reason := dropped.get(f"{section}/{answer}"):
                    findings.leave_out(answer, reason)
                else:
                    covers = (work_of(findings) or {}).get("covers", {})
            if not is_usable():
                _leave(UNUSABLE)  # noted as begun alone: the next child goes on behind it
            if findings.num_said == num_said:
                findings.fail(answer, ["it ended and found nothing"])
            more = findings.outcome(answer) | {"seconds": round(time.monotonic() - start, 2)}
            note("end", section, answer=answer, covers={kind: sorted(names) for kind, names in covers.items()}, **more)
            gc.collect()
        note("done", section)
    _leave(0)


def _events(journal: Path) -> list[dict[str, Any]]:
    """What has been noted so far: answers' begins and ends, what was lost, and sections' ends."""
    return [json.loads(line) for line in journal.read_text().splitlines(keepends=True) if line[-1] == "\n"]


def _note(journal: Path, event: str, section: str, **more: Any) -> None:
    with open(journal, "a") as file:
        file.write(json.dumps({"event": event, "section": section, "at": time.monotonic()} | more) + "\n")


def _dropped(events: list[dict[str, Any]]) -> dict[str, str]:
    """Sections and answers that mean nothing after what preflight found wrong, or what it was lost with, and why."""
    found: dict[str, str] = {}
    for event in events:
        if event["section"] == "preflight" and event.get("outcome") in ("error", "lost", "wrong"):
            reason = f"preflight found: {event['answer']}: {event['reason']}"
            found |= dict.fromkeys(DEPENDENTS.get(event["answer"], ()), reason)
    return found


def as_installed() -> None:
    """Have `numba.cuda` be numba-cuda's in a folder of unpacked wheels too, where Python runs no .pth file."""
    with suppress(ImportError):
        importlib.import_module("_numba_cuda_redirector")


def _leave(code: int) -> NoReturn:
    """End at once: after a CUDA error destructors may hang, and a decoder's threads need not be ended one by one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
