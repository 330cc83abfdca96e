"""The stage that finds which objects of partners are pasted on the images of a batch, and where."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.ops.mixing import CopyPaste
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.mapped_objects import ShownImages, known_objects, of_shown
from augpipe.planning.mixing_draws import draw_objects, pastes_objects
from augpipe.planning.targets.covered import alpha_plane, order_of_outlines
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.masks import filled_rings
from augpipe.planning.targets.objects import map_objects
from augpipe.sources.targets import Targets, has_targets, targets_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class PastedObjects:
    """What is pasted on one image of a view."""

    numbers: Ints
    """(K,) the places of the pasted objects among those of the partner."""
    mask: npt.NDArray[np.bool_]
    """(H, W) where they lie."""
    region: tuple[int, int, int, int]
    """Left, top, right and bottom of what changes, in output pixels."""
    alpha: npt.NDArray[np.float32]
    """(height, width) of the region: the part of the partner there, in 0..1."""


def plan_pastes(settings: Settings, batch: BatchInProgress, items: Sequence[Item]) -> None:
    """Find what is pasted on the images of a batch whose mixing is planned, and write it into the plan."""
    assert batch.plan is not None and settings.targets is not None and has_targets(settings.source)
    plan, mixing, request = batch.plan, batch.request.block.mixing, batch.request
    outputs = np.flatnonzero(pastes_objects(plan.recipe.mixing, plan.rows["mixing"]["kind"]))
    batch.pasted = tuple({} for _ in plan.views)
    if mixing is None or not len(outputs):
        return
    batch.objects = objects = batch.objects or targets_of(settings.source, plan.sample_ids)
    assert objects is not None, "the loader has checked it"
    partners = mixing.partner_places[request.cut][outputs]
    positions = request.positions
    by = (request.sample_ids if positions is None else positions)[outputs]
    uniform = draw_objects(plan.seed, request.epoch, by, int(objects.counts.max()), is_sampled=positions is not None)
    kinds = [plan.recipe.mixing[kind - 1] for kind in plan.rows["mixing"]["kind"][outputs].tolist()]
    chosen = {}
    for row, (mix, partner) in enumerate(zip(kinds, partners.tolist(), strict=True)):
        assert isinstance(mix, CopyPaste)
        numbers, places = _outlined(objects, partner)
        chosen[row] = numbers[uniform[row, places] < mix.object_p]
    shown = ShownImages(output=outputs, image=partners, weights=np.ones(len(outputs)), mixes=True, only=chosen)
    some, which, _ = of_shown(objects, shown)
    numbers = np.concatenate([*chosen.values()])
    for view, (rows, size) in enumerate(zip(plan.views, batch.sizes, strict=True)):
        known = known_objects(some, rows, partners[which], which, settings.targets)
        mapped = map_objects(InverseMap(rows[partners]), known, settings.targets, drops_empty=True)
        assert mapped.polygons is not None
        for row, (mix, output) in enumerate(zip(kinds, outputs.tolist(), strict=True)):
            own = np.flatnonzero((which == row) & mapped.stays)
            masks = filled_rings([mapped.polygons[number] for number in own], size)
            is_there = masks.any(axis=(1, 2))
            mask: npt.NDArray[np.bool_] = np.any(masks, axis=0)
            region, alpha = alpha_plane(mask, mix.blur_px)
            batch.pasted[view][output] = PastedObjects(
                numbers=numbers[own[is_there]], mask=mask, region=region, alpha=alpha
            )
            mixed = rows["mixing"][output : output + 1]
            mixed["region"] = region
            mixed["weight"] = 1.0 - float(alpha.sum(dtype=np.float64)) / mask.size


def _outlined(objects: Targets, image: int) -> tuple[Ints, Ints]:
    """Which of an image's objects have outlines and are not crowds, and the place of each by where it lies."""
    first = int(objects.counts[:image].sum())
    every = range(first, first + int(objects.counts[image]))
    crowds, polygons = objects.fields.get("iscrowd"), objects.polygons
    assert polygons is not None, "the loader has checked it"
    chosen = [n for n in every if len(polygons[n]) and not (crowds is not None and crowds[n])]
    return np.array(chosen, np.int64) - first, order_of_outlines([polygons[n] for n in chosen])
