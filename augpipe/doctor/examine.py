"""All sections of the report, each on its own: what goes wrong in one is a line of it, and the others go on."""

import importlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from augpipe.doctor.apart import start
from augpipe.doctor.finding import Finding

Probe = Callable[[], list[Finding]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A group of lines and the function that finds them."""

    title: str
    """Over the lines."""
    module: str
    """Where the function is; imported when it runs."""
    function: str
    """Its name; called without arguments."""
    is_apart: bool = False
    """Whether it runs in a process of its own: for libraries that may crash, print, or take the GPU's memory."""
    is_needed: bool = False
    """Whether nothing of augpipe works where it fails."""


SECTIONS = (
    Section(title="Machine", module="augpipe.doctor.system", function="system"),
    Section(title="Kernels", module="augpipe.doctor.kernels", function="kernels", is_needed=True),
    Section(title="Decoders", module="augpipe.doctor.decoders", function="decoders", is_needed=True),
    Section(title="torch and CUDA", module="augpipe.doctor.gpus", function="gpus", is_apart=True),
    Section(title="DALI", module="augpipe.doctor.dali", function="dali", is_apart=True),
)


def examine(sections: Sequence[Section] = SECTIONS) -> list[Finding]:
    """Look at everything; never raises for what it finds. About 4 s, mostly torch's import."""
    # those apart start first, and run beside the others
    waiting = {section: start(section.module, section.function) for section in sections if section.is_apart}
    return [
        replace(finding, section=section.title)
        for section in sections
        for finding in run(section, waiting[section] if section.is_apart else _probe(section))
    ]


def run(section: Section, probe: Probe) -> list[Finding]:
    """A section's lines; one of the status broken where the probe itself fails."""
    try:
        return probe()
    except Exception as error:
        reason = traceback.format_exception_only(error)[-1].strip()
        text = f"cannot be looked at: {reason}"
        return [Finding(name=section.title, status="broken", text=text, is_needed=section.is_needed)]


def is_well(findings: Sequence[Finding]) -> bool:
    """Whether nothing that augpipe needs is broken."""
    return not any(finding.is_needed and finding.status == "broken" for finding in findings)


def _probe(section: Section) -> Probe:
    def probe() -> list[Finding]:
        found: list[Finding] = getattr(importlib.import_module(section.module), section.function)()
        return found

    return probe
