"""timm's names of policies, such as `rand-m9-mstd0.5-inc1`, with the magnitudes of timm/data/auto_augment.py."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from augpipe import ops
from augpipe.ops import Op
from augpipe.policies.automatic import one_of, sub_policy
from augpipe.policies.magnitudes import FACTORS, SIGNED, WITHOUT_MAGNITUDE, posterize, within
from augpipe.policies.sub_policies import IMAGENET, TIMM_V0, Step

FULL = 10.0
"""The level at which an op has its full strength."""
MOST_ADDED = 128
"""The most that `solarize_add` adds, in levels."""
SPREAD = math.sqrt(3.0)
"""Half the width of an even distribution, in its standard deviations."""

Choices = list[tuple[Op, float]]
"""Ops with weights that add up to 1."""

ALL = (
    *("auto_contrast", "equalize", "invert", "rotate", "posterize", "solarize", "solarize_add", "color", "contrast"),
    *("brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y"),
)
TRANSFORM_SETS: dict[str, dict[str, float]] = {
    "": dict.fromkeys(ALL, 1.0),
    "weights": dict.fromkeys(ALL, 0.05)
    | {"rotate": 3.0, "shear_x": 2.0, "shear_y": 2.0, "translate_x": 1.0, "translate_y": 1.0}
    | {"color": 0.25, "sharpness": 0.25, "auto_contrast": 0.25},
    "3a": dict.fromkeys(("solarize", "desaturate", "blur"), 1.0),
    "3aw": {"solarize": 6.0, "desaturate": 6.0, "blur": 6.0, "rotate": 3.0, "shear_x": 2.0, "shear_y": 2.0}
    | dict.fromkeys(("posterize", "auto_contrast", "color", "sharpness", "contrast", "brightness"), 1.0)
    | dict.fromkeys(("equalize", "invert"), 1.0),
}
"""What `t` names -> the ops and their weights; all except the first increase with the level whatever `inc` says."""
WEIGHTS_0 = TRANSFORM_SETS["weights"] | {
    **dict.fromkeys(("color", "sharpness", "auto_contrast"), 0.25),
    **dict.fromkeys(("posterize", "invert"), 0.0),
}
"""What the older `w0` stood for."""
SUB_POLICIES = {
    "original": (IMAGENET, "original"),
    "originalr": (IMAGENET, "increasing"),
    "v0": (TIMM_V0, "plain"),
    "v0r": (TIMM_V0, "increasing"),
}
"""A policy's name -> its sub-policies, and how it posterises."""
PARTS = "m9, n2, p0.5, mstd0.5, mmax10, inc1, w0, tweights, t3a, t3aw"


