"""What a view of a batch shows of the objects of its images: those that stay, one behind the other in arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augpipe.batch_targets import ViewTargets
from augpipe.ops.mixing import Mix
from augpipe.planning.kernel_rows import Rows
from augpipe.planning.mixing_draws import pastes, pastes_objects
from augpipe.planning.targets.covered import covered_objects
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.masks import filled_rings
from augpipe.planning.targets.objects import MappedObjects, Objects, map_objects
from augpipe.planning.targets.options import TargetOptions
from augpipe.planning.targets.rotated_boxes import as_xywhr
from augpipe.sources.protocol import Ints
from augpipe.sources.targets import Floats, LabelMap, Targets, ranges

if TYPE_CHECKING:
    from augpipe.pipeline.pasting_stage import PastedObjects

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ShownImages:
    """The R images that the outputs of a view show, output by output: of one that is mixed, first its own image, and of
    a mosaic each in turn."""

    output: Ints
    """(R,) the place of the output in the batch."""
    image: Ints
    """(R,) the place of the image in the batch."""
    weights: Floats
    """(R,) of the image in the output's pixels, where it is shown."""
    is_partner: Bools
    """(R,) whether it is what the output's own image is mixed with, or a part of that."""
    mixes: bool = False
    """Whether an output may show several images."""
    windows: Floats | None = None
    """(R, 4) left, top, right and bottom of the part of the output that shows the image; None: all of each."""
    holes: Floats | None = None
    """(R, 4) the part that another image covers, without an area where none does; None: nothing."""
    only: Mapping[int, Ints] = field(default_factory=dict)
    """Number of a shown image -> the places of the objects that are shown, among those of the image; all of others."""
    covers: Mapping[int, Bools] = field(default_factory=dict)
    """Place of an output -> (H, W) where objects of another image are pasted on its own."""

    @classmethod
    def of(
        cls,
        rows: Rows,
        num: int,
        mixing: Sequence[Mix],
        partner_places: Ints | None,
        pasted: "Mapping[int, PastedObjects]",
    ) -> "ShownImages":
        """What is shown by a batch's first `num` outputs.

        Args:
            rows: (B,) plan records of the view, those of guests last.
            num: outputs that are handed out.
            mixing: the recipe's.
            partner_places: (B,) where in the batch each one's partner lies. None where nothing is mixed.
            pasted: place of an output -> the objects that are pasted on it.
        """
        own = np.arange(num)
        if partner_places is None:
            return cls(output=own, image=own, weights=np.ones(num), is_partner=np.zeros(num, np.bool_))
        mixed = rows["mixing"][:num]
        other = np.flatnonzero(mixed["kind"] > 0)
        output = np.concatenate([own, other])
        order = np.argsort(output, kind="stable")
        output, image = output[order], np.concatenate([own, partner_places[other]])[order]
        is_other = np.concatenate([np.zeros(num, np.bool_), np.ones(len(other), np.bool_)])[order]
        cuts, weights = pastes(mixing, mixed["kind"])[output], mixed["weight"][output]
        is_blended = ~(cuts | pastes_objects(mixing, mixed["kind"])[output])
        region = mixed["region"][output].astype(np.float64)
        frames = np.stack(
            [0 * rows["out_width"], 0 * rows["out_height"], rows["out_width"], rows["out_height"]], axis=1
        )
        return cls(
            output=output,
            image=image,
            mixes=True,
            weights=np.where(is_blended, np.where(is_other, 1.0 - weights, weights), 1.0),
            is_partner=is_other,
            windows=np.where((cuts & is_other)[:, None], region, frames[output].astype(np.float64)),
            holes=np.where((cuts & ~is_other)[:, None], region, 0.0),
            covers={place: found.mask for place, found in pasted.items()},
        ).with_objects(pasted)

    def of_mosaics(self, outputs: Ints) -> "ShownImages":
        """The same where (B,) images of a batch are put together in those at these places.

        None lies in another one's place, so that each is shown wherever its own plan shows it.
        """
        images = np.argsort(outputs, kind="stable")
        counts = np.bincount(outputs, minlength=len(outputs))
        first = np.cumsum(counts) - counts
        which = np.repeat(np.arange(len(self.image)), counts[self.image])
        return replace(
            self,
            output=self.output[which],
            image=images[ranges(first[self.image], counts[self.image])],
            weights=self.weights[which],
            is_partner=self.is_partner[which],
            mixes=True,
            windows=None if self.windows is None else self.windows[which],
            holes=None if self.holes is None else self.holes[which],
        )

    def with_objects(self, pasted: "Mapping[int, PastedObjects]") -> "ShownImages":
        """The same, of partners only the objects that are pasted: (place of an output -> these)."""
        nothing = np.zeros(0, np.int64)
        rows = [row for row in np.flatnonzero(self.is_partner).tolist() if self.output[row] in pasted]
        only = {row: pasted[self.output[row]].numbers.get(self.image[row], nothing) for row in rows}
        return replace(self, only=only)


