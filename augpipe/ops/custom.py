"""A step of the user's own: a Python function of the image, called where it is listed."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, WithJsonSchema, field_serializer, field_validator, model_validator

from augpipe.ops.draws import Applied
from augpipe.ops.frame import Frame
from augpipe.ops.op import KINDS, Drawn, Op, Probability
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import broken, told

__all__ = ["Custom"]

MAX_DRAWS = 64
SHOWN = 4
"""Numbers that a caption shows at most."""


class Custom(Op):
    """Call a function of your own, `fn(image)` or with `num_draws` `fn(image, draws)`, on the CPU, where it is listed.

    `image` is (H, W, 3) uint8, RGB: what all that is listed before it has made, of which the function may keep and
    change this copy. `draws` is (num_draws,) float64 in [0, 1), the same in any batch, thread, rank, resumed run and
    replay. It gives back an array of the same shape and dtype, and what is listed behind it goes on from there. Threads
    call it at the same time, each for another image. Targets stay: it changes levels and does not move what is seen.

    A recipe with it is made in Python, as TOML holds no functions. A state for resuming holds the function's name, so
    that a change of its code is not noticed.

    Raises:
        ValueError: when an image is made: the function gave back something else. Skips nothing.
        RuntimeError: the function raised; names the step, the image and what was raised. Skips nothing.
    """

    op: Literal["custom"] = "custom"
    fn: Annotated[
        Callable[..., Any],
        told("must be a function that takes an image and gives it back: {name}=my_step"),
        WithJsonSchema({"type": "string"}),
    ]
    """The function. Randomness belongs into `draws`: NumPy's and Python's global generators are not the sample's."""
    num_draws: Annotated[int, Field(ge=0, le=MAX_DRAWS)] = 0
    """How many evenly distributed numbers it is given, as a second argument; 0 for none."""
    p: Probability = 1.0
    """How often it is called."""
    name: str = ""
    """For captions, plans and messages; by default that of the function."""

    draws = (Applied(),)
    formula = "your function's"
    in_files = False

    def __init__(self, /, *fn: Any, **fields: Any) -> None:
        named = {"fn": fn[0]} if len(fn) == 1 and "fn" not in fields else {}
        super().__init__(*(() if named else fn), **named, **fields)

    @field_validator("fn")
    @classmethod
    def _is_in_python(cls, fn: Any) -> Any:
        if isinstance(fn, type):
            raise broken(f"must be a function, and this is the class: {{name}}={fn.__name__}(...)")
        return fn

    @field_validator("name")
    @classmethod
    def _is_its_own(cls, name: str) -> str:
        if name in KINDS:
            raise broken("must be its own, and an op of augpipe is called so: {name}='my_step'")
        if name and not name.isidentifier():
            raise broken("must be letters, digits and _, the first not a digit: {name}='my_step'")
        return name

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if not self.name:
            found = getattr(_innermost(self.fn), "__name__", type(self.fn).__name__)
            is_usable = found.isidentifier() and found not in KINDS
            object.__setattr__(self, "name", found if is_usable else self.op)
        return self

    @field_serializer("fn")
    def _by_name(self, fn: Any) -> str:
        inner = _innermost(fn)
        named = inner if hasattr(inner, "__qualname__") else type(inner)
        module = getattr(named, "__module__", None)  # methods of C have none
        return f"{module}.{named.__qualname__}" if module else str(named.__qualname__)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """With the function as code names it."""
        inner = _innermost(self.fn)
        return [*{**dict(super().__repr_args__()), "fn": _Code(getattr(inner, "__name__", repr(inner)))}.items()]

    def __getstate__(self) -> dict[Any, Any]:
        from multiprocessing.context import get_spawning_popen
        from multiprocessing.reduction import ForkingPickler

        if get_spawning_popen() is not None:
            try:
                ForkingPickler.dumps(self.fn)
            except Exception as problem:
                raise ValueError(
                    f"{self.name}: a process that is spawned gets the function pickled, and it cannot be ({problem}). "
                    "Define it by def at the top of a module, instead of a lambda or within another function."
                ) from problem
        state: dict[Any, Any] = super().__getstate__()
        return state

    @property
    def key(self) -> str:
        return self.name

    @property
    def num_words(self) -> int:  # type: ignore[override]  # of most ops, the class knows
        return 1 + self.num_draws

    @functools.cached_property
    def record(self) -> np.dtype[np.void]:
        numbers = [("draws", np.float64, (self.num_draws,))] if self.num_draws else []
        return np.dtype([("applied", np.bool_), *numbers])

    @property
    def num_variants(self) -> int | None:
        return None if self.num_draws else super().num_variants

    @property
    def draws_text(self) -> str:
        numbers = f" of {self.num_draws} numbers in 0 to 1" if self.num_draws else ""
        return f"your function{numbers}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        drawn: Drawn = {"applied": words.happens(0, self.p)}
        if self.num_draws:
            drawn["draws"] = words.uniform(1 + np.arange(self.num_draws), 0.0, 1.0)
        return drawn

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        """Nothing: the function is called between two passes."""

    def caption(self, drawn: Mapping[str, Any]) -> str:
        if not drawn["applied"]:
            return ""
        numbers = [f"{number:.2f}" for number in drawn["draws"][:SHOWN]] if self.num_draws else []
        return " ".join([self.name, *numbers, *(["..."] if self.num_draws > SHOWN else [])])

    def called(self, image: npt.NDArray[np.uint8], drawn: np.void, where: str) -> npt.NDArray[np.uint8]:
        """What the function makes of an image; it must give back such a one.

        Args:
            image: (H, W, 3) uint8, the function's own.
            drawn: of the image's plan.
            where: which image it is, for messages.
        """
        shape = image.shape
        try:
            made = self.fn(image, drawn["draws"].copy()) if self.num_draws else self.fn(image)
        except Exception as problem:
            raise RuntimeError(
                f"{self.name}, a function of yours (ops.Custom), raised {type(problem).__name__} for {where}: {problem}"
            ) from problem
        if isinstance(made, np.ndarray) and made.shape == shape and made.dtype == np.uint8:
            return np.array(made, order="C")  # the next function may write into it, and this one may keep its own
        if isinstance(made, np.ndarray):
            what, remedy = f"an array {made.dtype} {made.shape}", "Convert it before it returns"
        else:
            what, remedy = "None" if made is None else f"a {type(made).__name__}", "Have it return the image"
        raise ValueError(
            f"{self.name}, a function of yours (ops.Custom), gave back {what} for {where}, and must give an array "
            f"uint8 {shape}, as it got. {remedy}."
        )


class _Code(str):
    """A text without quotes around it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _innermost(fn: Any) -> Any:
    """The function that partial ones are of."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
