"""`augpipe.show`: a loader, a batch or a recipe as a sheet that notebooks display."""

from typing import TYPE_CHECKING, Any

import numpy as np

from augpipe.batch import Batch
from augpipe.mixed_labels import MixedLabels
from augpipe.preview.contents import Cell, Contents, Row, over_epochs
from augpipe.preview.draw import draw_sheet
from augpipe.preview.shown_targets import ShownTargets, outlines_of
from augpipe.sources.protocol import Pixels
from augpipe.validation.arguments import as_count
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from PIL.Image import Image

    from augpipe.loader import Loader


def show(
    what: Any, images: Any = None, *, rows: int = 4, cols: int = 5, epoch: int | None = None, seed: int | None = None
) -> "Image":
    """A sheet of what a loader, a batch or a recipe makes of images, with what was drawn under each.

    A notebook displays it; elsewhere it has `save` and `show`, as every image of Pillow's.

    Args:
        what: a `Loader`: the first images of its epoch, a row each, as it gives them then (first column) and later.
            A `Batch`: its images, in their order. Its floats are shown as 8-bit levels, with normalisation undone.
            A `Recipe`, a `Schedule`, a ready-made recipe's name or a TOML file: what it makes of `images`.
        images: for a recipe only: a path, or whatever else a `Loader` takes.
        rows: of images at most.
        cols: images in a row.
        epoch: of the first column; by default the loader's, or 0. A batch has its own.
        seed: for a recipe only, by default 0.

    Returns:
        An RGB image, about 2,000 pixels wide at most. The number under each image is its sample id:
        `loader.sample(id)` makes it again.

    Raises:
        ValueError: an argument is out of range, is missing, or does not belong to `what`.
        SampleError: an image cannot be used.
    """
    from augpipe.loader import Loader, as_source

    is_recipe = not isinstance(what, Batch | Loader)
    given = {"images": images, "seed": seed} | ({"epoch": epoch} if isinstance(what, Batch) else {})
    for name, value in given.items():
        if value is not None and not is_recipe:
            raise ValueError(f"a {type(what).__name__} comes with its own {name}. Leave {name} out.")
    if isinstance(what, Batch):
        return draw_sheet(of_batch(what, rows, cols))
    if isinstance(what, Loader):
        return draw_sheet(_of_loader(what, rows, cols, epoch))
    if images is None:
        raise ValueError('a recipe is shown on images: show(recipe, "photos/"), or whatever else a Loader takes.')
    return draw_sheet(over_epochs(as_source(images, {}), what, rows=rows, cols=cols, epoch=epoch or 0, seed=seed or 0))


def of_batch(batch: Batch, rows: int, cols: int) -> Contents:
    """The first images of a batch, those of all its views."""
    as_count("rows", rows)
    as_count("cols", cols)
    if not len(batch):
        raise ValueError("the batch is empty: there is nothing to show.")
    views = batch.images if isinstance(batch.images, tuple) else (batch.images,)
    num = min(len(batch), max(1, rows * cols // len(views)))
    cells = [
        Cell(
            image=_levels(images[position], batch, position, view),
            captions=_captions(batch, position, view),
            targets=_targets(batch, position, view),
        )
        for position in range(num)
        for view, images in enumerate(views)
    ]
    made = tuple(
        Row(
            sample_id=-1,
            original=None,
            name="",
            class_name="",
            crop=None,
            headings=(),
            cells=tuple(cells[i : i + cols]),
        )
        for i in range(0, len(cells), cols)
    )
    epochs = ", ".join(f"epoch {epoch}" for epoch in np.unique(batch.plan.rows["epoch"]))
    which = f"the first {num} of {count(len(batch), 'image')}" if num < len(batch) else count(num, "image")
    note = f"seed {batch.plan.seed}   ·   {epochs}   ·   {which}"
    return Contents(title=batch.plan.recipe.name or "batch", note=note, rows=made, skipped={})


def _of_loader(loader: "Loader[Any]", rows: int, cols: int, epoch: int | None) -> Contents:
    return over_epochs(
        loader.source,
        loader.schedule,
        rows=rows,
        cols=cols,
        seed=loader.seed,
        epoch=loader.epoch if epoch is None else epoch,
        on_error="skip" if loader._skips_bad else "raise",
        epochs=loader._epochs,
    )


def _levels(image: Any, batch: Batch, position: int, view: int) -> Pixels:
    """(H, W, 3) uint8 of an image in the batch's dtype and layout, wherever it lies."""
    row, channels = batch.plan.views[view][position], batch.plan.recipe.channels
    is_levels = str(image.dtype).endswith("uint8")
    array = image if isinstance(image, np.ndarray) else image.detach().cpu().float().numpy()
    if array.shape != (row["out_height"], row["out_width"], channels):
        array = np.moveaxis(array, 0, 2)
    if not is_levels:
        array = np.clip(np.rint(255.0 * (array * row["std"][:channels] + row["mean"][:channels])), 0.0, 255.0)
    levels: Pixels = array.astype(np.uint8)
    return np.repeat(levels, 3, axis=2) if channels == 1 else levels


def _captions(batch: Batch, position: int, view: int) -> tuple[str, ...]:
    """The sample's id, its label, and what was drawn."""
    labels = batch.labels.labels if isinstance(batch.labels, MixedLabels) else batch.labels
    label = np.asarray(labels[position].cpu() if hasattr(labels, "cpu") else labels[position])
    known = [] if label.ndim or label < 0 else [f"label {label}"]
    drawn = [text for _, text in batch.plan.captions(position, view)]
    return (f"sample {batch.plan.sample_ids[position]}", *known, *drawn)


def _targets(batch: Batch, position: int, view: int) -> ShownTargets | None:
    """Objects and label maps of a list or of label maps alone, which are laid out image by image."""
    targets = batch.targets[view] if isinstance(batch.targets, tuple) else batch.targets
    if targets is None or isinstance(targets, dict):
        return None
    target = targets[position] if isinstance(targets, list) else {"mask": targets[position]}
    known = {
        name: np.asarray(target[name].cpu() if hasattr(target[name], "cpu") else target[name])
        for name in ("labels", "boxes", "rotated_boxes", "keypoints", "mask")
        if name in target
    }
    num = len(target.get("object_ids", ()))
    classes = known.get("labels", np.full(num, -1)).tolist()
    return ShownTargets(
        classes=classes,
        names=[str(number) if number >= 0 else "" for number in classes],
        boxes=known.get("boxes"),
        polygons=outlines_of(target.get("polygons"), known.get("rotated_boxes"), num),
        keypoints=known.get("keypoints"),
        label_map=known.get("mask"),
        are_rotated="rotated_boxes" in known,
    )