def view_targets(
    objects: Targets | None,
    rows: Rows,
    shown: ShownImages,
    size: tuple[int, int],
    image_ids: Sequence[Any],
    options: TargetOptions,
    label_maps: LabelMap | None,
) -> ViewTargets:
    """Map the objects of a batch's images by the (B,) plan records of a view.

    Args:
        objects: of the images; None where only label maps are known.
        rows: the records.
        shown: which of the images each of the outputs shows, and where.
        size: height and width of the outputs.
        image_ids: of the outputs.
        options: how they are mapped, and who stays.
        label_maps: mapped ones, handed on.
    """
    dropped: list[list[tuple[Any, str]]] = [[] for _ in image_ids]
    if objects is None:
        return ViewTargets(
            size=size, image_ids=image_ids, counts=None, columns={}, dropped=dropped, label_maps=label_maps
        )
    objects, which, ids = of_shown(objects, shown)
    output, image = shown.output[which], shown.image[which]
    known = known_objects(objects, rows, image, which, options)
    inverse = InverseMap(rows[shown.image], shown.windows, shown.holes)
    drops_empty = options.drop_empty is not False
    mapped = map_objects(inverse, known, options, drops_empty=drops_empty)
    own = np.flatnonzero(~shown.is_partner[which]).tolist() if shown.covers else []
    covers = {number: cover for number in own if (cover := shown.covers.get(output[number])) is not None}
    mapped = covered_objects(mapped, covers, options, drops_empty=drops_empty)
    stays, samples = mapped.stays, rows["sample_id"]
    for number in np.flatnonzero(~stays).tolist():
        own = ids[number].item() if isinstance(ids, np.ndarray) else ids[number]
        of_partner = f"of sample {samples[image[number]]}: " if image[number] != output[number] else ""
        dropped[output[number]].append((own, f"{of_partner}{mapped.reasons[number]}"))
    said: dict[str, Any] = {"object_ids": ids}
    if shown.mixes:
        said |= {"from_sample": samples[image], "mix_weight": shown.weights[which].astype(np.float32)}
    return ViewTargets(
        size=size,
        image_ids=image_ids,
        counts=np.bincount(output[stays], minlength=len(image_ids)),
        columns=_columns(objects, mapped, said, np.flatnonzero(stays), size, options),
        dropped=dropped,
        label_maps=label_maps,
    )


def known_objects(objects: Targets, rows: Rows, image: Ints, which: Ints, options: TargetOptions) -> Objects:
    """Objects of a source as they are mapped.

    Args:
        objects: N of them.
        rows: (B,) plan records.
        image: (N,) the place in the batch of the image that each belongs to.
        which: (N,) whose record each is mapped by.
        options: how they are mapped.
    """
    boxes = objects.boxes
    if boxes is not None and options.clip:
        edges = np.stack([rows["width"], rows["height"]] * 2, axis=1)
        boxes = np.clip(boxes, 0.0, edges[image])
    return Objects(
        item=which,
        boxes=boxes,
        polygons=objects.polygons,
        rotated_boxes=objects.rotated_boxes,
        keypoints=objects.keypoints,
    )


