"""How finished pixels are held: dtype, layout and framework, checked once and applied to every batch."""

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union, get_args

import numpy as np
import numpy.typing as npt

from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Labels
from augpipe.validation.arguments import check_choice
from augpipe.validation.collecting import without_collecting

if TYPE_CHECKING:
    import torch

Framework = Literal["torch", "numpy"]
DType = Literal["float32", "float16", "bfloat16", "uint8"]
Layout = Literal["NCHW", "NHWC", "channels_last"]
DTypeLike = Union[DType, Literal["fp32", "fp16", "bf16", "half"], np.dtype[Any], type[np.generic], "torch.dtype"]
"""What `dtype_name` knows."""

_HELD_AS: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "uint8": np.uint8,
}

_SHORT: dict[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}


def dtype_name(value: Any) -> Any:
    """ "float16" for `torch.float16`, `np.float16`, `np.dtype("float16")` and "fp16"; anything else as it is.

    Whether images are made in it is checked by `OutputFormat.check`.
    """
    name = value
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        name = np.dtype(value).name
    elif type(value).__module__ == "torch":  # which is not imported to ask it
        name = str(value).removeprefix("torch.")
    return _SHORT.get(name, name) if isinstance(name, str) else name


@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """What a batch's images are."""

    dtype: DType
    """The number type; uint8 needs a recipe without Normalize."""
    layout: Layout
    """NCHW, NHWC, or channels_last: NCHW by shape and NHWC in memory, as torch's memory format."""
    framework: Framework
    """torch tensors or numpy arrays."""
    channels: int = 3
    """Channels of an image: 1 or 3, as the recipe says."""

    def check(self, recipe: Recipe) -> None:
        """Raise ValueError where the three do not go together or do not suit the recipe."""
        check_choice("dtype", self.dtype, get_args(DType), f", or of {', '.join(_SHORT)}")
        check_choice("layout", self.layout, get_args(Layout))
        check_choice("framework", self.framework, get_args(Framework))
        if self.dtype == "uint8" and recipe.normalises:
            raise ValueError(
                'dtype="uint8" cannot hold normalised values, which leave 0..255. '
                'Take Normalize out of the recipe, or choose dtype="float32".'
            )
        if self.framework == "numpy" and self.dtype == "bfloat16":
            raise ValueError('dtype="bfloat16" needs framework="torch": numpy has no such type. Or choose "float16".')
        if self.framework == "numpy" and self.layout == "channels_last":
            raise ValueError('layout="channels_last" is a torch memory format. With framework="numpy" choose "NHWC".')
        if self.framework == "torch" and not _finds_torch():
            import_torch()  # says what to do

    @property
    def planar(self) -> bool:
        """Whether memory holds whole channel planes."""
        return self.layout == "NCHW"

    @property
    def held_as(self) -> type[np.generic]:
        """The numpy type of the batch's memory."""
        return _HELD_AS[self.dtype]

    @property
    def is_narrow(self) -> bool:
        """Whether the kernel's float32 is rounded to 16 bits afterwards."""
        return self.dtype in ("float16", "bfloat16")

    def wrap(self, flat: npt.NDArray[np.generic], num: int, height: int, width: int) -> Any:
        """The batch's images around (num * height * width * 3,) memory, not copied. One channel moves to the front."""
        if self.channels == 1:  # all three are the same
            area = height * width
            rendered = flat.reshape(num, 3, area)[:, 0] if self.planar else flat.reshape(num, area, 3)[:, :, 0]
            flat = flat[: rendered.size]
            flat.reshape(rendered.shape)[:] = rendered
        shape = (num, self.channels, height, width) if self.planar else (num, height, width, self.channels)
        array = flat.reshape(shape)
        if self.framework == "numpy":
            return array
        torch = import_torch()
        tensor = torch.from_numpy(array)
        if self.dtype == "bfloat16":
            tensor = tensor.view(torch.bfloat16)
        return tensor.permute(0, 3, 1, 2) if self.layout == "channels_last" else tensor

    def wrap_labels(self, labels: Labels) -> Any:
        """(B,) or (B, k) labels in the framework."""
        return labels if self.framework == "numpy" else import_torch().from_numpy(labels)


def _finds_torch() -> bool:
    """Whether torch is there, without the seconds that importing it takes."""
    try:
        return "torch" in sys.modules or importlib.util.find_spec("torch") is not None
    except ImportError:  # of a finder that refuses it
        return False


def import_torch() -> Any:
    """The torch module, imported when it is first needed.

    Raises:
        ImportError: it is not installed, and the message says what to do; or torch's own, where it is broken.
    """
    if (loaded := sys.modules.get("torch")) is not None:
        return loaded
    try:
        with without_collecting():
            import torch
    except ImportError as error:
        if error.name != "torch":
            raise  # of an installed torch that is broken: it says itself what it lacks
        raise ImportError(
            'framework="torch" needs torch, which is not installed: pip install "augpipe[torch]", '
            'or choose framework="numpy".'
        ) from error
    return torch
