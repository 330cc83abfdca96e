"""The loader: epochs of augmented batches from a source, the same ones for the same seed."""

import logging
import os
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from augpipe import order
from augpipe.arguments import as_count, as_epoch, as_num_threads, as_seed, as_whole, check_choice
from augpipe.backends.assembly import Request, Settings
from augpipe.backends.choose import BackendName, CacheName, choose
from augpipe.backends.engine import Engine
from augpipe.backends.render import MAX_INDEXABLE_PIXELS
from augpipe.batch import Batch
from augpipe.cache import CacheStatistics, PixelCache
from augpipe.decoding import MAX_PIXELS
from augpipe.output import DType, Framework, Layout, OutputFormat
from augpipe.recipe import Recipe
from augpipe.source import Source, is_source
from augpipe.workers import num_usable_cores

logger = logging.getLogger("augpipe")

STATE_VERSION = 1


class Loader:
    """Iterate over a source's photographs as augmented batches; each pass over it is one epoch.

    Every batch is a pure function of source, recipe, seed, epoch and its place in the epoch: threads, prefetching and
    resuming do not change a bit, and batch size and world size only change how the same samples are cut into batches.

    Args:
        source: a `Source`, or what `augpipe.datasets.open.open_source` opens: a folder of class folders, a flat folder,
            a CSV or TSV list, a photograph, shards, tar, Parquet, IDX or CIFAR files, a pattern of such names.
        recipe: what is done to each photograph.
        batch_size: photographs in a batch of this rank.
        seed: 0..2^64 - 1.
        shuffle: a new order each epoch; False keeps the source's. "sticky" is a new order each epoch in which a rank
            always gets the same samples, those with id ≡ rank (mod world_size), so that its cache serves it for ever.
        drop_last: leave out the epoch's last global batch if it is cut short. Otherwise ranks can get batches that
            differ in length by one there, even an empty one, but always the same number of them.
        rank, world_size: this process's place among those that share the data.
        num_threads: threads that read, decode and augment; None for one a core.
        prefetch: batches made ahead of the one in use.
        backend: "native" decodes on the CPU in threads; "dali" has NVIDIA DALI decode, on a CUDA device by nvJPEG;
            "auto" chooses "dali" for a CUDA device where DALI is installed, else "native".
        device: "cpu", "cuda", "cuda:1" or a torch.device: where batches are made. On CUDA they are ready on the stream
            that is current when the loader hands them out.
        cache: "off"; "device" keeps decoded photographs where batches are made, "host" in host memory, so that from the
            second epoch on they are neither read nor decoded. It changes no pixel.
        cache_bytes: what the cache may take; None for most of what is free when the first pass begins.
        pin_memory: batches on the CPU lie in page-locked memory, from which `.to("cuda", non_blocking=True)` is fast.
        framework: "torch" tensors or "numpy" arrays (CPU only).
        dtype: "float32", "float16", "bfloat16" (torch only) or "uint8" (recipes without Normalize).
        layout: "NCHW", "NHWC" or "channels_last" (torch only).
        on_error: "raise", or "skip" to put the next usable photograph of the source in the place of one that is not.
        max_pixels: larger photographs are refused before they are decoded.

    Raises:
        ValueError: an argument is out of range, with the range and the remedy.
        ImportError: framework="torch" without torch, or backend="dali" without DALI.
        DeviceError: the machine cannot run the device that was asked for; the message says what it lacks.
    """

    def __init__(
        self,
        source: Source | str | Path,
        recipe: Recipe,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool | Literal["sticky"] = True,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        num_threads: int | None = None,
        prefetch: int = 2,
        backend: BackendName = "auto",
        device: Any = "cpu",
        cache: CacheName = "off",
        cache_bytes: int | None = None,
        pin_memory: bool = False,
        framework: Framework = "torch",
        dtype: DType = "float32",
        layout: Layout = "NCHW",
        on_error: Literal["raise", "skip"] = "raise",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        check_choice("on_error", on_error, ("raise", "skip"))
        check_choice("shuffle", shuffle, (True, False, "sticky"))
        self.batch_size = as_count("batch_size", batch_size)
        self.world_size = as_count("world_size", world_size)
        self.rank = as_whole("rank", rank)
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank={rank} must lie in 0..world_size - 1, which is 0..{world_size - 1}.")
        self.seed = as_seed(seed)
        self._prefetch = as_count("prefetch", prefetch)
        self._num_threads = as_num_threads(num_threads, num_usable_cores())
        self._max_pixels = as_whole("max_pixels", max_pixels)
        if not 1 <= self._max_pixels <= MAX_INDEXABLE_PIXELS:
            raise ValueError(f"max_pixels={max_pixels} must lie in 1..{MAX_INDEXABLE_PIXELS}, what kernels can index.")
        if not isinstance(recipe, Recipe):
            raise ValueError(f"recipe is a {type(recipe).__name__}. Give a Recipe; Recipe.load(path) reads one.")
        self._form = OutputFormat(dtype=dtype, layout=layout, framework=framework)
        self._form.check(recipe)
        self._choice = choose(
            backend=backend,
            device=device,
            cache=cache,
            cache_bytes=cache_bytes,
            pin_memory=pin_memory,
            framework=framework,
        )
        self.source: Source = source if is_source(source) else _open(source)
        self.recipe = recipe
        self.drop_last = drop_last
        self.shuffle = shuffle
        self._skips_bad = on_error == "skip"
        self._num_samples = len(self.source)
        if self._num_samples < 1:
            raise ValueError("the source is empty: it holds no photographs. Check where it points to.")
        if len(self) == 0:
            raise ValueError(
                f"drop_last=True leaves no batch: the source holds {self._num_samples} photographs and a global batch "
                f"{self.batch_size * self.world_size}. Lower batch_size, or leave drop_last out."
            )
        self._epoch = 0
        self._consumed = 0
        self._is_resuming = False
        self._is_epoch_set = False
        self._pass_number = 0
        self._running: weakref.ref[Generator[Batch, None, None]] | None = None
        self._backend: Engine | None = None
        self._cache: PixelCache | None = None
        self._process = os.getpid()
        self.skipped: dict[int, str] = {}
        """Photographs replaced so far: sample id -> "name: reason"."""

    def __len__(self) -> int:
        """Batches in a whole epoch, the same for every rank and epoch."""
        return order.num_batches(self._num_samples, self.batch_size, self.world_size, self.drop_last)

    @property
    def epoch(self) -> int:
        """The epoch that is running, or that the next pass will be."""
        return self._epoch

    @property
    def cache_statistics(self) -> CacheStatistics | None:
        """What the cache holds and how often it helped; None with cache="off" and before the first pass."""
        return self._cache.statistics() if self._cache is not None else None

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass epoch number `epoch`, from its start, or what a loaded state leaves of that epoch.

        That may be nothing: a run resumed after the last batch of an epoch passes over it without a batch. A pass that
        is running goes on with its own epoch.
        """
        epoch = as_epoch(epoch)
        if epoch != self._epoch:
            self._epoch, self._consumed, self._is_resuming = epoch, 0, False
            self._pass_number += 1  # a pass that still runs no longer says where the loader stands
        self._is_epoch_set = True

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands: enough to go on from the next batch, with any batch size and world size.

        With shuffle="sticky" the world size may change between epochs alone.
        """
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "seed": self.seed,
            "epoch": self._epoch,
            "samples_consumed": self._consumed,
            "num_samples": self._num_samples,
            "shuffle": self.shuffle,
        }
        return state | ({"world_size": self.world_size} if self.shuffle == "sticky" else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken: the next pass yields the rest of that epoch.

        Raises:
            ValueError: the state is of another source or version, or does not fit.
        """
        missing = [key for key in self.state_dict() if key not in state]
        if missing:
            raise ValueError(f"the state lacks {', '.join(missing)}. Give what Loader.state_dict() returned.")
        if state["version"] != STATE_VERSION:
            raise ValueError(f"the state's version is {state['version']}, and this augpipe reads {STATE_VERSION}.")
        if state["num_samples"] != self._num_samples:
            raise ValueError(
                f"the state is of a source of {state['num_samples']} photographs and this one holds "
                f"{self._num_samples}. Resume with the same source, or start a new run."
            )
        if state["shuffle"] != self.shuffle:
            raise ValueError(
                f"the state was taken with shuffle={state['shuffle']} and this loader has shuffle={self.shuffle}: "
                "samples would be lost and repeated. Resume with the same order."
            )
        seed, epoch, consumed = (
            as_seed(state["seed"]),
            as_epoch(state["epoch"]),
            as_whole("samples_consumed", state["samples_consumed"]),
        )
        if not 0 <= consumed <= self._num_samples:
            raise ValueError(f"samples_consumed={consumed} leaves 0..{self._num_samples}.")
        if self.shuffle == "sticky" and state["world_size"] != self.world_size and 0 < consumed < self._num_samples:
            raise ValueError(
                f"the state was taken within an epoch by world_size={state['world_size']} and this loader has "
                f'world_size={self.world_size}: with shuffle="sticky" ranks own samples, and some would be lost and '
                "repeated. Resume with the same world size, or from a state taken at an epoch's end."
            )
        self._close_running()
        if seed != self.seed:
            self.seed = seed
            self._backend = None
        self._epoch, self._consumed = epoch, consumed
        self._is_resuming, self._is_epoch_set = True, False

    def __iter__(self) -> Iterator[Batch]:
        self._close_running()
        per_batch = self.batch_size * self.world_size
        rest = self._num_samples - self._consumed
        is_over = rest == 0 or (self.drop_last and rest < per_batch and self._consumed > 0)
        if is_over and not (self._is_resuming and self._is_epoch_set):
            self._epoch, self._consumed = self._epoch + 1, 0
        elif not self._is_resuming:
            self._consumed = 0
        self._pass_number += 1
        running = self._run_epoch(self._pass_number, self._epoch, self._consumed)
        self._running = weakref.ref(running)
        return running

    def _run_epoch(self, pass_number: int, epoch: int, consumed: int) -> Generator[Batch, None, None]:
        if pass_number == self._pass_number:
            self._is_resuming = self._is_epoch_set = False
        skipped_ids: set[int] = set()
        made = self._make_backend().run(self._requests(epoch, consumed))
        try:
            for batch, skipped in made:
                consumed = min(consumed + self.batch_size * self.world_size, self._num_samples)
                if pass_number == self._pass_number:
                    self._consumed = consumed
                self._report(skipped)
                skipped_ids.update(skipped)
                yield batch
        finally:
            made.close()
        if skipped_ids:
            logger.warning("epoch %d: %d photographs were skipped", epoch, len(skipped_ids))
        if pass_number == self._pass_number:
            self._epoch, self._consumed = epoch + 1, 0

    def _requests(self, epoch: int, consumed: int) -> Iterator[Request]:
        total, per_batch = self._num_samples, self.batch_size * self.world_size
        num = order.num_batches(total - consumed, self.batch_size, self.world_size, self.drop_last)
        for number in range(num):
            first = consumed + number * per_batch
            positions = order.rank_positions(first, total, self.batch_size, self.rank, self.world_size)
            if self.shuffle == "sticky":
                ids = order.sticky_sample_ids(positions, total, self.seed, epoch, self.rank, self.world_size)
            else:
                ids = order.sample_ids(positions, total, self.seed, epoch, self.shuffle)
            yield Request(number=number, epoch=epoch, sample_ids=np.asarray(ids))

    def _make_backend(self) -> Engine:
        if self._process != os.getpid():  # a fork copies locks as they are
            self._process = os.getpid()
            self._backend = self._cache = None
        if self._backend is None:
            if self._choice.reason is not None:
                logger.info("%s; threads: %d", self._choice.reason, self._num_threads)
            if self._cache is None:
                self._cache = self._choice.make_cache(self._num_samples)
            settings = Settings(
                source=self.source,
                recipe=self.recipe,
                seed=self.seed,
                form=self._form,
                num_threads=self._num_threads,
                prefetch=self._prefetch,
                skips_bad=self._skips_bad,
                max_pixels=self._max_pixels,
                pins_memory=self._choice.pins_memory,
            )
            self._backend = self._choice.make_engine(settings, self.batch_size, self._cache)
        return self._backend

    def _report(self, skipped: dict[int, str]) -> None:
        for sample_id, problem in sorted(skipped.items()):
            if sample_id not in self.skipped:
                self.skipped[sample_id] = problem
                logger.warning("skipped sample %d, %s", sample_id, problem)

    def _close_running(self) -> None:
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()
        self._running = None


def _open(path: Any) -> Source:
    # the convenience of a path is the one thing that the loader takes from the room above it
    from augpipe.datasets.open import open_source

    return open_source(path)
