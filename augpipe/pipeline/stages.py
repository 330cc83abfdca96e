"""The stages of a batch, from sample ids to images in memory: chosen when the loader is built, in `stages_of`.

Each takes a batch and those of its items that concern it. An item that cannot be used carries its error to the next
"replace".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from augpipe.cache import PixelCache
from augpipe.pipeline.dali_stage import DaliStage
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.items import BatchInProgress, Item, LabelMapLookUp, Settings
from augpipe.pipeline.load_times import Work as KindOfWork
from augpipe.pipeline.mixing_stage import is_mixed_first, label, narrow_guests, plan_mixing
from augpipe.pipeline.mosaic_stage import is_mosaic, name_partners, settle
from augpipe.pipeline.planner import Planner
from augpipe.pipeline.samples import Samples, may_read_late
from augpipe.sources.protocol import Labels

MIN_PIECE_PX = 2**15
"""Output pixels that are worth another thread's while, where nothing is decoded: some 0.3 ms of the kernel."""

Work = Callable[[BatchInProgress, Sequence[Item]], None]


class Output(Protocol):
    """Where a batch's images come into being."""

    decodes: bool
    """Whether images are read and decoded; else their pixels lie ready, and none can fail."""

    @property
    def label_maps(self) -> LabelMapLookUp | None:
        """What looks up label maps with the images; None: they are mapped on the host, and then go through `labels`."""

    def begin(self, batch: BatchInProgress) -> None:
        """Give a planned batch its memory."""

    def fill(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Decode items; on the CPU, render them too. An item that is damaged carries an error then."""

    def put_together(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Put together the images of all views that are mosaics of the items and their guests; on a device, `finish`
        does it."""

    def deliver(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Called once, when all items are decoded."""

    def mix(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Carry out the jobs whose first images are those of the items; on a device, `finish` does it."""

    def finish(self, batch: BatchInProgress) -> list[Any]:
        """The images of each view, without guests; called by the thread that asked for the batch."""

    def labels(self, labels: Labels) -> Any:
        """(B,) or (B, k) labels, or targets, next to the images."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of a batch's way."""

    work: Work
    counts_as: KindOfWork
    items: Callable[[BatchInProgress], list[Item]] | None = None
    """Which items it concerns; it is left out where there are none. None: the batch, however many it has."""
    is_in_pieces: bool = False
    """Whether the items are shared out among the threads."""
    min_piece_px: int = 0
    """Output pixels that a piece has at least: fewer are not worth another thread's while."""
    goes_on_elsewhere: bool = False
    """Whether somebody else calls when the batch may go on."""


def stages_of(
    settings: Settings, output: Output, cache: PixelCache | None, samples: Samples, dali: DaliStage | None
) -> list[Stage]:
    """The way of every batch of a loader, from sample ids to images in the output's memory."""
    planner = Planner(
        settings,
        cache,
        output.begin,
        decodes=output.decodes,
        wants_regions=dali is not None,
        narrow=_narrowing(settings),
    )
    fill = partial(output.fill, decoder=Decoder(settings, samples, planner, cache))
    find_targets, map_targets = _target_stages(settings, output, cache)
    last = [
        Stage(work=partial(label, settings.source), counts_as="copying"),
        *map_targets,
        Stage(work=output.deliver, counts_as="copying"),
    ]
    if settings.recipe.mixing:
        mix = Stage(
            work=output.mix, counts_as="mixing", items=is_mixed_first, is_in_pieces=True, min_piece_px=MIN_PIECE_PX
        )
        last = [Stage(work=plan_mixing, counts_as="mixing"), *_pasting_stages(settings), mix, *last]
    if settings.recipe.mosaic is not None:
        compose = Stage(work=output.put_together, counts_as="mixing", items=is_mosaic, is_in_pieces=True)
        last = [Stage(work=name_partners, counts_as="mixing"), compose, *last]
    if not output.decodes:  # nor is anything read, so no item can fail
        return [
            Stage(work=samples.look_up_sizes, counts_as="planning"),
            Stage(work=planner.plan, counts_as="planning"),
            Stage(
                work=fill,
                counts_as="filling",
                items=_not_on_device,
                is_in_pieces=True,
                min_piece_px=MIN_PIECE_PX,
            ),
            *last,
        ]
    again: list[Work] = [samples.open, planner.plan_again, fill, *(stage.work for stage in find_targets)]
    replace_failed = partial(samples.replace, again=again)
    if settings.recipe.mosaic is not None:
        last = [
            Stage(work=partial(settle, planner=planner, again=again[1:], replace=replace_failed), counts_as="filling"),
            *last,
        ]
    knows_sizes = cache is not None or (dali is None and may_read_late(settings))
    return [
        *([Stage(work=samples.look_up, counts_as="planning")] if knows_sizes else []),
        Stage(work=samples.open, counts_as="reading", items=_unopened, is_in_pieces=True),
        Stage(work=partial(samples.replace, again=[samples.open]), counts_as="reading", items=_failed),
        Stage(work=planner.plan, counts_as="planning"),
        *([_by_dali(dali)] if dali is not None else []),
        Stage(work=fill, counts_as="filling", items=_not_on_device, is_in_pieces=True),
        *find_targets,
        Stage(work=replace_failed, counts_as="filling", items=_failed),
        *last,
    ]


def _narrowing(settings: Settings) -> list[Callable[[BatchInProgress], None]]:
    """What narrows the regions of a planned batch's images."""
    recipe = settings.recipe
    if not recipe.mixing:
        return []
    # where one image of a mosaic is replaced, other objects of the others are pasted than were decoded
    may_change = recipe.mosaic is not None and settings.skips_bad
    if not recipe.pastes_objects or settings.targets is None or may_change:
        return [narrow_guests]
    from augpipe.pipeline.pasting_stage import expect_pastes

    return [partial(expect_pastes, settings), narrow_guests]


def _by_dali(dali: DaliStage) -> Stage:
    return Stage(work=dali.submit, counts_as="copying", items=without_pixels, goes_on_elsewhere=True)


def _target_stages(settings: Settings, output: Output, cache: PixelCache | None) -> tuple[list[Stage], list[Stage]]:
    """What finds the targets of items, which may be damaged, and what maps those of a batch; none where it has none."""
    if settings.targets is None:
        return [], []
    from augpipe.pipeline.targets_stage import TargetStages

    held = cache.label_maps if cache is not None and cache.is_on_host else None
    targets = TargetStages(settings, output.label_maps, held)
    finds = [Stage(work=targets.look_up, counts_as="targets")]
    if targets.has_label_maps:
        reads = Stage(work=targets.read_label_maps, counts_as="targets", items=_sound, is_in_pieces=True)
        finds = [reads, *finds]
    return finds, [Stage(work=targets.map, counts_as="targets")]


def _pasting_stages(settings: Settings) -> list[Stage]:
    """What finds the objects that are pasted; nothing where the recipe pastes none, or images are only timed."""
    if not settings.recipe.pastes_objects or settings.targets is None:
        return []
    from augpipe.pipeline.pasting_stage import plan_pastes

    return [Stage(work=partial(plan_pastes, settings), counts_as="mixing")]


def _unopened(batch: BatchInProgress) -> list[Item]:
    return [item for item in batch.items if item.image is None]


def _failed(batch: BatchInProgress) -> list[Item]:
    return [item for item in batch.items if item.error is not None]


def _sound(batch: BatchInProgress) -> list[Item]:
    return [item for item in batch.items if item.error is None]


def without_pixels(batch: BatchInProgress) -> list[Item]:
    """The items that are not decoded yet."""
    return [item for item in batch.items if item.pixels is None]


def _not_on_device(batch: BatchInProgress) -> list[Item]:
    return [item for item in batch.items if item.pixels is None or item.pixels.is_on_host]
