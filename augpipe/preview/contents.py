"""What a contact sheet shows: images, and their augmented versions as the training loader gives them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from augpipe.batch import Batch
from augpipe.pipeline.epochs import Epochs
from augpipe.planning.fields import not_followed
from augpipe.planning.look_up import looked_at
from augpipe.planning.plan import Plan
from augpipe.preview.batches import epochs_of, first_batches, made_batches, shown_ids
from augpipe.preview.shown_targets import ShownTargets, of_original, of_view
from augpipe.preview.whole_image import whole_image
from augpipe.recipes.names import as_schedule
from augpipe.recipes.parts import Parts, growing, solos, without_normalize
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.schedule import Schedule
from augpipe.sources.protocol import Pixels, Source
from augpipe.sources.targets import has_targets
from augpipe.validation.arguments import as_count, as_epoch, as_seed

ORIGINAL = "original"
Progress = Callable[[int, int], None]
"""Hears how many images are made, and how many will be."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One augmented image."""

    image: Pixels
    """(H, W, 3) uint8: the loader's pixels, without normalisation."""
    captions: tuple[str, ...]
    """What was drawn for it, an entry an op; what it is where nothing was."""
    targets: ShownTargets | None = None
    """Those that the loader gives; None where there are none, or they do not follow the recipe."""
    plan: Plan | None = None
    """That of the image, as of a batch of one; None for the cells of `show`."""
    view: int = 0
    """Which of the plan's views it is."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One image and what became of it."""

    sample_id: int
    original: Pixels | None
    """(H, W, 3) uint8, upright, whole; None where only cells are shown."""
    name: str
    """The source's name for it: a path, mostly."""
    class_name: str
    """Empty where the source has no labels."""
    crop: tuple[float, float, float, float] | None
    """Left, top, right, bottom of the crop that all cells share, in the original's pixels; None where they differ."""
    headings: tuple[str, ...]
    """What stands over the original and over each cell."""
    cells: tuple[Cell, ...]
    targets: ShownTargets | None = None
    """All that the source says of the original."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A whole sheet."""

    title: str
    note: str
    """How to read it, for the line under the title."""
    rows: tuple[Row, ...]
    skipped: dict[int, str]
    """Images that could not be used, where they may be skipped: sample id -> "name: reason"."""


