"""The line that names one image of a run, and what it says: "seed 0, epoch 3, sample 17"."""

import re
from dataclasses import dataclass, fields
from typing import Self

EXAMPLES = '"seed 0, epoch 3, sample 17" or, of a run, "epoch 3, step 120, item 7"'


@dataclass(frozen=True, kw_only=True)
class ItemLine:
    """What a line says; None where it is silent."""

    seed: int | None = None
    epoch: int | None = None
    sample: int | None = None
    """The sample's id."""
    position: int | None = None
    """Where it stands in the epoch, which a sampler may hold twice."""
    step: int | None = None
    """As in metrics.csv, of the whole run."""
    item: int | None = None
    """Position in the rank's batch of that step, from 0 on."""
    rank: int | None = None
    of: int | None = None
    """Ranks of the run, as in "rank 1 of 4"."""

    @classmethod
    def read(cls, text: str) -> Self:
        """From any line that holds such words, among others: a log's, a sheet's, or one written by hand.

        Raises:
            ValueError: it names no image, or says a word twice.
        """
        found: dict[str, int] = {}
        said = re.findall(r"\b(seed|epoch|sample|position|step|item|rank)[ =:]+(\d+)\b", text)
        for name, number in said + re.findall(r"\brank[ =:]+\d+,? (of)[ =:]+(\d+)\b", text):
            if found.setdefault(name, int(number)) != int(number):
                raise ValueError(f"{text!r} names {name} {found[name]} and {name} {number}. Keep one of them.")
        named = cls(**{each.name: found.get(each.name) for each in fields(cls)})
        if (named.sample is None) == (named.step is None or named.item is None):
            raise ValueError(f"{text!r} does not name one image. Write {EXAMPLES}.")
        return named
