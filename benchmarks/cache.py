"""What a host cache that holds everything, or half of it, brings from the second epoch on.

From JPEG files on disk (in the page cache) to float32 batches of 224x224, on two threads.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from common import in_turn, photographs, ratio, save, summary

from augpipe import Loader, recipes

BATCH_SIZE = 64
ROUNDS = 7
NUM_THREADS = 2
COPIES = 4
"""How often each image is in the source: an epoch's start and end weigh less then."""
WARM_EPOCHS = 3
"""An image that is held at one DCT scale may be wanted at another: after a few epochs that has become rare."""
OFF, HALF, ALL = "cache off", "half of it fits", "all of it fits"


def epoch_of(loader: Loader) -> Callable[[], int]:
    """A contender: an epoch of a loader that has run before."""
    for _ in range(WARM_EPOCHS):
        for _ in loader:
            pass
    return lambda: sum(len(batch) for batch in loader)


def main() -> None:
    encoded, origin = photographs()
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(encoded * COPIES):
            (Path(folder) / f"{number:05}.jpg").write_bytes(data)

        def made(**options: object) -> Loader:
            return Loader(folder, recipes.deep_image(), batch_size=BATCH_SIZE, num_threads=NUM_THREADS, **options)

        whole = made(cache="host", cache_bytes=8 * 2**30)
        contenders = {OFF: epoch_of(made()), ALL: epoch_of(whole)}
        statistics = whole.cache_statistics
        assert statistics is not None
        half = made(cache="host", cache_bytes=statistics.held_bytes // 2)
        contenders[HALF] = epoch_of(half)
        seconds = in_turn(contenders, ROUNDS)
    save(
        "cache",
        {
            "what": f"microseconds a photograph, {COPIES}x {origin}, batches of {BATCH_SIZE}, {NUM_THREADS} threads",
            "held": {ALL: str(whole.cache_statistics), HALF: str(half.cache_statistics)},
            "microseconds": summary(seconds, 1e6),
            "ratios": {
                f"{ALL} over {OFF}": round(ratio(seconds, OFF, ALL), 2),
                f"{HALF} over {OFF}": round(ratio(seconds, OFF, HALF), 2),
            },
        },
    )


if __name__ == "__main__":
    main()
