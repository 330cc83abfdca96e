"""The stage that finds which objects of partners are pasted on the images of a batch, and where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.ops.mixing import CopyPaste
from augpipe.pipeline.checked_objects import problems_of
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.mapped_objects import ShownImages, known_objects, of_shown
from augpipe.pipeline.mixing_stage import plan_mixing
from augpipe.pipeline.mosaic_stage import pieces
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

    numbers: Mapping[int, Ints]
    """Place in the batch of the partner, or of each image of its mosaic -> the places of the pasted objects among that
    image's."""
    mask: npt.NDArray[np.bool_]
    """(H, W) where they lie."""
    region: tuple[int, int, int, int]
    """Left, top, right and bottom of what changes, in output pixels."""
    alpha: npt.NDArray[np.float32]
    """(height, width) of the region: the part of the partner there, in 0..1."""
    windows: Mapping[int, tuple[int, int, int, int]]
    """Place in the batch of the partner, or of each image of its mosaic -> left, top, right and bottom of what is seen
    of it, in output pixels."""


def expect_pastes(settings: Settings, batch: BatchInProgress) -> None:
    """Find what is pasted before anything is decoded, for the sake of partners of which that is all that is seen; not
    where an object is wrong, whose image is going to be replaced."""
    assert batch.plan is not None and settings.targets is not None and has_targets(settings.source)
    if batch.num_own == len(batch.items):
        return
    objects = targets_of(settings.source, batch.plan.sample_ids)
    assert objects is not None, "the loader has checked it"
    if not problems_of(objects, batch.plan.rows, settings.source, clips=settings.targets.clip):
        batch.objects = objects
        plan_mixing(batch, batch.items)
        plan_pastes(settings, batch, batch.items)


def plan_pastes(settings: Settings, batch: BatchInProgress, items: Sequence[Item]) -> None:
    """Find what is pasted on the images of a batch whose mixing is planned, and write it into the plan."""
    plan = batch.plan
    assert plan is not None
    if not batch.pasted:
        batch.pasted = _pasted(settings, batch)
    for rows, pasted in zip(plan.views, batch.pasted, strict=True):
        for place, found in pasted.items():
            mixed = rows["mixing"][place : place + 1]
            mixed["region"] = found.region
            mixed["weight"] = 1.0 - float(found.alpha.sum(dtype=np.float64)) / found.mask.size


def _pasted(settings: Settings, batch: BatchInProgress) -> tuple[dict[int, PastedObjects], ...]:
    """For each view, place of an image -> what is pasted on it."""
    assert batch.plan is not None and settings.targets is not None and has_targets(settings.source)
    plan = batch.plan
    outputs = np.flatnonzero(pastes_objects(plan.recipe.mixing, plan.rows["mixing"]["kind"]))
    pasted: tuple[dict[int, PastedObjects], ...] = tuple({} for _ in plan.views)
    if not len(outputs):
        return pasted
    batch.objects = objects = batch.objects or targets_of(settings.source, plan.sample_ids)
    assert objects is not None, "the loader has checked it"
    shown = _chosen(batch, objects, outputs)
    some, which, _ = of_shown(objects, shown)
    output, image = shown.output[which], shown.image[which]
    numbers, places = np.concatenate([*shown.only.values()]), _partner_places(batch)
    for view, (found, rows, size) in enumerate(zip(pasted, plan.views, batch.sizes, strict=True)):
        known = known_objects(some, rows, image, which, settings.targets)
        mapped = map_objects(InverseMap(rows[shown.image]), known, settings.targets, drops_empty=True)
        assert mapped.polygons is not None
        for place in outputs.tolist():
            own = np.flatnonzero((output == place) & mapped.stays)
            masks = filled_rings([mapped.polygons[number] for number in own], size)
            own = own[masks.any(axis=(1, 2))]
            mask: npt.NDArray[np.bool_] = np.any(masks, axis=0)
            mix = plan.recipe.mixing[rows["mixing"]["kind"][place] - 1]
            assert isinstance(mix, CopyPaste)
            region, alpha = alpha_plane(mask, mix.blur_px)
            found[place] = PastedObjects(
                numbers={of: numbers[own[image[own] == of]] for of in np.unique(image[own]).tolist()},
                mask=mask,
                region=region,
                alpha=alpha,
                windows=_windows(batch, places[place], view, region, alpha > 0.0),
            )
    return pasted


