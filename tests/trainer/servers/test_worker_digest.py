"""What workers must have in common, so that none trains on other photographs than the others."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.sources import Subset
from augpipe.trainer.config import make_config
from augpipe.trainer.servers.from_config import digest_of

FLAT: Any = SimpleNamespace(sizes=(12, 3))
CONFIG = make_config({"data": {"source": "x"}})
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), np.uint8)


def test_sources_of_equal_length_are_told_apart() -> None:
    source = ArraySource(IMAGES, [0, 1, 0, 1, 0, 1])
    others = (
        ArraySource(IMAGES, [0, 1, 0, 1, 1, 0]),
        ArraySource(255 - IMAGES, [0, 1, 0, 1, 0, 1]),
        Subset(source, [1, 0, 2, 3, 4, 5]),
    )
    assert digest_of(CONFIG, FLAT, source) == digest_of(CONFIG, FLAT, ArraySource(IMAGES.copy(), [0, 1] * 3))
    assert digest_of(CONFIG, FLAT, source) not in {digest_of(CONFIG, FLAT, other) for other in others}
