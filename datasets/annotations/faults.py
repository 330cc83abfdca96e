"""What is wrong with annotations: raised at once, or counted, with the first of each kind named."""

from dataclasses import dataclass
from typing import Literal

from augpipe.validation.arguments import check_choice
from augpipe.validation.plural import count

OnError = Literal["raise", "skip"]
MOST_LISTED = 1_000
"""Faults that are kept one by one; the others are only counted."""
_REFUSED = "that cannot be used"
CUT_AT_EDGE = "reaching outside the image, cut at its edge"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong."""

    where: str
    """The file, and the object in it."""
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class Faults:
    """Collects the faults of one source.

    Args:
        on_error: whether a fault that no data set should have is raised, or its object left out and counted.
    """

    def __init__(self, on_error: OnError = "raise") -> None:
        check_choice("on_error", on_error, ("raise", "skip"))
        self._on_error = on_error
        self._left_out: dict[str, tuple[int, str, str]] = {}
        """What is said of them -> how many, of what, and where the first one is."""
        self._mended: dict[str, tuple[int, str, str]] = {}
        self.listed: list[Fault] = []
        """The first `MOST_LISTED`, in the order in which they were found."""

    def refuse(self, where: str, reason: str, noun: str = "object") -> None:
        """What no data set should have.

        Raises:
            ValueError: on_error is "raise".
        """
        if self._on_error == "raise":
            raise ValueError(f'{where}: {reason}. Correct it, or leave such out by on_error="skip".')
        self._add(self._left_out, where, reason, noun, _REFUSED)

    def leave_out(self, where: str, reason: str, noun: str = "object") -> None:
        """What real data sets have, and no training can use: it is counted by its reason."""
        self._add(self._left_out, where, reason, noun, reason)

    def mend(self, where: str, reason: str) -> None:
        """An object that stays in another form; it is counted by its reason."""
        self._add(self._mended, where, reason, "object", reason)

    def note(self, where: str, reason: str) -> None:
        """An object that stays as it is and is not wrong; it is counted by its reason."""
        self._add(self._mended, where, reason, "object", reason, lists=False)

    @property
    def left_out(self) -> list[str]:
        """`3 objects without a size (the first: instances.json, annotation 7)`, for each reason."""
        return _in_words(self._left_out)

    def num_mended(self, reason: str) -> int:
        """How often something was mended for a reason."""
        return self._mended.get(reason, (0, "", ""))[0]

    @property
    def mended(self) -> list[str]:
        """The same of what was mended or noted."""
        return _in_words(self._mended)

    def _add(
        self,
        counts: dict[str, tuple[int, str, str]],
        where: str,
        reason: str,
        noun: str,
        kind: str,
        *,
        lists: bool = True,
    ) -> None:
        num, _, first = counts.get(kind, (0, noun, where))
        counts[kind] = num + 1, noun, first
        if lists and len(self.listed) < MOST_LISTED:
            self.listed.append(Fault(where, reason))


def _in_words(counts: dict[str, tuple[int, str, str]]) -> list[str]:
    return [f"{count(num, noun)} {kind} (the first: {first})" for kind, (num, noun, first) in counts.items()]
