"""What planning costs: drawing numbers, composing them, the kernel's table, and the regions that are decoded.

`planning` does it twice: by the functions that do it, for so many samples at a time; and in the loader's own stages,
batch by batch, from a source that knows its images' sizes, planned in blocks or (with blocks of one batch) each batch
by itself. `calls` is `Augment` with one image a call and with 64, and what it plans, 32 at a time, for images of one
size and of several. `keep_objects` is a RandomResizedCrop without and with it, on images with 7.3 boxes on average, as
many as in COCO. In CPU time of the one thread that does it.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from augpipe import Augment, Recipe, ops, plan, recipes
from augpipe.augment_call.plans_ahead import PlanAhead, PlansAhead
from augpipe.ops.keep_objects import KnownObjects
from augpipe.pipeline.blocks import BLOCK_SIZE, Block
from augpipe.pipeline.items import BatchInProgress, Settings
from augpipe.pipeline.planner import Planner
from augpipe.pipeline.samples import Samples
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import plan_ahead
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


KEEPS = {
    "without keep_objects": None,
    "an object's centre": ops.KeepObjects(),
    "a share visible": ops.KeepObjects(rule="visible"),
    "an object whole": ops.KeepObjects(rule="whole"),
    "none cut": ops.KeepObjects(rule="uncut"),
    "all whole": ops.KeepObjects(rule="all"),
}


def objects_of(num: int) -> KnownObjects:
    """Boxes with sides of 3 to 50 % of the image's, some of each size, at even places."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(7.3, num)
    sides = np.array(SIZE[::-1])
    lengths = np.exp(rng.uniform(np.log(0.03), np.log(0.5), (counts.sum(), 1))) * rng.uniform(0.7, 1.0, (1, 2))
    first = rng.uniform(0.0, 1.0, lengths.shape) * (1.0 - lengths)
    return KnownObjects(counts=counts, boxes=np.concatenate([first, first + lengths], axis=1) * np.tile(sides, 2))


def with_objects(num: int, keep: ops.KeepObjects | None) -> tuple[Callable[[], int], float, float]:
    """Plans so many at a time, and how many tries an image takes and how often none of them is good."""
    recipe = Recipe(ops=[ops.RandomResizedCrop(keep_objects=keep)])
    ids, sizes, objects = np.arange(num), [SIZE] * num, objects_of(num)

    def work() -> int:
        for epoch in range(EPOCH_SIZE // num):
            plan(recipe, ids, sizes=sizes, epoch=epoch, objects=objects)
        return EPOCH_SIZE

    if keep is None:
        return work, 1.0, 0.0
    found = plan(recipe, ids, sizes=sizes, objects=objects).rows["drawn"]["random_resized_crop"]["keep_objects"]
    return work, float(found["tries"].mean()), float(found["fell_back"].mean())


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


def planning(bench: Bench) -> None:
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


def keep_objects(bench: Bench) -> None:
    contenders, tries, fallbacks = {}, {}, {}
    for name, keep in KEEPS.items():
        for num in (32, 1024):
            work, tried, fell_back = with_objects(num, keep)
            contenders[f"{name}, {num} at a time"] = work
        tries[name], fallbacks[name] = round(tried, 2), round(fell_back, 4)
    bench.report(
        "keep_objects",
        what="microseconds an image, the plan of a RandomResizedCrop",
        seconds=bench.in_turn(contenders, clock=time.thread_time),
        unit="us",
        tries_an_image=tries,
        share_of_fallbacks=fallbacks,
    )


CALLED: dict[str, Callable[[int], Recipe]] = {
    "RandomResizedCrop": lambda side: Recipe(ops=[ops.RandomResizedCrop(size=side), ops.Flip()]),
    "RandAugment": recipes.rand_augment,
}
SIDES = {(375, 500): 224, (32, 32): 32}


def calls(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    contenders, beyond = {}, {}
    for (height, width), side in SIDES.items():
        arrays = [rng.integers(0, 256, (height, width, 3), np.uint8) for _ in range(64)]
        for name, made in CALLED.items():
            single, many = Augment(made(side), num_threads=1), Augment(made(side), num_threads=1)
            title = f"{name}, {height}x{width}"
            contenders[f"{title}, one a call"] = called(single, [[array] for array in arrays])
            contenders[f"{title}, 64 a call"] = called(many, [arrays])
            beyond[title] = f"{title}, one a call", f"{title}, 64 a call"
    for name, made in CALLED.items():
        one_size = np.tile([(375, 500)], (32, 1))
        several = one_size + np.arange(32)[:, None] % 9 * (1, 0)
        contenders[f"plan of {name}, 32 at a time"] = by_plan(made(224), one_size)
        contenders[f"plan of {name} in calls of 32, one size"] = by_blocks(made(224), one_size)
        contenders[f"plan of {name} in calls of 32, several sizes"] = by_blocks(made(224), several)
    seconds = bench.in_turn(contenders, clock=time.thread_time)
    median = {name: 1e6 * statistics.median(of) for name, of in seconds.items()}
    bench.report(
        "calls",
        what="microseconds an image (goals: one a call beyond 64 a call 50 and 100 for RandAugment; its plan 10)",
        seconds=seconds,
        unit="us",
        beyond_us={name: round(median[one] - median[of], 1) for name, (one, of) in beyond.items()},
    )


def called(augment: Augment, batches: list[list[Any]]) -> Callable[[], int]:
    def work() -> int:
        for _ in range(4):
            for batch in batches:
                augment(batch if len(batch) > 1 else batch[0])
        return 4 * sum(map(len, batches))

    return work


def by_plan(recipe: Recipe, sizes: Any) -> Callable[[], int]:
    def work() -> int:
        for epoch in range(16):
            plan(recipe, np.arange(len(sizes)), sizes=sizes, epoch=epoch)
        return 16 * len(sizes)

    return work


def by_blocks(recipe: Recipe, sizes: Any) -> Callable[[], int]:
    """As calls of `Augment` plan their ids, one after the other."""
    ahead, calls, listed = PlansAhead(), count(), [(height, width) for height, width in sizes.tolist()]

    def work() -> int:
        for nth in islice(calls, 16):
            block, own = ahead.block(nth * len(sizes), listed, recipe, plan_ahead, 0, 0)
            PlanAhead(block, own, listed, recipe, 0)
        return 16 * len(sizes)

    return work


PARTS = {"planning": planning, "calls": calls, "keep_objects": keep_objects}


def main() -> None:
    bench = Bench(__doc__, rounds=25, names=tuple(PARTS))
    for name in bench.names:
        PARTS[name](bench)


if __name__ == "__main__":
    main()
