"""One thing that was looked at, and what was found."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "none", "missing", "broken"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A line of the report."""

    name: str
    """What was looked at, in a word or two."""
    status: Status
    """ok: it works. none: it is not there, and nothing on this machine would be better with it. missing: it is not
    there, and would bring something. broken: it is there and does not work, or does not go with something else."""
    text: str
    """What was found."""
    brings: str = ""
    """The benefit of it."""
    command: str = ""
    """What installs or mends it."""
    is_needed: bool = False
    """Whether nothing of augpipe works without it."""
    data: dict[str, Any] = field(default_factory=dict)
    """For machines: versions, bytes, booleans; JSON types alone."""
    section: str = ""
    """The report's section, which `examine` writes in."""

    def to_json(self) -> dict[str, Any]:
        """All of it, in JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Finding":
        """What `to_json` gave."""
        return Finding(**fields)
