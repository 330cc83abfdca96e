"""TrivialAugment, RandAugment and AutoAugment with torchvision's magnitudes, and DeiT III's 3-Augment.

Source of the magnitudes: torchvision/transforms/autoaugment.py. There contrast moves about the image's mean and shears
keep the upper left corner, and so they do here. Translations are not cut to whole pixels.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby

from augpipe import ops
from augpipe.gpu_ops.random.philox import whole_number
from augpipe.ops import Op
from augpipe.policies.magnitudes import SIGNED, WITHOUT_MAGNITUDE, either_sign, posterize, solarize, within
from augpipe.policies.sub_policies import CIFAR10, IMAGENET, Step, SubPolicy

NUM_BINS = 31
"""Magnitudes of TrivialAugment and RandAugment."""
NUM_AUTO_BINS = 10
"""Magnitudes of AutoAugment."""

POLICIES = {"imagenet": IMAGENET, "cifar10": CIFAR10}


def trivial_augment_wide(num_bins: int = NUM_BINS) -> tuple[Op, ...]:
    """One op of 14 at one of `num_bins` magnitudes of either sign (Mueller and Hutter 2021, arXiv:2103.10158).

    Each image comes as often as in torchvision, where a magnitude of 0 is drawn with both signs, as that of no change:
    here that is part of how often nothing is done.
    """
    num_bins = whole_number("num_bins", num_bins, 2, 1000)
    signed = (2 * num_bins - 1) / (2 * num_bins)
    wide = {name: row.wide for name, row in SIGNED.items() if row.wide}
    choices = [(within(name, -most, most, step=most / (num_bins - 1)), signed) for name, most in wide.items()]
    num_bits = Counter(_num_bits(place, num_bins, 6) for place in range(num_bins))
    whole = num_bits.pop(8)
    for num, same in groupby(sorted(num_bits), key=num_bits.__getitem__):
        bits = list(same)
        choices.append((ops.Posterize(bits=(bits[0], bits[-1])), len(bits) * num / num_bins))
    choices += [(ops.Solarize(threshold=(0, 255), step=255.0 / (num_bins - 1), p=1.0), 1.0)]
    choices += [(ops.AutoContrast(p=1.0), 1.0), (ops.Equalize(p=1.0), 1.0)]
    unchanged = 1.0 + len(wide) * (1.0 - signed) + whole / num_bins
    choices.insert(0, (ops.Identity(), unchanged))
    return (one_of(choices),)


def rand_augment(n: int = 2, magnitude: int = 9, num_bins: int = NUM_BINS) -> tuple[Op, ...]:
    """`n` ops, each one of 14, all at one magnitude of either sign (Cubuk et al. 2019, arXiv:1909.13719).

    Args:
        n: how many are applied, one after the other.
        magnitude: 0..num_bins - 1.
        num_bins: how many magnitudes there are, from none to the largest.
    """
    n, num_bins = whole_number("n", n, 1, 16), whole_number("num_bins", num_bins, 2, 1000)
    magnitude = whole_number("magnitude", magnitude, 0, num_bins - 1)
    signed = {name: row.most for name, row in SIGNED.items() if row.most}
    made = [ops.Identity(), *(either_sign(name, most * magnitude / (num_bins - 1)) for name, most in signed.items())]
    made += [posterize(_num_bits(magnitude, num_bins, 4)), solarize(255.0 - 255.0 * magnitude / (num_bins - 1))]
    made += [ops.AutoContrast(p=1.0), ops.Equalize(p=1.0)]
    return (one_of((op, 1.0) for op in made),) * n


def auto_augment(policy: str = "imagenet") -> tuple[Op, ...]:
    """One of 25 pairs of ops, as found for "imagenet" or "cifar10" (Cubuk et al. 2018, arXiv:1805.09501).

    Pairs that are listed twice are one choice of twice the weight, and steps that change nothing are left out.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy={policy!r} is not known. Those that are: {', '.join(map(repr, POLICIES))}.")
    return (one_of((sub_policy(steps, _auto_op), 1.0) for steps in POLICIES[policy]),)


def three_augment(color_jitter: float = 0.3) -> tuple[Op, ...]:
    """Gray, solarised or blurred, then colour jitter: 3-Augment of DeiT III (Touvron et al. 2022, arXiv:2204.07118).

    Args:
        color_jitter: for brightness, contrast and saturation; 0.3 in DeiT III, 0 for none.
    """
    chosen = (ops.Grayscale(p=1.0), ops.Solarize(threshold=(128, 128), p=1.0), ops.Blur(sigma_px=(0.1, 2.0), p=1.0))
    if not color_jitter:
        return (ops.OneOf(ops=chosen),)
    jitter = ops.ColorJitter(brightness=color_jitter, contrast=color_jitter, saturation=color_jitter)
    return ops.OneOf(ops=chosen), jitter


def one_of(choices: Iterable[tuple[Op, float]], p: float = 1.0) -> Op:
    """A choice by weight, in which equal ops are one and those of no weight are none."""
    weights: dict[Op, float] = {}
    for op, weight in choices:
        if weight > 0.0:
            weights[op] = weights.get(op, 0.0) + weight
    even = len(set(weights.values())) == 1
    return ops.OneOf.model_validate(
        {"ops": tuple(weights), "weights": None if even else tuple(weights.values()), "p": p}
    )


def sub_policy(steps: SubPolicy, make: Callable[[Step], Op]) -> Op:
    """The ops of a sub-policy one after the other, without those that are never applied or change nothing."""
    made = [make(step) for step in steps if step[1] > 0.0]
    made = [op for op in made if not isinstance(op, ops.Identity)]
    if not made:
        return ops.Identity()
    return made[0] if len(made) == 1 else ops.AllOf.model_validate({"ops": made})


def _auto_op(step: Step) -> Op:
    name, p, magnitude = step
    part = magnitude / (NUM_AUTO_BINS - 1)
    if name in SIGNED:
        return either_sign(name, SIGNED[name].most * part, p)
    if name == "posterize":
        return posterize(_num_bits(magnitude, NUM_AUTO_BINS, 4), p)
    if name == "solarize":
        return solarize(255.0 - 255.0 * part, p)
    return WITHOUT_MAGNITUDE[name](p=p)


def _num_bits(magnitude: int, num_bins: int, most: int) -> int:
    return 8 - round(magnitude / ((num_bins - 1) / most))