@dataclass(frozen=True, kw_only=True)
class TimmPolicy:
    """What a name asks for."""

    kind: str
    """`rand`, `3a`, or one of `SUB_POLICIES`."""
    level: float = FULL
    num_layers: int = 2
    p: float = 0.5
    std: float = 0.0
    """Standard deviation of levels; infinite where they are drawn evenly from 0 to `level`."""
    most: float = FULL
    is_increasing: bool = False
    transforms: dict[str, float] = field(default_factory=lambda: TRANSFORM_SETS[""])

    @property
    def notes(self) -> list[str]:
        """Where what is made differs from timm's, a sentence each."""
        found = []
        if 0.0 < self.std < math.inf:
            found.append(
                f"mstd{self.std:g}: levels are drawn evenly from a range of the same mean and standard deviation, cut "
                f"at 0 and {self.most:g}, where timm draws normal ones."
            )
        if self.kind == "rand" and len(set(self.transforms.values())) > 1 and self.num_layers > 1:
            found.append("weights: an op may be chosen twice for one image, where timm never repeats a weighted one.")
        return found

    def ops(self) -> tuple[Op, ...]:
        """The policy as ops of a recipe."""
        if self.kind == "rand":
            choices = [
                (op, weight * share)
                for name, weight in self.transforms.items()
                for op, share in self._choices(name, self.level, "increasing" if self.is_increasing else "plain")
            ]
            return (one_of(choices, self.p),) * self.num_layers
        if self.kind == "3a":
            blurred = ops.Blur(sigma_px=(0.1, 2.0), p=1.0)
            gray, solarised = ops.Grayscale(p=1.0), ops.Solarize(threshold=(128, 128), p=1.0)
            return (ops.OneOf(ops=(solarised, gray, blurred)),)
        table, posterises = SUB_POLICIES[self.kind]

        def make(step: Step) -> Op:
            name, p, level = step
            choices = self._choices(name, float(level), posterises if name == "posterize" else "plain")
            if len(choices) == 1:
                (op, _) = choices[0]
                return op if isinstance(op, ops.Identity) else op.model_copy(update={"p": p})
            return one_of(choices, p)

        return (one_of((sub_policy(steps, make), 1.0) for steps in table),)

    def _choices(self, name: str, level: float, how: str) -> Choices:
        low, high = self._levels(level)
        if name in WITHOUT_MAGNITUDE:
            return [(WITHOUT_MAGNITUDE[name](p=1.0), 1.0)]
        full = SIGNED[name].timm if name in SIGNED else 0.0
        if name in FACTORS and how == "increasing":
            return _enhanced(FACTORS[name], full * low / FULL, full * high / FULL)
        if name in FACTORS:
            return [(FACTORS[name](factor=(0.1 + 1.8 * low / FULL, 0.1 + 1.8 * high / FULL), p=1.0), 1.0)]
        if name in SIGNED:
            most = 1.0 if name.startswith("translate") else math.inf  # by a whole side nothing is left to see
            return _either_sign(name, *(min(full * level / FULL, most) for level in (low, high)))
        if name == "posterize":
            numbers = _whole_numbers(0.4 * low, 0.4 * high)
            kept = {"increasing": lambda number: max(4 - number, 0), "original": lambda number: number + 4}
            return [(posterize(min(kept.get(how, int)(number), 8)), share) for number, share in numbers]
        if name == "solarize":
            first, last = (min(int(256.0 * level / FULL), 256) for level in (low, high))
            first, last = (256 - last, 256 - first) if how == "increasing" else (first, last)
            return [(ops.Solarize(threshold=(first, last), p=1.0), 1.0)]
        if name == "solarize_add":
            first, last = (min(int(11.0 * level), MOST_ADDED) for level in (low, high))
            return [(ops.SolarizeAdd(addition=(first, last), p=1.0), 1.0)]
        parts = min(low / FULL, 1.0), min(high / FULL, 1.0)
        if name == "desaturate":
            return [(ops.Saturation(factor=(0.5 - 0.5 * parts[1], 0.5 - 0.5 * parts[0]), p=1.0), 1.0)]
        return [(ops.Blur(sigma_px=(0.1 + 1.9 * parts[0], 0.1 + 1.9 * parts[1]), p=1.0), 1.0)]

    def _levels(self, level: float) -> tuple[float, float]:
        """Smallest and largest level that is drawn."""
        if self.std == math.inf:
            return 0.0, min(level, self.most)
        reach = SPREAD * self.std
        return max(0.0, min(level - reach, self.most)), max(0.0, min(level + reach, self.most))


def timm(name: str) -> tuple[Op, ...]:
    """The ops of a policy that timm's `auto_augment` argument names.

    Names are `rand` with parts (`m9` the level, `n2` ops, `p0.5` for each, `mstd0.5`, `mmax10`, `inc1`, `tweights`, or
    the older `w0`), and `original`, `originalr`, `v0`, `v0r` (with `mstd`) and `3a`.

    Raises:
        ValueError: the name has parts that are not known; lists all of them.
    """
    return read_name(name).ops()


