"""What every op is: a frozen, validated description that draws numbers for a batch and changes a frame by them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from augpipe.ops.frame import Frame
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import Checked, refuse_unknown, told

Drawn = dict[str, Any]
"""What an op draws: (n, ..) arrays by name; of a group, its ops' own, too."""
MAX_SIDE_PX = 65_535
Side = Annotated[int, Field(ge=1, le=MAX_SIDE_PX)]
Size = Annotated[
    Side | tuple[Side, Side],
    told(f"must be a whole number of pixels in 1..{MAX_SIDE_PX}, or two of them, height and width: {{name}}=224"),
]
Range = Annotated[tuple[float, float], told("must be two finite numbers: {name}=[smallest, largest]")]
Probability = Annotated[
    float, Field(ge=0.0, le=1.0), told("must be a probability in 0..1, as {name}=0.5 for half of all photographs")
]
CONTINUOUS = "continuous"
"""What TOML, which has no null, writes for a step of None."""


class Op(Checked):
    """One augmentation; `draw` is where its randomness is spent, `apply` is deterministic."""

    model_config = ConfigDict(allow_inf_nan=False)

    op: str
    """The kind, as written in TOML; it also names the op's stream of random numbers."""

    is_crop: ClassVar[bool] = False
    is_lens: ClassVar[bool] = False
    is_projective: ClassVar[bool] = False
    num_words: ClassVar[int] = 0
    """How many 32-bit random words the op reads."""
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = ()
    """What it draws, as fields of a numpy record."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """TOML has no null: where a field may be None, the file says `continuous`."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        for field in handler.resolve_ref_schema(schema).get("properties", {}).values():
            for option in field.get("anyOf", ()):
                if option == {"type": "null"}:
                    option.update(type="string", const=CONTINUOUS)
        return schema

    @property
    def flat(self) -> tuple["Op", ...]:
        """The op itself, or those that it chooses among."""
        return (self,)

    @property
    def record(self) -> np.dtype[np.void]:
        """The numpy record of what it draws for an image, without fields where that is nothing."""
        return np.dtype(list(self.fields_drawn))

    @property
    def num_variants(self) -> int | None:
        """How many outcomes it can draw; None where a range is continuous or depends on the image."""
        return 1

    @property
    def alternates(self) -> bool:
        """Whether its words are a sample's for good, those of epoch 0, and epochs only change what is made of them."""
        return False

    @property
    def draws_text(self) -> str:
        """What it draws, in words, for `augpipe inspect`."""
        return "nothing"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        """The drawn values, one entry an image, under the names of `fields_drawn`."""
        return {}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        """Change the frame by what was drawn."""
        raise AssertionError(f"{type(self).__name__} does not say what it does")

    def refuses(self, height: int, width: int) -> str | None:
        """Why an image of this size cannot be used, with the remedy; None where it can."""
        return None

    def caption(self, drawn: Mapping[str, Any]) -> str:
        """One image's drawn values in a few characters, for preview sheets; empty when there is nothing to say."""
        return ""

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            data = {name: None if value == CONTINUOUS else value for name, value in data.items()}
            refuse_unknown(cls.__name__, data, cls.field_names(), ("op",))
        return data

    @classmethod
    def field_names(cls) -> list[str]:
        return [field for field in cls.model_fields if field != "op"]


def keyed(ops: Sequence[Op]) -> tuple[tuple[str, Op], ...]:
    """Each op under a name of its own among them: its kind, and from the second of a kind on its place, too."""
    seen: Counter[str] = Counter()
    named = []
    for op in ops:
        seen[op.op] += 1
        named.append((op.op if seen[op.op] == 1 else f"{op.op}_{seen[op.op]}", op))
    return tuple(named)


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size that may be given as one number."""
    return (size, size) if isinstance(size, int) else size


def where_applied(applied: npt.NDArray[np.bool_], drawn: npt.NDArray[Any], neutral: float) -> npt.NDArray[Any]:
    """The drawn values where the op is applied, `neutral` elsewhere."""
    mask = applied.reshape(applied.shape + (1,) * (drawn.ndim - 1))
    return np.where(mask, drawn, neutral)
