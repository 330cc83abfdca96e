"""What becomes of images that cannot be used: each that was skipped is logged once, and a count at the end."""

import logging
from collections.abc import Callable, Generator

from augpipe.batch import Batch
from augpipe.errors import SampleError
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe")

_REMEDY = 'on_error="skip" puts another one in its place: of the Loader, or in [data] of a run\'s config.'


def hand_out(
    made: Generator[tuple[Batch, dict[int, str]], None, None],
    what: str,
    known: dict[int, str],
    *,
    check: Callable[[], None],
    skips_bad: bool,
) -> Generator[Batch, None, None]:
    """Give the batches that are made, and log what was skipped: each image once, and how many of `what` at the end.

    Args:
        made: batches, with the sample ids that were skipped -> "name: reason".
        what: is made, as "epoch 3".
        known: what was skipped and logged before; what is new is added.
        check: called before the first batch.
        skips_bad: whether images are skipped; else the error names the way to it.

    Raises:
        SampleError: an image cannot be used and nothing is skipped, or nothing is left to put in its place.
    """
    skipped_ids: set[int] = set()
    try:
        check()
        for batch, skipped in made:
            for sample_id, problem in sorted(skipped.items()):
                if sample_id not in known:
                    known[sample_id] = problem
                    logger.warning("skipped sample %d, %s", sample_id, problem)
            skipped_ids.update(skipped)
            yield batch
    except SampleError as problem:
        if skips_bad:
            raise  # nothing is left to put in its place
        raise SampleError(problem.name, problem.reason, _REMEDY) from problem.__cause__
    finally:
        made.close()
    if skipped_ids:
        were = "was" if len(skipped_ids) == 1 else "were"
        logger.warning("%s: %s %s skipped", what, count(len(skipped_ids), "photograph"), were)
