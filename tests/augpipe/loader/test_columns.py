"""Further columns of a source go along with the batches, each beside its own sample."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from augpipe import Loader, Recipe, ops
from augpipe.sources import Concat, Subset
from augpipe.sources.protocol import Ints, columns_of
from tests.augpipe.loader.loader_sources import CENTRE, TEXT, MemorySource, arrays


class Captioned(MemorySource):
    """A source whose captions and paths are known by their ids."""

    def columns_of(self, sample_ids: Ints) -> Mapping[str, Any]:
        return {"caption": [f"caption {i}" for i in sample_ids.tolist()], "twice": 2 * sample_ids}


def check(loader: Loader) -> None:
    for batch in loader:
        assert batch.columns["caption"] == [f"caption {i}" for i in batch.sample_ids]
        np.testing.assert_array_equal(batch.columns["twice"], 2 * batch.sample_ids)


def test_they_are_those_of_the_samples_that_came() -> None:
    contents: list[Any] = arrays(7)
    check(Loader(Captioned(contents), CENTRE, batch_size=3, framework="numpy"))
    contents[2] = TEXT
    check(Loader(Captioned(contents), CENTRE, batch_size=3, framework="numpy", on_error="skip"))
    mixed = Recipe(ops=CENTRE.ops, mixing=(ops.MixUp(),))
    check(Loader(Captioned(arrays(7)), mixed, batch_size=3, framework="numpy"))
    (batch,) = Loader(MemorySource(arrays(2)), CENTRE, batch_size=2, framework="numpy")
    assert batch.columns == {}


def test_parts_of_sources_have_them_too() -> None:
    whole = Captioned(arrays(4))
    assert columns_of(Subset(whole, [3, 1]), np.array([0, 1, 0]))["caption"] == ["caption 3", "caption 1", "caption 3"]
    both = Concat([whole, MemorySource(arrays(2)), Subset(whole, [2])])
    assert columns_of(both, np.array([6, 0, 4])) == {"caption": ["caption 2", "caption 0", None], "twice": [4, 0, None]}