def read_name(name: str) -> TimmPolicy:
    """What a name asks for.

    Raises:
        ValueError: as `timm`.
    """
    if not isinstance(name, str):
        raise ValueError(f"the policy {name!r} is not text. Give a name, as 'rand-m9-mstd0.5-inc1'.")
    kind, *parts = name.split("-")
    if kind == "augmix":
        raise ValueError(
            f"the policy {name!r} blends several versions of an image, which one pass does not. "
            f"Choose rand- with parts as {PARTS}, or {', '.join(SUB_POLICIES)} or 3a."
        )
    problems = []
    if kind not in ("rand", "3a", *SUB_POLICIES):
        problems.append(f"{kind!r} is not a policy (rand, {', '.join(SUB_POLICIES)}, 3a), such as rand-m9-mstd0.5-inc1")
    known = ("m", "n", "p", "mstd", "mmax", "inc", "w") if kind == "rand" else ("mstd",)
    numbers: dict[str, float] = {}
    transforms = TRANSFORM_SETS[""]
    is_increasing = False
    for part in parts:
        match = re.fullmatch(r"([a-z]+?)(\d+(?:\.\d+)?|inf)", part)
        if kind == "rand" and part[:1] == "t":
            if part[1:] not in TRANSFORM_SETS or part == "t":
                problems.append(f"{part!r} names no set of ops (tweights, t3a, t3aw)")
            else:
                transforms, is_increasing = TRANSFORM_SETS[part[1:]], True
        elif match is None or match[1] not in known:
            problems.append(f"{part!r} is not a part of {kind} ({PARTS if kind == 'rand' else 'mstd0.5'})")
        elif reason := _refused(match[1], float(match[2])):
            problems.append(f"{part!r}: {reason}")
        elif match[1] == "w":
            transforms = WEIGHTS_0
        else:
            numbers[match[1]] = float(match[2])
    if problems:
        raise ValueError(f"the policy {name!r} cannot be read: {'; '.join(problems)}.")
    std = numbers.get("mstd", 0.0)
    return TimmPolicy(
        kind=kind,
        level=numbers.get("m", FULL),
        num_layers=int(numbers.get("n", 2.0)),
        p=numbers.get("p", 0.5),
        std=math.inf if kind == "rand" and std > 100.0 else std,
        most=numbers.get("mmax", 0.0) or FULL,
        is_increasing=is_increasing or numbers.get("inc", 0.0) > 0.0,
        transforms=transforms,
    )


def _refused(key: str, number: float) -> str:
    """Why a part's number is none; empty where it is one."""
    if key in ("m", "n", "mmax", "inc", "w") and number % 1.0 != 0.0:
        return "must be a whole number"
    limits = {"m": (0, 30), "n": (1, 16), "p": (0, 1), "mmax": (0, 30), "w": (0, 0)}
    low, high = limits.get(key, (0, math.inf))
    return "" if low <= number <= high else f"must lie in {low}..{high}"


def _either_sign(name: str, low: float, high: float) -> Choices:
    """Magnitudes in low..high, and as far below 0."""
    if high == 0.0:
        return [(ops.Identity(), 1.0)]
    if low == high:
        return [(within(name, -high, high, step=2.0 * high), 1.0)]
    if low == 0.0:
        return [(within(name, -high, high), 1.0)]
    return [(within(name, -high, -low), 0.5), (within(name, low, high), 0.5)]


def _enhanced(kind: Callable[..., Op], low: float, high: float) -> Choices:
    """Factors of 1 and low..high more or less, none below 0.1."""
    if high == 0.0:
        return [(ops.Identity(), 1.0)]
    least, most = max(0.1, 1.0 - high), max(0.1, 1.0 - low)
    if low == high:
        return [(kind(factor=(least, 1.0 + high), step=1.0 + high - least, p=1.0), 1.0)]
    return [(kind(factor=(least, most), p=1.0), 0.5), (kind(factor=(1.0 + low, 1.0 + high), p=1.0), 0.5)]


def _whole_numbers(low: float, high: float) -> list[tuple[int, float]]:
    """The whole numbers that low..high is rounded down to, each with its share of the range."""
    if low == high:
        return [(int(low), 1.0)]
    return [
        (number, (min(high, number + 1.0) - max(low, float(number))) / (high - low))
        for number in range(int(low), int(high) + 1)
    ]
