"""What a sampler costs: a position of an epoch, as the loader asks for them, a block at a time; and making it ready.

In CPU time of one thread, for a source of a million samples in a thousand classes.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from augpipe.pipeline.blocks import BLOCK_SIZE
from augpipe.sampling import ClassBalanced, Mixture, Repeated, Sampler, Weighted, epoch_order
from augpipe.sources import Concat
from augpipe.sources.protocol import Source
from benchmarks.harness import Bench, spread

NUM, NUM_CLASSES = 1_000_000, 1_000


class Labels:
    """A source of which no more than the labels are asked for."""

    def __init__(self, num: int) -> None:
        self._num = num
        self.classes = [str(label) for label in range(NUM_CLASSES)]

    def __len__(self) -> int:
        return self._num

    def read(self, sample_id: int) -> bytes:
        raise AssertionError("nobody reads it")

    def label(self, sample_id: int) -> int:
        return sample_id % NUM_CLASSES

    def labels_of(self, sample_ids: Any) -> Any:
        return sample_ids % NUM_CLASSES

    def name(self, sample_id: int) -> str:
        return str(sample_id)


SOURCE = Concat([Labels(9 * NUM // 10), Labels(NUM // 10 - 64), Labels(64)])
SAMPLERS: dict[str, tuple[Sampler, Source]] = {
    "Weighted": (Weighted(np.random.default_rng(0).random(NUM)), SOURCE),
    "ClassBalanced": (ClassBalanced(), SOURCE),
    "Repeated": (Repeated(3), SOURCE),
    "Mixture": (Mixture((0.5, 0.3, 0.2)), SOURCE),
}


def positions_of(sampler: Sampler | None, source: Source) -> Callable[[], int]:
    """Blocks of an epoch, one after the other."""
    bound = None if sampler is None else sampler.bind(source)

    def work() -> int:
        for first in range(0, 8 * BLOCK_SIZE, BLOCK_SIZE):
            positions = np.arange(first, first + BLOCK_SIZE)
            if bound is None:
                epoch_order.sample_ids(positions, NUM, 1, 3, shuffle=True)
            else:
                bound.sample_ids(positions, 1, 3)
        return 8 * BLOCK_SIZE

    return work


def made_ready(sampler: Sampler, source: Source) -> Callable[[], int]:
    def work() -> int:
        sampler.bind(source)
        return 1

    return work


def main() -> None:
    bench = Bench(__doc__, rounds=25)
    positions = {"none, shuffled": positions_of(None, SOURCE)}
    positions |= {name: positions_of(*each) for name, each in SAMPLERS.items()}
    ready = {name: made_ready(*each) for name, each in SAMPLERS.items()}
    clock = {"clock": time.thread_time}
    made = {name: spread(of, 1e3) for name, of in bench.in_turn(ready, 5, **clock).items()}
    bench.report(
        "sampling",
        what="CPU time of a position in microseconds (goal: 1), and of making a sampler ready in milliseconds",
        seconds=bench.in_turn(positions, **clock),
        unit="us",
        num_samples=NUM,
        num_classes=NUM_CLASSES,
        block_size=BLOCK_SIZE,
        **{"milliseconds to make ready": made},
    )


if __name__ == "__main__":
    main()
