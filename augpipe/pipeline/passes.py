"""Passes over a loader: which epoch each is and where in it it begins, and that there is one at a time."""

import logging
from collections.abc import Generator, Iterator
from inspect import GEN_CLOSED, getgeneratorstate

from augpipe.batch import Batch
from augpipe.pipeline.epochs import Epochs
from augpipe.pipeline.load_times import PassClock
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe")


class Pass(Iterator[Batch]):
    """The iterator over one pass, which says so where another one has ended it.

    Args:
        batches: what it gives.
        clock: counts it.
    """

    def __init__(self, batches: Generator[Batch, None, None], clock: PassClock) -> None:
        self._batches = batches
        self._clock = clock
        clock.begin()
        self._ended_by = ""

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            RuntimeError: something else has ended this pass.
        """
        try:
            self._clock.asked()
            batch = next(self._batches)
            self._clock.gave()
            return batch
        except StopIteration:
            if not self._ended_by:
                raise
        raise RuntimeError(
            f"this pass over the loader was ended by {self._ended_by}: a Loader makes one pass at a time. Finish a "
            "pass before the next one, or make a second Loader for it."
        )

    def close(self) -> None:
        """End the pass and its threads; it gives no more batch."""
        self._batches.close()

    def end_by(self, what: str) -> None:
        """Close it for the sake of something else, unless it has come to its end."""
        if getgeneratorstate(self._batches) != GEN_CLOSED:
            self._ended_by = what
            self._batches.close()


class Progress:
    """Which epoch the next pass is, and where in it it begins.

    1. A pass after one that was given whole is the next epoch; after one that was left early, the same epoch again.
    2. After `set_epoch` it is that epoch from its start, whatever was given of it before.
    3. A loaded state is another start of its epoch: passes of that epoch begin there, also after `set_epoch` of it,
       until one has given the last batch, another epoch is set or another state loaded.
    4. A state of after an epoch's last batch is followed by the next epoch, or, where its own is set, by a pass without
       a batch.

    Args:
        epochs: how long they are.
        tells: whether to log what a user may not expect; False for all ranks but one.
        are_alike: whether all epochs have the same batches, so that nobody misses another one.
    """

    def __init__(self, epochs: Epochs, *, tells: bool, are_alike: bool) -> None:
        self._epochs = epochs
        self._tells = tells
        self._are_alike = are_alike
        self.epoch = 0
        """The epoch that is running, or that the next pass will be."""
        self.consumed = 0
        """Samples of it that were handed out, by all ranks."""
        self._loaded: tuple[int, int] | None = None  # an epoch, and the samples before the start of its passes
        self._is_set = False
        self._number = 0  # of the pass that says where the loader stands

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that epoch; a pass that runs goes on with its own."""
        if epoch != self.epoch:
            self._number += 1  # a pass that still runs no longer says where the loader stands
        if self._loaded is not None and self._loaded[0] != epoch:
            self._tell_left_out(epoch, *self._loaded)
            self._loaded = None
        self.epoch = epoch
        self.consumed, self._is_set = self._start, True

    def load(self, epoch: int, consumed: int) -> None:
        """Go on after so many samples of an epoch; the pass that ran must have ended."""
        self.epoch, self.consumed, self._loaded = epoch, consumed, (epoch, consumed)
        self._is_set = False
        self._number += 1

    def begin(self) -> tuple[int, int, int]:
        """The pass whose first batch is asked for: its number for `gave` and `ended`, its epoch, and its start."""
        if not self._is_set:
            if self._epochs.is_over(self.consumed):
                self.epoch += 1
            elif self.consumed > self._start:
                self._tell_again()
        self.consumed, self._is_set = self._start, False
        self._number += 1
        return self._number, self.epoch, self._start

    def gave(self, number: int, consumed: int) -> None:
        """A pass has handed out a batch, the last one of so many samples of its epoch."""
        if number == self._number:
            self.consumed = consumed
            if self._epochs.is_over(consumed):
                self._loaded = None

    def ended(self, number: int) -> None:
        """A pass has come to its end."""
        if number == self._number:
            if not self._is_set:
                self.epoch += 1
            self.consumed, self._loaded = 0, None

    @property
    def _start(self) -> int:
        """The samples before the place where passes of this epoch begin."""
        return self._loaded[1] if self._loaded is not None and self._loaded[0] == self.epoch else 0

    def _tell_left_out(self, epoch: int, loaded_epoch: int, consumed: int) -> None:
        if not self._tells:
            return
        if consumed == 0 or self._epochs.is_over(consumed):
            following = loaded_epoch + (consumed > 0)
            if epoch < loaded_epoch:
                logger.warning(
                    "set_epoch(%d) gives epoch %d again, which the loaded state has behind it. Call set_epoch(%d), or "
                    "none, to go on where it ended.",
                    epoch,
                    epoch,
                    following,
                )
            return
        logger.warning(
            "set_epoch(%d) leaves out the rest of epoch %d, %d of its %s, with which the loaded state goes on. "
            "Call set_epoch(%d), or none, to have it.",
            epoch,
            loaded_epoch,
            self._epochs.num_samples - consumed,
            count(self._epochs.num_samples, "sample"),
            loaded_epoch,
        )

    def _tell_again(self) -> None:
        if not self._tells or self._are_alike:
            return
        self._tells = False  # once is enough
        given = -(-(self.consumed - self._start) // self._epochs.per_batch)
        logger.warning(
            "%sepoch %d begins again: the pass before was left after %d of its %s, and this one gives the same ones. "
            "Call loader.set_epoch(epoch) before each pass that is to be another epoch.",
            "the rest of " if self._start else "",
            self.epoch,
            given,
            count(self._epochs.num_batches(self._start), "batch"),
        )
