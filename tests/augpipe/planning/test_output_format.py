"""Number types by every name that people bring, wherever a dtype is taken."""

from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, recipes
from augpipe.planning.output_format import dtype_name
from tests.augpipe.loader.loader_sources import CENTRE, MemorySource, arrays

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float16", "fp16", np.float16, np.dtype("float16"), torch.float16, torch.half])
def test_a_type_has_many_names(dtype: Any) -> None:
    from augpipe.nn import AugmentModule

    (image,) = arrays(1)
    (batch,) = Loader(MemorySource([image]), CENTRE, batch_size=1, dtype=dtype)
    assert batch.images.dtype == torch.float16
    assert Augment(CENTRE, dtype=dtype)(image).dtype == np.float16
    assert AugmentModule(CENTRE, dtype=dtype)(torch.from_numpy(image)).dtype == torch.float16


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bfloat16, "bfloat16"),
        ("bf16", "bfloat16"),
        ("fp32", "float32"),
        (np.uint8, "uint8"),
        (torch.uint8, "uint8"),
        (torch.float64, "float64"),
        (float, float),
        (None, None),
    ],
)
def test_what_each_is_called(dtype: Any, name: Any) -> None:
    assert dtype_name(dtype) == name


@pytest.mark.parametrize("dtype", [np.float64, torch.float64, "float64"])
def test_other_types_are_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="^dtype='float64' is not known. Choose one of 'float32', 'float16'"):
        Augment(recipes.none(), dtype=dtype)
