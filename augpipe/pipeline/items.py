"""What goes through the stages: a batch in the making, and its items."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from augpipe.batch_targets import ViewTargets
from augpipe.cache.file_stamps import FileStamps
from augpipe.cache.pixels import SeenSizes
from augpipe.cache.row_indexes import RowIndexes
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.mixed_labels import MixedLabels
from augpipe.native.workers import Latch
from augpipe.pipeline.blocks import Request
from augpipe.pipeline.load_times import PassClock, Work
from augpipe.pipeline.stored_image import StoredImage
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import Plan
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Ints, Labels, Source
from augpipe.sources.targets import LabelMap, Targets

if TYPE_CHECKING:
    from augpipe.pipeline.pasting_stage import PastedObjects
    from augpipe.planning.targets.options import TargetOptions

Rows = npt.NDArray[np.void]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the stages need to know; see `Loader`."""

    source: Source
    recipe: Recipe
    seed: int
    form: OutputFormat
    num_threads: int
    """Threads of ours, and of DALI's where it decodes."""
    first_threads: int
    """Threads of ours that a pass begins with: `num_threads`, or fewer with DALI on a GPU, where the others start
    once DALI leaves them images to decode."""
    prefetch: int
    skips_bad: bool
    max_pixels: int
    row_index_bytes: int = 0
    """What row indexes may take in memory."""
    groups_of: Callable[[Ints], Ints] | None = None
    """(B,) sample ids -> (B,) numbers: only samples of the same number replace each other. None: all do."""
    recipes_differ: bool = False
    """Whether other epochs have other recipes, so that one may have been content with a size that this one is not."""
    seen: SeenSizes | None = None
    """What earlier epochs have found of the source's images; None: it is kept with the stages."""
    row_indexes: RowIndexes | None = None
    """Those of the source's JPEGs, as above."""
    stamps: FileStamps | None = None
    """What the files were like that a cache's images were read from; None without a cache."""
    pins_memory: bool = False
    """Whether batches on the CPU lie in page-locked memory."""
    targets: "TargetOptions | None" = None
    """How targets are mapped; None where batches have none."""
    clock: PassClock = field(default_factory=PassClock)
    """Where it is counted how long the batches of a pass took."""


@dataclass(kw_only=True, slots=True, eq=False)
class Item:
    """One sample on its way through a batch; one thread at a time has it."""

    position: int
    """Its place in the batch, guests behind all others."""
    wanted: int
    """The sample id that was asked for."""
    sample_id: int
    """The id of the sample that is tried: the wanted one, or what is put in its place."""
    num_replaced: int = 0
    """How many samples, from the wanted one on, cannot be used."""
    image: StoredImage | None = None
    """What the sample is, once it was opened or its size looked up."""
    factor: int = 1
    """The DCT factor that the image is decoded at."""
    region: Sequence[int] | None = None
    """Left, top, right, bottom of what the views look at, at 1/`factor`; None where that saves no decoding."""
    pixels: LocatedPixels | None = None
    """Where they lie: as the cache holds them, DALI gave them or our own decoder did."""
    is_cached: bool = False
    """Whether the cache held them."""
    error: BaseException | None = None
    """Why it cannot be used: a `SampleError` where that lies with the sample."""

    @property
    def opened(self) -> StoredImage:
        """The image, where every item has one."""
        assert self.image is not None
        return self.image


@dataclass(kw_only=True, eq=False)
class BatchInProgress:
    """A batch in the making."""

    request: Request
    items: list[Item]
    num_stages_begun: int = 0
    skipped: dict[int, str] = field(default_factory=dict)
    """Sample id -> why another one stands in its place."""
    plan: Plan | None = None
    tables: tuple[Rows, ...] = ()
    """For each view, (B,) `gpu_ops.image.rows.KERNEL_ROW`."""
    whole_tables: tuple[Rows, ...] = ()
    """The same without the borders of guests that are decoded in part; the very `tables` where none is."""
    sizes: tuple[tuple[int, int], ...] = ()
    """For each view, height and width of its images."""
    mix_jobs: tuple[Rows, ...] = ()
    """For each view, (n,) `gpu_ops.image.mix.MIX_JOB`, once every item is decoded; none where the recipe mixes not."""
    pasted: "tuple[dict[int, PastedObjects], ...]" = ()
    """For each view, place of an image -> the objects of its partner that are pasted on it; none where the recipe
    pastes no objects."""
    labels: Labels | MixedLabels | None = None
    """(B,) or (B, k), or mixed, once every item is decoded."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Column -> (B,) values, of the batch's own items."""
    windows: list[list[tuple[int, int, int, int] | None]] = field(default_factory=list)
    """For each view, (B,) left, top, right and bottom of what was rendered of an output, which lies at the beginning of
    its memory, as an image of its own; None: all of it. Empty where the recipe makes no mosaics."""
    hidden: npt.NDArray[np.bool_] | None = None
    """(B,) which guests nothing is seen of, so that they are not read; None: all are."""
    label_maps: Sequence[LabelMap] = ()
    """For each view (B, H, W, ..), filled item by item; none where the source has none, or none was read yet, or where
    the output looks them up."""
    objects: Targets | None = None
    """Those of its items, as the source knows them, while the items are those that were looked up."""
    targets: tuple[ViewTargets, ...] = ()
    """Those of each view, once every item is decoded; none where batches have none."""
    owners: list[Any] = field(default_factory=list)
    """Whatever else must live until the device has passed the batch."""
    target: Any = None
    """Where the output puts the batch; its own business."""
    error: BaseException | None = None
    """What ends the run."""
    num_pieces_left: int = 0
    work_s: defaultdict[Work, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that threads have spent on it, written with the lock held."""
    read_bytes: int = 0
    """Encoded bytes that were read for it, as above."""
    submitted_s: float = 0.0
    """When DALI was asked to decode it, by `time.perf_counter`."""
    dali_s: float = 0.0
    """While DALI was busy with it."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: Latch = field(default_factory=Latch)

    @property
    def num_own(self) -> int:
        """How many of its items are handed out; those behind them are guests, see `pipeline.mixing`."""
        return len(self.items) if self.request.num_own is None else self.request.num_own

    def note_read(self, num_bytes: int, late_s: float = 0.0) -> None:
        """Count what was read, and how long that took a stage that does something else as well."""
        with self.lock:
            self.read_bytes += num_bytes
            self.work_s["reading"] += late_s
            self.work_s["filling"] -= late_s

    @classmethod
    def of(cls, request: Request) -> "BatchInProgress":
        """A batch at the beginning of its way."""
        items = [
            Item(position=i, wanted=sample_id, sample_id=sample_id)
            for i, sample_id in enumerate(request.sample_ids.tolist())
        ]
        return cls(request=request, items=items)


class LabelMapLookUp(Protocol):
    """Looks up label maps of classes by nearest, together with a batch's images. Safe from several threads."""

    def has(self, batch: BatchInProgress, item: Item) -> bool:
        """Take an item's label map from a cache, and say whether it was there."""

    def take(self, batch: BatchInProgress, item: Item, labels: LabelMap) -> None:
        """Take (height, width) whole numbers, an item's label map, in the place of what it may have had before."""
