"""Batches of one image, for a sheet: whole images differ in size, and the pixels do not depend on the batch's."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from augpipe.batch import Batch
from augpipe.decoding import MAX_PIXELS
from augpipe.native.workers import num_usable_cores
from augpipe.pipeline.batches import BatchMaker
from augpipe.pipeline.epochs import Epochs
from augpipe.pipeline.host_output import HostOutput
from augpipe.pipeline.items import Settings
from augpipe.pipeline.objects_of_crops import check_kept_objects
from augpipe.pipeline.target_choice import check_pasting
from augpipe.planning.output_format import OutputFormat
from augpipe.preview.shown_targets import options_for
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Source
from augpipe.validation.plural import count


def first_batches(
    source: Source,
    epochs: Epochs,
    recipe: Recipe,
    ids: Sequence[int],
    seed: int,
    epoch: int,
    skips_bad: bool,
    position: int | None,
    made_one: Callable[[], None],
) -> tuple[list[Batch], dict[int, str]]:
    """A batch of one for each sample, and what was skipped; `made_one` is called after each."""
    batches: dict[int, Batch] = {}
    skipped: dict[int, str] = {}
    wanted = [(epoch, sample_id) for sample_id in ids]
    for batch, problems in made_batches(
        source, epochs, recipe, wanted, seed, made_one, skips_bad=skips_bad, position=position
    ):
        # an unusable image is replaced by another one, which may be shown already
        batches.setdefault(int(batch.sample_ids[0]), batch)
        skipped |= problems
    return list(batches.values()), skipped


def made_batches(
    source: Source,
    epochs: Epochs,
    recipe: Recipe,
    wanted: Sequence[tuple[int, int]],
    seed: int,
    made_one: Callable[[], None],
    *,
    skips_bad: bool = False,
    position: int | None = None,
) -> Iterator[tuple[Batch, dict[int, str]]]:
    """For each (epoch, sample id) a batch of one, made as the loader makes it, and what was skipped.

    `made_one` is called after each.
    """
    check_kept_objects(source, [recipe])
    options = options_for(source, recipe)
    check_pasting([recipe], source, options, is_native=True)
    settings = Settings(
        source=source,
        recipe=recipe,
        seed=seed,
        form=OutputFormat(dtype="uint8", layout="NHWC", framework="numpy"),
        num_threads=num_usable_cores(),
        first_threads=num_usable_cores(),
        prefetch=2,
        skips_bad=skips_bad,
        max_pixels=MAX_PIXELS,
        groups_of=None if epochs.sampling is None else epochs.sampling.groups_of,
        targets=options,
    )
    requests = (epochs.request_of(recipe, seed, *each, number, position) for number, each in enumerate(wanted))
    for made in BatchMaker(settings, HostOutput(settings)).run(requests):
        made_one()
        yield made


def epochs_of(source: Source) -> Epochs:
    """Shuffled ones of all images.

    Raises:
        ValueError: there are none.
    """
    if len(source) < 1:
        raise ValueError("the source is empty: it holds no photographs. Check where it points to.")
    return Epochs(
        num_samples=len(source),
        batch_size=1,
        rank=0,
        world_size=1,
        drop_last=False,
        shuffle=True,
        sampling=None,
    )


def shown_ids(
    source: Source, epochs: Epochs, rows: int, seed: int, epoch: int, samples: Sequence[int] | None
) -> list[int]:
    """The samples that are asked for, or the first ones of an epoch's order."""
    num = len(source)
    if samples is None:
        positions = np.arange(min(rows, epochs.num_samples), dtype=np.int64)
        ids: list[int] = epochs.sample_ids(seed, epoch, positions).tolist()
        return list(dict.fromkeys(ids))
    for number in samples:
        if not 0 <= number < num:
            raise ValueError(
                f"sample {number} is out of range: the source holds {count(num, 'photograph')}, with the ids "
                f"0..{num - 1}."
            )
    return list(dict.fromkeys(samples))
