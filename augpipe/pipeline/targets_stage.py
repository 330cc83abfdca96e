"""The stages that give a batch its targets: label maps, read image by image, and objects, mapped all at once."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from augpipe.cache.label_maps import HeldLabelMaps
from augpipe.errors import SampleError, SourceChangedError
from augpipe.native.buffers import BufferPool
from augpipe.pipeline.checked_objects import problems_of
from augpipe.pipeline.items import BatchInProgress, Item, LabelMapLookUp, Settings
from augpipe.pipeline.mapped_objects import ShownImages, pasted, view_targets
from augpipe.pipeline.mosaic_stage import is_mosaic, put_together, seen
from augpipe.planning.kernel_rows import Rows, kernel_rows
from augpipe.planning.targets.fill_notice import tell_of_fill
from augpipe.planning.targets.masks import fill_of, mapped_mask
from augpipe.sources.targets import LabelMap, TargetSource, has_targets, targets_of

Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""A label map's number type and its shape behind height and width."""

CLASSES: Kind = np.dtype(np.int64), ()
"""What label maps of classes are handed out as."""


class TargetStages:
    """Targets of batches; one instance serves a loader over all its epochs, and is safe from several threads.

    Args:
        settings: the loader's.
        look_up: looks up label maps with the images where it can: those of classes, by nearest, without holes, of
            recipes that mix no images. None: all label maps are mapped here.
        held: label maps of a cache on the host, which it fills.
    """

    def __init__(self, settings: Settings, look_up: LabelMapLookUp | None, held: HeldLabelMaps | None) -> None:
        assert settings.targets is not None and has_targets(settings.source)
        self._source: TargetSource = settings.source
        self._options = settings.targets
        self.has_label_maps = bool(self._source.has_label_maps)
        is_nearest = self._options.mask_interpolation == "nearest" and not self._options.mask_holes
        self._look_up = look_up if is_nearest and not settings.recipe.mixes_samples else None
        self._held = held
        self._kind: Kind | None = None
        self._first_name = ""  # of the sample whose label map was read first, and decided the kind of all
        self._lock = threading.Lock()
        self._buffers = BufferPool(keep=(settings.prefetch + 2) * len(settings.recipe.all_views))

    def read_label_maps(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Read and map the label maps of planned items; those whose cannot be used carry an error then."""
        assert batch.plan is not None
        items = seen(batch, items)
        positions = [item.position for item in items]
        views = [(rows, kernel_rows(rows)) for rows in (of[positions] for of in batch.plan.views)]
        for nth, item in enumerate(items):
            own = slice(nth, nth + 1)
            try:
                self._read_label_map(batch, item, [(row[own], table[own]) for row, table in views])
            except BaseException as problem:
                item.error = problem

    def look_up(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Look up the objects of planned items; those that have impossible ones carry an error then."""
        sound = [item for item in items if item.error is None]
        ids = np.array([item.sample_id for item in sound], np.int64)
        objects = targets_of(self._source, ids)
        if objects is None:
            return
        assert batch.plan is not None
        rows = batch.plan.rows[[item.position for item in sound]]
        problems = problems_of(objects, rows, self._source, clips=self._options.clip)
        for number, problem in problems.items():
            sound[number].error = SampleError(self._source.name(sound[number].sample_id), problem)
        is_whole = len(sound) == len(batch.items) and not problems
        batch.objects = objects if is_whole else None  # else some are replaced, and all looked up again

    def map(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Map the objects of a batch whose items stay what they are from now on."""
        assert batch.plan is not None
        plan, num, mixing, mosaic = batch.plan, batch.num_own, batch.request.block.mixing, batch.request.block.mosaic
        objects = batch.objects or targets_of(self._source, plan.sample_ids)
        places = None if mixing is None else mixing.partner_places[batch.request.cut]
        label_maps = self._label_maps(batch) if self.has_label_maps else [None] * len(batch.sizes)
        image_ids = batch.columns.get("image_id", plan.sample_ids[:num])
        found = []
        for view, (rows, size, label_map) in enumerate(zip(plan.views, batch.sizes, label_maps, strict=True)):
            objects_on = batch.pasted[view] if batch.pasted else {}
            shown = ShownImages.of(rows, num, plan.recipe.mixing, places, objects_on)
            if label_map is not None:
                for item in () if mosaic is None else is_mosaic(batch):
                    put_together(batch, label_map, item.position, view, planar=False)
                label_map = pasted(label_map, shown)[:num]
            if mosaic is not None:
                shown = shown.of_mosaics(batch.request.outputs).with_objects(objects_on)
            found.append(view_targets(objects, rows, shown, size, image_ids, self._options, label_map))
        batch.targets = tuple(found)
        batch.objects, batch.label_maps, batch.pasted = None, (), ()

    def _read_label_map(self, batch: BatchInProgress, item: Item, views: Sequence[tuple[Rows, Rows]]) -> None:
        """Read an item's label map, and map it by each view's (1,) plan record and kernel row."""
        name = self._source.name(item.sample_id)
        if self._look_up is not None and self._look_up.has(batch, item):
            self._note_kind(CLASSES, name)
            return
        labels = self._labels_of(item, name)
        by, holes = self._options.mask_interpolation, self._options.mask_holes
        held = _held_as(labels, keeps_type=by == "linear")
        self._note_kind(held, name)
        is_looked_up = self._look_up is not None and held == CLASSES
        if self._look_up is not None and is_looked_up:
            self._look_up.take(batch, item, labels)
        fill = fill_of(np.empty(0, held[0]), self._options.mask_fill)
        rooms = [] if is_looked_up else self._rooms(batch, held)
        for view, (row, table) in enumerate(views):
            if not is_looked_up:
                fills, room = self._options.mask_border == "fill", rooms[view]
                own = room[item.position]
                mapped_mask(labels, row, by=by, fill=fill, fills=fills, holes=holes, table=table, into=own)
            tell_of_fill(labels, row, self._options)

    def _labels_of(self, item: Item, name: str) -> LabelMap:
        """An item's label map out of the cache, or else read, and kept there."""
        height, width = item.opened.size
        held = self._held.array(item.sample_id) if self._held is not None else None
        if held is not None and held.shape[:2] == (height, width):
            return held
        try:
            labels = _array_of(self._source.label_map(item.sample_id))
        except (ConnectionError, SourceChangedError):  # they say nothing of the label map: nothing to skip
            raise
        except (ValueError, OSError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            raise SampleError(name, f"its label map: {reason or type(problem).__name__}") from problem
        if labels.ndim not in (2, 3) or labels.dtype.kind not in "biuf" or labels.shape[:2] != (height, width):
            raise SampleError(
                name,
                f"its label map has shape {labels.shape} and type {labels.dtype}, and the photograph is "
                f"{height}x{width} (height x width)",
            )
        if self._held is not None:
            self._held.keep(item.sample_id, labels)
        return labels

    def _note_kind(self, kind: Kind, name: str) -> None:
        with self._lock:
            if self._kind is None:
                self._kind, self._first_name = kind, name
        if self._kind != kind:
            raise ValueError(
                f"label maps of one source must be alike: that of {self._first_name} is {_in_words(self._kind)}, and "
                f"that of {name} {_in_words(kind)}. Convert them."
            )

    def _rooms(self, batch: BatchInProgress, kind: Kind) -> Sequence[LabelMap]:
        """For each view (B, H, W, ..), made when the first label map of the batch asks for it."""
        dtype, planes = kind
        with batch.lock:
            shapes = [(len(batch.items), *size, *planes) for size in batch.sizes]
            # the only image of a batch may be replaced by one of another size
            if not batch.label_maps or (len(batch.items) == 1 and batch.label_maps[0].shape != shapes[0]):
                batch.label_maps = tuple(self._buffers.take(math.prod(of), dtype).reshape(of) for of in shapes)
            return batch.label_maps

    def _label_maps(self, batch: BatchInProgress) -> Sequence[LabelMap | None]:
        if batch.items:
            return batch.label_maps or [None] * len(batch.sizes)
        dtype, planes = self._kind or CLASSES
        return [np.empty((0, *size, *planes), dtype) for size in batch.sizes]


def _array_of(labels: Any) -> LabelMap:
    """An array of what a source gave.

    Raises:
        ValueError: numpy has no such numbers.
    """
    try:
        return np.asarray(labels)
    except TypeError as problem:
        raise ValueError(f"{problem}. Give an array of whole numbers, or of float32.") from problem


def _held_as(labels: LabelMap, *, keeps_type: bool) -> Kind:
    """Whole numbers of classes are int64, as losses take them; colours and other numbers stay what they are."""
    is_classes = labels.ndim == 2 and labels.dtype.kind in "iu"
    is_wide = is_classes and not keeps_type
    return np.dtype(np.int64) if is_wide else labels.dtype.newbyteorder("="), labels.shape[2:]


def _in_words(kind: Kind) -> str:
    dtype, planes = kind
    return f"{dtype} of shape (H, W{''.join(f', {num}' for num in planes)})"