def over_epochs(
    source: Source,
    recipe: Recipe | Schedule | str | Path,
    *,
    rows: int = 4,
    cols: int = 5,
    seed: int = 0,
    epoch: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    samples: Sequence[int] | None = None,
    epochs: Epochs | None = None,
    position: int | None = None,
    originals: bool = True,
    progress: Progress | None = None,
) -> Contents:
    """The first images of an epoch as the loader gives them in that epoch (first column) and in those after it.

    Args:
        source: where the images are.
        recipe: what is done to them, or a schedule, of which each column shows its epoch's; normalisation is left out,
            so that there is something to see.
        rows: images, fewer where the source holds fewer.
        cols: images of each image; with several views all of an epoch's are shown, and as many epochs as fit. One
            epoch is enough for a recipe that draws nothing.
        seed: 0..2^64 - 1.
        epoch: of the first column.
        on_error: "raise", or "skip" as the loader does.
        samples: ids of the images to show, instead of the first ones.
        epochs: a loader's; None: shuffled ones of all images. Of a sampler's, one epoch is shown.
        position: of the only sample in a sampler's epoch, see `Epochs.request_of`.
        originals: whether rows hold their images as they are stored; False saves decoding them.
        progress: called after each image.

    Raises:
        SampleError: an image cannot be used.
        ValueError: an argument is out of range.
    """
    _check(rows=rows, cols=cols, seed=seed, epoch=epoch)
    ordered = epochs or epochs_of(source)
    chosen = shown_ids(source, ordered, rows, seed, epoch, samples)
    schedule = as_schedule(recipe)
    num_views = len(schedule.at(epoch).all_views)
    draws = len(schedule.stages) > 1 or _draws(schedule.at(epoch))
    num_epochs = min(max(1, cols // num_views), 2**32 - epoch) if draws and ordered.sampling is None else 1
    numbers = range(epoch, epoch + num_epochs)
    own_recipes = {id(own): own for own in map(schedule.at, numbers)}
    plain = {key: without_normalize(own) for key, own in own_recipes.items()}
    shown = [plain[id(schedule.at(e))] for e in numbers]
    made_one = _each(progress, num_epochs * len(chosen))
    first, skipped = first_batches(
        source, ordered, shown[0], chosen, seed, epoch, on_error == "skip", position, made_one
    )
    ids = [int(batch.sample_ids[0]) for batch in first]
    later: list[list[Batch]] = []
    for _, alike in groupby(numbers[1:], lambda e: id(schedule.at(e))):  # epochs of one recipe in one pass
        wanted = [(e, sample_id) for e in alike for sample_id in ids]
        own = plain[id(schedule.at(wanted[0][0]))]
        made_together = [batch for batch, _ in made_batches(source, ordered, own, wanted, seed, made_one)]
        later += [made_together[place : place + len(ids)] for place in range(0, len(wanted), len(ids))]
    sizes = [_size_name(own, {other.all_views[0].out_size for other in shown}) for own in shown]
    headings = (
        ORIGINAL,
        *(
            f"epoch {e}{size}" + _view_name(view, num_views)
            for e, size in zip(numbers, sizes, strict=True)
            for view in range(num_views)
        ),
    )
    made = []
    for head, *batches in zip(first, *later, strict=True):
        batches.insert(0, head)
        cells = tuple(_cell(source, batch, view) for batch in batches for view in range(num_views))
        crop = _crop(head) if len(cells) == 1 else None
        sample_id = int(head.sample_ids[0])
        made.append(_row(source, sample_id, cells=cells, headings=headings, crop=crop, is_whole=originals))
    when = f"epoch {epoch}" if num_epochs == 1 else f"epochs {numbers[0]} to {numbers[-1]}, one a column"
    when = when if draws else "nothing is drawn: alike in every epoch"
    note = _note(source, seed, when, made, shown, are_first=samples is None)
    title = schedule.name or schedule.at(epoch).name or "recipe"
    return Contents(title=title, note=note, rows=tuple(made), skipped=skipped)


def by_op(
    source: Source,
    recipe: Recipe | Schedule | str | Path,
    *,
    rows: int = 4,
    seed: int = 0,
    epoch: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    samples: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Contents:
    """Each op of the epoch's recipe alone on its crop, then all together, mixing too; drawn as in the whole recipe.

    With several views there is a row for each different view of an image. Arguments as in `over_epochs`.
    """
    return _by_parts(solos, "one op a column", source, recipe, rows, seed, epoch, on_error, samples, progress)


def by_step(
    source: Source,
    recipe: Recipe | Schedule | str | Path,
    *,
    rows: int = 4,
    seed: int = 0,
    epoch: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
    samples: Sequence[int] | None = None,
    epochs: Epochs | None = None,
    position: int | None = None,
    progress: Progress | None = None,
) -> Contents:
    """The image after each op of the epoch's recipe, one more a column, and mixed in the last; as in `by_op`."""
    return _by_parts(
        growing,
        "one more op a column",
        source,
        recipe,
        rows,
        seed,
        epoch,
        on_error,
        samples,
        progress,
        epochs,
        position,
    )


def _by_parts(
    parts: Parts,
    how: str,
    source: Source,
    recipe: Recipe | Schedule | str | Path,
    rows: int,
    seed: int,
    epoch: int,
    on_error: Literal["raise", "skip"],
    samples: Sequence[int] | None,
    progress: Progress | None,
    epochs: Epochs | None = None,
    position: int | None = None,
) -> Contents:
    _check(rows=rows, cols=1, seed=seed, epoch=epoch)
    schedule = as_schedule(recipe)
    shown = without_normalize(schedule.at(epoch))
    ordered = epochs or epochs_of(source)
    chosen = shown_ids(source, ordered, rows, seed, epoch, samples)
    taken_of = {view: parts(shown, view) for view in _distinct_views(shown)}
    made_one = _each(progress, len(chosen) * (1 + sum(map(len, taken_of.values()))))
    whole, skipped = first_batches(source, ordered, shown, chosen, seed, epoch, on_error == "skip", position, made_one)
    ids = [int(batch.sample_ids[0]) for batch in whole]
    wanted = [(epoch, sample_id) for sample_id in ids]
    made: list[list[Row]] = [[] for _ in ids]
    for view, taken in taken_of.items():
        columns = []
        for key, part in taken:
            batches = made_batches(source, ordered, part, wanted, seed, made_one, position=position)
            columns.append([_cell(source, batch, view, key) for batch, _ in batches])
        headings = [ORIGINAL + _view_name(view, len(shown.views)), *(key for key, _ in taken)]
        if (parts is solos and len(taken) != 1) or shown.mixing:
            columns.append([_cell(source, batch, view) for batch in whole])
            headings.append("all together")
        for rows_of_one, sample_id, batch, *cells in zip(made, ids, whole, *columns, strict=True):
            crop = _crop(batch, view)
            rows_of_one.append(_row(source, sample_id, cells=tuple(cells), headings=tuple(headings), crop=crop))
    note = _note(source, seed, f"epoch {epoch}, {how}", ids, [shown], are_first=samples is None)
    flat = tuple(row for rows_of_one in made for row in rows_of_one)
    return Contents(title=schedule.name or shown.name or "recipe", note=note, rows=flat, skipped=skipped)


def _each(progress: Progress | None, total: int) -> Callable[[], None]:
    """Tell how many images there will be, and return what is to be called after each."""
    if progress is None:
        return lambda: None
    progress(0, total)
    numbers = count(1)
    return lambda: progress(next(numbers), total)


def _draws(recipe: Recipe) -> bool:
    return recipe.mixes_samples or any(op.num_words for view in recipe.all_views for op in view.ops)


def _size_name(recipe: Recipe, sizes: set[tuple[int, int] | None]) -> str:
    """The size of a recipe's first view, where those of a sheet are of several `sizes`."""
    size = recipe.all_views[0].out_size
    return "" if len(sizes) == 1 or size is None else f", {size[1]}x{size[0]}"


def _view_name(view: int, num_views: int) -> str:
    return f", view {view + 1}" if num_views > 1 else ""


def _distinct_views(recipe: Recipe) -> list[int]:
    return [i for i, view in enumerate(recipe.views) if view not in recipe.views[:i]]


def _check(*, rows: int, cols: int, seed: int, epoch: int) -> None:
    as_count("rows", rows)
    as_count("cols", cols)
    as_seed(seed)
    as_epoch(epoch)


def _cell(source: Source, batch: Batch, view: int, only: str | None = None) -> Cell:
    """One view of a batch of one; with the captions of the op `only` where that is named."""
    images: Any = batch.images[view] if isinstance(batch.images, tuple) else batch.images
    image: Pixels = images[0]
    keyed = batch.plan.recipe.all_views[view].keyed_ops
    texts = tuple(text for key, text in batch.plan.captions(0, view) if only in (None, key))
    mixed = batch.plan.views[view][0]["mixing"] if batch.plan.recipe.mixing else None
    if mixed is not None and mixed["kind"]:
        texts += (source.name(int(mixed["partner"])).replace("\\", "/").rsplit("/", 1)[-1],)
    if not texts:
        draws = any(op.num_words for key, op in keyed if only in (None, key))
        texts = ("unchanged",) if draws else (f"{image.shape[1]}x{image.shape[0]} px",)
    return Cell(image=image, captions=texts, targets=of_view(source, batch, view), plan=batch.plan, view=view)


def _crop(batch: Batch, view: int = 0) -> tuple[float, float, float, float] | None:
    if not batch.plan.recipe.all_views[view].crops:
        return None
    left, top, right, bottom = (float(edge) for edge in looked_at(batch.plan.views[view][:1])[0])
    return left, top, right, bottom


def _row(
    source: Source,
    sample_id: int,
    *,
    cells: tuple[Cell, ...],
    headings: tuple[str, ...],
    crop: tuple[float, float, float, float] | None,
    is_whole: bool = True,
) -> Row:
    return Row(
        sample_id=sample_id,
        original=whole_image(source, sample_id) if is_whole else None,
        name=source.name(sample_id),
        class_name=_class_name(source, sample_id),
        crop=crop,
        headings=headings,
        cells=cells,
        targets=of_original(source, sample_id) if is_whole else None,
    )


def _class_name(source: Source, sample_id: int) -> str:
    """The first few numbers of a label of k."""
    label = source.label(sample_id)
    if isinstance(label, np.ndarray):
        return " ".join(f"{number:g}" for number in label[:4]) + (" ..." if len(label) > 4 else "")
    return str(source.classes[label]) if 0 <= label < len(source.classes) else ""


def _note(
    source: Source, seed: int, when: str, shown: Sequence[Any], recipes: Sequence[Recipe], *, are_first: bool
) -> str:
    which = f"the first {len(shown)} of {len(source)} photographs" if len(source) > 1 and are_first else ""
    ops: dict[str, None] = {}
    if has_targets(source):
        has_maps = source.has_label_maps
        ops = dict.fromkeys(name for recipe in recipes for name in not_followed(recipe, has_label_maps=has_maps))
    without = f"targets do not follow {', '.join(ops)}" if ops else ""
    return "   ·   ".join(part for part in (f"seed {seed}", when, which, without) if part)
