"""The loader: epochs of augmented batches from a source, the same ones for the same seed."""

import inspect
import logging
import os
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, overload

import numpy.typing as npt
from typing_extensions import TypeVar

from augpipe.batch import Batch
from augpipe.cache import CacheStatistics
from augpipe.cache.row_indexes import DEFAULT_BYTES
from augpipe.decoding import MAX_PIXELS
from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.compiled.declared import Overload
from augpipe.native.compile_ahead import start_compiling
from augpipe.native.workers import num_usable_cores
from augpipe.pipeline.batch_makers import BatchMakers
from augpipe.pipeline.choose import BackendName, CacheName, choose
from augpipe.pipeline.epochs import Epochs
from augpipe.pipeline.item_line import ItemLine
from augpipe.pipeline.items import Settings
from augpipe.pipeline.mosaic_stage import check_mosaics
from augpipe.pipeline.objects_of_crops import check_kept_objects
from augpipe.pipeline.passes import Pass, Progress
from augpipe.pipeline.skipped import hand_out
from augpipe.pipeline.target_choice import TargetsName, check_pasting, chosen_targets
from augpipe.planning.output_format import DTypeLike, Framework, Layout, OutputFormat, dtype_name, import_torch
from augpipe.recipes.names import as_schedule
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import refuse_functions
from augpipe.recipes.schedule import Schedule
from augpipe.sampling import Sampler
from augpipe.sampling.epoch_order import Place
from augpipe.sampling.own_rank import check_still, empty_batch_of, ranks_of
from augpipe.sampling.samplers import bind, check_alternation
from augpipe.sampling.state import STATE_VERSION, check_state, recipe_text
from augpipe.sources.identity import identity_of
from augpipe.sources.log_line import tell_source
from augpipe.sources.protocol import Source, check_unchanged, is_source, stack_of
from augpipe.validation.arguments import (
    as_count,
    as_epoch,
    as_max_pixels,
    as_num_threads,
    as_seed,
    as_whole,
    check_choice,
    unknown_argument,
)
from augpipe.validation.log_once import log_once
from augpipe.validation.plural import count
from augpipe.validation.torch_worker import refuse_torch_worker

if TYPE_CHECKING:
    from torch import Tensor

    from augpipe.explain import Explanation
    from augpipe.planning.targets.options import TargetOptions

Torch = Literal["torch"]
Numpy = Literal["numpy"]
FrameworkName = TypeVar("FrameworkName", bound=Framework, default=Torch)
"""What decides the type of batches: `Loader` by itself means one that gives torch tensors."""

_FIXED = ("source", "batch_size", "shuffle", "sampler", "drop_last", "rank", "world_size", "num_threads", "schedule")
"""What epochs were cut and threads were counted by once a loader is made: set later, it would have no effect."""


