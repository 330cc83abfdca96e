"""The line that names one image of a run, and what it says: "seed 0, epoch 3, sample 17"."""

import re
from dataclasses import dataclass, fields
from typing import Self

from augpipe.sources import Subset
from augpipe.sources.protocol import Source
from augpipe.validation.plural import count

EXAMPLES = '"seed 0, epoch 3, sample 17" or, of a run, "epoch 3, step 120, item 7"'


@dataclass(frozen=True, kw_only=True)
class ItemLine:
    """What a line says; None where it is silent."""

    seed: int | None = None
    epoch: int | None = None
    sample: int | None = None
    """The sample's id."""
    part: int | None = None
    """Of how many samples, as in "sample 17 of 80", where the source is a part of another; ids count within it."""
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
        for number in re.findall(r"\bsample[ =:]+\d+ of (\d+)\b", text):
            found["part"] = int(number)
        named = cls(**{each.name: found.get(each.name) for each in fields(cls)})
        if (named.sample is None) == (named.step is None or named.item is None):
            raise ValueError(f"{text!r} does not name one image. Write {EXAMPLES}.")
        return named

    def check_part(self, source: Source) -> None:
        """Raise ValueError where the line is of a part of a source, and `source` is not that."""
        if self.part in (None, part_length(source)) or self.sample is None:
            return
        there = self.sample < len(source)
        which = f"of which that sample is {source.name(self.sample)}, another one" if there else "with other ids"
        raise ValueError(
            f"sample {self.sample} of {self.part} counts in a part of {count(self.part, 'photograph')}, and here are "
            f"{len(source)}, {which}. Replay it with a Loader of that part, as the line's was made: the same "
            "split=..., holdout=... and split_seed=..., or the same Subset; of a run name its folder."
        )


def part_length(source: Source) -> int | None:
    """How many samples a source holds that is a part of another, such as a split; else None."""
    return len(source) if isinstance(source, Subset) else None