def pasted(label_maps: LabelMap, shown: ShownImages) -> LabelMap:
    """(B, H, W, ..) label maps, those of mixed outputs with their partners' where these are pasted; in place.

    `shown` knows no mosaics: the label maps are put together.
    """
    if shown.windows is None:
        return label_maps
    pieces = []
    for nth in np.flatnonzero(shown.is_partner):
        left, top, right, bottom = shown.windows[nth].astype(np.int64)
        place: Any = shown.covers.get(shown.output[nth], np.s_[top:bottom, left:right])
        pieces.append((shown.output[nth], place, label_maps[shown.image[nth]][place].copy()))
    for output, place, piece in pieces:  # once all are taken: partners may take of each other
        label_maps[output][place] = piece
    return label_maps


def of_shown(objects: Targets, shown: ShownImages) -> tuple[Targets, Ints, Any]:
    """The objects of shown images, which of the shown images each belongs to, and what the source calls each.

    An object that two outputs show is there twice.
    """
    counts, ids = objects.counts[shown.image], _object_ids(objects)
    which = np.repeat(np.arange(len(counts)), counts)
    if not shown.mixes:
        return objects, which, ids
    nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_shown = np.ones(len(which), np.bool_)
    for row, places in shown.only.items():
        of_row = which == row
        is_shown[of_row] = np.isin(nth[of_row], places)
    which, nth = which[is_shown], nth[is_shown]
    counts = np.bincount(which, minlength=len(counts))
    numbers = objects.starts[shown.image[which]] + nth

    def chosen(values: Any) -> Any:
        if values is None or isinstance(values, np.ndarray):
            return values if values is None else values[numbers]
        return [values[number] for number in numbers.tolist()]

    fields = {name: chosen(values) for name, values in objects.fields.items()}
    of_shown = replace(
        objects,
        counts=counts,
        labels=chosen(objects.labels),
        boxes=chosen(objects.boxes),
        polygons=chosen(objects.polygons),
        rotated_boxes=chosen(objects.rotated_boxes),
        keypoints=chosen(objects.keypoints),
        fields=fields,
    )
    return of_shown, which, chosen(ids)


def _object_ids(objects: Targets) -> Any:
    """(N,): what the source calls them, or the place of each among the objects of its image, from 0."""
    if "object_ids" in objects.fields:
        return objects.fields["object_ids"]
    return np.arange(int(objects.counts.sum())) - objects.starts[objects.images]


def _columns(
    objects: Targets,
    mapped: MappedObjects,
    ids: Mapping[str, Any],
    stays: Ints,
    size: tuple[int, int],
    options: TargetOptions,
) -> dict[str, Any]:
    """What is said of the objects that stay, by its name."""
    columns: dict[str, Any] = {}
    if mapped.boxes is not None:
        columns["boxes"] = mapped.boxes[stays].astype(np.float32)
    if mapped.rotated_boxes is not None:
        columns["rotated_boxes"] = mapped.rotated_boxes[stays].astype(np.float32)
        columns["xywhr"] = as_xywhr(mapped.rotated_boxes[stays])
    if objects.labels is not None:
        columns["labels"] = objects.labels[stays].astype(np.int64)
    if mapped.areas is not None:
        columns["area"] = mapped.areas[stays].astype(np.float32)
        columns["iscrowd"] = np.zeros(len(stays), np.int64)
    if mapped.keypoints is not None:
        columns["keypoints"] = mapped.keypoints[stays].astype(np.float32)
    if mapped.polygons is not None:
        shown = [mapped.polygons[number] for number in stays]
        if options.masks:
            columns["masks"] = filled_rings(shown, size)
        if options.polygons:
            columns["polygons"] = shown
    fields = {name: values for name, values in objects.fields.items() if name != "area"}  # that of the photograph
    for name, values in {**fields, **ids}.items():
        if name == "iscrowd":
            values = np.asarray(values, np.int64)
        is_array = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
        columns[name] = values[stays] if is_array else [values[number] for number in stays]
    return columns