def _windows(
    batch: BatchInProgress, partner: int, view: int, region: tuple[int, int, int, int], is_seen: npt.NDArray[np.bool_]
) -> dict[int, tuple[int, int, int, int]]:
    """`PastedObjects.windows` of a partner of which these pixels of a region are seen."""
    if batch.request.block.mosaic is None:
        return {partner: region}
    left, top, right, bottom = region
    rest = np.zeros(batch.sizes[view], np.bool_)
    rest[top:bottom, left:right] = is_seen
    windows = dict.fromkeys(np.flatnonzero(batch.request.outputs == partner).tolist(), (0, 0, 0, 0))
    for guest, (down, across), is_shown in pieces(batch, partner, view):
        of_guest = rest[down, across] if is_shown is None else rest[down, across] & is_shown
        windows[guest] = _bounds(of_guest, across.start, down.start)
        rest[down, across] &= ~of_guest
    windows[partner] = _bounds(rest)
    return windows


def _bounds(mask: npt.NDArray[np.bool_], left: int = 0, top: int = 0) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is True, all 0 where nothing is; of a mask whose corner lies there."""
    if not mask.any():
        return 0, 0, 0, 0
    x, y = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    return left + int(x[0]), top + int(y[0]), left + int(x[-1]) + 1, top + int(y[-1]) + 1


def _chosen(batch: BatchInProgress, objects: Targets, outputs: Ints) -> ShownImages:
    """The partners of outputs, or each image of theirs that are mosaics, with the objects that are drawn from these."""
    plan, request = batch.plan, batch.request
    assert plan is not None
    partners = _partner_places(batch)[outputs]
    images = [np.flatnonzero(request.outputs == partner) for partner in partners]
    most = max(int(objects.counts[of_partner].sum()) for of_partner in images)
    positions = request.positions
    by = (request.sample_ids if positions is None else positions)[outputs]
    uniform = draw_objects(plan.seed, request.epoch, by, most, is_sampled=positions is not None)
    only: list[Ints] = []
    for drawn, output, of_partner in zip(uniform, outputs, images, strict=True):
        mix = plan.recipe.mixing[plan.rows["mixing"]["kind"][output] - 1]
        assert isinstance(mix, CopyPaste)
        for image in of_partner.tolist():
            numbers, places = _outlined(objects, image)
            only.append(numbers[drawn[places] < mix.object_p])
            drawn = drawn[len(numbers) :]
    num = len(only)
    return ShownImages(
        output=np.repeat(outputs, [len(of_partner) for of_partner in images]),
        image=np.concatenate(images),
        weights=np.ones(num),
        is_partner=np.ones(num, np.bool_),
        mixes=True,
        only=dict(enumerate(only)),
    )


def _partner_places(batch: BatchInProgress) -> Ints:
    """(B,) where the partner of each image lies in the batch."""
    mixing = batch.request.block.mixing
    assert mixing is not None
    return mixing.partner_places[batch.request.cut]


def _outlined(objects: Targets, image: int) -> tuple[Ints, Ints]:
    """Which of an image's objects have outlines and are not crowds, and the place of each by where it lies."""
    first = int(objects.starts[image])
    every = range(first, first + int(objects.counts[image]))
    crowds, polygons = objects.fields.get("iscrowd"), objects.polygons
    assert polygons is not None, "the loader has checked it"
    chosen = [n for n in every if len(polygons[n]) and not (crowds is not None and crowds[n])]
    return np.array(chosen, np.int64) - first, order_of_outlines([polygons[n] for n in chosen])