class Loader(Generic[FrameworkName]):
    """Iterate over a source's images as augmented batches; each pass over it is one epoch, and there is one at a time.

    A pass is the epoch after the one before it, or, where that was left early, the same one again, which is logged
    once; after `set_epoch` it is that epoch from its start. A new pass ends one that still runs, which raises a
    RuntimeError if it is asked for more.

    Every batch is a pure function of source, recipe, seed, epoch and its place in the epoch: threads, prefetching and
    resuming do not change a bit, and batch size and world size only change how the same samples are cut into batches.

    Args:
        source: a `Source`, or what `augpipe.datasets.open.open_source` opens: a folder of class folders, a flat folder,
            a CSV or TSV list, an image, shards, tar, Parquet, IDX or CIFAR files, a pattern of such names; a list of
            (path, label); torchvision's ImageFolder; any map-style data set of (photograph, label).
        recipe: what is done to each image: a `Recipe`, a name such as "deep_image", the path of a TOML file; or a
            `Schedule` or {first epoch: recipe}, one recipe after another.
        batch_size: images in a batch of this rank.
        seed: 0..2^64 - 1.
        shuffle: a new order each epoch; False keeps the source's. "sticky" is a new order each epoch in which a rank
            always gets the same samples, those with id ≡ rank (mod world_size), so that its cache serves it for ever.
        sampler: which samples an epoch holds, where that is not each once: `augpipe.sampling` has `Weighted`,
            `ClassBalanced`, `Repeated` and `Mixture`. It sets the order too, so shuffle stays True. What is done to a
            sample is then drawn by its position in the epoch, so that one that comes twice is augmented again.
        drop_last: leave out the epoch's last global batch if it is cut short. Otherwise ranks can get batches that
            differ in length by one there, even an empty one, but always the same number of them.
        rank, world_size: this process's place among those that share the data. Both None: that in the initialised
            process group, else by torchrun's RANK and WORLD_SIZE, which a line in the log says, else the only one.
            `rank=0, world_size=1` gives all samples under torchrun, too.
        num_threads: threads that read, decode and augment; None for one a usable core, of which a container's quota
            counts. With DALI on CUDA so many are DALI's, which decode, and as many read next to them, where None is 4:
            the others start where images come that DALI does not take. More help where storage is slow to answer.
        prefetch: batches made ahead of the one in use.
        backend: "native" decodes on the CPU in threads; "dali" has NVIDIA DALI decode, on a CUDA device by nvJPEG;
            "auto" chooses "dali" for a CUDA device where DALI is installed, else "native".
        device: "cpu", "cuda", "cuda:1" or a torch.device: where batches are made. On CUDA they are ready on the stream
            that is current when the loader hands them out. "cuda" is the current device; where the process does not use
            CUDA yet, the one that torchrun's LOCAL_RANK numbers.
        cache: "off"; "device" keeps decoded images where batches are made, "host" in host memory, so that from the
            second epoch on they are neither read nor decoded; label maps, too. It changes no pixel. Files that have
            another size or time of writing than when they were read are refused as a pass begins.
        cache_bytes: what the cache may take; None for most of what is free when the first pass begins.
        pin_memory: batches on the CPU lie in page-locked memory, from which `.to("cuda", non_blocking=True)` is fast.
        framework: "torch" tensors or "numpy" arrays (CPU only).
        dtype: "float32", "float16", "bfloat16" (torch only) or "uint8" (recipes without Normalize); also "fp16" and the
            like, and types of torch and numpy. Without Normalize the numbers are levels, 0..255, in any of them; a line
            in the log says so once.
        layout: "NCHW", "NHWC" or "channels_last" (torch only).
        on_error: "raise", or "skip" to put the next usable image of the source in the place of one that is not: of the
            same part of a source made of several, and of the same class under `sampling.ClassBalanced`.
        max_pixels: larger images are refused before they are decoded.
        classes: for a path: the classes and their order, instead of those that are found. Give a validation set the
            training set's, and its labels agree with them.
        split: for a folder that holds several, or a list with a column `split`: "train", "val", ..., or the name of a
            folder in it.
        holdout: a split that is drawn: split="val" is this share of all samples, drawn by their ids, split="train" the
            others, so that the two never overlap. It takes a source, too.
        split_seed: another one, 0..2^64 - 1, draws other samples.
        columns: further columns of a path, by their names, which go along as `Batch.columns`: of a list with a header,
            such as "caption", or "path" of a list or a folder.
        targets: how batches hold a source's objects and label maps, as `images, targets = batch`: "list", "padded" or
            "flat" (see `TargetOptions.form`), `TargetOptions(...)` to say more, or "off" for `images, labels = batch`.
            None is "list" where the source has targets.
        row_index_bytes: what may be kept of where rows begin in JPEGs, so that regions of them decode faster from the
            second epoch on; 0 keeps nothing. It changes no pixel.

    Raises:
        ValueError: an argument is out of range, with the range and the remedy.
        TypeError: there is no such argument; of torch's DataLoader's, says what to write instead.
        ImportError: framework="torch" without torch, or backend="dali" without DALI.
        DeviceError: the machine cannot run the device that was asked for; the message says what it lacks.
    """

    def __init__(
        self,
        source: Any,
        recipe: Recipe | Schedule | Mapping[int, Recipe] | str | Path,
        *unnamed: Never,
        batch_size: int,
        seed: int = 0,
        shuffle: bool | Literal["sticky"] = True,
        sampler: Sampler | None = None,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        num_threads: int | None = None,
        prefetch: int = 2,
        backend: BackendName = "auto",
        device: Any = "cpu",
        cache: CacheName = "off",
        cache_bytes: int | None = None,
        pin_memory: bool = False,
        framework: FrameworkName = "torch",  # type: ignore[assignment]  # the default of both
        dtype: DTypeLike = "float32",
        layout: Layout = "NCHW",
        on_error: Literal["raise", "skip"] = "raise",
        max_pixels: int = MAX_PIXELS,
        row_index_bytes: int = DEFAULT_BYTES,
        classes: Sequence[str] | None = None,
        split: str | None = None,
        holdout: float | None = None,
        split_seed: int = 0,
        columns: Sequence[str] | None = None,
        targets: "TargetOptions | TargetsName | None" = None,
        **others: Never,
    ) -> None:
        if others:
            known = [known for known in inspect.signature(Loader).parameters if known not in ("others", "unnamed")]
            raise TypeError(unknown_argument("Loader", next(iter(others)), known))
        if unnamed:
            raise TypeError(
                f"Loader takes a source and a recipe without names, and {', '.join(map(repr, unnamed))} as well. Name "
                f"the rest, as batch_size={batch_size!r}."
            )
        check_choice("on_error", on_error, ("raise", "skip"))
        check_choice("shuffle", shuffle, (True, False, "sticky"))
        self.batch_size = as_count("batch_size", batch_size)
        self._ranks = ranks_of(rank, world_size)
        self.rank, self.world_size = self._ranks.rank, self._ranks.world_size
        if self._ranks.told is not None:
            log_once(*self._ranks.told)
        self.seed = as_seed(seed)
        prefetch = as_count("prefetch", prefetch)
        threads = as_num_threads(num_threads, num_usable_cores())
        max_pixels = as_max_pixels(max_pixels)
        index_bytes = as_whole("row_index_bytes", row_index_bytes)
        if index_bytes < 0:
            raise ValueError(f"row_index_bytes={row_index_bytes} must be at least 0, which keeps no row index.")
        self.schedule = as_schedule(recipe)
        self._form = OutputFormat(
            dtype=dtype_name(dtype), layout=layout, framework=framework, channels=self.schedule.at(0).channels
        )
        for each in self.schedule.recipes:
            self._form.check(each)
        if self.rank == 0 and not self.schedule.at(0).normalises and self._form.dtype != "uint8":
            log_once(
                logging.WARNING,
                f"the recipe has no Normalize: {self._form.dtype} images hold levels in 0..255, where most networks "
                'expect about -2..2. Add ops.Normalize(), or choose dtype="uint8" where levels are wanted',
            )
        self._choice = choose(
            backend=backend,
            device=device,
            cache=cache,
            cache_bytes=cache_bytes,
            pin_memory=pin_memory,
            framework=framework,
            makes_mosaics=any(each.mosaic is not None for each in self.schedule.recipes),
        )
        first_threads = self._choice.first_threads(None if num_threads is None else threads)
        options = {
            "classes": classes,
            "split": split,
            "holdout": holdout,
            "split_seed": split_seed or None,
            "columns": columns,
        }
        given = {name: value for name, value in options.items() if value is not None}
        self.source: Source = as_source(source, given)
        tell_source(self.source)
        self._targets = chosen_targets(targets, self.source, self.schedule.recipes)
        check_kept_objects(self.source, self.schedule.recipes)
        is_native = self._choice.backend == "native"
        check_mosaics(self.schedule.recipes, is_native=is_native, has_targets=self._targets is not None)
        is_on_host = is_native and not self._choice.is_on_cuda
        check_pasting(self.schedule.recipes, self.source, self._targets, is_native=is_on_host)
        for one in self.schedule.recipes if self._choice.is_on_cuda else ():
            refuse_functions(one, f'device="{device}"')
        self.drop_last = drop_last
        self.shuffle = shuffle
        self._skips_bad = on_error == "skip"
        if len(self.source) < 1:
            raise ValueError("the source is empty: it holds no photographs. Check where it points to.")
        sampling = None if sampler is None else bind(sampler, self.source, shuffle)
        if sampling is not None:
            check_alternation(self.schedule.recipes)
        self._epochs = Epochs(
            num_samples=len(self.source) if sampling is None else sampling.num_positions,
            batch_size=self.batch_size,
            rank=self.rank,
            world_size=self.world_size,
            drop_last=drop_last,
            shuffle=shuffle,
            sampling=sampling,
        )
        num_left = self._epochs.num_samples % (self.batch_size * self.world_size)
        if not drop_last and 0 < num_left <= self.rank:
            log_once(logging.WARNING, empty_batch_of(self._ranks, num_left))
        are_alike = not shuffle and len(self.schedule.recipes) == self.schedule.recipes[0].num_variants == 1
        self._progress = Progress(self._epochs, tells=self.rank == 0, are_alike=are_alike)
        self._identity: dict[str, Any] | None = None
        self._recipe_text = recipe_text(self.schedule)
        self._running: weakref.ref[Pass] | None = None
        settings = Settings(
            source=self.source,
            recipe=self.schedule.at(0),
            seed=self.seed,
            form=self._form,
            num_threads=threads,
            first_threads=first_threads,
            prefetch=prefetch,
            skips_bad=self._skips_bad,
            max_pixels=max_pixels,
            row_index_bytes=index_bytes,
            recipes_differ=len(self.schedule.stages) > 1,
            groups_of=None if sampling is None else sampling.groups_of,
            pins_memory=self._choice.pins_memory,
            targets=self._targets,
        )
        self._makers = BatchMakers(self._choice, settings, self.batch_size)
        # none where commands would need more than the path, or could not write next to it: a split, a pattern, a URL
        is_path = isinstance(source, str | os.PathLike) and split is None and os.path.exists(source)
        self._path = os.fspath(source) if is_path else None
        self._compiling = [] if self._choice.is_on_cuda else self._start_compiling()
        if framework == "torch":
            with nullcontext() if "torch" in sys.modules else background.runtime_loading():
                import_torch()  # it takes a second or two, in which kernels compile
        self.skipped: dict[int, str] = {}
        """Images replaced so far: sample id -> "name: reason"."""

    def __len__(self) -> int:
        """Batches in a whole epoch, the same for every rank and epoch."""
        return self._epochs.num_batches()

    def __getitem__(self, index: object) -> Never:
        """Say what to write instead of a DataLoader around this loader, or of `loader[0]`: it has no single items."""
        raise TypeError(
            "a Loader gives whole batches and has no items: write `for images, labels in loader`, with no DataLoader "
            "around it. Its threads (num_threads=...) do what a DataLoader's workers do."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Say that `loader.batch_size = 32` makes no other batches, as torch's DataLoader does."""
        if name in _FIXED and "_progress" in self.__dict__:
            raise AttributeError(
                f"{name} of a Loader is set when it is made, and setting it later would have no effect. Make another "
                "one; load_state_dict(loader.state_dict()) lets it go on where this one stands."
            )
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """A copy stands where the loader does, and begins a pass of its own."""
        own = {"_progress": copy(self._progress), "skipped": dict(self.skipped), "_makers": copy(self._makers)}
        return self.__dict__ | own | {"_running": None, "_compiling": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compiling = [] if self._choice.is_on_cuda else self._start_compiling()

    def __repr__(self) -> str:
        recipe, form = self.recipe, self._form
        ops = "; ".join(", ".join(op.key for op in view.ops) or "nothing" for view in recipe.views or recipe.all_views)
        sizes = dict.fromkeys(view.out_size for view in recipe.all_views)
        size = " and ".join("each its own size" if one is None else f"{one[0]}x{one[1]}" for one in sizes)
        device = self._choice.device or "cpu"
        return "\n".join(
            [
                f"Loader: {count(len(self), 'batch')} of {self.batch_size} an epoch",
                f"  source  {self.source!r}",
                f"  recipe  {recipe.name or 'unnamed'}: {ops}",
                f"  images  {size}, {form.dtype} {form.layout}, {form.framework} on {device}",
                *([f"  targets {self._targets.form}"] if self._targets is not None else []),
                f"  now     epoch {self.epoch} of seed {self.seed}, rank {self.rank} of {self.world_size}",
            ]
        )

    @property
    def epoch(self) -> int:
        """The epoch that is running, or that the next pass will be."""
        return self._progress.epoch

    @property
    def recipe(self) -> Recipe:
        """The recipe of that epoch."""
        return self.schedule.at(self.epoch)

    @property
    def cache_statistics(self) -> CacheStatistics | None:
        """What the cache holds and how often it helped; None with cache="off" and before the first pass."""
        return self._makers.cache.statistics() if self._makers.cache is not None else None

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass epoch number `epoch`, from its start, whatever was given of it before.

        Where a state of that very epoch was loaded, it is what the state leaves of it, until a pass has given the
        epoch's last batch. That may be nothing: a run resumed after the last batch of an epoch passes over it without a
        batch. A pass that has given a batch goes on with its own epoch.
        """
        self._progress.set_epoch(as_epoch(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands: enough to go on from the next batch, with any batch size and world size.

        With shuffle="sticky" the world size may change between epochs alone. It says, too, of which seed, recipe and
        source it is, so that `load_state_dict` can refuse others: the first call goes through all names and labels of
        the source, which takes 2 to 3 seconds for a million.
        """
        if self._identity is None:
            self._identity = identity_of(self.source).to_json()
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "seed": self.seed,
            "epoch": self._progress.epoch,
            "samples_consumed": self._progress.consumed,
            "num_samples": self._epochs.num_samples,
            "shuffle": self.shuffle,
            "source": self._identity,
            "recipe": self._recipe_text,
            "pixels": max(one.pixels for one in self.schedule.recipes),
        }
        if self._epochs.sampling is not None:
            state["sampler"] = self._epochs.sampling.fingerprint()
        return state | ({"world_size": self.world_size} if self.shuffle == "sticky" else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken: the next pass yields the rest of that epoch.

        So do those after it, until one has given the epoch's last batch, so that a look at a batch loses nothing.

        Raises:
            ValueError: the state is of another seed, recipe, source, order, sampler or version, and says what differs;
                or it does not fit.
        """
        epoch, consumed = check_state(state, self.state_dict(), self.world_size)
        self._end_running("load_state_dict")
        self._progress.load(epoch, consumed)

    @overload
    def __iter__(self: "Loader[Torch]") -> "Iterator[Batch[Tensor]]": ...
    @overload
    def __iter__(self: "Loader[Numpy]") -> Iterator[Batch[npt.NDArray[Any]]]: ...
    @overload
    def __iter__(self) -> Iterator[Batch]: ...
    def __iter__(self) -> Iterator[Batch]:
        refuse_torch_worker()
        self._end_running("a new one, iter(loader)")
        return self._run(self._run_epoch())

    @overload
    def batches(self: "Loader[Torch]", places: Iterable[Place]) -> "Iterator[Batch[Tensor]]": ...
    @overload
    def batches(self: "Loader[Numpy]", places: Iterable[Place]) -> Iterator[Batch[npt.NDArray[Any]]]: ...
    @overload
    def batches(self, places: Iterable[Place]) -> Iterator[Batch]: ...
    def batches(self, places: Iterable[Place]) -> Iterator[Batch]:
        """The batches at places of any epochs, ranks and world sizes, in the order of `places`, made ahead as always.

        Each is to the last bit what a loader of that rank and world size gives there, whatever this one's are, and
        empty where the global batch ends before the rank. Places are drawn by the thread that asks for a batch: when
        the nth is given, n + `prefetch` are drawn, or all. So a queue of them must hold `prefetch` + 1 before the first
        batch comes. Epoch and state of the loader stay as they are. A running pass is ended, as by a new `iter`.

        Raises:
            TypeError: `places` cannot be iterated.
            ValueError: this process is a worker of torch's DataLoader.
            ValueError: as the batches come, of a place without one: it begins behind the epoch, is cut short with
                drop_last, or with shuffle="sticky" does not begin at a multiple of its world size.
        """
        refuse_torch_worker()
        if not isinstance(places, Iterable):
            raise TypeError(
                f"places={places!r} is not iterable. Give several: loader.batches([Place(epoch=0, first=0)])."
            )
        requests = self._epochs.requests_at(iter(places), self.schedule, self.seed)
        self._end_running("batches(places)")
        made = self._makers.make_ahead(requests, self.schedule, self.seed)
        return self._run(self._hand_out(made, "places"))

    def sample(self, sample_id: int, epoch: int | None = None, position: int | None = None) -> Batch:
        """One sample as an epoch gives it, in a batch of one: a surprising image again, with all that was drawn.

        The pixels are those that it has in its batch, whatever the batch size, rank and world size. Where the recipe
        mixes, it is mixed with the same partner. No pass is moved on or ended.

        Args:
            sample_id: as in `Batch.sample_ids` and on sheets.
            epoch: by default the loader's.
            position: as in `Batch.positions`, of a loader with a sampler, which may draw a sample twice; by default
                where the epoch holds it first.

        Raises:
            ValueError: there is no such sample, or the epoch's sampler did not draw it, or not there.
            SampleError: the image cannot be used, and on_error is "raise".
        """
        refuse_torch_worker()
        which = as_whole("sample_id", sample_id)
        if not 0 <= which < len(self.source):
            raise ValueError(
                f"sample_id={which} is out of range: the source holds {count(len(self.source), 'photograph')}, with "
                f"the ids 0..{len(self.source) - 1}."
            )
        number = self.epoch if epoch is None else as_epoch(epoch)
        recipe = self.schedule.at(number)
        asked = None if position is None else as_whole("position", position)
        request = self._epochs.request_of(recipe, self.seed, number, which, position=asked)
        background.wait(self._compiling)
        made = self._makers.maker_of_one(recipe, self.seed).run(iter([request]))
        check = partial(check_unchanged, self.source)
        (batch,) = hand_out(made, f"sample {which}", self.skipped, check=check, skips_bad=self._skips_bad)
        if asked is not None and batch.sample_ids[0] != which:
            raise ValueError(f"position {asked} of epoch {number} holds sample {batch.sample_ids[0]}, and not {which}.")
        return batch

    def replay(self, line: str) -> Batch:
        """The image that a line names, in a batch of one, as `sample` gives it.

        Args:
            line: "seed 0, epoch 3, sample 17", as `batch.line(position)` says it, or any text with such words.
                Without a seed it is this loader's, and without an epoch its epoch. Of a sampler, without a position
                it is the first one at which the epoch holds the sample. A sticky order that mixes needs "rank 1 of 4".

        Raises:
            ValueError: the line does not name a sample, or it has another seed or other ranks than the loader, or is
                of a part of a source that the loader does not read.
            SampleError: the image cannot be used, and on_error is "raise".
        """
        named = ItemLine.read(line)
        if named.sample is None:
            raise ValueError(f"{line!r} counts in steps, which only a run does: augpipe replay RUN LINE knows them.")
        if named.seed not in (None, self.seed):
            raise ValueError(f"{line!r} is of seed {named.seed}, and this loader's is {self.seed}. Make one with that.")
        named.check_part(self.source)
        mixes = self.schedule.at(self.epoch if named.epoch is None else named.epoch).mixes_samples
        if self.shuffle == "sticky" and mixes and named.of != self.world_size:
            raise ValueError(
                f"{line!r}: which samples a sticky order mixes depends on the ranks. Make a loader of as many as the "
                f"run has, and add them to the line: rank 0 of {self.world_size} are this one's."
            )
        return self.sample(named.sample, named.epoch, named.position)

    def explain(
        self, *, seconds: float = 12.0, progress: Callable[[float, float], None] = lambda done, total: None
    ) -> "Explanation":
        """Say which part of loading is slow, what would be gained if it took no time, and what to do about it.

        It tells of the pass that runs or ran last, with what used its batches: train for some steps, and ask. Before
        any pass it tells of the loader by itself. What it advises was tried for a moment, on this machine: batches are
        made for that, which nobody gets. On a CUDA device it sees what its threads do, and not the device.

        Args:
            seconds: about how long to try things; less is less exact.
            progress: called with the parts that are done, and about how many there are.

        Raises:
            ValueError: `seconds` is not above 0, this rank gets no images, or the recipe has a mosaic.
            SampleError: an image cannot be used, and on_error is "raise".
        """
        refuse_torch_worker()
        if not seconds > 0.0:
            raise ValueError(f"seconds={seconds} must be above 0.")
        if self.recipe.mosaic is not None:
            raise ValueError(
                f"{self.recipe.called} has a mosaic, of whose images each is timed as one here. Explain a loader "
                "of the recipe without it."
            )
        from augpipe.explain.explain import explain
        from augpipe.explain.trials import Trials

        background.wait(self._compiling)
        makers = self._makers
        trials = Trials(
            settings=makers.settings(self.recipe, self.seed),
            choice=self._choice,
            epochs=self._epochs,
            cache=makers.cache,
            epoch=self.epoch,
            consumed=self._progress.consumed,
            seconds=seconds / 10,
        )
        uncounted = nullcontext() if makers.cache is None else makers.cache.uncounted()
        with makers.clock.stopped(), uncounted:
            return explain(trials, makers.clock.times, self._path, progress)

    def _start_compiling(self) -> list[Overload]:
        decodes = self._choice.backend == "native" and stack_of(self.source) is None
        return start_compiling(self._form, self.schedule.recipes, decodes=decodes)

    def _run(self, batches: Generator[Batch, None, None]) -> Pass:
        running = Pass(batches, self._makers.clock)
        self._running = weakref.ref(running)
        return running

    def _run_epoch(self) -> Generator[Batch, None, None]:
        check_still(self._ranks)
        background.wait(self._compiling)
        number, epoch, consumed = self._progress.begin()
        recipe = self.schedule.at(epoch)
        made = self._makers.maker(recipe, self.seed).run(self._epochs.requests(recipe, self.seed, epoch, consumed))
        batches = self._hand_out(made, f"epoch {epoch}")
        try:
            for batch in batches:
                consumed = min(consumed + self._epochs.per_batch, self._epochs.num_samples)
                self._progress.gave(number, consumed)
                yield batch
        finally:
            batches.close()
        self._progress.ended(number)

    def _hand_out(
        self, made: Generator[tuple[Batch, dict[int, str]], None, None], what: str
    ) -> Generator[Batch, None, None]:
        return hand_out(made, what, self.skipped, check=self._makers.check_files, skips_bad=self._skips_bad)

    def _end_running(self, by: str) -> None:
        running = self._running() if self._running is not None else None
        if running is not None:
            running.end_by(by)
        self._running = None


def as_source(source: Any, options: dict[str, Any]) -> Source:
    """A source as it is, or what a path and options name."""
    if is_source(source) and not options:
        return source
    # the convenience of a path is the one thing that the loader takes from the room above it
    from augpipe.datasets.open import open_source

    return open_source(source, **options)
