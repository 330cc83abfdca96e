"""Two networks on the same images: which ones changed between right and wrong, and whether that can be chance."""

from dataclasses import dataclass

import numpy as np

from augpipe.trainer.evaluation.ensemble import Comparison
from augpipe.trainer.evaluation.metrics import Ints, likeliest

LOST, GAINED = "right to wrong", "wrong to right"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a network says of an image, in short."""

    named: int
    """The likeliest class."""
    probability: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """One image that is right in one run and wrong in the other."""

    place: int
    """Where the image is in `Comparison.names`."""
    kind: str
    """`LOST` or `GAINED`."""
    before: Answer
    after: Answer

    @property
    def mistake(self) -> Answer:
        """The wrong one of the two."""
        return self.after if self.kind == LOST else self.before


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a second run changed."""

    before: str
    """Folder of the first run."""
    after: str
    """Folder of the second."""
    both_right: int
    both_wrong: int
    lost: tuple[Change, ...]
    """Right in the first run and wrong in the second; the surest mistakes first."""
    gained: tuple[Change, ...]
    """Wrong in the first run and right in the second; the surest mistakes first."""
    p_value: float
    """McNemar's exact test: how likely a difference at least as large is where both are as good as each other."""

    @property
    def num(self) -> int:
        """Images."""
        return self.both_right + self.both_wrong + len(self.lost) + len(self.gained)

    @property
    def difference(self) -> float:
        """The second run's top-1 less the first one's."""
        return (len(self.gained) - len(self.lost)) / self.num


def changes_of(found: Comparison) -> Changes:
    """Compare two runs, image by image.

    Args:
        found: by `evaluate_runs`, of two runs.

    Raises:
        ValueError: there are more or fewer.
    """
    runs = [one for one in found.results if one.step is not None]
    if len(runs) != 2:
        raise ValueError(
            f"changes are between two runs, and here {'is 1' if len(runs) == 1 else f'are {len(runs)}'}. Give two "
            "folders: the one before, and the one after."
        )
    named = [likeliest(one.log_probs, 1)[:, 0] for one in runs]
    right = [classes == found.labels for classes in named]

    def changed(places: Ints, kind: str) -> tuple[Change, ...]:
        made = []
        for place in places.tolist():
            answers = [
                Answer(named=int(classes[place]), probability=float(np.exp(one.log_probs[place, classes[place]])))
                for one, classes in zip(runs, named, strict=True)
            ]
            made.append(Change(place=place, kind=kind, before=answers[0], after=answers[1]))
        return tuple(sorted(made, key=lambda one: -one.mistake.probability))

    lost = changed(np.flatnonzero(right[0] & ~right[1]), LOST)
    gained = changed(np.flatnonzero(~right[0] & right[1]), GAINED)
    return Changes(
        before=runs[0].name,
        after=runs[1].name,
        both_right=int((right[0] & right[1]).sum()),
        both_wrong=int((~right[0] & ~right[1]).sum()),
        lost=lost,
        gained=gained,
        p_value=mcnemar(len(lost), len(gained)),
    )


def mcnemar(num_lost: int, num_gained: int) -> float:
    """The p-value of McNemar's test (1947), exact and two-sided.

    Where two networks are equally good, an image that changed did so in either direction as a coin falls: the numbers
    are a binomial distribution of even odds. It is summed in whole numbers, whatever their size, so that no
    approximation for many images is needed.
    """
    num, fewer = num_lost + num_gained, min(num_lost, num_gained)
    if num_lost == num_gained:
        return 1.0
    ways = total = 1
    for place in range(fewer):
        ways = ways * (num - place) // (place + 1)
        total += ways
    return total / (1 << (num - 1))
