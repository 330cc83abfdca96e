"""Peak memory over 50 epochs of the images: it must not grow from epoch to epoch."""

import resource
import tempfile
from pathlib import Path

from common import photographs, save

from augpipe import Loader, recipes

NUM_EPOCHS = 50
WARM_EPOCHS = 3


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    encoded, origin = photographs()
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(encoded):
            (Path(folder) / f"{number:05}.jpg").write_bytes(data)
        del encoded
        loader = Loader(folder, recipes.deep_image(), batch_size=32)
        peaks = []
        for _ in range(NUM_EPOCHS):
            for _ in loader:
                pass
            peaks.append(round(peak_mb(), 1))
    save(
        "memory",
        {
            "what": f"peak resident MB after each of {NUM_EPOCHS} epochs of {origin}, batches of 32",
            "peak_mb": {"first": peaks[0], f"epoch {WARM_EPOCHS}": peaks[WARM_EPOCHS - 1], "last": peaks[-1]},
            "growth_after_warm_up_mb": round(peaks[-1] - peaks[WARM_EPOCHS - 1], 1),
            "peaks_mb": peaks,
        },
    )


if __name__ == "__main__":
    main()
