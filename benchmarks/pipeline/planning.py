"""What planning costs: drawing numbers, composing them, the kernel's table, and the regions that are decoded.

Twice: by the functions that do it, for so many samples at a time; and in the loader's own stages, batch by batch, from
a source that knows its images' sizes, planned in blocks or (with blocks of one batch) each batch by itself. In CPU time
of the one thread that does it.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from augpipe import plan, recipes
from augpipe.pipeline.blocks import BLOCK_SIZE, Block
from augpipe.pipeline.items import BatchInProgress, Settings
from augpipe.pipeline.planner import Planner
from augpipe.pipeline.samples import Samples
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.regions import source_regions
from augpipe.sampling import epoch_order
from benchmarks.harness import Bench

NUM_AT_A_TIME = (32, 256, 1024)
BATCH_SIZES = (32, 128)
EPOCH_SIZE = 8 * BLOCK_SIZE
SIZE = 375, 500
RECIPE = recipes.deep_image()


class Sizes:
    """A source of which no more than the sizes are asked for."""

    classes: Sequence[str] = ()
    knows_sizes = True

    def __len__(self) -> int:
        return EPOCH_SIZE

    def size(self, sample_id: int) -> tuple[int, int]:
        return SIZE


def by_function(num: int, parts: int) -> Callable[[], int]:
    """The first `parts` of: the plan, the kernel's table, the regions."""
    ids, sizes = epoch_order.sample_ids(np.arange(num), num, 0, 0, shuffle=True), [SIZE] * num

    def work() -> int:
        for epoch in range(EPOCH_SIZE // num):
            made = plan(RECIPE, ids, sizes=sizes, epoch=epoch)
            if parts > 1:
                tables = [kernel_rows(made.rows, dct_factors(made.views))]
                if parts > 2:
                    source_regions(tables, [RECIPE.all_views[0].out_size])
        return EPOCH_SIZE

    return work


def in_the_loader(batch_size: int, block_size: int) -> Callable[[], int]:
    settings = Settings(
        source=Sizes(),
        recipe=RECIPE,
        seed=0,
        form=OutputFormat(dtype="float32", layout="NCHW", framework="numpy"),
        num_threads=1,
        first_threads=1,
        prefetch=1,
        skips_bad=False,
        max_pixels=2**31 - 1,
    )
    samples = Samples(settings, None)
    planner = Planner(settings, None, lambda batch: None, decodes=True, wants_regions=False)

    def work() -> int:
        for first in range(0, EPOCH_SIZE, block_size):
            ids = epoch_order.sample_ids(np.arange(first, first + block_size), EPOCH_SIZE, 0, 0, shuffle=True)
            for request in Block(0, ids).requests(0, block_size // batch_size, batch_size):
                batch = BatchInProgress.of(request)
                samples.look_up(batch, batch.items)
                planner.plan(batch, batch.items)
        return EPOCH_SIZE

    return work


def main() -> None:
    bench = Bench(__doc__, rounds=25)
    contenders = {
        f"{what}, {num} at a time": by_function(num, parts)
        for num in NUM_AT_A_TIME
        for parts, what in enumerate(("plan", "plan and kernel table", "plan, kernel table and regions"), start=1)
    }
    for size in BATCH_SIZES:
        contenders[f"loader's stages, batches of {size} by themselves"] = in_the_loader(size, size)
        contenders[f"loader's stages, batches of {size} in blocks"] = in_the_loader(size, BLOCK_SIZE)
    bench.report(
        "planning",
        what="microseconds an image, deep_image (goal for the plan: 1)",
        seconds=bench.in_turn(contenders, clock=time.thread_time),
        unit="us",
        block_size=BLOCK_SIZE,
    )


if __name__ == "__main__":
    main()
