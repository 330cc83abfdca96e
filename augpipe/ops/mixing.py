"""What mixes a finished image with that of another sample: MixUp, CutMix and CopyPaste, each under a probability."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, ConfigDict, Field, WrapValidator, model_validator

from augpipe.ops.kinds import is_list
from augpipe.ops.op import Probability
from augpipe.validation.models import Checked, ListOf, refuse_unknown
from augpipe.validation.suggest import nearest

__all__ = ["CopyPaste", "CutMix", "MixUp"]

Float = npt.NDArray[np.float64]
Alpha = Annotated[float, Field(gt=0.0, le=100.0)]

GRID = 8192
"""Cells of the grid on which a Beta distribution's integral is inverted: it is off by less than 1e-6."""


class Mix(Checked):
    """A way to mix; `p` of each, added up over a recipe's, is at most 1."""

    model_config = ConfigDict(allow_inf_nan=False)

    op: str
    """The kind, as written in TOML."""
    p: Probability = 1.0
    """How often it is what happens to a sample."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_unknown(cls.__name__, data, cls.field_names(), ("op",))
        return data

    def caption(self, mixed: Mapping[str, Any]) -> str:
        """One image's mixing (`planning.mixing.MIXED`) in a few characters."""
        return f"{1.0 - mixed['weight']:.2f} of sample {mixed['partner']}"

    @property
    @abstractmethod
    def text(self) -> str:
        """What is drawn, in a few words."""

    @classmethod
    def field_names(cls) -> list[str]:
        return [field for field in cls.model_fields if field != "op"]


class BetaMix(Mix):
    """A way to mix by a weight that is drawn from a Beta distribution."""

    alpha: Alpha
    """The weight of the sample's own image is drawn from Beta(alpha, alpha): near 0 or 1 for a small one, evenly for 1,
    near a half for a large one."""

    @property
    def text(self) -> str:
        return f"by Beta({self.alpha:g}, {self.alpha:g})"


class MixUp(BetaMix):
    """The weighted sum of two images, and of their labels (Zhang et al. 2018, "mixup")."""

    op: Literal["mix_up"] = "mix_up"
    alpha: Alpha = 0.2
    """The weight of the sample's own image is drawn from Beta(alpha, alpha); in the paper 0.1 to 0.4 were best on
    ImageNet."""


class CutMix(BetaMix):
    """A rectangle of the other image in place of one's own (Yun et al. 2019, "CutMix").

    Its sides are those of the image times sqrt(1 - weight), in whole pixels, its centre lies anywhere in the image, and
    what lies outside is cut off. Labels are weighted by the area that is really pasted.
    """

    op: Literal["cut_mix"] = "cut_mix"
    alpha: Alpha = 1.0
    """The share of the sample's own image is drawn from Beta(alpha, alpha): evenly for 1, as in the paper."""

    def caption(self, mixed: Mapping[str, Any]) -> str:
        return f"{super().caption(mixed)} pasted"


class CopyPaste(Mix):
    """Objects of the other image on top of one's own, where they lie in its finished view (Ghiasi et al. 2021, "Simple
    Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation").

    What is pasted is cut out along the object's outline; an object that has a box only is not pasted, nor is a crowd.
    """

    op: Literal["copy_paste"] = "copy_paste"
    object_p: Probability = 0.5
    """How often each object of the other image is pasted. The paper takes a random subset of them; torchvision's
    reference takes each with 0.63 or more."""
    blur_px: Annotated[float, Field(ge=0.0, le=50.0)] = 0.0
    """Standard deviation of the Gaussian that blurs the edge of what is pasted, in output pixels; 0 is a hard edge,
    which the paper found as good. torchvision's reference blurs by 2. Targets are cut at the hard edge."""

    def caption(self, mixed: Mapping[str, Any]) -> str:
        if mixed["weight"] == 1.0:
            return f"no object of sample {mixed['partner']}"
        return f"objects of sample {mixed['partner']} on {1.0 - mixed['weight']:.1%}"

    @property
    def text(self) -> str:
        return f"each object of it with {self.object_p:.0%}"


_KINDS: dict[str, type[Mix]] = {"mix_up": MixUp, "cut_mix": CutMix, "copy_paste": CopyPaste}


def _is_mix(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Refuse a value that does not mix, and name its kind."""
    if isinstance(value, Mix):
        return validate(value)
    names = ", ".join(kind.__name__ for kind in _KINDS.values())
    if isinstance(value, type) and issubclass(value, Mix):
        raise ValueError(f"{value.__name__} is the class. Write {value.__name__}() for one of it.")
    name = value.get("op") if isinstance(value, Mapping) else getattr(value, "op", value)
    if not isinstance(name, str):
        raise ValueError(f"a value of type {type(value).__name__} does not mix. augpipe.ops has what does: {names}.")
    if name not in _KINDS:
        near = nearest(name, _KINDS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise ValueError(f"{name!r} does not mix.{hint} What does: {', '.join(_KINDS)}.")
    if name is value:
        raise ValueError(f'{name!r} is only a name. Write {_KINDS[name].__name__}(), in TOML {{op = "{name}"}}.')
    return validate(value)


AnyMix = Annotated[MixUp | CutMix | CopyPaste, Field(discriminator="op"), WrapValidator(_is_mix)]
Mixing = Annotated[ListOf[AnyMix], BeforeValidator(is_list)]
assert set(get_args(get_args(AnyMix)[0])) == set(_KINDS.values())


def beta_weights(alpha: float, uniform: Float) -> Float:
    """(n,) numbers of Beta(alpha, alpha), by the inverse of its integral, of (n,) evenly distributed in 0 <= u < 1."""
    nearer = np.minimum(uniform, 1.0 - uniform)
    grid, integral, power = _lower_half(alpha)
    weights = np.interp(nearer, integral, grid) ** (1.0 / power)
    return np.where(uniform < 0.5, weights, 1.0 - weights)


@cache
def _lower_half(alpha: float) -> tuple[Float, Float, float]:
    """A grid of x^power from 0 to where x is 1/2, the integral of Beta(alpha, alpha) up to each x, and the power.

    Below an alpha of 1 the density has a pole at 0, and that of x^alpha has none.
    """
    power = min(alpha, 1.0)
    grid = np.linspace(0.0, 0.5**power, GRID + 1)
    x = grid ** (1.0 / power)
    density = x ** (alpha - power) * (1.0 - x) ** (alpha - 1.0)
    integral = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return grid, 0.5 * integral / integral[-1], power
